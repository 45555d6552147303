"""What the service is asked, what it answers and what it refuses, as types that are also JSON."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ..decide.outcomes import Conflict
from ..decide.shadows import Unknown
from ..files import Damaged

STATUS = {
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "unknown": 404,
    "conflict": 409,
    "too_large": 413,
    "too_many": 429,
    "failed": 500,
    "unavailable": 503,
}
Headers = tuple[tuple[bytes, bytes], ...]
CLOSE: Headers = ((b"connection", b"close"),)  # the rest of the request is not read


class Refused(Exception):
    """A request that cannot be met.

    kind: one of STATUS, which has the status of the reply unless another is given.
    """

    def __init__(self, kind: str, message: str, headers: Headers = (), status: int | None = None):
        super().__init__(message)
        self.kind, self.headers = kind, headers
        self.status = STATUS[kind] if status is None else status


@contextmanager
def refusing() -> Iterator[None]:
    """Around what reads a request, and nothing else: its errors are mistakes in the request."""
    try:
        yield
    except Damaged:
        raise
    except Conflict as error:
        raise Refused("conflict", str(error)) from error
    except Unknown as error:
        raise Refused("unknown", str(error)) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("invalid", str(error)) from error


# Python's $ lets a newline follow, \Z does not; `openapi` writes $, which is strict in JSON Schema.
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}\Z")]
Word = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^/\x00-\x1f\x7f]+\Z")]
Slot = Annotated[str, Meta(max_length=256, pattern=r"^[^/\x00-\x1f\x7f]*\Z")]
Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=520,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="Of a decision, or its event, or event/slot.",
    ),
]
Described = Annotated[
    dict[str, Any] | list[Any] | str | float | None,
    Meta(description="An action or a context: an object, text, or a row of numbers."),
]
Actions = dict[str, Described] | list[Described]
Available = dict[str, bool] | list[str | bool | float]
Label = str | int | float | bool
Outcome = float | list[float]
Values = Annotated[dict[str, float], Meta(max_length=50)]
Bound = Annotated[
    list[str | float],
    Meta(min_length=2, max_length=2, description='Of a mean: `["<=", 0.05]` or `[">=", 3]`.'),
]
Share = Annotated[float, Meta(ge=0, le=1)]
Days = Annotated[float, Meta(gt=0, le=36_500)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]


class Body(Struct, forbid_unknown_fields=True):
    """What a caller sends; an unknown field is refused."""


class Offer(Body):
    """What may be chosen."""

    actions: Actions | None = None
    context: Described = None
    available: Available | None = None


class Choose(Offer):
    """One decision to be made. The same `event` again gets the same answer.

    `slot` is which of several decisions of one event it is. For one that is `deferred`, no outcome
    is assumed before it is activated. `subject` is whom it is about, see `Erase`.

    `made_at`: when the caller made it by itself, since the service was away, in seconds since 1970.
    The one action that is available is what it took. It is recorded as made for certain by somebody
    else: neither the bandit nor the control group is compared by it.
    """

    event: Word | None = None
    slot: Slot = ""
    deferred: bool = False
    subject: Word | None = None
    made_at: Annotated[float, Meta(ge=0, le=1e11)] | None = None


class ChooseMany(Body):
    """Several decisions, all of them made or none."""

    decisions: list[Choose]


class ChooseBody(Choose):
    """Either of the two."""

    decisions: list[Choose] | None = None


class Learn(Body):
    """What came of a decision; metrics by name, where the reward is made of them. Where outcomes
    add up, the same `ref` twice counts once."""

    id: Id
    outcome: Outcome | Values
    ref: Word | None = None


class LearnMany(Body):
    """Several outcomes, all of them recorded or none."""

    outcomes: list[Learn]


class LearnBody(Body):
    """Either of the two."""

    id: Id | None = None
    outcome: Outcome | Values | None = None
    ref: Word | None = None
    outcomes: list[Learn] | None = None


class Correct(Body):
    """The outcome of a decision turned out to be another."""

    id: Id
    outcome: Outcome


class Add(Body):
    """More came of a decision; the same `ref` twice counts once."""

    id: Id
    amount: Outcome
    ref: Word | None = None


class Expire(Body):
    """Assume `outcome` for decisions older than so many seconds whose own never came."""

    older_than: Seconds
    outcome: Outcome


class Create(Body):
    """A bandit to be begun, with the names of its actions where they are fixed."""

    actions: Annotated[list[str], Meta(min_length=1)] | None = None
    floor: Share | None = None


class Settings(Body):
    """The settings of a bandit, stored in its ledger.

    wait: seconds after which a decision without an outcome gets `default`; None: never.
    aggregation: "first": an outcome is final (a different second one is a conflict); "sum":
        outcomes of one decision add up.
    mode: "online": the agent decides; "apprentice": the first action available is taken, and the
        agent only says what it would have done.
    floor: the share of decisions left to chance, beside what the agent itself explores.
    retain: days for which decisions and what came of them are kept; None: for ever.
    holdback: the share of decisions, or of subjects where these are named, left to the baseline.
    baseline: "first" (that is available), "uniform", {"action": NAME}, "frozen" (the agent as it is
        now), {"frozen": DATE}, or "rule" (the function that `serve --agents` has for it).
    sticky: seconds for which a subject is given the same action again.
    guard: bounds of the means of metrics, {"returned": ["<=", 0.05]}.
    fallback: whether one that is broken leaves all decisions to the baseline, until `resume`.
    reward: the weights of metrics that it is made of, {"click": 1, "margin": 0.2}; empty: it is the
        outcome that is told. Other weights hold for decisions that were made before, too.
    """

    wait: Seconds | None = None
    default: float = 0.0
    aggregation: Literal["first", "sum"] = "first"
    mode: Literal["online", "apprentice"] = "online"
    floor: Share = 0.0
    retain: Days | None = None
    holdback: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    baseline: str | dict[str, Any] = "first"
    sticky: Seconds = 0.0
    guard: dict[str, Bound] = {}
    fallback: bool = False
    reward: Values = {}


class Observe(Body):
    """What else came of a decision, numbers by name; a value that is there is replaced."""

    id: Id
    values: Values


class Shadow(Body):
    """A candidate that is to become a shadow."""

    name: Word


class Erase(Body):
    """Remove what was said in decisions about a subject, see `Bandit.erase`; `keep`: the agent goes
    on knowing what it learned from them."""

    subject: Word
    keep: bool = False


class Evaluate(Body):
    """Candidates to be judged on the log; None: all there are."""

    candidates: list[Word] | None = None
    baseline: Word = "logged"


class Error(Struct):
    """What is wrong with a request."""

    code: Annotated[str, Meta(extra_json_schema={"enum": [*STATUS]})]
    message: str


class Failure(Struct):
    """The body of every answer that is not a success."""

    error: Error


class Decision(Struct):
    """A decision, on disk: what was chosen, and how likely each action was.

    `control`: whether it was left to the baseline; None where nothing is held back. `again`: it was
    made before, for the same event or subject; `index` is where its action is now.
    """

    id: str
    event: str | None
    slot: str
    index: int
    action: Label
    probability: float
    actions: list[Label] | None
    probabilities: list[float]
    mean: list[float | None] | None
    spread: list[float | None] | None
    time: float
    again: bool
    control: bool | None = None


class Decisions(Struct):
    decisions: list[Decision]


class New(Struct):
    """Whether the outcome was not known before; a list for several."""

    new: bool | list[bool]


class Changed(Struct):
    changed: bool


class Expired(Struct):
    expired: int


class Erased(Struct):
    """How many decisions were about the subject; `known`: of how many of them the state knows the
    outcome from before decisions were removed, and goes on knowing it."""

    erased: int
    known: int = 0


class Prediction(Struct):
    """What a decision would be made of."""

    actions: list[Label] | None
    probabilities: list[float]
    mean: list[float | None] | None
    spread: list[float | None] | None


class Page(Struct):
    """Part of a log as columns; `next` is the first decision after it, None at the end."""

    first: int
    count: int
    next: int | None
    columns: dict[str, list[Any]]


class KeyScopes(Struct):
    """What a key allows, and the only bandit it is for, if it is for one."""

    scopes: list[str]
    bandit: str | None


class Bandits(Struct):
    bandits: list[str]


class Bandit(Struct):
    name: str
    settings: Settings
    candidates: list[str]


class Shadows(Struct):
    candidates: list[str]
    shadows: list[dict[str, Any]]


class Evaluation(Struct):
    """What every candidate would have earned: the columns of a table, and the table as text."""

    columns: dict[str, list[Any]]
    text: str


class Health(Struct, omit_defaults=True):
    status: Literal["ok", "starting", "away"]
    unavailable: Annotated[int, Meta(description="Bandits whose last opening failed.")] = 0


def _plain(value: Any) -> Any:
    """NumPy's arrays and numbers as JSON has them; msgspec writes NaN as null."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


encoded = msgspec.json.Encoder(enc_hook=_plain).encode
