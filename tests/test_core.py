"""Parts say what they know of themselves, and where they do not, a declared default holds."""

# Plain numbers and arrays of NumPy's are taken as well:
# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import Facts, Wrapper, broken, fact, some_key
from ensemble_sampling.fast.one_step import in_one_step


class Arms:
    """A learner as a user would write it: four methods, none of our classes."""

    def init(self, key, spread=1.0, noise=None):
        return jnp.zeros(()), spread * jax.random.normal(key, (3,))

    def center(self, key):
        return self.init(key, 0.0)

    def predict(self, shared, member, features):
        return features @ member

    def observe(self, key, shared, member, action, outcome, noise):
        return shared + 1, member.at[action.index].set(outcome)


def test_a_part_that_says_nothing_is_taken_at_the_defaults():
    said = {name: fact(Arms(), name) for name in ("arms", "dim", "reward", "drift_shape")}
    assert said == dict.fromkeys(said)
    assert fact(Arms(), "host") is False
    assert fact(Arms(), "weights_shared") is False
    assert fact(Arms(), "label") == "Arms"
    assert fact(Arms(), "check_outcome")("anything") is None


def test_a_parts_own_word_counts_whether_attribute_property_method_or_its_object_s():
    class Telling(Arms):
        arms = 3

        @property
        def dim(self):
            return 4

        def diverged(self, member):
            return 7

    part = Telling()
    part.label = "mine"  # pyright: ignore[reportAttributeAccessIssue]
    assert [fact(part, name) for name in ("arms", "dim", "label")] == [3, 4, "mine"]
    assert fact(part, "diverged")(None) == 7


def test_a_fact_that_fails_is_not_taken_for_one_that_is_missing():
    class Failing:
        @property
        def arms(self):
            return self.nowhere  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises(AttributeError, match="nowhere"):
        fact(Failing(), "arms")


def test_only_declared_facts_can_be_asked_for():
    for name in ("amrs", "__doc__", "__dict__", ""):
        with pytest.raises(ValueError, match=r"there is no fact .*; there are arms, dim"):
            fact(Arms(), name)


def test_the_defaults_are_declared_once_and_may_be_inherited():
    class Part(Facts):
        pass

    assert Part().label == fact(Part(), "label") == "Part"
    assert Part().arms is None


class Whole:
    wraps = "part"

    def __init__(self, part):
        self.part = part


class Held(Wrapper):
    part: es.core.Learner
    wraps = "part"

    @property
    def columns(self):
        return self.nowhere


def test_facts_are_taken_over_from_the_part_that_is_wrapped():
    assert [fact(Whole(es.IndependentArms(5)), name) for name in ("arms", "dim")] == [5, None]
    assert fact(Whole(Whole(es.Linear(6))), "dim") == 6
    assert fact(Whole(Whole(Arms())), "label") == "Arms"
    assert Held(es.Linear(6)).dim == fact(Held(es.Linear(6)), "dim") == 6


def test_facts_about_a_state_are_not_those_of_a_wrapped_part():
    belief = es.Linear(6).center(jax.random.key(0))
    assert fact(es.Linear(6), "mean_and_std")(belief, jnp.ones((2, 6))) is not None
    assert fact(Held(es.Linear(6)), "mean_and_std")(belief, jnp.ones((2, 6))) is None


def test_an_attribute_that_a_wrapper_lacks_or_that_fails_is_named():
    for name, reason in (("nothing", "nothing"), ("columns", "nowhere"), ("values", "values")):
        with pytest.raises(AttributeError, match=f"'Held' object has no attribute '{reason}'"):
            getattr(Held(es.Linear(6)), name)


def test_a_users_learner_makes_an_agent_that_simulates():
    agent = es.EnsembleSampling(Arms(), 3)
    assert (agent.arms, agent.dim, agent.label) == (None, None, "3 models")
    state = agent.init(jax.random.key(0))
    state = agent.update(jax.random.key(1), state, es.core.Action(jnp.int32(1), jnp.eye(3)[1]), 2.0)
    assert np.asarray(state[1])[:, 1].tolist() == [2.0] * 3
    assert int(agent.diverged(state)) == 0
    state = (state[0], state[1].at[1, 2].set(jnp.nan))
    assert int(agent.diverged(state)) == 1


@pytest.mark.parametrize(
    ("state", "lost"),
    [
        ((), 0),
        ({"n": 3, "name": "x", "none": None}, 0),
        (jnp.arange(3), 0),
        (jax.random.key(0), 0),
        ((jnp.ones(2), jnp.zeros((0, 3))), 0),
        ((jnp.ones(2), jnp.asarray([1.0, jnp.nan])), 1),
        ([jnp.asarray(-jnp.inf)], 1),
        (jnp.asarray([1j * jnp.inf]), 1),
    ],
)
def test_a_state_is_broken_where_a_number_is_not_finite(state, lost):
    assert int(broken(state)) == lost
    if all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state)):
        assert int(jax.jit(broken)(state)) == lost


@pytest.mark.parametrize("word", [jnp.float32(0.5), jnp.uint32(7)], ids=["float", "bits"])
@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_done_in_one_step_is_a_branch_of_the_compiled_program(word, mapped):
    run = lambda word, x: in_one_step(lambda x: jnp.sin(x @ x) + x, word, x)  # noqa: E731
    step = jax.vmap(run, in_axes=(None, 0)) if mapped else run
    x = jnp.ones((2, 3, 3) if mapped else (3, 3))
    compiled = jax.jit(step).lower(word, x).compile()
    assert " conditional(" in (compiled.as_text() or "")
    np.testing.assert_allclose(compiled(word, x), np.sin(3.0) + 1, rtol=1e-6)


def test_some_key_is_like_any_other_and_computed_by_none():
    key, real = some_key(), jax.random.key(0)
    assert isinstance(key, jax.ShapeDtypeStruct)
    assert (key.shape, key.dtype) == (real.shape, real.dtype)
