"""What a figure is made of. Declarations only: `reproduce` runs them, `report` draws them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core import Agent, ConjugateLearner, Environment

Window = tuple[int, int]
"""The periods first, ..., last - 1, counted from 0."""


@dataclass(frozen=True)
class Curves:
    """A panel of regret per period, one curve for each agent.

    `realizations` is the published number, `laptop` one that two cores manage, at about `effort`
    seconds each. `windows` are stretches of periods whose average is kept for every realization,
    so that agents can be compared pairwise in the same worlds.
    """

    name: str
    title: str
    environment: Environment
    agents: tuple[Agent, ...]
    periods: int
    realizations: int
    laptop: int
    effort: float
    published: dict[str, dict[Window, float]] | None = None

    @property
    def whole(self) -> Window:
        return 0, self.periods

    @property
    def late(self) -> Window:
        """The last tenth."""
        return self.periods - self.periods // 10, self.periods

    @property
    def windows(self) -> tuple[Window, ...]:
        published = {w for values in (self.published or {}).values() for w in values}
        return self.whole, self.late, *sorted(published - {self.whole, self.late})


@dataclass(frozen=True)
class Gaps(Curves):
    """Curves shown as losses: to the first agent, against the number of members.

    `members` are those of the other agents; `bound` is what theory says they may lose per period.
    """

    members: tuple[int, ...] = ()
    bound: Callable[[int], float] = lambda members: float("nan")


@dataclass(frozen=True)
class Sizes:
    """A panel of the smallest ensembles whose regret in the last period is near enough.

    Near enough is at most `tolerance` more than Thompson sampling's.
    """

    name: str
    title: str
    arms: tuple[int, ...]
    environment: Callable[[int], Environment]
    learner: Callable[[int], ConjugateLearner]
    tolerance: float
    periods: int
    realizations: int
    laptop: int
    effort: float
    published: dict[int, int] | None = None


@dataclass(frozen=True)
class Paths:
    """A panel of how far ensembles are from the exact posterior over a run, for several sizes."""

    name: str
    title: str
    environment: Environment
    learner: ConjugateLearner
    members: tuple[int, ...]
    periods: int
    realizations: int
    laptop: int
    effort: float


Panel = Curves | Sizes | Paths


@dataclass(frozen=True)
class Figure:
    """Panels that the paper shows together, or that are `ours` and not the paper's."""

    number: int
    subject: str
    caption: str
    panels: tuple[Any, ...]
    ours: bool = False
