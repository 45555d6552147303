"""Outcomes that surprise more than usual: the bets on it, and what starts again."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from states import equal

import ensemble_sampling as es
from ensemble_sampling.core import Action
from ensemble_sampling.posteriors import Restarting
from ensemble_sampling.posteriors.restarting import Bets, Seen

ARMS, DIM, ROUNDS = 3, 2, 600
EACH = es.Ensemble(es.PerAction(es.Linear(DIM), ARMS), 5)
ONE = es.Ensemble(es.Linear(DIM), 5)
ODDS = 1000.0
rng = np.random.default_rng(0)
ROWS, INDICES = rng.normal(size=(ROUNDS, DIM)), rng.integers(ARMS, size=ROUNDS)
SLOPES, NOISE = rng.normal(size=(ARMS, DIM)), 0.3 * rng.normal(size=ROUNDS)


def outcomes(changed=()):
    """Linear in the context, of another sign for some of the actions from half-way on."""
    after = np.isin(INDICES, changed) & (np.arange(ROUNDS) >= ROUNDS // 2)
    return np.where(after, -1, 1) * (ROWS * SLOPES[INDICES]).sum(axis=1) + NOISE


@jax.jit
def learn(posterior, y, rows=ROWS, indices=INDICES, key=None):
    """All beliefs in turn, and how much each outcome surprised."""
    key = jax.random.key(0) if key is None else key

    def step(belief, seen):
        t, x, index, y = seen
        action, one = Action(index, x), jax.random.fold_in(key, t)
        _, surprise = posterior._surprise(one, belief[0], action, y)
        belief = posterior.update(one, belief, action, y)
        return belief, (belief[1:], surprise)

    given = [jnp.asarray(part) for part in (np.arange(ROUNDS), rows, indices)]
    last, (said, surprises) = jax.lax.scan(step, posterior.init(key), (*given, jnp.asarray(y)))
    return last, *said, surprises


def oracle(
    indices,
    rewards,
    squares,
    arms,
    stake=0.9,
    memory=1000,
    most=10,
    fewest=10,
    known=30,
    part=1 / 3,
):
    """The same in plain Python: wealths after every outcome, and (when, who) started again."""
    n, q, wealth = np.zeros((2, arms + 1)), np.zeros((2, arms + 1)), np.zeros(arms + 1)
    found, starts, enough = [], [], np.log(ODDS)  # in n and q: before the wealth was 1, and since

    def seen(i):
        both = slice(None) if n[0, i] < known else slice(1)
        return n[both, i].sum(), q[both, i].sum()

    begun = 0
    for t, (k, square) in enumerate(zip(indices, squares, strict=True)):
        found.append(wealth.copy())
        if len(np.unique(rewards[begun:t])) < 2:
            continue  # their unit is not known
        times_all, total = seen(arms)
        of_all = total / max(times_all, 1e-30)
        often, own = seen(k)
        usual = max((own + fewest * of_all) / (often + fewest), of_all) if arms else of_all
        usual = max(usual, (3e-4 * np.ptp(rewards[begun:t])) ** 2)
        won = np.log(1 + stake * (min(square / max(usual, 1e-30), most) - 1))
        won = won if n[:, k].sum() >= fewest else 0.0
        for i in {k, arms}:
            wealth[i] = max(wealth[i] + won, 0.0)
            n[:, i], q[:, i] = (1 - 1 / memory) * n[:, i], (1 - 1 / memory) * q[:, i]
            n[1, i], q[1, i] = n[1, i] + 1, q[1, i] + square
            if wealth[i] == 0:
                n[:, i], q[:, i] = [n[:, i].sum(), 0], [q[:, i].sum(), 0]
        if wealth[arms] > enough:
            n[:], q[:], wealth[:] = 0, 0, 0
            starts.append((t + 1, arms))
            begun = t + 1
        elif wealth[k] > enough:
            gone = np.flatnonzero(wealth[:arms] > part * enough)
            wealth[arms] = 0
            n[:, gone], q[:, gone], wealth[gone] = 0, 0, 0
            starts += [(t + 1, i) for i in gone]
        found[-1] = wealth.copy()
    return np.array(found), starts


@pytest.mark.parametrize(
    ("models", "changed", "all_of"),
    [(EACH, (1,), 0), (EACH, (0, 1, 2), 1), (EACH, (), 0), (ONE, (0, 1, 2), 1)],
    ids=["one action", "all", "nothing", "one model for all"],
)
def test_the_bets_are_those_of_ten_plain_lines(models, changed, all_of):
    y, indices = outcomes(changed), INDICES
    if models is ONE:  # which knows one slope
        y = np.where(np.arange(ROUNDS) < ROUNDS // 2, 1, -1) * (ROWS @ SLOPES[0]) + NOISE
        indices = np.zeros(ROUNDS, int)
    _, bets, changes, surprises = learn(Restarting(models, ODDS), y)
    arms = ARMS if models is EACH else 0
    wealth, starts = oracle(indices, y, np.asarray(surprises, np.float64) ** 2, arms)
    np.testing.assert_allclose(bets.wealth, wealth, rtol=1e-3, atol=1e-3)
    assert int(changes.all[-1]) == sum(who == arms for _, who in starts) == all_of
    assert int(changes.one[-1]) == sum(who < arms for _, who in starts)
    assert int(changes.last[-1]) == max((t for t, _ in starts), default=0)
    if changed == (1,):
        assert 1 in {who for _, who in starts}
    assert all(ROUNDS // 2 < t < ROUNDS // 2 + 120 for t, _ in starts)


def action(posterior, belief, k):
    """The model of one action: what it shares with no other."""
    shared, members = belief
    own = (shared.root, shared.mean, shared.ones)
    return jax.tree.map(lambda leaf: leaf[k], own), jax.tree.map(lambda leaf: leaf[:, k], members)


def test_one_action_starts_again_and_the_others_stay_as_they_are():
    belief = learn(Restarting(EACH, ODDS), outcomes())[0][0]
    fresh = EACH.init(jax.random.key(5))
    renewed = EACH.renewed(belief, fresh, jnp.array([False, True, False]))
    for k in (0, 2):
        assert equal(action(EACH, renewed, k), action(EACH, belief, k))
    shared, _ = action(EACH, renewed, 1)
    assert equal(shared, action(EACH, fresh, 1)[0])
    assert equal(renewed[0].seen, belief[0].seen)  # the noise of all is known as before
    away = np.asarray(renewed[1].away.value[:, 1])
    assert np.ptp(away, axis=0).min() > 0.1  # every member is a draw of its own
    assert not equal(away, np.asarray(EACH.init(jax.random.key(0))[1].away.value[:, 1]))


def test_one_arm_starts_again_and_the_others_stay_as_they_are():
    arms = es.Ensemble(es.IndependentArms(ARMS), 5)
    belief = learn(Restarting(arms, ODDS), outcomes())[0][0]
    which = jnp.array([False, True, False])
    new, drawn = arms.init(jax.random.key(5))
    shared, members = arms.renewed(belief, (new, drawn), which)
    for k, old, begun in ((0, *belief), (1, new, drawn), (2, *belief)):
        assert equal(members.away[:, k], begun.away[:, k])
        for name in ("pulls", "mean", "ones"):
            now, then = (jax.tree.leaves(getattr(part, name)) for part in (shared, old))
            assert [leaf[k] for leaf in now] == [leaf[k] for leaf in then]
    assert equal((shared.seen, members.luck), (belief[0].seen, belief[1].luck))


def test_after_a_change_of_all_it_is_as_one_that_began_there():
    """What was learned before is gone: from the alarm on it is a new posterior's learning."""
    y, posterior = outcomes((0, 1, 2)), Restarting(EACH, ODDS)
    end, _, changes, _ = learn(posterior, y)
    start, key = int(changes.last[-1]) - 1, jax.random.key(0)
    models = EACH.init(jax.random.fold_in(jax.random.fold_in(key, start), 2))
    step = jax.jit(lambda posterior, *given: posterior.update(*given))
    for t in range(start, ROUNDS):
        seen = Action(jnp.int32(INDICES[t]), jnp.asarray(ROWS[t], float))
        models = step(EACH, jax.random.fold_in(key, t), models, seen, jnp.asarray(y[t], float))
    for ours, theirs in zip(jax.tree.leaves(end[0]), jax.tree.leaves(models), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_while_nothing_is_noticed_it_is_the_posterior_it_is_around():
    y = outcomes()
    plain = learn(Restarting(EACH, 1e30), y)[0][0]
    assert equal(learn(Restarting(EACH, ODDS), y)[0][0], plain)


def test_realizations_side_by_side_notice_each_its_own(float64):
    each = [outcomes(changed) for changed in ((), (1,), (0, 1, 2), ())]
    alone = [learn(Restarting(EACH, ODDS), y) for y in each]
    beside = jax.vmap(lambda y: learn(Restarting(EACH, ODDS), y))(np.stack(each))
    for n, one in enumerate(alone):
        assert equal(one[2], jax.tree.map(lambda leaf, n=n: leaf[n], beside[2]))
        for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(beside), strict=True):
            np.testing.assert_allclose(ours, theirs[n], rtol=1e-6, atol=1e-9)


def test_neither_unit_nor_offset_of_outcomes_decides_what_is_noticed(float64):
    y = outcomes((1,))
    one, other = (learn(Restarting(EACH, ODDS), a + b * y) for a, b in ((0.0, 1.0), (-40.0, 1e3)))
    assert int(one[2].one[-1]) >= 1
    assert equal(one[2], other[2])


WORLDS = {
    "clicks of 1%": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "t(3)": lambda rng, n: rng.standard_t(3, size=n),
    "rare prizes": lambda rng, n: rng.normal(size=n) + 1000 * (rng.random(n) < 0.005),
    "log-normal": lambda rng, n: np.exp(2 * rng.normal(size=n)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_rare_or_heavy_is_no_change(name):
    """50,000 outcomes of each, with models that know all there is to know."""
    y = WORLDS[name](np.random.default_rng(1), 50_000)
    posterior = Restarting(es.Ensemble(es.PerAction(es.Linear(1), 2), 1))

    @jax.jit
    def run(y):
        def step(bets, seen):
            t, got = seen
            square = (got - y.mean()) ** 2
            bets, every, alone = posterior._settled(bets, t % 2, got, square)
            return bets, every | alone.any()

        start = posterior.init(jax.random.key(0))[1]
        return jax.lax.scan(step, start, (jnp.arange(len(y)), y))[1]

    assert np.asarray(run(jnp.asarray(y, float))).sum() <= 1


def test_what_surprised_beside_it_starts_again_with_it_and_the_rest_stays():
    posterior, enough = Restarting(EACH, ODDS), np.log(ODDS)
    seen = Seen(jnp.full(4, 50.0), jnp.full(4, 50.0))
    wealth = jnp.asarray([0.99 * enough, 0.4 * enough, 0.3 * enough, 0.5 * enough])
    bets = Bets(seen, seen, wealth, jnp.zeros(()), jnp.ones(()))
    after, every, alone = posterior._settled(bets, jnp.int32(0), jnp.ones(()), jnp.full((), 5.0))
    assert not every
    assert alone.tolist() == [True, True, False]
    assert after.wealth.tolist() == [0, 0, wealth[2], 0]
    assert (after.before.outcomes > 0).tolist() == [False, False, True, True]


def test_nothing_surprises_while_no_two_outcomes_differ():
    posterior = Restarting(EACH, ODDS)
    _, bets, changes, _ = learn(posterior, np.where(np.arange(ROUNDS) < 400, 7.0, 0.5))
    assert float(bets.since.outcomes[400, -1] + bets.before.outcomes[400, -1]) == 0
    assert float(bets.since.outcomes[401, -1] + bets.before.outcomes[401, -1]) == 1
    assert int(changes.last[400]) == 0


def test_rounding_is_no_surprise_where_outcomes_never_vary():
    posterior = Restarting(EACH, ODDS)
    bets = posterior.init(jax.random.key(0))[1]
    bets = bets._replace(low=jnp.zeros(()), high=jnp.ones(()))

    def step(bets, square):
        bets, every, alone = posterior._settled(bets, jnp.int32(0), jnp.ones(()), square)
        return bets, every | alone.any()

    for size, noticed in ((1e-10, False), (1e-4, True)):
        squares = jnp.asarray(np.repeat([size / 100, size], 200), float)
        assert np.asarray(jax.lax.scan(step, bets, squares)[1]).any() == noticed
