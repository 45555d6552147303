"""How much one request may ask for, and how long and how many connections may stay open."""

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ... import checks
from ..types import CLOSE, Refused

DEEPEST = 64  # objects and lists within one another
CONNECTIONS = 4096  # open at once
HEADERS = 512 * 1024  # bytes that headers may have; a part of a body may come with them


@dataclass(frozen=True)
class Limits:
    """What is accepted."""

    body: int = 1_000_000  # bytes of a request's body
    actions: int = 1_000  # on offer in one decision
    features: int = 1_000  # in the description of one action, or of a context
    decisions: int = 1_000  # or outcomes, in one request
    # Requests per second of one key, in bursts of as many; 0 is no limit. It is shared out among
    # the processes of a service.
    rate: float = 5_000.0
    patience: float = 10.0  # seconds for the headers of a request, and for its body
    # Bandits that a process keeps open, beside those with requests at work; of more, the one
    # longest without a request is closed.
    open: int = 50

    def __post_init__(self) -> None:
        for name in ("body", "actions", "features", "decisions", "open"):
            checks.count(name, getattr(self, name))
        checks.scalar("rate", self.rate, low=0.0)
        checks.scalar("patience", self.patience, low=0.0)

    def count(self, what: str, number: int) -> None:
        """Refuse more than the limit `what`."""
        most = getattr(self, what)
        if number > most:
            raise Refused("too_large", f"{number} {what}; at most {most} are accepted", CLOSE)

    def offer(self, actions: Any, context: Any) -> None:
        """Refuse too many actions, or too large a description."""
        described = list(actions.values()) if isinstance(actions, dict) else actions or ()
        self.count("actions", len(described))
        for one in (*described, context):
            if isinstance(one, dict | list):
                self.count("features", _size(one))

    async def read_body(self, scope: Scope, receive: Receive) -> bytes:
        """The body, if neither its stated length nor what arrives exceeds the limit."""
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = int(value) if value.isdigit() and len(value) < 20 else math.inf
                if length > self.body:
                    said = f"a body of {length} bytes; at most {self.body} are accepted"
                    raise Refused("too_large", said, CLOSE)
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.patience):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused("invalid", "the client went away", CLOSE, 408)
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self.body:
                        said = f"a body over {self.body} bytes, which are accepted"
                        raise Refused("too_large", said, CLOSE)
        except TimeoutError as error:
            said = f"the body did not arrive within {self.patience:g} s"
            raise Refused("invalid", said, CLOSE, 408) from error
        return bytes(body)


def _size(described: Any, depth: int = 1) -> int:
    """The number of values in a description, with all that is nested in it."""
    if depth > DEEPEST:
        raise Refused("too_large", f"a description is nested more than {DEEPEST} deep", CLOSE)
    total = len(described)
    for value in described.values() if type(described) is dict else described:
        if type(value) is dict or type(value) is list:
            total += _size(value, depth + 1)
    return total


class Connection(HttpToolsProtocol):
    """Drops a connection on which the headers of a request do not arrive in time, or have no end;
    `Limits.read_body` waits for its body. Where more are open than may be, the one that has been
    idle the longest makes room."""

    patience = Limits().patience
    most = CONNECTIONS
    _timer: Any = None  # runs while headers are expected
    _received = 0  # bytes meanwhile

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Idle connections of this server, that which has been so the longest first.
        self._idle: dict[Connection, None] = vars(self.server_state).setdefault("idle", {})
        self._idle[self] = None
        self._expect_headers()
        if len(self.connections) > self.most:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
            self._received += len(data)
            if self._received > HEADERS:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._idle.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # no request is behind it
            self._idle.pop(self, None)
            self._idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience, self.transport.abort)

    def _headers_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._received = None, 0
