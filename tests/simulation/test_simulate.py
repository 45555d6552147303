"""The simulator: a plain NumPy loop fed the same draws, chunks, coupling, measures, progress."""

from collections.abc import Callable
from threading import Event
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.core import Tracer
from small_runs import ARMS, CHUNK, Odd, small, whole

import ensemble_sampling as es
from ensemble_sampling.agents.greedy import greedy
from ensemble_sampling.simulation import Moments, programs, realization
from ensemble_sampling.simulation.run import completed

DIM, PERIODS = 3, 60


def regrets(*args, **options) -> np.ndarray:
    """The regret of every realization."""
    regret = es.simulate(*args, keep=True, **options).regret
    assert regret is not None
    return regret


class Draws:
    """The random numbers of one realization, taken with the simulator's keys."""

    def __init__(self, seed: int, number: int, periods: int):
        key = jax.random.fold_in(jax.random.key(seed), number)
        world, outcome, agent = jax.random.split(key, 3)
        self.world, offer = jax.random.split(world)
        self.start, act, update = jax.random.split(agent, 3)
        at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
        times = jnp.arange(periods)
        self.outcome, self.act, self.update = at(outcome, times), at(act, times), at(update, times)
        self.offer = at(offer, times)

    @property
    def outcome_noise(self) -> np.ndarray:
        return np.asarray(jax.vmap(jax.random.normal)(self.outcome), np.float64)


def first_of_ties(values: np.ndarray, bits: int) -> int:
    """The best action; among several, the one whose hashed position is largest."""
    x = (bits + np.arange(len(values), dtype=np.uint64) * 0x9E3779B9) % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> np.uint64(shift))) * factor) % 2**32
    x = x ^ (x >> np.uint64(16))
    return int(np.argmax(np.where(values == values.max(), x | np.uint64(1), np.uint64(0))))


def bits(keys) -> list[int]:
    return [int(b) for b in np.asarray(jax.vmap(lambda k: jax.random.bits(k, ()))(keys))]


def split(keys, n: int):
    return jax.vmap(lambda k: jax.random.split(k, n))(keys).T


def linear_prior():
    rng = np.random.default_rng(5)
    root = np.tril(rng.normal(size=(DIM, DIM))) + 2 * np.eye(DIM)
    return rng.normal(size=DIM), root @ root.T, rng.normal(size=(ARMS, DIM))


def linear_by_ensemble(draws: Draws, members: int = 7, noise_std: float = 3.0):
    """Section 3 as printed: precision matrices, inverted anew in every period; yields the regret.

    Keys of the world, the outcomes and the agent come from three streams, the agent's from three
    more; every agent meets the world that `draws.world` gives.
    """
    mean, cov, actions = linear_prior()
    z = np.asarray(jax.random.normal(jax.random.split(draws.world)[0], (DIM,)), np.float64)
    means = actions @ (mean + np.linalg.cholesky(cov) @ z)
    keys = jax.random.split(draws.start, members)
    normals = jax.vmap(lambda k: jax.random.normal(k, (DIM,)))(keys)
    theta = mean + np.asarray(normals, np.float64) @ np.linalg.cholesky(cov).T
    model_keys, tie_keys = split(draws.act, 2)
    models = np.asarray(jax.vmap(lambda k: jax.random.randint(k, (), 0, members))(model_keys))
    w = jax.vmap(lambda k: jax.random.normal(k, (members,)))(split(draws.update, 2)[0])
    for m, tie, z, noise in zip(models, bits(tie_keys), draws.outcome_noise, w, strict=True):
        a = first_of_ties(actions @ theta[m], tie)
        yield means.max() - means[a]
        seen = means[a] + noise_std * (z + np.asarray(noise, np.float64))
        before, x = np.linalg.inv(cov), actions[a]
        cov = np.linalg.inv(before + np.outer(x, x) / noise_std**2)
        theta = (theta @ before + np.outer(seen, x) / noise_std**2) @ cov


def arms_by_annealing(draws: Draws, k: float = 20.0):
    """Epsilon-greedy with epsilon = k / (k + t) on running means."""
    noise_std, prior_std = 0.5, 2.0
    means = prior_std * np.asarray(jax.random.normal(draws.world, (ARMS,)), np.float64)
    sums, pulls = np.zeros(ARMS), np.full(ARMS, (noise_std / prior_std) ** 2)
    _, coin_keys, tie_keys = split(draws.act, 3)
    coins = np.asarray(jax.vmap(jax.random.uniform)(coin_keys))
    noise = zip(coins, bits(tie_keys), draws.outcome_noise, strict=True)
    for t, (coin, tie, z) in enumerate(noise):
        explore = coin < k / (k + t)
        a = first_of_ties(np.zeros(ARMS) if explore else sums / pulls, tie)
        yield means.max() - means[a]
        sums[a] += means[a] + noise_std * z
        pulls[a] += 1


MEAN, COV, ACTIONS = linear_prior()
GAUSSIAN = es.GaussianArms(ARMS, noise_std=0.5, prior_std=2.0)
LOOPS = {
    "linear": (
        es.Ensemble(es.Linear(DIM, 3.0, MEAN, prior_cov=COV), 7),  # means Thompson sampling on it
        es.LinearBandit(noise_std=3.0, prior_mean=MEAN, prior_cov=COV, actions=ACTIONS),
        linear_by_ensemble,
    ),
    "arms": (
        es.EpsilonGreedy(es.IndependentArms(ARMS, 0.5, prior_std=2.0), es.agents.Annealed(20)),
        GAUSSIAN,
        arms_by_annealing,
    ),
}


@pytest.mark.parametrize(("name", "seed"), [("linear", 11), ("arms", 11), ("arms", 4)])
def test_the_compiled_simulator_is_a_plain_numpy_loop(name, seed):
    """Regret in every period to float32 rounding. Arms' mean rewards differ by more than that,
    so the actions are the same, too."""
    agent, environment, loop = LOOPS[name]
    have = regrets(agent, environment, PERIODS, 3, seed=seed)
    for number in range(3):
        want = np.array(list(loop(Draws(seed, number, PERIODS))))
        steps = np.diff(np.unique(np.round(want, 6)))
        assert len(steps) > 1
        assert steps.min() > 1e-4
        np.testing.assert_allclose(have[number], want, rtol=0, atol=2e-5)


class Comings(es.GaussianArms):
    """Gaussian arms of which some are there and some not, anew in every period."""

    def offer(self, key, world):
        there = jax.random.bernoulli(key, 0.4, (self.arms,)).at[0].set(True)
        return es.core.Round(jnp.eye(self.arms), world, there)


@pytest.mark.parametrize("env", [Comings(ARMS), es.LinearBandit(DIM, ARMS, fresh=True)])
@pytest.mark.parametrize("expected", [False, True])
def test_regret_is_to_the_best_action_on_offer_in_the_period(env, expected):
    """A plain loop: what is on offer is drawn anew, and the others count for nothing."""
    have = regrets(es.Uniform(), env, PERIODS, 3, seed=5, expected=expected)
    for number in range(3):
        draws = Draws(5, number, PERIODS)
        world, want, offers, means = env.init(draws.world), [], set(), np.zeros(1)
        for offer_key, tie in zip(draws.offer, bits(draws.act), strict=True):
            offer = env.offer(offer_key, world)
            there = np.ones(ARMS, bool) if offer.available is None else np.asarray(offer.available)
            means = np.where(there, offer.means, -np.inf)
            offers.add(means.tobytes())
            want.append(means.max() - means[first_of_ties(np.where(there, 0.0, -np.inf), tie)])
        if expected:
            want[-1] = means.max() - means[np.isfinite(means)].mean()  # all equally likely
        np.testing.assert_allclose(have[number], want, rtol=0, atol=2e-6)
        assert len(offers) > PERIODS / 3


class OnHost(eqx.Module):
    """Uniform choice run by Python, as agents are that cannot be traced."""

    host = True
    label = "on the host"

    def init(self, key):
        return ()

    def act(self, key, state, features, available=None):
        assert not isinstance(features, Tracer)
        return greedy(key, jnp.zeros(len(features)), available)

    def update(self, key, state, action, outcome):
        return state

    def probabilities(self, state, features, available=None, key=None):
        return es.Uniform().probabilities(state, features, available, key)


@pytest.mark.parametrize("options", [{"chunk": 2, "expected": True}, {"coupled": True}])
def test_agents_on_the_host_run_the_same_realizations_as_compiled_ones(options):
    traced, host = (
        regrets(agent, Comings(ARMS), 12, 5, seed=3, **options)
        for agent in (es.Uniform(), OnHost())
    )
    np.testing.assert_allclose(host, traced, rtol=0, atol=2e-6)
    assert len({row.tobytes() for row in host}) == 5


def test_float64_runs_are_float64_in_all_threads(float64):
    agent, env = es.ThompsonSampling(es.Exact(es.Linear(2, 1.0))), es.LinearBandit(2, 3)
    assert regrets(agent, env, 5, 3).dtype == np.float64
    assert regrets(OnHost(), GAUSSIAN, 5, 3).dtype == np.float64
    swept = es.sweep(es.Uniform(), lambda s: es.GaussianArms(3, s), {"s": [1.0, 2.0]}, 5, 3)
    assert np.asarray(swept[0].regret).dtype == np.float64


def test_chunks_change_nothing_beyond_rounding_and_means_are_those_of_realizations():
    right = whole()
    for chunk in (None, 7):
        result = small(keep=True, chunk=chunk)
        for name in ("regret", "mean", "stderr"):
            one, two = getattr(result, name), getattr(right, name)
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)
    regret = right.regret.astype(np.float64)
    np.testing.assert_allclose(right.mean, regret.mean(axis=0), rtol=1e-12)
    want = regret.std(axis=0, ddof=1) / np.sqrt(22)
    np.testing.assert_allclose(right.stderr, want, rtol=1e-10, atol=1e-12)
    assert (right.regret.shape, right.periods) == ((22, 20), 20)
    assert small().regret is None


def test_one_realization_has_no_standard_error():
    result = es.simulate(es.Uniform(), es.GaussianArms(4), 5, 1)
    assert np.isnan(result.stderr).all()
    assert np.isfinite(result.mean).all()


@pytest.mark.parametrize(
    ("periods", "realizations", "own", "chunk"),
    [
        (1000, 1000, 0, 250),  # four equal ones of at most 256
        (1000, 3, 0, 2),  # both threads have some
        (1000, 1000, 2**20, 30),  # 34 rounds of 2 threads, of what fits in cache: 31
        (10**6, 1000, 0, 4),  # 2^25 bytes hold four times 8 bytes per period and 4 states
        (10**8, 1000, 0, 1),
    ],
)
def test_chunks_fit_in_cache_and_are_split_evenly(periods, realizations, own, chunk, monkeypatch):
    monkeypatch.setattr(programs, "threads_at_a_time", lambda: 2)
    agent, env = es.Uniform(), es.GaussianArms(4)
    assert programs.footprint(agent, env, periods) == 8 * periods + 4 * 4 * 4
    assert programs.chunk_size(agent, env, periods, realizations, own) == chunk
    assert programs.chunk_size(OnHost(), env, periods, realizations, own) == 1


NUMBERS = st.floats(-1e3, 1e3, width=32)


@given(st.lists(NUMBERS, min_size=2, max_size=30), st.data())
def test_moments_merge_exactly_in_any_split(numbers, data):
    regret = np.array(numbers)[:, None]
    cut = data.draw(st.integers(1, len(numbers) - 1))
    parts = [Moments.of(regret[:cut]), Moments.of(regret[cut:])]
    if data.draw(st.booleans()):
        parts.reverse()
    merged, want = parts[0].merge(parts[1]), Moments.of(regret)
    scale = 1 + np.abs(regret).max()
    assert merged.count == want.count
    np.testing.assert_allclose(merged.mean, want.mean, rtol=0, atol=1e-13 * scale)
    np.testing.assert_allclose(merged.m2, want.m2, rtol=1e-10, atol=1e-11 * scale**2)


@pytest.mark.parametrize("shape", [(1, 3), (16, 4), (257, 3), (300, 7), (1003, 5), (40, 6, 2)])
@pytest.mark.parametrize("summed", [False, True])
def test_moments_are_those_of_sixteen_rows_at_a_time_bit_for_bit(shape, summed):
    """Saved results were merged in this order."""
    regret = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found, m2 = Moments.of(regret, summed), 0.0
    for i in range(0, len(regret), 16):
        rows = regret[i : i + 16]
        rows = np.cumsum(rows, axis=1, dtype=np.float64) if summed else rows
        m2 = m2 + np.square(rows - found.mean).sum(axis=0)
    np.testing.assert_array_equal(found.m2, m2)


def test_work_is_begun_only_a_little_ahead_of_the_caller():
    """An item more than there are threads, whatever the speed of either side."""
    begun = []
    source = completed(begun.append, range(100), threads=3)
    for done in range(1, 20):
        next(source)
        assert len(begun) <= done + 3
    source.close()
    assert len(begun) <= 19 + 3


def test_what_fails_in_a_thread_fails_at_the_caller_and_the_rest_is_told_to_stop():
    stop = Event()

    def work(item):
        if item == 0:
            raise OSError("the disk is full")
        assert stop.wait(60)

    with pytest.raises(OSError, match="disk is full"):
        list(completed(work, range(10), 2, stop))
    assert stop.is_set()


def test_a_period_costs_the_same_early_and_late():
    """The body of the loop is the same program however many periods there are."""
    agent, env = es.EnsembleSampling(es.Linear(3, 1.0), 4), es.LinearBandit(3, 5)

    def body(periods):
        run = lambda key: realization(agent, env, key, periods, False)  # noqa: E731
        traced = jax.make_jaxpr(run)(jax.random.key(0))
        scans = [e for e in traced.jaxpr.eqns if e.primitive.name == "scan"]
        longest = max(scans, key=lambda e: e.params["length"])
        assert longest.params["length"] == periods
        return str(longest.params["jaxpr"])

    assert body(7) == body(20) == body(3000)


def test_runs_of_other_settings_share_one_compilation():
    learner, env = es.IndependentArms(3, 1.0, 0.0), es.GaussianArms(3)
    es.simulate(es.EpsilonGreedy(learner, 0.3), env, 4, 3)
    before = programs._program.cache_info().misses
    for agent, world in (
        *((es.EpsilonGreedy(learner, e), env) for e in (0.1, np.float64(0.5))),
        (es.EpsilonGreedy(es.IndependentArms(3, 2.0, 0.5, 3.0), 0.3), env),
        (es.EpsilonGreedy(learner, 0.3), es.GaussianArms(3, 0.1)),
    ):
        es.simulate(agent, world, 4, 3)
    assert programs._program.cache_info().misses == before


def test_a_setting_of_jax_counts_in_the_same_process():
    class Others(es.GaussianArms):
        """Its keys are JAX's own, which depend on the setting."""

    def found():
        return es.simulate(es.Uniform(), Others(3), 10, 4).mean.tolist()

    before = found()
    with jax.threefry_partitionable(False):
        assert found() != before
    assert found() == before


class InBlocks(es.Uniform):
    """Four pulls of an arm, then of the next; told what it sees, it tells `tell`."""

    tell: Callable[[Array, Array], None] = eqx.field(static=True)
    first: int = eqx.field(static=True)

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, key, state, features, available=None):
        return (self.first + state // 4) % 3

    def update(self, key, state, action, outcome):
        jax.debug.callback(self.tell, action.index, outcome, ordered=True)
        return state + 1


def pulls_of(first, coupled):
    seen = {arm: [] for arm in range(3)}
    agent = InBlocks(lambda arm, y: seen[int(arm)].append(float(y)), first)
    env, key = es.GaussianArms(3), jax.random.key(7)
    jax.block_until_ready(jax.jit(lambda: realization(agent, env, key, 36, coupled, False))())
    jax.effects_barrier()
    return seen


@pytest.mark.parametrize("coupled", [False, True])
def test_the_nth_coupled_pull_of_an_arm_brings_the_same_noise_to_every_agent(coupled):
    """And every pull of every arm brings its own."""
    one, two = pulls_of(0, coupled), pulls_of(1, coupled)
    assert (one == two) == coupled
    world_key, _ = jax.random.split(jax.random.split(jax.random.key(7), 3)[0])
    means = np.asarray(es.GaussianArms(3).init(world_key))
    noise = [y - means[arm] for arm, pulls in one.items() for y in pulls]
    assert np.diff(np.sort(noise)).min() > 1e-5


def draw_a_number(agent, key, state, event):
    return jax.random.uniform(key)


def test_a_measure_has_a_key_of_its_own_in_every_period():
    drawn = regrets(es.Uniform(), GAUSSIAN, 30, 4, measure=draw_a_number)
    assert len(np.unique(drawn)) == drawn.size


def test_coupling_sharpens_paired_comparisons():
    """Variance of the difference of two agents' total regret, where noise is what decides.

    It varies: with 500 realizations and seeds 0 to 11 it was 18 to 56 times smaller than with
    independent runs, and 1.7 to 4.5 times smaller than with the same worlds alone.
    """
    learner, env = es.IndependentArms(10, noise_std=4.0), es.GaussianArms(10, noise_std=4.0)
    agents = es.EnsembleSampling(learner, 10), es.EnsembleSampling(learner, 10, inflation=1.2)

    def variance(coupled, seeds):
        totals = [
            regrets(agent, env, 100, 500, seed=seed, coupled=coupled).sum(axis=1)
            for agent, seed in zip(agents, seeds, strict=True)
        ]
        return np.var(totals[0] - totals[1])

    coupled = variance(True, (1, 1))
    assert variance(False, (1, 2)) / coupled > 5
    assert variance(False, (1, 1)) / coupled > 1.2


class Bracketed(es.Uniform):
    @property
    def label(self):
        return "[red]uniform[/blue]"


def test_the_bar_shows_rate_progress_and_the_label_as_it_is(capsys):
    es.simulate(Bracketed(), es.GaussianArms(4), 5, 3, chunk=1, progress=True)
    shown = capsys.readouterr().err
    for text in ("3/3", "realizations/s", "[red]uniform[/blue]"):
        assert text in shown


def test_expected_scoring_of_the_last_period_has_the_same_mean_and_less_noise():
    agent, env = es.EnsembleSampling(es.IndependentArms(5, 1.0), 10), es.GaussianArms(5)
    drawn, scored = (regrets(agent, env, 10, 500, seed=3, expected=e) for e in (False, True))
    assert np.array_equal(drawn[:, :-1], scored[:, :-1])
    gap = drawn[:, -1] - scored[:, -1]
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
    assert scored[:, -1].std() < drawn[:, -1].std()


def test_mean_rewards_may_be_whole_numbers():
    found = regrets(es.Uniform(), Odd(), 4, 6, expected=True)
    assert (found[:, :-1] == np.round(found[:, :-1])).all()
    worlds = [Odd().init(Draws(0, number, 1).world)[0] for number in range(6)]
    expected = [np.max(means) - np.mean(means) for means in worlds]  # all equally likely
    np.testing.assert_allclose(found[:, -1], expected, rtol=1e-6)


def test_of_the_last_period_alone_the_numbers_are_those_of_all_periods():
    asked: Any = {"expected": True, "keep": [-1], "chunk": CHUNK}
    every, last = small(**asked), small(**asked, last=True)
    np.testing.assert_array_equal(last.regret, every.regret)
    np.testing.assert_array_equal(last.mean, every.mean[-1:])
    np.testing.assert_array_equal(last.stderr, every.stderr[-1:])


@pytest.mark.parametrize("agent", [OnHost(), es.Uniform()])
def test_the_last_period_alone_on_the_host_and_of_whole_numbers(agent):
    asked = {"seed": 3, "chunk": 2, "coupled": True}
    every, last = (regrets(agent, Odd(), 6, 5, **asked, last=last) for last in (False, True))
    np.testing.assert_allclose(last, every[:, -1:], rtol=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_a_mean_that_is_not_finite_is_noticed_in_any_period(last):
    with pytest.raises(ValueError, match="Odd gave an outcome or mean reward that is not finite"):
        es.simulate(es.Uniform(), Odd(broken=True), 6, 1, last=last)
