"""Replay: an agent learns from the log's decisions that it would have made, as a bandit would."""

# pyright: reportOptionalOperand=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from log_examples import AGENT, COLUMNS, GREEDY, LOG, UNITS, InPython, act, action, eighths, update

import ensemble_sampling as es
from ensemble_sampling.evaluation import log as logs
from ensemble_sampling.evaluation.informed import Pupil
from ensemble_sampling.evaluation.replay import play

N, K, D = 60, 3, 2
AT, X, SHARES, CHOSEN, Y = COLUMNS


@pytest.fixture(autouse=True)
def parts_of_one_size(monkeypatch):
    """For which the loop is compiled once."""
    monkeypatch.setattr(logs, "CHUNK", 64)


def test_replay_learns_from_what_it_would_have_done_and_nothing_else():
    """A plain loop over the log with the agent's own functions, and the same keys."""
    found, agent = es.replay(LOG, AGENT, seed=500, normalise=False), AGENT
    keys = jax.random.split(jax.random.key(500, impl="threefry2x32"), 4)
    state, rows = agent.init(keys[0]), []
    for i in range(N):
        now = [jax.random.fold_in(key, i) for key in keys]
        x = jnp.broadcast_to(jnp.asarray(X[i], float), (K, D))
        index = act(agent, now[1], state, x, jnp.ones(K, bool))
        luck = jax.random.uniform(now[2])
        if index == CHOSEN[i] and luck < SHARES.min() / SHARES[i, CHOSEN[i]]:
            state = update(agent, now[3], state, action(CHOSEN[i], x[0]), jnp.asarray(Y[i], float))
            rows.append(i)
    np.testing.assert_array_equal(found.rows, rows)
    assert found.value.value == pytest.approx(Y[rows].mean())
    late = Y[rows][len(rows) // 2 :].mean()
    assert str(found).endswith(f"in the later half  {late:.4g}")


def test_replay_gives_uniform_play_its_value_whatever_the_logging():
    rng, shares = np.random.default_rng(6), np.array([0.6, 0.3, 0.1])
    chosen = rng.choice(3, 6000, p=shares)
    log = es.Log(chosen, 1.0 * chosen, propensities=np.tile(shares, (6000, 1)))
    found = es.replay(log, es.Uniform())
    assert len(found.rewards) == pytest.approx(600, abs=75)
    assert found.value.low < 1.0 < found.value.high
    more = es.replay(log, es.Uniform(), least=0.2)
    assert len(more.rewards) == pytest.approx(6000 * (0.2 + 0.2 + 0.1) / 3, abs=100)
    never = np.tile([0.5, 0.5, 0.0], (N, 1))
    with pytest.raises(ValueError, match=r"refused: .*% of the policy's probability"):
        es.replay(es.Log(AT % 2, Y, propensities=never), es.Uniform())
    with pytest.raises(ValueError, match="none of the 60 decisions counted"):
        es.replay(LOG, es.Uniform(), least=1e-9)


def test_replay_of_a_function_is_what_it_agrees_with():
    rng = np.random.default_rng(2)
    chosen, shares = rng.choice(2, 4000, p=[0.75, 0.25]), np.tile([0.75, 0.25], (4000, 1))
    y = np.where(chosen, 3.0, 1.0)
    log = es.Log(chosen, y, propensities=shares, actions=["a", "b"])

    def second(offer):
        return offer.names.index("b")

    found = es.replay(log, second)
    np.testing.assert_array_equal(found.rows, np.flatnonzero(chosen == 1))
    assert (found.policy, found.value.value, found.unsupported) == ("second", 3.0, 0.0)
    mixed = es.replay(log, lambda offer: [0.2, 0.8])  # each counts as if choices were uniform
    assert len(mixed.rows) == pytest.approx(4000 * 0.25, abs=100)
    assert mixed.value.low < 0.2 * 1 + 0.8 * 3 < mixed.value.high
    never = es.Log(AT % 2, Y, propensities=np.tile([0.5, 0.5, 0.0], (N, 1)))
    with pytest.raises(ValueError, match=r"refused: 100\.0% of the policy's probability"):
        es.replay(never, lambda offer: 2)


def test_units_do_not_matter_to_replay_which_learns_again_in_every_new_scale():
    """Features in units of their usual size are the same numbers, to rounding, in any unit."""
    rng = np.random.default_rng(3)
    x, chosen = rng.normal(size=(300, D)), rng.integers(0, K, 300)
    y = x[:, 0] * (chosen - 1) + 0.3 * rng.normal(size=300)

    def replayed(units, **options):
        log = es.Log(chosen, y, propensities=np.full((300, K), 1 / K), context=x * units)
        return es.replay(log, AGENT, **options)

    plain, moved = (replayed(units) for units in (1.0, 2.0 ** np.array([10.0, -10.0])))
    np.testing.assert_array_equal(plain.rows, moved.rows)
    assert not np.array_equal(plain.rows, replayed(1024, normalise=False).rows)
    assert plain.rewards[-40:].mean() > 0.5  # E max(x, -x) is 0.8


def strays():
    """Of 12 in a log of three actions, each was once as far as all before it together."""
    rng = np.random.default_rng(0)
    chosen, y = rng.integers(0, 3, 360), rng.normal(size=360)
    y[300::5] = 1e6
    return es.Log(chosen, y, np.full(360, 1 / 3), actions=["a", "b", "c"])


@pytest.mark.parametrize(
    ("agent", "log"),
    [
        (GREEDY, es.Log(CHOSEN, Y, propensities=np.full((N, K), 1 / K), context=X * UNITS)),
        (None, strays()),
    ],
    ids=["scaled", "strays"],
)
def test_replay_has_the_state_of_a_bandit_that_learned_the_same_outcomes(agent, log, monkeypatch):
    """In its units, whatever the parts a log is looked at in; only strays that it learned decide
    how far the next one counts."""
    pupil = Pupil.of(agent, log)
    counted, outside, state = play(log, pupil, 1 / 3, seed=0)
    assert outside == 0
    assert counted.sum() & (counted.sum() - 1), "choose another seed: it learned all again just now"
    some = (part[counted] for part in (log.chosen_features(), log.chosen, log.outcome))
    states = [state, pupil.as_bandit(0, *some)]
    monkeypatch.setattr(logs, "CHUNK", 10)
    again, _, cut = play(log, pupil, 1 / 3, seed=0)
    np.testing.assert_array_equal(again, counted)
    states.append(cut)
    if agent is None:
        assert 2 <= (log.outcome[counted] == 1e6).sum() < 12
        states = [each.belief[0][0] for each in states]  # what its members share
    for have, want, same in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(have, same)


def test_an_agent_in_python_replays_as_when_it_is_compiled():
    compiled, plain = (es.replay(LOG, agent) for agent in (GREEDY, InPython(GREEDY)))
    np.testing.assert_array_equal(compiled.rows, plain.rows)


def test_an_offset_of_outcomes_changes_nothing_in_replay_for_the_default_agent():
    near, far = (es.replay(eighths(offset), None) for offset in (0.0, 2.0**27))
    np.testing.assert_array_equal(near.rows, far.rows)
    np.testing.assert_array_equal(near.rewards, far.rewards - 2.0**27)
    assert far.rewards[-50:].mean() - 2.0**27 > 0.7  # chance has 0.5, the best action 1
    assert near.value.high - near.value.low == pytest.approx(far.value.high - far.value.low)


@pytest.mark.slow
def test_an_offset_of_outcomes_changes_nothing_in_replay_with_features():
    """Where all is learned again in every new scale of features."""
    rng = np.random.default_rng(3)
    x, chosen = rng.normal(size=(120, D)), rng.integers(0, K, 120)
    y = np.round(8 * (x[:, 0] * (chosen - 1) + 0.3 * rng.normal(size=120))) / 8
    near, far = (
        es.replay(es.Log(chosen, y + offset, np.full(120, 1 / K), context=x), None)
        for offset in (0.0, 2.0**27)
    )
    np.testing.assert_array_equal(near.rows, far.rows)
