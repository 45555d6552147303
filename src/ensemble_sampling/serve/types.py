"""What a served bandit is asked, what it answers, and how it is set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import checks

AGGREGATIONS = ("first", "sum")
MODES = ("online", "apprentice")


class Refused(Exception):
    """A request that cannot be met.

    kind: "invalid" (400), "unknown" (404), "conflict" (409) or "unavailable" (503).
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """What is to be decided.

    actions: descriptions or rows by name, or in a list; None where the bandit has fixed ones.
    available: names (or truth values) of those that may be chosen; None for all.
    event: the caller's own id: asked again, it gets the same answer. None: it needs no other id
        than the decision's.
    slot: which of several decisions of one event.
    deferred: no outcome is assumed for it before it is activated.
    """

    actions: Any = None
    context: Any = None
    available: Any = None
    event: str | None = None
    slot: str = ""
    deferred: bool = False


class Choice(NamedTuple):
    """A decision that was recorded."""

    id: str
    event: str | None
    slot: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    action: Any  # its name, or its index where actions have none
    names: Sequence[Any] | None  # of all actions on offer
    probabilities: np.ndarray  # of all actions on offer
    mean: np.ndarray | None = None  # what each is expected to bring
    spread: np.ndarray | None = None
    time: float = 0.0
    again: bool = False  # it was made by an earlier request

    @property
    def probability(self) -> float:
        return float(self.probabilities[self.index])


@dataclass(frozen=True, slots=True)
class Settings:
    """How a bandit is served; kept with its ledger.

    wait: seconds after which a decision without an outcome gets `default`; None: never.
    aggregation: "first": an outcome is final (a different second one is a conflict); "sum":
        outcomes of one decision add up.
    mode: "online": the agent decides; "apprentice": the first action available is taken, and the
        agent only says what it would have done.
    floor: the share of decisions left to chance, beside what the agent itself explores.
    """

    wait: float | None = None
    default: float = 0.0
    aggregation: str = "first"
    mode: str = "online"
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.wait is not None:
            checks.scalar("wait", self.wait, low=0.0)
        checks.scalar("default", self.default)
        checks.scalar("floor", self.floor, low=0.0, high=1.0)
        for what, value, known in (
            ("aggregation", self.aggregation, AGGREGATIONS),
            ("mode", self.mode, MODES),
        ):
            if value not in known:
                raise ValueError(f"{what} must be one of {', '.join(known)}, got {value!r}")

    @classmethod
    def recorded(cls, settings: Any) -> "Settings":
        """Those of a ledger, which may have been told none."""
        return cls(**(settings or {}))

    def record(self) -> dict[str, Any]:
        return asdict(self)
