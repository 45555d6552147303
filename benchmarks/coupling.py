"""How much sharper paired, coupled runs make comparisons at Figure 1a's setting.

For pairs of agents: the variance of the difference of their total regret over realizations, when
the two run with different seeds, share worlds and streams, and have coupled outcomes as well.

    python benchmarks/coupling.py [realizations [periods]]
"""

import sys

import numpy as np

import ensemble_sampling as es

ARMS = 50


def totals(
    agent: es.core.Agent, noise_std: float, realizations: int, periods: int
) -> list[np.ndarray]:
    """Total regret of every realization: with a seed, with another seed, coupled."""
    env, found = es.GaussianArms(ARMS, noise_std), []
    for seed, coupled in ((1, False), (2, False), (1, True)):
        run = es.simulate(agent, env, periods, realizations, seed=seed, coupled=coupled, keep=True)
        assert run.regret is not None
        found.append(run.regret.sum(axis=1, dtype=np.float64))
    return found


def main(realizations: int = 2000, periods: int = 700) -> None:
    print(f"{ARMS} arms, {periods} periods, {realizations} realizations")
    print("variance of the difference of total regret; gain over independent / same worlds")
    for noise_std in (1.0, 4.0):
        learner = es.IndependentArms(ARMS, noise_std)
        agents = {
            "Thompson sampling": es.ThompsonSampling(es.Exact(learner)),
            "10 models": es.EnsembleSampling(learner, 10),
            "10 models, inflation 1.2": es.EnsembleSampling(learner, 10, inflation=1.2),
            "30 models": es.EnsembleSampling(learner, 30),
            "epsilon 0.10": es.EpsilonGreedy(learner, 0.10),
            "epsilon 0.12": es.EpsilonGreedy(learner, 0.12),
        }
        found = {n: totals(a, noise_std, realizations, periods) for n, a in agents.items()}
        for one, two in (
            ("Thompson sampling", "30 models"),
            ("10 models", "30 models"),
            ("10 models", "10 models, inflation 1.2"),
            ("epsilon 0.10", "epsilon 0.12"),
        ):
            a, b = found[one], found[two]
            apart, worlds, coupled = (np.var(a[i] - b[j]) for i, j in ((0, 1), (0, 0), (2, 2)))
            print(
                f"noise {noise_std:g}: {one + ' against ' + two:45s} {apart:9.0f} {worlds:9.0f} "
                f"{coupled:9.0f}  {apart / coupled:5.1f}x {worlds / coupled:5.1f}x"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
