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
    """A request as an operation sees it."""

    scope: Scope
    service: Service
    key: Key | None  # None where the service has no keys
    name: str  # of the bandit that the path names
    engine: Engine  # of that one; not there for an operation that creates one
    params: Mapping[str, str]  # in the path
    query: Mapping[str, int]
    content: bytes  # the body
    status: int  # of the reply; an operation may set another


def who(call: Call) -> str | None:
    """The key, by its id and its note."""
    return None if call.key is None else f"{call.key.id} {call.key.note}".strip()


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
    """

    method: str
    path: str
    run: Callable[..., Any]
    needs: str | None  # the scope of a key; None: anybody may call
    answers: tuple[Any, ...] = ()  # types of the reply, one of which it has
    body: Any = None  # the type that is decoded
    bodies: tuple[Any, ...] = ()  # those that are documented, where `body` joins several
    optional: bool = False  # whether the body may be left out
    query: dict[str, Range] | None = field(default_factory=dict)  # None: it is not checked
    status: int = 200  # of success
    others: tuple[int, ...] = ()  # of success too
    refusals: tuple[int, ...] = ()  # beyond those that every operation of its kind may give
    bandit: str = ""  # the one served where the path names none
    creates: bool = False  # whether the bandit need not exist
    decides: bool = False  # which a process that only learns does not
    large: bool = False  # whether the body may be as large as a model
    failed: Callable[[Call, Exception], Reply] | None = None  # the reply to an error, if unusual
    example: Any = None  # of a body, for the documentation
    answered: Any = None  # of a reply

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
        if "return" not in types or not run.__doc__:
            raise TypeError(
                f"{method} {whole}: {run.__name__} needs a docstring, which is its summary in "
                "/openapi.json, and a return type, which is None where there is nothing to say"
            )
        kind, about["body"] = types["return"], types.get("body")
        kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        reply = {"answers": (str,) if kind is Reply else kinds}
        if kind is NoneType:
            reply = {"status": 204}
        return Operation(method, whole, run, needs, refusals=refusals, **{**reply, **about})

    return made
