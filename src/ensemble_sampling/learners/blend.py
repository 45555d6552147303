"""Several linear models at once, trusted by how well they predicted."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise
from .linear import Known, Linear
from .scales import Member


class Blend(eqx.Module):
    """The average of several linear models, each weighted by how well it predicted.

    Which is right depends on the data: many features fit any shape, few are learned soon; a wide
    prior explores, a narrow one tells noise from signal. A member is a member of every model, and
    its value the average of theirs, weighted by exp(trust * evidence) (see `Seen`), and by
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
    ) -> tuple[tuple[Known, ...], tuple[Member, ...]]:
        # One key: models that are alike start alike, and an average of theirs as wide as they are.
        each = [learner.init(key, spread, noise) for learner in self.learners]
        return tuple(known for known, _ in each), tuple(member for _, member in each)

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.init(key, 0.0)

    def weights(self, shared: tuple[Known, ...]) -> Array:
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
