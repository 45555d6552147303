"""Experiments as values: what is declared is run, drawn, tabulated and reported by one code."""

from . import claims
from .claims import Claim, Finding, Interval, Unavailable, Verdict
from .ensembles import Paths, Sizes
from .panels import Figure, Panel, Window
from .regret import Experiment, Gaps
from .runner import run
from .study import Study

__all__ = [
    "Claim",
    "Experiment",
    "Figure",
    "Finding",
    "Gaps",
    "Interval",
    "Panel",
    "Paths",
    "Sizes",
    "Study",
    "Unavailable",
    "Verdict",
    "Window",
    "claims",
    "run",
]
