"""Mistakes in real decisions: refused by a message that helps, and nothing is recorded.

Every row is a call, the error it must raise, and a word of its message; add yours as a line.
"""

# Wrong on purpose:
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import os
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

import ensemble_sampling as es
from ensemble_sampling.ledger.ledger import Ledger

NAN, INF = float("nan"), float("inf")
HALF = os.fsdecode(b"order-\xff")  # text that is none
HUGE = 10**5000  # which Python refuses to write
LOOP = {"kind": "tea"}
LOOP["self"] = LOOP
FOREIGN = {"a": [1.0, 2.0], "b": [0.0, 1.0], "outcome": [1.0, 0.0]}
TWICE = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "a", "outcome"])
ROWS = [[1.0, 0.0], [0.0, 1.0]]
NAMED = {"tea": [1.0, 0.0], "coffee": [0.0, 1.0]}
MASKED = np.ma.array([[1.0, 2.0]], mask=[[False, True]], dtype=np.float32)
LINEAR = es.EnsembleSampling(es.Linear(2), members=3)
ARMS = es.EnsembleSampling(es.IndependentArms(2), members=3)
CONTEXT = es.EnsembleSampling(es.PerAction(es.Linear(2), arms=2), members=3)
WORDS = es.EnsembleSampling(es.Linear(16), members=3)
VECTORS = es.EnsembleSampling(es.Linear(2, outcomes=2, reward=lambda y: y[0]), members=3)
BANDITS = {
    "linear": es.Bandit(LINEAR),
    "arms": es.Bandit(ARMS, actions=["tea", "coffee"]),
    "nameless": es.Bandit(ARMS),
    "context": es.Bandit(CONTEXT),
    "words": es.Bandit(WORDS, hasher=es.Hasher(16)),
    "vectors": es.Bandit(VECTORS),
    "open": es.Bandit(es.Uniform()),
}
DECIDED = {
    "linear": BANDITS["linear"].choose(ROWS),
    "arms": BANDITS["arms"].choose(),
    "vectors": BANDITS["vectors"].choose(ROWS),
    "open": BANDITS["open"].choose(ROWS),
}


def learn(which, outcome):
    return which, lambda b: b.learn(DECIDED[which].id, outcome)


def choose(which, *given, **named):
    return which, lambda b: b.choose(*given, **named)


def number_of(text):
    """An id like that of the first decision, with another number."""
    return DECIDED["linear"].id.split("-")[0] + "-" + text


CALLS = [
    # features
    (choose("linear"), ValueError, "features of the actions on offer"),
    (choose("linear", 7), ValueError, "shape"),
    (choose("linear", "tea"), TypeError, "numbers"),
    (choose("linear", b"tea"), TypeError, "numbers"),
    (choose("linear", object()), TypeError, "numbers"),
    (choose("linear", [1.0, 2.0]), ValueError, "one row per action"),
    (choose("linear", [ROWS]), ValueError, "one row per action"),
    (choose("linear", []), ValueError, "one row per action"),
    (choose("linear", np.zeros((0, 2))), ValueError, "at least one action"),
    (choose("linear", {}), ValueError, "one row per action"),
    (choose("linear", np.eye(3)), ValueError, "have 2 features, got 3"),
    (choose("linear", [[1.0, 2.0], [1.0]]), TypeError, "one width"),
    (choose("linear", [["1", "2"]]), TypeError, "Hasher"),
    (choose("linear", [{"kind": "tea"}]), TypeError, "Hasher"),
    (choose("linear", [[1.0, None]]), TypeError, "NoneType"),
    (choose("linear", [[1.0, 1j]]), TypeError, "complex"),
    (choose("linear", [[1.0, NAN]]), ValueError, "nan in row 0, column 1"),
    (choose("linear", {"tea": [1.0, INF]}), ValueError, "inf in action 'tea'"),
    (choose("linear", [[1.0, 1e15]]), ValueError, "below 1e"),
    (choose("linear", MASKED), ValueError, "masked"),
    (choose("linear", {"tea": MASKED[0]}), ValueError, "masked"),
    (choose("linear", [MASKED[0]]), ValueError, "masked"),
    (choose("linear", {(1.0, 2.0), (3.0, 4.0)}), TypeError, "order"),
    (choose("linear", {("a", "b"): [1.0, 2.0]}), TypeError, "name must be text or a number"),
    (choose("linear", {NAN: [1.0, 2.0]}), ValueError, "name must be finite"),
    (choose("linear", {None: [1.0, 2.0]}), TypeError, "name must be text"),
    (choose("linear", {HUGE: [1.0, 2.0]}), ValueError, "at most 1000 bits"),
    (choose("linear", [[1.0, HUGE]]), ValueError, "below 1e"),
    (choose("linear", pd.DataFrame(ROWS, index=["a", "a"])), ValueError, "'a' occurs twice"),
    (choose("linear", pd.DataFrame({"x": ["a"], "y": [1.0]})), TypeError, "Hasher"),
    (choose("linear", pd.Series([1.0, 2.0])), ValueError, "one row per action"),
    (choose("linear", ROWS, context=[1.0]), ValueError, "got 1 numbers of the context"),
    (choose("linear", context=[1.0, 2.0]), ValueError, "features of the actions"),
    (choose("linear", ROWS, ROWS), TypeError, "positional"),
    # fixed actions and contexts
    (choose("arms", {"tea": [], "milk": []}), ValueError, "'milk'"),
    (choose("arms", {"tea": []}), ValueError, "give `available`"),
    (choose("nameless", NAMED), ValueError, "by position"),
    (choose("arms", np.eye(3)), ValueError, "2 actions, got 3"),
    (choose("context"), ValueError, "context"),
    (choose("context", context=1.0), ValueError, "one row of numbers"),
    (choose("context", context="ann"), ValueError, "one row of numbers"),
    (choose("context", context=ROWS), ValueError, "one row of numbers"),
    (choose("context", context={"user": "ann"}), TypeError, "Hasher"),
    (choose("context", context={1.0, 2.0}), ValueError, "one row of numbers"),
    (choose("context", context=[1.0]), ValueError, "have 2 features, got 1"),
    (choose("context", context=[1.0, NAN]), ValueError, "nan"),
    (choose("context", context=["a", "b"]), TypeError, "numbers"),
    (choose("context", context=[[1.0], [1.0, 2.0]]), ValueError, "one row of numbers"),
    (choose("context", context=MASKED[0]), ValueError, "masked"),
    (choose("context", np.eye(3)), ValueError, "2 actions, got 3"),
    # availability
    (choose("linear", ROWS, available="01"), TypeError, "names of those on offer"),
    (choose("linear", ROWS, available=1), TypeError, "true or false"),
    (choose("linear", ROWS, available=[True]), ValueError, "shape"),
    (choose("linear", ROWS, available=np.array(True)), TypeError, "array(True)"),
    (choose("linear", NAMED, available=np.array("tea")), TypeError, "names of those on offer"),
    (choose("linear", ROWS, available=[1, 0]), TypeError, "true or false"),
    (choose("linear", ROWS, available=[1.0, 0.0]), TypeError, "true or false"),
    (choose("linear", ROWS, available=[False, False]), ValueError, "at least one"),
    (choose("linear", ROWS, available=["tea", "coffee"]), TypeError, "true or false"),
    (choose("linear", ROWS, available={0: True}), ValueError, "says nothing of the action 1"),
    (choose("linear", NAMED, available="tea"), TypeError, "'tea'"),
    (choose("linear", NAMED, available=["milk"]), ValueError, "'milk', which is not on offer"),
    (
        choose("linear", NAMED, available={"tea": True}),
        ValueError,
        "nothing of the action",
    ),
    (choose("linear", NAMED, available={"tea": 1, "coffee": 0}), TypeError, "true or false"),
    (choose("linear", NAMED, available=pd.Series([True, False])), ValueError, "not on offer"),
    (choose("arms", available=["milk"]), ValueError, "'milk'"),
    (choose("arms", available=[]), ValueError, "at least one"),
    # descriptions
    (choose("words", "tea"), TypeError, "list or a mapping"),
    (choose("words", {"tea", "coffee"}), TypeError, "order"),
    (choose("words", np.eye(2)), TypeError, "descriptions"),
    (choose("words", []), ValueError, "one row per action"),
    (choose("words", [{"price": INF}]), ValueError, "finite"),
    (choose("words", [{"price": 1e15}]), ValueError, "below 1e"),
    (choose("words", [{"when": object()}]), TypeError, "action.when must be text"),
    (choose("words", ["tea", "tea"]), ValueError, "occurs twice"),
    (choose("words", [LOOP]), ValueError, "action contains itself"),
    (choose("words", ["tea"], context=LOOP), ValueError, "context contains itself"),
    (choose("words", [{"price": HUGE}]), ValueError, "got a whole number of 16610 bits"),
    (choose("words", [{"kind": HALF}]), ValueError, "UTF-8"),
    (choose("words", [{HALF: "tea"}]), ValueError, "UTF-8"),
    (choose("words", ["tea"], context=object()), TypeError, "context must be text"),
    (choose("words", ["tea"], context={"at": b"x"}), TypeError, "context.at must be text"),
    # several at once
    (("linear", lambda b: b.choose_many()), ValueError, "actions or the contexts"),
    (("linear", lambda b: b.choose_many("ab")), TypeError, "must be a list"),
    (("linear", lambda b: b.choose_many(NAMED)), TypeError, "one entry per decision"),
    (("linear", lambda b: b.choose_many(3)), TypeError, "must be a list"),
    (("linear", lambda b: b.choose_many(np.array(1.0))), TypeError, "must be a list"),
    (("linear", lambda b: b.choose_many([ROWS], available=np.array(True))), TypeError, "a list"),
    (("linear", lambda b: b.choose_many(np.eye(2))), ValueError, "one row per action"),
    (("linear", lambda b: b.choose_many([ROWS, None])), ValueError, "give the features"),
    (("linear", lambda b: b.choose_many([ROWS, np.eye(3)])), ValueError, "got 3"),
    (("words", lambda b: b.choose_many([["tea"]], contexts=[1, 2])), ValueError, "2 contexts"),
    (("context", lambda b: b.choose_many(contexts={(1.0, 2.0)})), TypeError, "must be a list"),
    (("context", lambda b: b.choose_many(contexts=[[1.0, 2.0], None])), ValueError, "context"),
    # outcomes
    (learn("linear", NAN), ValueError, "outcome must be finite"),
    (learn("linear", -INF), ValueError, "outcome must be finite"),
    (learn("linear", 1e15), ValueError, "below 1e"),
    (learn("linear", 10**20), ValueError, "below 1e"),
    (learn("linear", HUGE), ValueError, "finite, got a whole number of 16610 bits"),
    (learn("linear", "1"), TypeError, "number"),
    (learn("linear", None), TypeError, "number"),
    (learn("linear", 1j), TypeError, "number"),
    (learn("linear", object()), TypeError, "number"),
    (learn("linear", {"reward": 1}), TypeError, "number"),
    (learn("linear", [1.0]), ValueError, "shape"),
    (learn("linear", [[1.0]]), ValueError, "shape"),
    (learn("linear", []), ValueError, "shape"),
    (learn("linear", [[1.0], [1.0, 2.0]]), TypeError, "number"),
    (learn("linear", np.ma.masked), ValueError, "masked"),
    (learn("linear", pd.NA), TypeError, "number"),
    (learn("linear", timedelta(1)), TypeError, "number"),
    (learn("vectors", 1.0), ValueError, "shape"),
    (learn("vectors", [1.0, 2.0, 3.0]), ValueError, "shape"),
    (learn("vectors", [1.0, NAN]), ValueError, "finite"),
    (learn("open", [[1.0]]), ValueError, "shape"),
    (learn("open", []), ValueError, "shape"),
    (learn("open", np.ma.array([1.0, 2.0], mask=[True, False])), ValueError, "masked"),
    # ids
    (("linear", lambda b: b.learn(0, 1.0)), TypeError, "id is text"),
    (("linear", lambda b: b.learn(None, 1.0)), TypeError, "id is text"),
    (("linear", lambda b: b.learn("", 1.0)), ValueError, "not the id"),
    (("linear", lambda b: b.learn("tea", 1.0)), ValueError, "not the id"),
    (("linear", lambda b: b.learn(number_of(""), 1.0)), ValueError, "not the id"),
    (("linear", lambda b: b.learn(number_of("00"), 1.0)), ValueError, "not the id"),
    (("linear", lambda b: b.learn(number_of("٣"), 1.0)), ValueError, "not the id"),
    (("linear", lambda b: b.learn(number_of("9" * 30), 1.0)), ValueError, "id"),
    (("linear", lambda b: b.learn(number_of("5"), 1.0)), ValueError, "no decision"),
    (("linear", lambda b: b.learn(DECIDED["arms"].id, 1.0)), ValueError, "belongs to"),
    (("linear", lambda b: b.learn_many(None)), TypeError, "must be a list"),
    (("linear", lambda b: b.learn_many(DECIDED["linear"].id)), TypeError, "must be a list"),
    (("linear", lambda b: b.learn_many({DECIDED["linear"].id: 1.0})), TypeError, "must be a list"),
    (("linear", lambda b: b.learn_many([DECIDED["linear"].id])), TypeError, "pairs"),
    (("linear", lambda b: b.learn_many([(DECIDED["linear"].id,)])), TypeError, "pairs"),
    (("linear", lambda b: b.learn_many(np.array(1.0))), TypeError, "must be a list"),
    # amounts and what they are known by
    (("linear", lambda b: b.add(DECIDED["linear"].id, 1.0, ref=HALF)), ValueError, "UTF-8"),
    (("linear", lambda b: b.add(DECIDED["linear"].id, 1.0, ref="a\0b")), ValueError, "NUL"),
    (("linear", lambda b: b.add(DECIDED["linear"].id, 1.0, ref="")), TypeError, "ref must be text"),
    (("linear", lambda b: b.add(DECIDED["linear"].id, 1.0, ref=7)), TypeError, "ref must be text"),
    (("linear", lambda b: b.add(DECIDED["linear"].id, HUGE)), ValueError, "finite"),
    # shadows
    (("linear", lambda b: b.shadow(HALF, LINEAR)), ValueError, "UTF-8"),
    (("linear", lambda b: b.shadow("", LINEAR)), TypeError, "a shadow's name must be text"),
    # decisions made elsewhere
    (("linear", lambda b: b.learn_from(FOREIGN, features=["a", "a"])), ValueError, "'a' occurs"),
    (("linear", lambda b: b.learn_from(FOREIGN, context=["b", "b"])), ValueError, "'b' occurs"),
    (("linear", lambda b: b.learn_from(TWICE, features=["a"])), ValueError, "which one is meant"),
    (
        ("arms", lambda b: b.learn_from({**FOREIGN, "name": ["tea", HUGE]}, action="name")),
        ValueError,
        "at most 1000 bits",
    ),
    # outcomes that never came
    (("linear", lambda b: b.expire(-1, 0.0)), ValueError, "older_than"),
    (("linear", lambda b: b.expire(NAN, 0.0)), ValueError, "older_than"),
    (("linear", lambda b: b.expire("1h", 0.0)), TypeError, "older_than"),
    (("linear", lambda b: b.expire(True, 0.0)), TypeError, "older_than"),
    (("linear", lambda b: b.expire(HUGE, 0.0)), ValueError, "older_than"),
    (("linear", lambda b: b.expire(None, 0.0)), TypeError, "older_than"),
    (("linear", lambda b: b.expire(timedelta(-1), 0.0)), ValueError, "older_than"),
    (("linear", lambda b: b.expire(1e6, NAN)), ValueError, "finite"),
    (("linear", lambda b: b.expire(1e6, "0")), TypeError, "number"),
    (("linear", lambda b: b.expire(1e6, [1.0, 2.0])), ValueError, "shape"),
    # what is held back, and what else came of decisions
    (choose("linear", ROWS, subject=""), TypeError, "subject"),
    (choose("linear", ROWS, subject="x" * 257), ValueError, "at most 256 characters, got 257"),
    (("linear", lambda b: b.choose_many([ROWS], subjects=["x" * 257])), ValueError, "at most 256"),
    (("linear", lambda b: b.configure(holdback=1)), ValueError, "holdback must be less than 1"),
    (("linear", lambda b: b.configure(holdback=NAN)), ValueError, "holdback must be finite"),
    (("linear", lambda b: b.configure(fallback=1)), TypeError, "fallback must be True or False"),
    (("linear", lambda b: b.configure(guard=["x"])), TypeError, "guard must be like"),
    (("linear", lambda b: b.configure(guard={"x": 0.5})), ValueError, "guard must be like"),
    (("linear", lambda b: b.configure(guard={"x": ("<", 0.5)})), ValueError, "guard must be like"),
    (("linear", lambda b: b.configure(guard={"x": ("<=", INF)})), ValueError, "the bound of 'x'"),
    (("linear", lambda b: b.configure(guard={"": ("<=", 1)})), TypeError, "a metric's name"),
    (("linear", lambda b: b.configure(sticky=timedelta(-1))), ValueError, "sticky"),
    (("linear", lambda b: b.configure(who="")), TypeError, "who"),
    (
        ("arms", lambda b: b.configure(baseline={"action": "beer"})),
        ValueError,
        "none of the actions",
    ),
    (("linear", lambda b: b.observe(number_of("99"), {"x": 1.0})), ValueError, "no decision"),
    (("linear", lambda b: b.observe(DECIDED["linear"].id, {})), TypeError, "numbers by name"),
    (("linear", lambda b: b.observe(DECIDED["linear"].id, 3.0)), TypeError, "numbers by name"),
    (("linear", lambda b: b.observe(DECIDED["linear"].id, {"x": NAN})), ValueError, "'x'"),
    (("linear", lambda b: b.observe(DECIDED["linear"].id, {"x": "1"})), TypeError, "'x'"),
    (("linear", lambda b: b.observe(DECIDED["linear"].id, {3: 1.0})), TypeError, "a metric's name"),
    (
        ("linear", lambda b: b.observe(DECIDED["linear"].id, {"x" * 101: 1.0})),
        ValueError,
        "at most",
    ),
    (("linear", lambda b: b.segments("")), TypeError, "key"),
    # the rest
    (("linear", lambda b: b.backup(3)), TypeError, "path"),
    (("linear", lambda b: b.backup("")), ValueError, "path"),
]


@pytest.mark.parametrize(("call", "error", "word"), CALLS)
def test_a_call_is_refused_and_nothing_is_recorded(call, error, word):
    which, function = call
    bandit = BANDITS[which]
    before = bandit.summary().decisions, bandit.summary().outcomes
    with pytest.raises(error) as raised:
        function(bandit)
    assert word in str(raised.value)
    assert (bandit.summary().decisions, bandit.summary().outcomes) == before


def fixed():
    return es.Bandit(ARMS, actions=["tea", "coffee"])


NATURAL = [
    # what is meant for another argument, or another method
    (lambda: fixed().choose({"user": 1}), ValueError, ["{'user': 1}", "did you mean context="]),
    (lambda: es.Bandit().choose({"user": 1}), ValueError, ["did you mean context="]),
    (lambda: es.Bandit(actions=["a", "b"]).choose({"age": 40}), ValueError, ["context="]),
    (lambda: fixed().choose(["tea", "coffee"]), ValueError, ["available=['tea', 'coffee']"]),
    (lambda: fixed().choose(["tea"]), ValueError, ["available=['tea']"]),
    (lambda: fixed().choose("tea"), ValueError, ["['tea', 'coffee']", "available=['tea']"]),
    (lambda: fixed().choose_many([{"x": 1.0}]), ValueError, ["did you mean context"]),
    (lambda: es.Bandit().choose(), ValueError, ["features", "Bandit(actions=["]),
    (lambda: es.Bandit().choose(context={"x": 1}), ValueError, ["Bandit(actions=["]),
    (lambda: fixed().learn("tea", 1.0), ValueError, ["'tea'", "decision.id"]),
    (lambda: fixed().learn(0, 1.0), TypeError, ["bandit.learn(decision.id, outcome)", "got 0"]),
    (lambda: fixed().learn(1.0, "id"), TypeError, ["decision.id, outcome", "got 1.0"]),
    (lambda: fixed().learn_many({"id": 1.0}), TypeError, ["list", "{'id': 1.0}"]),
    (lambda: fixed().learn_many(("id", 1.0)), TypeError, ["pairs (id, outcome)", "'id'"]),
    (lambda: fixed().promote("rival"), ValueError, ["'rival'", "there are []"]),
    # what is not an agent
    (lambda: es.Bandit(["tea", "coffee"]), TypeError, ["['tea', 'coffee']", "actions=[...]"]),
    (lambda: es.Bandit("shop"), TypeError, ["'shop'", "Bandit.open(folder)"]),
    (lambda: es.Bandit({"tea": LINEAR}), TypeError, ["actions=[...]"]),
    (lambda: es.Bandit(es.EnsembleSampling), TypeError, ["write EnsembleSampling(...)"]),
    (lambda: es.Bandit(es.Greedy), TypeError, ["write Greedy(...)"]),
    (lambda: es.simulate(WORLD, LINEAR, 3, 2), TypeError, ["agent first", "LinearBandit"]),
    (lambda: es.simulate([LINEAR], WORLD, 3, 2), TypeError, ["agent", "one after another"]),
    (
        lambda: es.simulate(fixed(), WORLD, 3, 2),
        TypeError,
        ["expected an agent", "Bandit(in memory"],
    ),
    (
        lambda: es.plan(WORLD, es.Linear(2), 3, tolerance=0.1),
        TypeError,
        ["learner", "LinearBandit"],
    ),
    # names
    (lambda: es.bandit, AttributeError, ["did you mean es.Bandit"]),
    (lambda: es.UCB, AttributeError, ["'UCB'", "es.agents.UCB"]),
    (lambda: es.Dropout, AttributeError, ["es.posteriors.Dropout"]),
    (lambda: es.RandomWalkArms, AttributeError, ["es.worlds.RandomWalkArms"]),
    (lambda: es.nothing, AttributeError, ["ensemble_sampling has no 'nothing'"]),
    (lambda: es.Bandits, AttributeError, ["did you mean es.Bandit?"]),
    (lambda: es.Thompson, AttributeError, ["did you mean es.ThompsonSampling?"]),
    # outcomes
    (lambda: taught(None), TypeError, ["outcome must be a number", "got None"]),
    (lambda: taught("yes"), TypeError, ["outcome must be a number", "got 'yes'"]),
    (lambda: taught({"reward": 1.0}), TypeError, ["an outcome is a number", "'reward'"]),
    (lambda: taught([1.0, 0.0]), ValueError, ["learns a single number", "got (2,)"]),
    (lambda: taught(1.0, 0.0), ValueError, ["has the outcome 1.0", "`correct` replaces"]),
    (lambda: fixed().correct(fixed().choose(), 1.0), ValueError, ["belongs to the ledger"]),
    (lambda: corrected_first(), ValueError, ["no outcome yet", "learn one"]),
    (lambda: closed().choose(), ValueError, ["closed", "open it again"]),
    # offers
    (lambda: fixed().choose(available=[]), ValueError, ["available must leave", "[False, False]"]),
    (lambda: fixed().choose(available=["milk"]), ValueError, ["'milk'", "['tea', 'coffee']"]),
    (lambda: fixed().choose(top=5), ValueError, ["top is 5", "only 2 actions"]),
    (lambda: es.Bandit(LINEAR).choose([1.0, 2.0]), ValueError, ["one row per action", "(2,)"]),
    (lambda: es.Bandit(LINEAR).choose([[1.0] * 3]), ValueError, ["2 features, got 3"]),
    (lambda: es.Bandit(LINEAR).choose([{"a": "x"}]), TypeError, ["hasher=es.Hasher()"]),
    (lambda: es.Bandit(LINEAR).choose([[1.0, NAN]]), ValueError, ["nan in row 0, column 1"]),
    # settings
    (lambda: es.Bandit(actions={"tea", "coffee"}), TypeError, ["a list", "a set has no order"]),
    (lambda: es.Bandit(actions="tea,coffee"), TypeError, ["a list", "'tea,coffee'"]),
    (lambda: es.Bandit(actions=["a", "b"], floor=5), ValueError, ["between 0 and 1, got 5"]),
    (lambda: es.Bandit(actions=["a", "b"], floor="5%"), TypeError, ["floor", "got '5%'"]),
    (lambda: es.EpsilonGreedy(es.Linear(2), 10), ValueError, ["epsilon", "0 and 1, got 10"]),
    (lambda: es.EnsembleSampling(es.Linear(2), 3.5), TypeError, ["whole number, got 3.5"]),
    (lambda: es.ThompsonSampling(es.Linear(2)), TypeError, ["Linear is a learner", "Exact(Lin"]),
    # simulations and evaluations
    (lambda: es.simulate(LINEAR, WORLD, 0, 2), ValueError, ["periods", "at least 1, got 0"]),
    (lambda: es.simulate(LINEAR, WORLD, 3, 1e3), TypeError, ["realizations", "1000.0"]),
    (
        lambda: es.simulate(ARMS, es.GaussianArms(3), 3, 2),
        ValueError,
        ["2 arms", "3 are on offer"],
    ),
    (
        lambda: es.sweep(lambda members: LINEAR, WORLD, {"members": 3}, 3, 2),
        TypeError,
        ["members", "{'members': [3]}"],
    ),
    (lambda: es.sweep(lambda m: LINEAR, WORLD, {"members": [3]}, 3, 2), TypeError, ["needs m"]),
    (
        lambda: es.replay(es.Uniform(), LOG),
        TypeError,
        ["replay take the log first", "got Uniform()"],
    ),
    (
        lambda: es.evaluate([0.5, 0.5], LOG),
        TypeError,
        ["replay take the log first", "got [0.5, 0.5]"],
    ),
    (lambda: es.evaluate(LOG, [0.5, 0.3, 0.2]), ValueError, ["shape (2,)", "got (3,)"]),
    (lambda: es.evaluate(LOG, [0.5, 0.3]), ValueError, ["sum to 1", "[0.5, 0.3]"]),
    (lambda: es.plot(fixed()), TypeError, ["a Result or several", "got Bandit("]),
    (lambda: es.Client("localhost:8000"), ValueError, ["http://", "'localhost:8000'"]),
]
LOG = es.Log([0, 1] * 4, [1.0, 0.0] * 4, propensities=[[0.5, 0.5]] * 8)
WORLD = es.LinearBandit(2, 3)


def taught(*outcomes):
    """A decision that is given these outcomes, one after another."""
    bandit = fixed()
    decision = bandit.choose()
    return [bandit.learn(decision, outcome) for outcome in outcomes]


def corrected_first():
    bandit = fixed()
    return bandit.correct(bandit.choose(), 1.0)


def closed():
    bandit = fixed()
    bandit.close()
    return bandit


def test_there_are_fifty_natural_mistakes():
    assert len(NATURAL) >= 50


@pytest.mark.parametrize(("call", "error", "words"), NATURAL)
def test_a_natural_mistake_is_answered_by_what_was_meant(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert [word for word in words if word not in str(raised.value)] == []


def test_a_decision_is_taken_where_its_id_is():
    bandit = fixed()
    one, two = bandit.choose(), bandit.choose()
    assert bandit.learn(one, 1.0)
    assert bandit.learn_many([(two, 0.0), (one, 1.0)]) == 1
    assert bandit.correct(one, 0.5)
    assert bandit.add(two, 1.0)
    assert bandit.explain(one).id == one.id
    assert bandit.log()["outcome"] == [0.5, 1.0]


def opened(tmp_path, *given, **named):
    return es.Bandit.open(tmp_path / "shop", *given, **named)


BEGINNINGS = [
    # agents
    (lambda _: es.Bandit("linear"), TypeError, "expected an agent"),
    (lambda _: es.Bandit(es.Linear(2)), TypeError, "expected an agent"),
    (lambda _: es.Bandit(es.Uniform), TypeError, "write Uniform(...)"),
    (lambda _: es.Bandit(es.LinearBandit(2, 2)), TypeError, "expected an agent"),
    # settings
    (lambda _: es.Bandit(LINEAR, -1), ValueError, "seed"),
    (lambda _: es.Bandit(LINEAR, 2**32), ValueError, "seed"),
    (lambda _: es.Bandit(LINEAR, HUGE), ValueError, "seed must be less than 4294967296, got a"),
    (lambda _: es.Bandit(LINEAR, 1.0), TypeError, "seed"),
    (lambda _: es.Bandit(LINEAR, True), TypeError, "seed"),
    (lambda _: es.Bandit(LINEAR, 0, False), TypeError, "positional"),
    (lambda _: es.Bandit(LINEAR, normalise=1), TypeError, "normalise must be True or False"),
    (lambda _: es.Bandit(LINEAR, normalise="no"), TypeError, "normalise must be True or False"),
    (lambda _: es.Bandit(LINEAR, hasher=16), TypeError, "hasher must have"),
    (lambda _: es.Bandit(LINEAR, hasher=es.Hasher), TypeError, "write Hasher(...)"),
    (lambda _: es.Bandit(LINEAR, hasher=es.Hasher(8)), ValueError, "8 features, the agent takes 2"),
    # names
    (lambda _: es.Bandit(LINEAR, actions=["a"]), ValueError, "free choice of actions, but 1"),
    (lambda _: es.Bandit(ARMS, actions=["a"]), ValueError, "2 actions, but 1 are named"),
    (lambda _: es.Bandit(ARMS, actions="ab"), TypeError, "must be a list"),
    (lambda _: es.Bandit(ARMS, actions=2), TypeError, "must be a list"),
    (lambda _: es.Bandit(ARMS, actions=np.array("ab")), TypeError, "must be a list"),
    (lambda _: es.Bandit(actions=[HUGE, 1]), ValueError, "at most 1000 bits"),
    (lambda _: es.Bandit().choose([LOOP, {}]), ValueError, "contains itself"),
    (lambda _: es.Bandit().choose(ROWS, context=LOOP), ValueError, "contains itself"),
    (lambda _: es.Bandit(ARMS, actions={"a", "b"}), TypeError, "a set has no order"),
    (lambda _: es.Bandit(ARMS, actions=frozenset("ab")), TypeError, "a set has no order"),
    (lambda _: es.Bandit(ARMS, actions={"a": 1, "b": 2}), TypeError, "must be a list"),
    (lambda _: es.Bandit(ARMS, actions=["a", "a"]), ValueError, "'a' occurs twice"),
    (lambda _: es.Bandit(ARMS, actions=[1, True]), ValueError, "occurs twice"),
    (lambda _: es.Bandit(ARMS, actions=["a", None]), TypeError, "text or a number"),
    (lambda _: es.Bandit(ARMS, actions=[("a",), ("b",)]), TypeError, "text or a number"),
    (lambda _: es.Bandit(ARMS, actions=[0.0, NAN]), ValueError, "finite"),
    (lambda _: es.Bandit(ARMS, actions=[b"a", b"b"]), TypeError, "text or a number"),
    # what is held back
    (lambda tmp: opened(tmp, holdback=1), ValueError, "nothing to compare it with; got 1"),
    (lambda tmp: opened(tmp, holdback=-0.1), ValueError, "holdback must be between 0 and 1"),
    (lambda tmp: opened(tmp, holdback="0.1"), TypeError, "holdback"),
    (lambda tmp: opened(tmp, baseline="best"), ValueError, 'baseline must be "first", "uniform"'),
    (lambda tmp: opened(tmp, baseline={"frozen": "soon"}), ValueError, "baseline must be"),
    (lambda tmp: opened(tmp, baseline={"frozen": True}), ValueError, "baseline must be"),
    (lambda tmp: opened(tmp, baseline={"a": 1, "b": 2}), ValueError, "baseline must be"),
    (lambda tmp: opened(tmp, baseline=7), ValueError, "baseline must be"),
    (lambda tmp: opened(tmp, sticky="1d"), TypeError, "sticky"),
    (lambda tmp: opened(tmp, sticky=-1.0), ValueError, "sticky"),
    # folders
    (lambda _: es.Bandit.open("", LINEAR), ValueError, "path of a folder"),
    (lambda _: es.Bandit.open(None, LINEAR), TypeError, "path of a folder"),
    (lambda _: es.Bandit.open(3, LINEAR), TypeError, "path of a folder"),
    (lambda _: es.Bandit.open(b"shop", LINEAR), TypeError, "path of a folder"),
    (lambda _: es.Bandit.open(LINEAR, "shop"), TypeError, "path of a folder"),
    (lambda _: es.Bandit.migrate(None, LINEAR), TypeError, "path of a folder"),
    (lambda tmp: es.Bandit.migrate(tmp / "no", LINEAR), FileNotFoundError, "no ledger"),
    (lambda tmp: opened(tmp, LINEAR, snapshot_every=0), ValueError, "snapshot_every"),
    (lambda tmp: opened(tmp, LINEAR, snapshot_every=1.5), TypeError, "snapshot_every"),
    (lambda tmp: opened(tmp, LINEAR, snapshot_every=None), TypeError, "snapshot_every"),
    (lambda tmp: opened(tmp, es.Linear(2)), TypeError, "expected an agent"),
    (lambda tmp: opened(tmp, LINEAR, -1), ValueError, "seed"),
    # descriptions
    (lambda _: es.Hasher(0), ValueError, "width"),
    (lambda _: es.Hasher(-1), ValueError, "width"),
    (lambda _: es.Hasher(2.5), TypeError, "width"),
    (lambda _: es.Hasher(True), TypeError, "width"),
    (lambda _: es.Hasher("16"), TypeError, "width"),
    (lambda _: es.Hasher(2**31), ValueError, "width"),
    (lambda _: es.Hasher(16, interactions=1), TypeError, "interactions must be True or False"),
    (lambda _: es.Hasher(16, "no"), TypeError, "interactions must be True or False"),
    (lambda _: es.Hasher(16)("tea"), TypeError, "list of descriptions"),
    (lambda _: es.Hasher(16)({"tea": {}}), TypeError, "list of descriptions"),
    (lambda _: es.Hasher(16)({"tea"}), TypeError, "list of descriptions"),
    (lambda _: es.Hasher(16)(None), TypeError, "list of descriptions"),
    (lambda _: es.Hasher(16)(3), TypeError, "list of descriptions"),
    (lambda _: es.Hasher(16)([{"x": INF}]), ValueError, "action.x must be finite"),
    (lambda _: es.Hasher(16)([{"x": 1j}]), TypeError, "action.x must be text"),
    (lambda _: es.Hasher(16)([np.ones(2)]), TypeError, "action must be text"),
    (lambda _: es.Hasher(16)(["tea"], {"x": object()}), TypeError, "context.x must be text"),
    # decisions are what they are
    (lambda _: es.Decision("id"), TypeError, "index"),
    (lambda _: setattr(DECIDED["arms"], "index", 1), AttributeError, "index"),
]


@pytest.mark.parametrize(("begin", "error", "word"), BEGINNINGS)
def test_what_cannot_be_begun_is_refused_and_leaves_no_trace(begin, error, word, tmp_path):
    with pytest.raises(error) as raised:
        begin(tmp_path)
    assert word in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_what_cannot_be_written_is_refused_when_it_is_given_and_not_when_something_is_read(
    where, tmp_path
):
    bandit = es.Bandit(LINEAR) if where == "memory" else es.Bandit.open(tmp_path, LINEAR)
    with bandit:
        id = bandit.choose(NAMED).id
        for refused in (
            lambda: bandit.add(id, 1.0, ref=HALF),
            lambda: bandit.shadow(HALF, LINEAR),
            lambda: bandit.choose({HUGE: [1.0, 0.0]}),
        ):
            with pytest.raises(ValueError, match=r"UTF-8|bits"):
                refused()
            bandit.choose(NAMED)
        assert bandit.add(id, 1.0, ref="order-ÿ")
        assert bandit.log()["outcome"] == [1.0, None, None, None]


def test_a_row_that_cannot_be_written_is_refused_by_a_ledger_in_memory_too():
    """Whoever forgets to check: nothing of it is left."""
    ledger = Ledger(None)
    with pytest.raises(UnicodeEncodeError):
        ledger.add_shadow(HALF, {})
    assert list(ledger.shadows()) == []
    ledger.add_shadow("fine", {})
    assert [name for _, name, *_ in ledger.shadows()] == ["fine"]


def test_where_nothing_was_decided_nothing_expires():
    assert es.Bandit().expire(0.0, 0.0) == 0
