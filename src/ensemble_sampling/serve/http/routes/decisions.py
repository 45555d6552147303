"""Decisions: made and recorded, or only predicted."""

import asyncio

import msgspec

from ...engine import Choice, ChoiceRequest, Refused
from .. import types
from ..limits import Limits
from ..operation import BANDIT, Call, operation

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


@operation(
    "POST",
    f"{BANDIT}/choose",
    "decide",
    body=types.ChooseBody,
    bodies=(types.Choose, types.ChooseMany),
    refusals=(409,),
    decides=True,
    example={**OFFER, "event": "visit-4711"},
    answered=MADE,
)
async def choose(call: Call) -> types.Decision | types.Decisions:
    """Choose among actions, once or several times; on disk when it is answered."""
    given, limits = call.body, call.service.limits
    if given.decisions is None:
        return _reply((await call.engine.decide([_ask(given, limits)]))[0])
    if msgspec.structs.replace(given, decisions=None) != types.ChooseBody():
        raise Refused("invalid", "give either `decisions` or one decision's own fields, not both")
    limits.count("decisions", len(given.decisions))
    asks = [_ask(one, limits) for one in given.decisions]
    made = await call.engine.decide(asks) if asks else []
    return types.Decisions([_reply(one) for one in made])


def _ask(given: types.Choose, limits: Limits) -> ChoiceRequest:
    limits.offer(given.actions, given.context)
    return ChoiceRequest(
        given.actions, given.context, given.available, given.event, given.slot, given.deferred
    )


def _reply(made: Choice) -> types.Decision:
    return types.Decision(
        made.id,
        made.event,
        made.slot,
        made.index,
        made.action,
        made.probability,
        None if made.names is None else list(made.names),
        made.probabilities.tolist(),
        None if made.mean is None else made.mean.tolist(),
        None if made.spread is None else made.spread.tolist(),
        made.time,
        made.again,
    )


@operation(
    "POST",
    f"{BANDIT}/predict",
    "decide",
    body=types.Offer,
    example=OFFER,
    answered={name: MADE[name] for name in ("actions", "probabilities", "mean", "spread")},
)
async def predict(call: Call) -> types.Prediction:
    """What a decision would be made of; nothing is recorded."""
    given = call.body
    call.service.limits.offer(given.actions, given.context)
    ask = ChoiceRequest(given.actions, given.context, given.available)
    found = await asyncio.to_thread(call.engine.predict, ask)
    names = None if found["names"] is None else list(found["names"])
    return types.Prediction(names, found["probabilities"], found["mean"], found["spread"])


OPERATIONS = (choose, predict)
