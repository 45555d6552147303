"""A gold standard for small problems: the posterior by Hamiltonian Monte Carlo, and how far from it
others are."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Key
from ..extras import need
from ..learners.histories import History
from ..learners.modules import vector
from ..learners.network import Member, Network


class Gold(NamedTuple):
    """Draws (S, p) of all weights from the posterior given all outcomes at once.

    acceptance: the sampler's mean acceptance, which should be near 0.8
    divergent: how many draws its integrator lost; more than a few in a thousand is suspicious
    """

    learner: Network
    shared: History
    member: Member
    weights: Array
    acceptance: float
    divergent: int

    def values(self, features: Array) -> Array:
        """What each draw thinks the actions are worth (S, K)."""
        whole = vector(self.member.model)[1]

        def one(weights: Array) -> Array:
            member = self.member._replace(model=whole(weights))
            return self.learner.predict(self.shared, member, features)

        return jax.lax.map(one, self.weights, batch_size=256)


def gold_standard(
    learner: Network,
    features: Any,
    outcomes: Any,
    *,
    key: Key | None = None,
    draws: int = 2000,
    warmup: int = 1000,
) -> Gold:
    """The posterior of a small network by NUTS (Hoffman and Gelman, 2014), through BlackJAX.

    The density is exp(-(sum of the learner's loss + |theta / prior_std|^2) / 2), which members of
    an ensemble, chains and all the others approximate. Two modes that are far apart it will not
    both find: compare with it models that have one, linear or logistic, or nearly so.

    learner: a `Network` with a `noise_std`; its steps, batches and history are not used.
    features, outcomes: all that was seen, (n, d) and (n, ...).
    """
    if not isinstance(learner, Network):
        raise TypeError(f"the gold standard is for a Network, got {learner!r}")
    if learner.noise_std is None or learner.arms is not None:
        raise ValueError("the gold standard needs a Network with noise_std and without arms")
    features = jnp.asarray(checks.array("features", features, (None, learner.dim)), float)
    shape = () if learner.outcomes is None else (learner.outcomes,)
    outcomes = jnp.asarray(checks.array("outcomes", outcomes, (len(features), *shape)), float)
    checks.size("draws", draws)
    checks.size("warmup", warmup, least=100)
    key = jax.random.key(0) if key is None else checks.key(key)
    shared, member = dataclasses.replace(learner, capacity=1).center(jax.random.fold_in(key, 1))
    start, whole = vector(member.model)
    width, noise_std = vector(learner.prior_widths(member))[0], learner.noise_std

    def log_density(weights: Array) -> Array:
        outputs = learner.outputs(shared, member, whole(weights), features)
        misfit = jax.vmap(lambda o, y: learner.loss(o, y, noise_std))(outputs, outcomes)
        return -(misfit.sum() + jnp.sum((weights / width) ** 2)) / 2

    weights, accepted, lost = _nuts(log_density, start, key, draws, warmup)
    return Gold(learner, shared, member, weights, float(accepted.mean()), int(lost.sum()))


def _nuts(log_density: Any, start: Array, key: Key, draws: int, warmup: int) -> Any:
    """(draws (S, p), acceptance, whether the integrator was lost) after `warmup` steps."""
    blackjax = need("blackjax", "the gold standard")

    @jax.jit
    def run(key: Key) -> Any:
        warm_key, draw_key = jax.random.split(key)
        adapt = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, settings), _ = adapt.run(warm_key, start, warmup)  # pyright: ignore[reportCallIssue]
        step: Any = blackjax.nuts(log_density, **settings).step

        def one(state: Any, key: Key) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.acceptance_rate, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(draw_key, draws))[1]

    return run(key)


class Distance(NamedTuple):
    """How far values (S, K) of plausible models are from the gold standard's.

    mean: between the means of an action's value, in the gold standard's standard deviations, root
        mean square over actions
    spread: standard deviations over the gold standard's, geometric mean over actions: below 1, too
        sure of itself
    covariance: |C - G| / |G| of the actions' covariances, in the Frobenius norm
    """

    mean: float
    spread: float
    covariance: float


def distance(values: Any, gold: Any) -> Distance:
    """How far one posterior's values (S, K) are from the gold standard's, of the same actions."""
    values, gold = (jnp.asarray(checks.array("values", v, (None, None))) for v in (values, gold))
    if values.shape[1] != gold.shape[1] or min(len(values), len(gold)) < 2:
        raise ValueError(
            "both need two models at least and the same actions, got values of shape "
            f"{values.shape} and {gold.shape}"
        )
    std, true = values.std(axis=0, ddof=1), gold.std(axis=0, ddof=1)
    gap = (values.mean(axis=0) - gold.mean(axis=0)) / true
    own, other = (jnp.atleast_2d(jnp.cov(v, rowvar=False)) for v in (values, gold))
    return Distance(
        float(jnp.sqrt(jnp.mean(gap**2))),
        float(jnp.exp(jnp.mean(jnp.log(std / true)))),
        float(jnp.linalg.norm(own - other) / jnp.linalg.norm(other)),
    )
