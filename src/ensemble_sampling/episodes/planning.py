"""Agents for numbered states, which plan by what they counted: RLSVI and PSRL."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..agents.greedy import greedy
from ..config import short
from ..core import Key
from .tables import backward
from .world import Episode


class Counts(NamedTuple):
    """What was seen in every state and action.

    times, rewards, squares: how often, what it brought in all, and its squares (S, A)
    after, often: the states it led to, and how often to each (S, A, B)
    lost: how many steps led to more states than there are places for
    """

    times: Array
    rewards: Array
    squares: Array
    after: Array
    often: Array
    lost: Array

    @classmethod
    def none(cls, states: int, actions: int, branches: int) -> "Counts":
        table, places = jnp.zeros((states, actions)), (states, actions, branches)
        known = jnp.arange(states) if branches == states else jnp.full(branches, -1)
        after = jnp.broadcast_to(known.astype(jnp.int32), places)
        return cls(table, table, table, after, jnp.zeros(places), jnp.zeros((), jnp.int32))

    def add(self, episode: Episode) -> "Counts":
        """With the steps of an episode. The last one leads nowhere, unless it was cut."""

        def one(counts: "Counts", step: tuple[Array, ...]) -> tuple["Counts", None]:
            state, action, reward, after, taken, goes_on = step
            at = state, action
            times, rewards = counts.times.at[at].add(taken), counts.rewards.at[at].add(reward)
            squares = counts.squares.at[at].add(reward**2)
            same = counts.after[at] == after
            place = jnp.argmax(jnp.where(same.any(), same, counts.often[at] == 0))
            here = (*at, place)
            lost = goes_on & (counts.often[here] > 0) & (counts.after[here] != after)
            known = counts.after.at[here].set(jnp.where(goes_on, after, counts.after[here]))
            often = counts.often.at[here].add(goes_on)
            return Counts(times, rewards, squares, known, often, counts.lost + lost), None

        seen = episode.observations
        steps = seen[:-1], episode.actions, episode.rewards, seen[1:]
        return jax.lax.scan(one, self, (*steps, episode.taken, episode.goes_on))[0]


class TablePolicy(eqx.Module):
    """The best action by values (limit, S, A) at every time."""

    values: Array

    def __call__(self, key: Key, observation: Array, t: Array) -> Array:
        return greedy(key, self.values[t, observation])


class _Planner(eqx.Module):
    """What agents share that keep `Counts`; their fields are a subclass's."""

    states: eqx.AbstractVar[int]
    actions: eqx.AbstractVar[int]
    limit: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        for name in ("states", "actions", "limit"):
            checks.size(name, getattr(self, name))

    def values(self, key: Key, counts: Counts) -> Array:
        """Of every action at every time (limit, S, A), under a plausible truth."""
        raise NotImplementedError

    def init(self, key: Key, episode: Episode) -> Counts:
        if episode.limit != self.limit or episode.observations.shape != (self.limit + 1,):
            raise ValueError(
                f"{type(self).__name__} plans for {self.limit} steps by the number of the state; "
                f"the world shows {episode.observations.shape[1:] or 'a number'} in "
                f"{episode.limit} steps"
            )
        return Counts.none(self.states, self.actions, self._branches)

    @property
    def _branches(self) -> int:
        return self.states

    def policy(self, key: Key, state: Counts) -> TablePolicy:
        return TablePolicy(self.values(key, state))

    def update(self, key: Key, state: Counts, episode: Episode) -> Counts:
        return state.add(episode)

    def diverged(self, state: Counts) -> Array:
        """How many steps found no place among the branches."""
        return state.lost


class RLSVI(_Planner):
    """Randomised least-squares value iteration (Osband et al., 2019), exact for a table.

    From the last step on, the value of a state and action that was tried n times is drawn from
    the posterior of a mean given n targets r + V(s'), each with noise of `noise_std`, and a prior
    N(prior_mean, prior_std^2):

        Q(s, a) = (prior_mean / prior_std^2 + sum of (r + V(s')) / noise_std^2) / p + z / sqrt(p)
        p = 1 / prior_std^2 + n / noise_std^2

    The same outcomes are seen with the same luck at every time, so that z is drawn once for an
    episode: that is an ensemble with a new member for every episode.

    noise_count: learns the noise of every state and action, where some are noisier than others:
        its variance is drawn from a scaled inverse chi-squared posterior, for which the prior
        `noise_std` counts as so many targets. A few: 2 leaves one odd outcome in doubt.
    branches: how many states an action can lead to at most, where that is known: fewer take less
        memory. Steps to others count as `diverged` in results.
    """

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    limit: int = eqx.field(static=True)
    noise_std: float = 0.1
    prior_std: float = 1.0
    prior_mean: float = 0.0
    noise_count: float | None = None
    branches: int | None = eqx.field(static=True, default=None)
    label = "RLSVI"
    __repr__ = short

    def __check_init__(self) -> None:
        checks.positive("noise_std", self.noise_std)
        checks.positive("prior_std", self.prior_std)
        checks.bounded("prior_mean", self.prior_mean)
        if self.noise_count is not None:
            checks.positive("noise_count", self.noise_count)
        if self.branches is not None:
            checks.size("branches", self.branches)

    @property
    def _branches(self) -> int:
        return self.states if self.branches is None else min(self.branches, self.states)

    def values(self, key: Key, counts: Counts) -> Array:
        luck_key, noise_key = jax.random.split(key)
        prior, n = self.prior_std**-2, counts.times
        luck = jax.random.normal(luck_key, n.shape)
        mean = counts.rewards / jnp.maximum(n, 1)
        share = counts.often / jnp.maximum(n, 1)[..., None]
        variance = self._variance(noise_key, counts, mean)

        def back(value: Array, _: None) -> tuple[Array, Array]:
            after = value[counts.after]
            ahead = (share * after).sum(axis=-1)
            data = n / variance((counts.often * (after - ahead[..., None]) ** 2).sum(axis=-1))
            precision = prior + data
            q = (prior * self.prior_mean + data * (mean + ahead)) / precision
            q += luck / jnp.sqrt(precision)
            return q.max(axis=-1), q

        nothing = jnp.zeros(self.states)
        return jax.lax.scan(back, nothing, None, self.limit)[1][::-1]

    def _variance(self, key: Key, counts: Counts, mean: Array) -> Callable[[Array], Array | float]:
        """Of the noise, given the sum of squares (S, A) that the next states' values add."""
        if self.noise_count is None:
            return lambda squares: self.noise_std**2
        own = jnp.maximum(counts.squares - counts.times * mean**2, 0.0)
        guess = self.noise_count * self.noise_std**2
        degrees = self.noise_count + jnp.maximum(counts.times - 1, 0)
        chi_squared = 2 * jax.random.gamma(key, degrees / 2)
        return lambda squares: (guess + own + squares) / chi_squared


class PSRL(_Planner):
    """Posterior sampling (Strens, 2000; Osband et al., 2013): the best policy of a plausible world.

    Chances of the next state have a Dirichlet prior that counts as `prior_count` steps to every
    state, mean rewards the prior N(prior_mean, prior_std^2) with noise of `noise_std`.
    """

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    limit: int = eqx.field(static=True)
    noise_std: float = 1.0
    prior_std: float = 1.0
    prior_mean: float = 0.0
    prior_count: float = 1.0
    label = "PSRL"
    __repr__ = short

    def __check_init__(self) -> None:
        for name in ("noise_std", "prior_std", "prior_count"):
            checks.positive(name, getattr(self, name))
        checks.bounded("prior_mean", self.prior_mean)

    def values(self, key: Key, counts: Counts) -> Array:
        reward_key, chance_key = jax.random.split(key)
        prior, data = self.prior_std**-2, self.noise_std**-2
        precision = prior + data * counts.times
        rewards = (prior * self.prior_mean + data * counts.rewards) / precision
        rewards += jax.random.normal(reward_key, rewards.shape) / jnp.sqrt(precision)
        # In logarithms: a gamma variable of a small shape is often below the least float.
        drawn = jax.random.loggamma(chance_key, self.prior_count + counts.often)
        chances = jax.nn.softmax(drawn, axis=-1)
        # A step that ended the episode led to no state.
        led = counts.often.sum(axis=-1)
        on = jnp.where(counts.times > 0, led / jnp.maximum(counts.times, 1), 1.0)
        return backward(rewards, on[..., None] * chances, self.limit)[::-1]
