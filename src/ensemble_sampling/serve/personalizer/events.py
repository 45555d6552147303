"""Rank, reward and activate, of one slot and of several: the part that applications call."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ..engine import Choice, ChoiceRequest, Engine, Refused
from ..http.errors import Reply
from .calls import LONGEST, Call, answer, key_of, nothing
from .features import described

MOST = 50  # actions, or slots, of one request
REQUEST = "x-ms-client-request-id"  # a client that sends a request again says the same

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST)]
Features = list[dict[str, Any] | None] | None


class Action(Struct):
    id: Id
    features: Features = None


class Slot(Struct, rename="camel"):
    id: Id
    baseline_action: str
    features: Features = None
    excluded_actions: list[str] | None = None


class Rank(Struct, rename="camel"):
    actions: Annotated[list[Action], Meta(min_length=1, max_length=MOST)]
    context_features: Features = None
    excluded_actions: list[str] | None = None
    event_id: str | None = None
    defer_activation: bool | None = None


class RankSlots(Rank, kw_only=True):
    slots: Annotated[list[Slot], Meta(min_length=1, max_length=MOST)]


class Reward(Struct):
    value: float


class SlotReward(Struct, rename="camel"):
    slot_id: Id
    value: float


class SlotRewards(Struct):
    reward: list[SlotReward]


RANK, RANK_SLOTS = msgspec.json.Decoder(Rank), msgspec.json.Decoder(RankSlots)
REWARD, SLOT_REWARDS = msgspec.json.Decoder(Reward), msgspec.json.Decoder(SlotRewards)


async def rank(call: Call) -> Reply:
    body = call.body(RANK)
    event = body.event_id if body.event_id is not None else str(uuid.uuid4())
    actions, context = _offer(body, call)
    excluded = {*(body.excluded_actions or ())}
    free = [id for id in actions if id not in excluded]
    if not free:
        raise call.wrong("all actions are excluded", target="excludedActions")
    made = await _decide(
        call.engine,
        ChoiceRequest(
            actions,
            context,
            free if len(free) < len(actions) else None,
            key_of(event, call),
            deferred=bool(body.defer_activation),
        ),
    )
    ranking = [{"id": id, "probability": share} for id, share in ranked(made, excluded)]
    return answer({"ranking": ranking, "eventId": event, "rewardActionId": made.action}, 201)


def ranked(made: Choice, excluded: set[str]) -> Iterator[tuple[Any, float]]:
    """Actions and their probabilities: what was chosen first, then the most likely, those equally
    likely as they were offered; what was excluded stays in its place.

    It depends only on what is recorded, so that the same event again gets the same reply.
    """
    if made.names is None:  # of an old decision no more may be known
        yield made.action, made.probability
        return
    places, shares = range(len(made.names)), made.probabilities
    out = {at for at in places if made.names[at] in excluded and at != made.index}
    rest = [at for at in places if at not in out]
    order = iter(sorted(rest, key=lambda at: (at != made.index, -shares[at])))
    for place in places:
        at = place if place in out else next(order)
        yield made.names[at], float(shares[at])


async def rank_slots(call: Call) -> Reply:
    """Slot by slot: what one takes is not on offer to the next."""
    body = call.body(RANK_SLOTS)
    event = body.event_id if body.event_id is not None else str(uuid.uuid4())
    key = key_of(event, call)
    actions, context = _offer(body, call)
    _check_slots(body.slots, actions, call)
    everywhere, taken, slots = {*(body.excluded_actions or ())}, set(), []
    for slot in body.slots:
        around = context | {f"slot.{name}": v for name, v in _said(slot.features, call).items()}
        # The first action is what an apprentice takes: that of the application.
        first = {slot.baseline_action: actions[slot.baseline_action]} | actions
        out = everywhere | taken | {*(slot.excluded_actions or ())}
        free = [id for id in first if id not in out]
        chosen = None
        if free:
            some = free if len(free) < len(first) else None
            deferred = bool(body.defer_activation)
            around |= {"slot": slot.id}
            ask = ChoiceRequest(first, around, some, key, key_of(slot.id, call, "slots"), deferred)
            chosen = (await _decide(call.engine, ask)).action
            taken.add(chosen)
        slots.append({"id": slot.id, "rewardActionId": chosen})
    return answer({"slots": slots, "eventId": event}, 201)


def _check_slots(slots: Sequence[Slot], actions: dict[str, Any], call: Call) -> None:
    if len(slots) > len(actions):
        raise call.wrong(f"{len(slots)} slots, but only {len(actions)} actions", "slots")
    for what, ids in (
        ("id", [slot.id for slot in slots]),
        ("baselineAction", [slot.baseline_action for slot in slots]),
    ):
        if len({*ids}) < len(ids):
            raise call.wrong(f"every slot must have a {what} of its own, got {ids}", "slots")
    for at, slot in enumerate(slots):
        known = [slot.baseline_action, *(slot.excluded_actions or ())]
        if unknown := [id for id in known if id not in actions]:
            raise call.wrong(f"there are no actions {unknown}", f"slots[{at}]")
        if slot.baseline_action in known[1:]:
            raise call.wrong("the baselineAction must not be excluded", f"slots[{at}]")


def _offer(body: Rank, call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Descriptions of the actions by id, and of the context."""
    actions = {action.id: _said(action.features, call) for action in body.actions}
    if len(actions) < len(body.actions):
        raise call.wrong("every action must have an id of its own", target="actions")
    context = _said(body.context_features, call)
    call.limits.offer(actions, context)
    return actions, context


def _said(features: Features, call: Call) -> dict[str, Any]:
    try:
        return described(features)
    except ValueError as error:
        raise call.wrong(str(error), target="features") from error


async def _decide(engine: Engine, ask: ChoiceRequest) -> Choice:
    return (await engine.decide([ask]))[0]


async def reward(call: Call) -> Reply:
    body = call.body(REWARD)
    return nothing(await _learn(call, call.event, body.value))


async def reward_slots(call: Call) -> Reply:
    body = call.body(SLOT_REWARDS)
    event, told = call.event, []
    nth = defaultdict[str, count](count)  # reward of a slot
    for one in body.reward:
        id = f"{event}/{key_of(one.slot_id, call, 'slotId')}"
        told.append(_learn(call, id, one.value, next(nth[id])))
    return nothing("; ".join(filter(None, await asyncio.gather(*told))))


async def _learn(call: Call, id: str, value: float, nth: int = 0) -> str:
    """Learn a reward; why it is ignored, "" if it is not: its event is unknown, or it has another
    reward. Personalizer accepts those too, since it looks for their events only later.

    nth: number among the rewards of one request for one slot. As for several requests, the
    aggregation says whether the first counts or the sum ("Calling the Reward API multiple times").
    """
    engine, request = call.engine, call.request.headers.get(REQUEST)
    ref = f"{request} {nth}" if request and nth else request
    try:
        await engine.outcome([(id, value, ref)])
    except Refused as refused:
        if refused.kind not in ("unknown", "conflict"):
            raise
        return "unknown event" if refused.kind == "unknown" else "rewarded before"
    return ""


async def activate(call: Call) -> Reply:
    try:
        await asyncio.to_thread(call.engine.activate, call.event)
    except Refused as refused:
        if refused.kind != "unknown":
            raise
        return nothing("unknown event")
    return nothing()
