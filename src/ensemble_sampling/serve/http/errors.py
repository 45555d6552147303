"""What goes wrong with a request, as the reply that says so."""

import logging
from typing import NamedTuple

from ..types import Refused
from .types import Error, Failure, encoded

JSON = b"application/json"
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
Headers = tuple[tuple[bytes, bytes], ...]
CLOSE: Headers = ((b"connection", b"close"),)  # the rest of the request is not read
SOON: Headers = ((b"retry-after", b"1"),)

logger = logging.getLogger("ensemble_sampling.serve")


class Reply(NamedTuple):
    """All of an answer."""

    status: int
    body: bytes = b""
    media: bytes = JSON
    headers: Headers = ()


class HttpError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: str, message: str, status: int | None = None, headers: Headers = ()):
        super().__init__(message)
        self.code, self.headers = code, headers
        self.status = STATUS[code] if status is None else status


def failure(error: Exception) -> Reply:
    """The reply to a request that raised `error`. A fault of ours is logged, not shown."""
    if isinstance(error, Refused):
        error = HttpError(error.kind, str(error), headers=SOON * (error.kind == "unavailable"))
    elif isinstance(error, OSError):
        logger.error("the ledger does not answer: %s", error)
        error = HttpError("unavailable", "the ledger does not answer: ask again", headers=SOON)
    elif not isinstance(error, HttpError):
        logger.error("a request failed", exc_info=error)
        error = HttpError("failed", "the service failed at this; its log says how")
    body = Failure(Error(error.code, str(error)))  # pyright: ignore[reportArgumentType]
    return Reply(error.status, encoded(body), headers=error.headers)
