"""Offline evaluations: what other policies would have earned, from the log of the bandit."""

import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request

from ...evaluation.evaluate import evaluate
from ...evaluation.log import Log
from ...evaluation.results import Comparison, Evaluation
from ...files import Damaged
from .. import admin
from ..engine import Engine
from ..http.operation import Call, Reply
from ..types import Refused, encoded
from .replies import ID_LETTERS, Problem, answer, logger, nothing, version
from .settings import Policy, moment, promote

KEPT = "personalizer/evaluation/"
FEATURE_BYTES = 1 << 29  # bytes of features in one evaluation
PATIENCE = 3600.0  # seconds after which an evaluation that did not end has been lost
BASELINE, RANDOM, ONLINE = "Baseline", "Random", "Online"
OLD = {"Succeeded": "completed", "Running": "pending", "Failed": "failed", "Timeout": "timeout"}


class Contract(Struct, rename="camel"):
    name: Annotated[str, Meta(min_length=1, max_length=ID_LETTERS)]
    start_time: datetime
    end_time: datetime
    policies: Annotated[list[Policy], Meta(max_length=10)] | None = None
    enable_offline_experimentation: bool | None = None
    enable_policy_optimization: bool | None = None


class Reference(Struct, rename="camel"):
    evaluation_id: str
    policy_name: str


class Found(Struct):
    """What one policy would have earned."""

    name: str
    source: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    weighted: float | None = None  # by inverse propensities
    normalised: float | None = None  # the same, self-normalised
    refused: str = ""


class Job(Struct):
    """An evaluation, as it is stored with the ledger."""

    id: str
    name: str
    start: float
    end: float
    created: float
    status: str = "Running"
    decisions: int = 0
    found: list[Found] = []
    optimal: str | None = None
    description: str = ""


def create(call: Call, body: Contract) -> Reply:
    """Begin an evaluation: in a thread of this process, one at a time, stored with the ledger."""
    engine, start, end = call.engine, _seconds(body.start_time), _seconds(body.end_time)
    if start > end:
        code = "InvalidDateTimesInEvaluationContract"
        raise Problem("endTime must not be before startTime", "endTime", code)
    custom = [policy.name for policy in body.policies or ()]
    if len({*custom}) < len(custom):
        raise Problem("policies must have names of their own", None, "DuplicateCustomPolicyNames")
    known = engine.replicas.candidates
    if unknown := [name for name in custom if name not in known]:
        names = ", ".join(map(repr, known)) or "none"
        raise Problem(f"there are no candidates {unknown}; there are: {names}", "policies")
    more = body.enable_offline_experimentation or body.enable_policy_optimization
    sources = dict.fromkeys(known, "OfflineExperimentation") if more else {}
    sources |= dict.fromkeys(custom, "Custom")
    id = call.params.get("id") or str(uuid.uuid4())
    job = Job(id, body.name, start, end, time.time())
    if _kept(engine, id):
        raise Problem(f"there is an evaluation {id!r} already", None, "EvaluationAlreadyExists")
    _keep(engine, job)
    threading.Thread(target=_run, args=(call, job, sources), daemon=True).start()
    if not version(call):
        return answer(_summary(job))
    where = quote(f"{call.scope['path']}/{job.id}", safe="/")
    return answer(_whole(job), 201, ((b"location", where.encode()),))


def _seconds(when: datetime) -> float:
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _run(call: Call, job: Job, sources: dict[str, str]) -> None:
    engine = call.engine
    try:
        with engine.used(), call.service.evaluating:  # beyond the request that began it
            _judge(engine, job, sources)
            if _kept(engine, job.id):  # or it was deleted meanwhile
                _keep(engine, job)
    except Exception:
        logger.exception("an evaluation could not be stored")


def _judge(engine: Engine, job: Job, sources: dict[str, str]) -> None:
    try:
        columns = engine.reader.made_between(job.start, job.end, FEATURE_BYTES)
        if not columns["id"]:
            raise ValueError("no logs exist in this time")
        candidates = {name: engine.replicas.candidates[name] for name in sources}
        judged = evaluate(Log.of(columns), {BASELINE: _first, RANDOM: _any, **candidates})
        _tell(job, judged, {BASELINE: BASELINE, RANDOM: RANDOM, **sources})
    except Exception as error:
        job.status, job.description = "Failed", f"{type(error).__name__}: {error}"
        # The caller learns why; but not the address of the ledger, nor a fault of ours.
        if isinstance(error, Damaged) or not isinstance(error, Refused | TypeError | ValueError):
            logger.error("an evaluation failed", exc_info=error)
            job.description = "the service failed at this; its log says how"


def _first(offer: Any) -> np.ndarray:
    """What an application would have shown by itself: the first action that could be chosen."""
    chances = np.zeros(len(offer.available))
    chances[int(np.argmax(np.asarray(offer.available)))] = 1.0
    return chances


def _any(offer: Any) -> np.ndarray:
    on = np.asarray(offer.available, float)
    return on / on.sum()


def _tell(job: Job, judged: Comparison, sources: dict[str, str]) -> None:
    earned = next(iter(judged.evaluations.values()))
    mean = earned.earned
    job.decisions = earned.decisions
    online = Found(ONLINE, ONLINE, mean.value, mean.low, mean.high, mean.value, mean.value)
    job.found = [online, *(_found(judged[name], source) for name, source in sources.items())]
    values = {one.name: one.value for one in job.found if one.value is not None}
    job.optimal = max(values, key=lambda name: values[name])
    job.status = "Succeeded"


def _found(one: Evaluation, source: str) -> Found:
    if one.refused is not None:
        return Found(one.policy, source, refused=one.refused)
    best, ips, snips = one.best, one["inverse propensity"], one["self-normalised"]
    return Found(one.policy, source, best.value, best.low, best.high, ips.value, snips.value)


def _keep(engine: Engine, job: Job) -> None:
    admin.keep(engine.replicas, f"{KEPT}{job.id}", encoded(job))


def _kept(engine: Engine, id: str) -> Job | None:
    content = engine.reader.kept(f"{KEPT}{id}").get(f"{KEPT}{id}")
    return None if content is None else _read(content)


def _read(content: bytes) -> Job:
    job = msgspec.json.decode(content, type=Job)
    if job.status == "Running" and time.time() - job.created > PATIENCE:
        job.status, job.description = "Timeout", "the process that ran it did not finish it"
    return job


def _known(call: Call, id: str, target: str | None = None) -> Job:
    job = _kept(call.engine, id)
    if job is None:
        raise Problem(f"there is no evaluation {id!r}", target, "EvaluationNotFound", 404)
    return job


def get_evaluation(call: Call) -> Reply:
    job = _known(call, call.params["id"])
    return answer(_whole(job) if version(call) else _content(job))


def delete(call: Call) -> Reply:
    admin.keep(call.engine.replicas, f"{KEPT}{call.params['id']}", None)
    return nothing()


def list_evaluations(call: Call) -> Reply:
    found = call.engine.reader.kept(KEPT)
    jobs = sorted(map(_read, found.values()), key=lambda job: -job.created)
    if version(call):
        return answer([_whole(job) for job in jobs])
    query = {"skip": "0", "top": str(len(jobs)), **Request(call.scope).query_params}
    for name in ("skip", "top"):
        if not (query[name].isdecimal() and len(query[name]) < 12):
            raise Problem(f"{name} must be a number, got {query[name]!r}", name)
    if "auto" in query.get("filter", "").lower():  # all were asked for by somebody
        jobs = []
    jobs = jobs[int(query["skip"]) :][: int(query["top"])]
    return answer({"value": [_summary(job) for job in jobs]})


def apply(call: Call, body: Reference) -> Reply:
    """Put a candidate in charge that was evaluated."""
    job = _known(call, body.evaluation_id, "evaluationId")
    if job.status != "Succeeded":
        raise Problem("the evaluation must be completed", "evaluationId")
    known = {one.name for one in job.found if one.source not in (BASELINE, RANDOM)}
    if body.policy_name not in known:
        message = f"the evaluation has no policy {body.policy_name!r} that could take charge"
        raise Problem(message, "policyName", "LearningSettingsNotFound", 404)
    if body.policy_name != ONLINE:
        promote(call.engine, body.policy_name)
    return nothing()


def _summary(job: Job) -> dict[str, Any]:
    """What lists say of an evaluation."""
    return {
        "id": job.id,
        "name": job.name,
        "startTime": moment(job.start),
        "endTime": moment(job.end),
        "creationTime": moment(job.created),
        "status": job.status,
        "evaluationType": "Manual",
    }


def _content(job: Job) -> dict[str, Any]:
    """As api-version=2022-09-01-preview has it; over the whole time, in one part."""
    results = [
        {
            "name": one.name,
            "arguments": one.refused,
            "policySource": one.source,
            "summary": {"expectedReward": one.value, "confidenceInterval": [one.low, one.high]},
            "timeseries": {"data": []},
        }
        for one in job.found
    ]
    span = {"startTime": moment(job.start), "endTime": moment(job.end)}
    content = {**span, "value": results} if results else None
    about = {"description": job.description, "optimalPolicy": job.optimal, "content": content}
    return _summary(job) | about


def _whole(job: Job) -> dict[str, Any]:
    """As v1.0 and v1.1 have it."""
    results = [
        {
            "name": one.name,
            "arguments": one.refused,
            "policySource": one.source,
            "summary": [],
            "totalSummary": _total(job, one),
        }
        for one in job.found
    ]
    about = {"policyResults": results, "optimalPolicy": job.optimal, "featureImportance": []}
    return _summary(job) | {"status": OLD[job.status], "jobId": job.id} | about


def _total(job: Job, one: Found) -> dict[str, Any]:
    if one.value is None or one.weighted is None or one.high is None or one.low is None:
        return {}
    earned = one.weighted * job.decisions
    return {
        "timeStamp": moment(job.end),
        "ipsEstimatorNumerator": earned,
        "ipsEstimatorDenominator": job.decisions,
        "snipsEstimatorDenominator": earned / one.normalised if one.normalised else job.decisions,
        "aggregateTimeWindow": "PT0S",
        "confidenceInterval": (one.high - one.low) / 2,
        "averageReward": one.value,
    }
