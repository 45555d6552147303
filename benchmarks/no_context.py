"""Without any context: the default agent, told nothing, beside agents that know how outcomes come.

    python benchmarks/no_context.py

Ten actions in worlds of clicks, rare clicks, revenue (nothing for most, log-normal for some),
counts and measurements. Peers are Thompson sampling with the exact posterior of the right
likelihood, once with a prior that says little and once with the one that worlds were drawn from.
Every agent meets the same worlds; printed is the regret of a run, and its ratio to the first peer's
with the standard error of that, world by world. Written to results/benchmarks/no_context.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es
from ensemble_sampling.core import Action, Key, Noise, Round
from ensemble_sampling.decide.default import Default

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "no_context.json"
ARMS = 10
DEFAULT = Default().agent(ARMS, 0, hashed=False)


class _Arms(eqx.Module):
    """Independent arms whose world is whatever `init` draws, of means `means(world)`."""

    def offer(self: Any, key: Key, world: Any) -> Round:
        return Round(jnp.eye(ARMS), self.means(world))


class Revenue(_Arms):
    """Somebody buys with a chance of Beta(2, 60), for exp(N(mu, variance)): about 3 % for 20 to 30.

    The variance is 5 / Gamma(6), and mu N(3, variance / 10).
    """

    def init(self, key: Key) -> tuple[jax.Array, ...]:
        one, two, three = jax.random.split(key, 3)
        chance = jax.random.beta(one, 2.0, 60.0, (ARMS,))
        variance = 5.0 / jax.random.gamma(two, 6.0, (ARMS,))
        return chance, 3 + jnp.sqrt(variance / 10) * jax.random.normal(three, (ARMS,)), variance

    def means(self, world: Any) -> jax.Array:
        chance, mu, variance = world
        return chance * jnp.exp(mu + variance / 2)

    def outcome(self, key: Key, world: Any, action: Action) -> jax.Array:
        chance, mu, variance = (part[action.index] for part in world)
        one, two = jax.random.split(key)
        paid = jnp.exp(mu + jnp.sqrt(variance) * jax.random.normal(two))
        return jnp.where(jax.random.bernoulli(one, chance), paid, 0.0)


class Counted(_Arms):
    """Poisson counts of rate Gamma(2) / 2."""

    def init(self, key: Key) -> jax.Array:
        return jax.random.gamma(key, 2.0, (ARMS,)) / 2

    def means(self, world: Any) -> jax.Array:
        return world

    def outcome(self, key: Key, world: Any, action: Action) -> jax.Array:
        return jax.random.poisson(key, world[action.index]).astype(float)


class Unequal(_Arms):
    """Normal outcomes of means N(0, 1) whose noise is another one for every arm, exp(N(0, 1))."""

    def init(self, key: Key) -> tuple[jax.Array, ...]:
        means, logs = jax.random.normal(key, (2, ARMS))
        return means, jnp.exp(logs)

    def means(self, world: Any) -> jax.Array:
        return world[0]

    def outcome(self, key: Key, world: Any, action: Action) -> jax.Array:
        means, noise = (part[action.index] for part in world)
        return means + noise * jax.random.normal(key)


class _Told(eqx.Module):
    """A learner whose belief is an array for each of its numbers, one entry per arm."""

    arms: int = eqx.field(static=True, default=ARMS)

    def init(self: Any, key: Key, spread: Any = 1.0, noise: Any = None) -> Any:
        return self.center(key)

    def predict(self, shared: Any, member: Any, features: Any) -> Any:
        return member

    def observe(
        self: Any, key: Key, shared: Any, member: Any, action: Action, outcome: Any, noise: Noise
    ) -> Any:
        i = action.index
        new = self.learn([part[i] for part in shared], outcome)
        shared = tuple(part.at[i].set(one) for part, one in zip(shared, new, strict=True))
        return shared, member

    def center(self: Any, key: Key) -> Any:
        return tuple(jnp.full(ARMS, part, float) for part in self.prior), jnp.zeros(ARMS)


class ToldCounts(_Told):
    """Poisson counts: rates of Gamma(counts) / times."""

    prior: tuple[float, float] = (1.0, 1.0)

    def learn(self, belief: Any, outcome: Any) -> Any:
        return belief[0] + outcome, belief[1] + 1

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        return jax.random.gamma(key, shared[0]) / shared[1]


class ToldRevenue(_Told):
    """A hurdle and log-normal amounts: (bought, not, mean, worth, shape, scale) of the chance's
    Beta and the logarithms' normal-inverse-gamma distribution."""

    prior: tuple[float, ...] = (1.0, 1.0, 3.0, 1.0, 2.0, 2.0)

    def learn(self, belief: Any, outcome: Any) -> Any:
        bought, not_bought, mean, worth, shape, scale = belief
        buys = jnp.where(outcome > 0, 1.0, 0.0)
        off = buys * (jnp.log(jnp.where(outcome > 0, outcome, 1.0)) - mean)
        return (
            bought + buys,
            not_bought + 1 - buys,
            mean + off / (worth + 1),
            worth + buys,
            shape + buys / 2,
            scale + off**2 * worth / (worth + 1) / 2,
        )

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        bought, not_bought, mean, worth, shape, scale = shared
        one, two, three = jax.random.split(key, 3)
        variance = scale / jax.random.gamma(two, shape)
        mu = mean + jnp.sqrt(variance / worth) * jax.random.normal(three, (ARMS,))
        return jax.random.beta(one, bought, not_bought) * jnp.exp(mu + variance / 2)


class Case(NamedTuple):
    """A world, how long it is played, and the peers."""

    world: Any
    periods: int
    told: Any
    prior: Any


def clicks(ones: float, zeros: float, periods: int) -> Case:
    """Clicks of rates Beta(ones, zeros)."""
    told = (es.learners.BetaArms(ARMS), es.learners.BetaArms(ARMS, ones, zeros))
    return Case(es.worlds.BernoulliArms(ARMS, ones, zeros), periods, *map(es.Exact, told))


def normal(prior_std: float, periods: int) -> Case:
    """Measurements of noise 1 and means N(0, prior_std^2)."""
    learners = (es.IndependentArms(ARMS, 1.0, 0.0), es.IndependentArms(ARMS, 1.0, 0.0, prior_std))
    return Case(es.GaussianArms(ARMS, 1.0, 0.0, prior_std), periods, *map(es.Exact, learners))


CASES = {
    "clicks, any rate": clicks(1.0, 1.0, 2_000),
    "clicks, about 5 %": clicks(4.0, 76.0, 10_000),
    "clicks, 0.1 to 1 %": clicks(4.0, 720.0, 50_000),
    "revenue": Case(
        Revenue(),
        20_000,
        es.Exact(ToldRevenue()),
        es.Exact(ToldRevenue(prior=(2.0, 60.0, 3.0, 10.0, 6.0, 5.0))),
    ),
    "counts": Case(
        Counted(), 2_000, es.Exact(ToldCounts()), es.Exact(ToldCounts(prior=(2.0, 2.0)))
    ),
    "measurements": normal(1.0, 2_000),
    "measurements, much noise": normal(0.1, 10_000),
    "unequal noise": Case(Unequal(), 2_000, *2 * (es.Exact(es.IndependentArms(ARMS, 1.0, 0.0)),)),
}


def measure(case: Case, realizations: int, seed: int) -> dict[str, list[float]]:
    """Regret of a run, and its ratio to the first peer's; standard errors of both."""
    agents = {"told": case.told, "told, and the prior": case.prior, "default": DEFAULT}
    found, first = {}, None
    for name, agent in agents.items():
        result = es.simulate(agent, case.world, case.periods, realizations, seed=seed, keep=True)
        regret = np.asarray(result.regret, np.float64).sum(axis=1)
        first = regret if first is None else first
        ratio = regret.mean() / first.mean()
        error = (regret - ratio * first).std() / first.mean() / np.sqrt(realizations)
        found[name] = [regret.mean(), regret.std() / np.sqrt(realizations), ratio, error]
    return found


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parse.add_argument("--realizations", type=int, default=400)
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parse.add_argument("--out", type=Path, default=OUT)
    options = parse.parse_args()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"cases": {}}
    for name in options.only:
        found = measure(CASES[name], options.realizations, options.seed)
        kept["cases"][name] = {
            "periods": CASES[name].periods,
            "realizations": options.realizations,
            "agents": {who: [round(value, 4) for value in row] for who, row in found.items()},
        }
        print(f"{name}, {CASES[name].periods} periods", flush=True)
        for who, (regret, error, ratio, off) in found.items():
            print(f"  {who:22}{regret:10.1f} ±{error:.1f}{ratio:8.2f} ±{off:.2f}", flush=True)
        options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
