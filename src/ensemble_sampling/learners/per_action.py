"""One model per action, over what all actions have in common: their context."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise, fact, taken
from .blend import Blend
from .linear import Known, Linear


class PerAction(eqx.Module):
    """`arms` linear models of the same kind; action k is valued by model k on row k.

    Only the chosen action's model learns, in O(d^2), whatever the number of actions. A scale that
    is learned is learned from the outcomes of all. Rows are usually copies of one context:
    `bandit.choose(context=x)`.
    """

    learner: Linear | Blend
    arms: int = eqx.field(static=True)
    weights_shared = True
    dim = taken("learner", "dim")
    reward = taken("learner", "reward")
    __repr__ = short

    def __check_init__(self) -> None:
        if not isinstance(self.learner, Linear | Blend):
            raise TypeError(f"PerAction takes a Linear learner or a Blend, got {self.learner!r}")
        checks.size("arms", self.arms)

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        shape = fact(self.learner, "drift_shape")
        return None if shape is None else (self.arms, *shape)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Known, Any]:
        init = jax.vmap(
            lambda k: self.learner.init(k, spread, noise), out_axes=(self.learner.axes, 0)
        )
        return init(jax.random.split(key, self.arms))

    def center(self, key: Key) -> tuple[Known, Any]:
        return self.init(key, 0.0)

    def predict(self, shared: Known, member: Any, features: Array) -> Array:
        checks.features(features, self.dim, rows=self.arms)
        predict = jax.vmap(self.learner.predict, in_axes=(self.learner.axes, 0, 0))
        return predict(shared, member, jnp.asarray(features)[:, None])[:, 0]

    def observe(
        self, key: Key, shared: Known, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Known, Any]:
        checks.index(action.index, self.arms)

        def learn(shared: Known, member: Any) -> tuple[Known, Any]:
            return self.learner.learn(shared, member, action, outcome, noise)

        def at(leaf: Array) -> Array:
            return leaf[action.index]

        def put(leaf: Array, new: Array) -> Array:
            return leaf.at[action.index].set(new)

        models = shared._replace(seen=None)  # what the scale is learned from is not one each
        before = jax.tree.map(at, models)._replace(seen=shared.seen), jax.tree.map(at, member)
        if checks.known(action.index):
            after = learn(*before)
        else:
            # A branch is computed before any of it is put in place. Without one the compiler joins
            # the two, and copies all models to change one.
            after = jax.lax.cond(action.index >= 0, learn, lambda s, m: (s, m), *before)
        known = jax.tree.map(put, models, after[0]._replace(seen=None))
        shared, member = known._replace(seen=after[0].seen), jax.tree.map(put, member, after[1])
        if not isinstance(self.learner, Linear) or self.learner.forgetting is None:
            return shared, member
        # The truths of all actions drift, not only that of the chosen one.
        axes = self.learner.axes
        forget = jax.vmap(self.learner.forget, in_axes=(axes, 0, 0), out_axes=(axes, 0))
        return forget(shared, member, Noise(drift=noise.drift))

    def draw(self, key: Key, shared: Known, member: Any) -> Any:
        draw = jax.vmap(self.learner.draw, in_axes=(0, self.learner.axes, 0))
        return draw(jax.random.split(key, self.arms), shared, member)
