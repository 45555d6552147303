"""An ensemble of plausible models: each its own prior draw, each fed its own perturbed data."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import LATER
from ..core import Action, Key, Learner, Model, Noise, broken, fact
from ..primitives import in_one_step
from .exact import LearnerPosterior


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


class Exponential(eqx.Module):
    """Bayesian bootstrap: every observation counts Exp(1) times, which for `BetaArms` is exact."""

    reweights = True

    def draw(self, key: Key, shape: tuple[int, ...], inflation: Array | float) -> Noise:
        return Noise(weight=jax.random.exponential(key, shape[:1]))


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
    def members_axis(self) -> int:
        return -1 if self.members_last else 0

    @property
    def _axes(self) -> tuple[int | None, int]:
        """Of (shared, members); `shared` is stored once, unless members weigh the data differently
        and that changes it."""
        each = self.perturbation.reweights and fact(self.learner, "weights_shared")
        return 0 if each else None, self.members_axis

    def init(self, key: Key) -> Any:
        return jax.vmap(self._drawn, out_axes=self._axes)(*self._starts(key))

    def _starts(self, key: Key) -> tuple[Array, Array]:
        """The key and the spread by which every member is drawn from the prior."""
        keys = jax.random.split(key, self.members)
        if not isinstance(self.perturbation, Symmetric):
            return keys, jnp.full(self.members, self.inflation, float)
        pair, second = jnp.divmod(jnp.arange(self.members), 2)
        return keys[pair], (1.0 - 2.0 * second) * self.inflation

    def _drawn(self, key: Key, spread: Array) -> Any:
        shapes = jax.eval_shape(lambda: self.perturbation.draw(key, (1,), self.inflation))
        return self.learner.init(key, spread, shapes)

    def renewed(self, belief: Any, fresh: Any, which: Array) -> Any:
        """With the models of the actions `which` (a mask) from a fresh belief."""
        learner: Any = self.learner
        axes = self._axes, self._axes, None
        return jax.vmap(learner.renewed, in_axes=axes, out_axes=self._axes)(belief, fresh, which)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.model(belief, jax.random.randint(key, (), 0, self.members))

    def model(self, belief: Any, chosen: Array) -> Model:
        """The model of one member."""

        def pick(part: Any, axis: int | None) -> Any:
            at = (..., chosen) if axis == -1 else chosen
            return part if axis is None else jax.tree.map(lambda leaf: leaf[at], part)

        return eqx.Partial(self.learner.predict, *map(pick, belief, self._axes))

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        word = jax.random.key_data(key).ravel()[0]
        noise = in_one_step(lambda key: self._noise(key, jnp.shape(outcome)), word, key)
        in_axes = (None, *self._axes, None, None, 0)
        observe = jax.vmap(self.learner.observe, in_axes=in_axes, out_axes=self._axes)
        shared, members = belief
        return observe(jax.random.split(key)[1], shared, members, action, outcome, noise)

    def _noise(self, key: Key, shape: tuple[int, ...]) -> Noise:
        """Every member's perturbation of an outcome of that shape, and of a truth that drifts."""
        key = jax.random.split(key)[0]
        noise = self.perturbation.draw(key, (self.members, *shape), self.inflation)
        if (drifting := fact(self.learner, "drift_shape")) is not None:
            normal = Symmetric() if isinstance(self.perturbation, Symmetric) else Gaussian()
            key = jax.random.fold_in(key, 1)
            drift = normal.draw(key, (self.members, *drifting), self.inflation).shift
            noise = noise._replace(drift=drift)
        return noise

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        predict = jax.vmap(self.learner.predict, in_axes=(*self._axes, None))
        shared, members = belief
        return predict(shared, members, features)

    def diverged(self, belief: Any) -> Array:
        """How often members were lost: put back to their prior draw, or no longer finite."""
        shared, members = belief
        diverged = jax.vmap(fact(self.learner, "diverged"), in_axes=self.members_axis)
        return jnp.maximum(diverged(members).sum(), broken(shared))


class Anytime(LearnerPosterior):
    """`Ensemble` of which first + rate log2(1 + t) members are sampled from after t outcomes.

    Of the order of log T members suffice for T periods in linear (Janz et al., 2024), generalised
    linear and neural bandits (Sun et al., 2025, who double the horizon until it is long enough).
    Where T is not known, members can join as time goes on. A late one must have learned all
    earlier outcomes with perturbations of its own, so all `most` members learn from the first
    outcome on: time and memory are those of `Ensemble(learner, most)`, and what grows is how many
    of them are sampled.

    most: how many there can be; first: how many there are before the first outcome.
    """

    learner: Learner
    most: int = eqx.field(static=True, default=64)
    first: int = eqx.field(static=True, default=4)
    rate: float = 4.0
    perturbation: Perturbation = Gaussian()
    inflation: float = 1.0

    def __check_init__(self) -> None:
        checks.size("most", self.most)
        checks.size("first", self.first)
        if self.first > self.most:
            raise ValueError(f"first must be at most {self.most}, `most`, got {self.first}")
        checks.scalar("rate", self.rate, low=0.0)
        _ = self.ensemble  # which checks the rest

    @property
    def ensemble(self) -> Ensemble:
        return Ensemble(self.learner, self.most, self.perturbation, self.inflation)

    @property
    def label(self) -> str:
        return f"{self.first} to {self.most} models"

    def members(self, t: Array) -> Array:
        """How many there are to sample from after t outcomes."""
        count = jnp.asarray(t, jnp.uint32) + 1
        # The whole part by bits: a compiled logarithm of a power of two may fall short of it.
        whole = 31 - jax.lax.clz(count).astype(jnp.int32)
        power = jnp.left_shift(jnp.uint32(1), whole.astype(jnp.uint32))
        part = jnp.log2(count.astype(float) / power.astype(float))
        grown = self.first + self.rate * (whole + part)
        return jnp.minimum(grown, self.most).astype(jnp.int32)

    def init(self, key: Key) -> Any:
        return self.ensemble.init(key), jnp.zeros((), jnp.int32)

    def sample(self, key: Key, belief: Any) -> Model:
        models, t = belief
        return self.ensemble.model(models, jax.random.randint(key, (), 0, self.members(t)))

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        models, t = belief
        return self.ensemble.update(key, models, action, outcome), t + 1

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        """Every member there is as often as the others among `draws`, to one time more or less,
        which `weights` make up for."""
        models, t = belief
        each = self.ensemble.values(key, models, features, draws)
        return each[self._rows(t, draws)]

    def _rows(self, t: Array, draws: int) -> Array:
        """Whose the values are."""
        if draws < self.most:
            raise ValueError(
                f"{self.most} models cannot all be among {draws} draws: give the agent "
                f"draws={self.most} or more, as in ThompsonSampling(posterior, draws=...)"
            )
        return jnp.arange(draws) * self.members(t) // draws

    def weights(self, belief: Any, draws: int) -> Array:
        """How likely each of the values is to be that of the sample: members are equally likely."""
        t = belief[1]
        rows = self._rows(t, draws)
        times = jnp.bincount(rows, length=self.most)
        return 1.0 / (self.members(t) * times[rows])

    def diverged(self, belief: Any) -> Array:
        """How often members were lost, those that have not joined yet included."""
        return self.ensemble.diverged(belief[0])
