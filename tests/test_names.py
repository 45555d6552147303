"""What the package offers by name is there, loaded only when asked for, and the right thing."""

import ast
import subprocess
import sys
from pathlib import Path

import ensemble_sampling as es

SOURCE = Path(es.__file__)


def test_names_are_where_the_type_checker_is_told_they_are():
    tree = ast.parse(SOURCE.read_text())
    told = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert told == es._HOMES
    assert sorted(es.__all__) == sorted(told)
    assert {*es.__all__, "__version__"} <= {*dir(es)}
    for name in es.__all__:
        assert getattr(es, name).__name__.rpartition(".")[2] == name or name in ("Agent",)


def test_rooms_called_like_functions_are_functions():
    program = (
        "import ensemble_sampling.evaluate.log, ensemble_sampling.simulate.run\n"
        "import ensemble_sampling as es\n"
        "assert callable(es.simulate) and callable(es.evaluate) and callable(es.plan)\n"
        "from ensemble_sampling import simulate, Bandit, theory\n"
        "assert simulate is es.simulate and theory is es.theory\n"
        "from ensemble_sampling.simulate import Result\n"
        "assert Result is es.Result\n"
        "assert not hasattr(es, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_loads_nothing_and_creates_no_device():
    program = (
        "import sys, ensemble_sampling\n"
        "assert not {'jax', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "ensemble_sampling.Bandit\n"
        "assert not {'matplotlib', 'scipy.stats', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_garbage_is_not_looked_for_among_what_was_imported():
    program = (
        "import gc, ensemble_sampling as es\n"
        "es.Bandit\n"
        "assert gc.isenabled() and gc.get_freeze_count() == 0\n"
        "assert len(gc.get_objects(2)) > 10 * (len(gc.get_objects(0)) + len(gc.get_objects(1)))\n"
        "gc.freeze()\n"
        "es.simulate\n"
        "assert gc.get_freeze_count() > 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
