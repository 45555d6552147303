"""Several linear models as one learner: a blend of them, or one for every action."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise, Wrapper, fact
from .conjugate import Member
from .linear import Evidence, Linear


class Blend(eqx.Module):
    """The average of several linear models, each weighted by how well it predicted.

    Which is right depends on the data: many features fit any shape, few are learned soon; a wide
    prior explores, a narrow one tells noise from signal. A member is a member of every model, and
    its value the average of theirs, weighted by exp(trust * evidence) (see `OutcomeScale`), and by
    exp(faith) for the first: the others have to earn their weight over many outcomes.

    learners: each takes the first of the features, as many as its `dim`; the first takes them all.
    """

    learners: tuple[Linear, ...]
    trust: float = 0.05
    faith: float = 2.0
    weights_shared = True
    __repr__ = short

    def __check_init__(self) -> None:
        if not isinstance(self.learners, tuple) or not self.learners:
            raise TypeError(
                f"Blend takes Linear learners as in (Linear(5), Linear(2)), got {self.learners!r}"
            )
        for learner in self.learners:
            if not isinstance(learner, Linear):
                raise TypeError(f"Blend takes Linear learners, got {learner!r}")
            for name in ("noise_std", "outcomes", "forgetting"):
                if (given := getattr(learner, name)) is not None:
                    raise ValueError(f"Blend takes Linear learners without {name}, got {given!r}")
            if learner.dim > self.dim:
                raise ValueError(
                    f"the first learner of a Blend takes all features, got one of {self.dim} and "
                    f"one of {learner.dim}"
                )
        checks.positive("trust", self.trust)
        checks.scalar("faith", self.faith, low=0.0)

    @property
    def dim(self) -> int:
        return self.learners[0].dim

    @property
    def axes(self) -> Any:
        """What several blends on the same outcomes have one each of, see `Linear`."""
        return tuple(learner.axes for learner in self.learners)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[tuple[Evidence, ...], tuple[Member, ...]]:
        # One key: models that are alike start alike, and an average of theirs as wide as they are.
        each = [learner.init(key, spread, noise) for learner in self.learners]
        return tuple(shared for shared, _ in each), tuple(member for _, member in each)

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.init(key, 0.0)

    def weights(self, shared: tuple[Evidence, ...]) -> Array:
        """How much every model is trusted."""
        evidence = [known.seen.evidence for known in shared if known.seen is not None]
        faith = self.faith * (jnp.arange(len(evidence)) == 0)
        return jax.nn.softmax(self.trust * jnp.stack(evidence) + faith)

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        checks.features(features, self.dim)
        features = jnp.asarray(features)
        values = [
            learner.predict(known, own, features[:, : learner.dim])
            for learner, known, own in zip(self.learners, shared, member, strict=True)
        ]
        return self.weights(shared) @ jnp.stack(values)

    def observe(
        self, key: Key, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        return self.learn(shared, member, action, outcome, noise)

    def learn(
        self, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        """Condition every model on the outcome."""
        checks.array("the action's features", action.features, (self.dim,))
        each = [
            learner.learn(
                known, own, Action(action.index, action.features[: learner.dim]), outcome, noise
            )
            for learner, known, own in zip(self.learners, shared, member, strict=True)
        ]
        return tuple(known for known, _ in each), tuple(own for _, own in each)

    def draw(self, key: Key, shared: Any, member: Any) -> tuple[Member, ...]:
        parts = zip(self.learners, shared, member, strict=True)
        return tuple(learner.draw(key, known, own) for learner, known, own in parts)


class PerAction(Wrapper):
    """`arms` linear models of the same kind; action k is valued by model k on row k.

    Only the chosen action's model learns, in O(d^2), whatever the number of actions. A scale that
    is learned is learned from the outcomes of all. Rows are usually copies of one context, as in
    `bandit.choose(context=x)`, and a single one stands for all.
    """

    learner: Linear | Blend
    arms: int = eqx.field(static=True)
    separate = True
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

    @property
    def _axes(self) -> tuple[Any, int]:
        """What of (shared, member) every action has one of."""
        return self.learner.axes, 0

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Any, Any]:
        init = jax.vmap(lambda k: self.learner.init(k, spread, noise), out_axes=self._axes)
        return init(jax.random.split(key, self.arms))

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.init(key, 0.0)

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        features = jnp.asarray(features)
        one = features.ndim == 2 and len(features) == 1
        checks.features(features, self.dim, rows=1 if one else self.arms)
        predict = jax.vmap(self.learner.predict, in_axes=(*self._axes, None if one else 0))
        return predict(shared, member, features if one else features[:, None])[:, 0]

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
        forget = jax.vmap(self.learner.forget, in_axes=(*self._axes, 0), out_axes=self._axes)
        return forget(shared, member, Noise(drift=noise.drift))

    def renewed(self, belief: Any, fresh: Any, which: Array) -> Any:
        """With the models of the actions `which` (a mask) from a fresh belief; of what all have in
        common nothing is forgotten."""

        def put(old: Array, new: Array) -> Array:
            return jnp.where(which.reshape(-1, *(1 for _ in old.shape[1:])), new, old)

        def part(axis: int | None, old: Any, new: Any) -> Any:
            return jax.tree.map(put, old, new) if axis == 0 else old

        return jax.tree.map(part, self._axes, belief, fresh, is_leaf=lambda x: x is None)

    def _own(self, change: Any, shared: Any, *new: Any) -> Any:
        """`change` of what each action has one of; what all have in common is the newest's."""

        def part(axis: int | None, old: Any, *new: Any) -> Any:
            return change(old, *new) if axis == 0 else (new or (old,))[0]

        return jax.tree.map(part, self.learner.axes, shared, *new, is_leaf=lambda x: x is None)

    def mean_and_std(self, belief: tuple[Any, Any], features: Array) -> Any:
        if not isinstance(self.learner, Linear) or self.reward is not None:
            return None
        rows = jnp.broadcast_to(jnp.asarray(features), (self.arms, self.dim))
        each = jax.vmap(self.learner.mean_and_std, in_axes=(self._axes, 0))
        mean, std = each(belief, rows[:, None])
        return mean[:, 0], std[:, 0]

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        draw = jax.vmap(self.learner.draw, in_axes=(0, *self._axes))
        return draw(jax.random.split(key, self.arms), shared, member)
