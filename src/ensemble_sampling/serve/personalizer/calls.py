"""One request of a Personalizer client: its subject, its body, and errors in its terms."""

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from ..engine import Engine, Refused
from ..http.errors import Headers, Reply
from ..http.limits import Limits
from ..http.types import decoded, encoded

T = TypeVar("T")

LONGEST = 256  # letters of an id
HIGH_LEVEL = {400: "BadRequest", 404: "ResourceNotFound"}  # all that v1.0 has, but for the server's
PLACE = re.compile(r"`\$\.?([^`]*)`\Z")  # where in a body msgspec found a mistake
IGNORED = "x-ensemble-sampling-ignored"  # says why a reward was accepted but not learned


class Problem(Exception):
    """An error, by Personalizer's codes."""

    def __init__(self, status: int, code: str, message: str, target: str | None = None):
        super().__init__(message)
        self.status, self.code, self.target = status, code, target

    @classmethod
    def of(cls, refused: Refused, code: str) -> "Problem":
        """As the engine refused it; `code` is that of the operation's bad requests."""
        if refused.kind == "unavailable":
            return cls(503, "OperationNotAllowed", str(refused))
        if refused.kind == "unknown":
            return cls(404, "ResourceNotFound", str(refused))
        return cls(400, code, str(refused))

    def reply(self, version: str) -> Reply:
        """v1.0 has only three codes; others are inner errors there."""
        high = HIGH_LEVEL.get(self.status) or ("InternalServerError" if self.status >= 500 else "")
        old = version == "v1.0" and high not in ("", self.code)
        error = {
            "code": high if old else self.code,
            "message": str(self),
            "target": self.target,
            "details": [],
            "innerError": {"code": self.code} if old else None,
        }
        headers = ((b"retry-after", b"1"),) if self.status == 503 else ()
        return answer({"error": error}, self.status, headers)


@dataclass(frozen=True)
class Call:
    """A request as an operation sees it.

    version: as the path has it; "" is the one without, api-version=2022-09-01-preview.
    id: of an event or an evaluation, where the path names one.
    content: the body.
    code: for what is wrong with the request.
    shared: by all requests to this process.
    """

    request: Request
    content: bytes
    engine: Engine
    limits: Limits
    version: str
    id: str
    code: str
    shared: dict[str, Any]

    def body(self, decoder: "msgspec.json.Decoder[T]") -> T:
        try:
            return decoded(self.content, decoder)
        except Refused as refused:
            where = PLACE.search(str(refused))
            raise self.wrong(str(refused), where[1] if where else None) from refused

    def wrong(self, message: str, target: str | None = None) -> Problem:
        return Problem(400, self.code, message, target)

    @property
    def event(self) -> str:
        """The event of the path, as the engine knows it."""
        return key_of(self.id, self)


def key_of(id: str, call: Call, target: str = "eventId") -> str:
    """The id of an event or a slot as the engine takes it, where a slash parts the two."""
    if not 0 < len(id) <= LONGEST or not id.isprintable():
        shown = "none" if not id else f"{len(id)} letters" if len(id) > LONGEST else repr(id)
        raise call.wrong(f"an id has 1 to {LONGEST} printable letters, got {shown}", target)
    return id.replace("%", "%25").replace("/", "%2F")


def answer(body: Any, status: int = 200, headers: Headers = ()) -> Reply:
    return Reply(status, encoded(body), headers=headers)


def nothing(ignored: str = "") -> Reply:
    """204; a reward or an activation that has no effect says why in a header."""
    return Reply(204, headers=((IGNORED.encode(), ignored.encode()),) if ignored else ())
