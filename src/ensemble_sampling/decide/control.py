"""The control group: decisions that are held back from the agent and left to a baseline."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import numpy as np

from .. import checks
from ..inputs.offer import Offer
from ..ledger.ledger import Ledger
from ..ledger.rows import Held
from .baselines import Baseline, described, frozen_file, made
from .programs import Drawn
from .setup import Setup

CONTROL = "control"  # the setting of a ledger
SIGNS = ("<=", ">=")


@dataclass(frozen=True)
class Control:
    """What is held back from the agent, and what may put the baseline in charge.

    holdback: the share of decisions, or of subjects where these are named, left to the baseline.
    baseline: as JSON, see `baselines.described`.
    sticky: seconds for which a subject is given the same action again; 0: every decision is new.
    guard: bounds of the means of metrics, by name: ("<=", 0.05).
    fallback: whether a bound that is broken puts the baseline in charge.
    salt: what tells the draws of this bandit from those of others.
    halted: the metric whose bound was broken, which put the baseline in charge of all decisions,
        until somebody says to go on.
    since: the decision from which on bounds are looked at.
    """

    holdback: float = 0.0
    baseline: Any = "first"
    sticky: float = 0.0
    guard: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    fallback: bool = False
    salt: str = "0"
    halted: str | None = None
    since: int = 0

    @classmethod
    def of(cls, ledger: Ledger, salt: Any = 0) -> "Control":
        """What a ledger has; where it has nothing, what holds nothing back."""
        said = ledger.setting(CONTROL)
        if said is None:
            return cls(salt=str(salt))
        return cls(**{**said, "guard": {name: tuple(b) for name, b in said["guard"].items()}})

    @property
    def share(self) -> float:
        """Of decisions that are left to the baseline now."""
        return self.holdback if self.halted is None else 1.0

    def changed(self, ledger: Ledger | None, setup: Setup, **given: Any) -> "Control":
        """The same with what is given and not None, after checking it; `ledger`: that it is for,
        if it is to be recorded."""
        now = {name: value for name, value in given.items() if value is not None}
        if "holdback" in now:
            share = float(checks.scalar("holdback", now["holdback"], low=0.0, high=1.0))
            if share == 1:
                raise ValueError(
                    "holdback must be less than 1: where all decisions are left to the baseline, "
                    "there is nothing to compare it with; got 1"
                )
            now["holdback"] = share
        if "baseline" in now:
            now["baseline"] = described(now["baseline"], ledger, setup)
        if "sticky" in now:
            time = now["sticky"]
            seconds = time.total_seconds() if isinstance(time, timedelta) else time
            now["sticky"] = float(checks.scalar("sticky", seconds, low=0.0))
        if "guard" in now:
            now["guard"] = _guard(now["guard"])
        if "fallback" in now:
            checks.flag("fallback", now["fallback"])
        return replace(self, **now)

    def forget(self, ledger: Ledger) -> None:
        """Remove what a frozen agent knows, of whom somebody is to be erased: it learns anew."""
        if isinstance(self.baseline, Mapping) and "frozen" in self.baseline:
            ledger.discard(frozen_file(self.baseline["frozen"]))

    def record(self, ledger: Ledger, who: str | None = None) -> None:
        """Let a ledger have it, as a change by somebody, unless it is what the ledger has."""
        said = asdict(self)
        if said != asdict(Control.of(ledger, self.salt)):
            ledger.change(CONTROL, said, who)


def _guard(given: Any) -> dict[str, tuple[str, float]]:
    wrong = f'guard must be like {{"returned": ("<=", 0.05)}}, got {checks.shown(given)}'
    if not isinstance(given, Mapping):
        raise TypeError(wrong)
    found: dict[str, tuple[str, float]] = {}
    for name, bound in given.items():
        if not isinstance(bound, tuple | list) or len(bound) != 2 or bound[0] not in SIGNS:
            raise ValueError(wrong)
        limit = float(checks.scalar(f"the bound of {name!r}", bound[1]))
        found[checks.text("a metric's name", name)] = (bound[0], limit)
    return found


def settled(ledger: Ledger) -> int:
    """The decision from which on the baseline is what it is now: those before it had another."""
    first, last = 0, Control().baseline
    for change in ledger.changes():
        if change.name == CONTROL and change.value["baseline"] != last:
            first, last = change.decision, change.value["baseline"]
    return first


def uniform(*words: Any) -> float:
    """A number in [0, 1) that only these words decide."""
    digest = blake2b(repr(words).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


class Divider:
    """Leaves a share of decisions to the baseline."""

    def __init__(self, control: Control, baseline: Baseline):
        self.control, self._baseline = control, baseline

    @classmethod
    def of(cls, control: Control, rule: Any, setup: Setup, ledger: Ledger) -> "Divider | None":
        """None where nothing is held back. `rule` is the function that is the baseline, if one
        is."""
        if control.share == 0:
            return None
        return cls(control, made(control.baseline, rule, setup, ledger))

    def divide(
        self, number: int, offer: Offer, drawn: Drawn, subject: str | None
    ) -> tuple[int, np.ndarray, Held]:
        """What is chosen in a decision of which the agent has `drawn` its own, how likely every
        action is under the whole process, and who decides.

        A subject is always in the same group. A decision is drawn by its own number, apart from
        what the agent drew: those left to the agent are what they would be without a holdback.
        """
        share, salt = self.control.share, self.control.salt
        whom = ("decision", number) if subject is None else ("subject", subject)
        chances, index = self._baseline(number, offer), drawn.index
        control = uniform(salt, *whom) < share
        if control:
            at = np.cumsum(chances)
            index = int(np.searchsorted(at, at[-1] * uniform(salt, "action", number), "right"))
        mixed = share * chances + (1 - share) * drawn.probabilities
        return index, mixed, Held(control, share, float(chances[index]))

    def mixed(self, number: int, offer: Offer, shares: np.ndarray) -> np.ndarray:
        """How likely every action is, whoever decides."""
        share = self.control.share
        return (share * self._baseline(number, offer) + (1 - share) * shares).astype(shares.dtype)
