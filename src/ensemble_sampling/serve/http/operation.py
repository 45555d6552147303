"""One operation of the API: its method, path and types, and the function that does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
from starlette.types import Scope

from ..engine import Engine
from ..service import Service
from ..types import Headers
from .keys import Key

BANDIT = "/v1/bandits/{name}"


class Reply(NamedTuple):
    """All of an answer."""

    status: int
    body: bytes = b""
    media: bytes = b"application/json"
    headers: Headers = ()


@dataclass(slots=True)
class Call:
    """A request as an operation sees it.

    name, engine: of the bandit that the path names. An operation that creates one has no engine.
    key: None where the service has no keys.
    params, query: what the path and the query string hold.
    content: the body, where the operation declares no type for it.
    status: of the reply; an operation may set another.
    """

    scope: Scope
    service: Service
    key: Key | None
    name: str
    engine: Engine
    params: Mapping[str, str]
    query: Mapping[str, int]
    content: bytes
    status: int


class Range(NamedTuple):
    """A whole number that a query may give."""

    default: int
    low: int
    high: int
    about: str


@dataclass(frozen=True)
class Operation:
    """What is done for a method and a path.

    run: takes a `Call` and, where it has a type, the value of the body; returns the value of the
        reply, or a `Reply`. A coroutine function runs in the event loop, any other in a thread.
    needs: the scope of a key; None: anybody may call.
    answers: types of the reply, one of which it has.
    body: the type that is decoded.
    bodies: the types that are documented, where `body` joins several.
    optional: whether the body may be left out.
    query: its parameters; None: they are not checked.
    status, others: of success.
    refusals: statuses beyond those that every operation of its kind may give.
    bandit: the one served where the path names none.
    creates: whether the bandit need not exist.
    decides: whether it makes decisions, which a process that only learns does not.
    large: whether the body may be as large as a model.
    failed: the reply to a request that raised an error, where it is not the usual one.
    example, answered: a body and a reply, for the documentation.
    """

    method: str
    path: str
    run: Callable[..., Any]
    needs: str | None
    answers: tuple[Any, ...] = ()
    body: Any = None
    bodies: tuple[Any, ...] = ()
    optional: bool = False
    query: dict[str, Range] | None = field(default_factory=dict)
    status: int = 200
    others: tuple[int, ...] = ()
    refusals: tuple[int, ...] = ()
    bandit: str = ""
    creates: bool = False
    decides: bool = False
    large: bool = False
    failed: Callable[[Call, Exception], Reply] | None = None
    example: Any = None
    answered: Any = None

    @cached_property
    def decoder(self) -> Any:
        return None if self.body is None else msgspec.json.Decoder(self.body)

    @cached_property
    def in_loop(self) -> bool:
        """Whether it runs in the event loop."""
        return iscoroutinefunction(self.run)


def operation(
    method: str, path: str, needs: str | None, *refusals: int, **about: Any
) -> Callable[[Callable[..., Any]], Operation]:
    """Make a function an operation: its docstring is the summary, the type of its argument `body`
    that of the body, and its return type that of the reply, without which the status is 204. A path
    that does not begin with a slash is below that of a bandit."""
    whole = path if path.startswith("/") else f"{BANDIT}/{path}".rstrip("/")

    def made(run: Callable[..., Any]) -> Operation:
        types = get_type_hints(run)
        kind, about["body"] = types["return"], types.get("body")
        kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        reply = {"answers": (str,) if kind is Reply else kinds}
        if kind is NoneType:
            reply = {"status": 204}
        return Operation(method, whole, run, needs, refusals=refusals, **{**reply, **about})

    return made
