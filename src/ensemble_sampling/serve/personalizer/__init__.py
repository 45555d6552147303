"""The REST API of Azure AI Personalizer on our engines: its published clients work unchanged."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..engine import Engine, Refused
from ..limits import Limits, TooLarge
from . import evaluations, events, settings
from .calls import Call, Problem

VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
PREFIXES = ("/personalizer/{version:version}/", "/personalizer/")  # the latter: ?api-version=2022-
DEFAULT = "default"  # the bandit of paths that name none


class Version(StringConvertor):
    """A part of a path that is one of them, and no operation's name."""

    regex = "|".join(map(re.escape, VERSIONS))


register_url_convertor("version", Version())


class Service(Protocol):
    """What holds the bandits."""

    @property
    def limits(self) -> Limits: ...

    def engine(self, name: str) -> Engine: ...


class Operation(NamedTuple):
    """code: what Personalizer calls a bad request of it."""

    do: Callable[[Call], Awaitable[Response]]
    code: str = "InvalidRequest"


OPERATIONS = {  # by path, those that are called most often first
    "rank": {"POST": Operation(events.rank, "InvalidRankRequest")},
    "events/{id:path}/reward": {"POST": Operation(events.reward, "InvalidRewardRequest")},
    "events/{id:path}/activate": {"POST": Operation(events.activate, "InvalidEventIdToActivate")},
    "multislot/rank": {"POST": Operation(events.rank_slots, "InvalidRankRequest")},
    "multislot/events/{id:path}/reward": {
        "POST": Operation(events.reward_slots, "InvalidRewardRequest")
    },
    "multislot/events/{id:path}/activate": {
        "POST": Operation(events.activate, "InvalidEventIdToActivate")
    },
    "configurations/service": {
        "GET": Operation(settings.get_configuration),
        "PUT": Operation(settings.put_configuration, "InvalidServiceConfiguration"),
    },
    "configurations/policy": {
        "GET": Operation(settings.get_policy),
        "PUT": Operation(settings.put_policy, "InvalidPolicyConfiguration"),
        "DELETE": Operation(settings.reset_policy, "InvalidPolicyConfiguration"),
    },
    "configurations/applyFromEvaluation": {
        "POST": Operation(evaluations.apply, "InvalidPolicyContract")
    },
    "model": {
        "GET": Operation(settings.get_model),
        "PUT": Operation(settings.put_model, "InvalidModelImportFormat"),
        "DELETE": Operation(settings.not_offered),
    },
    "model/properties": {"GET": Operation(settings.get_model_properties)},
    "logs": {"DELETE": Operation(settings.not_offered)},
    "logs/properties": {"GET": Operation(settings.get_log_properties)},
    "evaluations": {
        "GET": Operation(evaluations.every),
        "POST": Operation(evaluations.create, "InvalidEvaluationContract"),
    },
    "evaluations/{id}": {
        "GET": Operation(evaluations.get),
        "PUT": Operation(evaluations.create, "InvalidEvaluationContract"),
        "DELETE": Operation(evaluations.delete),
    },
    "{id:path}": dict.fromkeys(("GET", "POST", "PUT", "DELETE"), Operation(settings.no_operation)),
}


def routes(service: Service) -> list[Route]:
    """Of the bandit `default`, and under /bandits/{name} of every other."""
    shared: dict[str, Any] = {}  # what operations of this process have in common
    return [
        Route(f"{of}{prefix}{path}", _endpoint(service, operations, shared), methods=[*operations])
        for path, operations in OPERATIONS.items()
        for prefix in PREFIXES
        for of in ("", "/bandits/{name}")
    ]


def _endpoint(
    service: Service, operations: dict[str, Operation], shared: dict[str, Any]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        about = request.path_params
        version, name = about.get("version", ""), about.get("name", DEFAULT)
        operation = operations["GET" if request.method == "HEAD" else request.method]
        try:
            try:
                engine = service.engine(name)
                id, code = about.get("id", ""), operation.code
                call = Call(request, engine, service.limits, version, id, code, shared)
                return await operation.do(call)
            except Refused as refused:
                raise Problem.of(refused, operation.code) from refused
            except TooLarge as error:
                raise Problem(400, "PayloadSizeExceeded", str(error)) from error
        except Problem as problem:
            return problem.response(version)
        except Exception:
            logging.getLogger("ensemble_sampling.serve").exception("a request failed")
            message = "the service failed at this; its log says how"
            return Problem(500, "InternalServerError", message).response(version)

    return endpoint
