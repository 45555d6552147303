"""A study: figures made of panels, and what is claimed of their results."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..code import load
from .claims import Claim
from .panels import Figure, Panel

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Study:
    """What `es.experiments.run` and `ensemble-sampling run` take: a value, which runs nothing.

    content: figures, or panels, each of which is then a figure of its own; a panel's name names
        its files
    about: Markdown under the title
    notes: Markdown at the end of the report
    more: further sections of the report, from what else lies in the folder of results
    """

    title: str
    content: Sequence[Figure | Panel]
    claims: Sequence[Claim] = ()
    about: str = ""
    notes: str = ""
    more: Callable[[Path], list[str]] = lambda folder: []

    def __post_init__(self) -> None:
        if not isinstance(self.title, str) or not self.title.strip():
            raise ValueError(f"a study needs a title, got {self.title!r}")
        for name in ("content", "claims"):
            if not isinstance(getattr(self, name), list | tuple):
                raise TypeError(f"{name} must be a list, got {getattr(self, name)!r}")
        if not self.content:
            raise ValueError(
                f"the study {self.title!r} has no content: give it an es.experiments.Experiment"
            )
        names = [panel.name for figure in self.figures for panel in figure.panels]
        numbers = [str(figure.number) for figure in self.figures]
        for what, given in (("panels", names), ("figures", numbers)):
            if twice := sorted({one for one in given if given.count(one) > 1}):
                raise ValueError(f"two {what} of a study are called {', '.join(twice)}")
        for name in names:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise ValueError(
                    "the name of a panel names its file: letters, digits, '-', '_' and '.', "
                    f"got {name!r}"
                )
            if name in ("all", *numbers):
                raise ValueError(f"a panel cannot be called {name!r}, which means others")
        for claim in self.claims:
            if not isinstance(claim, Claim):
                raise TypeError(f"claims must be of es.experiments.Claim, got {claim!r}")

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(_as_figure(i, given) for i, given in enumerate(self.content, 1))

    @cached_property
    def panels(self) -> dict[str, Panel]:
        """By name, in the order of the figures."""
        return {panel.name: panel for figure in self.figures for panel in figure.panels}


def _as_figure(number: int, given: Figure | Panel) -> Figure:
    if isinstance(given, Figure):
        return given
    if not all(hasattr(given, part) for part in ("name", "title", "jobs", "draw", "tables")):
        raise TypeError(
            f"a study is made of es.experiments.Experiment and other panels, got {given!r}"
        )
    return Figure(number, given.title, "", (given,))


EXPECTED = "STUDY = es.experiments.Study(title, [es.experiments.Experiment(...)], claims=[...])"


def from_file(path: str | os.PathLike[str]) -> Study:
    """What a Python file calls STUDY."""
    names = vars(load(path))
    if "STUDY" not in names:
        parts = [n for n, v in names.items() if hasattr(v, "jobs") or isinstance(v, Figure)]
        has = f"; it has {', '.join(parts)}, which belong into it" if parts else ""
        raise ValueError(f"{path} must define {EXPECTED}{has}")
    study = names["STUDY"]
    if not isinstance(study, Study):
        raise ValueError(f"{path} must define {EXPECTED}; it says STUDY = {study!r}")
    return study
