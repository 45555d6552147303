"""Who may enter: every route has a door that asks for a key, its scope and its bandit."""

import ipaddress
import logging
from collections.abc import Callable
from contextlib import nullcontext
from math import ceil
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .engine import Refused
from .keys import Key
from .limits import TooLarge, TooSlow
from .messages import Error, Failure, encoded
from .metrics import Metrics
from .service import Service

STATUS = {
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "unknown": 404,
    "conflict": 409,
    "too_large": 413,
    "too_many": 429,
    "failed": 500,
    "unavailable": 503,
}
JSON = b"application/json"
FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"}  # added by proxies
LOOKED_AT = {b"host", b"origin", *FORWARDED}
UNREAD = 10_000  # bytes of a body that means nothing
SOON = ((b"retry-after", b"1"),)

logger = logging.getLogger("ensemble_sampling.serve")


class Denied(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ):
        super().__init__(message)
        self.code, self.headers = code, headers
        self.status = STATUS[code] if status is None else status


async def answer(
    send: Send,
    status: int,
    body: bytes = b"",
    kind: bytes = JSON,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Send a whole answer."""
    about = [(b"content-length", str(len(body)).encode()), *headers]
    if body:
        about.append((b"content-type", kind))
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


async def deny(send: Send, denied: Denied) -> None:
    failure = Failure(Error(denied.code, str(denied)))  # pyright: ignore[reportArgumentType]
    await answer(send, denied.status, encoded(failure), headers=denied.headers)


def denied(error: Exception) -> Denied:
    """What an error is to who asked; one of ours is logged, and its words kept to us."""
    if isinstance(error, Denied):
        return error
    if isinstance(error, Refused):
        return Denied(error.kind, str(error), headers=SOON if error.kind == "unavailable" else ())
    if isinstance(error, TooLarge):
        return Denied("too_large", str(error), headers=((b"connection", b"close"),))
    if isinstance(error, TooSlow):
        return Denied("invalid", str(error), 408, ((b"connection", b"close"),))
    if isinstance(error, OSError):
        logger.error("the ledger does not answer: %s", error)
        return Denied("unavailable", "the ledger does not answer: ask again", headers=SOON)
    logger.error("a request failed", exc_info=error)
    return Denied("failed", "the service failed at this; its log says how")


class Outside:
    """The outermost part: what comes from other web sites is refused, and all is counted."""

    def __init__(self, app: ASGIApp, service: Service, metrics: Metrics):
        self._app, self._service, self._metrics = app, service, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self._app(scope, receive, send)
            return
        began, status, done = perf_counter(), 0, False

        def count() -> None:
            nonlocal done
            done, seconds = True, perf_counter() - began
            route = (scope["method"], scope.get("es.route", ""))
            self._metrics.count(route, status, seconds)
            if "es.decides" in scope and status in (200, 201):
                self._metrics.decided(scope["es.decides"], seconds)

        async def counted(message: Message) -> None:
            """Counted before the last of the answer is sent: who has it all may kill the process,
            and the count is to know of it."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                count()
            await send(message)

        try:
            bodiless(scope)
            if self._service.open:
                same_machine(scope)
            await self._app(scope, receive, counted)
        except Denied as error:
            await deny(counted, error)
        finally:
            if not done:
                count()


def bodiless(scope: Scope) -> None:
    """Refuse a body where there is nothing to say by one, before any of it is read. Some clients
    send a short one with everything; nobody looks at that."""
    if scope["method"] not in ("GET", "HEAD", "DELETE"):
        return
    for name, value in scope["headers"]:
        long = name == b"content-length" and (not value.isdigit() or int(value) > UNREAD)
        if long or name == b"transfer-encoding":
            said = f"a {scope['method']} takes no body here: send it without"
            raise Denied("too_large", said, headers=((b"connection", b"close"),))


def same_machine(scope: Scope) -> None:
    """Without keys, a page of another site that is looked at on this machine must not get in:
    neither under a name that was made to lead here (DNS rebinding), nor by a form."""
    headers = {name: value for name, value in scope["headers"] if name in LOOKED_AT}
    if FORWARDED & headers.keys():
        raise Denied(
            "forbidden",
            "a proxy handed this on, and without keys only this machine is served: make a key "
            "with `ensemble-sampling keys create`",
            421,
        )
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_local(_hostname(host)):
        raise Denied(
            "forbidden",
            f"the Host header says {host!r}; without keys only localhost is served: make a key "
            "with `ensemble-sampling keys create`",
            421,
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise Denied("forbidden", "without keys no other web site's pages are served")


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def is_local(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secret(scope: Scope) -> str | None:
    """The key that a request shows."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
        if name == b"ocp-apim-subscription-key":
            return value.strip().decode("latin-1")
    return None


class Door:
    """Before a route: who asks (401), how often (429), of which bandit (404), and what (403).

    needs: the scope for a method; None: anybody.
    bandit: the name of the bandit, or of the part of the path that says it, or None.
    begins: whether the bandit need not be there yet.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        path: str,
        needs: Callable[[str], str | None],
        bandit: Callable[[Scope], str | None],
        begins: Callable[[str], bool] = lambda method: False,
    ):
        self._app, self._service, self._path = app, service, path
        self._needs, self._bandit, self._begins = needs, bandit, begins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["es.route"] = self._path
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            needed, name = self._needs(method), self._bandit(scope)
            if needed is not None:
                scope["es.key"] = self._admitted(scope, needed, name)
            if self._service.role == "learn" and self._path.endswith(("/decide", "/rank")):
                raise Denied("unavailable", "this process only learns; others decide")
            if name is not None and needed == "decide" and method == "POST":
                scope["es.decides"] = name
            using = nullcontext()
            if name is not None and not self._begins(method):
                using = (await self._service.find(name)).used()
            with using:
                await self._app(scope, receive, sending)
        except Exception as error:
            if begun:
                raise
            await deny(send, denied(error))

    def _admitted(self, scope: Scope, needed: str, name: str | None) -> Key | None:
        service, given = self._service, secret(scope)
        if service.open:
            key, who = None, ""
        else:
            key = None if given is None else service.ring.find(given)
            if key is None:
                what = "no key was given" if given is None else "the key is not known, or no longer"
                raise Denied(
                    "unauthorized",
                    f"{what}; expected Authorization: Bearer KEY",
                    headers=((b"www-authenticate", b"Bearer"),),
                )
            who = key.id
        wait = service.rates.wait(who)
        if wait:
            raise Denied(
                "too_many",
                f"too many requests; come again in {wait:.3f} s",
                headers=((b"retry-after", str(max(1, ceil(wait))).encode()),),
            )
        if key is not None:
            if key.bandit is not None and name is not None and name != key.bandit:
                raise Denied("unknown", f"there is no bandit {name!r}")
            if not key.allows(needed):
                has = ", ".join(sorted(key.scopes))
                raise Denied("forbidden", f"this needs the scope {needed!r}; the key has {has}")
        return key
