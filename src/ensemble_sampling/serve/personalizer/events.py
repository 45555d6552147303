"""Rank, reward and activate, of one slot and of several: the part that applications call."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any

from msgspec import Meta, Struct

from .. import outcomes
from ..http.operation import Call, Reply
from ..types import Choose, Decision, Learn, Refused
from .replies import ID_LETTERS, Problem, answer, key, nothing

ACTIONS = 50  # actions, or slots, of one request
DEEPEST = 16  # objects within objects, in features
REQUEST = b"x-ms-client-request-id"  # a client that sends a request again says the same

Id = Annotated[str, Meta(min_length=1, max_length=ID_LETTERS)]
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
    actions: Annotated[list[Action], Meta(min_length=1, max_length=ACTIONS)]
    context_features: Features = None
    excluded_actions: list[str] | None = None
    event_id: str | None = None
    defer_activation: bool | None = None


class RankSlots(Rank, kw_only=True):
    slots: Annotated[list[Slot], Meta(min_length=1, max_length=ACTIONS)]


class Reward(Struct):
    value: float


class SlotReward(Struct, rename="camel"):
    slot_id: Id
    value: float


class SlotRewards(Struct):
    reward: list[SlotReward]


async def rank(call: Call, body: Rank) -> Reply:
    event, actions, context = _asked(body, call)
    excluded = {*(body.excluded_actions or ())}
    asked = _choose(body, actions, context, excluded, key(event))
    if asked is None:
        raise Problem("all actions are excluded", "excludedActions")
    (made,) = await call.engine.decide([asked])
    ranking = [{"id": id, "probability": share} for id, share in ranked(made, excluded)]
    return answer({"ranking": ranking, "eventId": event, "rewardActionId": made.action}, 201)


def ranked(made: Decision, excluded: set[str]) -> Iterator[tuple[Any, float]]:
    """Actions and their probabilities: what was chosen first, then the most likely, those equally
    likely as they were offered; what was excluded stays in its place.

    It depends only on what is recorded, so that the same event again gets the same reply.
    """
    if made.actions is None:  # of an old decision no more may be known
        yield made.action, made.probability
        return
    places, shares = range(len(made.actions)), made.probabilities
    out = {at for at in places if made.actions[at] in excluded and at != made.index}
    rest = [at for at in places if at not in out]
    order = iter(sorted(rest, key=lambda at: (at != made.index, -shares[at])))
    for place in places:
        at = place if place in out else next(order)
        yield made.actions[at], shares[at]


async def rank_slots(call: Call, body: RankSlots) -> Reply:
    """Slot by slot: what one takes is not on offer to the next."""
    event, actions, context = _asked(body, call)
    known = key(event)
    _check_slots(body.slots, actions)
    excluded, slots = {*(body.excluded_actions or ())}, []
    for slot in body.slots:
        features = described(slot.features).items()
        around = context | {f"slot.{name}": value for name, value in features}
        # The first action is what an apprentice takes: that of the application.
        first = {slot.baseline_action: actions[slot.baseline_action]} | actions
        out = excluded | {*(slot.excluded_actions or ())}
        id = key(slot.id, "slots")
        asked = _choose(body, first, around | {"slot": slot.id}, out, known, id)
        chosen = None
        if asked is not None:
            chosen = (await call.engine.decide([asked]))[0].action
            excluded.add(str(chosen))
        slots.append({"id": slot.id, "rewardActionId": chosen})
    return answer({"slots": slots, "eventId": event}, 201)


def _choose(
    body: Rank,
    actions: dict[str, Any],
    context: dict[str, Any],
    excluded: set[str],
    event: str,
    slot: str = "",
) -> Choose | None:
    """The decision to be made, None where no action is left."""
    free: list[Any] = [id for id in actions if id not in excluded]
    available = free if len(free) < len(actions) else None
    deferred = bool(body.defer_activation)
    return Choose(actions, context, available, event, slot, deferred) if free else None


def _check_slots(slots: Sequence[Slot], actions: dict[str, Any]) -> None:
    if len(slots) > len(actions):
        raise Problem(f"{len(slots)} slots, but only {len(actions)} actions", "slots")
    for what, ids in (
        ("id", [slot.id for slot in slots]),
        ("baselineAction", [slot.baseline_action for slot in slots]),
    ):
        if len({*ids}) < len(ids):
            raise Problem(f"every slot must have a {what} of its own, got {ids}", "slots")
    for at, slot in enumerate(slots):
        known = [slot.baseline_action, *(slot.excluded_actions or ())]
        if unknown := [id for id in known if id not in actions]:
            raise Problem(f"there are no actions {unknown}", f"slots[{at}]")
        if slot.baseline_action in known[1:]:
            raise Problem("the baselineAction must not be excluded", f"slots[{at}]")


def _asked(body: Rank, call: Call) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The event, and descriptions of the actions by id and of the context."""
    event = body.event_id if body.event_id is not None else str(uuid.uuid4())
    actions = {action.id: described(action.features) for action in body.actions}
    if len(actions) < len(body.actions):
        raise Problem("every action must have an id of its own", "actions")
    context = described(body.context_features)
    call.service.limits.offer(actions, context)
    return event, actions, context


def described(features: Iterable[Mapping[str, Any] | None] | None) -> dict[str, Any]:
    """All values by the path to them: [{"user": {"age": 3}}] is {"user.age": 3}.

    Nested and flat descriptions are hashed alike, and a flat one is looked up more quickly. A list
    of numbers is a vector, one feature for each position; a path with several values has a list.
    """
    flat: dict[str, Any] = {}
    for part in features or ():
        _flatten("", part or {}, flat, 0)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, Any], depth: int) -> None:
    if depth > DEEPEST:
        raise Problem(f"features are nested more than {DEEPEST} deep", "features")
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(f"{key}.{name}" if key else name, inner, flat, depth + 1)
    elif isinstance(value, list):
        vector = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
        for at, one in enumerate(value):
            _flatten(f"{key}.{at}" if vector else key, one, flat, depth + 1)
    elif key in flat:
        known = flat[key]
        flat[key] = [*(known if isinstance(known, list) else [known]), value]
    else:
        flat[key] = value


async def reward(call: Call, body: Reward) -> Reply:
    return nothing(await _learn(call, key(call.params["id"]), body.value))


async def reward_slots(call: Call, body: SlotRewards) -> Reply:
    event, told = key(call.params["id"]), []
    nth = defaultdict[str, count](count)  # reward of a slot
    for one in body.reward:
        id = f"{event}/{key(one.slot_id, 'slotId')}"
        told.append(_learn(call, id, one.value, next(nth[id])))
    return nothing("; ".join(filter(None, await asyncio.gather(*told))))


async def _learn(call: Call, id: str, value: float, nth: int = 0) -> str:
    """Learn a reward; why it is ignored, "" if it is not: its event is unknown, or it has another
    reward. Personalizer accepts those too, since it looks for their events only later.

    nth: number among the rewards of one request for one slot. As for several requests, the
    aggregation says whether the first counts or the sum ("Calling the Reward API multiple times").
    """
    request = dict(call.scope["headers"]).get(REQUEST, b"").decode("latin-1")
    ref = f"{request} {nth}" if request and nth else request or None
    try:
        await call.engine.learn([Learn(id, value, ref)])
    except Refused as refused:
        if refused.kind not in ("unknown", "conflict"):
            raise
        return "unknown event" if refused.kind == "unknown" else "rewarded before"
    return ""


def activate(call: Call) -> Reply:
    try:
        outcomes.activate(call.engine.replicas, key(call.params["id"]))
    except Refused as refused:
        if refused.kind != "unknown":
            raise
        return nothing("unknown event")
    return nothing()
