"""One unknown mean for every action."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise
from .conjugate import Member, OutcomeScale, Sum, draw_luck, wander


class Evidence(NamedTuple):
    """What all members of independent arms share.

    pulls, mean: how often each arm was pulled, the prior counted in, and its posterior mean
    ones: that mean, had every outcome been 1, which centring outcomes takes away; None where they
        are not centred
    seen: the learned scale of outcomes; None where `noise_std` is given
    """

    pulls: Sum
    mean: Sum
    ones: Array | None
    seen: OutcomeScale | None


class IndependentArms(eqx.Module):
    """One unknown mean per arm, N(prior_mean, prior_std^2), updated by index.

    An arm pulled n times has posterior precision (c + n) / noise_std^2 with
    c = (noise_std / prior_std)^2, so pull n + 1 moves its mean by 1 / (c + n + 1) of the surprise.
    The posterior mean is shared, and a member is kept as its distance to it in units of the noise,
    which moves by the same share of noise - distance: members then round in units of the
    posterior's width, however large the outcomes are.

    noise_std: None learns it from the outcomes of all arms (see `OutcomeScale`), and `prior_std` is
        then in units of the noise. prior_mean: None is zero, and where the noise is learned the
        mean outcome so far.
    forgetting: a factor below 1 says that the truth drifts: with every observation, of whichever
        arm, all arms keep that share of what was known (see `wander`).
    """

    arms: int = eqx.field(static=True)
    noise_std: float | None = None
    prior_mean: float | None = None
    prior_std: float = 1.0
    forgetting: float | None = None
    weights_shared = True
    separate = True
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        prior_std = checks.positive("prior_std", self.prior_std)
        if self.noise_std is not None:
            noise_std = checks.positive("noise_std", self.noise_std)
            checks.positive("noise_std / prior_std", noise_std / prior_std)
        if self.prior_mean is not None:
            checks.bounded("prior_mean", self.prior_mean)
        checks.forgetting(self.forgetting)

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        return None if self.forgetting is None else (self.arms,)

    @property
    def _width(self) -> Any:
        """The prior's standard deviation in units of the noise."""
        return self.prior_std if self.noise_std is None else self.prior_std / self.noise_std

    @property
    def _prior_mean(self) -> Any:
        return 0.0 if self.prior_mean is None else self.prior_mean

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Evidence, Member]:
        # Strongly typed: a weak type would compile a caller's jitted update a second time.
        learned = self.noise_std is None
        shared = Evidence(
            Sum.of(jnp.full(self.arms, self._width**-2.0, float)),
            Sum.of(jnp.full(self.arms, self._prior_mean, float)),
            jnp.zeros(self.arms) if learned and self.prior_mean is None else None,
            OutcomeScale.unknown(()) if learned else None,
        )
        away = jnp.asarray(spread * self._width * jax.random.normal(key, (self.arms,)), float)
        return shared, Member(away, draw_luck(key, (), noise) if learned else None)

    def center(self, key: Key) -> tuple[Evidence, Member]:
        shared, member = self.init(key, 0.0)
        return shared, member._replace(luck=None)

    def _means(self, shared: Evidence, i: Any = slice(None)) -> Array:
        """The arms' means, as best known."""
        mean = shared.mean.value[i] + shared.mean.lost[i]
        if shared.ones is None or shared.seen is None:
            return mean
        return mean + (1 - shared.ones[i]) * shared.seen.center

    def predict(self, shared: Evidence, member: Member, features: Array) -> Array:
        if features.shape[0] != self.arms:
            raise ValueError(
                f"IndependentArms has {self.arms} arms, but {features.shape[0]} are on offer"
            )
        seen = shared.seen
        noise_std: Any = self.noise_std if seen is None else seen.std_at(member.luck)
        return self._means(shared) + noise_std * member.away

    def observe(
        self,
        key: Key,
        shared: Evidence,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[Evidence, Member]:
        if jnp.shape(outcome) != ():
            raise ValueError(f"IndependentArms learns a single number, got {jnp.shape(outcome)}")
        i = action.index
        checks.index(i, self.arms)
        weight = 1.0 if noise.weight is None else noise.weight
        pulls, ones, seen = shared.pulls.add_at(i, weight), shared.ones, shared.seen
        share = weight / pulls.value[i]
        if seen is not None:
            s = 1 + weight / shared.pulls.value[i]
            surprise = outcome - self._means(shared, i)
            seen = seen.add(jnp.asarray(outcome, float), surprise, s, weight)
        surprise = outcome - shared.mean.value[i] - shared.mean.lost[i]
        mean = shared.mean.add_at(i, share * surprise)
        ones = None if ones is None else ones.at[i].add(share * (1 - ones[i]))
        shift, away = 0.0 if noise.shift is None else noise.shift, member.away
        shared = Evidence(pulls, mean, ones, seen)
        member = member._replace(away=away.at[i].add(share * (shift - away[i])))
        return (shared, member) if self.forgetting is None else self._forget(shared, member, noise)

    def renewed(
        self, belief: tuple[Evidence, Member], fresh: tuple[Evidence, Member], which: Array
    ) -> tuple[Evidence, Member]:
        """With the arms `which` (a mask) from a fresh belief; the scale of outcomes stays known."""
        (shared, member), (new, members) = belief, fresh

        def put(old: Array, new: Array) -> Array:
            return jnp.where(which, new, old)

        own = jax.tree.map(put, shared._replace(seen=None), new._replace(seen=None))
        member = member._replace(away=put(member.away, members.away))
        return own._replace(seen=shared.seen), member

    def _forget(self, shared: Evidence, member: Member, noise: Noise) -> tuple[Evidence, Member]:
        """Let the truth drift by one observation."""
        g: Any = self.forgetting
        pulls, mean, ones, seen = shared
        # Variances mix, and pulls are their inverses.
        fade = 1 / (g + (1 - g) * pulls.value * self._width**2)
        shared = Evidence(
            Sum(*(fade * part for part in pulls)),
            mean.add(wander(mean.value, self._prior_mean, g)),
            None if ones is None else ones + wander(ones, 0.0, g),
            None if seen is None else seen.fade(g),
        )
        xi, away = 0.0 if noise.drift is None else self._width * noise.drift, member.away
        return shared, member._replace(away=away + wander(away, 0.0, g, xi))

    def mean_and_std(self, belief: tuple[Evidence, Member], features: Array) -> tuple[Array, Array]:
        shared, member = belief
        noise_std: Any = self.noise_std if shared.seen is None else shared.seen.rms_std
        return self.predict(shared, member, features), noise_std * jax.lax.rsqrt(shared.pulls.value)

    def draw(self, key: Key, shared: Evidence, member: Member) -> Member:
        width = jax.lax.rsqrt(shared.pulls.value)
        luck = None if shared.seen is None else draw_luck(key, ())
        return Member(member.away + width * jax.random.normal(key, (self.arms,)), luck)
