"""Upper confidence bounds."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..core import Key, Learner, Posterior, fact
from ..posteriors.exact import Exact
from .greedy import greedy, shares
from .thompson import PosteriorAgent


class UCB(PosteriorAgent):
    """Act greedily under mean + width * standard deviation of what plausible models think.

    Of a linear model that is LinUCB (Li et al., 2010) with the posterior's own covariance; of an
    ensemble, the mean and the standard deviation over its members. A posterior that has neither
    few models nor a closed form is asked for `draws`, always with the same key: the bounds, and
    with them the choice, are a function of what was learned.

    posterior: or a learner with an exact one, which stands for it.
    width: how many standard deviations an action gets for what is not known of it.
    """

    posterior: Posterior
    width: float
    draws: int = eqx.field(static=True)

    def __init__(self, posterior: Posterior | Learner, width: float = 1.0, draws: int = 100):
        given: Any = posterior
        if not hasattr(given, "sample") and hasattr(given, "observe"):
            given = Exact(given)
        self.posterior = given
        checks.scalar("width", width, low=0.0)
        self.width = width
        self.draws = checks.size("draws", draws)

    @property
    def label(self) -> str:
        inner = "" if isinstance(self.posterior, Exact) else f", {fact(self.posterior, 'label')}"
        return f"UCB {float(self.width):g}{inner}"

    def upper(self, state: Any, features: Array) -> Array:
        """The upper confidence bound of every action (K,)."""
        known = fact(self.posterior, "mean_and_std")(state, features)
        if known is None:
            values = self.values(jax.random.key(0), state, features)
            known = values.mean(axis=0), values.std(axis=0)
        mean, std = known
        return mean + self.width * std

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        return greedy(checks.key(key), self.upper(state, features), available)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return shares(self.upper(state, checks.offer(features)), available)
