"""Why a decision was made: the field that decides is named first, with its sign."""

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.explain import Explanation, Reason

RNG = np.random.default_rng(0)


def shop(words):
    """Three actions whose price alone decides what they bring."""
    colour = (lambda: str(RNG.choice(["red", "blue"]))) if words else RNG.random
    return {
        name: {"price": float(RNG.uniform(1, 9)), "look": {"colour": colour()}}
        if words
        else {"price": float(RNG.uniform(1, 9)), "colour": float(colour())}
        for name in "abc"
    }


def taught(bandit, offer, worth, context=None, rounds=80):
    """The last of so many decisions, and its explanation."""
    made = said = None
    for _ in range(rounds):
        said, around = offer(), None if context is None else context()
        made = bandit.choose(said, context=around)
        bandit.learn(made.id, worth(said[made.action], around))
    assert made is not None
    assert said is not None
    return made, said, bandit.explain(made.id)


@pytest.mark.parametrize("words", [False, True])
def test_where_price_decides_it_is_named_first(words):
    bandit = es.Bandit()
    about = {"device": "phone" if words else 1.0}
    made, said, found = taught(
        bandit, lambda: shop(words), lambda one, _: -one["price"], lambda: about
    )
    first = found.reasons[0]
    assert (first.side, first.field) == ("action", "price")
    assert found.action == made.action != found.next
    assert first.chosen == said[found.action]["price"]
    assert first.next == said[found.next]["price"]
    values = dict(zip(said, bandit.predict(said, context=about).values.mean, strict=True))  # pyright: ignore
    assert found.difference == pytest.approx(values[found.action] - values[found.next], abs=1e-4)
    assert found.next == max(set(said) - {made.action}, key=lambda name: values[name])
    saved = first.next - first.chosen  # what a linear model counts for the price
    assert first.weight == pytest.approx(saved, abs=0.2 * abs(saved) + 0.1)
    weights = [abs(one.weight) for one in found.reasons]
    assert weights == sorted(weights, reverse=True)
    assert found.context == about
    assert dict(zip(found.actions, found.offer, strict=True)) == said
    assert bandit.explain(made.id, top=1).reasons == found.reasons[:1]
    assert str(found).startswith(f"decision {made.id}: {made.action!r} rather than {found.next!r}")
    assert f"the action price ({first.chosen:.4g} against {first.next:.4g})" in str(found)


def test_a_linear_model_counts_exactly_what_its_weights_say():
    bandit = es.Bandit(es.EnsembleSampling(es.Linear(3), 6), normalise=False)
    made, said, found = taught(bandit, lambda: RNG.normal(size=(4, 3)), lambda one, _: one[1])
    values = np.asarray(bandit.predict(np.eye(4, 3)).values.mean)  # pyright: ignore
    weights = values[:3] - values[3]
    gap = weights * (said[found.action] - said[found.next])
    assert found.difference == pytest.approx(gap.sum(), abs=1e-5)
    assert {one.field: one.weight for one in found.reasons} == pytest.approx(
        {f"x{n}": value for n, value in enumerate(gap)}, abs=1e-5
    )
    assert found.reasons[0].field == "x1"
    np.testing.assert_allclose(found.offer[found.actions.index(made.index)], said[made.index], 1e-6)


def test_what_an_action_is_worth_in_a_context_is_counted_for_the_context():
    """Each of two fixed actions is right for one half of the day, whatever the weather."""
    bandit = es.Bandit(actions=["tea", "coffee"])
    made = bandit.choose(context={"evening": 0.0, "rain": 0.5})
    for n in range(80):
        context = {"evening": float(n % 2), "rain": float(RNG.random())}
        made = bandit.choose(context=context)
        bandit.learn(made.id, float((made.action == "tea") == bool(n % 2)))
    found = bandit.explain(made.id)
    first = found.reasons[0]
    assert (first.side, first.field, first.chosen) == ("context", "evening", 1.0)
    assert first.weight > 0.2
    assert (found.action, found.next) == ("tea", "coffee")
    assert found.offer == (None, None)


def test_rows_in_a_context_of_numbers():
    _, _, found = taught(
        es.Bandit(),
        lambda: RNG.normal(size=(3, 2)),
        lambda one, _: one[0],
        lambda: RNG.normal(size=2),
    )
    assert (found.reasons[0].side, found.reasons[0].field) == ("action", "x0")
    assert {(one.side, one.field) for one in found.reasons} <= {
        (side, field) for side in ("context", "action") for field in ("x0", "x1")
    }
    assert len(found.context) == 2


def test_more_fields_than_a_program_takes_rows():
    offer = lambda: {n: dict.fromkeys(map(str, range(11)), float(RNG.normal())) for n in "ab"}  # noqa: E731
    for bandit in (es.Bandit(), es.Bandit(hasher=es.Hasher(64))):
        _, _, found = taught(bandit, offer, lambda one, _: one["3"], rounds=10)
        assert len(bandit.explain(found.id, top=20).reasons) >= 11


def test_text_that_is_all_that_is_said_is_a_field_without_a_name():
    bandit = es.Bandit(hasher=es.Hasher(64))
    made = bandit.choose({"x": "a warm drink", "y": "a cold drink"})
    bandit.learn(made.id, 1.0)
    (only,) = [one for one in bandit.explain(made.id).reasons if one.field == ""]
    assert str(only).startswith("the action ('a ")
    row = bandit.choose([[1.0, 2.0], [2.0, 1.0]])  # numbers that are hashed, by their places
    assert {one.field for one in bandit.explain(row.id).reasons} <= {"x0", "x1"}


def test_where_nothing_can_be_said_it_says_why(tmp_path):
    offer = {"a": {"price": 1.0}, "b": {"price": 2.0}}
    with es.Bandit.open(tmp_path, offers="chosen") as bandit:
        made = bandit.choose(offer)
        found = bandit.explain(made.id)
        assert found.note == "of what was on offer only the chosen action was kept"
        assert (found.actions, found.offer) == ((made.action,), (offer[made.action],))
        bandit.learn_from(
            {"price": [1.0], "a": ["b"], "y": [0.0]}, features=["price"], action="a", outcome="y"
        )
        assert "made elsewhere" in bandit.explain(bandit.log()["id"][-1]).note
    bandit = es.Bandit()
    made = bandit.choose(offer, available=["a"])
    assert bandit.explain(made.id).note == "nothing else could be chosen"
    bandit = es.Bandit(es.Uniform())
    made = bandit.choose(np.eye(2))
    found = bandit.explain(made.id)
    assert found.note == "the agent values nothing"
    assert str(found) == f"decision {made.id}: the agent values nothing"
    assert len(found.offer) == 2


def test_what_was_erased_or_not_retained_is_gone():
    bandit = es.Bandit()
    offer = {"a": {"price": 1.0}, "b": {"price": 2.0}}
    old, made = (bandit.choose(offer, subject=name) for name in ("ann", "bob"))
    bandit.learn(made.id, 1.0)
    assert bandit.explain(made.id).context is None
    assert bandit.explain(made.id).actions == ("a", "b")
    bandit.erase("bob")
    gone = bandit.explain(made.id)
    assert gone == Explanation(made.id, note="what was said in this decision was erased")
    with pytest.warns(UserWarning, match="no outcome yet"):
        bandit.retain(days=0.0)
    with pytest.raises(ValueError, match="older than what this ledger retains"):
        bandit.explain(old.id)


def test_bad_input():
    bandit = es.Bandit()
    made = bandit.choose(np.eye(2))
    with pytest.raises(ValueError, match="'nothing' is not the id of a decision"):
        bandit.explain("nothing")
    with pytest.raises(ValueError, match="there is no decision"):
        bandit.explain(made.id[:-1] + "7")
    with pytest.raises(TypeError, match="id is text"):
        bandit.explain(0)  # pyright: ignore[reportArgumentType]
    for top in (0, -1, 1.5, "2"):
        with pytest.raises((TypeError, ValueError), match="top"):
            bandit.explain(made.id, top=top)  # pyright: ignore[reportArgumentType]
    assert str(Reason("context", "a", "x" * 99, None, 1.0)).endswith("...): +1")
