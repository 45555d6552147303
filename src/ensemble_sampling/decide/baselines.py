"""What decides in the place of the agent, where decisions are held back from it."""

import json
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np

from .. import checks
from ..config import describe
from ..inputs.descriptions import from_text
from ..inputs.offer import Offer, shown
from ..ledger.ledger import Ledger
from .replica import Replica
from .setup import Setup
from .snapshots import unpack

Baseline = Callable[[int, Offer], np.ndarray]
"""How likely each action on offer is in a decision of this number."""

KINDS = (
    'baseline must be "first", "uniform", "frozen", {"action": NAME}, {"frozen": DATE}, or a '
    "function of a context and the actions, got "
)
ASKED = "SELECT count(*) FROM outcomes WHERE time <= {!r}"
RULE = "rule"


class Unruled(ValueError):
    """The function that is the baseline was not given."""


def described(given: Any, ledger: Ledger | None, setup: Setup) -> Any:
    """A baseline as JSON, which is what a ledger keeps of it; without one it is only checked."""
    if isinstance(given, str) and given in ("first", "uniform"):
        return given
    if isinstance(given, str) and given == "frozen":
        return {"frozen": 0 if ledger is None else ledger.outcomes}
    if callable(given):
        return {RULE: describe(given)}
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ValueError(KINDS + checks.shown(given))
    ((kind, value),) = given.items()
    if kind == "action":
        names = setup.inputs.names
        if names is not None and value not in names:
            raise ValueError(f"the baseline {value!r} is none of the actions {shown(list(names))}")
        return {"action": value}
    if kind == RULE and isinstance(value, dict | str):  # as it is recorded
        return dict(given)
    if kind == "frozen" and isinstance(value, int) and not isinstance(value, bool):
        return {"frozen": value}  # outcomes
    try:
        if kind != "frozen":
            raise ValueError
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except (TypeError, ValueError) as error:
        raise ValueError(KINDS + checks.shown(given)) from error
    known = 0 if ledger is None else ledger.ask(ASKED.format(at.timestamp()))
    return {"frozen": known}


def made(said: Any, rule: Any, setup: Setup, ledger: Ledger) -> Baseline:
    """The baseline of a description; `rule` is the function, where it is one."""
    if said == "uniform":
        return uniform
    if said == "first":
        return first
    if "action" in said:
        return Fixed(said["action"])
    if "frozen" in said:
        return Frozen(setup, ledger, said["frozen"])
    if rule is None or _body(describe(rule)) != _body(said[RULE]):
        raise Unruled(
            "decisions are held back for a rule of your own, which a ledger cannot keep: give "
            "the same function as baseline again, or another one, to a service in the file of "
            f"`serve --agents`; it was {json.dumps(said)[:200]}"
        )
    return Rule(rule)


def _body(described: Any) -> Any:
    """A function without the module it is in, which another program imports by another name."""
    if not isinstance(described, Mapping) or not {"function", "code"} <= described.keys():
        return described
    return {**described, "function": described["function"].rpartition(".")[2]}


def first(number: int, offer: Offer) -> np.ndarray:
    """The first action that is available."""
    return _certain(offer, int(np.argmax(offer.available)))


def uniform(number: int, offer: Offer) -> np.ndarray:
    """Any that is available."""
    return offer.available / offer.available.sum()


def _certain(offer: Offer, index: int) -> np.ndarray:
    return (np.arange(len(offer.available)) == index).astype(float)


class Instead:
    """A baseline that may name an action which is not on offer: the first is then taken instead,
    which is said once."""

    def __init__(self) -> None:
        self._said = False

    def chosen(self, offer: Offer, name: Any, why: str = "") -> np.ndarray:
        """All on the action of this name, or at this place where actions have none."""
        names, free = offer.names, offer.available
        places = range(len(free)) if names is None else names
        found = [n for n, other in enumerate(places) if other == name and free[n]]
        if not found and not self._said:
            self._said = True
            why = why or f"{name!r} is not on offer"
            warnings.warn(f"of the baseline {why}: the first on offer is taken", stacklevel=7)
        return _certain(offer, found[0]) if found else first(0, offer)


class Fixed(Instead):
    """Always one action."""

    def __init__(self, name: Any):
        super().__init__()
        self.name = name

    def __call__(self, number: int, offer: Offer) -> np.ndarray:
        return self.chosen(offer, self.name)


class Rule(Instead):
    """A function of the context and of what was said of the actions that are available, by name
    (or place), which names one. Whatever goes wrong in it must not keep others from deciding."""

    def __init__(self, function: Callable[[Any, dict[Any, Any]], Any]):
        super().__init__()
        self._function = function

    def __call__(self, number: int, offer: Offer) -> np.ndarray:
        context, free = offer.context, np.flatnonzero(offer.available).tolist()
        context = from_text(context) if isinstance(context, str) else context
        actions = {n if offer.names is None else offer.names[n]: offer.said_of(n) for n in free}
        try:
            return self.chosen(offer, self._function(context, actions))
        except Exception as error:
            return self.chosen(offer, None, f"the rule failed ({type(error).__name__}: {error})")


def frozen_file(outcomes: int) -> str:
    """The name of the snapshot of the agent as it was then."""
    return f"frozen-{outcomes}.safetensors"


class Frozen:
    """The agent as it was when it had learned so many outcomes; without those erased since."""

    def __init__(self, setup: Setup, ledger: Ledger, outcomes: int):
        self._setup, self._ledger, self._outcomes = setup, ledger, outcomes
        self._replica, self._erasures = Replica(setup), ledger.erasures

    def __call__(self, number: int, offer: Offer) -> np.ndarray:
        if self._erasures != self._ledger.erasures:
            self._replica, self._erasures = Replica(self._setup), self._ledger.erasures
        self._replica = self._replica.covering([offer])
        state = self._state(self._replica)
        return np.asarray(self._replica.choose(number, offer, state).probabilities, float)

    def _state(self, replica: Replica) -> Any:
        """As it was stored, or else learned again."""
        ledger, now = self._ledger, replica.version
        if now is not None:
            return now.state
        if not self._outcomes:
            return replica.sync(ledger, 0)
        replica.file = frozen_file(self._outcomes)
        stores = ledger.place is not None and not replica.host
        content = ledger.stored(replica.file) if stores else None
        about = replica.like(), ledger, replica.setup.description, replica.file
        found = None if content is None else unpack(content, *about)
        if found is not None:
            replica.version = replica.restored(found)
            return replica.version.state
        state = replica.sync(ledger, self._outcomes)
        if stores:
            ledger.store(replica.file, replica.packed(ledger))
        return state
