"""What came of decisions: learned, corrected, added to, or assumed."""

import asyncio

from ...engine import Refused
from .. import types
from ..operation import BANDIT, Call, operation


@operation(
    "POST",
    f"{BANDIT}/outcome",
    "learn",
    body=types.LearnBody,
    bodies=(types.Learn, types.LearnMany),
    refusals=(409,),
    example={"id": "visit-4711", "outcome": 1.0},
    answered={"new": True},
)
async def outcome(call: Call) -> types.New:
    """Say what came of decisions; the same told twice counts once."""
    given, several = call.body, call.body.outcomes
    if several is None:
        if given.id is None or given.outcome is None:
            raise Refused("invalid", "give `id` and `outcome`, or `outcomes`, a list of both")
        return types.New((await call.engine.outcome([(given.id, given.outcome, given.ref)]))[0])
    if given.id is not None or given.outcome is not None:
        raise Refused("invalid", "give either `outcomes` or one `id` and `outcome`, not both")
    call.service.limits.count("decisions", len(several))
    told = [(one.id, one.outcome, one.ref) for one in several]
    return types.New(await call.engine.outcome(told) if told else [])


@operation(
    "POST",
    f"{BANDIT}/correct",
    "learn",
    body=types.Correct,
    refusals=(409,),
    example={"id": "visit-4711", "outcome": 0.0},
    answered={"changed": True},
)
async def correct(call: Call) -> types.Changed:
    """The outcome of a decision turned out to be another."""
    given = call.body
    return types.Changed(await asyncio.to_thread(call.engine.correct, given.id, given.outcome))


@operation(
    "POST",
    f"{BANDIT}/add",
    "learn",
    body=types.Add,
    refusals=(409,),
    example={"id": "visit-4711", "amount": 12.5, "ref": "order-1"},
    answered={"new": True},
)
async def add(call: Call) -> types.New:
    """Add to the outcome of a decision, which begins at 0."""
    given = call.body
    return types.New(await asyncio.to_thread(call.engine.add, given.id, given.amount, given.ref))


@operation(
    "POST",
    f"{BANDIT}/expire",
    "learn",
    body=types.Expire,
    refusals=(409,),
    example={"older_than": 3600, "outcome": 0.0},
    answered={"expired": 3},
)
async def expire(call: Call) -> types.Expired:
    """Assume an outcome for decisions whose own never came."""
    given = call.body
    number = await asyncio.to_thread(call.engine.expire, given.older_than, given.outcome)
    return types.Expired(number)


OPERATIONS = (outcome, correct, add, expire)
