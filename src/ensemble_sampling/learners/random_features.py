"""Random waves of the features, on which a linear model is a smooth model of any shape."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Learner, Noise, Wrapper, fact


class Waves(NamedTuple):
    """`number` random cosines and sines, of `amplitude` in all.

    They turn once in about 2 pi sqrt(d) / frequency where features vary by 1.
    """

    number: int
    frequency: float
    amplitude: float


SMOOTH, FINE = Waves(80, 1.0, 2.0), Waves(80, 3.0, 1.0)


def _directions(rng: np.random.Generator, dim: int, number: int) -> np.ndarray:
    """`number` columns, each N(0, I), and orthogonal to each other as far as there is room.

    That is as good as a quarter more independent ones (Yu and others, 2016).
    """
    blocks = []
    for start in range(0, number, dim):
        wanted = min(dim, number - start)
        basis, signs = np.linalg.qr(rng.standard_normal((dim, wanted)))
        lengths = np.linalg.norm(rng.standard_normal((dim, wanted)), axis=0)
        blocks.append(basis * np.copysign(lengths, np.diag(signs)))
    return np.concatenate(blocks, axis=1)


class RandomFeatures(Wrapper):
    """A learner on (x, waves of x) in place of x (Rahimi and Recht, 2007).

    A linear model on these is close to a Gaussian process around a linear model, and costs as
    much as any linear model of its width. Features should vary by about 1.

    learner: for `width` features; or a function that makes it from the width.
    waves: kinds of waves; `seed` decides their directions, once for all members.
    """

    learner: Learner
    dim: int = eqx.field(static=True)
    waves: tuple[Waves, ...]
    seed: int = eqx.field(static=True)
    directions: Any
    amplitudes: Any
    wraps = "learner"
    __repr__ = short

    def __init__(
        self,
        learner: Learner | Callable[[int], Learner],
        dim: int,
        waves: Sequence[Waves] = (SMOOTH, FINE),
        seed: int = 0,
    ):
        self.dim = checks.size("dim", dim)
        self.waves = tuple(Waves(*kind) for kind in waves)
        self.seed = checks.size("seed", seed, least=0, below=2**128)
        rng = np.random.default_rng(self.seed)
        directions, amplitudes = [np.zeros((dim, 0))], [np.zeros(0)]
        for number, frequency, amplitude in self.waves:
            pairs = checks.size("number", number, least=2) // 2
            frequency = checks.positive("frequency", frequency)
            directions.append(frequency / np.sqrt(dim) * _directions(rng, dim, pairs))
            amplitudes.append(np.full(pairs, checks.positive("amplitude", amplitude) / pairs**0.5))
        self.directions = np.concatenate(directions, axis=1)
        self.amplitudes = np.concatenate(amplitudes)
        made: Any = learner
        if isinstance(made, type) or (callable(made) and not hasattr(made, "observe")):
            made = made(self.width)
        self.learner = cast(Any, made)
        checks.part("learner", self.learner, "init", "predict", "observe")
        have = getattr(self.learner, "dim", None)
        if have != self.width:
            raise ValueError(
                f"{dim} features and these waves make {self.width}, but the learner takes {have}"
            )

    @property
    def width(self) -> int:
        """How many features the learner gets."""
        return self.dim + 2 * len(self.amplitudes)

    def expand(self, features: Array) -> Array:
        """(x, waves of x) of features (..., d)."""
        features = jnp.asarray(features)
        turns = features @ jnp.asarray(self.directions, float)
        waves = [jnp.asarray(self.amplitudes, float) * wave(turns) for wave in (jnp.cos, jnp.sin)]
        return jnp.concatenate([features, *waves], axis=-1)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Any, Any]:
        return self.learner.init(key, spread, noise)

    def center(self, key: Key) -> tuple[Any, Any]:
        return self.learner.center(key)

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        checks.features(features, self.dim)
        return self.learner.predict(shared, member, self.expand(features))

    def observe(
        self, key: Key, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        checks.array("the action's features", action.features, (self.dim,))
        expanded = Action(action.index, self.expand(action.features))
        return self.learner.observe(key, shared, member, expanded, outcome, noise)

    def renewed(self, belief: Any, fresh: Any, which: Array) -> Any:
        learner: Any = self.learner
        return learner.renewed(belief, fresh, which)

    def mean_and_std(self, belief: Any, features: Array) -> Any:
        checks.features(features, self.dim)
        return fact(self.learner, "mean_and_std")(belief, self.expand(features))

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        learner: Any = self.learner
        return learner.draw(key, shared, member)
