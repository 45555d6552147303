"""Deep exploration as data: learning times in worlds of growing size, and the claims about them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...episodes import DeepSea, Table, World, chain, river_swim
from ..claims import Claim
from ..panels import Figure
from ..study import Study
from . import agents
from .claims import SIZES, effectiveness, exponent, fewer, gain, growth, learned, score
from .discovery import Discovery, Members
from .panels import LearningTimes, Series, Visits

GRIDS = (20, 30, 40, 50)
"""Sizes up to the same one of these share a program."""
STOCHASTIC: Any = {"threshold": 0.8, "first": 100}
"""bsuite's rule for the stochastic sea, of which a few good episodes may be luck."""


def sea(size: int, most: int) -> DeepSea:
    return DeepSea(size, most)


def wild_sea(size: int, most: int) -> DeepSea:
    return DeepSea(size, most, stochastic=True)


def links(length: int, most: int) -> Table:
    return chain(length)


def river(length: int, most: int) -> Table:
    return river_swim(length, 5 * length)


def of(make: Callable[[Any], Any], point: int, world: World) -> Any:
    """An agent that depends on its world alone."""
    return make(world)


def series(
    label: str,
    make: Callable[[Any], Any],
    points: Sequence[int] = SIZES,
    world: Callable[[int, int], World] = sea,
    shapes: Sequence[int] = GRIDS,
) -> Series:
    return Series(label, points, partial(of, make), world, shapes)


DQN, RLSVI, MASKS, NOISE = "bootstrapped DQN", "RLSVI", "bootstrapped DQN, masks", "RLSVI, noise"
ALONE, ANNEALED, PSRL = "DQN, epsilon 0.1", "DQN, epsilon annealed", "PSRL"
PRIORED, PRIORLESS = "with prior functions", "without prior functions"

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
            (ANNEALED, agents.dithering),
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
    "Two layers of 50",
    [
        series(label, make, (6, 8, 10), shapes=(6, 8, 10))
        for label, make in (
            (PRIORED, agents.baseline),
            (PRIORLESS, partial(agents.baseline, prior=False)),
            (ALONE, partial(agents.baseline_dithering, epsilon=0.1)),
        )
    ],
    300,
    20,
    4,
    30.0,
)


def found(name: str, title: str, prior: bool) -> Discovery:
    return Discovery(
        name,
        title,
        [
            Members(
                f"{members} member{'s' * (members > 1)}",
                (6, 8, 10),
                partial(of, partial(agents.baseline, members=members, prior=prior)),
                sea,
                (6, 8, 10),
                members,
            )
            for members in (1, 2, 5, 10)
        ],
        100,
        20,
        4,
        15.0,
    )


FOUND = found("found", "Found, with prior functions", True)
FOUND_WITHOUT = found("found-without", "Found, without", False)
CHAIN = LearningTimes(
    "chain",
    "The chain of 2016",
    [
        series(label, make, (10, 20, 40), links, (10, 20, 40))
        for label, make in (
            (PSRL, agents.sampled),
            (RLSVI, partial(agents.least_squares, noise_std=0.1, prior=3.0)),
            (DQN, partial(agents.bootstrapped, prior=3.0, discount=0.95)),
            (ALONE, partial(agents.dithering, epsilon=0.1, discount=0.95)),
        )
    ],
    2000,
    20,
    4,
    20.0,
    along="states",
    threshold=5.0,
)
RIVER = LearningTimes(
    "river",
    "RiverSwim",
    [
        series(label, make, (6, 8, 10, 12), river, (6, 8, 10, 12))
        for label, make in (
            (PSRL, agents.sampled),
            (RLSVI, agents.swimmer),
            (ALONE, partial(agents.dithering, epsilon=0.1, discount=0.95)),
        )
    ],
    1000,
    20,
    4,
    10.0,
    along="states",
    threshold=1.0,
    first=10,
)
VISITS = Visits(
    "visits", "Where one run went", agents.bootstrapped(DeepSea(30)), DeepSea(30), 600, 15.0
)

ABOUT = """\
In deep sea a diver sinks through a grid of N x N cells, and only N steps to the right in a row lead
to the treasure: random play finds it once in 2^N episodes. By the rule of bsuite 0.3.6 an agent has
learned once less than nine in ten episodes so far were bad; in the stochastic sea less than eight
in ten, from episode 100 on. Its score is the share of its 21 sizes that are learned in fewer than
2^N + 100 episodes. bsuite looks at the episodes that it logs, which are fewer and fewer, and gives
an agent one world of every size and 10,000 episodes; here every episode counts, every run has a
world of its own, and episodes are fewer.

Agents have the same settings at all sizes. But for figure 4, values are tables: a number of its own
for every cell and action, with no hidden layers, so that nothing is learned of one cell from
another. That is what makes sizes up to 100 quick, and it is no test of generalisation. Figure 4 has
the network of bsuite's own baseline: two layers of 50 on a one-hot input.
"""

CLAIMS = (
    *(
        claim
        for name, panel, label in (
            ("Bootstrapped DQN", "dqn", DQN),
            ("RLSVI", "rlsvi", RLSVI),
        )
        for claim in (
            Claim(
                f"{name} learns all sizes of bsuite",
                "runs that learned",
                partial(learned, panel=panel, label=label),
                figure=1,
            ),
            Claim(
                f"The score of {name} on deep sea is 1",
                "bsuite's score of each run",
                partial(score, panel=panel, label=label),
                figure=1,
            ),
            Claim(
                f"The learning time of {name} is a power of the size below the cube",
                "b in time ~ size^b",
                partial(exponent, panel=panel, label=label),
                threshold=3.0,
                above=False,
                figure=1,
            ),
        )
    ),
    *(
        claim
        for name, panel, label in (
            ("Bootstrapped DQN with masks", "dqn-stochastic", MASKS),
            ("RLSVI that learns the noise", "rlsvi-stochastic", NOISE),
        )
        for claim in (
            Claim(
                f"{name} learns all sizes of the stochastic sea",
                "runs that learned",
                partial(learned, panel=panel, label=label),
                figure=2,
            ),
            Claim(
                f"The score of {name} on the stochastic sea is 1",
                "bsuite's score of each run",
                partial(score, panel=panel, label=label),
                figure=2,
            ),
        )
    ),
    Claim(
        "RLSVI learns size 100 in at least 8 of 10 runs",
        "runs that learned",
        partial(learned, panel="hundred", label=RLSVI, least=0.8),
        figure=3,
    ),
    Claim(
        "Bootstrapped DQN learns where random actions do not",
        "share of runs that learned more often than with epsilon 0.1, sizes 4 to 10",
        partial(fewer, panel="dithering", better=DQN, worse=ALONE),
        figure=3,
    ),
    Claim(
        "The time that random actions take grows by more than half with every row",
        "b in time ~ b^size, epsilon annealed; 2 is pure chance",
        partial(growth, panel="dithering", label=ANNEALED),
        threshold=1.5,
        figure=3,
    ),
    Claim(
        "With prior functions more runs learn",
        "share of runs that learned more often than without, sizes 6 to 10",
        partial(fewer, panel="priors", better=PRIORED, worse=PRIORLESS),
        figure=4,
    ),
    Claim(
        "A member with a prior function finds the reward with a chance of more than 0.8^N",
        "psi in 1 - (1 - psi^N)^members, in 100 episodes",
        partial(effectiveness, panel="found"),
        threshold=0.8,
        figure=4,
    ),
    Claim(
        "A member without one finds it with a chance of more than 0.7^N",
        "psi in the same law",
        partial(effectiveness, panel="found-without"),
        threshold=0.7,
        figure=4,
    ),
    Claim(
        "With prior functions a member finds the reward more often",
        "psi with them less psi without",
        partial(gain, panel="found", than="found-without"),
        figure=4,
    ),
    *(
        Claim(
            f"{name} learns the {what}",
            "runs that learned",
            partial(learned, panel=panel, label=name),
            figure=5,
        )
        for panel, what in (("chain", "chain at all lengths"), ("river", "river at all lengths"))
        for name in (PSRL, RLSVI)
    ),
    Claim(
        "Bootstrapped DQN learns the chain more often than random actions",
        "share of runs that learned more often than with epsilon 0.1",
        partial(fewer, panel="chain", better=DQN, worse=ALONE),
        figure=5,
    ),
    Claim(
        "PSRL learns the river more often than random actions",
        "share of runs that learned more often than with epsilon 0.1",
        partial(fewer, panel="river", better=PSRL, worse=ALONE),
        figure=5,
    ),
)

STUDY = Study(
    "Deep exploration",
    (
        Figure(
            1,
            "Deep sea",
            "Episodes until learned: medians, with the range of all runs. Tables of values.",
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
            "Twice bsuite's largest size, by RLSVI as in figure 1: no discount, a prior of mean 0 "
            f"and spread {agents.PRIOR}, and targets with noise of 0.01. And one table of values "
            "that acts at random now and then, at small sizes: a tenth of the time, or in a share "
            "100 / (100 + t) of the steps of episode t. A cross is where not every run learned.",
            (HUNDRED, DITHERING),
        ),
        Figure(
            4,
            "What explores",
            "bsuite's baseline: two layers of 50, Adam at 0.001, a discount of 0.99, one-step "
            "targets, 20 members, prior functions of scale 5. Below, the share of runs that found "
            "the reward at least once in 100 episodes by the number of members, and the law "
            "1 - (1 - ψ^N)^members with one ψ for all points, by maximum likelihood. For it "
            "Knyazhitskiy (A Unified Scaling Law for Bootstrapped DQNs, 2025) reports a ψ of about "
            "0.87 with prior functions and 0.80 without, over larger sizes and more episodes: ψ "
            "depends on how long one looks.",
            (PRIORS, FOUND, FOUND_WITHOUT),
        ),
        Figure(
            5,
            "Other worlds, and a picture",
            "The chain of Osband et al. (2016), learned once less than half of the 10 that an "
            "episode can bring was lost on average. RiverSwim in episodes of five steps per state, "
            "which bring 7.5 to 12 at best, learned once less than 1 was lost on average, from "
            "episode 10 on. And the cells of a deep sea of size 30 by the episode that first went "
            "there.",
            (CHAIN, RIVER, VISITS),
        ),
    ),
    CLAIMS,
    about=ABOUT,
)

__all__ = ["STUDY"]
