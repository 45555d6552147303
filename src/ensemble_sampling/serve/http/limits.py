"""How much one request, and one key, may ask for."""

import asyncio
import math
from dataclasses import dataclass
from time import monotonic
from typing import Any

from starlette.types import Receive, Scope

from ... import checks
from .errors import CLOSE, HttpError

DEEPEST = 64  # objects and lists within one another


class TooLarge(HttpError):
    """More than one request may ask for."""

    def __init__(self, message: str):
        super().__init__("too_large", message, headers=CLOSE)


@dataclass(frozen=True)
class Limits:
    """What is refused.

    body: bytes of a request's body.
    actions: on offer in one decision.
    features: in the description of one action, or of a context.
    decisions: or outcomes, in one request.
    rate: requests per second of one key, in bursts of as many; 0 is no limit. It is shared out
        among the processes of a service.
    patience: seconds for the headers of a request, and for its body.
    open: bandits that a process keeps open, beside those with requests at work; of more, the one
        longest without a request is closed.
    """

    body: int = 1_000_000
    actions: int = 1_000
    features: int = 1_000
    decisions: int = 1_000
    rate: float = 5_000.0
    patience: float = 10.0
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
            raise TooLarge(f"{number} {what}; at most {most} are accepted")

    def offer(self, actions: Any, context: Any) -> None:
        """Refuse too many actions, or too large a description."""
        described = list(actions.values()) if isinstance(actions, dict) else actions or ()
        self.count("actions", len(described))
        for one in (*described, context):
            if isinstance(one, dict | list):
                self.count("features", _size(one))


def _size(described: Any, depth: int = 1) -> int:
    """The number of values in a description, with all that is nested in it."""
    if depth > DEEPEST:
        raise TooLarge(f"a description is nested more than {DEEPEST} deep")
    total = len(described)
    for value in described.values() if type(described) is dict else described:
        if type(value) is dict or type(value) is list:
            total += _size(value, depth + 1)
    return total


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The body, if it is small enough: neither its stated length nor what arrives exceeds the
    limit."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 20 else math.inf
            if length > limits.body:
                raise TooLarge(f"a body of {length} bytes; at most {limits.body} are accepted")
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(limits.patience):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError("invalid", "the client went away", 408, CLOSE)
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limits.body:
                    raise TooLarge(f"a body over {limits.body} bytes, which are accepted")
    except TimeoutError as error:
        said = f"the body did not arrive within {limits.patience:g} s"
        raise HttpError("invalid", said, 408, CLOSE) from error
    return bytes(body)


class Bucket:
    """Tokens that come back at a rate; a request takes one."""

    __slots__ = ("at", "burst", "rate", "tokens")

    def __init__(self, rate: float):
        self.rate = rate
        self.burst = max(1.0, rate)
        self.tokens, self.at = self.burst, monotonic()

    def take(self) -> float:
        """0.0 if there was a token, or the seconds until there is."""
        now = monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / self.rate


class Rates:
    """A bucket for every key, in one of `processes` that serve together."""

    def __init__(self, rate: float, processes: int = 1):
        self._rate = rate / processes
        self._buckets: dict[str, Bucket] = {}

    def wait(self, key: str) -> float:
        """0.0 if a request may go on, or the seconds after which it may come again."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.get(key)
        if bucket is None:  # one per key that exists: they cannot become many
            bucket = self._buckets[key] = Bucket(self._rate)
        return bucket.take()
