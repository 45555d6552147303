"""The REST API of Azure AI Personalizer: its published clients work unchanged."""

import re
from functools import partial
from typing import get_type_hints

from starlette.convertors import StringConvertor, register_url_convertor

from ..http.operation import Operation
from ..storage import DEFAULT
from .evaluations import apply, create, delete, get_evaluation, list_evaluations
from .events import activate, rank, rank_slots, reward, reward_slots
from .replies import failed
from .settings import (
    get_configuration,
    get_log_properties,
    get_model,
    get_model_properties,
    get_policy,
    no_operation,
    not_offered,
    put_configuration,
    put_model,
    put_policy,
    reset_policy,
)

VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
PREFIXES = ("/personalizer/{version:version}/", "/personalizer/")  # the latter: ?api-version=2022-


class Version(StringConvertor):
    """A part of a path that is one of VERSIONS."""

    regex = "|".join(map(re.escape, VERSIONS))


register_url_convertor("version", Version())

EVENT, SLOTS = "events/{id:path}", "multislot/events/{id:path}"
TABLE = (  # path, method, function, scope of a key, and what Personalizer calls a bad request
    ("rank", "POST", rank, "decide", "InvalidRankRequest"),  # those called most often come first
    (f"{EVENT}/reward", "POST", reward, "learn", "InvalidRewardRequest"),
    (f"{EVENT}/activate", "POST", activate, "learn", "InvalidEventIdToActivate"),
    ("multislot/rank", "POST", rank_slots, "decide", "InvalidRankRequest"),
    (f"{SLOTS}/reward", "POST", reward_slots, "learn", "InvalidRewardRequest"),
    (f"{SLOTS}/activate", "POST", activate, "learn", "InvalidEventIdToActivate"),
    ("configurations/service", "GET", get_configuration, "read", "InvalidRequest"),
    ("configurations/service", "PUT", put_configuration, "admin", "InvalidServiceConfiguration"),
    ("configurations/policy", "GET", get_policy, "read", "InvalidRequest"),
    ("configurations/policy", "PUT", put_policy, "admin", "InvalidPolicyConfiguration"),
    ("configurations/policy", "DELETE", reset_policy, "admin", "InvalidPolicyConfiguration"),
    ("configurations/applyFromEvaluation", "POST", apply, "admin", "InvalidPolicyContract"),
    ("model", "GET", get_model, "read", "InvalidRequest"),
    ("model", "PUT", put_model, "admin", "InvalidModelImportFormat"),
    ("model", "DELETE", not_offered, "admin", "InvalidRequest"),
    ("model/properties", "GET", get_model_properties, "read", "InvalidRequest"),
    ("logs", "DELETE", not_offered, "admin", "InvalidRequest"),
    ("logs/properties", "GET", get_log_properties, "read", "InvalidRequest"),
    ("evaluations", "GET", list_evaluations, "read", "InvalidRequest"),
    ("evaluations", "POST", create, "admin", "InvalidEvaluationContract"),
    ("evaluations/{id}", "GET", get_evaluation, "read", "InvalidRequest"),
    ("evaluations/{id}", "PUT", create, "admin", "InvalidEvaluationContract"),
    ("evaluations/{id}", "DELETE", delete, "admin", "InvalidRequest"),
    ("{id:path}", "GET", no_operation, "read", "InvalidRequest"),
    ("{id:path}", "POST", no_operation, "admin", "InvalidRequest"),
    ("{id:path}", "PUT", no_operation, "admin", "InvalidRequest"),
    ("{id:path}", "DELETE", no_operation, "admin", "InvalidRequest"),
)


def operations() -> list[Operation]:
    """Of the bandit `default`, and under /bandits/{name} of every other."""
    return [
        Operation(
            method,
            f"{bandit}{prefix}{path}",
            function,
            needs,
            body=get_type_hints(function).get("body"),
            query=None,
            bandit=DEFAULT,
            decides=path.endswith("rank"),
            large=path == "model",
            failed=partial(failed, code),
        )
        for path, method, function, needs, code in TABLE
        for prefix in PREFIXES
        for bandit in ("", "/bandits/{name}")
    ]
