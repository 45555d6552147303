"""Which requests are let in: by whose key, how many of them, how large, and how long they take."""

import asyncio
import ipaddress
import logging
import threading
import time
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic
from typing import Any

from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ... import checks
from ..storage import Storage
from ..types import CLOSE, Refused
from .keys import Key, Keys, hashed

FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"}  # added by proxies
IGNORED = 10_000  # bytes of a body that some clients send with everything, and nobody reads
REFRESH = 0.5  # seconds between two readings of the keys
SILENT = 3.0  # seconds without reading the keys after which the storage counts as away
DEEPEST = 64  # objects and lists within one another
CONNECTIONS = 4096  # open at once
HEADERS = 512 * 1024  # bytes that headers may have; a part of a body may come with them

logger = logging.getLogger("ensemble_sampling.serve")


class Rates:
    """A bucket of tokens for every key: a request takes one, and they come back at a rate."""

    def __init__(self, rate: float):
        self._rate, self._burst = rate, max(1.0, rate)
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when there were so many

    def wait(self, key: str) -> float:
        """0.0 if a request may go on, or the seconds after which it may come again."""
        if not self._rate:
            return 0.0
        now = monotonic()
        tokens, at = self._buckets.get(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        wait = max(0.0, (1.0 - tokens) / self._rate)
        self._buckets[key] = (tokens if wait else tokens - 1.0, now)
        return wait


class Access:
    """Admits requests by the keys of a service, which it reads twice a second: a key that was made
    or revoked elsewhere holds here within a second.

    local: whether only this machine can reach the service; without any key it is then open.
    rate: requests per second of one key; 0 is no limit.
    """

    def __init__(self, storage: Storage, local: bool, rate: float):
        self._storage, self._rates = storage, Rates(rate)
        self.keys, self._by_hash = Keys(storage), {}
        self.open = (
            local  # whether no key is needed: none was ever made, and only this machine can call
        )
        self._read, self._ended = -inf, threading.Event()
        # In a thread of its own it waits for no request.
        self._thread = threading.Thread(target=self._refresh_often, name="keys", daemon=True)

    @property
    def away(self) -> bool:
        """Whether the storage does not answer; this also shows a database that neither answers nor
        disconnects."""
        return monotonic() > self._read + SILENT

    def start(self) -> None:
        """Read the keys now, and from now on."""
        self.refresh()
        self._thread.start()

    def refresh(self) -> None:
        self._by_hash = {key.hash: key for key in self.keys.all()}
        # A service that ever had a key does not open again when all are revoked or lost.
        self.open = self.open and not self._by_hash
        self._storage.check()
        self._read = monotonic()

    def _refresh_often(self) -> None:
        trouble = ""
        while not self._ended.wait(REFRESH):
            try:
                self.refresh()
                trouble = ""
            except OSError as error:  # the keys read before stay valid
                self._read = -inf
                if trouble != (trouble := str(error)):
                    logger.warning("%s", trouble)

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self.keys.close()

    def find(self, secret: str) -> Key | None:
        """The key, if it is one and neither revoked nor expired."""
        key = self._by_hash.get(hashed(secret))
        return key if key is not None and key.state(time.time()) == "valid" else None

    def check_origin(self, scope: Scope) -> None:
        """Refuse, whatever the path, a body that nobody would read; and without keys all but this
        machine.

        A page of another site that is open in a browser here must not get in either: neither by a
        host name that resolves to this machine (DNS rebinding), nor by a form.
        """
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        long = b"transfer-encoding" in headers or not length.isdigit() or int(length) > IGNORED
        if long and scope["method"] in ("GET", "HEAD", "DELETE"):
            said = f"a {scope['method']} takes no body here: send it without"
            raise Refused("too_large", said, CLOSE)
        if not self.open:
            return
        create = "make a key with `ensemble-sampling keys create`"
        if FORWARDED & headers.keys():
            said = f"a proxy handed this on, and without keys only this machine is served: {create}"
            raise Refused("forbidden", said, status=421)
        host = headers.get(b"host", b"").decode("latin-1")
        without_port = host.rpartition(":")[0] if ":" in host else host
        if not is_local(host[1:].partition("]")[0] if host.startswith("[") else without_port):
            said = f"the Host header says {host!r}; without keys only localhost is served: {create}"
            raise Refused("forbidden", said, status=421)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            raise Refused("forbidden", "without keys no other web site's pages are served")

    def admit(self, scope: Scope, needs: str | None, bandit: str) -> Key | None:
        """The key of a request that may go on, None where no key is asked for.

        needs: the scope its key must have; None: anybody may call.
        bandit: the one it is about, "" for none.
        """
        if needs is None:
            return None
        key = None if self.open else self._key(dict(scope["headers"]))
        wait = self._rates.wait("" if key is None else key.id)
        if wait:
            after = str(max(1, ceil(wait))).encode()
            said = f"too many requests; come again in {wait:.3f} s"
            raise Refused("too_many", said, ((b"retry-after", after),))
        if key is None:
            return None
        if key.bandit is not None and bandit not in ("", key.bandit):
            raise Refused("unknown", f"there is no bandit {bandit!r}")
        if not key.allows(needs):
            has = ", ".join(sorted(key.scopes))
            raise Refused("forbidden", f"this needs the scope {needs!r}; the key has {has}")
        return key

    def _key(self, headers: dict[bytes, bytes]) -> Key:
        given = headers.get(b"authorization", b"")
        secret = given[7:] if given[:7].lower() == b"bearer " else None
        secret = headers.get(b"ocp-apim-subscription-key") if secret is None else secret
        key = None if secret is None else self.find(secret.strip().decode("latin-1"))
        if key is None:
            what = "no key was given" if secret is None else "the key is not known, or no longer"
            said = f"{what}; expected Authorization: Bearer KEY"
            raise Refused("unauthorized", said, ((b"www-authenticate", b"Bearer"),))
        return key


def is_local(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
                length = int(value) if value.isdigit() and len(value) < 20 else inf
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
