"""The OpenAPI document, built from the operations and the types of their bodies."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ... import __version__
from .operation import Operation
from .types import Failure, Name

DESCRIPTIONS = {
    200: "Done.",
    201: "Begun.",
    204: "Done; there is nothing to say.",
    400: "The request is wrong, and the message says how.",
    401: "No key, or one that is not known, expired or revoked.",
    403: "The key's scopes do not allow it.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "It contradicts what is recorded.",
    413: "It is larger than what is accepted.",
    421: "Without keys only localhost is served.",
    429: "Too many requests; Retry-After says when to come again.",
    503: "The service is starting, or its ledger does not answer.",
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """All of it, as JSON has it."""
    kinds: dict[Any, Any] = {Failure: None}
    for each in operations:
        kinds |= dict.fromkeys([*each.answers, *_bodies(each)])
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(kinds, ref_template=template)
    of = dict(zip(kinds, schemas, strict=True))
    components = _json_schema(components)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ensemble-sampling",
            "version": __version__,
            "description": "Decisions by ensemble sampling, and what came of them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "subscription": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Ocp-Apim-Subscription-Key",
                },
            },
        },
    }


def _json_schema(schema: Any) -> Any:
    """With $ for the end of a text in patterns, where Python has \\Z."""
    return msgspec.json.decode(msgspec.json.encode(schema).replace(rb"\\Z", b"$"))


def _bodies(each: Operation) -> tuple[Any, ...]:
    return each.bodies or (() if each.body is None else (each.body,))


def _schema(kinds: tuple[Any, ...], of: dict[Any, Any]) -> Any:
    found = [of[kind] for kind in kinds]
    return found[0] if len(found) == 1 else {"anyOf": found}


def statuses(each: Operation) -> list[int]:
    """Those of its refusals."""
    found = {413, 421, *each.refusals}
    if each.needs is not None:
        found |= {401, 403, 429}
    if "{name}" in each.path:
        found |= {404, 503}
    if each.needs is not None or each.query:
        found.add(400)
    if each.body is not None:
        found |= {400, 408}
    return sorted(found)


def _operation(each: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.run.__name__,
        "summary": each.summary,
        "responses": {},
    }
    if each.needs is not None:
        found["description"] = f"Needs a key with the scope `{each.needs}` or `admin`."
        found["security"] = [{"key": []}, {"subscription": []}]
    parameters = [_in_path(name) for name in re.findall(r"{(\w+)}", each.path)]
    for name, limits in (each.query or {}).items():
        schema = {
            "type": "integer",
            "minimum": limits.low,
            "maximum": limits.high,
            "default": limits.default,
        }
        parameters.append(
            {"name": name, "in": "query", "description": limits.about, "schema": schema}
        )
    if parameters:
        found["parameters"] = parameters
    if each.body is not None:
        content = {"schema": _schema(_bodies(each), of)}
        if each.example is not None:
            content["example"] = each.example
        found["requestBody"] = {
            "required": not each.optional,
            "content": {"application/json": content},
        }
    for status in (each.status, *each.others):
        found["responses"][str(status)] = _response(status, each, of)
    for status in statuses(each):
        failure = {"application/json": {"schema": of[Failure]}}
        if status == 503 and each.path == "/readyz":
            failure = {"application/json": {"schema": _schema(each.answers, of)}}
        about = {"description": DESCRIPTIONS[status], "content": failure}
        if status == 429:
            about["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        found["responses"][str(status)] = about
    return found


def _response(status: int, each: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": DESCRIPTIONS[status]}
    if each.answers:
        kind = "text/plain" if each.answers == (str,) else "application/json"
        content = {"schema": _schema(each.answers, of)}
        if each.answered is not None:
            content["example"] = each.answered
        found["content"] = {kind: content}
    return found


def _in_path(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "name":
        schema = {**_json_schema(msgspec.json.schema(Name)), "examples": ["default"]}
    return {"name": name, "in": "path", "required": True, "schema": schema}
