"""A figure small enough to run in a test: one panel of curves, one of sizes."""

from functools import partial

import ensemble_sampling as es
from ensemble_sampling.experiments import Experiment, Figure, Sizes, Study, paper

LEARNER = es.IndependentArms(arms=3, noise_std=1.0)
CURVES = Experiment(
    name="1a",
    title="Three arms",
    environment=es.GaussianArms(arms=3),
    agents=(es.Uniform(), es.Greedy(LEARNER), es.EnsembleSampling(LEARNER, members=2)),
    periods=20,
    realizations=60,
    laptop=30,
    effort=0.01,
    published={"2 models": {(0, 5): 1.0, (10, 20): 0.5}},
    kept=((0, 5), (10, 20)),
)
SIZES = Sizes(
    name="1b",
    title="Models needed",
    arms=(2, 3),
    environment=es.GaussianArms,
    learner=partial(es.IndependentArms, noise_std=1.0),
    tolerance=0.2,
    periods=10,
    realizations=200,
    laptop=100,
    effort=0.01,
    published={2: 2, 3: 3},
)
FIGURE = Figure(1, "toy", "A toy.", (CURVES, SIZES))


STUDY = Study("A toy", [FIGURE])


def install(set_attribute=setattr):
    """Let the toy study stand in for the paper's."""
    set_attribute(paper, "STUDY", STUDY)
