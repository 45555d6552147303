"""One model per action, over what all actions have in common: their context."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise, Wrapper, fact
from .blend import Blend
from .linear import Linear


class PerAction(Wrapper):
    """`arms` linear models of the same kind; action k is valued by model k on row k.

    Only the chosen action's model learns, in O(d^2), whatever the number of actions. A scale that
    is learned is learned from the outcomes of all. Rows are usually copies of one context, as in
    `bandit.choose(context=x)`, and a single one stands for all.
    """

    learner: Linear | Blend
    arms: int = eqx.field(static=True)
    weights_shared = True
    context = True
    wraps = "learner"
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
    ) -> tuple[Any, Any]:
        init = jax.vmap(
            lambda k: self.learner.init(k, spread, noise), out_axes=(self.learner.axes, 0)
        )
        return init(jax.random.split(key, self.arms))

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.init(key, 0.0)

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        features = jnp.asarray(features)
        one = features.ndim == 2 and len(features) == 1
        checks.features(features, self.dim, rows=1 if one else self.arms)
        if one:
            predict = jax.vmap(self.learner.predict, in_axes=(self.learner.axes, 0, None))
            return predict(shared, member, features)[:, 0]
        predict = jax.vmap(self.learner.predict, in_axes=(self.learner.axes, 0, 0))
        return predict(shared, member, features[:, None])[:, 0]

    def observe(
        self, key: Key, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        checks.index(action.index, self.arms)

        def learn(shared: Any, member: Any) -> tuple[Any, Any]:
            return self.learner.learn(shared, member, action, outcome, noise)

        def at(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf[action.index], tree)

        def put(tree: Any, new: Any) -> Any:
            return jax.tree.map(lambda leaf, one: leaf.at[action.index].set(one), tree, new)

        before = self._own(at, shared), at(member)
        if checks.known(action.index):
            after = learn(*before)
        else:
            # A branch is computed before any of it is put in place. Without one the compiler joins
            # the two, and copies all models to change one.
            after = jax.lax.cond(action.index >= 0, learn, lambda s, m: (s, m), *before)
        shared, member = self._own(put, shared, after[0]), put(member, after[1])
        if not isinstance(self.learner, Linear) or self.learner.forgetting is None:
            return shared, member
        # The truths of all actions drift, not only that of the chosen one.
        axes = self.learner.axes
        forget = jax.vmap(self.learner.forget, in_axes=(axes, 0, 0), out_axes=(axes, 0))
        return forget(shared, member, Noise(drift=noise.drift))

    def _own(self, change: Any, shared: Any, *new: Any) -> Any:
        """`change` of what each action has one of; what all have in common is the newest's."""

        def part(axis: int | None, old: Any, *new: Any) -> Any:
            return change(old, *new) if axis == 0 else (new or (old,))[0]

        return jax.tree.map(part, self.learner.axes, shared, *new, is_leaf=lambda x: x is None)

    def mean_and_std(self, belief: tuple[Any, Any], features: Array) -> Any:
        if not isinstance(self.learner, Linear) or self.reward is not None:
            return None
        rows = jnp.broadcast_to(jnp.asarray(features), (self.arms, self.dim))
        each = jax.vmap(self.learner.mean_and_std, in_axes=((self.learner.axes, 0), 0))
        mean, std = each(belief, rows[:, None])
        return mean[:, 0], std[:, 0]

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        draw = jax.vmap(self.learner.draw, in_axes=(0, self.learner.axes, 0))
        return draw(jax.random.split(key, self.arms), shared, member)
