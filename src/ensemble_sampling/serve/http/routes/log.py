"""What is recorded: the log, and what it comes to."""

import asyncio
from typing import Any

from ....evaluation.evaluate import evaluate
from ....evaluation.log import Log
from ....evaluation.results import Comparison
from ....files import Damaged
from ....ledger.sqlite import public
from ...engine import Refused
from .. import types
from ..operation import BANDIT, Call, Range, operation


@operation(
    "GET",
    f"{BANDIT}/log",
    "read",
    query={
        "first": Range(0, 0, 2**53, "the number of the first decision"),
        "count": Range(100, 1, 1000, "how many at most; fewer come where they take much room"),
    },
)
async def log(call: Call) -> types.Page:
    """Decisions, what was on offer, propensities and outcomes, page by page."""
    first, count = call.query["first"], call.query["count"]
    columns, more = await asyncio.to_thread(call.engine.page, first, count)
    found = len(columns["id"])
    return types.Page(first, found, first + found if more else None, columns)


@operation("GET", f"{BANDIT}/summary", "read")
async def summary(call: Call) -> dict[str, Any]:
    """How it is doing."""
    return await asyncio.to_thread(call.engine.summary)


@operation("GET", f"{BANDIT}/status", "read")
async def status(call: Call) -> dict[str, Any]:
    """Where the process that answers stands; `latency` in milliseconds."""
    found = await asyncio.to_thread(call.engine.status)
    return {**found, "latency": call.metrics.latency(call.name)}


@operation(
    "GET", f"{BANDIT}/history", "read", query={"buckets": Range(60, 1, 1000, "into how many parts")}
)
async def history(call: Call) -> list[dict[str, Any]]:
    """Decisions over time, oldest first."""
    return await asyncio.to_thread(call.engine.history, call.query["buckets"])


@operation("GET", f"{BANDIT}/recent", "read", query={"count": Range(20, 1, 200, "how many")})
async def recent(call: Call) -> list[dict[str, Any]]:
    """The last decisions and why, newest first."""
    return await asyncio.to_thread(call.engine.recent, call.query["count"])


@operation(
    "POST",
    f"{BANDIT}/evaluate",
    "read",
    body=types.Evaluate,
    refusals=(409,),
    example={"candidates": ["bold"], "baseline": "logged"},
)
async def judge(call: Call) -> types.Evaluation:
    """What candidates would have earned on the log."""
    service, known = call.service, call.service.agents.candidates
    names = list(known) if call.body.candidates is None else call.body.candidates
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"there are no candidates {unknown}" if unknown else "there are no candidates"
        raise Refused("unknown", f"{what}; `serve --agents FILE` has CANDIDATES {list(known)}")
    if service.evaluating.locked():
        raise Refused("conflict", "an evaluation is going on; one is done at a time")
    ledger, given = service.storage.ledger(call.name), {name: known[name] for name in names}
    async with service.evaluating:
        found = await asyncio.to_thread(_evaluate, ledger, given, call.body.baseline)
    return types.Evaluation(found.columns(), str(found))


def _evaluate(ledger: Any, candidates: dict[str, Any], baseline: str) -> Comparison:
    try:
        return evaluate(Log.of(ledger), candidates, baseline=baseline)
    except Damaged:
        raise
    except (TypeError, ValueError) as error:  # a log or a candidate that cannot be evaluated
        said = str(error).replace(public(ledger), "the log")  # callers need not know where it is
        raise Refused("invalid", said) from error


OPERATIONS = (log, summary, status, history, recent, judge)
