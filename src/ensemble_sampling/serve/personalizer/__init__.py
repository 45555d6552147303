"""The REST API of Azure AI Personalizer: its published clients work unchanged."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request

from ..http import operation as http
from ..http.errors import Reply
from ..http.limits import TooLarge
from ..storage import DEFAULT
from ..types import Refused
from . import evaluations, events, settings
from .calls import Call, Problem

VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
PREFIXES = ("/personalizer/{version:version}/", "/personalizer/")  # the latter: ?api-version=2022-


class Version(StringConvertor):
    """A part of a path that is one of VERSIONS."""

    regex = "|".join(map(re.escape, VERSIONS))


register_url_convertor("version", Version())


class Operation(NamedTuple):
    """needs: the scope of a key. code: what Personalizer calls a bad request of it."""

    run: Callable[[Call], Awaitable[Reply]]
    needs: str
    code: str = "InvalidRequest"


PATHS = {  # by path, those that are called most often first
    "rank": {"POST": Operation(events.rank, "decide", "InvalidRankRequest")},
    "events/{id:path}/reward": {"POST": Operation(events.reward, "learn", "InvalidRewardRequest")},
    "events/{id:path}/activate": {
        "POST": Operation(events.activate, "learn", "InvalidEventIdToActivate")
    },
    "multislot/rank": {"POST": Operation(events.rank_slots, "decide", "InvalidRankRequest")},
    "multislot/events/{id:path}/reward": {
        "POST": Operation(events.reward_slots, "learn", "InvalidRewardRequest")
    },
    "multislot/events/{id:path}/activate": {
        "POST": Operation(events.activate, "learn", "InvalidEventIdToActivate")
    },
    "configurations/service": {
        "GET": Operation(settings.get_configuration, "read"),
        "PUT": Operation(settings.put_configuration, "admin", "InvalidServiceConfiguration"),
    },
    "configurations/policy": {
        "GET": Operation(settings.get_policy, "read"),
        "PUT": Operation(settings.put_policy, "admin", "InvalidPolicyConfiguration"),
        "DELETE": Operation(settings.reset_policy, "admin", "InvalidPolicyConfiguration"),
    },
    "configurations/applyFromEvaluation": {
        "POST": Operation(evaluations.apply, "admin", "InvalidPolicyContract")
    },
    "model": {
        "GET": Operation(settings.get_model, "read"),
        "PUT": Operation(settings.put_model, "admin", "InvalidModelImportFormat"),
        "DELETE": Operation(settings.not_offered, "admin"),
    },
    "model/properties": {"GET": Operation(settings.get_model_properties, "read")},
    "logs": {"DELETE": Operation(settings.not_offered, "admin")},
    "logs/properties": {"GET": Operation(settings.get_log_properties, "read")},
    "evaluations": {
        "GET": Operation(evaluations.every, "read"),
        "POST": Operation(evaluations.create, "admin", "InvalidEvaluationContract"),
    },
    "evaluations/{id}": {
        "GET": Operation(evaluations.get, "read"),
        "PUT": Operation(evaluations.create, "admin", "InvalidEvaluationContract"),
        "DELETE": Operation(evaluations.delete, "admin"),
    },
    "{id:path}": {
        method: Operation(settings.no_operation, "read" if method == "GET" else "admin")
        for method in ("GET", "POST", "PUT", "DELETE")
    },
}


def _served(method: str, path: str, operation: Operation, shared: dict[str, Any]) -> http.Operation:
    async def run(given: http.Call) -> Reply:
        version = given.params.get("version", "")
        call = Call(
            Request(given.scope),
            given.body,
            given.engine,
            given.service.limits,
            version,
            given.params.get("id", ""),
            operation.code,
            shared,
        )
        try:
            return await operation.run(call)
        except Problem as error:
            problem = error
        except Refused as refused:
            problem = Problem.of(refused, operation.code)
        except TooLarge as error:
            problem = Problem(400, "PayloadSizeExceeded", str(error))
        except Exception:
            logging.getLogger("ensemble_sampling.serve").exception("a request failed")
            message = "the service failed at this; its log says how"
            problem = Problem(500, "InternalServerError", message)
        return problem.reply(version)

    return http.Operation(
        method,
        path,
        run,
        operation.needs,
        query=None,
        bandit=DEFAULT,
        decides=path.endswith("/rank"),
        large=path.endswith("/model"),
    )


def operations() -> list[http.Operation]:
    """Of the bandit `default`, and under /bandits/{name} of every other."""
    shared: dict[str, Any] = {}  # by all requests to one application
    return [
        _served(method, f"{bandit}{prefix}{path}", operation, shared)
        for path, methods in PATHS.items()
        for prefix in PREFIXES
        for bandit in ("", "/bandits/{name}")
        for method, operation in methods.items()
    ]
