"""The default agent: told nothing, it takes what comes, keeps what it began with, and learns."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportOptionalSubscript=false

import signal
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide import replica
from ensemble_sampling.decide.default import Default
from ensemble_sampling.decide.snapshots import SNAPSHOT
from ensemble_sampling.decide.summary import inspect

NAMES = ["left", "middle", "right"]


def contexts(rounds, width=2, seed=0):
    return np.random.default_rng(seed).normal(size=(rounds, width))


def reward(x, action):
    """Smooth, and not linear in x."""
    return float(np.sin(x[0] + NAMES.index(action)) + 0.1 * x[-1])


def play(bandit, rows, known=reward):
    """Choose in every context and learn at once; the actions chosen."""
    chosen = []
    for x in rows:
        decision = bandit.choose(context=x)
        bandit.learn(decision.id, known(x, decision.action))
        chosen.append(decision.action)
    return chosen


OFFERS = {
    "rows": ({}, [[0.5, 1.0, 2.0], [1.0, 0.0, -2.0]], None),
    "rows with names": ({}, {"a": [0.5, 1.0], "b": [1.0, 0.0]}, None),
    "dictionaries": ({}, [{"kind": "x", "price": 2.0}, {"kind": "y", "price": 3.0}], None),
    "dictionaries in a context": ({}, {"a": {"kind": "x"}, "b": {"kind": "y"}}, {"user": "me"}),
    "context": ({"actions": NAMES}, None, [1.0, -2.0, 0.5, 3.0]),
    "context described": ({"actions": NAMES}, None, {"hour": "late", "age": 30}),
    "no context": ({"actions": NAMES}, None, None),
}


@pytest.mark.parametrize("name", OFFERS)
def test_it_takes_whatever_describes_a_decision(name, tmp_path):
    options, features, context = OFFERS[name]
    memory = es.Bandit(**options)
    with es.Bandit.open(tmp_path, **options) as disk:
        for outcome in (3.0, -1.0, 2.5):
            made = [b.choose(features, context=context) for b in (memory, disk)]
            assert made[0].index == made[1].index
            assert made[0].probabilities.sum() == pytest.approx(1, abs=1e-5)
            for bandit, decision in zip((memory, disk), made, strict=True):
                bandit.learn(decision.id, outcome)
        assert equal(memory.state, disk.state)
    with es.Bandit.open(tmp_path) as again:  # by nothing but the folder
        assert equal(again.state, memory.state)
        ours = again.choose(features, context=context)
        theirs = memory.choose(features, context=context)
        assert (ours.index, ours.action) == (theirs.index, theirs.action)
        assert np.array_equal(ours.probabilities, theirs.probabilities)


def test_a_folder_goes_on_with_its_seed_and_actions(tmp_path):
    with es.Bandit.open(tmp_path, seed=5, actions=NAMES) as bandit:
        chosen = play(bandit, contexts(3))
    with es.Bandit.open(tmp_path) as bandit:
        chosen += play(bandit, contexts(3, seed=1))
    rows = np.concatenate([contexts(3), contexts(3, seed=1)])
    assert chosen == play(es.Bandit(seed=5, actions=NAMES), rows)
    with pytest.raises(ValueError, match="seed: 5 -> 6"):
        es.Bandit.open(tmp_path, seed=6)


def test_a_folder_goes_on_with_the_numbers_it_was_begun_with(tmp_path):
    with es.Bandit.open(tmp_path, actions=NAMES) as bandit:
        recorded = bandit._ledger.description
        recorded["default"] |= {"members": 7, "spread": 0.5}
        bandit._ledger.describe(recorded)  # as by a version with other numbers
    assert Default().members != 7
    with es.Bandit.open(tmp_path) as bandit:
        bandit.choose(context=[1.0, 2.0])
        assert bandit._replica.setup.recipe == Default(members=7, spread=0.5)
        assert bandit._replica.agent.posterior.posterior.members == 7
        assert bandit._ledger.description["default"]["members"] == 7
    with es.Bandit.migrate(tmp_path, actions=NAMES) as bandit:  # unless it is asked to
        assert bandit._replica.agent.posterior.posterior.members == Default().members


def room(arms, width, **settings):
    """The MiB that a default agent's state takes."""
    agent = Default(**settings).agent(arms, width, hashed=False)
    leaves = jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) / 2**20


def test_many_actions_take_a_tenth_of_the_memory_of_as_many_waves_for_each():
    assert room(1000, 10) < 31.6
    assert room(1000, 10, most=None) > 315
    assert room(100, 10) == room(100, 10, most=None)  # few are left alone
    assert room(5000, 10) < 40  # without waves, and with one model where two would be the same


def test_the_spread_of_a_value_is_its_standard_error():
    """Of 100 contexts, at least four in five are within two of them."""
    bandit = es.Bandit(actions=NAMES)
    rows, noise = contexts(120), np.random.default_rng(7).normal(size=120)
    for x, z in zip(rows, noise, strict=True):
        decision = bandit.choose(context=x)
        bandit.learn(decision.id, reward(x, decision.action) + 0.5 * z)
    far = []
    for x in contexts(100, seed=1):
        values = bandit.predict(context=x).values
        assert values is not None
        mean, spread = values
        k = int(np.argmax(mean))
        far.append(abs(mean[k] - reward(x, NAMES[k])) / spread[k])
    assert np.mean(np.array(far) < 2) >= 0.8
    assert 0.4 < np.sqrt(np.mean(np.square(far))) < 1.6


TURNED = {"some": [1], "all": [0, 1, 2]}


def turning(rows, actions):
    """Rewards by the context, whose sign is another one for these actions after 350 outcomes."""
    for t, x in enumerate(rows):
        means = np.sin(x[0] + 2 * np.arange(3))
        means[actions] *= -1 if t >= 350 else 1
        yield x, means


def follow(bandit, world):
    """The regret of every decision."""
    regret, noise = [], np.random.default_rng(2)
    for x, means in world:
        decision = bandit.choose(context=x)
        k = NAMES.index(decision.action)
        bandit.learn(decision.id, means[k] + 0.2 * noise.normal())
        regret.append(means.max() - means[k])
    return np.array(regret)


@pytest.mark.parametrize("actions", TURNED.values(), ids=TURNED)
def test_it_notices_that_the_world_has_changed_says_so_and_starts_again(actions, tmp_path):
    world = turning(contexts(700), actions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with es.Bandit.open(tmp_path, actions=NAMES) as bandit:
            regret = follow(bandit, world)
            state, said = bandit.state, bandit.summary().warnings
    assert regret[500:].mean() < regret[350:380].mean() / 4
    [one] = [text for text in said if "surprised far more than before" in text]
    assert "of all actions" in one or len(actions) < 3
    assert inspect(tmp_path).warnings == said  # by the snapshot alone
    (tmp_path / SNAPSHOT).unlink()
    with es.Bandit.open(tmp_path) as again:
        assert equal(again.state, state)


def test_without_a_context_it_notices_that_another_action_is_the_best_now(tmp_path):
    worth, noise = np.array([1.0, 0.5, 0.0]), np.random.default_rng(0).normal(size=(900, 3))
    with warnings.catch_warnings(), es.Bandit.open(tmp_path, actions=NAMES, seed=0) as bandit:
        warnings.simplefilter("ignore")
        chosen = []
        for t, luck in enumerate(0.3 * noise):
            decision = bandit.choose()
            k = NAMES.index(decision.action)
            bandit.learn(decision.id, (worth if t < 500 else worth[::-1])[k] + luck[k])
            chosen.append(k)
        state = bandit.state
        assert any("surprised far more" in text for text in bandit.summary().warnings)
    assert np.mean(np.array(chosen[300:500]) == 0) > 0.9
    assert np.mean(np.array(chosen[600:]) == 2) > 0.9
    (tmp_path / SNAPSHOT).unlink()
    with es.Bandit.open(tmp_path) as again:
        assert equal(again.state, state)


@pytest.mark.parametrize("actions", TURNED.values(), ids=TURNED)
def test_neither_units_nor_origins_matter_where_the_world_changes(actions, float64):
    def played(a, b, c, D):
        bandit, noise = es.Bandit(actions=NAMES, seed=3), np.random.default_rng(2)
        chosen = []
        for x, means in turning(contexts(600), actions):
            decision = bandit.choose(context=c + D * x)
            k = NAMES.index(decision.action)
            bandit.learn(decision.id, a + b * (means[k] + 0.2 * noise.normal()))
            chosen.append(k)
        return chosen, bandit._replica.changes(bandit._ledger)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        once = played(0.0, 1.0, np.zeros(2), np.ones(2))
        assert once[1].all + once[1].one >= 1
        assert played(-7.0, 30.0, np.array([3.0, -1.0]), np.array([20.0, -0.1])) == once


def test_whether_the_world_stays_is_recorded(tmp_path):
    es.Bandit.open(tmp_path, actions=NAMES, steady=True).close()
    with es.Bandit.open(tmp_path) as bandit:
        assert bandit._replica.setup.recipe == Default(odds=None)
    with pytest.raises(ValueError, match="odds: None -> 20000"):
        es.Bandit.open(tmp_path, steady=False)
    with pytest.raises(ValueError, match="steady is about the default agent"):
        es.Bandit(es.Uniform(), steady=True)
    with pytest.raises(TypeError, match="steady must be"):
        es.Bandit(steady=1)


def test_it_says_how_much_memory_it_takes_before_it_takes_it(monkeypatch):
    monkeypatch.setattr(replica, "LARGE", 2**20)
    large = es.EnsembleSampling(es.PerAction(es.Linear(50), 100), 2)
    monkeypatch.setattr(replica.Replica, "fresh", lambda _: pytest.fail("it took it"))
    said = "takes 2 MiB for 100 actions of 50 features, and up to 3 times as much"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=said):
            es.Bandit(large)


def test_settings_of_a_later_version_are_refused():
    with pytest.raises(ValueError, match=r"\['magic'\], which this version does not know"):
        Default.recorded(Default().settings | {"magic": 1.0})
    assert Default.recorded(Default().settings) == Default()


def test_a_folder_begun_with_an_agent_is_not_taken_for_the_default(tmp_path):
    es.Bandit.open(tmp_path, es.Uniform()).close()
    with es.Bandit.open(tmp_path) as bandit:
        assert "Uniform" in repr(bandit)


sizes = st.floats(0.01, 100.0)
signed = st.builds(lambda size, sign: sign * size, sizes, st.sampled_from([-1.0, 1.0]))


@settings(max_examples=4)
@given(
    a=st.floats(-100.0, 100.0),
    b=sizes,
    c=st.lists(st.floats(-100.0, 100.0), min_size=2, max_size=2),
    D=st.lists(signed, min_size=2, max_size=2),
)
def test_neither_units_nor_origins_nor_directions_matter(a, b, c, D):
    rows, noise = contexts(32), np.random.default_rng(3).normal(size=32)
    with jax.enable_x64(True):
        plain, other, found = es.Bandit(actions=NAMES), es.Bandit(actions=NAMES), []
        for x, z in zip(rows, noise, strict=True):
            ours = plain.choose(context=x)
            theirs = other.choose(context=np.array(c) + np.array(D) * x)
            found.append((ours.action, theirs.action))
            y = reward(x, ours.action) + 0.3 * z
            plain.learn(ours.id, y)
            other.learn(theirs.id, a + b * y)
        assert [one for one, _ in found] == [other for _, other in found]
        assert len({one for one, _ in found}) == 3


def test_a_missing_value_counts_as_the_mean():
    bandit = es.Bandit(actions=NAMES)
    play(bandit, contexts(20))
    mean = np.asarray(bandit.state.scale.mean)
    missing, known = bandit.predict(context=[0.7, np.nan]), bandit.predict(context=[0.7, mean[1]])
    assert np.array_equal(missing.values.mean, known.values.mean)
    assert np.array_equal(missing.probabilities, known.probabilities)
    decision = bandit.choose(context=[np.nan, 0.3])
    bandit.learn(decision.id, 1.0)
    assert np.isfinite(bandit.predict(context=[0.7, np.nan]).values.mean).all()


def test_replaying_the_ledger_gives_the_state_bit_for_bit(tmp_path):
    rng = np.random.default_rng(4)
    with es.Bandit.open(tmp_path, actions=NAMES) as bandit:
        decisions = [bandit.choose(context=x) for x in contexts(30)]
        for i in rng.permutation(25):  # late, in another order, some never
            bandit.learn(decisions[i].id, float(rng.normal()))
        state = bandit.state
    (tmp_path / SNAPSHOT).unlink()
    with es.Bandit.open(tmp_path) as again:
        assert equal(again.state, state)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import ensemble_sampling as es
from test_default import NAMES, contexts, play
play(es.Bandit.open(sys.argv[1], actions=NAMES), contexts(20))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_is_continued_as_if_nothing_had_happened(tmp_path):
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "b"), here]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    unharmed = es.Bandit(actions=NAMES)
    chosen = play(unharmed, contexts(20))
    with es.Bandit.open(tmp_path / "b") as bandit:
        assert bandit.log()["action"] == chosen
        assert equal(bandit.state, unharmed.state)
        assert play(bandit, contexts(5, seed=1)) == play(unharmed, contexts(5, seed=1))


def test_it_learns_what_a_linear_model_cannot():
    """The right one of two actions is whether both features have the same sign."""
    rows = contexts(500, seed=8)
    right = np.where(rows[:, 0] * rows[:, 1] > 0, 0, 1)
    linear = es.Greedy(es.PerAction(es.Linear(2), 2))
    share = []
    for bandit in (es.Bandit(actions=[0, 1]), es.Bandit(linear)):
        hits = []
        for x, best in zip(rows, right, strict=True):
            decision = bandit.choose(context=x)
            hits.append(float(decision.index == best))
            bandit.learn(decision.id, hits[-1])
        share.append(np.mean(hits[-250:]))
    assert share[0] > 0.8  # by chance 0.5, with a standard error of 0.03
    assert share[0] > share[1] + 0.15


def test_a_frame_of_contexts_is_a_context_a_row():
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "hour": [4.0, 5.0, 6.0]})
    one = es.Bandit(actions=["a", "b"])
    decisions = one.choose_many(contexts=frame)
    other = es.Bandit(actions=["a", "b"])
    alone = [other.choose(context=row) for row in frame.to_dict("records")]
    assert [d.index for d in decisions] == [d.index for d in alone]
    with pytest.raises(TypeError, match="actions must be a list"):
        es.Bandit().choose_many(frame)


def test_an_offer_that_is_refused_settles_nothing(tmp_path):
    with es.Bandit.open(tmp_path, actions=["a", "b"]) as bandit:
        with pytest.raises(TypeError):
            bandit.choose(context={"city": "x", "odd": object()})
        bandit.learn(bandit.choose(context=[1.0, 2.0]).id, 1.0)
        assert bandit.log()["features"] == [[1.0, 2.0]]
    with es.Bandit.open(tmp_path) as bandit, pytest.raises(ValueError, match="2 features"):
        bandit.choose(context=[1.0, 2.0, 3.0])


def test_migrating_to_the_default_keeps_what_describes_the_history(tmp_path):
    context = {"age": 3, "city": "x"}
    with es.Bandit.open(tmp_path, actions=["a", "b"], floor=0.1) as bandit:
        for _ in range(3):
            bandit.learn(bandit.choose(context=context).id, 1.0)
        state = bandit.state
    with es.Bandit.migrate(tmp_path) as bandit:
        assert equal(bandit.state, state)
        assert bandit.choose(context=context).probabilities.min() >= 0.05 - 1e-6


def test_a_folder_keeps_its_features_as_they_are_where_it_was_told_to(tmp_path):
    with es.Bandit.open(tmp_path, actions=["a", "b"], normalise=False) as bandit:
        bandit.learn(bandit.choose(context=[1.0, 2.0]).id, 1.0)
    with es.Bandit.open(tmp_path) as bandit:
        assert bandit.state.scale is None


def test_no_actions_are_refused_at_once():
    with pytest.raises(ValueError, match="at least one action"):
        es.Bandit(actions=[])


@pytest.mark.parametrize("then", [[1.0, 2.0], {"city": "x"}], ids=["numbers", "words"])
def test_a_first_decision_that_could_not_be_written_locks_nobody_out(tmp_path, then, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    with es.Bandit.open(tmp_path, actions=["a", "b"]) as bandit:
        with monkeypatch.context() as disk:
            disk.setattr(bandit._ledger, "add_decisions", full)
            with pytest.raises(OSError, match="no space"):
                bandit.choose(context={"city": "x"})
        bandit.learn(bandit.choose(context=then).id, 1.0)
        state = bandit.state
    with es.Bandit.open(tmp_path) as bandit:
        assert equal(bandit.state, state)
        bandit.choose(context=then)


@pytest.mark.parametrize("actions", [["a", "b", "c"], None])
def test_an_offset_of_a_billion_costs_no_precision(tmp_path, actions):
    """Outcomes are counted from the first of them, on disk and after reopening as well."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3, 2))
    noise = rng.normal(size=60)
    chosen, values = {}, {}
    for offset in (0.0, 2.0**30):
        folder = tmp_path / str(offset)
        chosen[offset], bandit = [], es.Bandit.open(folder, actions=actions)
        for t, (row, e) in enumerate(zip(rows, noise, strict=True)):
            if t % 20 == 19:
                bandit.close()
                bandit = es.Bandit.open(folder, actions=actions)
            made = bandit.choose(context=row[0]) if actions else bandit.choose(row)
            chosen[offset].append(made.index)
            values[offset] = made.values.mean
            y = round(256 * (row[0, 0] * made.index + 0.1 * e)) / 256  # exact, with the offset too
            bandit.learn(made.id, offset + y)
        bandit.close()
    assert chosen[0.0] == chosen[2.0**30]
    np.testing.assert_allclose(values[2.0**30] - 2.0**30, values[0.0], rtol=0, atol=1e-6)


def test_a_test_of_clicks_needs_no_context_and_nothing_is_nagged():
    bandit, rng, shown = es.Bandit(actions=NAMES), np.random.default_rng(0), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(600):
            decision = bandit.choose()
            bandit.learn(decision.id, rng.random() < [0.02, 0.05, 0.3][decision.index])
            shown.append(decision.action)
        assert bandit.summary().warnings == ()
    assert shown.count("right") > 400
