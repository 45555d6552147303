"""What a decision says of itself: values, predictions, rankings, a floor, and words of warning."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportOptionalSubscript=false

import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import ensemble_sampling as es
from ensemble_sampling.agents.greedy import shares
from ensemble_sampling.decide import notices
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.inputs.descriptions import as_text
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.ledger.rows import OutcomeRow, decided

DIM, K = 3, 5
THETA = np.array([1.0, -0.5, 2.0])
AGENT = es.EnsembleSampling(es.Linear(DIM, noise_std=0.5), members=6)
RNG = np.random.default_rng(0)
OFFER = RNG.normal(size=(K, DIM))


def taught(agent=AGENT, outcomes=10, **options):
    """A bandit that knows a little."""
    bandit, rng = es.Bandit(agent, seed=1, **options), np.random.default_rng(2)
    for offer in rng.normal(size=(outcomes, K, DIM)):
        decision = bandit.choose(offer)
        bandit.learn(decision.id, float(offer[decision.index] @ THETA + rng.normal() / 2))
    return bandit


def models(bandit, offer=OFFER):
    """The values (S, K) of the bandit's members, by the posterior itself."""
    state = bandit.state
    belief = jax.tree.map(jnp.asarray, state.belief)
    features = state.scale.apply(jnp.asarray(offer, float))
    return np.asarray(
        bandit._replica.agent.posterior.values(jax.random.key(0), belief, features, 7)
    )


# What actions are worth.


def test_values_are_the_mean_and_spread_of_the_members():
    bandit = taught()
    expected = models(bandit)
    values = bandit.choose(OFFER).values
    assert values.mean == pytest.approx(expected.mean(axis=0), rel=1e-4, abs=1e-5)
    assert values.spread == pytest.approx(expected.std(axis=0), rel=1e-3, abs=1e-5)


def test_values_come_near_the_truth():
    values = taught(outcomes=200).choose(OFFER).values
    # Noise 0.5 over 200 outcomes in 3 dimensions: an error of about 0.1.
    assert values.mean == pytest.approx(OFFER @ THETA, abs=0.3)
    assert np.all(values.spread < 0.3)


VALUED = {
    "exact": es.ThompsonSampling(es.Exact(es.Linear(DIM)), draws=50),
    "greedy": es.Greedy(es.Linear(DIM)),
    "epsilon-greedy": es.EpsilonGreedy(es.Linear(DIM), 0.1),
    "persistent": es.agents.Persistent(es.Ensemble(es.PerAction(es.Linear(DIM), K), 4)),
    "trees": es.EstimatorEnsemble(partial(DecisionTreeRegressor, max_depth=2), 3, start=3),
    "default": None,
}


@pytest.mark.parametrize("name", VALUED)
def test_every_agent_with_models_says_what_actions_are_worth(name):
    bandit = taught(VALUED[name])
    values = bandit.choose(OFFER).values
    assert values.mean.shape == values.spread.shape == (K,)
    assert np.isfinite(values.mean).all()
    assert np.all(values.spread >= 0)
    if "greedy" in name:
        assert np.all(values.spread == 0)


def test_an_agent_without_models_has_no_values():
    decision = es.Bandit(es.Uniform()).choose(OFFER)
    assert decision.values is None
    assert decision.probabilities == pytest.approx([1 / K] * K)


def test_estimators_are_asked_once_for_a_decision():
    asked = []

    class Counted(DecisionTreeRegressor):
        def predict(self, X, check_input=True):
            asked.append(len(X))
            return super().predict(X, check_input)

    agent = es.EstimatorEnsemble(partial(Counted, max_depth=2), 3, start=3)
    bandit = taught(agent, outcomes=4)
    asked.clear()
    bandit.choose(OFFER)
    assert len(asked) == 3  # members


def test_probabilities_are_what_they_were_without_values():
    bandit = taught()
    assert bandit.choose(OFFER).probabilities == pytest.approx(
        np.asarray(shares(jnp.asarray(models(bandit))).mean(axis=0))
    )


# Asking without deciding.


@pytest.mark.parametrize("name", [*VALUED, "uniform"])
def test_a_prediction_is_what_the_next_decision_is_made_of(name):
    bandit = taught(es.Uniform() if name == "uniform" else VALUED[name], outcomes=4)
    before = bandit.log()
    first, again = bandit.predict(OFFER), bandit.predict(OFFER)
    assert bandit.log() == before
    decision = bandit.choose(OFFER)
    for prediction in (first, again):
        assert np.array_equal(prediction.probabilities, decision.probabilities)
        assert (prediction.values is None) == (decision.values is None)
        for one, other in zip(prediction.values or (), decision.values or (), strict=True):
            assert np.array_equal(one, other)


def test_a_prediction_knows_of_an_outcome_since_the_last_one_of_the_same_offer():
    asked, left_alone = (es.Bandit(VALUED["trees"], normalise=False) for _ in range(2))
    first, other = asked.choose(OFFER), left_alone.choose(OFFER)
    before = asked.predict(OFFER)
    asked.learn(first.id, 1.0)
    left_alone.learn(other.id, 1.0)
    after = asked.predict(OFFER)
    assert not np.array_equal(after.values.mean, before.values.mean)
    assert np.array_equal(after.values.mean, left_alone.predict(OFFER).values.mean)


def test_asking_changes_no_decision():
    asked, left_alone = taught(outcomes=3), taught(outcomes=3)
    for offer in np.random.default_rng(4).normal(size=(20, K, DIM)):
        asked.predict(offer)
        a, b = asked.choose(offer), left_alone.choose(offer)
        assert (a.index, a.probability) == (b.index, b.probability)


@pytest.mark.parametrize("agent", [None, es.Uniform()])
def test_a_prediction_before_the_first_decision_settles_nothing(agent):
    bandit = es.Bandit(agent)
    assert bandit.predict(np.ones((4, 2))).probabilities == pytest.approx([0.25] * 4)
    if agent is None:
        assert bandit.predict([{"name": "a"}, {"name": "b"}]).probabilities.shape == (2,)
    assert bandit.predict(OFFER).probabilities.shape == (K,)
    predicted, decision = bandit.predict(OFFER), bandit.choose(OFFER)
    assert np.array_equal(predicted.probabilities, decision.probabilities)
    with pytest.raises(ValueError, match="3 features, got 2"):
        bandit.predict(np.ones((4, 2)))


def test_a_prediction_of_a_new_folder_writes_nothing(tmp_path):
    with es.Bandit.open(tmp_path, actions=["a", "b"]) as bandit:
        bandit.predict(context={"hour": "late"})
        bandit.choose(context=[1.0, 2.0])
        assert bandit.log()["features"] == [[1.0, 2.0]]


def test_a_prediction_reads_offers_as_a_choice_does():
    bandit = es.Bandit(actions=["a", "b", "c"])
    assert bandit.predict(available=["a", "c"]).probabilities[1] == 0
    with pytest.raises(ValueError, match="'d', which is not on offer"):
        bandit.predict(available=["d"])
    with pytest.raises(ValueError, match="give the features"):
        es.Bandit().predict()


# The best few.


def test_a_ranking_is_that_of_a_member_that_chose_the_first():
    bandit = taught(outcomes=2)
    values = models(bandit)
    orders = {tuple(np.argsort(-member)) for member in values}
    assert len(orders) > 1
    seen = set()
    for _ in range(60):
        decision = bandit.choose(OFFER, top=K)
        assert decision.ranking[0] == decision.index == decision.action
        assert decision.ranking in orders
        seen.add(decision.ranking)
    assert seen == orders  # six members, each drawn with a chance of at least 1/6


def test_a_ranking_is_that_of_a_member_that_chose_the_first_of_what_is_available():
    bandit = taught(outcomes=2)
    values = models(bandit)
    for gone in set(values.argmax(axis=1).tolist()):
        free = np.arange(K) != gone
        orders = {tuple(k for k in np.argsort(-member) if k != gone) for member in values}
        ranked = (bandit.choose(OFFER, available=free, top=K - 1) for _ in range(60))
        assert {decision.ranking for decision in ranked} == orders


def test_a_ranking_changes_neither_choice_nor_probabilities():
    one, other = taught(), taught()
    for _ in range(10):
        a, b = one.choose(OFFER), other.choose(OFFER, top=3)
        assert a.ranking is None
        assert len(b.ranking) == 3
        assert (a.index, a.probability) == (b.index, b.probability)


def test_an_action_that_no_model_would_choose_is_followed_by_the_order_of_the_mean():
    bandit = taught(floor=1.0)
    values = models(bandit)
    best = np.argsort(-values.mean(axis=0)).tolist()
    never = set(range(K)) - set(values.argmax(axis=1).tolist())
    found = [d for d in (bandit.choose(OFFER, top=K) for _ in range(40)) if d.index in never]
    assert found
    for decision in found:
        rest = [i for i in best if i != decision.index]
        assert list(decision.ranking) == [decision.index, *rest]


def test_a_ranking_has_names_and_only_what_is_available():
    agent = es.EnsembleSampling(es.PerAction(es.Linear(2), 4), members=3)
    bandit = es.Bandit(agent, actions=["a", "b", "c", "d"])
    for _ in range(20):
        decision = bandit.choose(context=[1.0, 2.0], available=["a", "b", "d"], top=3)
        assert decision.ranking[0] == decision.action
        assert set(decision.ranking) == {"a", "b", "d"}
    mapped = es.Bandit(es.Uniform()).choose({"x": [1.0], "y": [2.0]}, top=2)
    assert set(mapped.ranking) == {"x", "y"}


def test_without_models_a_ranking_is_chance():
    bandit = es.Bandit(es.Uniform(), seed=3)
    seen = [bandit.choose(np.ones((3, 1)), top=3).ranking for _ in range(300)]
    counts = [seen.count(order) for order in set(seen)]
    assert len(counts) == 6
    assert min(counts) > 25  # 50 expected, a standard deviation of 6.5


def test_rankings_by_estimators():
    decision = taught(VALUED["trees"]).choose(OFFER, top=2)
    assert len(set(decision.ranking)) == 2


@pytest.mark.parametrize(
    ("top", "error", "says"),
    [
        (0, ValueError, "top must be at least 1, got 0"),
        (2.0, TypeError, "top must be a whole number"),
        (4, ValueError, "top is 4, but only 3 actions can be chosen"),
    ],
)
def test_a_ranking_that_cannot_be_is_refused_and_nothing_recorded(top, error, says):
    bandit = es.Bandit()
    with pytest.raises(error, match=says):
        bandit.choose(np.ones((4, 2)), available=[True, True, False, True], top=top)
    assert bandit.log()["id"] == []
    bandit.choose(np.ones((4, 3)))  # the width is still open


# The floor.


def test_a_floor_mixes_every_decision_with_chance_exactly():
    plain, floored = taught(outcomes=0), taught(outcomes=0, floor=0.2)
    mask = np.array([True, True, False, True, True])
    p = plain.choose(OFFER, available=mask).probabilities
    q = floored.choose(OFFER, available=mask).probabilities
    assert q == pytest.approx(0.8 * p + 0.2 * mask / 4, rel=1e-6)
    assert np.all(q[mask] >= np.float32(0.2) / 4)
    assert q[2] == 0


def test_choices_follow_the_floor():
    bandit = taught(es.Greedy(es.Linear(DIM)), floor=0.5)
    p = bandit.choose(OFFER).probabilities
    assert sorted(p) == pytest.approx([0.1] * 4 + [0.6])
    counts = np.bincount([bandit.choose(OFFER).index for _ in range(600)], minlength=K) / 600
    assert np.all(np.abs(counts - p) <= 4 * np.sqrt(p * (1 - p) / 600))
    assert bandit.predict(OFFER).probabilities == pytest.approx(p)


def test_a_floor_is_recorded_and_replayed(tmp_path):
    with es.Bandit.open(tmp_path, floor=0.3) as bandit:
        p = bandit.choose(OFFER, top=1).probabilities
        assert bandit._ledger.description["floor"] == 0.3
    with es.Bandit.open(tmp_path) as bandit:  # nothing told: that of the folder
        assert bandit.predict(OFFER).probabilities == pytest.approx(p)
        assert np.all(bandit.choose(OFFER).probabilities >= np.float32(0.3) / K)
    with pytest.raises(ValueError, match=r"floor: 0.3 -> 0.1"):
        es.Bandit.open(tmp_path, floor=0.1)
    with es.Bandit.migrate(tmp_path, floor=0.0) as bandit:
        assert "floor" not in bandit._ledger.description


def test_a_folder_from_before_there_was_a_floor_opens_unchanged(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert "floor" not in bandit._ledger.description
    with es.Bandit.open(tmp_path, AGENT, floor=0.0) as bandit:
        assert "floor" not in bandit._ledger.description
    with pytest.raises(ValueError, match=r"floor: 0.05 -> None|floor: None -> 0.05"):
        es.Bandit.open(tmp_path, AGENT, floor=0.05)


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan")])
def test_a_floor_is_a_share(floor):
    with pytest.raises(ValueError, match="floor must be"):
        es.Bandit(floor=floor)


# Words.


def told(bandit, play, rounds=140):
    """What is said while `play(bandit, t)` decides and gives outcomes."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for t in range(rounds):
            decision, outcome = play(bandit, t)
            bandit.learn(decision.id, outcome)
    return [str(w.message) for w in said if issubclass(w.category, UserWarning)]


def linear(scale=1.0, noise=0.5):
    """Outcomes linear in the features, with noise."""
    rng = np.random.default_rng(5)

    def play(bandit, t):
        offer = rng.normal(size=(K, DIM))
        decision = bandit.choose(offer)
        return decision, scale * float(offer[decision.index] @ THETA + noise * rng.normal())

    return play


@pytest.mark.parametrize(("noise_std", "how"), [(5.0, "less"), (0.05, "more")])
@pytest.mark.parametrize("make", [lambda n: es.Exact(es.Linear(DIM, n)), None])
def test_a_noise_level_that_outcomes_contradict_is_said_once(noise_std, how, make):
    agent = es.EnsembleSampling(es.Linear(DIM, noise_std), 10) if make is None else make(noise_std)
    bandit = es.Bandit(agent)
    said = told(bandit, linear(), rounds=300)
    assert len(said) == 1
    assert f"noise_std is {noise_std:g}" in said[0]
    assert f"far {how}" in said[0]
    assert len(bandit.summary().warnings) == 1
    assert "\nwarning    noise_std is" in str(bandit.summary())


@pytest.mark.parametrize("noise_std", [0.25, 0.5, 1.0, None])
def test_a_noise_level_that_is_about_right_or_learned_is_not_complained_of(noise_std):
    bandit = es.Bandit(es.EnsembleSampling(es.Linear(DIM, noise_std), 10))
    assert told(bandit, linear(), rounds=300) == []
    assert bandit.summary().warnings == ()


def test_the_noise_told_is_found_wherever_it_is():
    line = es.Linear(DIM, noise_std=0.3)
    network = partial(
        es.Network, es.networks.GaussianMLP(DIM, (5,)), DIM, capacity=4, noise_std=0.7
    )
    assert notices.told(es.EpsilonGreedy(line, 0.1)) == 0.3
    assert notices.told(es.agents.Persistent(es.Ensemble(es.PerAction(line, 2), 3))) == 0.3
    assert notices.told(es.Greedy(es.IndependentArms(2, 0.2))) == 0.2
    assert notices.told(es.EnsembleSampling(network(), 3)) == pytest.approx(0.7)
    clicks = network(loss=es.learners.CrossEntropy())
    pair = es.Linear(DIM, noise_std=0.7, outcomes=2, reward=jnp.max)
    for silent in (es.Uniform(), es.Greedy(es.Linear(DIM)), es.Greedy(clicks), es.Greedy(pair)):
        assert notices.told(silent) is None


class Lost(es.Uniform):
    """Chance, with models that diverged."""

    def diverged(self, state):
        return 3


def test_models_that_diverge_are_said_and_read_from_the_folder(tmp_path):
    with es.Bandit.open(tmp_path, Lost()) as bandit:
        said = told(bandit, lambda b, t: (b.choose([[1.0], [float(t)]]), float(t)), rounds=300)
        assert len(said) == 1
        assert "models diverged 3 times" in said[0]
        assert bandit.summary().warnings == (said[0],)
    assert inspect(tmp_path).warnings == (said[0],)


def test_no_context_is_a_normal_use():
    arms, rng = es.EnsembleSampling(es.IndependentArms(2), 5), np.random.default_rng(0)
    for bandit in (es.Bandit(arms), es.Bandit(actions=["a", "b"])):
        assert told(bandit, lambda b, t: (b.choose(), float(rng.normal()))) == []


STEADY = {
    "all alike": (lambda x: np.ones((K, 2)), "no feature has varied in the last 128 decisions"),
    "two stuck": (lambda x: np.c_[x, np.full((K, 2), 7.0)], r"2 of 5 features .* \(columns 3, 4\)"),
    "one column, all alike": (lambda x: np.ones((K, 1)), "no feature has varied"),
    "a constant": (lambda x: np.c_[x, np.ones(K)], None),
    "what has not occurred yet": (lambda x: np.c_[x, np.zeros((K, 4))], None),
    "missing": (lambda x: np.c_[x, np.full(K, np.nan)], None),
    "fixed rows": (lambda x: np.eye(K), None),
}


@pytest.mark.parametrize("name", STEADY)
def test_features_that_never_vary_are_said(name):
    (make, says), rng = STEADY[name], np.random.default_rng(6)
    agent = es.Bandit() if name == "missing" else es.Bandit(es.Uniform())
    said = told(agent, lambda b, t: (b.choose(make(rng.normal(size=(K, DIM)))), float(t % 3)))
    assert len(said) == (says is not None)
    assert says is None or re.search(says, said[0])


def test_a_constant_context_of_one_column_is_how_some_say_that_there_is_none():
    agent = es.EnsembleSampling(es.PerAction(es.Linear(1), 2), 3)
    assert told(es.Bandit(agent), lambda b, t: (b.choose(context=[1.0]), float(t % 5))) == []


def test_what_is_said_since_some_decision_or_no_longer_is_noticed():
    def describe(bandit, t):
        context = {"age": t % 50} | ({"basket": 2.0 * t} if t >= 300 else {"old": 1.0})
        decision = bandit.choose(context=context)
        return decision, float(decision.index)

    bandit = es.Bandit(actions=["a", "b"])
    (said,) = told(bandit, describe, rounds=512)
    assert "'basket' of the context since decision 300, in 212 of the last 256" in said
    told(bandit, lambda b, t: describe(b, t + 512), rounds=88)
    (said,) = bandit.summary().warnings
    assert "'basket' of the context since decision 300, in 256 of the last 256" in said
    assert "'old' of the context not in any of the last 256" in said


def said_of(contexts, offer=None, **options):
    """What a ledger of decisions in these contexts says of them; nobody has to choose."""
    ledger, free = Ledger(None), np.ones(1, bool)
    for start in range(0, len(contexts), 100):
        rows = []
        for n, context in enumerate(contexts[start : start + 100], start):
            about = Offer([as_text(offer(n) if offer else {"a": 1}, "action")], None, None, free)
            about = about._replace(context=as_text(context, "context"))
            rows.append(decided(n, float(n), about, 0, np.ones(1, np.float32)))
        ledger.add_decisions(rows, outcomes=[OutcomeRow(row.number, 1.0, 1.0) for row in rows])
    return ledger


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"age": 30}, {"age": "thirty"}, "'age' of the context as text in place of a number since"),
        ({"age": "30"}, {"age": 30}, "'age' of the context as a number in place of text since"),
        (
            {"age": -0.5},
            {"age": True},
            "'age' of the context as a truth value in place of a number",
        ),
        (
            {"u": {"age": 3}},
            {"u": {"age": [3]}},
            "'u.age' of the context as a list in place of a n",
        ),
        ({"u": {"a": 1}}, {"u": {"a": 1, "b%_": 2}}, "'u.b%_' of the context since decision 300,"),
        ({"a": 1}, {"a": 1, "A": 2}, "'A' of the context since decision 300,"),
        (
            {"v": 1, "u": {"w": 2}},
            {"v": 1, "u": {"w": 2, "v": 3}},
            "'u.v' of the context since dec",
        ),
        ({"a": "x", "t": 1}, {"a": '"t": {', "t": {"$seconds": 3}}, "'t' of the context as a time"),
        ({"a": None}, {"a": 3}, None),
        ({"a": 3}, {"a": None}, None),
        ({"a": 3}, {"a": 3.5}, None),
        ({"u": {"a": 1, "b": 1}}, {"u": {"a": 1}}, "'u.b' of the context not in any of the last"),
    ],
)
def test_what_is_said_otherwise_is_noticed_also_where_it_is_nested(before, after, told):
    ledger = said_of([before] * 300 + [after] * 300)
    found = notices._new(ledger)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert told in found
        assert "not in any" in told or "since decision 300, in 256 of the last 256" in found
    ledger.retain(40.0, dict)
    assert notices._new(ledger) == found  # by what is left
    ledger.retain(320.0, dict)
    assert notices._new(ledger) is None


def test_only_what_is_shown_is_looked_for(monkeypatch):
    ledger = said_of(
        [{"a": 1}] * 300 + [{f"k{n}": n for n in range(9)}] * 300,
        lambda n: {"b": 1} if n < 400 else {"b": "x"},
    )
    looked, real = [], Ledger.saying
    monkeypatch.setattr(Ledger, "saying", lambda *a: looked.append(a) or real(*a))
    found = notices._new(ledger)
    assert found is not None
    assert "'b' of the action as text in place of a number since decision 400" in found
    assert found.endswith(" and 6 more")
    assert len(looked) == 5


def test_a_normal_run_of_the_default_says_nothing():
    rng = np.random.default_rng(7)

    def in_context(bandit, t):
        x = rng.normal(size=4)
        decision = bandit.choose(context=x)
        return decision, float(rng.random() < 1 / (1 + np.exp(-x[decision.index])))

    def described(bandit, t):
        items = [{"kind": kind, "price": float(rng.random())} for kind in "abc"]
        return bandit.choose(items, context={"user": str(t % 7)}), float(rng.random())

    assert told(es.Bandit(actions=["a", "b", "c"]), in_context) == []
    assert told(es.Bandit(), linear(scale=100.0)) == []
    assert told(es.Bandit(), described) == []


def test_a_warning_points_at_the_callers_line():
    bandit = es.Bandit(es.Uniform())
    for _ in range(notices.FIRST - 1):
        bandit.learn(bandit.choose(np.ones((2, 2))).id, 1.0)
    last = bandit.choose(np.ones((2, 2))).id
    with pytest.warns(UserWarning, match="no feature has varied") as said:
        bandit.learn(last, 0.0)
    assert said[0].filename == __file__


def test_notices_come_when_batches_pass_the_mark():
    bandit = es.Bandit(es.Uniform())
    made = bandit.choose_many([np.ones((2, 2))] * 300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit.learn_many([(decision.id, 1.0) for decision in made[:100]])
    with pytest.warns(UserWarning, match="no feature has varied"):
        bandit.learn_many([(decision.id, 1.0) for decision in made[100:]])
