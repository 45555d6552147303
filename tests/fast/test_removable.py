"""Whatever file of `fast/` is deleted, the rest works as before, and gives the same numbers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ensemble_sampling

FILES = sorted(
    file.stem
    for file in (Path(ensemble_sampling.__file__).parent / "fast").glob("*.py")
    if file.stem != "__init__"
)
# A process without them: what is looked for is not there.
WITHOUT = """
import importlib.machinery as machinery
find = machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name in HIDDEN else find(name, *rest)
)
"""
NUMBERS = """
import json, tempfile
import numpy as np
import ensemble_sampling as es
def play(bandit):
    rng, said = np.random.default_rng(0), []
    for t in range(12):
        free = [True] * 3 + [False] * (t % 2)
        made = bandit.choose(rng.normal(size=(len(free), 2)), available=free)
        said += [made.index, made.probability, *made.values.mean.tolist()]
        bandit.learn(made.id, float(made.index))
    return said + [len(bandit.log()["id"])]
agent = es.EnsembleSampling(es.Linear(2, noise_std=1.0), 3)
found = [play(es.Bandit(given)) for given in (agent, None)]
with tempfile.TemporaryDirectory() as folder, es.Bandit.open(folder, agent) as bandit:
    found.append(play(bandit))
changing = es.posteriors.Restarting(es.posteriors.Ensemble(es.IndependentArms(4), 3), odds=5.0)
world = es.GaussianArms(4, noise_std=1.0)
found.append(es.simulate(es.ThompsonSampling(changing), world, 30, 8, progress=False).mean.tolist())
print(json.dumps(found))
"""


def numbers(hidden):
    names = [f"ensemble_sampling.fast.{file}" for file in hidden]
    code = f"HIDDEN = {names!r}\n{WITHOUT}\n{NUMBERS}"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def whole():
    return numbers([])


def check(found, whole):
    """To rounding: what is compiled in other pieces adds up in another order."""
    for one, right in zip(found, whole, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-6)


def test_without_all_of_them_the_numbers_are_the_same(whole):
    check(numbers(FILES), whole)


@pytest.mark.parametrize("file", FILES)
def test_without_one_of_them_the_numbers_are_the_same(whole, file):
    check(numbers([file]), whole)
