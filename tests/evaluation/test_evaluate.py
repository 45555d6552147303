"""Evaluation from logs: estimates against plain loops, intervals, support, policies, worlds."""

# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

import importlib.util
import json
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.evaluation import replay as replaying
from ensemble_sampling.evaluation import sources
from ensemble_sampling.evaluation.estimates import BIASED
from ensemble_sampling.evaluation.model import Fitted
from ensemble_sampling.evaluation.policies import as_policy
from ensemble_sampling.evaluation.pupils import Pupil, learned, pupil
from ensemble_sampling.ledger.export import export

N, K, D = 60, 3, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
SHARES = RNG.dirichlet(np.ones(K), N) * 0.7 + 0.1
CHOSEN = RNG.integers(0, K, N)
Y = X[:, 0] * (CHOSEN - 1) + RNG.normal(size=N)
PI = RNG.dirichlet(np.ones(K), N)
Q = RNG.normal(size=(N, K))
LOG = es.Log(CHOSEN, Y, propensities=SHARES, context=X)
AT = np.arange(N)


def coverage_module():
    path = Path(__file__).parents[2] / "benchmarks" / "evaluate_coverage.py"
    spec = importlib.util.spec_from_file_location("evaluate_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_estimates_are_those_of_a_plain_loop():
    found = es.evaluate(LOG, PI, model=Q, clip=1.5)
    total = dict.fromkeys(found.estimates, 0.0)
    mass = 0.0
    for i in range(N):
        w = PI[i, CHOSEN[i]] / SHARES[i, CHOSEN[i]]
        v = sum(PI[i, k] * Q[i, k] for k in range(K))
        gap = Y[i] - Q[i, CHOSEN[i]]
        mass += w
        total["direct"] += v / N
        total["inverse propensity"] += w * Y[i] / N
        total["clipped"] += min(w, 1.5) * Y[i] / N
        total["self-normalised"] += w * Y[i]
        total["doubly robust"] += (v + w * gap) / N
        total["switch"] += (v + (w * gap if w <= 1.5 else 0.0)) / N
    total["self-normalised"] /= mass
    assert {m: e.value for m, e in found.estimates.items()} == pytest.approx(total, rel=1e-12)
    w = PI[AT, CHOSEN] / SHARES[AT, CHOSEN]
    assert found.effective == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.largest == pytest.approx(w.max())
    assert found.unsupported == 0


def test_the_reward_model_is_what_linear_learns_one_by_one():
    """Posterior means by sums leave out a fold; `Linear` learns the other folds in steps."""
    learner = es.Linear(D)
    fitted = Fitted(LOG, learner, folds=3)
    values = np.concatenate([fitted.values(offers) for offers in LOG.offers()])
    agent = es.Greedy(es.PerAction(learner, K))
    update = jax.jit(lambda *now: agent.update(*now))
    for fold in range(3):
        state = agent.init(jax.random.key(0))
        for i in np.flatnonzero(fitted.fold != fold):
            action = es.core.Action(jnp.asarray(CHOSEN[i]), jnp.asarray(X[i], float))
            state = update(jax.random.key(0), state, action, jnp.asarray(Y[i], float))
        for i in np.flatnonzero(fitted.fold == fold)[:2]:
            rows = jnp.broadcast_to(jnp.asarray(X[i], float), (K, D))
            want = agent.values(jax.random.key(0), state, rows)[0]
            np.testing.assert_allclose(values[i], want, rtol=2e-4, atol=2e-4)


def test_a_told_prior_has_no_constant_and_is_shared_where_actions_have_features():
    features = RNG.normal(size=(N, K, D))
    log = es.Log(CHOSEN, Y, propensities=SHARES, features=features)
    fitted = Fitted(log, es.Linear(D, noise_std=0.5, prior_mean=[1.0, -1.0], prior_std=2.0), 2)
    x = features[AT, CHOSEN]
    for fold in range(2):
        rest = fitted.fold != fold
        precision = x[rest].T @ x[rest] / 0.25 + np.eye(D) / 4
        moment = x[rest].T @ Y[rest] / 0.25 + np.array([1.0, -1.0]) / 4
        np.testing.assert_allclose(fitted.theta[fold, 0], np.linalg.solve(precision, moment))


def test_the_direct_interval_moves_with_the_model():
    """Its representer is the derivative of the estimate with respect to every outcome."""

    def direct(y):
        log = es.Log(CHOSEN, y, propensities=SHARES, context=X)
        return es.evaluate(log, PI, model=es.Linear(D))["direct"].value

    fitted = Fitted(LOG, es.Linear(D))
    reach = sum(fitted.reach(offers, PI[offers.rows]) for offers in LOG.offers())
    found = fitted.representer(np.asarray(reach))
    centre = np.zeros(N)  # the centre of outcomes moves with each of them too, a little
    for i in (0, 7, 31):
        step = centre.copy()
        step[i] = 1.0
        assert (direct(Y + step) - direct(Y)) * N == pytest.approx(found[i], abs=0.2)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """The short version of the benchmark: 150 logs, 0.95 within three standard errors (0.053)."""
    benchmark = coverage_module()
    row = benchmark.coverage(
        "nonlinear", "bad", "large", 150, benchmark.truth("nonlinear", 500_000)
    )
    for method in ("self-normalised", "doubly robust"):
        assert 0.897 <= row["coverage"][method] <= 1.0
    assert row["coverage"]["direct"] < 0.8, "a wrong model alone is wrong"


def test_what_the_log_could_never_have_shown_is_refused_and_small_shares_widen():
    shares = np.tile([0.5, 0.5, 0.0], (N, 1))
    chosen = AT % 2
    log = es.Log(chosen, Y, propensities=shares, context=X)
    with pytest.raises(ValueError, match=r"100\.0% of the policy's probability is on actions"):
        es.evaluate(log, [0.0, 0.0, 1.0])
    both = es.evaluate(log, {"never": [0.0, 0.0, 1.0], "half": [0.5, 0.5, 0.0]})
    assert "100.0%" in (both["never"].refused or "")
    assert str(both).splitlines()[0].startswith("! never: refused: 100.0%")
    assert both["half"].unsupported == 0
    with pytest.raises(KeyError, match="there is no estimate"):
        both["never"]["direct"]
    some, none = (es.evaluate(log, [0.5, 0.5 - s, s], model=np.zeros((N, K))) for s in (0.04, 0))
    assert some.unsupported == pytest.approx(0.04)
    assert str(some).startswith("! 4.00% of the policy's probability is on actions")
    room = 0.04 * np.ptp(Y)
    assert some["self-normalised"].high - none["self-normalised"].high == pytest.approx(
        room, abs=0.15 * room
    )


def test_without_all_propensities_missing_support_shows_in_the_weights():
    chosen = np.random.default_rng(1).integers(0, 2, 2000)
    log = es.Log(chosen, np.ones(2000), np.full(2000, 0.5), context=np.zeros((2000, 1)))
    assert es.evaluate(log, [0.5, 0.5]).unsupported == 0
    three = es.Log(chosen, np.ones(2000), np.full(2000, 0.5), actions=["a", "b", "c"])
    with pytest.raises(ValueError, match="as the weights' mean below 1 shows"):
        es.evaluate(three, [0.2, 0.2, 0.6])


def test_a_policy_is_the_same_in_every_form():
    agent = es.EpsilonGreedy(es.PerAction(es.Linear(D), K), 0.3)
    pupil = Pupil(agent, scaled=False)
    state = learned(pupil, 0, X[:20].astype("float32"), CHOSEN[:20], Y[:20]).belief

    @jax.jit
    def compiled(features, available):
        return agent.probabilities(state, features, available)

    def chances(offer):
        return compiled(jnp.asarray(offer.features, float), jnp.asarray(offer.available))

    offers = next(LOG.offers())
    forms = [as_policy(form, LOG)(offers) for form in ((agent, state), chances, jax.jit(chances))]
    np.testing.assert_allclose(forms[0], forms[1], atol=1e-6)
    np.testing.assert_allclose(forms[0], forms[2], atol=1e-6)
    np.testing.assert_allclose(as_policy(forms[0], LOG)(offers), forms[0])


def test_an_agent_alone_is_judged_on_the_half_it_did_not_learn():
    """With one action better in each half, it chooses the other half's."""
    chosen, half = AT % 2, AT < N // 2
    y = np.where(half, chosen == 0, chosen == 1).astype(float)
    log = es.Log(chosen, y, np.full(N, 0.5), actions=["a", "b"])
    chances = as_policy(es.Greedy(es.IndependentArms(2)), log)(next(log.offers()))
    np.testing.assert_array_equal(chances[:, 0] == 1, ~half)


def test_some_action_is_best_however_the_compiler_rounds():
    """Values are computed twice in one program, for the maximum and to compare with it."""
    agent = es.EnsembleSampling(es.PerAction(es.Linear(2), 3), 20)
    x = np.random.default_rng(0).normal(size=(512, 2))
    log = es.Log(np.arange(512) % 3, np.sin(np.arange(512)), np.full(512, 1 / 3), context=x)
    chances = as_policy(agent, log)(next(log.offers()))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-5)


def learned_bandit(folder=None, **options):
    options = {"actions": ["a", "b", "c"], "floor": 0.3, **options}
    agent = es.EpsilonGreedy(es.PerAction(es.Linear(D), len(options["actions"])), 0.2)
    make = es.Bandit if folder is None else partial(es.Bandit.open, folder)
    bandit = make(agent, **options)
    rng = np.random.default_rng(3)
    for t in range(30):
        x = rng.normal(size=D)
        made = bandit.choose(context=x, available=["a", "b"] if t % 5 == 0 else None)
        if t < 28:
            bandit.learn(made.id, float(x[0] * (made.index - 1)))
    return bandit


def test_a_bandits_log_has_everything_and_so_has_the_table_it_writes():
    bandit = learned_bandit()
    log = es.Log.of(bandit)
    assert len(log) == 28
    assert log.actions == ["a", "b", "c"]
    assert log.excluded == {"outcome missing": 2}
    assert log.shared
    for frame in (pd.DataFrame(bandit.log()), pl.DataFrame(bandit.log())):
        table = es.Log.of(frame)
        for one, other in zip(log.offers(), table.offers(), strict=True):
            np.testing.assert_allclose(one.features, other.features)
            shares = [np.asarray(part.propensities) for part in (one, other)]
            np.testing.assert_allclose(*shares, rtol=1e-6)
            np.testing.assert_array_equal(one.available, other.available)
        np.testing.assert_allclose(log.outcome, table.outcome)
        np.testing.assert_array_equal(log.chosen, table.chosen)


def test_a_bandit_as_a_policy_is_what_it_would_predict():
    bandit = learned_bandit()
    log = es.Log.of(bandit)
    chances = as_policy(bandit, log)(next(log.offers()))
    for i in range(4):
        offer = next(log.offers())
        on = None if offer.available is None else offer.available[i].tolist()
        told = bandit.predict(context=offer.features[i, 0], available=on)
        np.testing.assert_allclose(chances[i], told.probabilities, atol=1e-6)


def test_a_bandit_on_the_log_that_taught_it_is_warned_of():
    bandit = learned_bandit()
    assert any("learned from this very log" in w for w in es.evaluate(bandit, bandit).warnings)
    log = es.Log.of(pd.DataFrame(bandit.log()))
    assert not any("very log" in word for word in es.evaluate(log, bandit).warnings)


def test_actions_are_matched_by_name():
    bandit = learned_bandit(actions=["c", "a", "x", "b"])
    log = es.Log([0, 1], [0.0, 1.0], [0.5, 0.5], context=X[:2], actions=["a", "b"])
    chances = as_policy(bandit, log)(next(log.offers()))
    told = bandit.predict(context=X[1], available=["a", "b"]).probabilities
    np.testing.assert_allclose(chances[1], told[[1, 3]], atol=1e-6)
    other = es.Log([0, 1, 1], [0.0, 1.0, 0.0], [0.5] * 3, context=X[:3], actions=["a", "new"])
    with pytest.raises(ValueError, match=r"does not know, 'new' \(chosen 2 times\)"):
        es.evaluate(other, bandit)


def test_offers_of_different_sizes_are_filled_up_in_memory_and_on_disk(monkeypatch):
    bandit = es.Bandit(es.EnsembleSampling(es.Linear(D), 5), floor=0.2)
    rng, tables = np.random.default_rng(4), []
    for _ in range(12):
        tables.append(rng.normal(size=(rng.integers(2, 5), D)))
        bandit.learn(bandit.choose(tables[-1]).id, 1.0)
    logs = [es.Log.of(bandit)]
    monkeypatch.setattr(sources, "IN_MEMORY", 0)
    logs.append(es.Log.of(bandit))
    for log in logs:
        for size in (5, 100):
            for offers in log.offers(size):
                for i, table in enumerate(tables[offers.rows]):
                    np.testing.assert_allclose(offers.features[i, : len(table)], table, rtol=1e-6)
                    assert offers.available is not None
                    assert offers.available[i].sum() == len(table)
    one, two = (es.evaluate(log, es.Uniform()).best for log in logs)
    assert one == two


def test_a_table_says_by_columns_what_is_what():
    frame = pd.DataFrame(
        {"arm": ["b", "a", "b"], "paid": [1.0, None, 0.0], "p": [0.5, 0.5, 0.25], "age": [1, 2, 3]}
    )
    names = {"chosen": "arm", "outcome": "paid", "propensity": "p", "context": ["age"]}
    for table in (frame, pl.DataFrame(frame), frame.to_dict("list")):
        log = es.Log.of(table, **names, actions=["a", "b"])
        np.testing.assert_array_equal(log.chosen, [1, 1])
        np.testing.assert_array_equal(log.chosen_rows(), [[1], [3]])
        assert log.excluded == {"outcome missing": 1}


def test_differences_are_paired_with_the_baseline():
    found = es.evaluate(LOG, {"one": PI, "two": PI[:, ::-1]}, baseline="one")
    for method, estimate in found["two"].estimates.items():
        gap = found["two"].differences[method]
        assert gap.value == pytest.approx(estimate.value - found["one"][method].value)
        if method in BIASED:
            assert gap[1:] == estimate[1:] == (None, None, None)
        else:
            assert found["one"].differences[method].stderr == pytest.approx(0.0, abs=1e-12)
    near = es.evaluate(LOG, {"one": PI, "near": 0.9 * PI + 0.1 / K}, baseline="one")["near"]
    assert near.differences["doubly robust"].stderr < 0.3 * near["doubly robust"].stderr
    earned = es.evaluate(LOG, SHARES)
    assert earned.differences["inverse propensity"].value == pytest.approx(0.0, abs=1e-12)
    frame = found.frame()
    assert len(frame) == 12
    assert frame["low"].isna().sum() == 4
    assert "no interval" in str(found["two"])
    assert set(frame["policy"]) == {"one", "two"}
    assert len(found.plot().axes) == 2


def test_replay_learns_from_what_it_would_have_done_and_nothing_else():
    """A plain loop over the log with the agent's own functions, and the same keys."""
    agent = es.EpsilonGreedy(es.PerAction(es.Linear(D), K), 0.3)
    found = es.replay(LOG, agent, seed=5, normalise=False)
    keys = jax.random.split(jax.random.key(5, impl="threefry2x32"), 4)
    state, rows = agent.init(keys[0]), []
    act, update = (jax.jit(lambda *now, f=f: f(*now)) for f in (agent.act, agent.update))
    for i in range(N):
        now = [jax.random.fold_in(key, i) for key in keys]
        x = jnp.broadcast_to(jnp.asarray(X[i], float), (K, D))
        index = act(now[1], state, x, jnp.ones(K, bool))
        luck = jax.random.uniform(now[2])
        if index == CHOSEN[i] and luck < SHARES.min() / SHARES[i, CHOSEN[i]]:
            action = es.core.Action(jnp.asarray(CHOSEN[i]), x[0])
            state = update(now[3], state, action, jnp.asarray(Y[i], float))
            rows.append(i)
    np.testing.assert_array_equal(found.rows, rows)
    assert found.value.value == pytest.approx(Y[rows].mean())


def test_replay_gives_uniform_play_its_value_whatever_the_logging():
    rng, shares = np.random.default_rng(6), np.array([0.6, 0.3, 0.1])
    chosen = rng.choice(3, 20_000, p=shares)
    log = es.Log(chosen, 1.0 * chosen, propensities=np.tile(shares, (20_000, 1)))
    found = es.replay(log, es.Uniform())
    assert len(found.rewards) == pytest.approx(2000, abs=150)
    assert found.value.low < 1.0 < found.value.high
    never = np.tile([0.5, 0.5, 0.0], (N, 1))
    with pytest.raises(ValueError, match=r"refused: .*% of the policy's probability"):
        es.replay(es.Log(AT % 2, Y, propensities=never), es.Uniform())


def test_labelled_data_reward_the_right_class():
    x = np.eye(4).repeat(5, axis=0)
    world = es.Classification(x, np.array(list("abcd")).repeat(5), flips=0.25)
    assert world.classes == ("a", "b", "c", "d")
    offer = world.offer(jax.random.key(1), world.init(jax.random.key(0)))
    right = int(np.argmax(offer.features[0]))
    np.testing.assert_allclose(offer.means, np.where(np.arange(4) == right, 0.75, 0.25))
    easy = es.Classification(x, np.arange(4).repeat(5))
    offer = easy.offer(jax.random.key(1), easy.init(jax.random.key(0)))
    for k in range(4):
        action = es.core.Action(jnp.asarray(k), offer.features[k])
        assert easy.outcome(jax.random.key(k), offer.world, action) == (k == right)


def test_a_world_from_a_log_is_as_the_log_was():
    rng = np.random.default_rng(7)
    x, theta = rng.normal(size=(3000, D)), np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    chosen = rng.integers(0, K, 3000)
    y = (x @ theta)[np.arange(3000), chosen] + 0.5 * rng.normal(size=3000)
    world = es.evaluation.Logged(es.Log(chosen, y, np.full(3000, 1 / K), context=x))
    drawn = world.init(jax.random.key(0))
    offer = world.offer(jax.random.key(1), drawn)
    np.testing.assert_allclose(offer.means, np.asarray(offer.features[0]) @ theta, atol=0.1)
    keys = jax.random.split(jax.random.key(2), 2000)
    seen = jax.vmap(lambda k: world.outcome(k, offer.world, es.core.Action(jnp.asarray(1), None)))(
        keys
    )  # pyright: ignore[reportArgumentType]
    assert float(jnp.std(seen)) == pytest.approx(0.5, abs=0.05)
    clicks = es.evaluation.Logged(es.Log(chosen, (y > 0) * 1.0, np.full(3000, 1 / K), context=x))
    offer = clicks.offer(jax.random.key(1), clicks.init(jax.random.key(0)))
    assert float(offer.means.min()) >= 0
    assert float(offer.means.max()) <= 1


def test_the_command_compares_candidates_on_a_folder(tmp_path):
    learned_bandit(tmp_path / "b").close()
    file = tmp_path / "candidates.py"
    file.write_text(
        "import ensemble_sampling as es\n"
        "def half(offer):\n"
        "    return offer.available / offer.available.sum()\n"
        "CANDIDATES = {'half': half, 'uniform': es.Uniform()}\n"
    )
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "b"), str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "28 decisions; 2 left out: outcome missing; doubly robust estimates" in done.stdout
    lines = {line.split()[0]: line.split()[1:5] for line in done.stdout.splitlines()}
    assert lines["half"] == lines["uniform"]
    assert {path.suffix for path in out.iterdir()} == {".txt", ".json", ".png", ".svg"}
    saved = json.loads((out / "evaluation.json").read_text())
    assert saved["policy"] == ["half"] * 6 + ["uniform"] * 6


A = {"chosen": [0, 1], "outcome": [1.0, 2.0], "propensity": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensity": [0.0, 1.5]}, "1 of 2 are 0 or below; 1 of 2 are above 1"),
        ({"propensity": [np.nan, 0.5]}, "1 of 2 are missing"),
        ({"propensity": None}, "give the propensity of every chosen action"),
        ({"outcome": [np.nan, None]}, "none of the 2 decisions has an outcome"),
        ({"outcome": [np.inf, 1.0]}, "outcomes must be finite: 1 of 2"),
        ({"outcome": [1.0]}, "2 of chosen, 1 of outcome"),
        ({"chosen": [0, -1]}, "chosen must be between 0 and"),
        ({"chosen": ["a", "z"], "actions": ["a", "b"]}, "not among `actions`: 'z' (1 times)"),
        ({"propensities": [[0.5, 0.4]] * 2}, "must be at least 0 and sum to 1"),
        (
            {"propensities": [[0.5, 0.5], [0.9, 0.1]]},
            "1 of 2 do not, the first is decision 1, whose propensity is 0.5 and whose "
            "propensities say 0.1 of the chosen action 1",
        ),
        ({"actions": ["a", "a"]}, "must differ, got 'a' more than once"),
        ({"available": [[True, False]] * 2}, "1 of 2 chose what was not available"),
        ({"context": [1.0, 2.0]}, "context must be numbers of shape (n, d)"),
        ({"features": np.zeros((2, 3, 1)), "actions": ["a", "b"]}, "2 in actions, 3 in features"),
    ],
    ids=str,
)
def test_a_log_says_what_is_wrong_by_name_and_count(change, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        es.Log(**{**A, **change})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (lambda offer: [0.5, 0.6, 0.0], {}, "must be at least 0 and sum to 1: 60 of 60"),
        (lambda offer: [1.0], {}, "must give 3 probabilities for an offer, got shape (1,)"),
        ([0.5, 0.5], {}, "must have shape (3,) or (60, 3)"),
        (es.Greedy(es.IndependentArms(4)), {}, "knows 4 actions, the log has 3"),
        (es.Greedy(es.Linear(5)), {}, "takes 5 features, the log has 2"),
        (es.Uniform, {}, "write Uniform(...), not the class"),
        ("uniform", {}, "a policy must be a bandit, an agent"),
        ({}, {}, "at least one policy"),
        ({"logged": PI}, {}, "'logged' is what was earned"),
        (PI, {"baseline": "two"}, "the baseline must be one of 'logged', 'policy'; got 'two'"),
        (PI, {"model": es.Linear(3)}, "takes 3 features, the log 2"),
        (PI, {"model": np.zeros((2, 3))}, "must have shape (60, 3), got (2, 3)"),
        (PI, {"folds": 1}, "folds must be at least 2"),
        (PI, {"folds": 61}, "60 decisions cannot be put into 61 folds"),
        (PI, {"clip": 0.0}, "clip must be greater than 0"),
        (PI, {"support": 2.0}, "support must be between 0 and 1"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_a_mistake_in_evaluate_is_told(policy, options, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        es.evaluate(LOG, policy, **options)
    assert message in str(caught.value)


def test_a_mistake_in_a_candidates_file_is_told_in_a_sentence(tmp_path):
    learned_bandit(tmp_path / "b").close()
    file = tmp_path / "candidates.py"
    for text, message in [
        (None, "there is no file"),
        ("x = 1", "has no CANDIDATES"),
        ("CANDIDATES = {'one': 1 / 0}", "line 1: ZeroDivisionError"),
        ("CANDIDATES = {'one': 'two'}", "one: a policy must be a bandit, an agent"),
    ]:
        if text is not None:
            file.write_text(text)
        done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "b"), str(file)])
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())


def test_an_informed_agent_starts_from_the_log_learned_one_by_one():
    agent = es.ThompsonSampling(es.Exact(es.PerAction(es.Linear(X.shape[1], 0.5), K)))
    informed, key = es.evaluation.Informed(agent, LOG, normalise=False), jax.random.key(3)
    start, learn = jax.random.split(key)
    state = agent.init(start)
    update = jax.jit(lambda *given: agent.update(*given))
    for at, (i, x, y) in enumerate(zip(CHOSEN, X, Y, strict=True)):
        action = es.core.Action(jnp.asarray(i), jnp.asarray(x, float))
        state = update(jax.random.fold_in(learn, at), state, action, jnp.asarray(y, float))
    have, offer = informed.init(key), jnp.asarray(X[:K], float)
    ours = np.asarray(informed.values(key, have, offer))
    np.testing.assert_allclose(ours, agent.values(key, state, offer), rtol=0, atol=1e-5)
    world = es.LinearBandit(dim=X.shape[1], arms=K, noise_std=0.5)
    result = es.simulate(informed, world, periods=3, realizations=2)
    assert result.label.endswith(", informed")
    with pytest.raises(ValueError, match="knows 4 actions, the log has 3"):
        es.evaluation.Informed(es.Greedy(es.IndependentArms(4)), LOG)


AGENT = es.EnsembleSampling(es.PerAction(es.Linear(D, noise_std=0.7), K), 8)
UNITS = np.array([1000.0, 0.001])


def taught_bandit(agent, rows, **settings):
    """A bandit that learned these rows of the log, whose features have other units."""
    bandit = es.Bandit(agent, **settings)
    table = {"x": (X * UNITS)[rows].tolist(), "a": CHOSEN[rows].tolist(), "y": Y[rows]}
    bandit.learn_from(table, context="x", action="a", outcome="y")
    return bandit


@pytest.mark.parametrize(
    ("agent", "normalise"),
    [
        (AGENT, True),
        (AGENT, False),
        (None, True),
        (None, False),
    ],
    ids=str,
)
def test_an_agent_alone_learns_as_a_bandit_does(agent, normalise):
    """Bit by bit the same state and the same probabilities, in units that differ a millionfold."""
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=X * UNITS)
    half = slice(N // 2, N)
    settings = {} if agent is not None else {"actions": list(range(K))}
    bandit = taught_bandit(agent, half, seed=7, normalise=normalise, **settings)
    one = pupil(agent, log, normalise)
    rows = (X * UNITS).astype("float32")[half]
    state = learned(one, 7, rows, CHOSEN[half], Y[half])
    same = jax.tree.map(np.array_equal, state, bandit.state)
    assert all(jax.tree.leaves(same)), same
    offers = next(log.offers())
    ours, theirs = (as_policy(p, log, 7, normalise)(offers)[: N // 2] for p in (agent, bandit))
    np.testing.assert_array_equal(ours, theirs)


def test_units_do_not_matter_to_replay_which_learns_again_in_every_new_scale():
    """Features in units of their usual size are the same numbers, to rounding, in any unit."""
    shares = np.full((600, K), 1 / K)
    rng = np.random.default_rng(3)
    x, chosen = rng.normal(size=(600, D)), rng.integers(0, K, 600)
    y = x[:, 0] * (chosen - 1) + 0.3 * rng.normal(size=600)
    plain, moved = (
        es.replay(es.Log(chosen, y, propensities=shares, context=x * units), AGENT)
        for units in (1.0, 2.0 ** np.array([10.0, -10.0]))
    )
    np.testing.assert_array_equal(plain.rows, moved.rows)
    kept = es.replay(
        es.Log(chosen, y, propensities=shares, context=x * 1024), AGENT, normalise=False
    )
    assert not np.array_equal(plain.rows, kept.rows)
    assert plain.rewards[-60:].mean() > 0.5  # E max(x, -x) is 0.8


def test_replay_has_the_state_of_a_bandit_that_learned_the_same_outcomes(monkeypatch):
    """A policy that was replayed knows what it agreed with in the bandit's units: its last choices
    are those of `learned` on these rows."""
    log = es.Log(CHOSEN, Y, propensities=np.full((N, K), 1 / K), context=X * UNITS)
    agent, seen = es.Greedy(es.PerAction(es.Linear(D, noise_std=0.7), K)), []

    run, relearn = replaying._eager(replaying.Rule(agent))

    def noted(*given):
        found = run(*given)
        seen.append(found[0])
        return found

    monkeypatch.setattr(replaying, "_compiled", lambda rule: (noted, relearn))
    rows = replaying.replay(log, agent).rows
    want = learned(pupil(agent, log), 0, (X * UNITS).astype("float32")[rows], CHOSEN[rows], Y[rows])
    state = seen[-1]
    if len(rows) & (len(rows) - 1) == 0:  # it was about to learn again
        pytest.skip("choose another seed")
    for have, expected in zip(jax.tree.leaves(state), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-6)


def test_replay_takes_the_scale_anew_wherever_a_log_is_cut(monkeypatch):
    """It went on as if the part before had ended at 1, 2, 4, ... outcomes, and so past the next."""
    log = es.Log(CHOSEN, Y, propensities=np.full((N, K), 1 / K), context=X * UNITS)
    learns, compiled, offers = [], replaying._compiled, es.Log.offers

    def noted(rule):
        run, relearn = compiled(rule)
        return run, lambda *given: (learns.append(int(given[1][0].sum())), relearn(*given))[1]

    monkeypatch.setattr(replaying, "_compiled", noted)
    monkeypatch.setattr(es.Log, "offers", lambda log: offers(log, 10))
    rows = es.replay(log, es.Uniform()).rows
    assert len(rows) >= 16
    assert learns[:5] == [1, 2, 4, 8, 16]


def test_in_replay_only_strays_that_are_learned_decide_how_far_the_next_one_counts(monkeypatch):
    """Of 12 in a log of three actions; each was once as far as all before it together."""
    rng, states, compiled = np.random.default_rng(0), [], replaying._compiled
    chosen, y = rng.integers(0, 3, 360), rng.normal(size=360)
    y[300::5] = 1e6
    log = es.Log(chosen, y, np.full(360, 1 / 3), actions=["a", "b", "c"])

    def noted(rule):
        run, relearn = compiled(rule)

        def ran(*given):
            found = run(*given)
            states.append(found[0])
            return found

        return ran, relearn

    monkeypatch.setattr(replaying, "_compiled", noted)
    rows = es.replay(log, None).rows
    strays = (y[rows] == 1e6).sum()
    assert 2 <= strays < 12
    assert len(rows) & (len(rows) - 1)  # else it was about to learn again
    want = learned(pupil(None, log), 0, np.zeros((len(rows), 0)), chosen[rows], y[rows])
    have, want = (jax.tree.leaves(state.belief[0]) for state in (states[-1], want))
    for ours, theirs in zip(have, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_informed_agent_sees_the_units_a_bandit_would():
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=X * UNITS)
    agent = es.Greedy(es.PerAction(es.Linear(D, noise_std=0.7), K))
    informed, offer = es.evaluation.Informed(agent, log), jnp.asarray((X * UNITS)[:K], float)
    bandit = taught_bandit(agent, slice(0, N))
    key = jax.random.key(0)
    have = informed.values(key, informed.init(key), offer)
    want = agent.values(key, bandit.state.belief, bandit.state.scale.apply(offer))
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_whoever_learned_this_very_log_is_warned_of():
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=X * UNITS)
    every = taught_bandit(AGENT, slice(0, N))
    some = taught_bandit(AGENT, slice(0, N // 2))
    assert "learned from this very log" in es.evaluate(log, every).warnings[0]
    assert not es.evaluate(log, some).taught
    assert (
        "learned from this very log"
        in es.evaluate(log, es.evaluation.Informed(AGENT, log)).warnings[0]
    )
    assert not es.evaluate(
        log, es.evaluation.Informed(AGENT, es.Log(CHOSEN, -Y, SHARES[AT, CHOSEN], context=X))
    ).taught


def test_a_bandits_own_state_will_do_and_another_agents_is_refused():
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=X * UNITS)
    bandit, offers = taught_bandit(AGENT, slice(0, N)), next(LOG.offers())
    offers = next(log.offers())
    want = as_policy(bandit, log)(offers)
    np.testing.assert_array_equal(as_policy((AGENT, bandit.state), log)(offers), want)
    other = es.EnsembleSampling(es.PerAction(es.Linear(D, noise_std=0.7), K), 9)
    with pytest.raises(ValueError, match="the state is not one of"):
        es.evaluate(log, (other, bandit.state))


def test_missing_features_are_for_the_default_agent():
    """With NaN as the usual value an estimate differs little; all others are told."""
    x = X.copy()
    x[::4, 1] = np.nan
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=x)
    assert log.missing == N // 4
    assert np.isfinite(es.evaluate(log, None).best)[:].all()
    assert es.evaluate(log, PI).best.value == pytest.approx(
        es.evaluate(LOG, PI).best.value, abs=0.1
    )
    bandit = es.Bandit(actions=[0, 1, 2])
    bandit.learn_from(
        {"x": x.tolist(), "a": CHOSEN.tolist(), "y": Y}, context="x", action="a", outcome="y"
    )
    assert es.evaluate(log, bandit).taught
    for given in (AGENT, taught_bandit(AGENT, slice(0, 9)), (AGENT, AGENT.init(jax.random.key(0)))):
        with pytest.raises(ValueError, match=r"missing \(NaN\) in 15 of 60 decisions, which only"):
            es.evaluate(log, given)
    for call in (lambda: es.replay(log, AGENT), lambda: es.evaluation.Informed(AGENT, log)):
        with pytest.raises(ValueError, match=r"missing \(NaN\) in 15 of 60"):
            call()
    with pytest.raises(ValueError, match="a world to simulate in has them all"):
        es.evaluation.Logged(log)
    with pytest.raises(ValueError, match="model=None, takes them"):
        es.evaluate(log, PI, model=es.Linear(D))


def test_a_history_with_missing_features_is_refused_before_anything_is_recorded(tmp_path):
    bandit = es.Bandit.open(tmp_path / "b", actions=["a", "b"])
    for x in (1.0, np.nan, 2.0):
        bandit.learn(bandit.choose(context=[x, 1.0]).id, x if x == x else 0.0)
    linear = es.EnsembleSampling(es.PerAction(es.Linear(2), 2), 4)
    with pytest.raises(ValueError, match=r"missing \(NaN\) in 1 of 3 decisions of the history"):
        bandit.shadow("linear", linear)
    assert bandit.summary().shadows == ()
    bandit.close()
    with pytest.raises(ValueError, match=r"missing \(NaN\) in 1 of 3 decisions of the history"):
        es.Bandit.migrate(tmp_path / "b", linear, actions=["a", "b"])
    es.Bandit.open(tmp_path / "b", actions=["a", "b"]).close()


def test_an_exported_file_is_read_again_and_names_are_kept_in_any_order(tmp_path):
    bandit = es.Bandit.open(tmp_path / "b", es.EnsembleSampling(es.Linear(1), 4), floor=0.5)
    for t in range(12):
        names = ["tea", "cola", "milk"] if t % 3 else ["cola", "tea"]
        decision = bandit.choose({name: {"size": float(len(name))} for name in names})
        if t:
            bandit.learn(decision.id, float(decision.action == "tea"))
    want = es.Log.of(bandit)
    bandit.close()
    export(tmp_path / "b", tmp_path / "log.csv")
    log = es.Log.of(pd.read_csv(tmp_path / "log.csv"))
    seen = []

    def tea(offer):
        seen.append(list(offer.actions))
        return [float(name == "tea") for name in offer.actions] + [0.0] * (3 - len(offer.actions))

    first, second = (es.evaluate(one, tea) for one in (want, log))
    assert first.best == pytest.approx(second.best)
    assert first["self-normalised"].value == 1.0
    assert seen[0] == ["tea", "cola", "milk"]
    assert seen[2] == ["cola", "tea"]
    assert seen[:11] == seen[11:]


def test_tables_of_pandas_say_nothing_in_their_own_words():
    table = pd.DataFrame({"a": [0, 1, 0], "y": [1.0, pd.NA, 2.0], "p": [0.5] * 3, "c": [1.0, 2, 3]})
    log = es.Log.of(table, chosen="a", outcome="y", propensity="p", context="c")
    assert log.excluded == {"outcome missing": 1}
    np.testing.assert_array_equal(log.chosen_rows(), [[1.0], [3.0]])
    with pytest.raises(ValueError, match="context: the table has no column 'd'; there are 'a'"):
        es.Log.of(table, chosen="a", outcome="y", propensity="p", context="d")


@pytest.mark.parametrize("label", [np.nan, None, pd.NA], ids=str)
def test_a_missing_class_is_refused(label):
    with pytest.raises(ValueError, match="1 of 3 are missing, the first is row 1"):
        es.Classification(np.zeros((3, 1)), np.array([0.0, label, 1.0], object))


def test_an_export_into_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere to write log.csv to"):
        export(tmp_path / "b", tmp_path / "nowhere" / "log.csv")


def clicks_like(offset):
    """A log without features, of eighths, which no offset rounds; the third action is best."""
    rng = np.random.default_rng(3)
    chosen = rng.integers(0, 3, 400)
    y = np.round(8 * (0.5 * chosen + 0.5 * rng.normal(size=400))) / 8
    return es.Log(chosen, y + offset, np.full(400, 1 / 3), actions=["a", "b", "c"])


def test_an_offset_of_outcomes_changes_nothing_in_replay_for_the_default_agent(monkeypatch):
    near, far = (es.replay(clicks_like(offset), None) for offset in (0.0, 2.0**27))
    np.testing.assert_array_equal(near.rows, far.rows)
    np.testing.assert_array_equal(near.rewards, far.rewards - 2.0**27)
    assert far.rewards[-50:].mean() - 2.0**27 > 0.7  # chance has 0.5, the best action 1
    assert near.value.high - near.value.low == pytest.approx(far.value.high - far.value.low)
    offers = es.Log.offers  # in parts, with the origin of the first
    monkeypatch.setattr(es.Log, "offers", lambda log: offers(log, 100))
    np.testing.assert_array_equal(es.replay(clicks_like(0.0), None).rows, near.rows)


@pytest.mark.slow
def test_an_offset_of_outcomes_changes_nothing_in_replay_with_features():
    """Where all is learned again in every new scale of features."""
    rng = np.random.default_rng(3)
    x, chosen = rng.normal(size=(400, 1)), rng.integers(0, 2, 400)
    y = np.round(8 * (x[:, 0] * (2 * chosen - 1) + 0.3 * rng.normal(size=400))) / 8
    near, far = (
        es.replay(es.Log(chosen, y + offset, np.full(400, 0.5), context=x), None)
        for offset in (0.0, 2.0**27)
    )
    np.testing.assert_array_equal(near.rows, far.rows)


def test_an_informed_agent_counts_outcomes_from_the_first_as_a_bandit_does():
    key, rows = jax.random.key(0), jnp.zeros((3, 0))

    @eqx.filter_jit
    def told(informed, outcome):
        state = informed.init(key)
        after = informed.update(key, state, es.core.Action(jnp.int32(0), rows[0]), outcome)
        values = [informed.values(key, s, rows) for s in (state, after)]
        return informed.probabilities(state, rows), *values

    offset = 2.0**20
    near, far = (
        told(es.evaluation.Informed(None, clicks_like(by)), jnp.asarray(9.0 + by, float))
        for by in (0, offset)
    )
    np.testing.assert_array_equal(near[0], far[0])
    assert far[0][2] > 0.9
    for have, want in zip(far[1:], near[1:], strict=True):
        np.testing.assert_allclose(have - offset, want, atol=0.07)  # what float32 keeps of it
    assert (near[2][:, 0] - near[1][:, 0]).mean() > 0.03  # the tenth of its outcomes was large


def test_an_informed_agent_gives_a_feature_first_seen_later_its_size():
    """Learned in its usual units ever since, as in a bandit."""
    x = X * [1.0, 0.0]
    agent = es.Greedy(es.PerAction(es.Linear(D, noise_std=0.7), K))
    informed = es.evaluation.Informed(agent, es.Log(CHOSEN, Y, propensities=SHARES, context=x))
    state, key = informed.init(jax.random.key(0)), jax.random.key(1)
    after = informed.update(
        key, state, es.core.Action(jnp.int32(1), jnp.array([0.5, 50.0])), jnp.asarray(2.0)
    )
    size = np.asarray(state.scale.size)
    assert size[1] == 0
    np.testing.assert_allclose(after.scale.size, [size[0], 50.0])
    action = es.core.Action(jnp.int32(1), jnp.array([0.5 / size[0], 1.0]))
    want = agent.update(key, state.belief, action, jnp.asarray(2.0))
    for have, expected in zip(jax.tree.leaves(after.belief), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-5, atol=1e-6)


def test_features_of_actions_are_matched_by_name_too():
    """A bandit that knows four actions, on a log of three of them in another order."""
    rng = np.random.default_rng(5)
    names, places = ["a", "b", "c", "d"], [3, 0, 2]
    agent = es.EnsembleSampling(es.PerAction(es.Linear(D), 4), 20)
    bandit = es.Bandit(agent, actions=names, normalise=False)
    for _ in range(40):
        decision = bandit.choose(rng.normal(size=(4, D)))
        bandit.learn(decision.id, rng.normal())
    rows = rng.normal(size=(10, 3, D))
    log = es.Log(
        rng.integers(0, 3, 10),
        np.ones(10),
        propensities=np.full((10, 3), 1 / 3),
        features=rows,
        actions=[names[at] for at in places],
    )
    table, free = np.zeros((10, 4, D)), np.zeros(4, bool)
    table[:, places], free[places] = rows, True
    (offers,) = log.offers()
    have = as_policy(bandit, log)(offers)
    want = [np.asarray(bandit.predict(row, available=free).probabilities)[places] for row in table]
    np.testing.assert_allclose(have, want, atol=1e-6)


def test_worlds_of_a_log_differ_as_its_posterior_does():
    """Features that go together: a model's weights are known together better than apart."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(300, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]])
    y = x[:, 0] + 0.5 * rng.normal(size=300)
    world = es.evaluation.Logged(es.Log(np.zeros(300, int), y, np.ones(300), context=x))
    draw = jax.jit(jax.vmap(lambda key: world.init(key).theta[0]))
    drawn = draw(jax.random.split(jax.random.key(0), 4000))
    rows = np.column_stack([np.ones(300), (x - world.center) / world.size])
    residual = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    want = residual.var() * np.linalg.inv(rows.T @ rows)
    size = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    np.testing.assert_allclose(np.cov(np.asarray(drawn).T) / size, want / size, atol=0.1)
