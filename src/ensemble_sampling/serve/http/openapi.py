"""The OpenAPI document, built from the operations and the types of their bodies."""

import re
from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import msgspec

from ... import __version__
from ..types import Failure, Name
from .operation import Operation

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
    for each in components.values():
        each["description"] = cleandoc(each.get("description", ""))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, of)
    subscription = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
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
            "schemas": _json_schema(components),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "subscription": subscription,
            },
        },
    }


def _json_schema(schema: Any) -> Any:
    """With $ for the end of a text in patterns, where Python has \\Z."""
    return msgspec.json.decode(msgspec.json.encode(schema).replace(rb"\\Z", b"$"))


def _bodies(each: Operation) -> tuple[Any, ...]:
    return each.bodies or (() if each.body is None else (each.body,))


def statuses(each: Operation) -> list[int]:
    """The statuses of its refusals."""
    found = {413, 421, *each.refusals}
    if each.needs is not None:
        found |= {400, 401, 403, 429}
    if "{name}" in each.path:
        found |= {404, 503}
    if each.body is not None:
        found |= {408}
    return sorted(found)


def _operation(each: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.run.__name__,
        "summary": each.run.__doc__,
        "responses": {},
    }
    if each.needs is not None:
        found["description"] = f"Needs a key with the scope `{each.needs}` or `admin`."
        found["security"] = [{"key": []}, {"subscription": []}]
    parameters = [_in_path(name) for name in re.findall(r"{(\w+)}", each.path)]
    for name, (default, low, high, about) in (each.query or {}).items():
        schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
        parameters.append({"name": name, "in": "query", "description": about, "schema": schema})
    if parameters:
        found["parameters"] = parameters
    if each.body is not None:
        found["requestBody"] = {
            "required": not each.optional,
            "content": _content(_bodies(each), of, each.example),
        }
    for status in (each.status, *each.others):
        found["responses"][str(status)] = {"description": DESCRIPTIONS[status]}
        if each.answers:
            found["responses"][str(status)]["content"] = _content(each.answers, of, each.answered)
    for status in statuses(each):
        said = each.answers if (status, each.path) == (503, "/readyz") else (Failure,)
        about = {"description": DESCRIPTIONS[status], "content": _content(said, of)}
        if status == 429:
            about["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        found["responses"][str(status)] = about
    return found


def _content(kinds: tuple[Any, ...], of: dict[Any, Any], example: Any = None) -> dict[str, Any]:
    """One of several types, and an example of it."""
    schemas = [of[kind] for kind in kinds]
    content = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if example is not None:
        content["example"] = example
    return {"text/plain" if kinds == (str,) else "application/json": content}


def _in_path(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "name":
        schema = {**_json_schema(msgspec.json.schema(Name)), "examples": ["default"]}
    return {"name": name, "in": "path", "required": True, "schema": schema}
