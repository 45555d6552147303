"""How much sharper paired, coupled runs make comparisons at Figure 1a's setting.

For pairs of agents: the variance of the difference of their total regret over realizations, when
the two run with different seeds, share their worlds, and share outcomes as well (coupled).

    python benchmarks/coupling.py [realizations]
"""

import sys

import numpy as np

import ensemble_sampling as es

ARMS, PERIODS = 50, 700


def main(realizations: int = 2000) -> None:
    learner, env = es.IndependentArms(ARMS), es.GaussianArms(ARMS)
    exact = es.ThompsonSampling(es.Exact(learner))
    ten, thirty = (es.EnsembleSampling(learner, m) for m in (10, 30))
    agents = (exact, ten, thirty, es.EpsilonGreedy(learner, 0.1), es.EpsilonGreedy(learner, 0.12))
    totals = {}
    for agent in agents:
        for how, seed, coupled in (("a", 1, False), ("b", 2, False), ("c", 1, True)):
            run = es.simulate(
                agent, env, PERIODS, realizations, seed=seed, coupled=coupled, keep=True
            )
            assert run.regret is not None
            totals[agent.label, how] = run.regret.sum(axis=1)

    def variance(one: es.Agent, two: es.Agent, hows: str) -> float:
        return float(np.var(totals[one.label, hows[0]] - totals[two.label, hows[1]], ddof=1))

    print(f"{realizations} realizations; variance of the difference of total regret")
    print(f"{'pair':40s} {'independent':>12s} {'same worlds':>12s} {'coupled':>12s}  gain")
    for one, two in ((exact, thirty), (ten, thirty), (exact, ten), agents[3:]):
        apart, worlds, coupled = (variance(one, two, hows) for hows in ("ab", "aa", "cc"))
        pair = f"{one.label} against {two.label}"
        print(f"{pair:40s} {apart:12.0f} {worlds:12.0f} {coupled:12.0f}  {apart / coupled:.1f}x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
