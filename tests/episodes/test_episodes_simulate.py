"""Simulations of episodes: the same numbers however they are run, and compiled once."""

# Wrong on purpose, and stand-ins for what is not installed:
# pyright: reportArgumentType=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false

import sys
from types import ModuleType, SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.episodes import RLSVI, BootstrappedDQN, DeepSea, Lookup, chain
from ensemble_sampling.simulation import programs

NET = es.Network(Lookup(16, 2, (5,)), 1, 1, noise_std=0.3, arms=2)
DQN = BootstrappedDQN(NET, 3, es.posteriors.Gaussian(), steps=2, batch=4, capacity=8)
PLAN = RLSVI(16, 2, 4, branches=2)


def simulated(agent=PLAN, world=None, episodes=12, realizations=20, **options):
    world = DeepSea(4) if world is None else world
    options = {"keep": True, "progress": False} | options
    return es.episodes.simulate(agent, world, episodes, realizations, seed=3, **options)


@pytest.mark.parametrize("agent", [PLAN, DQN], ids=["rlsvi", "dqn"])
def test_two_seeds_alone_give_the_numbers_they_give_among_twenty(agent):
    some = simulated(agent, realizations=2).regret
    np.testing.assert_array_equal(some, simulated(agent).regret[:2])


def test_a_run_that_was_interrupted_goes_on_with_the_same_numbers(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(done, total):
        if done >= 8:
            raise Interrupted

    with pytest.raises(Interrupted):
        simulated(checkpoint=tmp_path, chunk=4, progress=interrupt)
    found = []
    again = simulated(checkpoint=tmp_path, progress=lambda done, total: found.append(done))
    assert 8 <= found[0] < 20
    assert found[-1] == 20
    np.testing.assert_array_equal(again.regret, simulated(chunk=4).regret)
    with pytest.raises(ValueError, match=r"another run's checkpoint.*\n.*size: 4 -> 3"):
        simulated(world=DeepSea(3, 4), checkpoint=tmp_path)


class Elsewhere:
    """An engine that hands work on as bytes, and runs the last chunk first."""

    jobs = 1

    def run(self, works, chunks):
        from ensemble_sampling.simulation.transport import pack, unpack  # Ray is slow to import

        there = [unpack(pack(work)) for work in works]
        for at, number in reversed(chunks):
            yield (at, number), there[at].ready()(number)


@pytest.mark.parametrize("agent", [PLAN, DQN], ids=["rlsvi", "dqn"])
def test_an_engine_elsewhere_gives_the_same_numbers(agent):
    found = simulated(agent, realizations=6, chunk=2, engine=Elsewhere())
    np.testing.assert_array_equal(found.regret, simulated(agent, realizations=6, chunk=2).regret)


def test_sizes_with_the_same_shapes_are_one_program():
    programs._program.cache_clear()
    found = es.episodes.sweep(
        PLAN, lambda size: DeepSea(size, 4), {"size": [2, 3, 4]}, 12, 5, seed=3, progress=False
    )
    assert found.programs == 1
    assert programs._program.cache_info().misses == 1
    alone = simulated(world=DeepSea(3, 4), realizations=5)
    np.testing.assert_array_equal(found[1].regret, alone.regret)
    assert np.isfinite(es.episodes.learning_times(found[0])).all()


def test_learning_times_are_the_first_episodes_below_the_threshold():
    regret = np.array([[1, 1, 0, 0, 1.0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    result = SimpleNamespace(regret=regret, periods=5)
    np.testing.assert_array_equal(es.episodes.learning_times(result, 0.7), (3, 1, np.nan))
    np.testing.assert_array_equal(es.episodes.learning_times(result, 0.7, 2), (3, 2, np.nan))


def test_what_is_measured_is_recorded_in_place_of_the_regret():
    def cells(agent, key, state, event):
        return event.episode.observations[:-1]

    found = simulated(measure=cells, realizations=3)
    assert found.regret.shape == (3, 12, 4)
    assert (found.regret[:, :, 0] == 0).all()
    assert (np.diff(found.regret, axis=2) >= 3).all()  # a row further, a column left or right


class Endless(eqx.Module):
    """A world of one state, to be broken in one way at a time."""

    limit: int = eqx.field(static=True, default=3)
    actions: int = eqx.field(static=True, default=2)
    ends: bool = eqx.field(static=True, default=True)
    reward: float = 1.0
    grows: bool = eqx.field(static=True, default=False)

    def init(self, key):
        return ()

    def reset(self, key, world):
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)

    def step(self, key, world, state, action):
        t = state + 1
        seen = jnp.zeros((2,) if self.grows else (), jnp.int32)
        return es.episodes.Step(t, seen, jnp.asarray(self.reward), self.ends & (t == self.limit))

    def regret(self, world, episode):
        return -episode.rewards.sum()


class Stray(eqx.Module):
    action: int

    def init(self, key, episode):
        return jnp.zeros(())

    def policy(self, key, state):
        return eqx.Partial(lambda action, key, seen, t: jnp.asarray(action), self.action)

    def update(self, key, state, episode):
        return state


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: simulated(Stray(2), Endless()), ValueError, "action that is not one of its 2"),
        (lambda: simulated(Stray(1), Endless(reward=np.nan)), ValueError, "reward .* not finite"),
        (lambda: simulated(Stray(1), Endless(ends=False)), ValueError, "limit of 3 steps in real"),
        (lambda: simulated(Stray(1), Endless(grows=True)), ValueError, "shapes .* observation"),
        (lambda: simulated(Stray(1), es.GaussianArms(3)), TypeError, "world must have the methods"),
        (lambda: simulated(es.Uniform()), TypeError, "agent must have the methods init, policy"),
        (lambda: simulated(DQN, DeepSea(4), episodes=0), ValueError, "periods must be at least 1"),
        (lambda: simulated(PLAN, DeepSea(5)), ValueError, "plans for 4 steps"),
        (lambda: DeepSea(5, 4), ValueError, "size must be less than 5, got 5"),
        (lambda: DeepSea(4, cost=-1), ValueError, "cost must be between"),
        (lambda: chain(2), ValueError, "length must be at least 3"),
        (
            lambda: es.episodes.Table(np.full((2, 1, 2), 0.4), np.zeros((2, 1)), 3),
            ValueError,
            "chances that sum to 1",
        ),
        (lambda: BootstrappedDQN(es.Linear(3)), TypeError, "network must be es.Network"),
        (
            lambda: BootstrappedDQN(es.Network(Lookup(4, 2), 1, 1, arms=2)),
            ValueError,
            "needs the noise_std of rewards",
        ),
        (lambda: BootstrappedDQN(NET, 0), ValueError, "members must be at least 1"),
        (lambda: BootstrappedDQN(NET, discount=1.5), ValueError, "discount must be between"),
        (lambda: RLSVI(4, 2, 0), ValueError, "limit must be at least 1"),
        (lambda: es.episodes.Gymnax("Absent-v1"), ModuleNotFoundError, r"sampling\[episodes\]"),
        (lambda: es.episodes.Gymnasium("Absent-v1"), ModuleNotFoundError, r"g\[episodes\]"),
    ],
)
def test_mistakes_are_named(call, error, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("adapter", [es.episodes.Gymnax, es.episodes.Gymnasium])
def test_what_a_package_itself_lacks_is_named(adapter, tmp_path, monkeypatch):
    name = adapter.__name__.lower()
    (tmp_path / f"{name}.py").write_text("import what_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModuleNotFoundError, match="what_is_not_there"):
        adapter("Absent-v1")


class Clock:
    """An environment in the manner of Gymnasium: `steps` rewards of 1, and it is over."""

    action_space = SimpleNamespace(n=2)
    observation_space = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32))

    def __init__(self, steps, limit):
        self.steps, self.spec = steps, SimpleNamespace(max_episode_steps=limit)

    def reset(self, seed):
        self.t = 0
        return np.array([0.0, seed % 7]), {}

    def step(self, action):
        assert self.t < self.steps, "a step after the end"
        self.t += 1
        return np.array([self.t, action]), 1.0, self.t == self.steps, False, {}


@pytest.mark.parametrize(
    ("steps", "limit", "length", "cut", "chunk"), [(3, 5, 3, False, 1), (9, 5, 5, True, 2)]
)
def test_an_environment_of_gymnasium_runs_beside_the_agent(steps, limit, length, cut, chunk):
    world = es.episodes.Gymnasium(lambda: Clock(steps, limit), best=3.0)

    def told(agent, key, state, event):
        episode = event.episode
        return jnp.append(episode.observations[:, 0], jnp.array([episode.length, episode.cut]))

    found = simulated(Stray(1), world, 4, 2, measure=told, chunk=chunk)
    seen = [min(t, length) if t <= length else 0 for t in range(limit + 1)]
    np.testing.assert_array_equal(
        found.regret, np.broadcast_to([*seen, length, cut], (2, 4, limit + 3))
    )
    assert simulated(Stray(1), world, 2, 1).regret[0, 0] == 3.0 - length


class FakeGymnax:
    """The part of Gymnax's interface that the adapter speaks, over a counter."""

    def action_space(self, parameters):
        return SimpleNamespace(n=2)

    def reset_env(self, key, parameters):
        return jnp.zeros(2), {"time": 0}

    def step_env(self, key, state, action, parameters):
        t = state["time"] + 1
        return jnp.array([t, action], float), {"time": t}, jnp.array(1.0), jnp.array(False), {}

    def is_truncated(self, state, parameters):
        return state["time"] >= parameters.max_steps_in_episode


def test_an_environment_of_gymnax_is_compiled_with_the_agent(monkeypatch):
    gymnax = ModuleType("gymnax")
    gymnax.make = lambda name: (FakeGymnax(), SimpleNamespace(max_steps_in_episode=4))  # type: ignore
    monkeypatch.setitem(sys.modules, "gymnax", gymnax)
    world = es.episodes.Gymnax("Clock-v0", best=5.0)
    net = es.Network(es.networks.GaussianMLP(2, (4,), 2), 2, 1, noise_std=1.0, arms=2)
    found = simulated(BootstrappedDQN(net, 2, steps=1, batch=2, capacity=4), world, 4, 2)
    np.testing.assert_array_equal(found.regret, 1.0)
    episode, _ = es.episodes.play(
        jax.random.key(0), world, (), lambda key, observation, t: jnp.asarray(0)
    )
    assert (episode.length, episode.cut) == (4, True)
