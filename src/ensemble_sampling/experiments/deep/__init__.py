"""Deep exploration as data: learning times in worlds of growing size, and the claims about them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...episodes import DeepSea, Table, World, chain
from ..claims import Claim
from ..panels import Figure
from ..study import Study
from . import agents
from .claims import effectiveness, exponent, fewer, learned
from .panels import LearningTimes, Series, Visits

SIZES = tuple(range(10, 51, 2))
"""bsuite's."""
GRIDS = (20, 30, 40, 50)
"""Sizes up to the same one of these share a program."""
STOCHASTIC: Any = {"threshold": 0.8, "first": 100}
"""bsuite's rule for the stochastic sea, of which a few good episodes may be luck."""


def sea(size: int, most: int) -> DeepSea:
    return DeepSea(size, most)


def wild_sea(size: int, most: int) -> DeepSea:
    return DeepSea(size, most, stochastic=True)


def fixed(size: int, point: int, most: int) -> DeepSea:
    """The same sea at every point of a panel along members."""
    return DeepSea(size)


def links(length: int, most: int) -> Table:
    return chain(length)


def of(make: Callable[[Any], Any], point: int, world: World) -> Any:
    """An agent that depends on its world alone."""
    return make(world)


def members(point: int, world: World) -> Any:
    return agents.bootstrapped(world, point)


def series(
    label: str,
    make: Callable[[Any], Any],
    points: Sequence[int] = SIZES,
    world: Callable[[int, int], World] = sea,
    shapes: Sequence[int] = GRIDS,
) -> Series:
    return Series(label, points, partial(of, make), world, shapes)


DQN, RLSVI, MASKS, NOISE = "bootstrapped DQN", "RLSVI", "bootstrapped DQN, masks", "RLSVI, noise"
ALONE, PRIORLESS = "DQN, epsilon 0.1", "without prior functions"
SMALL = (6, 8, 10, 12, 14)

DQN_SEA = LearningTimes(
    "dqn", "Bootstrapped DQN", [series(DQN, agents.bootstrapped)], 1600, 20, 2, 200.0
)
RLSVI_SEA = LearningTimes(
    "rlsvi", "RLSVI", [series(RLSVI, agents.least_squares)], 1600, 20, 2, 60.0
)
DQN_WILD = LearningTimes(
    "dqn-stochastic",
    "Bootstrapped DQN, stochastic",
    [series(MASKS, agents.masked, world=wild_sea)],
    5000,
    20,
    2,
    900.0,
    **STOCHASTIC,
)
RLSVI_WILD = LearningTimes(
    "rlsvi-stochastic",
    "RLSVI, stochastic",
    [series(NOISE, agents.learned_noise, world=wild_sea)],
    3000,
    20,
    2,
    120.0,
    **STOCHASTIC,
)
HUNDRED = LearningTimes(
    "hundred",
    "RLSVI, size 100",
    [series(RLSVI, agents.least_squares, (100,), shapes=(100,))],
    4000,
    10,
    2,
    100.0,
)
DITHERING = LearningTimes(
    "dithering",
    "Random actions",
    [
        series(label, make, (4, 5, 6, 7, 8, 9, 10), shapes=(10,))
        for label, make in (
            (ALONE, partial(agents.dithering, epsilon=0.1)),
            ("DQN, epsilon annealed", agents.dithering),
            (DQN, agents.bootstrapped),
        )
    ],
    2000,
    20,
    4,
    20.0,
)
PRIORS = LearningTimes(
    "priors",
    "With and without prior functions",
    [
        series(label, make, SMALL, shapes=(14,))
        for label, make in (
            ("with prior functions", agents.bootstrapped),
            (PRIORLESS, partial(agents.bootstrapped, prior=None)),
        )
    ],
    200,
    20,
    8,
    5.0,
)
MEMBERS = LearningTimes(
    "members",
    "Size 10, by members, in 80 episodes",
    [
        Series(
            DQN,
            (1, 2, 3, 5, 10, 20, 50),
            members,
            partial(fixed, 10),
            (1, 2, 3, 5, 10, 20, 50),
        )
    ],
    80,
    20,
    8,
    5.0,
    along="members",
)
CHAIN = LearningTimes(
    "chain",
    "The chain of 2016",
    [
        series(label, make, (10, 20, 40), links, (10, 20, 40))
        for label, make in (
            (RLSVI, partial(agents.least_squares, noise_std=0.1, prior=3.0)),
            (DQN, partial(agents.bootstrapped, prior=3.0, discount=0.95)),
            (ALONE, partial(agents.dithering, epsilon=0.1, discount=0.95)),
        )
    ],
    2000,
    20,
    4,
    20.0,
    threshold=5.0,
)
VISITS = Visits(
    "visits", "Where one run went", agents.bootstrapped(DeepSea(30)), DeepSea(30), 600, 15.0
)

ABOUT = """\
In deep sea a diver sinks through a grid of N x N cells, and only N steps to the right in a row lead
to the treasure: random play finds it once in 2^N episodes. An agent has learned once less than
nine in ten episodes so far were bad, by the rule of bsuite; in the stochastic sea less than eight
in ten, from episode 100 on. Agents have the same settings at all sizes.
"""

CLAIMS = (
    Claim(
        "Bootstrapped DQN learns all sizes of bsuite",
        "runs that learned",
        partial(learned, panel="dqn", label=DQN),
        figure=1,
    ),
    Claim(
        "Its learning time is a power of the size below the cube",
        "b in time ~ size^b",
        partial(exponent, panel="dqn", label=DQN),
        threshold=3.0,
        above=False,
        figure=1,
    ),
    Claim(
        "RLSVI learns all sizes of bsuite",
        "runs that learned",
        partial(learned, panel="rlsvi", label=RLSVI),
        figure=1,
    ),
    Claim(
        "The learning time of RLSVI is a power of the size below the cube",
        "b in time ~ size^b",
        partial(exponent, panel="rlsvi", label=RLSVI),
        threshold=3.0,
        above=False,
        figure=1,
    ),
    Claim(
        "Bootstrapped DQN learns all sizes of the stochastic sea",
        "runs that learned",
        partial(learned, panel="dqn-stochastic", label=MASKS),
        figure=2,
    ),
    Claim(
        "RLSVI that learns the noise learns all sizes of the stochastic sea",
        "runs that learned",
        partial(learned, panel="rlsvi-stochastic", label=NOISE),
        figure=2,
    ),
    Claim(
        "RLSVI learns size 100",
        "runs that learned",
        partial(learned, panel="hundred", label=RLSVI),
        figure=3,
    ),
    Claim(
        "Bootstrapped DQN learns where random actions do not",
        "share of runs that learned more often than with epsilon 0.1, sizes 4 to 10",
        partial(fewer, panel="dithering", better=DQN, worse=ALONE),
        figure=3,
    ),
    Claim(
        "With prior functions more runs learn",
        "share of runs that learned more often than without, sizes 6 to 14",
        partial(fewer, panel="priors", better="with prior functions", worse=PRIORLESS),
        figure=4,
    ),
    Claim(
        "A member finds size 10 with a chance of more than 0.8^10",
        "psi in 1 - (1 - psi^10)^members, in 80 episodes",
        partial(effectiveness, panel="members", label=DQN, size=10),
        threshold=0.8,
        figure=4,
    ),
    Claim(
        "RLSVI learns the chain at all lengths",
        "runs that learned",
        partial(learned, panel="chain", label=RLSVI),
        figure=5,
    ),
    Claim(
        "Bootstrapped DQN learns the chain more often than random actions",
        "share of runs that learned more often than with epsilon 0.1",
        partial(fewer, panel="chain", better=DQN, worse=ALONE),
        figure=5,
    ),
)

STUDY = Study(
    "Deep exploration",
    (
        Figure(
            1,
            "Deep sea",
            "Episodes until learned: medians, with the range of all runs.",
            (DQN_SEA, RLSVI_SEA),
        ),
        Figure(
            2,
            "Stochastic deep sea",
            "The same where steps to the right slip and both ends of the last row are noisy.",
            (DQN_WILD, RLSVI_WILD),
        ),
        Figure(
            3,
            "Beyond bsuite, and dithering",
            "Twice bsuite's largest size; and one network that acts at random now and then, at "
            "small ones. A cross is where not every run learned.",
            (HUNDRED, DITHERING),
        ),
        Figure(
            4,
            "What explores",
            "With and without prior functions, and with few and many members.",
            (PRIORS, MEMBERS),
        ),
        Figure(
            5,
            "Another world, and a picture",
            "The chain of Osband et al. (2016), learned once less than half of the 10 that an "
            "episode can bring was lost on average; and the cells of a deep sea of size 30 by the "
            "episode that first went there.",
            (CHAIN, VISITS),
        ),
    ),
    CLAIMS,
    about=ABOUT,
)

__all__ = ["STUDY"]
