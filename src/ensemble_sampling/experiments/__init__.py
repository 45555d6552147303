"""Experiments as values: what is declared is run, drawn, tabulated and reported by one code."""

from .claims import Claim, Finding, Interval, Unavailable, Verdict
from .curves import Experiment
from .declare import Figure, Panel, Window
from .gaps import Gaps
from .paths import Paths
from .sizes import Sizes
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
]
