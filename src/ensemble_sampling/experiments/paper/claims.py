"""What the paper claims about its figures, each as a quantity that the results decide."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ...posteriors.ensemble import Ensemble
from ...study.nested import FirstMembers
from ..claims import (
    Claim,
    Interval,
    advantage,
    approach,
    averages,
    exponent,
    factor,
    improvement,
)
from ..panels import Results
from ..regret import Experiment
from . import figure1, figure2, figure3


def _members(panel: Experiment, *sizes: int) -> list[int]:
    """Where in a panel the ensembles of these sizes are."""
    posteriors: list[Any] = [getattr(agent, "posterior", None) for agent in panel.agents]
    kinds = Ensemble | FirstMembers
    have = [int(p.members) if isinstance(p, kinds) else None for p in posteriors]
    return [have.index(size) for size in sizes]


def _thompson(results: Results) -> Interval:
    (series,) = averages(results, "late", figure1.REGRET)
    return approach(series[0], [series[i] for i in _members(figure1.REGRET, 5, 10, 20, 30)])


def _sublinear(results: Results) -> Interval:
    return exponent(results, figure1.MEMBERS)


def _larger(results: Results) -> Interval:
    (series,) = averages(results, "late", figure2.ENSEMBLES)
    return improvement([series[i] for i in _members(figure2.ENSEMBLES, 10, 30, 50)])


def _ten(window: str, results: Results) -> Interval:
    greedy, ensembles = averages(results, window, figure2.GREEDY, figure2.ENSEMBLES)
    return advantage([ensembles[i] for i in _members(figure2.ENSEMBLES, 10)], greedy)


def _fifty(results: Results) -> Interval:
    greedy, ensembles = averages(results, "late", figure2.GREEDY, figure2.ENSEMBLES)
    (fifty,) = _members(figure2.ENSEMBLES, 50)
    return factor(ensembles[fifty], greedy)


def _annealing(window: str, results: Results) -> Interval:
    fixed, annealed = averages(results, window, figure3.FIXED, figure3.ANNEALED)
    return advantage(annealed, fixed)


def _dropout(window: str, results: Results) -> Interval:
    *greedy, dropout = averages(results, window, figure3.FIXED, figure3.ANNEALED, figure3.DROPOUT)
    return advantage([values for panel in greedy for values in panel], dropout)


def _moderate(window: str, results: Results) -> Interval:
    *others, ensembles = averages(
        results, window, figure3.FIXED, figure3.ANNEALED, figure3.DROPOUT, figure3.ENSEMBLES
    )
    others = [values for panel in others for values in panel]
    return advantage([ensembles[i] for i in _members(figure3.ENSEMBLES, 30)], others)


def _twice(
    figure: int, statement: str, measured: str, quantity: Callable[[str, Results], Interval]
) -> list[Claim]:
    """A claim about regret, over the last tenth of the periods and over all of them."""
    return [
        Claim(statement, f"{measured}, {when}", partial(quantity, window), figure=figure)
        for window, when in (("late", "last tenth of the periods"), ("whole", "all periods"))
    ]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "With more models, ensemble sampling better approximates Thompson sampling.",
        "least shrinking of the regret gap from 5 to 10 to 20 to 30 models, last tenth of the "
        "periods",
        _thompson,
        figure=1,
    ),
    Claim(
        "The number of models needed grows sublinearly with the number of arms.",
        "b in models ∝ arms^b, below 1",
        _sublinear,
        threshold=1.0,
        above=False,
        figure=1,
    ),
    *_twice(
        2,
        "Ensemble sampling with 10 models beats ε-greedy with the best tuned parameter.",
        "regret of the best ε-greedy minus that of 10 models",
        _ten,
    ),
    Claim(
        "Larger ensembles are better still.",
        "least fall of the regret from 10 to 30 to 50 models, last tenth of the periods",
        _larger,
        figure=2,
    ),
    *(
        Claim(
            "50 models have orders of magnitude lower regret than ε-greedy.",
            "regret of the best ε-greedy divided by that of 50 models, last tenth of the periods; "
            f"holds from {orders} on, {words}",
            _fifty,
            threshold=orders,
            figure=2,
        )
        for orders, words in ((10, "one order"), (100, "two orders, as the plural says"))
    ),
    *_twice(
        3,
        "ε-greedy with an annealing schedule beats a fixed ε.",
        "regret of the best fixed ε minus that of the best schedule",
        _annealing,
    ),
    *_twice(
        3,
        "Dropout does worse than ε-greedy.",
        "regret of the best dropout minus that of the best ε-greedy",
        _dropout,
    ),
    *_twice(
        3,
        "Ensemble sampling with a moderate number of models beats everything else.",
        "regret of the best other approach minus that of 30 models",
        _moderate,
    ),
)
