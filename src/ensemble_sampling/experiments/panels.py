"""What a figure is made of, and what a kind of panel has to say: how it is run, drawn, tabulated.

The kinds are in `regret` and `ensembles`; `runner`, `figures` and `report` know none of them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict

from .. import checks
from ..simulation import Engine, Progress
from ..simulation.results import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Data", "Figure", "Job", "Panel", "Results", "Where", "Window"]

Data = Mapping[str, Any]
"""What a panel's results file says."""

Results = Mapping[str, Data]
"""Panel name -> what its results file says."""


class Where(TypedDict):
    """Where a job is run, as `simulate` takes it."""

    checkpoint: Path
    progress: Progress
    engine: Engine


@dataclass(frozen=True)
class Job:
    """One curve or one point of a panel: the piece of work that is saved by itself.

    item: what the entry in the results says about itself, to which `run(**where)` adds the numbers
    programs: jobs with the same share compilations
    effort: a guess of the seconds it takes, for the order of jobs and the time left
    check: raises, with a word on why, where the parts do not fit
    """

    label: str
    item: dict[str, Any]
    programs: Hashable
    effort: float
    run: Callable[..., dict[str, Any]]
    check: Callable[[], Any] = lambda: None


class Panel(Protocol):
    """One panel of a figure, of whatever kind.

    `realizations` is the full number, `laptop` one that two cores manage, at about `effort`
    seconds each. Results are a `header` and, under the name `entries`, an entry for each job.
    Panels of one figure with the same `scale` are drawn on one.
    """

    entries: ClassVar[str]
    scale: ClassVar[str | None]

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def periods(self) -> int: ...
    @property
    def realizations(self) -> int: ...
    @property
    def laptop(self) -> int: ...
    @property
    def effort(self) -> float: ...

    def header(self) -> dict[str, Any]:
        """The settings that all entries share, but for realizations and seed."""
        ...

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        """What there is to run, in the order of the entries."""
        ...

    def draw(self, ax: "Axes", data: Data) -> None:
        """The results as a picture."""
        ...

    def tables(self, data: Data) -> list[str]:
        """The results as tables in Markdown."""
        ...


@dataclass(frozen=True)
class Figure:
    """Panels that are shown together.

    subject: a few words for the table of settings
    caption: Markdown
    remark: what the heading says beside the number
    """

    number: int
    subject: str
    caption: str
    panels: Sequence[Panel]
    remark: str = ""

    def __post_init__(self) -> None:
        checks.size("number", self.number)
        object.__setattr__(self, "panels", tuple(self.panels))
        if not self.panels:
            raise ValueError(f"figure {self.number} has no panels")
