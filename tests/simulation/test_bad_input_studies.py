"""Mistakes in simulations, studies, the paper's experiments and commands: one line each.

A row is (call, exception, words of its message); to extend a table, add a line. Nothing may be
accepted in silence, and a command says what was wrong in a sentence and ends with 2.
"""

# Wrong on purpose:
# pyright: reportArgumentType=false, reportCallIssue=false

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import diagnostics, theory
from ensemble_sampling.cli import app
from ensemble_sampling.experiments import report
from ensemble_sampling.experiments.paper import STUDY
from ensemble_sampling.experiments.runner import select as select_of
from ensemble_sampling.simulation import programs
from ensemble_sampling.study.sizing import Runs, smallest_ensemble

NAN = float("nan")
reproduce, select = partial(es.experiments.run, STUDY), partial(select_of, STUDY)
ARMS, WORLD = es.IndependentArms(4), es.GaussianArms(4)
AGENT = es.EnsembleSampling(ARMS, 3)
NETWORK = es.Network(es.networks.GaussianMLP(4, (3,)), 4, 10)
POINT = es.posteriors.Point(es.Linear(2))
TOLD = diagnostics.Foresight(np.zeros(3), np.ones(3), np.zeros(3), 5)


def run(agent=AGENT, world=WORLD, periods=5, realizations=2, **options):
    return lambda: es.simulate(agent, world, periods, realizations, **options)


def size(learner=ARMS, world=WORLD, periods=10, **options):
    tolerance = options.pop("tolerance", 0.1)
    options = {"realizations": 10, "seed": 0, **options}
    return lambda: smallest_ensemble(Runs(learner, world, periods, **options), tolerance)


def plan(learner=ARMS, world=WORLD, periods=10, **options):
    return lambda: es.plan(learner, world, periods, **{"tolerance": 0.1, **options})


def path(ensemble=AGENT.posterior, world=WORLD, periods=5, realizations=2, **options):
    return lambda: diagnostics.trajectory(ensemble, world, periods, realizations, **options)


def replay(features=((1, 0), (0, 1)), chosen=(0, 1), outcomes=(1.0, 2.0)):
    return lambda: diagnostics.replay(POINT, features, chosen, outcomes)


def calibrate(noise_std=1.0, **changed):
    return lambda: diagnostics.calibration(TOLD._replace(**changed), noise_std)


class Growing(es.Uniform):
    def init(self, key):
        return jnp.zeros(3)

    def update(self, key, state, action, outcome):
        return jnp.zeros(4)


class Named(es.Uniform):
    name: str = "a name"  # must be static


class Huge(es.GaussianArms):
    def init(self, key):
        return jnp.zeros((2**20, 2**20, 2**20))


class Vectors(es.GaussianArms):
    def outcome(self, key, world, action):
        return world


class Nonsense(es.GaussianArms):
    def outcome(self, key, world, action):
        return world[action.index] * NAN


SIMULATIONS = [
    (run(periods=0), ValueError, "periods must be at least 1, got 0"),
    (run(periods=5.0), TypeError, "periods must be a whole number, got 5.0"),
    (run(realizations=0), ValueError, "realizations must be at least 1, got 0"),
    (run(realizations="10"), TypeError, "realizations must be a whole number, got '10'"),
    (run(seed=-1), ValueError, "seed must be at least 0, got -1"),
    (run(seed=2**32), ValueError, "seed must be less than 4294967296"),
    (run(seed=jax.random.key(0)), TypeError, "seed must be a whole number"),
    (run(chunk=0), ValueError, "chunk must be at least 1, got 0"),
    (run(chunk=1.5), TypeError, "chunk must be a whole number, got 1.5"),
    (run(coupled="no"), TypeError, "coupled must be True or False, got 'no'"),
    (run(expected=None), TypeError, "expected must be True or False, got None"),
    (run(keep=3), TypeError, "keep must be true, false or a list of periods, got 3"),
    (run(keep="all"), TypeError, "keep must be true, false or a list of periods, got 'all'"),
    (run(keep=[0.0]), TypeError, "a period to keep must be a whole number, got 0.0"),
    (run(keep=[5]), ValueError, "a period to keep must be less than 5, got 5"),
    (run(keep=[-6]), ValueError, "a period to keep must be at least -5, got -6"),
    (run(last=True, keep=[3]), ValueError, "a period to keep must be less than 1, got 3"),
    (run(last=True, measure=max), ValueError, "leave out `measure`"),
    (run(last=1), TypeError, "last must be True or False, got 1"),
    (run(measure=3), TypeError, r"measure must be a function of \(agent, key, state, event\)"),
    (run(progress=0), TypeError, "progress must be true, false or a function"),
    (run(checkpoint=3), TypeError, "checkpoint must be a folder's path, got 3"),
    (run(periods=2**30, coupled=True), ValueError, r"arms x periods < 2\^32"),
    (run(ARMS), TypeError, "expected an agent .* or a posterior"),
    (run(None), TypeError, "expected an agent .* or a posterior .* got None"),
    (run(es.Uniform), TypeError, r"write Uniform\(...\), not the class"),
    (run(WORLD, AGENT), TypeError, "expected an agent"),
    (run(world=AGENT), TypeError, "environment must have .*; ThompsonSampling has no offer"),
    (run(world=es.GaussianArms), TypeError, r"write GaussianArms\(...\), not the class"),
    (run(world=es.GaussianArms(5)), ValueError, "4 arms, but 5"),
    (run(es.Exact(es.Linear(3)), es.LinearBandit(2, 4)), ValueError, "action features must have"),
    (run(world=Vectors(4)), ValueError, r"got .*\(4,\)"),
    (run(Growing()), ValueError, "update must keep the shapes and types of the state"),
    (run(Named()), TypeError, r"eqx.field\(static=True\), got 'a name'"),
    (run(es.Uniform(), Huge(4)), ValueError, "GiB of memory, and there are"),
]

STUDIES = [
    # sizing
    (size(tolerance=0), ValueError, "tolerance must be greater than 0, got 0"),
    (size(tolerance=NAN), ValueError, "tolerance must be finite, got nan"),
    (size(realizations=1), ValueError, "realizations must be at least 2, got 1"),
    (size(periods=0), ValueError, "periods must be at least 1, got 0"),
    (size(most=1), ValueError, "most must be at least 2, got 1"),
    (size(most=10**9), ValueError, "GiB of memory, and there are"),
    (size(seed=-1), ValueError, "seed must be at least 0, got -1"),
    (size(NETWORK), TypeError, "Network has no exact posterior"),
    (size(AGENT), TypeError, "ThompsonSampling"),
    (size(checkpoint=7), TypeError, "checkpoint must be a folder's path, got 7"),
    (size(world=es.GaussianArms(5)), ValueError, "4 arms, but 5"),
    # planning
    (plan(tolerance=0), ValueError, "tolerance must be greater than 0, got 0"),
    (plan(NETWORK), TypeError, "Network has no exact posterior"),
    (plan(world=None), TypeError, "environment must have"),
    (plan(world=es.GaussianArms(5)), ValueError, "4 arms, but 5"),
    # diagnostics
    (path(es.Ensemble(NETWORK, 2)), TypeError, "Network has no exact posterior"),
    (path(AGENT), TypeError, "ensemble must be an Ensemble, got"),
    (path(es.Exact(ARMS)), TypeError, "ensemble must be an Ensemble, got"),
    (path(periods=0), ValueError, "periods must be at least 1, got 0"),
    (path(points=0), ValueError, "points must be at least 1, got 0"),
    (path(draws=0), ValueError, "draws must be at least 1, got 0"),
    (path(adaptive="no"), TypeError, "adaptive must be True or False, got 'no'"),
    (
        lambda: diagnostics.foresight(AGENT, WORLD, 5, 2),
        TypeError,
        "posterior must have .*; ThompsonSampling has no sample",
    ),
    (
        lambda: diagnostics.foresight(AGENT.posterior, WORLD, 5, 0),
        ValueError,
        "realizations must be at least 1, got 0",
    ),
    (
        lambda: diagnostics.look(POINT, POINT.init(jax.random.key(0)), jnp.eye(2), draws=0),
        ValueError,
        "draws must be at least 1, got 0",
    ),
    (lambda: diagnostics.view(jnp.ones(3)), ValueError, "values must have shape"),
    (lambda: diagnostics.view(jnp.ones((0, 3))), ValueError, "values must have shape"),
    (replay(chosen=[0, 2]), ValueError, r"chosen must be between 0 and 1, .* got 2 at \[1\]"),
    (replay(chosen=[-1, 0]), ValueError, r"chosen must be between 0 and 1, .* got -1 at \[0\]"),
    (replay(chosen=[0]), ValueError, "chosen must be .* of the same length as outcomes"),
    (replay(chosen=[0.0, 1.0]), ValueError, "chosen must be indices of actions"),
    (replay(outcomes=[1.0, NAN]), ValueError, r"outcomes must be finite, got nan at \[1\]"),
    (replay(chosen=[], outcomes=[]), ValueError, r"outcomes must have shape \(any,\), got \(0,\)"),
    (replay(features=np.ones(2)), ValueError, r"features must have shape \(any, any\)"),
    (replay(features=np.ones((3, 2, 2))), ValueError, r"features must have shape \(2, any, any\)"),
    (replay(features=np.ones((2, 3))), ValueError, r"features must have shape .*2\), got"),
    (replay(features=[[1, NAN], [0, 1]]), ValueError, "features must be finite, got nan"),
    (calibrate(noise_std=0), ValueError, "noise_std must be greater than 0, got 0"),
    (calibrate(models=0), ValueError, "models must be at least 1, got 0"),
    (calibrate(mean=np.zeros(2)), ValueError, "mean, spread and outcome must have one shape"),
    (calibrate(outcome=np.array([0, NAN, 0])), ValueError, "must be finite"),
    (calibrate(spread=-np.ones(3)), ValueError, "spread at least 0"),
    (lambda: diagnostics.calibration([1, 2, 3], 1.0), TypeError, "foresight must be what"),
    # theory
    (lambda: theory.divergence_tail(2.0, 5, 0.1), TypeError, "arms must be a whole number"),
    (lambda: theory.divergence_tail(2, 5, NAN), ValueError, "epsilon must be finite, got nan"),
    (lambda: theory.adaptive_divergence_tail(2, 5, 0.1, 0.5), TypeError, "t must be a whole"),
    (lambda: theory.regret_bound(0, 3, 10, 5), ValueError, "dim must be at least 1, got 0"),
    (lambda: theory.added_loss(2, 3, 10, 0), ValueError, "members must be at least 1, got 0"),
    (lambda: theory.members_for_loss(2, 3, 10, 0), ValueError, "epsilon must be greater than 0"),
    (lambda: theory.too_few_members(2, "3"), TypeError, "members must be a whole number"),
    (lambda: theory.frequentist_members(2, 0), ValueError, "periods must be at least 1, got 0"),
    (
        lambda: theory.frequentist_inflation(2, 10, 1.5),
        ValueError,
        "delta must be between 0 and 1, got 1.5",
    ),
    (
        lambda: theory.withdrawn_theorem_3_members(2, 10, 0),
        ValueError,
        "epsilon must be greater than 0, got 0",
    ),
    # the paper's experiments
    (lambda: select("1a"), TypeError, "names must be a list of panels or figures, got '1a'"),
    (lambda: select(["5x"]), ValueError, "there is no panel '5x'; accepted are 1a, 1b"),
    (lambda: select([1]), ValueError, "there is no panel 1; accepted are"),
    (
        lambda: reproduce(["1a"], realizations="desk"),
        ValueError,
        "a number, 'full' or 'laptop', got 'desk'",
    ),
    (lambda: reproduce(["1a"], realizations=1), ValueError, "realizations must be at least 2"),
    (lambda: reproduce(["1a"], seed="0"), TypeError, "seed must be a whole number, got '0'"),
    (lambda: reproduce(["1a"], out=3), TypeError, "out must be a folder's path, got 3"),
    (lambda: reproduce(["1a"], out=__file__), ValueError, "out must be a folder, but .* is a file"),
    (lambda: reproduce(["1a"], force="yes"), TypeError, "force must be True or False, got 'yes'"),
    (
        lambda: report.build(STUDY, "nowhere"),
        ValueError,
        "nowhere holds no results; expected some of 1a",
    ),
]


def named(rows):
    return [pytest.param(*row, id=f"{i}: {row[-1]}"[:60]) for i, row in enumerate(rows)]


@pytest.mark.parametrize(("call", "error", "words"), named(SIMULATIONS + STUDIES))
def test_it_is_refused_in_words_before_anything_is_run_or_written(
    call, error, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "_program", None)
    with pytest.raises(error, match=words):
        call()
    assert list(tmp_path.iterdir()) == []


def test_a_world_that_gives_nonsense_is_named():
    with pytest.raises(ValueError, match="Nonsense gave an outcome or mean reward that is not fin"):
        run(es.Uniform(), Nonsense(4))()


def test_outcomes_of_several_numbers_have_no_foresight():
    with pytest.raises(ValueError, match=r"foresight is of single numbers, not outcomes \(4,\)"):
        diagnostics.foresight(Anything(), Vectors(4), 3, 2)


class Anything(eqx.Module):
    """A posterior that takes any outcome."""

    def init(self, key):
        return ()

    def sample(self, key, belief):
        return lambda features: jnp.zeros(len(features))

    def update(self, key, belief, action, outcome):
        return belief

    def values(self, key, belief, features, draws):
        return jnp.zeros((draws, len(features)))


SMALL = ["plan", "--arms", "4", "--periods", "10", "--tolerance", "0.1", "--realizations", "10"]

COMMANDS = [
    (["reproduce", "7x"], "there is no panel '7x'; accepted are 1a, 1b"),
    (["reproduce", "--realizations", "0"], "realizations must be at least 2, got 0"),
    (["reproduce", "--realizations", "many"], "Invalid value for '--realizations'"),
    (["reproduce", "--scale", "moon"], "'moon' is not one of 'laptop', 'paper'"),
    (["reproduce", "--seed", "-1"], "seed must be at least 0, got -1"),
    (["reproduce", "--seed", "4294967296"], "seed must be less than 4294967296"),
    (["reproduce", "--out", "file"], "out must be a folder, but file is a file"),
    (["reproduce", "--speed", "9"], "No such option"),
    (["report"], "Missing argument 'DIR'"),
    (["report", "nowhere"], "nowhere holds no results"),
    (["report", "file"], "file holds no results"),
    (["report", "damaged"], "damaged holds no results"),
    (["inspect", "nowhere"], "nowhere"),
    (["plan"], "Missing option '--arms'"),
    (["plan", "--arms", "4", "--periods", "10"], "Missing option '--tolerance'"),
    ([*SMALL, "--arms", "0"], "arms must be at least 1, got 0"),
    ([*SMALL, "--arms", "x"], "Invalid value for '--arms'"),
    ([*SMALL, "--periods", "0"], "periods must be at least 1, got 0"),
    ([*SMALL, "--tolerance", "0"], "tolerance must be greater than 0, got 0"),
    ([*SMALL, "--noise-std", "0"], "noise_std must be greater than 0, got 0"),
    ([*SMALL, "--seed", "-1"], "seed must be at least 0, got -1"),
    ([*SMALL, "--most", "1000000000"], "GiB of memory, and there are"),
    ([*SMALL, "--out", "file"], "out must be a folder, but file is a file"),
    (["fly"], "No such command 'fly'"),
]


@pytest.mark.parametrize(("arguments", "words"), named(COMMANDS))
def test_a_command_says_what_was_wrong_in_a_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "_program", None)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "1a.json").write_text("{")
    done = CliRunner().invoke(app, arguments)
    told = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())
    assert (done.exit_code, words in told) == (2, True), told
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "file"]
