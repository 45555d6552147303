"""How far an ensemble is from the posterior it stands for, and what its members think.

`look`, `compare` and `prior_distance` are pure and can be compiled; `trajectory` and `foresight`
simulate; the others work on their results, or on recorded data.
"""

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..agents.greedy import Uniform, shares
from ..agents.thompson import ThompsonSampling
from ..core import Action, Environment, Key, Posterior
from ..learners.network import Member
from ..posteriors.ensemble import Ensemble
from ..posteriors.exact import Exact
from ..simulation import Engine, Event, Progress, simulate
from .predictions import (
    LEVELS,
    Calibration,
    Foresight,
    View,
    calibration,
    foresight,
    look,
    replay,
    view,
)

__all__ = [
    "LEVELS",
    "Calibration",
    "Foresight",
    "Match",
    "Shadowed",
    "Trajectory",
    "View",
    "calibration",
    "compare",
    "distances",
    "foresight",
    "look",
    "prior_distance",
    "replay",
    "trajectory",
    "view",
]


class Match(NamedTuple):
    """An ensemble's action distribution p_hat beside the exact posterior's p.

    `exact` comes from `draws` samples (an action they never name counts as half a sample), and
    the standard errors are what that leaves open. `kl` is KL(p_hat || p), as in the paper's lemma,
    and comes out too large by about K / (2 draws); `tv` is the total variation distance.
    """

    ensemble: Array
    exact: Array
    exact_stderr: Array
    kl: Array
    kl_stderr: Array
    tv: Array
    tv_stderr: Array


def compare(
    ensemble: Posterior,
    belief: Any,
    exact: Exact,
    exact_belief: Any,
    features: Array,
    available: Array | None = None,
    *,
    key: Key | None = None,
    draws: int = 10_000,
) -> Match:
    """How far the actions an ensemble would choose are from those the exact posterior would."""
    votes_key, exact_key = jax.random.split(jax.random.key(0) if key is None else key)
    votes = shares(ensemble.values(votes_key, belief, features, draws), available).mean(axis=0)
    samples = exact.values(exact_key, exact_belief, features, draws)
    return distances(votes, shares(samples, available).sum(axis=0), draws)


def distances(votes: Array, counts: Array, draws: int) -> Match:
    """The same from the votes p_hat (K,) and how often each action was best in `draws` samples."""
    exact = (counts + 0.5) / (draws + 0.5 * len(counts))
    ratio = votes / exact
    kl = jnp.where(votes > 0, votes * jnp.log(ratio), 0.0).sum()
    sides = 0.5 * jnp.sign(votes - exact)

    def error(g: Array) -> Array:
        """The delta method: a function of frequencies with gradient g has variance Var(g) / n."""
        return jnp.sqrt((exact @ g**2 - (exact @ g) ** 2).clip(0.0) / draws)

    spread = jnp.sqrt(exact * (1 - exact) / draws)
    return Match(votes, exact, spread, kl, error(ratio), sides @ (votes - exact), error(sides))


class Shadowed(eqx.Module):
    """Thompson sampling on one posterior, while a shadow learns from the same outcomes.

    Not `adaptive`: actions are drawn uniformly instead, and both only watch.
    """

    posterior: Posterior
    shadow: Exact
    adaptive: bool = eqx.field(static=True, default=True)

    @property
    def _rule(self) -> Any:
        return ThompsonSampling(self.posterior) if self.adaptive else Uniform()

    @property
    def label(self) -> str:
        return ThompsonSampling(self.posterior).label

    def init(self, key: Key) -> Any:
        return self.posterior.init(key), self.shadow.init(key)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        return self._rule.act(key, state[0], features, available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        posteriors = zip((self.posterior, self.shadow), state, strict=True)
        return tuple(p.update(key, belief, action, outcome) for p, belief in posteriors)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return self._rule.probabilities(state[0], features, available, key)


@dataclass(frozen=True)
class _Distance:
    """Measures KL, total variation and the number of actions named, at some of the periods."""

    periods: tuple[int, ...]
    draws: int

    def __call__(self, agent: Shadowed, key: Key, state: Any, event: Event) -> Array:
        def measured() -> Array:
            offer, exact = event.offer, agent.shadow
            beliefs = agent.posterior, state[0], exact, state[1]
            match = compare(*beliefs, offer.features, offer.available, key=key, draws=self.draws)
            named = (match.ensemble > 0).sum()
            return jnp.stack([match.kl, match.tv, named.astype(match.kl.dtype)])

        now = jnp.isin(event.t, jnp.array(self.periods))
        return jax.lax.cond(now, measured, lambda: jnp.zeros(3))


@dataclass(frozen=True)
class Trajectory:
    """Means over realizations at `periods` (0 is before the first outcome), and their errors."""

    label: str
    periods: np.ndarray
    kl: np.ndarray
    kl_stderr: np.ndarray
    tv: np.ndarray
    tv_stderr: np.ndarray
    distinct: np.ndarray
    realizations: int


def trajectory(
    ensemble: Ensemble,
    environment: Environment,
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
    adaptive: bool = True,
    points: int = 30,
    draws: int = 1000,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> Trajectory:
    """KL and total variation to the exact posterior over a run of ensemble sampling.

    The exact posterior learns from the actions the ensemble chose, so the two differ only in how
    they represent the same history. `points` periods are measured, evenly spaced on a log axis.

    adaptive: False draws actions uniformly instead, whatever the members think; they are then
        independent samples of the posterior (the appendix's lemma), which acting on them undoes.
    """
    if not isinstance(ensemble, Ensemble):
        raise TypeError(f"ensemble must be an Ensemble, got {ensemble!r}")
    learner: Any = ensemble.learner
    agent = Shadowed(ensemble, Exact(learner), checks.flag("adaptive", adaptive))
    periods, points = checks.size("periods", periods), checks.size("points", points)
    draws = checks.size("draws", draws)
    at = np.unique(np.geomspace(1, periods, min(points, periods)).round().astype(int)) - 1
    result = simulate(
        agent,
        environment,
        periods,
        realizations,
        seed=seed,
        measure=_Distance(tuple(at.tolist()), draws),
        checkpoint=checkpoint,
        progress=progress,
        engine=engine,
    )
    (kl, tv, distinct), (kl_error, tv_error, _) = result.mean[at].T, result.stderr[at].T
    return Trajectory(result.label, at, kl, kl_error, tv, tv_error, distinct, result.realizations)


def prior_distance(ensemble: Ensemble, belief: Any) -> Array:
    """How far each network has moved from its prior draw (M,).

    The root mean square over its parameters, in units of the prior's: near 0 it has hardly
    learned, near sqrt(2) it has forgotten where it came from.
    """
    members = belief[1]
    if not isinstance(members, Member):
        raise TypeError(
            f"{type(ensemble.learner).__name__} does not keep its members' prior draws; "
            "prior_distance is for networks"
        )

    learner: Any = ensemble.learner

    def one(member: Any) -> Array:
        unit = member.widths
        if unit is None:
            unit = jax.tree.map(lambda _: learner.prior_std, member.start)
        moved = jax.tree.map(lambda w, w0, s: (w - w0) / s, member.living, member.start, unit)
        leaves = [leaf.ravel() for leaf in jax.tree.leaves(moved)]
        return jnp.sqrt(jnp.mean(jnp.concatenate(leaves) ** 2))

    return jax.vmap(one, in_axes=ensemble.members_axis)(members)
