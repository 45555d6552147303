"""Figure 1a at the paper's own size lands on the published curves."""

import time

import numpy as np

import ensemble_sampling as es
from ensemble_sampling.experiments.paper.figure1 import REGRET

ARMS, PERIODS, REALIZATIONS = 50, 700, 2000


def test_figure_1a_lands_on_the_published_values():
    """Within 4% or 4 standard errors of the difference, for every series and window. The
    published curves average as many realizations, so their standard error is the same as ours.

    It takes 60 s on two cores at most, compilation included; counted as computing time, so that
    what else runs on the machine does not matter.
    """
    learner, env = es.IndependentArms(ARMS, 1.0), es.GaussianArms(ARMS)
    agents = [es.ThompsonSampling(es.Exact(learner))]
    agents += [es.EnsembleSampling(learner, members) for members in (5, 10, 20, 30)]
    began = time.process_time()
    runs = [es.simulate(a, env, PERIODS, REALIZATIONS, seed=1, keep=True) for a in agents]
    seconds = time.process_time() - began

    published = REGRET.published or {}
    assert [run.label for run in runs] == [*published]
    misses = []
    for run in runs:
        assert run.regret is not None
        for (first, last), want in published[run.label].items():
            window = run.regret[:, first:last].mean(axis=1, dtype=np.float64)
            stderr = window.std(ddof=1) * np.sqrt(2 / REALIZATIONS)
            if abs(window.mean() - want) > max(0.04 * want, 4 * stderr):
                misses.append(f"{run.label}, {first}-{last}: {window.mean():.3f}, not {want}")
    assert not misses
    assert seconds < 120
