"""Figure 1: Gaussian bandits with independent arms (Section 5.1)."""

from functools import partial

from ...agents.thompson import ThompsonSampling
from ...learners.arms import IndependentArms
from ...posteriors.ensemble import Ensemble
from ...posteriors.exact import Exact
from ...study.nested import FirstMembers
from ...worlds.arms import GaussianArms
from ..ensembles import Sizes
from ..panels import Figure, Window
from ..regret import Experiment

WINDOWS: tuple[Window, ...] = ((0, 35), (140, 175), (280, 315), (420, 455), (665, 700))

# Read off the published figure: regret averaged over the windows above.
PUBLISHED_REGRET = {
    "Thompson sampling": (1.835, 0.368, 0.176, 0.118, 0.071),
    "5 models": (1.494, 0.418, 0.382, 0.375, 0.372),
    "10 models": (1.633, 0.320, 0.270, 0.257, 0.250),
    "20 models": (1.688, 0.272, 0.183, 0.161, 0.152),
    "30 models": (1.742, 0.266, 0.142, 0.114, 0.102),
}
PUBLISHED_MEMBERS = {10: 15, 20: 26, 30: 35, 50: 48, 70: 61, 100: 73, 150: 83, 200: 99}

learner = IndependentArms(arms=50, noise_std=1.0, prior_mean=0.0)

REGRET = Experiment(
    name="1a",
    title="50 independent arms",
    environment=GaussianArms(arms=50),
    agents=(
        ThompsonSampling(Exact(learner)),
        *(ThompsonSampling(FirstMembers(Ensemble(learner, 30), m)) for m in (5, 10, 20, 30)),
    ),
    periods=700,
    realizations=2_000,
    laptop=2_000,
    effort=0.01,
    published={
        label: dict(zip(WINDOWS, values, strict=True)) for label, values in PUBLISHED_REGRET.items()
    },
    published_realizations=2_000,
    kept=WINDOWS,
)

MEMBERS = Sizes(
    name="1b",
    title="Models needed to be within 0.03 of Thompson sampling",
    arms=tuple(PUBLISHED_MEMBERS),
    environment=GaussianArms,
    learner=partial(IndependentArms, noise_std=1.0, prior_mean=0.0),
    tolerance=0.03,
    periods=2_000,
    realizations=10_000,
    laptop=300,
    effort=0.6,
    published=PUBLISHED_MEMBERS,
)

FIGURE = Figure(
    1,
    "Gaussian bandit",
    "(a) Ensemble sampling compared with Thompson sampling on a Gaussian bandit with 50 "
    "independent arms. (b) The smallest ensemble whose expected regret in the last period is at "
    "most 0.03 above Thompson sampling's, for different numbers of arms.",
    (REGRET, MEMBERS),
)
