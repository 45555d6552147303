"""One model per action, over what all actions have in common: their context."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Action, Key, Noise
from .linear import Linear


class PerAction(eqx.Module):
    """`arms` linear models of the same kind; action k is valued by model k on row k.

    Only the chosen action's model learns, in O(d^2), whatever the number of actions. Rows are
    usually copies of one context: `bandit.choose(context=x)`.
    """

    learner: Linear
    arms: int = eqx.field(static=True)
    weights_shared = True

    def __check_init__(self) -> None:
        if not isinstance(self.learner, Linear):
            raise TypeError(f"PerAction takes a Linear learner, got {self.learner!r}")
        checks.size("arms", self.arms)

    @property
    def dim(self) -> int:
        return self.learner.dim

    @property
    def reward(self) -> Any:
        return self.learner.reward

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        shape = self.learner.drift_shape
        return None if shape is None else (self.arms, *shape)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Any, Any]:
        keys = jax.random.split(key, self.arms)
        return jax.vmap(lambda k: self.learner.init(k, spread, noise))(keys)

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.init(key, 0.0)

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        checks.features(features, self.dim, rows=self.arms)
        predict = jax.vmap(self.learner.predict)
        return predict(shared, member, jnp.asarray(features)[:, None])[:, 0]

    def observe(
        self, key: Key, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        checks.index(action.index, self.arms)

        def learn(shared: Any, member: Any) -> tuple[Any, Any]:
            return self.learner.learn(shared, member, action, outcome, noise)

        before = jax.tree.map(lambda leaf: leaf[action.index], (shared, member))
        if checks.known(action.index):
            after = learn(*before)
        else:
            # A branch is computed before any of it is put in place. Without one the compiler joins
            # the two, and copies all models to change one.
            after = jax.lax.cond(action.index >= 0, learn, lambda s, m: (s, m), *before)
        shared, member = jax.tree.map(
            lambda leaf, new: leaf.at[action.index].set(new), (shared, member), after
        )
        if self.learner.forgetting is None:
            return shared, member
        # The truths of all actions drift, not only that of the chosen one.
        return jax.vmap(self.learner.forget)(shared, member, Noise(drift=noise.drift))

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        return jax.vmap(self.learner.draw)(jax.random.split(key, self.arms), shared, member)
