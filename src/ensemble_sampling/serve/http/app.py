"""The web application: from a request to its operation, and back."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.routing import Router, compile_path
from starlette.types import Receive, Scope, Send

from ..service import Service
from ..types import Error, Failure, Refused, encoded
from . import api, pages
from .metrics import REQUESTS, SECONDS
from .operation import Call, Operation, Reply

PERSONALIZER = "ensemble_sampling.serve.personalizer"
MODEL = 256_000_000  # bytes of a state that an administrator sends
OTHER = "other"  # the method and route of requests that no operation is for
SOON = ((b"retry-after", b"1"),)
PATTERN = re.compile(r"`str` matching regex '(.*)'")

logger = logging.getLogger("ensemble_sampling.serve")


def build(service: Service, waits: bool = False) -> "App":
    """The application that serves `service`.

    waits: whether it is up only when it decides; else it says until then that it is starting.
    """
    operations = [*api.OPERATIONS, *pages.operations()]
    if find_spec(PERSONALIZER):  # a room that may be left out: nothing else imports it
        operations += import_module(PERSONALIZER).operations()
    return App(operations, service, waits)


class App:
    """An ASGI application: finds the operation of a request, and sends its reply.

    operations: those with the same path are its methods; the first path that matches is taken.
    """

    def __init__(self, operations: Sequence[Operation], service: Service, waits: bool = False):
        self.operations, self._service = operations, service
        paths: dict[str, dict[str, Operation]] = {}
        for each in operations:
            paths.setdefault(each.path, {})[each.method] = each
        self._paths = [(compile_path(path)[0], methods) for path, methods in paths.items()]
        self._large = replace(service.limits, body=max(MODEL, service.limits.body), patience=60.0)

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            starting = service.begin()
            if waits:
                await starting
            try:
                yield
            finally:
                await service.stop()

        self._lifespan = Router(lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._lifespan(scope, receive, send)
        began, method, route = perf_counter(), OTHER, OTHER
        try:
            self._service.access.check_origin(scope)
            operation, params = self._match(scope["method"], scope["path"])
            method, route = scope["method"], operation.path
            reply = await self._reply(operation, params, scope, receive)
        except Exception as error:
            reply = _failure(error)
        # Count before sending: whoever has the reply may kill the process, and it must be counted.
        with suppress(OSError):  # the folder is gone, and requests are answered all the same
            REQUESTS.labels(method, route, str(reply.status)).inc()
            SECONDS.labels(method, route).observe(perf_counter() - began)
        headers = [(b"content-length", str(len(reply.body)).encode()), *reply.headers]
        if reply.body:
            headers.append((b"content-type", reply.media))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _match(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation for a path, and the parameters in it."""
        allowed: list[str] = []
        for pattern, methods in self._paths:
            if found := pattern.fullmatch(path):
                operation = methods.get("GET" if method == "HEAD" else method)
                if operation is not None:
                    return operation, found.groupdict()
                allowed += [*methods, *["HEAD"] * ("GET" in methods)]
        if not allowed:
            raise Refused("unknown", f"{method} {path}: Not Found")
        headers = ((b"allow", ", ".join(allowed).encode()),)
        raise Refused("invalid", f"{method} {path}: Method Not Allowed", headers, 405)

    async def _reply(
        self, operation: Operation, params: dict[str, str], scope: Scope, receive: Receive
    ) -> Reply:
        service, name = self._service, params.get("name", operation.bandit)
        key = service.access.admit(scope, operation.needs, name)
        if operation.decides and service.role == "learn":
            raise Refused("unavailable", "this process only learns; others decide")
        names_one = name and not operation.creates
        engine: Any = None
        if names_one:
            engine = service.engines.get(name) or await service.find(name)
        with engine.used() if names_one else nullcontext():
            content = b""
            if operation.method in ("POST", "PUT", "PATCH"):
                limits = self._large if operation.large else service.limits
                content = await limits.read_body(scope, receive)
            query = _query(scope["query_string"], operation)
            call = Call(scope, service, key, name, engine, params, query, content, operation.status)
            try:
                given = () if operation.decoder is None else (_body(content, operation),)
                if operation.in_loop:
                    found = await operation.run(call, *given)
                else:
                    found = await asyncio.to_thread(operation.run, call, *given)
            except Exception as error:
                if operation.failed is None:
                    raise
                found = operation.failed(call, error)
        if isinstance(found, Reply):
            return found
        return Reply(call.status, b"" if found is None else encoded(found))


def _query(given: bytes, operation: Operation) -> dict[str, int]:
    """The parameters of a request, checked."""
    if operation.query is None:
        return {}
    found = {name: limits.default for name, limits in operation.query.items()}
    for name, text in parse_qsl(given.decode("latin-1"), keep_blank_values=True):
        if name not in found:
            names = ", ".join(found) or "none"
            raise Refused("invalid", f"there is no parameter {name!r} here; there are: {names}")
        _, low, high, _ = operation.query[name]
        right = text.isascii() and text.isdigit() and len(text) <= 20
        if not right or not low <= int(text) <= high:
            said = f"{name} must be a whole number from {low} to {high}, got {text!r}"
            raise Refused("invalid", said)
        found[name] = int(text)
    return found


def _body(content: bytes, operation: Operation) -> Any:
    """The value of a body; a mistake is refused with its place."""
    if not content and operation.optional:
        return None
    if not content:
        raise Refused("invalid", "the body is empty; expected JSON")
    try:
        return operation.decoder.decode(content)
    except RecursionError as error:
        raise Refused("invalid", "the body is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Refused("invalid", f"the body is not UTF-8: {error}") from error
    except msgspec.ValidationError as error:
        said = PATTERN.sub(_in_words, str(error))
        raise Refused("invalid", f"the body is not as expected: {said}") from error
    except (msgspec.DecodeError, ValueError) as error:  # a number of thousands of digits
        raise Refused("invalid", f"the body is not JSON: {error}") from error


def _in_words(found: re.Match[str]) -> str:
    """A regular expression in plain words."""
    if found[1].startswith("^[^"):
        return f"text without {'/ and ' * found[1].startswith('^[^/')}control characters"
    return "a name of up to 40 lower-case letters, digits, - and _"


def _failure(error: Exception) -> Reply:
    """The reply to a request that raised `error`. A fault of ours is logged, not shown."""
    if isinstance(error, OSError):
        logger.error("the storage does not answer: %s", error)
        error = Refused("unavailable", "the ledger does not answer: ask again")
    elif not isinstance(error, Refused):
        logger.error("a request failed", exc_info=error)
        error = Refused("failed", "the service failed at this; its log says how")
    headers = error.headers + SOON * (error.kind == "unavailable")
    return Reply(error.status, encoded(Failure(Error(error.kind, str(error)))), headers=headers)
