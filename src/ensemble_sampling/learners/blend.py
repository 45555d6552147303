"""Several widths of the prior at once, trusted by how well they predicted."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise, taken
from .linear import Known, Linear
from .sums import Sum


class Blend(eqx.Module):
    """A linear model whose prior's width is learned: as given, or times one of `shrink`.

    A wide prior learns fast and explores, a narrow one tells noise from signal; which is right
    depends on the data. A member's mean is the average of all widths' means, weighted by
    exp(trust * evidence) (see `Seen`), and by exp(faith) for the width given: the others have to
    earn their weight over many outcomes. Its distance to that mean is of the width given.

    `shared` holds the `Known` of every width along a first axis, the one given first.
    """

    learner: Linear
    shrink: tuple[float, ...] = (0.3,)
    trust: float = 0.05
    faith: float = 3.0
    weights_shared = True
    axes = Linear.axes
    dim = taken("learner", "dim")
    __repr__ = short

    def __check_init__(self) -> None:
        if not isinstance(self.learner, Linear):
            raise TypeError(f"Blend takes a Linear learner, got {self.learner!r}")
        for name in ("noise_std", "outcomes", "forgetting"):
            if (given := getattr(self.learner, name)) is not None:
                raise ValueError(f"Blend takes a Linear learner without {name}, got {given!r}")
        if not isinstance(self.shrink, tuple):
            raise TypeError(f"shrink must be a tuple of factors as in (0.3,), got {self.shrink!r}")
        for width in self.shrink:
            checks.positive("shrink", width)
        checks.positive("trust", self.trust)
        checks.scalar("faith", self.faith, low=0.0)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Known, Sum]:
        known, member = self.learner.init(key, spread, noise)
        widths = jnp.asarray([1.0, *self.shrink], float)
        each = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(widths)), known)
        root = jnp.multiply.outer(widths, known.root.value)
        root = root.at[:, 0, 0].set(1.0) if self.learner.centred else root  # the constant
        return each._replace(root=Sum.of(root)), member

    def center(self, key: Key) -> tuple[Known, Sum]:
        return self.init(key, 0.0)

    def weights(self, shared: Known) -> Array:
        """How much every width is trusted."""
        assert shared.seen is not None
        faith = self.faith * (jnp.arange(1 + len(self.shrink)) == 0)
        return jax.nn.softmax(self.trust * shared.seen.evidence + faith)

    def predict(self, shared: Known, member: Sum, features: Array) -> Array:
        checks.features(features, self.dim)
        means = jax.vmap(self.learner.mean, in_axes=(0, None))(shared, features)
        first: Any = jax.tree.map(lambda leaf: leaf[0], shared)
        return self.weights(shared) @ means + self.learner.distance(first, member, features)

    def observe(
        self, key: Key, shared: Known, member: Sum, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Known, Sum]:
        return self.learn(shared, member, action, outcome, noise)

    def learn(
        self, shared: Known, member: Sum, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Known, Sum]:
        """Condition every width on the outcome."""
        learn = jax.vmap(self.learner.learn, in_axes=(0, None, None, None, None))
        shared, members = learn(shared, member, action, outcome, noise)
        return shared, jax.tree.map(lambda leaf: leaf[0], members)

    def draw(self, key: Key, shared: Known, member: Sum) -> Sum:
        return self.learner.draw(key, jax.tree.map(lambda leaf: leaf[0], shared), member)
