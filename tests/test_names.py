"""What the package offers by name is there, loaded only when asked for, and the right thing."""

import ast
import subprocess
import sys
from pathlib import Path

import ensemble_sampling as es

STUB = Path(es.__file__).with_suffix(".pyi")


def test_the_public_names_are_those_of_the_stub_and_nothing_else():
    tree = ast.parse(STUB.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {alias.name for node in imports for alias in node.names}
    assert {*dir(es)} == {*es.__all__} == imported
    for name in es.__all__:
        assert getattr(es, name).__name__.rpartition(".")[2] == name


def test_at_the_top_is_what_a_newcomer_needs():
    assert len(es.__all__) <= 45


def test_names_stay_what_they_are_when_rooms_are_imported_first():
    program = (
        "import ensemble_sampling.evaluation.log, ensemble_sampling.simulation.run\n"
        "import ensemble_sampling as es\n"
        "assert callable(es.simulate) and callable(es.evaluate) and callable(es.plan)\n"
        "from ensemble_sampling import simulate, Bandit, theory\n"
        "assert simulate is es.simulate and theory is es.theory\n"
        "from ensemble_sampling.simulation import Result\n"
        "assert Result is es.simulation.Result\n"
        "assert es.evaluation.Log is es.Log and es.simulation.sweep is es.sweep\n"
        "from ensemble_sampling.posteriors import Laplace, Ensemble\n"
        "assert Ensemble is es.Ensemble and Laplace is es.posteriors.Laplace\n"
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
