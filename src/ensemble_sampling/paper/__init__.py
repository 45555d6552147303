"""The paper's figures as data, one module each, `beyond` of ours, and the claims about them."""

from ..experiments.declare import Panel
from ..experiments.study import Study
from . import beyond, figure1, figure2, figure3, others
from .claims import CLAIMS
from .words import ABOUT, DEVIATIONS

STUDY = Study(
    "Ensemble sampling: the paper's experiments",
    (figure1.FIGURE, figure2.FIGURE, figure3.FIGURE, beyond.FIGURE),
    CLAIMS,
    about=ABOUT,
    notes=DEVIATIONS,
    more=lambda folder: others.section(others.load(folder), folder),
)

PANELS: dict[str, Panel] = STUDY.panels

__all__ = ["PANELS", "STUDY"]
