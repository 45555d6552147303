"""Every operation of the service's own API: what it takes, does and answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import msgspec

from ..evaluation.evaluate import evaluate
from ..evaluation.log import Log
from ..files import Damaged
from ..ledger.sqlite import public
from . import messages as say
from .engine import Ask, Engine, Made, Refused, Settings
from .keys import Key
from .metrics import Metrics
from .service import Service

BANDIT = "/v1/bandits/{name}"


class Call(NamedTuple):
    """A request as an operation sees it."""

    service: Service
    metrics: Metrics
    key: Key | None
    name: str  # of the bandit, where the path says one
    path: dict[str, str]
    query: dict[str, int]
    body: Any

    @property
    def engine(self) -> Engine:
        return self.service.engine(self.name)


class Answer(NamedTuple):
    """An answer with another status than usual, or that is not JSON."""

    status: int
    value: Any = None
    text: str | None = None


class Range(NamedTuple):
    """A whole number that a query may give."""

    default: int
    low: int
    high: int
    about: str


@dataclass(frozen=True)
class Operation:
    """method and path, what it needs (a scope, or None), and what does it.

    body: as it is decoded; says: as it is documented, where that is clearer. Several types: one
        of them, as of answers.
    status, others: its usual status, and other successes.
    refusals: statuses beyond those every operation of its kind may give.
    example: of a body.
    """

    method: str
    path: str
    scope: str | None
    does: Callable[[Call], Awaitable[Any]]
    about: str
    answer: Any = None
    status: int = 200
    others: tuple[int, ...] = ()
    body: Any = None
    says: Any = None
    empty: bool = False  # the body may be left out
    query: dict[str, Range] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    begins: bool = False
    example: Any = None
    answered: Any = None


async def decide(call: Call) -> Any:
    given, limits = call.body, call.service.limits
    if given.decisions is None:
        return made((await call.engine.decide([_ask(given, call)]))[0])
    if msgspec.structs.replace(given, decisions=None) != say.DecideBody():
        raise Refused("invalid", "give either `decisions` or one decision's own fields, not both")
    limits.count("decisions", len(given.decisions))
    asks = [_ask(one, call) for one in given.decisions]
    several = await call.engine.decide(asks) if asks else []
    return say.MadeMany([made(one) for one in several])


def _ask(given: say.Decide, call: Call) -> Ask:
    call.service.limits.offer(given.actions, given.context)
    return Ask(
        given.actions, given.context, given.available, given.event, given.slot, given.deferred
    )


def made(one: Made) -> say.Made:
    return say.Made(
        one.id,
        one.event,
        one.slot,
        one.index,
        one.action,
        one.probability,
        None if one.names is None else list(one.names),
        one.probabilities.tolist(),
        None if one.mean is None else one.mean.tolist(),
        None if one.spread is None else one.spread.tolist(),
        one.time,
        one.again,
    )


async def outcome(call: Call) -> say.New:
    given = call.body
    if given.outcomes is None:
        if given.id is None or given.outcome is None:
            raise Refused("invalid", "give `id` and `outcome`, or `outcomes`, a list of both")
        one = say.Observe(given.id, given.outcome, given.ref)
        return say.New((await _observed(call, [one]))[0])
    if given.id is not None or given.outcome is not None:
        raise Refused("invalid", "give either `outcomes` or one `id` and `outcome`, not both")
    call.service.limits.count("decisions", len(given.outcomes))
    return say.New(await _observed(call, given.outcomes) if given.outcomes else [])


async def _observed(call: Call, given: list[say.Observe]) -> list[bool]:
    return await call.engine.outcome([(one.id, one.outcome, one.ref) for one in given])


async def correct(call: Call) -> say.Changed:
    given = call.body
    return say.Changed(await asyncio.to_thread(call.engine.correct, given.id, given.outcome))


async def add(call: Call) -> say.New:
    given = call.body
    return say.New(await asyncio.to_thread(call.engine.add, given.id, given.amount, given.ref))


async def expire(call: Call) -> say.Expired:
    given = call.body
    number = await asyncio.to_thread(call.engine.expire, given.older_than, given.outcome)
    return say.Expired(number)


async def predict(call: Call) -> say.Predicted:
    given = call.body
    call.service.limits.offer(given.actions, given.context)
    ask = Ask(given.actions, given.context, given.available)
    found = await asyncio.to_thread(call.engine.predict, ask)
    names = found["names"]
    return say.Predicted(
        None if names is None else list(names),
        found["probabilities"],
        found["mean"],
        found["spread"],
    )


async def log(call: Call) -> say.Page:
    first, count = call.query["first"], call.query["count"]
    columns, more = await asyncio.to_thread(call.engine.page, first, count)
    found = len(columns["id"])
    return say.Page(first, found, first + found if more else None, columns)


async def summary(call: Call) -> Any:
    return await asyncio.to_thread(call.engine.summary)


async def status(call: Call) -> Any:
    found = await asyncio.to_thread(call.engine.status)
    return {**found, "latency": call.metrics.latency(call.name)}


async def history(call: Call) -> Any:
    return await asyncio.to_thread(call.engine.history, call.query["buckets"])


async def recent(call: Call) -> Any:
    return await asyncio.to_thread(call.engine.recent, call.query["count"])


async def bandits(call: Call) -> say.Bandits:
    if not call.service.ready:
        raise Refused("unavailable", "the service is starting")
    only = None if call.key is None else call.key.bandit
    names = await asyncio.to_thread(lambda: call.service.names)
    return say.Bandits([name for name in names if only in (None, name)])


async def about(call: Call) -> say.Bandit:
    engine = call.engine
    settings = say.Configure(**asdict(engine.settings))
    return say.Bandit(call.name, settings, await asyncio.to_thread(engine.candidates))


async def create(call: Call) -> Any:
    given = call.body or say.Create()
    new = await call.service.create(call.name, given.actions, given.floor)
    if not new and (given.actions is not None or given.floor is not None):
        raise Refused(
            "conflict", f"there is a bandit {call.name!r} already: begin it without a body"
        )
    return Answer(201 if new else 200, await about(call))


async def settings(call: Call) -> say.Configure:
    return say.Configure(**asdict(call.engine.settings))


async def configure(call: Call) -> say.Configure:
    wanted = Settings(**msgspec.structs.asdict(call.body))
    await asyncio.to_thread(call.engine.configure, wanted)
    return call.body


async def shadows(call: Call) -> say.Shadows:
    found = await asyncio.to_thread(call.engine.summary)
    names = await asyncio.to_thread(call.engine.candidates)
    return say.Shadows(names, list(found.get("shadows", ())))


async def shadow(call: Call) -> None:
    names = await asyncio.to_thread(call.engine.candidates)
    if call.body.name not in names:
        raise Refused("unknown", f"there is no candidate {call.body.name!r}; there are {names}")
    await asyncio.to_thread(call.engine.shadow, call.body.name)


async def dismiss(call: Call) -> None:
    await _watching(call)
    await asyncio.to_thread(call.engine.dismiss, call.path["shadow"])


async def promote(call: Call) -> None:
    await _watching(call)
    await asyncio.to_thread(call.engine.promote, call.path["shadow"])


async def _watching(call: Call) -> None:
    found = await asyncio.to_thread(call.engine.summary)
    names = [each["name"] for each in found.get("shadows", ())]
    if call.path["shadow"] not in names:
        raise Refused("unknown", f"there is no shadow {call.path['shadow']!r}; there are {names}")


async def judge(call: Call) -> say.Judged:
    service, known = call.service, call.service.agents.candidates
    names = list(known) if call.body.candidates is None else call.body.candidates
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"there are no candidates {unknown}" if unknown else "there are no candidates"
        raise Refused("unknown", f"{what}; `serve --agents FILE` has CANDIDATES {list(known)}")
    if service.evaluating.locked():
        raise Refused("conflict", "an evaluation is going on; one is done at a time")
    where, given = service.place.where(call.name), {name: known[name] for name in names}
    async with service.evaluating:
        found = await asyncio.to_thread(_judged, where, given, call.body.baseline)
    return say.Judged(found.columns(), str(found))


def _judged(where: Any, given: dict[str, Any], baseline: str) -> Any:
    try:
        return evaluate(Log.of(where), given, baseline=baseline)
    except Damaged:
        raise
    except (TypeError, ValueError) as error:  # a log or a candidate that does not lend itself to it
        said = str(error).replace(public(where), "the log")  # where it is, is nobody's business
        raise Refused("invalid", said) from error


async def healthy(call: Call) -> say.Health:
    return say.Health("ok")


async def ready(call: Call) -> Any:
    if not call.service.ready:
        return Answer(503, say.Health("starting"))
    if call.service.away:
        return Answer(503, say.Health("away"))
    return say.Health("ok", len(call.service.failed))


async def measures(call: Call) -> Answer:
    if call.key is not None and call.key.bandit is not None:
        raise Refused("unknown", "a key for one bandit does not see what all do")
    states = {name: engine.status() for name, engine in call.service.engines.items()}
    return Answer(200, text=call.metrics.text(states))


OFFER = {
    "actions": {"news": {"kind": "politics", "age": 2}, "match": {"kind": "sport", "age": 1}},
    "context": {"device": "phone"},
}
MADE = {
    "id": "4f0c1e2a9b7d-17",
    "event": "visit-4711",
    "slot": "",
    "index": 1,
    "action": "match",
    "probability": 0.75,
    "actions": ["news", "match"],
    "probabilities": [0.25, 0.75],
    "mean": [0.31, 0.42],
    "spread": [0.2, 0.15],
    "time": 1790000000.0,
    "again": False,
}
FIRST = Range(0, 0, 2**53, "the number of the first decision")

OPERATIONS = (
    Operation(
        "POST",
        f"{BANDIT}/decide",
        "decide",
        decide,
        "Choose among actions, once or several times; on disk when it is answered.",
        (say.Made, say.MadeMany),
        body=say.DecideBody,
        says=(say.Decide, say.DecideMany),
        refusals=(409,),
        example={**OFFER, "event": "visit-4711"},
        answered=MADE,
    ),
    Operation(
        "POST",
        f"{BANDIT}/outcome",
        "learn",
        outcome,
        "Say what came of decisions; the same told twice counts once.",
        say.New,
        body=say.ObserveBody,
        says=(say.Observe, say.ObserveMany),
        refusals=(409,),
        example={"id": "visit-4711", "outcome": 1.0},
        answered={"new": True},
    ),
    Operation(
        "POST",
        f"{BANDIT}/correct",
        "learn",
        correct,
        "The outcome of a decision turned out to be another.",
        say.Changed,
        body=say.Correct,
        refusals=(409,),
        example={"id": "visit-4711", "outcome": 0.0},
        answered={"changed": True},
    ),
    Operation(
        "POST",
        f"{BANDIT}/add",
        "learn",
        add,
        "Add to the outcome of a decision, which begins at 0.",
        say.New,
        body=say.Add,
        refusals=(409,),
        example={"id": "visit-4711", "amount": 12.5, "ref": "order-1"},
        answered={"new": True},
    ),
    Operation(
        "POST",
        f"{BANDIT}/expire",
        "learn",
        expire,
        "Assume an outcome for decisions whose own never came.",
        say.Expired,
        body=say.Expire,
        refusals=(409,),
        example={"older_than": 3600, "outcome": 0.0},
        answered={"expired": 3},
    ),
    Operation(
        "POST",
        f"{BANDIT}/predict",
        "decide",
        predict,
        "What a decision would be made of; nothing is recorded.",
        say.Predicted,
        body=say.Offer,
        example=OFFER,
        answered={name: MADE[name] for name in ("actions", "probabilities", "mean", "spread")},
    ),
    Operation(
        "GET",
        f"{BANDIT}/log",
        "read",
        log,
        "Decisions, what was on offer, propensities and outcomes, page by page.",
        say.Page,
        query={
            "first": FIRST,
            "count": Range(100, 1, 1000, "how many at most; fewer come where they take much room"),
        },
    ),
    Operation("GET", f"{BANDIT}/summary", "read", summary, "How it is doing.", dict[str, Any]),
    Operation(
        "GET",
        f"{BANDIT}/status",
        "read",
        status,
        "Where the process that answers stands; `latency` in milliseconds.",
        dict[str, Any],
    ),
    Operation(
        "GET",
        f"{BANDIT}/history",
        "read",
        history,
        "Decisions over time, oldest first.",
        list[dict[str, Any]],
        query={"buckets": Range(60, 1, 1000, "into how many parts")},
    ),
    Operation(
        "GET",
        f"{BANDIT}/recent",
        "read",
        recent,
        "The last decisions and why, newest first.",
        list[dict[str, Any]],
        query={"count": Range(20, 1, 200, "how many")},
    ),
    Operation("GET", f"{BANDIT}/settings", "read", settings, "How it is served.", say.Configure),
    Operation(
        "PUT",
        f"{BANDIT}/settings",
        "admin",
        configure,
        "Serve it otherwise from now on.",
        say.Configure,
        body=say.Configure,
        refusals=(409,),
        example={"wait": 600, "default": 0.0, "floor": 0.05},
    ),
    Operation(
        "GET",
        f"{BANDIT}/shadows",
        "read",
        shadows,
        "Candidates, and how those do that watch.",
        say.Shadows,
    ),
    Operation(
        "POST",
        f"{BANDIT}/shadows",
        "admin",
        shadow,
        "Let a candidate watch from now on.",
        status=204,
        body=say.Shadow,
        refusals=(409,),
        example={"name": "bold"},
    ),
    Operation(
        "DELETE",
        BANDIT + "/shadows/{shadow}",
        "admin",
        dismiss,
        "Let a shadow go; what it said is kept.",
        status=204,
        refusals=(409,),
    ),
    Operation(
        "POST",
        BANDIT + "/shadows/{shadow}/promote",
        "admin",
        promote,
        "Put a shadow in charge.",
        status=204,
        refusals=(409,),
    ),
    Operation(
        "POST",
        f"{BANDIT}/evaluate",
        "read",
        judge,
        "What candidates would have earned on the log.",
        say.Judged,
        body=say.Evaluate,
        refusals=(409,),
        example={"candidates": ["bold"], "baseline": "logged"},
    ),
    Operation("GET", BANDIT, "read", about, "A bandit.", say.Bandit),
    Operation(
        "PUT",
        BANDIT,
        "admin",
        create,
        "Begin a bandit; one that is there already is left as it is.",
        say.Bandit,
        201,
        others=(200,),
        body=say.Create,
        empty=True,
        refusals=(409,),
        begins=True,
        example={"actions": ["red", "green"], "floor": 0.05},
    ),
    Operation("GET", "/v1/bandits", "read", bandits, "The bandits there are.", say.Bandits),
    Operation("GET", "/healthz", None, healthy, "Whether the process lives.", say.Health),
    Operation("GET", "/readyz", None, ready, "Whether it decides.", say.Health, refusals=(503,)),
    Operation("GET", "/metrics", "read", measures, "Counts for Prometheus.", str),
)
