"""Evaluation from logs: estimates against plain loops, support, policies, informed agents."""

# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false
# pyright: reportArgumentType=false

import json
import runpy
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import log_examples
import numpy as np
import pandas as pd
import pytest
from log_examples import AGENT, COLUMNS, GREEDY, LOG, SCALED, InPython, action, update
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.core import Action
from ensemble_sampling.evaluation import Informed, Logged
from ensemble_sampling.evaluation import log as logs
from ensemble_sampling.evaluation.informed import Pupil
from ensemble_sampling.evaluation.model import RewardModel
from ensemble_sampling.evaluation.policies import probabilities

N, K, D = 60, 3, 2
AT, X, SHARES, CHOSEN, Y = COLUMNS
RNG, UNITS = np.random.default_rng(1), log_examples.UNITS
start = jax.jit(lambda agent, key: agent.init(key))
values_of = jax.jit(lambda agent, *given: agent.values(*given))
PI, Q, KEY = RNG.dirichlet(np.ones(K), N), RNG.normal(size=(N, K)), jax.random.key(3)


def test_estimates_are_those_of_a_plain_loop():
    found = es.evaluate(LOG, PI, model=Q, clip=1.5)
    total, mass = dict.fromkeys(found.estimates, 0.0), 0.0
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
    fitted, agent = (
        RewardModel(LOG, es.Linear(D), folds=3),
        es.Greedy(es.PerAction(es.Linear(D), K)),
    )
    values = fitted.values()
    for fold in range(3):
        state = agent.init(KEY)
        for i in np.flatnonzero(fitted.fold != fold):
            state = update(agent, KEY, state, action(CHOSEN[i], X[i]), jnp.asarray(Y[i], float))
        for i in np.flatnonzero(fitted.fold == fold)[:2]:
            rows = jnp.broadcast_to(jnp.asarray(X[i], float), (K, D))
            want = values_of(agent, KEY, state, rows)[0]
            np.testing.assert_allclose(values[i], want, rtol=2e-4, atol=2e-4)


def test_a_told_prior_has_no_constant_and_is_shared_where_actions_have_features():
    features = RNG.normal(size=(N, K, D))
    log = es.Log(CHOSEN, Y, propensities=SHARES, features=features)
    fitted = RewardModel(log, es.Linear(D, noise_std=0.5, prior_mean=[1.0, -1.0], prior_std=2.0), 2)
    x, values = features[AT, CHOSEN], fitted.values()
    for fold in range(2):
        rest = fitted.fold != fold
        precision = x[rest].T @ x[rest] / 0.25 + np.eye(D) / 4
        moment = x[rest].T @ Y[rest] / 0.25 + np.array([1.0, -1.0]) / 4
        theta = np.linalg.solve(precision, moment)
        np.testing.assert_allclose(values[~rest], features[~rest] @ theta)


@pytest.mark.parametrize("shared", [True, False])
def test_the_direct_interval_moves_with_the_model(shared):
    """Its representer is the derivative of the estimate with respect to every outcome."""
    about = {"context": X} if shared else {"features": X[:, None] * (np.arange(K) - 1.2)[:, None]}

    def log(y):
        return es.Log(CHOSEN, y, propensities=SHARES, **about)

    def direct(y):
        return es.evaluate(log(y), PI, model=es.Linear(D))["direct"].value

    found = RewardModel(log(Y), es.Linear(D)).representer(PI)
    for i in (0, 7, 31):  # the centre of outcomes moves with each of them too, a little
        assert (direct(Y + (i == AT)) - direct(Y)) * N == pytest.approx(found[i], abs=0.2)


def test_where_a_log_is_cut_changes_nothing(monkeypatch):
    x = np.where(AT[:, None] % 4, X, [0.0, np.nan])
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=x)

    @jax.jit
    def compiled(offer):
        chances = jnp.exp(jnp.arange(K) * offer.features[:, 0])
        return chances / chances.sum()

    policies = {"table": PI, "compiled": compiled, "one by one": lambda offer: compiled(offer)}
    whole = es.evaluate(log, policies).columns()
    monkeypatch.setattr(logs, "CHUNK", 7)
    cut = es.evaluate(log, policies).columns()
    for name in ("value", "low", "high", "difference_low", "difference_high"):
        np.testing.assert_allclose(cut[name], whole[name], rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(cut[name][6:12], cut[name][12:], rtol=1e-6, err_msg=name)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """The short version of the benchmark: 100 logs, 0.95 within three standard errors (0.065)."""
    path = Path(__file__).parents[2] / "benchmarks" / "evaluate_coverage.py"
    benchmark = runpy.run_path(str(path))
    truth = benchmark["truth"]("nonlinear", 500_000)
    found = benchmark["coverage"]("nonlinear", "bad", "large", 100, truth)["coverage"]
    for method in ("self-normalised", "doubly robust"):
        assert 0.885 <= found[method] <= 1.0
    assert found["direct"] < 0.8, "a wrong model alone is wrong"


def test_what_the_log_could_never_have_shown_is_refused_and_small_shares_widen():
    log = es.Log(AT % 2, Y, propensities=np.tile([0.5, 0.5, 0.0], (N, 1)), context=X)
    with pytest.raises(ValueError, match=r"100\.0% of the policy's probability is on actions"):
        es.evaluate(log, [0.0, 0.0, 1.0])
    both = es.evaluate(log, {"never": [0.0, 0.0, 1.0], "half": [0.5, 0.5, 0.0]})
    assert "100.0%" in (both["never"].refused or "")
    assert str(both).startswith("! never: refused: 100.0%")
    assert "refused: never" in both.plot().get_suptitle()
    assert both["half"].unsupported == 0
    with pytest.raises(KeyError, match="there is no estimate"):
        both["never"]["direct"]
    assert both.frame()[["method", "value"]].isna().all(axis=1).tolist() == [True] + [False] * 6
    some, none = (es.evaluate(log, [0.5, 0.5 - s, s], model=np.zeros((N, K))) for s in (0.04, 0))
    assert some.unsupported == pytest.approx(0.04)
    assert str(some).startswith("! 4.00% of the policy's probability is on actions")
    room = 0.04 * np.ptp(Y)
    wider = some["self-normalised"].high - none["self-normalised"].high
    assert wider == pytest.approx(room, abs=0.15 * room)


def test_differences_are_paired_with_the_baseline():
    policies = {"two": PI[:, ::-1], "one": PI, "near": 0.9 * PI + 0.1 / K}
    found = es.evaluate(LOG, policies, baseline="one")
    for method, estimate in found["two"].estimates.items():
        gap = found["two"].differences[method]
        assert gap.value == pytest.approx(estimate.value - found["one"][method].value)
        if method in ("clipped", "switch"):
            assert gap[1:] == estimate[1:] == (None, None, None)
        else:
            assert found["one"].differences[method].stderr == pytest.approx(0.0, abs=1e-12)
    near = found["near"]
    assert near.differences["doubly robust"].stderr < 0.3 * near["doubly robust"].stderr
    earned = es.evaluate(LOG, SHARES)
    assert earned.differences["inverse propensity"].value == pytest.approx(0.0, abs=1e-12)
    frame = found.frame()
    assert frame["policy"].tolist() == ["two"] * 6 + ["one"] * 6 + ["near"] * 6
    assert frame["low"].isna().sum() == 6
    assert frame["effective"].isna().sum() == 3
    assert "no interval" in str(found["two"])
    assert len(found.plot().axes) == 2


def test_a_policy_is_the_same_in_every_form():
    agent, state = AGENT, start(AGENT, KEY)
    for i in range(9):
        state = update(agent, KEY, state, action(CHOSEN[i], X[i]), jnp.asarray(Y[i], float))

    @jax.jit
    def compiled(offer):
        return agent.probabilities(state, jnp.asarray(offer.features, float), offer.available)

    want = probabilities((agent, state), LOG)
    for form in (compiled, lambda offer: compiled(offer), (InPython(agent), state), want):
        np.testing.assert_allclose(probabilities(form, LOG), want, atol=1e-6)


def test_an_agent_alone_is_judged_on_the_half_it_did_not_learn():
    """With one action better in each half, it chooses the other half's; here among more decisions
    than are looked at together, of which nothing is known."""
    at = np.arange(600)
    y = np.where(at < 300, at % 2 == 0, at % 2 == 1).astype(float)
    log = es.Log(at % 2, y, np.full(600, 0.5), actions=["a", "b"])
    chances = probabilities(es.Greedy(es.IndependentArms(2)), log)
    np.testing.assert_array_equal(chances[:, 0] == 1, at >= 300)
    one = es.Log([0], [1.0], [0.5], actions=["a", "b"])
    np.testing.assert_array_equal(probabilities(es.Uniform(), one), [[0.5, 0.5]])


def test_some_action_is_best_however_the_compiler_rounds():
    """Values are computed twice in one program, for the maximum and to compare with it."""
    x = np.random.default_rng(0).normal(size=(512, 2))
    log = es.Log(np.arange(512) % 3, np.sin(np.arange(512)), np.full(512, 1 / 3), context=x)
    np.testing.assert_allclose(probabilities(AGENT, log).sum(axis=1), 1.0, atol=1e-5)


def learned_bandit(folder=None, actions=("a", "b", "c")):
    agent = es.EpsilonGreedy(es.PerAction(es.Linear(D), len(actions)), 0.2)
    about = {"actions": list(actions), "floor": 0.3}
    bandit = es.Bandit(agent, **about) if folder is None else es.Bandit.open(folder, agent, **about)
    for t in range(30):
        made = bandit.choose(context=X[t], available=["a", "b"] if t % 5 == 0 else None)
        if t < 28:
            bandit.learn(made.id, float(X[t, 0] * (made.index - 1)))
    return bandit


def test_a_bandit_as_a_policy_is_what_it_would_predict_and_its_own_log_warns_of_it():
    bandit = learned_bandit()
    log = es.Log.of(bandit)
    for row, offer in zip(probabilities(bandit, log)[:6], log.offers(), strict=False):
        told = bandit.predict(context=offer.features[0], available=offer.available.tolist())
        np.testing.assert_allclose(row, told.probabilities, atol=1e-6)
    assert any("learned from this very log" in w for w in es.evaluate(bandit, bandit).warnings)
    table = es.Log.of(pd.DataFrame(bandit.log()))
    assert not any("very log" in word for word in es.evaluate(table, bandit).warnings)
    with pytest.raises(ValueError, match="the bandit has decided nothing yet"):
        es.evaluate(log, es.Bandit())


def test_actions_are_matched_by_name_in_a_context_and_with_features():
    names, places, rng = ["c", "a", "x", "b"], [3, 0, 2], np.random.default_rng(5)
    bandit = learned_bandit(actions=names)
    some = {"chosen": [0] * 6, "outcome": np.ones(6), "propensity": [0.5] * 6}
    log = es.Log(**some, context=X[:6], actions=["a", "b"])
    told = bandit.predict(context=X[1], available=["a", "b"]).probabilities
    np.testing.assert_allclose(probabilities(bandit, log)[1], told[[1, 3]], atol=1e-6)
    rows, free = np.zeros((6, 4, D)), np.zeros(4, bool)
    rows[:, places], free[places] = rng.normal(size=(6, 3, D)), True
    log = es.Log(**some, features=rows[:, places], actions=[names[at] for at in places])
    want = [np.asarray(bandit.predict(row, available=free).probabilities)[places] for row in rows]
    np.testing.assert_allclose(probabilities(bandit, log), want, atol=1e-6)
    with pytest.raises(ValueError, match=r"does not know, 'new' \(chosen 6 times\)"):
        es.evaluate(es.Log(**some, context=X[:6], actions=["new", "a"]), bandit)
    with pytest.raises(ValueError, match="takes 2 features, the log has 3"):
        es.evaluate(es.Log(**some, context=np.ones((6, 3)), actions=["a", "b"]), bandit)


def taught_bandit(agent, rows, **settings):
    """A bandit that learned these rows of the log, whose features have other units."""
    bandit = es.Bandit(agent, **settings)
    table = {"x": (X * UNITS)[rows].tolist(), "a": CHOSEN[rows].tolist(), "y": Y[rows]}
    bandit.learn_from(table, context="x", action="a", outcome="y")
    return bandit


@pytest.mark.parametrize(
    ("agent", "normalise"), [(AGENT, True), (AGENT, False), (None, True), (None, False)], ids=str
)
def test_an_agent_alone_learns_as_a_bandit_does(agent, normalise):
    """Bit by bit the same state and the same probabilities, in units that differ a millionfold."""
    half = slice(N // 2, N)
    settings = {} if agent is not None else {"actions": list(range(K))}
    bandit = taught_bandit(agent, half, seed=7, normalise=normalise, **settings)
    rows = (X * UNITS).astype("float32")[half], CHOSEN[half], Y[half]
    state = Pupil.of(agent, SCALED, normalise).as_bandit(7, *rows)
    same = jax.tree.map(np.array_equal, state, bandit.state)
    assert all(jax.tree.leaves(same)), same
    ours, theirs = (probabilities(p, SCALED, 7, normalise)[: N // 2] for p in (agent, bandit))
    np.testing.assert_array_equal(ours, theirs)


def test_whoever_learned_this_very_log_is_warned_of_and_a_state_is_its_own_agents():
    taught, some = (taught_bandit(GREEDY, slice(0, n)) for n in (N, N // 2))
    other = Informed(es.Uniform(), es.Log(CHOSEN, -Y, SHARES[AT, CHOSEN], context=X))
    for policy in (taught, Informed(es.Uniform(), SCALED)):
        assert "learned from this very log" in es.evaluate(SCALED, policy).warnings[0]
    assert not any(es.evaluate(SCALED, policy).taught for policy in (some, other))
    want = probabilities(taught, SCALED)
    np.testing.assert_array_equal(probabilities((GREEDY, taught.state), SCALED), want)
    with pytest.raises(ValueError, match="the state is not one of"):
        es.evaluate(SCALED, (AGENT, taught.state))


def test_missing_features_are_for_the_default_agent():
    """With NaN as the usual value an estimate differs little; all others are told."""
    x = X.copy()
    x[::4, 1] = np.nan
    log = es.Log(CHOSEN, Y, propensities=SHARES, context=x)
    assert np.isfinite(es.evaluate(log, None).best).all()
    told = es.evaluate(LOG, PI).best.value
    assert es.evaluate(log, PI).best.value == pytest.approx(told, abs=0.1)
    bandit, table = es.Bandit(actions=[0, 1, 2]), {"x": x.tolist(), "a": CHOSEN.tolist(), "y": Y}
    bandit.learn_from(table, context="x", action="a", outcome="y")
    assert es.evaluate(log, bandit).taught
    for call, message in [
        (lambda: es.evaluate(log, GREEDY), "which only the default agent takes"),
        (lambda: es.evaluate(log, taught_bandit(GREEDY, slice(0, 9))), "which only"),
        (lambda: es.evaluate(log, (GREEDY, GREEDY.init(KEY))), "which only"),
        (lambda: es.evaluate(log, None, normalise=False), "which only .* got normalise=False"),
        (lambda: es.replay(log, GREEDY), "which only"),
        (lambda: Informed(GREEDY, log), "which only"),
        (lambda: Logged(log), "a world to simulate in has them all"),
        (lambda: es.evaluate(log, PI, model=es.Linear(D)), "only .* model=None, takes them"),
    ]:
        with pytest.raises(ValueError, match=rf"missing \(NaN\) in 15 of 60 decisions.*{message}"):
            call()


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (lambda offer: [0.5, 0.6, 0.0], {}, "must be at least 0 and sum to 1: 60 of 60"),
        (lambda offer: [1.5, -0.5, 0.0], {}, "decisions have others, the first [1.5, -0.5, 0.0]"),
        (lambda offer: [1.0], {}, "must give 3 probabilities for an offer, got shape (1,)"),
        (jax.jit(lambda offer: jnp.ones(4) / 4), {}, "for an offer, got shape (4,)"),
        ([0.5, 0.5], {}, "must have shape (3,) or (60, 3)"),
        (es.Greedy(es.IndependentArms(4)), {}, "knows 4 actions, the log has 3"),
        (es.Greedy(es.Linear(5)), {}, "takes 5 features, the log has 2"),
        (es.Uniform, {}, "write Uniform(...), not the class"),
        ("uniform", {}, "a policy must be a bandit, an agent"),
        ({}, {}, "at least one policy"),
        ({"logged": PI}, {}, "'logged' is what was earned"),
        (PI, {"baseline": "two"}, "the baseline must be one of 'logged', 'policy'; got 'two'"),
        (PI, {"model": es.Linear(3)}, "takes 3 features, the log 2"),
        (PI, {"model": GREEDY}, "must be a Linear learner of numbers"),
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


def test_a_policy_must_choose_what_is_available():
    log = es.Log([0] * 6, np.ones(6), [0.5] * 6, available=[[True, True, False]] * 6)
    with pytest.raises(ValueError, match="what is not available in 6 of 6 decisions"):
        es.evaluate(log, [0.2, 0.2, 0.6])


def test_the_command_compares_candidates_on_a_folder_and_tells_mistakes_in_a_sentence(tmp_path):
    learned_bandit(tmp_path / "b").close()
    file, out = tmp_path / "candidates.py", tmp_path / "out"

    def run(*more):
        return CliRunner().invoke(app, ["evaluate", str(tmp_path / "b"), str(file), *more])

    for text, message in [
        (None, "there is no file"),
        ("x = 1", "has no CANDIDATES"),
        ("CANDIDATES = {}", "says CANDIDATES = {}"),
        ("CANDIDATES = {'one': 1 / 0}", "line 1: ZeroDivisionError"),
        ("CANDIDATES = {'one': 'two'}", "one: a policy must be a bandit, an agent"),
    ]:
        if text is not None:
            file.write_text(text)
        done = run()
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())
    file.write_text(
        "import ensemble_sampling as es\n"
        "def half(offer):\n"
        "    return offer.available / offer.available.sum()\n"
        "CANDIDATES = {'half': half, 'uniform': es.Uniform()}\n"
    )
    done = run("--out", str(out))
    assert done.exit_code == 0, done.output
    assert "28 decisions; 2 left out: outcome missing; doubly robust estimates" in done.stdout
    lines = {line.split()[0]: line.split()[1:5] for line in done.stdout.splitlines()}
    assert lines["half"] == lines["uniform"]
    assert {path.suffix for path in out.iterdir()} == {".txt", ".json", ".png", ".svg"}
    saved = json.loads((out / "evaluation.json").read_text())
    assert saved["policy"] == ["half"] * 6 + ["uniform"] * 6
    assert saved["low"][2] is None


def test_an_informed_agent_starts_from_the_log_learned_one_by_one():
    informed, (first, learn) = Informed(AGENT, LOG, normalise=False), jax.random.split(KEY)
    state = start(AGENT, first)
    for at, words in enumerate(jax.random.bits(learn, (N, 2), jnp.uint32)):
        key, y = jax.random.wrap_key_data(words, impl="threefry2x32"), jnp.asarray(Y[at], float)
        state = update(AGENT, key, state, action(CHOSEN[at], X[at]), y)
    have, offer = start(informed, KEY), jnp.asarray(X[:K], float)
    ours = values_of(informed, KEY, have, offer)
    np.testing.assert_allclose(ours, values_of(AGENT, KEY, state, offer), rtol=0, atol=1e-5)
    known = Informed(es.Uniform(), LOG)
    result = es.simulate(known, es.LinearBandit(D, K), periods=3, realizations=2)
    assert result.label.endswith(", informed")
    with pytest.raises(ValueError, match="knows 4 actions, the log has 3"):
        Informed(es.Greedy(es.IndependentArms(4)), LOG)
    with pytest.raises(TypeError, match=r"plain Python: teach it by Bandit\.learn_from"):
        Informed(InPython(GREEDY), LOG)


def test_an_informed_agent_sees_the_units_a_bandit_would_also_of_features_first_seen_later():
    informed, offer = Informed(GREEDY, SCALED), jnp.asarray((X * UNITS)[:K], float)
    state = taught_bandit(GREEDY, slice(0, N)).state
    have = values_of(informed, KEY, start(informed, KEY), offer)
    want = values_of(GREEDY, KEY, state.belief, state.scale.apply(offer))
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    informed = Informed(GREEDY, es.Log(CHOSEN, Y, SHARES[AT, CHOSEN], context=X * [1.0, 0.0]))
    state = start(informed, KEY)
    after = update(informed, KEY, state, action(1, [0.5, 50.0]), jnp.asarray(2.0))
    size = np.asarray(state.scale.size)
    np.testing.assert_allclose(size[1], 0)
    np.testing.assert_allclose(after.scale.size, [size[0], 50.0])
    want = update(GREEDY, KEY, state.belief, action(1, [0.5 / size[0], 1.0]), jnp.asarray(2.0))
    for have, expected in zip(jax.tree.leaves(after.belief), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-5, atol=1e-6)


def test_an_informed_agent_counts_outcomes_from_the_first_as_a_bandit_does():
    rows = jnp.zeros((3, 0))

    @eqx.filter_jit
    def told(informed, outcome):
        state = informed.init(KEY)
        after = informed.update(KEY, state, Action(jnp.int32(0), rows[0]), outcome)
        values = [informed.values(KEY, s, rows) for s in (state, after)]
        return informed.probabilities(state, rows), *values

    offset = 2.0**20
    near, far = (
        told(Informed(None, log_examples.eighths(by)), jnp.asarray(9.0 + by, float))
        for by in (0, offset)
    )
    np.testing.assert_array_equal(near[0], far[0])
    assert far[0][2] > 0.9
    for have, want in zip(far[1:], near[1:], strict=True):
        np.testing.assert_allclose(have - offset, want, atol=0.07)  # what float32 keeps of it
    assert (near[2][:, 0] - near[1][:, 0]).mean() > 0.03  # the tenth of its outcomes was large


def test_a_world_from_a_log_is_as_the_log_was():
    rng = np.random.default_rng(7)
    x, theta = rng.normal(size=(3000, D)), np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    chosen = rng.integers(0, K, 3000)
    y = (x @ theta)[np.arange(3000), chosen] + 0.5 * rng.normal(size=3000)
    world = Logged(es.Log(chosen, y, np.full(3000, 1 / K), context=x))
    offered = jax.jit(lambda world, key: world.offer(key, world.init(key)))
    offer = offered(world, KEY)
    np.testing.assert_allclose(offer.means, np.asarray(offer.features[0]) @ theta, atol=0.1)
    outcome = jax.jit(jax.vmap(lambda key: world.outcome(key, offer.world, action(1, x[0]))))
    seen = outcome(jax.random.split(KEY, 2000))
    assert float(jnp.std(seen)) == pytest.approx(0.5, abs=0.05)
    clicks = Logged(es.Log(chosen, (y > 0) * 1.0, np.full(3000, 1 / K), context=x))
    offer = offered(clicks, KEY)
    assert float(offer.means.min()) >= 0
    assert float(offer.means.max()) <= 1
    assert clicks.outcome(KEY, jnp.array([1.0, 0.0, 1.0]), action(0, x[0])) == 1.0


def test_worlds_of_a_log_differ_as_its_posterior_does():
    """Features that go together: a model's weights are known together better than apart."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(300, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]])
    y = x[:, 0] + 0.5 * rng.normal(size=300)
    world = Logged(es.Log(np.zeros(300, int), y, np.ones(300), context=x))
    draw = jax.jit(jax.vmap(lambda key: world.init(key).theta[0]))
    drawn = draw(jax.random.split(jax.random.key(0), 4000))
    rows = np.column_stack([np.ones(300), (x - world.center) / world.size])
    residual = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    want = residual.var() * np.linalg.inv(rows.T @ rows)
    size = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    np.testing.assert_allclose(np.cov(np.asarray(drawn).T) / size, want / size, atol=0.1)
