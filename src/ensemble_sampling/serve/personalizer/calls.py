"""One request of a Personalizer client: its subject, its body, and errors in its terms."""

import logging
import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from ..http import operation as http
from ..http.app import decoded
from ..http.operation import Reply
from ..types import Headers, Refused, encoded

T = TypeVar("T")

LONGEST = 256  # letters of an id
HIGH_LEVEL = {  # all that v1.0 has
    400: "BadRequest",
    404: "ResourceNotFound",
    500: "InternalServerError",
    503: "InternalServerError",
}
PLACE = re.compile(r"`\$\.?([^`]*)`\Z")  # where in a body msgspec found a mistake
IGNORED = "x-ensemble-sampling-ignored"  # says why a reward was accepted but not learned
CODES = {  # status and code of what the service refuses, where it is not the request's form
    "unavailable": (503, "OperationNotAllowed"),
    "unknown": (404, "ResourceNotFound"),
    "too_large": (400, "PayloadSizeExceeded"),
}

logger = logging.getLogger("ensemble_sampling.serve")


class Problem(Exception):
    """An error, by Personalizer's codes."""

    def __init__(self, status: int, code: str, message: str, target: str | None = None):
        super().__init__(message)
        self.status, self.code, self.target = status, code, target


class Call:
    """A request as an operation sees it.

    content: the body.
    version: as the path has it; "" is the one without, api-version=2022-09-01-preview.
    id: of an event or an evaluation, where the path names one.
    code: for what is wrong with the request.
    """

    def __init__(self, given: http.Call, code: str):
        self.request, self.content, self.code = Request(given.scope), given.body, code
        self.engine, self.service = given.engine, given.service
        self.version, self.id = (given.params.get(name, "") for name in ("version", "id"))

    def body(self, decoder: "msgspec.json.Decoder[T]") -> T:
        try:
            return decoded(self.content, decoder)
        except Refused as refused:
            where = PLACE.search(str(refused))
            raise self.wrong(str(refused), where[1] if where else None) from refused

    def wrong(self, message: str, target: str | None = None) -> Problem:
        return Problem(400, self.code, message, target)

    def key(self, id: str, target: str = "eventId") -> str:
        """The id of an event or a slot as the engine takes it, where a slash parts the two."""
        if not 0 < len(id) <= LONGEST or not id.isprintable():
            shown = "none" if not id else f"{len(id)} letters" if len(id) > LONGEST else repr(id)
            raise self.wrong(f"an id has 1 to {LONGEST} printable letters, got {shown}", target)
        return id.replace("%", "%25").replace("/", "%2F")

    def failed(self, error: Exception) -> Reply:
        """The reply to a request that raised `error`. A fault of ours is logged, not shown."""
        if isinstance(error, OSError):
            error = self.engine.unavailable(error)
        if isinstance(error, Refused):
            error = Problem(*CODES.get(error.kind, (400, self.code)), str(error))
        if not isinstance(error, Problem):
            logger.error("a request failed", exc_info=error)
            message = "the service failed at this; its log says how"
            error = Problem(500, "InternalServerError", message)
        high = HIGH_LEVEL.get(error.status, error.code)
        old = self.version == "v1.0" and high != error.code  # which has the others as inner errors
        body = {
            "code": high if old else error.code,
            "message": str(error),
            "target": error.target,
            "details": [],
            "innerError": {"code": error.code} if old else None,
        }
        headers = ((b"retry-after", b"1"),) if error.status == 503 else ()
        return answer({"error": body}, error.status, headers)


def answer(body: Any, status: int = 200, headers: Headers = ()) -> Reply:
    return Reply(status, encoded(body), headers=headers)


def nothing(ignored: str = "") -> Reply:
    """204; a reward or an activation that has no effect says why in a header."""
    return Reply(204, headers=((IGNORED.encode(), ignored.encode()),) if ignored else ())
