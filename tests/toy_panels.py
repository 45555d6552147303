"""A figure small enough to run in a test: one panel of curves, one of sizes."""

from functools import partial

import ensemble_sampling as es
from ensemble_sampling.paper import Curves, Figure, Sizes, report, reproduce

LEARNER = es.IndependentArms(arms=3, noise_std=1.0)
CURVES = Curves(
    name="1a",
    title="Three arms",
    environment=es.GaussianArms(arms=3),
    agents=(es.Uniform(), es.Greedy(LEARNER), es.EnsembleSampling(LEARNER, members=2)),
    periods=20,
    realizations=60,
    laptop=30,
    effort=0.01,
    published={"2 models": {(0, 5): 1.0, (10, 20): 0.5}},
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


def install(set_attribute=setattr):
    """Let the toy figure stand in for the paper's."""
    for module in (reproduce, report):
        set_attribute(module, "FIGURES", (FIGURE,))
        set_attribute(module, "PANELS", {"1a": CURVES, "1b": SIZES})
