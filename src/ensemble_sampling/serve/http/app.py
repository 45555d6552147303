"""The web application: from a request to its operation, and back."""

import importlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

from starlette.routing import Router, compile_path
from starlette.types import Receive, Scope, Send

from ..service import Service
from ..types import Refused
from . import dashboard, openapi
from .auth import admit, check_origin
from .errors import HttpError, Reply, failure
from .limits import read_body
from .metrics import Metrics
from .operation import Call, Operation
from .routes import OPERATIONS
from .types import decoded, encoded

PERSONALIZER = "ensemble_sampling.serve.personalizer"
MODEL = 256_000_000  # bytes of a state that an administrator sends


def build(service: Service, waits: bool = False) -> "App":
    """The application that serves `service`.

    waits: whether it is up only when it decides; else it says until then that it is starting.
    """
    operations = [*OPERATIONS, *_public(), *dashboard.operations(), *_personalizer()]
    return App(operations, service, Metrics(), waits)


def _public() -> list[Operation]:
    document = Reply(200, encoded(openapi.document(OPERATIONS)))

    async def describe(call: Call) -> Reply:
        return document

    async def home(call: Call) -> Reply:
        return Reply(307, headers=((b"location", b"/dashboard"),))

    return [
        Operation("GET", "/openapi.json", describe, None, query=None),
        Operation("GET", "/", home, None, query=None),
    ]


def _personalizer() -> Sequence[Operation]:
    """Personalizer's operations, unless its room was left out: nothing else imports it."""
    try:
        return importlib.import_module(PERSONALIZER).operations()
    except ModuleNotFoundError as error:
        if error.name != PERSONALIZER:
            raise
        return ()


class App:
    """An ASGI application: finds the operation of a request, and sends its reply.

    operations: those with the same path are its methods; the first path that matches is taken.
    """

    def __init__(
        self, operations: Sequence[Operation], service: Service, metrics: Metrics, waits: bool
    ):
        self.operations, self._service, self._metrics = operations, service, metrics
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
        began, operation, name = perf_counter(), None, ""
        try:
            check_origin(scope, self._service)
            operation, params = self._match(scope["method"], scope["path"])
            name = params.get("name", operation.bandit)
            reply = await self._reply(operation, name, params, scope, receive)
        except Exception as error:
            reply = failure(error)
        # Count before sending: whoever has the reply may kill the process, and it must be counted.
        seconds = perf_counter() - began
        route = None if operation is None else operation.path
        self._metrics.count(scope["method"], route, reply.status, seconds)
        if operation is not None and operation.decides and reply.status in (200, 201):
            self._metrics.decision(name, seconds)
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
            raise HttpError("unknown", f"{method} {path}: Not Found")
        headers = ((b"allow", ", ".join(allowed).encode()),)
        raise HttpError("invalid", f"{method} {path}: Method Not Allowed", 405, headers)

    async def _reply(
        self,
        operation: Operation,
        name: str,
        params: dict[str, str],
        scope: Scope,
        receive: Receive,
    ) -> Reply:
        service = self._service
        key = admit(scope, service, operation.needs, name)
        if operation.decides and service.role == "learn":
            raise HttpError("unavailable", "this process only learns; others decide")
        engine = await service.find(name) if name and not operation.creates else None
        with nullcontext() if engine is None else engine.used():
            body: Any = b""
            if operation.method in ("POST", "PUT"):
                limits = self._large if operation.large else service.limits
                body = await read_body(scope, receive, limits)
                if operation.decoder is not None:
                    empty = operation.optional and not body
                    body = None if empty else decoded(body, operation.decoder)
            query = _query(scope["query_string"], operation) if operation.query is not None else {}
            call = Call(
                scope,
                service,
                self._metrics,
                key,
                name,
                engine,  # pyright: ignore[reportArgumentType]
                params,
                query,
                body,
                operation.status,
            )
            found = await operation.run(call)
        if isinstance(found, Reply):
            return found
        return Reply(call.status, b"" if found is None else encoded(found))


def _query(given: bytes, operation: Operation) -> dict[str, int]:
    known = operation.query or {}
    found = {name: limits.default for name, limits in known.items()}
    for name, text in parse_qsl(given.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            names = ", ".join(known) or "none"
            raise Refused("invalid", f"there is no parameter {name!r} here; there are: {names}")
        _, low, high, _ = known[name]
        right = text.isascii() and text.isdigit() and len(text) <= 20
        if not right or not low <= int(text) <= high:
            said = f"{name} must be a whole number from {low} to {high}, got {text!r}"
            raise Refused("invalid", said)
        found[name] = int(text)
    return found
