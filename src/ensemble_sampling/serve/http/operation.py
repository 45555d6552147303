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
    body: the value of the JSON, or the bytes where the operation declares no type.
    status: of the reply; an operation may set another.
    """

    scope: Scope
    service: Service
    key: Key | None
    name: str
    engine: Engine
    params: Mapping[str, str]
    query: Mapping[str, int]
    body: Any
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

    run: returns the value of the reply, or a `Reply`. A coroutine function runs in the event loop,
        any other in a thread.
    needs: the scope of a key; None: anybody may call.
    answers: types of the reply, one of which it has.
    body: the type that is decoded; None: the operation gets bytes.
    bodies: the types that are documented, where `body` joins several.
    optional: whether the body may be left out.
    query: its parameters; None: they are not checked.
    status, others: of success.
    refusals: statuses beyond those that every operation of its kind may give.
    bandit: the one served where the path names none.
    creates: whether the bandit need not exist.
    decides: whether it makes decisions, which a process that only learns does not.
    large: whether the body may be as large as a model.
    example, answered: a body and a reply, for the documentation.
    """

    method: str
    path: str
    run: Callable[[Call], Any]
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
    example: Any = None
    answered: Any = None

    @cached_property
    def decoder(self) -> "msgspec.json.Decoder[Any] | None":
        return None if self.body is None else msgspec.json.Decoder(self.body)

    @cached_property
    def in_loop(self) -> bool:
        """Whether it runs in the event loop."""
        return iscoroutinefunction(self.run)


def operation(
    method: str, path: str, needs: str | None, **about: Any
) -> Callable[[Callable[[Call], Any]], Operation]:
    """Make a function an operation: its docstring is the summary, and its return type the type of
    the reply, without which the status is 204."""

    def made(run: Callable[[Call], Any]) -> Operation:
        kind = get_type_hints(run)["return"]
        kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        if kind is NoneType:
            return Operation(method, path, run, needs, **{"status": 204, **about})
        answers = (str,) if kind is Reply else kinds
        return Operation(method, path, run, needs, **{"answers": answers, **about})

    return made
