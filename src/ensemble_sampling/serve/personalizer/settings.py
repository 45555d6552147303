"""How a bandit is served, what it has learned and what it has recorded, in Personalizer's terms."""

import math
from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from .. import admin
from ..engine import Engine
from ..http.operation import Call, Reply, who
from ..types import Refused
from .replies import ID_LETTERS, Problem, answer, nothing

EXPORTED = "PT1S"  # decisions follow what was learned within a second, whatever is asked for
KEPT = -1  # days: for ever
MOST_DAYS = 36_500
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
    name: Annotated[str, Meta(min_length=1, max_length=ID_LETTERS)]
    arguments: Annotated[str, Meta(max_length=1024)] = ""


def get_configuration(call: Call) -> Reply:
    settings = call.engine.replicas.settings
    by = {ours: theirs for theirs, ours in AGGREGATIONS.items()}
    return answer(
        {
            "rewardWaitTime": duration(settings.wait or 0.0),
            "defaultReward": settings.default,
            "rewardAggregation": by[settings.aggregation],
            "explorationPercentage": settings.floor,
            "modelExportFrequency": EXPORTED,
            "logRetentionDays": KEPT if settings.retain is None else int(settings.retain),
            "modelRetrainDays": 0,
            "learningMode": "Online" if settings.mode == "online" else "Apprentice",
            "isAutoOptimizationEnabled": False,
            "logMirrorEnabled": False,
        }
    )


def put_configuration(call: Call, body: Configuration) -> Reply:
    """Reply with the settings that hold; those that are not offered are refused, not ignored."""
    before = call.engine.replicas.settings
    wait = body.reward_wait_time.total_seconds()
    aggregation = AGGREGATIONS.get(body.reward_aggregation.lower())
    mode = before.mode if body.learning_mode is None else MODES.get(body.learning_mode)
    for target, wrong, expected in (
        ("rewardWaitTime", wait < 0, "0 or more"),
        ("rewardAggregation", aggregation is None, f"one of {', '.join(AGGREGATIONS)}"),
        ("learningMode", mode is None, f"one of {', '.join(MODES)}"),
    ):
        if wrong:
            raise Problem(f"{target} must be {expected}", target)
    days = body.log_retention_days
    if days != KEPT and not 1 <= days <= MOST_DAYS:
        raise Problem(
            f"logRetentionDays must be {KEPT}, for ever, or a number of days up to {MOST_DAYS}; "
            f"got {days}",
            "logRetentionDays",
            "InvalidLogRetentionDays",
        )
    for target, wanted in (
        ("isAutoOptimizationEnabled", body.is_auto_optimization_enabled),
        ("logMirrorEnabled", body.log_mirror_enabled),
        ("modelRetrainDays", body.model_retrain_days),
    ):
        if wanted:
            raise Problem(f"{target} is not offered here: leave it out", target)
    said = {
        "wait": wait or None,
        "default": body.default_reward,
        "aggregation": aggregation,
        "mode": mode,
        "floor": body.exploration_percentage,
        "retain": None if days == KEPT else float(days),
    }
    admin.configure(call.engine.replicas, said, who(call))
    return get_configuration(call)


def duration(seconds: float) -> str:
    """As ISO 8601 has it: 600 seconds are PT10M."""
    whole, rest = divmod(seconds, 60)
    days, minutes = divmod(int(whole), 24 * 60)
    parts = [(minutes // 60, "H"), (minutes % 60, "M"), (rest, "S")]
    time = "".join(f"{number:.9g}{unit}" for number, unit in parts if number)
    return f"P{days}D" * bool(days) + (
        f"{'' if days else 'P'}T{time or '0S'}" * bool(time or not days)
    )


def get_policy(call: Call) -> Reply:
    replicas = call.engine.replicas
    about = repr(replicas.options.agent)
    return answer({"name": replicas.name, "arguments": about[:1024]})


def put_policy(call: Call, body: Policy) -> Reply:
    """A candidate's name puts it in charge; arguments of Vowpal Wabbit mean nothing here."""
    promote(call.engine, body.name, who(call))
    return get_policy(call)


def reset_policy(call: Call) -> Reply:
    promote(call.engine, "default", who(call))
    return get_policy(call)


def promote(engine: Engine, name: str, who: str | None = None) -> None:
    """Put a candidate in charge, which has learned all that is recorded."""
    replicas = engine.replicas
    if name == replicas.name:
        return
    if name not in replicas.candidates:
        known = ", ".join(map(repr, replicas.candidates)) or "none"
        raise Refused("invalid", f"there is no agent {name!r}; candidates are: {known}")
    admin.shadow(replicas, name, who)
    admin.promote(replicas, name, who)


def get_model(call: Call) -> Reply:
    """What was learned, as safetensors. It holds no code, so there is nothing to sign."""
    return Reply(200, call.engine.reader.export(), b"application/octet-stream")


def put_model(call: Call) -> Reply:
    try:
        admin.import_state(call.engine.replicas, call.content)
    except Refused as refused:
        if refused.kind != "conflict":
            raise
        raise Problem(str(refused), None, "InvalidApiAccess", 403) from refused
    return nothing()


def get_model_properties(call: Call) -> Reply:
    reader = call.engine.reader
    count = reader.summary()["decisions"]
    if not count:
        return answer({})
    first = reader.page(0, 1).columns["time"][0]
    recent = reader.page(max(0, count - RECENT), RECENT).columns["learned"]
    last = max((at for at in recent if at is not None), default=first)
    return answer({"creationTime": moment(first), "lastModifiedTime": moment(last)})


def get_log_properties(call: Call) -> Reply:
    reader = call.engine.reader
    count = reader.summary()["decisions"]
    if not count:
        raise Problem("nothing has been decided yet", None, "LogsPropertiesNotFound", 404)
    first, last = (moment(reader.page(at, 1).columns["time"][0]) for at in (0, count - 1))
    return answer({"dateRange": {"from": first, "to": last}, "count": count})


def moment(seconds: float) -> str:
    """A time as JSON has it, in UTC and to the second, rounded down."""
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def not_offered(call: Call) -> Reply:
    raise Problem(
        "this is not offered: logs are what a model can be rebuilt from, and are neither deleted "
        "nor written by clients; to begin anew, begin another bandit",
        None,
        "InvalidApiAccess",
        403,
    )


def no_operation(call: Call) -> Reply:
    what = f"{call.scope['method']} {call.params['id']}"
    message = f"Personalizer's API has no {what}, or we have it not"
    raise Problem(message, None, "ResourceNotFound", 404)
