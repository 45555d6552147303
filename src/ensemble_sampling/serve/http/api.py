"""The operations of the service's own API."""

import asyncio
from typing import Any

import msgspec
from msgspec import structs

from ...decide.lift import Lift
from ...decide.metrics import Metric
from ...decide.segments import Segments
from ...evaluation.evaluate import evaluate
from ...evaluation.log import Log
from ...files import Damaged
from ...ledger.sqlite import public
from .. import admin, outcomes, types
from ..storage import by_name
from ..types import Refused
from . import metrics
from .keys import SCOPES
from .operation import Call, Operation, Range, Reply, operation, who

OFFER = {
    "actions": {"news": {"kind": "politics", "age": 2}, "match": {"kind": "sport", "age": 1}},
    "context": {"device": "phone"},
}
WEIGHED = {
    "actions": ["news", "match"],
    "probabilities": [0.25, 0.75],
    "mean": [0.31, 0.42],
    "spread": [0.2, 0.15],
}
MADE = {
    "id": "4f0c1e2a9b7d-17",
    "event": "visit-4711",
    "slot": "",
    "index": 1,
    "action": "match",
    "probability": 0.75,
    **WEIGHED,
    "time": 1790000000.0,
    "again": False,
}
SUCCESS = {"id": "visit-4711", "outcome": 1.0}
FAILURE = {"id": "visit-4711", "outcome": 0.0}
RETURNED = {"id": "visit-4711", "values": {"margin": 3.2, "returned": 0}}
ORDER = {"id": "visit-4711", "amount": 12.5, "ref": "order-1"}


@operation(
    "POST",
    "choose",
    "decide",
    409,
    bodies=(types.Choose, types.ChooseMany),
    decides=True,
    example={**OFFER, "event": "visit-4711"},
    answered=MADE,
)
async def choose(call: Call, body: types.ChooseBody) -> types.Decision | types.Decisions:
    """Choose among actions, once or several times; on disk when it is answered."""
    limits, several = call.service.limits, body.decisions
    if several is not None and structs.replace(body, decisions=None) != types.ChooseBody():
        raise Refused("invalid", "give either `decisions` or one decision's own fields, not both")
    choices = [body] if several is None else several
    limits.count("decisions", len(choices))
    for one in choices:
        limits.offer(one.actions, one.context)
    made = await call.engine.decide(choices)
    return made[0] if several is None else types.Decisions(made)


@operation("POST", "predict", "decide", example=OFFER, answered=WEIGHED)
def predict(call: Call, body: types.Offer) -> types.Prediction:
    """What a decision would be made of; nothing is recorded."""
    call.service.limits.offer(body.actions, body.context)
    return call.engine.decider.predict(body)


@operation(
    "POST",
    "outcome",
    "learn",
    409,
    bodies=(types.Learn, types.LearnMany),
    example=SUCCESS,
    answered={"new": True},
)
async def outcome(call: Call, body: types.LearnBody) -> types.New:
    """Report outcomes of decisions; one that is sent twice counts once."""
    if body.outcomes is None:
        if body.id is None or body.outcome is None:
            raise Refused("invalid", "give `id` and `outcome`, or `outcomes`, a list of both")
        one = types.Learn(body.id, body.outcome, body.ref)
        return types.New((await call.engine.learn([one]))[0])
    if body.id is not None or body.outcome is not None:
        raise Refused("invalid", "give either `outcomes` or one `id` and `outcome`, not both")
    call.service.limits.count("decisions", len(body.outcomes))
    return types.New(await call.engine.learn(body.outcomes))


@operation("POST", "correct", "learn", 409, example=FAILURE, answered={"changed": True})
def correct(call: Call, body: types.Correct) -> types.Changed:
    """The outcome of a decision turned out to be another."""
    return types.Changed(outcomes.correct(call.engine.replicas, body.id, body.outcome))


@operation("POST", "add", "learn", 409, example=ORDER, answered={"new": True})
def add(call: Call, body: types.Add) -> types.New:
    """Add to the outcome of a decision, which begins at 0."""
    return types.New(outcomes.add(call.engine.replicas, body.id, body.amount, body.ref))


@operation(
    "POST",
    "expire",
    "learn",
    409,
    example={"older_than": 3600, "outcome": 0.0},
    answered={"expired": 3},
)
def expire(call: Call, body: types.Expire) -> types.Expired:
    """Assume an outcome for decisions whose own never came."""
    return types.Expired(outcomes.expire(call.engine.replicas, body.older_than, body.outcome))


@operation("POST", "observe", "learn", example=RETURNED, answered={"new": True})
def observe(call: Call, body: types.Observe) -> types.New:
    """What else came of a decision, numbers by name: compared, and kept within bounds."""
    return types.New(outcomes.observe_metrics(call.engine.replicas, body.id, body.values))


PAGE = {
    "first": Range(0, 0, 2**53, "the number of the first decision"),
    "count": Range(100, 1, 1000, "how many at most; fewer come where they take much room"),
}


@operation("GET", "log", "read", query=PAGE)
def log(call: Call) -> types.Page:
    """Decisions, what was on offer, propensities and outcomes, page by page."""
    return call.engine.reader.page(call.query["first"], call.query["count"])


SINCE = {"since": Range(0, 0, 2**40, "seconds since 1970, of decisions; 0: all")}
DAILY = {"daily": Range(0, 0, 1, "1: also day by day"), **SINCE}


@operation("GET", "lift", "read", query=DAILY)
def lift(call: Call) -> Lift:
    """What the bandit earns compared with the baseline that a part of decisions is left to."""
    return call.engine.reader.lift(None, call.query["daily"] == 1, call.query["since"])


@operation("GET", "metrics", "read", query=SINCE)
def observed(call: Call) -> list[Metric]:
    """What else came of decisions, with the bandit and without, and within its bounds or not."""
    return list(call.engine.reader.metrics(call.query["since"]))


@operation("GET", "metrics/{metric}", "read", query=DAILY)
def metric(call: Call) -> Lift:
    """The values of a metric with the bandit and without."""
    daily, since = call.query["daily"] == 1, call.query["since"]
    return call.engine.reader.lift(call.params["metric"], daily, since)


@operation("GET", "segments/{key}", "read", query=SINCE)
def segments(call: Call) -> Segments:
    """Reward, lift, actions and exploration by what contexts say under a key."""
    return call.engine.reader.segments(call.params["key"], call.query["since"])


@operation("GET", "changes", "read")
def changes(call: Call) -> list[dict[str, Any]]:
    """What was changed of settings and shadows, when and by whom."""
    return call.engine.reader.changes()


@operation("GET", "summary", "read")
def summary(call: Call) -> dict[str, Any]:
    """Decisions, outcomes and rewards so far, shadows and warnings."""
    return call.engine.reader.summary()


@operation("GET", "status", "read")
def status(call: Call) -> dict[str, Any]:
    """The state of the bandit in the process that answers; `latency` in milliseconds."""
    return call.engine.status()


PERIOD = {
    "buckets": Range(60, 1, 1000, "into how many parts"),
    "since": Range(0, 0, 2**40, "seconds since 1970; 0: from where decisions are dense"),
}


@operation("GET", "history", "read", query=PERIOD)
def history(call: Call) -> list[dict[str, Any]]:
    """Decisions over time, oldest first."""
    return call.engine.reader.history(call.query["buckets"], call.query["since"] or None)


@operation("GET", "recent", "read", query={"count": Range(20, 1, 200, "how many")})
def recent(call: Call) -> list[dict[str, Any]]:
    """The last decisions and why, newest first."""
    return call.engine.reader.recent(call.query["count"])


@operation("GET", "explain/{decision}", "read", query={"top": Range(5, 1, 100, "how many fields")})
def explain(call: Call) -> dict[str, Any]:
    """Why a decision was made: the fields that spoke most for the chosen action, and against the
    next best one, by what is known now."""
    return call.engine.reader.explain(call.params["decision"], call.query["top"])


@operation("POST", "evaluate", "read", 409, example={"candidates": ["bold"], "baseline": "logged"})
def judge(call: Call, body: types.Evaluate) -> types.Evaluation:
    """What candidates would have earned on the log."""
    service, known = call.service, call.engine.replicas.candidates
    names = list(known) if body.candidates is None else body.candidates
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"there are no candidates {unknown}" if unknown else "there are no candidates"
        raise Refused("unknown", f"{what}; `serve --agents FILE` has CANDIDATES {list(known)}")
    if not service.evaluating.acquire(blocking=False):
        raise Refused("conflict", "an evaluation is going on; one is done at a time")
    ledger, candidates = service.storage.ledger(call.name), {name: known[name] for name in names}
    try:
        found = evaluate(Log.of(ledger), candidates, baseline=body.baseline)
    except Damaged:
        raise
    except (TypeError, ValueError) as error:  # a log or a candidate that cannot be evaluated
        said = str(error).replace(public(ledger), "the log")  # callers need not know where it is
        raise Refused("invalid", said) from error
    finally:
        service.evaluating.release()
    return types.Evaluation(found.columns(), str(found))


@operation("GET", "", "read")
def about(call: Call) -> types.Bandit:
    """A bandit."""
    replicas = call.engine.replicas
    return types.Bandit(call.name, replicas.settings, list(replicas.candidates))


@operation(
    "PUT",
    "",
    "admin",
    409,
    optional=True,
    creates=True,
    status=201,
    others=(200,),
    example={"actions": ["red", "green"], "floor": 0.05},
)
async def create(call: Call, body: types.Create) -> types.Bandit:
    """Begin a bandit; one that is there already is left as it is."""
    given = body or types.Create()
    new = await call.service.create(call.name, given.actions, given.floor)
    if not new and given != types.Create():
        raise Refused(
            "conflict", f"there is a bandit {call.name!r} already: begin it without a body"
        )
    call.status, call.engine = 201 if new else 200, await call.service.find(call.name)
    if new:
        await asyncio.to_thread(admin.begun, call.engine.replicas, structs.asdict(given), who(call))
    return about.run(call)


@operation("GET", "settings", "read")
def settings(call: Call) -> types.Settings:
    """The settings of a bandit."""
    return call.engine.replicas.settings


SOME = {"wait": 600, "default": 0.0, "floor": 0.05}


@operation("PATCH", "settings", "admin", 409, example=SOME)
def configure(call: Call, body: types.Settings) -> types.Settings:
    """Change settings of a bandit: those that are given, and no others."""
    given = {name: getattr(body, name) for name in msgspec.json.decode(call.content)}
    admin.configure(call.engine.replicas, given, who(call))
    return call.engine.replicas.settings


@operation("PUT", "settings", "admin", 409, example=SOME)
def put_settings(call: Call, body: types.Settings) -> types.Settings:
    """The same as PATCH: what is not given stays as it is."""
    return configure.run(call, body)


@operation("POST", "resume", "admin", answered={"changed": True})
def resume(call: Call) -> types.Changed:
    """Let the bandit decide again after the bound of a metric was broken."""
    return types.Changed(admin.resume_agent(call.engine.replicas, who(call)))


@operation(
    "POST",
    "erase",
    "admin",
    409,
    example={"subject": "customer-17"},
    answered={"erased": 3, "known": 0},
)
def erase(call: Call, body: types.Erase) -> types.Erased:
    """Remove all that was said in decisions about a subject, and what came of them."""
    return admin.erase(call.engine.replicas, body.subject, body.keep, who(call))


@operation("GET", "/v1/key", "read", answered={"scopes": ["read"], "bandit": None})
async def key(call: Call) -> types.KeyScopes:
    """What the key of the request allows; where no key is asked for, everything."""
    if call.key is None:
        return types.KeyScopes([*SCOPES], None)
    return types.KeyScopes([s for s in SCOPES if call.key.allows(s)], call.key.bandit)


@operation("GET", "/v1/bandits", "read")
def bandits(call: Call) -> types.Bandits:
    """The bandits there are."""
    call.service.check_ready()
    only = None if call.key is None else call.key.bandit
    return types.Bandits([n for n in call.service.storage.names() if only in (None, n)])


@operation("GET", "shadows", "read")
def shadows(call: Call) -> types.Shadows:
    """The candidates, and how the shadows among them do."""
    watching = call.engine.reader.summary()["shadows"]
    return types.Shadows(list(call.engine.replicas.candidates), list(watching))


@operation("POST", "shadows", "admin", 409, example={"name": "bold"})
def shadow(call: Call, body: types.Shadow) -> None:
    """Make a candidate a shadow."""
    admin.shadow(call.engine.replicas, body.name, who(call))


@operation("DELETE", "shadows/{shadow}", "admin", 409)
def dismiss(call: Call) -> None:
    """Remove a shadow; its opinions are kept."""
    admin.dismiss(call.engine.replicas, call.params["shadow"], who(call))


@operation("POST", "shadows/{shadow}/promote", "admin", 409)
def promote(call: Call) -> None:
    """Put a shadow in charge."""
    admin.promote(call.engine.replicas, call.params["shadow"], who(call))


@operation("GET", "/healthz", None)
async def healthy(call: Call) -> types.Health:
    """Whether the process lives."""
    return types.Health("ok")


@operation("GET", "/readyz", None, 503)
async def ready(call: Call) -> types.Health:
    """Whether it decides."""
    service = call.service
    if service.ready and not service.away:
        return types.Health("ok", len(service.failed))
    call.status = 503
    return types.Health("away" if service.ready else "starting")


@operation("GET", "/metrics", "read")
async def measures(call: Call) -> Reply:
    """Counts for Prometheus."""
    if call.key is not None and call.key.bandit is not None:
        raise Refused("unknown", "a key for one bandit does not see what all do")
    engines = call.service.engines
    states = {name: engines[name].status() for name in sorted(engines, key=by_name)}
    return Reply(200, metrics.page(states), metrics.MEDIA)


OPERATIONS = tuple(each for each in list(vars().values()) if isinstance(each, Operation))
