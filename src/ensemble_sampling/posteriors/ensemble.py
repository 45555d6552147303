"""An ensemble of plausible models: each its own prior draw, each fed its own perturbed data."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import LATER
from ..core import Action, Key, Learner, Model, Noise, broken, fact
from ..fast.one_step import in_one_step
from .base import LearnerPosterior


class Perturbation(Protocol):
    """How members' data differ. `reweights` says whether `draw` gives weights."""

    reweights: bool

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        """Noise for `shape[0]` members and outcomes of shape `shape[1:]`."""
        ...


class Gaussian(eqx.Module):
    """N(0, noise variance) added to every outcome (the paper's)."""

    reweights = False

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        return Noise(shift=inflation * jax.random.normal(key, shape))


class Rademacher(eqx.Module):
    """A coin flip of plus or minus the noise standard deviation added to every outcome."""

    reweights = False

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        return Noise(shift=inflation * jax.random.rademacher(key, shape, float))


class Poisson(eqx.Module):
    """Online bootstrap: every observation counts Poisson(1) times."""

    reweights = True

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        # Inverse CDF of one uniform; P(more than 12) is 6e-11, below a uniform's resolution.
        chances = jnp.exp(-1.0) / jnp.cumprod(jnp.asarray([1.0, *range(1, 12)], float))
        u = jax.random.uniform(key, (shape[0], 1))
        return Noise(weight=(u > jnp.cumsum(chances)).sum(axis=1).astype(float))


class Bernoulli(eqx.Module):
    """Double-or-nothing bootstrap: every observation counts twice or not at all."""

    reweights = True

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        return Noise(weight=2.0 * jax.random.bernoulli(key, 0.5, shape[:1]))


class Unperturbed(eqx.Module):
    """The same data for every member: only the prior draws differ."""

    reweights = False

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        return Noise()


class Symmetric(eqx.Module):
    """Members in pairs: what is added to one, to prior mean, outcomes and drift, the other loses.

    A linear pair lies opposite each other around the posterior mean, so that one of it is
    optimistic about any action: the ensemble of Janz et al. (2024).
    """

    perturbation: Perturbation = Gaussian()
    reweights = False

    def __check_init__(self) -> None:
        checks.part("perturbation", self.perturbation, "draw", "reweights")
        if self.perturbation.reweights:
            raise ValueError(f"weights have no opposite: got {self.perturbation!r}")

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        one = self.perturbation.draw(key, (-(-shape[0] // 2), *shape[1:]), inflation)
        return jax.tree.map(
            lambda z: jnp.stack([z, -z], axis=1).reshape(-1, *shape[1:])[: shape[0]], one
        )


class Ensemble(LearnerPosterior):
    """M models that stand for the posterior (Section 3): a sample is one of them at random.

    `inflation` scales the perturbations, of the prior and of the outcomes alike, so a linear
    ensemble then stands for the posterior with its covariance times inflation^2.

    members_last: members are kept along the last axis of their arrays, not the first. The same
        numbers; where an outcome moves one entry of every member, as of `IndependentArms`, a GPU
        takes half the time, and a CPU twice as long.
    """

    learner: Learner
    members: int = eqx.field(static=True)
    perturbation: Perturbation = Gaussian()
    inflation: float = 1.0
    members_last: bool = eqx.field(static=True, default=False, metadata=LATER)

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "init", "predict", "observe")
        checks.part("perturbation", self.perturbation, "draw", "reweights")
        checks.size("members", self.members)
        checks.positive("inflation", self.inflation)
        checks.flag("members_last", self.members_last)
        if self.perturbation.reweights and checks.known(self.inflation) and self.inflation != 1.0:
            raise ValueError(
                f"inflation must be 1 with the {type(self.perturbation).__name__} bootstrap, whose "
                f"weights cannot be scaled, got {self.inflation:g}"
            )

    @property
    def label(self) -> str:
        return f"{self.members} model{'s' if self.members > 1 else ''}"

    @property
    def _shared_axis(self) -> int | None:
        """Stored once, unless members weigh the data differently and that changes `shared`."""
        return 0 if self.perturbation.reweights and fact(self.learner, "weights_shared") else None

    @property
    def members_axis(self) -> int:
        return -1 if self.members_last else 0

    def init(self, key: Key) -> Any:
        noise = jax.eval_shape(lambda: self.perturbation.draw(key, (1,), self.inflation))
        axes, keys = (self._shared_axis, self.members_axis), jax.random.split(key, self.members)
        if not isinstance(self.perturbation, Symmetric):
            init = jax.vmap(lambda k: self.learner.init(k, self.inflation, noise), out_axes=axes)
            return init(keys)
        one, sign = jnp.arange(self.members) // 2, 1.0 - 2.0 * (jnp.arange(self.members) % 2)
        init = jax.vmap(lambda k, s: self.learner.init(k, s, noise), out_axes=axes)
        return init(keys[one], sign * self.inflation)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.model(belief, jax.random.randint(key, (), 0, self.members))

    def model(self, belief: Any, chosen: Array) -> Model:
        """The model of one member."""

        def pick(tree: Any, at: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf[at], tree)

        shared, members = belief
        shared = shared if self._shared_axis is None else pick(shared, chosen)
        at = (..., chosen) if self.members_last else chosen
        return eqx.Partial(self.learner.predict, shared, pick(members, at))

    def _noise(self, key: Key, shape: tuple[int, ...]) -> Noise:
        key = jax.random.split(key)[0]
        noise = self.perturbation.draw(key, (self.members, *shape), self.inflation)
        if (drifting := fact(self.learner, "drift_shape")) is not None:
            paired = isinstance(self.perturbation, Symmetric)
            how = Symmetric() if paired else Gaussian()
            drift_key = jax.random.fold_in(key, 1)
            drift = how.draw(drift_key, (self.members, *drifting), self.inflation).shift
            noise = noise._replace(drift=drift)
        return noise

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        word = jax.random.key_data(key).ravel()[0]
        noise = in_one_step(lambda key: self._noise(key, jnp.shape(outcome)), word, key)
        learn_key = jax.random.split(key)[1]
        axes = (self._shared_axis, self.members_axis)
        observe = jax.vmap(
            self.learner.observe, in_axes=(None, *axes, None, None, 0), out_axes=axes
        )
        shared, members = belief
        return observe(learn_key, shared, members, action, outcome, noise)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        predict = jax.vmap(
            self.learner.predict, in_axes=(self._shared_axis, self.members_axis, None)
        )
        shared, members = belief
        return predict(shared, members, features)

    def diverged(self, belief: Any) -> Array:
        """How often members were lost: put back to their prior draw, or no longer finite."""
        shared, members = belief
        diverged = jax.vmap(fact(self.learner, "diverged"), in_axes=self.members_axis)
        return jnp.maximum(diverged(members).sum(), broken(shared))
