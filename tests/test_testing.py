"""`es.testing.check` passes what is whole, and says in a sentence what is broken."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import ensemble_sampling as es


class Arms(eqx.Module):
    """A small world, with a place for every mistake."""

    mistake: str = eqx.field(static=True, default="")

    def init(self, key):
        return jnp.ones(3) if self.mistake == "fixed" else jax.random.normal(key, (3,))

    def offer(self, key, world):
        means = world + 1.0 if self.mistake == "means" else world
        return es.core.Round(jnp.eye(3)[0] if self.mistake == "shape" else jnp.eye(3), means)

    def outcome(self, key, world, action):
        return world[action.index] + jax.random.normal(key)


class Coin(eqx.Module):
    """An agent that keeps a count, with a place for every mistake."""

    mistake: str = eqx.field(static=True, default="")

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def probabilities(self, state, features, available=None, key=None):
        free = jnp.ones(len(features)) if available is None or self.mistake == "mask" else available
        weight = free * jnp.arange(1.0, len(features) + 1)
        return weight if self.mistake == "sum" else weight / weight.sum()

    def act(self, key, state, features, available=None):
        flat = Coin() if self.mistake == "mask" else self
        chances = flat.probabilities(state, features, available)
        chances = chances**2 if self.mistake == "shares" else chances
        return jax.random.categorical(key, jnp.log(chances)).astype(jnp.int32)

    def update(self, key, state, action, outcome):
        return state + 1.0 if self.mistake == "type" else state + 1


class Shared(eqx.Module):
    """A learner whose shared part is drawn by the key."""

    inner: es.Linear

    def init(self, key, spread=1.0, noise=None):
        shared, member = self.inner.init(key, spread, noise)
        return (shared, jax.random.normal(key)), member

    def predict(self, shared, member, features):
        return self.inner.predict(shared[0], member, features)

    def observe(self, *given):
        raise NotImplementedError


WHOLE = [es.Linear(2), es.Exact(es.IndependentArms(4))]


@pytest.mark.parametrize("part", [*WHOLE, Coin(), Arms(), es.GaussianArms(3)], ids=repr)
def test_a_whole_part_passes(part):
    es.testing.check(part)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Arms("fixed"), "init must draw another truth by another key"),
        (Arms("means"), "its mean is"),
        (Arms("shape"), "features"),
        (Coin("sum"), "sum to 1, got"),
        (Coin("mask"), "what is not available must not be chosen"),
        (Coin("shares"), "act chose with shares"),
        (Coin("type"), "must keep shapes and types"),
        (Shared(es.Linear(3)), "must not depend on the key"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_broken_part_is_named_by_what_is_wrong(part, words):
    with pytest.raises(AssertionError, match=words):
        es.testing.check(part)
