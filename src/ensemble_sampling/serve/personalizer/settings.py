"""How a bandit is served, what it has learned and what it has recorded, in Personalizer's terms."""

import asyncio
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ..engine import Engine, Refused, Settings
from ..http.errors import Reply
from .calls import LONGEST, Call, Problem, answer, nothing

EXPORTED = "PT1S"  # decisions follow what was learned within a second, whatever is asked for
KEPT = -1  # days: for ever
AGGREGATIONS = {"earliest": "first", "sum": "sum"}
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "apprentice"}
RECENT = 20  # decisions among which the last outcome is looked for


class Configuration(Struct, rename="camel"):
    """What a client sends. Personalizer's other settings are only in replies."""

    reward_wait_time: timedelta
    default_reward: float
    reward_aggregation: str
    exploration_percentage: Annotated[float, Meta(ge=0, le=1)]
    model_export_frequency: timedelta
    log_retention_days: int
    model_retrain_days: int | None = None
    learning_mode: str | None = None
    is_auto_optimization_enabled: bool | None = None
    log_mirror_enabled: bool | None = None


class Policy(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    arguments: Annotated[str, Meta(max_length=1024)] = ""


CONFIGURATION, POLICY = msgspec.json.Decoder(Configuration), msgspec.json.Decoder(Policy)


async def get_configuration(call: Call) -> Reply:
    return answer(_configuration(call.engine.settings))


async def put_configuration(call: Call) -> Reply:
    """Reply with the settings that hold; those that are not offered are refused, not ignored."""
    body = call.body(CONFIGURATION)
    wait, mode = body.reward_wait_time.total_seconds(), body.learning_mode
    refusals = {
        "rewardWaitTime": wait < 0,
        "rewardAggregation": body.reward_aggregation.lower() not in AGGREGATIONS,
        "learningMode": mode is not None and mode not in MODES,
    }
    for target, wrong in refusals.items():
        if wrong:
            allowed = {"rewardAggregation": AGGREGATIONS, "learningMode": MODES}.get(target)
            what = f"one of {', '.join(allowed)}" if allowed else "0 or more"
            raise call.wrong(f"{target} must be {what}", target)
    if body.log_retention_days != KEPT:
        raise Problem(
            400,
            "InvalidLogRetentionDays",
            f"logs are kept for ever, which is logRetentionDays {KEPT}: they are what the model "
            f"can be rebuilt from; got {body.log_retention_days}",
            "logRetentionDays",
        )
    for target, wanted in (
        ("isAutoOptimizationEnabled", body.is_auto_optimization_enabled),
        ("logMirrorEnabled", body.log_mirror_enabled),
        ("modelRetrainDays", body.model_retrain_days),
    ):
        if wanted:
            raise call.wrong(f"{target} is not offered here: leave it out", target)
    before = call.engine.settings
    settings = replace(
        before,
        wait=wait or None,
        default=body.default_reward,
        aggregation=AGGREGATIONS[body.reward_aggregation.lower()],
        mode=before.mode if mode is None else MODES[mode],
        floor=body.exploration_percentage,
    )
    await asyncio.to_thread(call.engine.configure, settings)
    return answer(_configuration(settings))


def _configuration(settings: Settings) -> dict[str, Any]:
    by = {ours: theirs for theirs, ours in AGGREGATIONS.items()}
    return {
        "rewardWaitTime": duration(settings.wait or 0.0),
        "defaultReward": settings.default,
        "rewardAggregation": by[settings.aggregation],
        "explorationPercentage": settings.floor,
        "modelExportFrequency": EXPORTED,
        "logRetentionDays": KEPT,
        "modelRetrainDays": 0,
        "learningMode": "Online" if settings.mode == "online" else "Apprentice",
        "isAutoOptimizationEnabled": False,
        "logMirrorEnabled": False,
    }


def duration(seconds: float) -> str:
    """As ISO 8601 has it: 600 seconds are PT10M."""
    whole, rest = divmod(seconds, 60)
    days, minutes = divmod(int(whole), 24 * 60)
    parts = [(minutes // 60, "H"), (minutes % 60, "M"), (rest, "S")]
    time = "".join(f"{number:.9g}{unit}" for number, unit in parts if number)
    return f"P{days}D" * bool(days) + (
        f"{'' if days else 'P'}T{time or '0S'}" * bool(time or not days)
    )


async def get_policy(call: Call) -> Reply:
    return answer(await asyncio.to_thread(policy_of, call.engine))


def policy_of(engine: Engine) -> dict[str, str]:
    name, about = engine.in_charge()
    return {"name": name, "arguments": about[:1024]}


async def put_policy(call: Call) -> Reply:
    """A candidate's name puts it in charge; arguments of Vowpal Wabbit mean nothing here."""
    body = call.body(POLICY)
    return answer(await asyncio.to_thread(promote, call.engine, body.name))


async def reset_policy(call: Call) -> Reply:
    return answer(await asyncio.to_thread(promote, call.engine, "default"))


def promote(engine: Engine, name: str) -> dict[str, str]:
    """Put a candidate in charge, which has learned all that is recorded."""
    if name != engine.in_charge()[0]:
        if name not in engine.candidates():
            known = ", ".join(map(repr, engine.candidates())) or "none"
            raise Refused("invalid", f"there is no agent {name!r}; candidates are: {known}")
        engine.shadow(name)
        engine.promote(name)
    return policy_of(engine)


async def get_model(call: Call) -> Reply:
    """What was learned, as safetensors. It holds no code, so there is nothing to sign."""
    content = await asyncio.to_thread(call.engine.export_state)
    return Reply(200, content, b"application/octet-stream")


async def put_model(call: Call) -> Reply:
    try:
        await asyncio.to_thread(call.engine.import_state, call.content)
    except Refused as refused:
        if refused.kind != "conflict":
            raise
        raise Problem(403, "InvalidApiAccess", str(refused)) from refused
    return nothing()


async def get_model_properties(call: Call) -> Reply:
    return answer(await asyncio.to_thread(_model_properties, call.engine))


def _model_properties(engine: Engine) -> dict[str, str]:
    count = engine.summary()["decisions"]
    if not count:
        return {}
    first = engine.page(0, 1)[0]["time"][0]
    parts = engine.pages(max(0, count - RECENT), RECENT)
    last = max((at for part in parts for at in part["learned"] if at is not None), default=first)
    return {"creationTime": moment(first), "lastModifiedTime": moment(last)}


async def get_log_properties(call: Call) -> Reply:
    return answer(await asyncio.to_thread(_log_properties, call.engine))


def _log_properties(engine: Engine) -> dict[str, Any]:
    count = engine.summary()["decisions"]
    if not count:
        raise Problem(404, "LogsPropertiesNotFound", "nothing has been decided yet")
    times = [engine.page(at, 1)[0]["time"][0] for at in (0, count - 1)]
    first, last = map(moment, times)
    return {"dateRange": {"from": first, "to": last}, "count": count}


def moment(seconds: float) -> str:
    """A time as JSON has it, in UTC and to the second, rounded down."""
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def not_offered(call: Call) -> Reply:
    raise Problem(
        403,
        "InvalidApiAccess",
        "this is not offered: logs are what a model can be rebuilt from, and are neither deleted "
        "nor written by clients; to begin anew, begin another bandit",
    )


async def no_operation(call: Call) -> Reply:
    what = f"{call.request.method} {call.id}"
    raise Problem(404, "ResourceNotFound", f"Personalizer's API has no {what}, or we have it not")
