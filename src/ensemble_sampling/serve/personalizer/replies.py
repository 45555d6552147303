"""Replies to Personalizer's clients: what they expect, and errors in its terms."""

import logging
import re
from typing import Any

from ..http.operation import Call, Reply
from ..types import Headers, Refused, encoded

ID_LETTERS = 256  # letters of an id
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
    """An error, by Personalizer's codes; where there is none, the operation's own for bad requests.

    target: what is wrong in the request.
    """

    def __init__(self, message: str, target: str | None = None, code: str = "", status: int = 400):
        super().__init__(message)
        self.target, self.code, self.status = target, code, status


def failed(code: str, call: Call, error: Exception) -> Reply:
    """The reply to a request that raised `error`; a fault of ours is logged, not shown.

    code: what Personalizer calls a bad request of this operation.
    """
    if isinstance(error, OSError):
        error = call.engine.unavailable(error)
    if isinstance(error, Refused):
        where = PLACE.search(str(error)) if error.kind == "invalid" else None
        status, known = CODES.get(error.kind, (400, ""))
        error = Problem(str(error), where[1] if where else None, known, status)
    if not isinstance(error, Problem):
        logger.error("a request failed", exc_info=error)
        message = "the service failed at this; its log says how"
        error = Problem(message, None, "InternalServerError", 500)
    code = error.code or code
    high = HIGH_LEVEL.get(error.status, code)
    old = version(call) == "v1.0" and high != code  # which has the others as inner errors
    body = {
        "code": high if old else code,
        "message": str(error),
        "target": error.target,
        "details": [],
        "innerError": {"code": code} if old else None,
    }
    headers = ((b"retry-after", b"1"),) if error.status == 503 else ()
    return answer({"error": body}, error.status, headers)


def version(call: Call) -> str:
    """As the path has it; "" is the one without, api-version=2022-09-01-preview."""
    return call.params.get("version", "")


def key(id: str, target: str = "eventId") -> str:
    """The id of an event or a slot as the engine takes it, where a slash parts the two."""
    if not 0 < len(id) <= ID_LETTERS or not id.isprintable():
        shown = "none" if not id else f"{len(id)} letters" if len(id) > ID_LETTERS else repr(id)
        raise Problem(f"an id has 1 to {ID_LETTERS} printable letters, got {shown}", target)
    return id.replace("%", "%25").replace("/", "%2F")


def answer(body: Any, status: int = 200, headers: Headers = ()) -> Reply:
    return Reply(status, encoded(body), headers=headers)


def nothing(ignored: str = "") -> Reply:
    """204; a reward or an activation that has no effect says why in a header."""
    return Reply(204, headers=((IGNORED.encode(), ignored.encode()),) if ignored else ())
