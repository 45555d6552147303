"""Connections: those that are slow to say what they want are dropped, and so are idle ones beyond a
number."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .limits import Limits

CONNECTIONS = 4096  # open at once
HEADERS = 512 * 1024  # bytes that headers may have; a part of a body may come with them


class Connection(HttpToolsProtocol):
    """Drops a connection on which the headers of a request do not arrive in time, or have no end;
    `limits` waits for its body. Where more are open than may be, the one that has been idle the
    longest makes room."""

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
