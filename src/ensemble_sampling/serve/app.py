"""The web application: the operations of the own API, and what others mount beside them."""

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import openapi
from .doors import JSON, Denied, Door, Outside, answer
from .engine import Refused
from .limits import Limits, read_body
from .messages import decoded, encoded
from .metrics import Metrics
from .operations import OPERATIONS, Answer, Call, Operation
from .places import DEFAULT
from .service import Service

BESIDE = ("personalizer", "dashboard")  # modules with routes(service) of their own
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
MODEL = 256_000_000  # bytes of a state that an administrator sends


def build(
    service: Service, counters: tuple[int | None, int, int] = (None, 0, 1), waits: bool = False
) -> ASGIApp:
    """The application that serves `service`.

    counters: descriptor of memory that the processes share, which of them this is, and of how
        many, see `Metrics`.
    waits: whether it is up only when it decides; else it says until then that it is starting.
    """
    paths: dict[str, dict[str, Operation]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method] = each
    beside = [route for module in BESIDE for route in _mounted(module, service)]
    routes = [(each.method, each.path) for each in OPERATIONS]
    routes += [(method, r.path) for r in beside for method in sorted(r.methods or {"GET"})]
    metrics = Metrics(routes, *counters)
    described = encoded(openapi.document(OPERATIONS))

    async def document(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def home(request: Request) -> Response:
        return RedirectResponse("/dashboard")

    own = [_own(path, methods, service, metrics) for path, methods in paths.items()]
    public = [Route("/openapi.json", document), Route("/", home)]
    app = Starlette(
        routes=[*own, *public, *beside],
        lifespan=_lifespan(service, waits),
        exception_handlers={HTTPException: _failed},
    )
    app.router.redirect_slashes = False
    return Outside(app, service, metrics)


def _lifespan(service: Service, waits: bool) -> Callable[[Any], Any]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        starting = service.begin()
        if waits:
            await starting
        try:
            yield
        finally:
            await service.stop()

    return lifespan


async def _failed(request: Request, error: Exception) -> Response:
    """A path that is not there, or a method it does not have."""
    assert isinstance(error, HTTPException)
    code = "unknown" if error.status_code == 404 else "invalid"
    what = f"{request.method} {request.url.path}"
    said = {"error": {"code": code, "message": f"{what}: {error.detail}"}}
    return Response(encoded(said), error.status_code, error.headers, "application/json")


def _own(path: str, methods: dict[str, Operation], service: Service, metrics: Metrics) -> Route:
    endpoints = {method: Endpoint(each, service, metrics) for method, each in methods.items()}

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await endpoints[method](scope, receive, send)

    door = Door(
        chosen,
        service,
        path,
        lambda method: methods[method].scope,
        lambda scope: scope["path_params"].get("name"),
        lambda method: methods[method].begins,
    )
    return Route(path, door, methods=list(methods))


class Endpoint:
    """One operation: reads the body, does it, writes the answer."""

    def __init__(self, operation: Operation, service: Service, metrics: Metrics):
        self._operation, self._service, self._metrics = operation, service, metrics
        kind = operation.body
        self._decoder = None if kind is None else msgspec.json.Decoder(kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation, body = self._operation, None
        if operation.method in ("POST", "PUT"):
            raw = await read_body(scope["headers"], receive, self._service.limits)
            if self._decoder is not None and (raw or not operation.empty):
                body = decoded(raw, self._decoder)
        path = scope["path_params"]
        call = Call(
            self._service,
            self._metrics,
            scope.get("es.key"),
            path.get("name", ""),
            path,
            _query(scope, operation),
            body,
        )
        found = await operation.does(call)
        status, value = operation.status, found
        if isinstance(found, Answer):
            status, value = found.status, found.value
            if found.text is not None:
                return await answer(send, status, found.text.encode(), TEXT)
        await answer(send, status, b"" if status == 204 else encoded(value), JSON)


def _query(scope: Scope, operation: Operation) -> dict[str, int]:
    found = {name: limits.default for name, limits in operation.query.items()}
    if not scope["query_string"]:
        return found
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name, text in given:
        if name not in operation.query:
            known = ", ".join(operation.query) or "none"
            raise Refused("invalid", f"there is no parameter {name!r} here; there are: {known}")
        limits = operation.query[name]
        right = text.isascii() and text.isdigit() and len(text) <= 20
        if not right or not limits.low <= int(text) <= limits.high:
            raise Refused(
                "invalid",
                f"{name} must be a whole number from {limits.low} to {limits.high}, got {text!r}",
            )
        found[name] = int(text)
    return found


def _mounted(module: str, service: Service) -> list[Route]:
    """The routes of a module that is there, each behind a door."""
    name = f"{__package__}.{module}"
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return []
    if not hasattr(found, "routes"):
        return []
    public = module == "dashboard"  # pages without data
    return [_beside(route, service, public) for route in found.routes(service)]


def _beside(route: Route, service: Service, public: bool) -> Route:
    path = route.path

    def needs(method: str) -> str | None:
        if public:
            return None
        if path.endswith("/rank"):
            return "decide"
        if path.endswith(("/reward", "/activate")):
            return "learn"
        return "read" if method == "GET" else "admin"

    def bandit(scope: Scope) -> str | None:
        return None if public else scope["path_params"].get("name", DEFAULT)

    limits = service.limits
    if path.endswith(("/model", "/import")):
        limits = Limits(body=max(MODEL, limits.body), patience=60.0)
    door = Door(Limited(route.app, limits), service, path, needs, bandit)
    return Route(path, door, methods=sorted((route.methods or {"GET"}) - {"HEAD"}))


class Limited:
    """An application that gets its body whole, if it is not too large."""

    def __init__(self, app: ASGIApp, limits: Limits):
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: bytes | None = await read_body(scope["headers"], receive, self._limits)

        async def whole() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            given, body = body, None
            return {"type": "http.request", "body": given, "more_body": False}

        await self._app(scope, whole, send)


__all__ = ["Denied", "build"]
