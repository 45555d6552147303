"""Decisions of a service, asked for over HTTP, with retries that cannot count anything twice."""

import asyncio
import json
import random
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from . import checks
from .decide.decisions import Decision, Prediction, Values
from .decide.shadows import Compared
from .decide.summary import Summary

if TYPE_CHECKING:
    import httpx

AGAIN = (408, 429, 503)  # statuses after which the same request is sent again
JSON = {"Content-Type": "application/json"}
KEY = re.compile(r"[!-~]+")
LONGEST = 5.0  # seconds between two attempts


class ServiceError(Exception):
    """A request that the service refused, or that never reached it.

    status and code are those of its answer; None and "unreachable" where there was none.
    """

    def __init__(self, message: str, code: str = "unreachable", status: int | None = None):
        super().__init__(message)
        self.code, self.status = code, status


class _Request(NamedTuple):
    """What is sent, and how the answer is read."""

    method: str
    path: str
    body: bytes | None
    read: Callable[[Any], Any]


class _Requests:
    """What both clients share: the requests and how replies are read, but not how they are sent."""

    _sender = "Client"  # the class of httpx that sends

    def __init__(
        self,
        url: str,
        key: str | None = None,
        bandit: str = "default",
        *,
        timeout: float = 10.0,
        retries: int = 6,
        transport: Any = None,
    ):
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, got {url!r}")
        checks.scalar("timeout", timeout, low=0.0)
        checks.text("bandit", bandit)
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be text or None, got {type(key).__name__}")
        if key is not None and not KEY.fullmatch(key):  # the message does not repeat it
            raise ValueError(
                "key must be as `ensemble-sampling keys create` prints it: it has spaces, line "
                "breaks or letters that no key has, or nothing at all"
            )
        self._retries = checks.size("retries", retries, least=0)
        self._path = f"/v1/bandits/{quote(bandit, safe='')}"
        self._http = getattr(_httpx(), self._sender)(
            base_url=url.rstrip("/"),
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}"} if key is not None else {},
            transport=transport,
        )

    def _post(self, what: str, body: Any, read: Callable[[Any], Any]) -> _Request:
        return _Request("POST", f"{self._path}/{what}", _json(body), read)

    def _get(self, what: str, read: Callable[[Any], Any]) -> _Request:
        return _Request("GET", f"{self._path}/{what}", None, read)

    def _choose(self, offer: dict[str, Any]) -> _Request:
        return self._post("choose", offer, _decision)

    def _choose_many(self, offers: Iterable[Mapping[str, Any]]) -> _Request:
        several = []
        for one in offers:
            if not isinstance(one, Mapping):
                raise TypeError(f"a decision is a dictionary as choose takes it, got {one!r}")
            several.append({"event": uuid.uuid4().hex, **one})
        return self._post(
            "choose", {"decisions": several}, lambda a: [_decision(d) for d in a["decisions"]]
        )

    def _learn(self, id: str, outcome: Any) -> _Request:
        return self._post("outcome", _observed(id, outcome), lambda answer: answer["new"])

    def _learn_many(self, pairs: Iterable[tuple[str, Any]]) -> _Request:
        several = [_observed(*checks.pair(each)) for each in pairs]
        return self._post("outcome", {"outcomes": several}, lambda answer: answer["new"])

    def _correct(self, id: str, outcome: Any) -> _Request:
        body = {"id": id, "outcome": outcome}
        return self._post("correct", body, lambda answer: answer["changed"])

    def _add(self, id: str, amount: Any, ref: str | None) -> _Request:
        body = {"id": id, "amount": amount, "ref": _named("ref", ref)}
        return self._post("add", body, lambda answer: answer["new"])

    def _expire(self, older_than: float, outcome: Any) -> _Request:
        body = {"older_than": older_than, "outcome": outcome}
        return self._post("expire", body, lambda answer: answer["expired"])

    def _page(self, at: int, first: int, count: int | None) -> _Request | None:
        """For the log from `at` on, of `count` decisions from `first` on; None at their end."""
        left = 1000 if count is None else min(first + count - at, 1000)
        number = "" if count is None else f"&count={left}"
        return None if left <= 0 else self._get(f"log?first={at}{number}", lambda answer: answer)

    def _wait(self, attempt: int, response: "httpx.Response | None") -> float:
        """Seconds until the next attempt: longer each time, and not the same for everybody."""
        after = "" if response is None else response.headers.get("retry-after", "")
        least = float(after) if after.isdigit() else 0.0
        return min(LONGEST, max(least, 0.05 * 2**attempt)) * random.uniform(0.75, 1.25)


def _offer(actions: Any, context: Any, available: Any, event: str | None = None) -> dict[str, Any]:
    given = {"actions": actions, "context": context, "available": available, "event": event}
    return {name: value for name, value in given.items() if value is not None}


def _named(what: str, given: str | None) -> str:
    """An id by which the service recognizes what is sent twice; a new one if none is given."""
    return uuid.uuid4().hex if given is None else checks.text(what, given)


def _observed(id: str, outcome: Any) -> dict[str, Any]:
    # Where outcomes add up, the reference tells a second sending from a second outcome.
    return {"id": id, "outcome": outcome, "ref": uuid.uuid4().hex}


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, default=_plain, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(
            "what is sent must be finite where it is a number, must not contain itself or be "
            f"nested too deeply ({error})"
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot be sent as JSON: {value!r}")


def _decision(answer: Mapping[str, Any]) -> Decision:
    return Decision(
        answer["id"],
        answer["index"],
        answer["action"],
        answer["probability"],
        np.array(answer["probabilities"]),
        _values(answer),
    )


def _values(answer: Mapping[str, Any]) -> Values | None:
    if answer["mean"] is None:
        return None
    return Values(np.array(answer["mean"], float), np.array(answer["spread"], float))


def _prediction(answer: Mapping[str, Any]) -> Prediction:
    return Prediction(np.array(answer["probabilities"]), _values(answer))


def _summary(answer: Mapping[str, Any]) -> Summary:
    found = _known(Summary, answer)
    shadows = tuple(Compared(**_known(Compared, each)) for each in found.get("shadows", ()))
    return Summary(**{**found, "warnings": tuple(found["warnings"]), "shadows": shadows})


def _known(kind: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of an answer; a newer service may say more."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in answer.items() if name in names}


def _read(request: _Request, response: "httpx.Response") -> Any:
    if response.is_success:
        return request.read(response.json())
    try:
        error = response.json()["error"]
        code, message = error["code"], error["message"]
    except (ValueError, KeyError, TypeError):
        code, message = "failed", response.text[:200] or "no words"
    where = f"{request.method} {request.path.partition('?')[0]}"
    raise ServiceError(f"{where}: {response.status_code}, {message}", code, response.status_code)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ImportError("this needs httpx: pip install 'ensemble-sampling[client]'") from error
    return httpx


class Client(_Requests):
    """Asks a service for decisions, and tells it what came of them.

    It tries again when the service cannot be reached, is overloaded or restarting; whatever it
    sends carries an id of its own, so that nothing is decided or counted twice.

    url: where the service listens, such as "http://127.0.0.1:8000".
    key: of `ensemble-sampling keys create`, or None where the service asks for none.
    timeout: seconds for one attempt.
    retries: how often to try again.
    """

    def choose(
        self,
        actions: Any = None,
        *,
        context: Any = None,
        available: Any = None,
        event: str | None = None,
    ) -> Decision:
        """Choose among actions, see `Bandit.choose`. An `event` asked for again gets the same."""
        offer = _offer(actions, context, available, _named("event", event))
        return self._send(self._choose(offer))

    def choose_many(self, offers: Iterable[Mapping[str, Any]]) -> list[Decision]:
        """Several decisions, all of them or none: each {"actions", "context", "available",
        "event"}, as far as it has them."""
        return self._send(self._choose_many(offers))

    def learn(self, id: str, outcome: Any) -> bool:
        """What came of a decision, or of an event; False if it was known."""
        return self._send(self._learn(id, outcome))

    def learn_many(self, pairs: Iterable[tuple[str, Any]]) -> list[bool]:
        """The same for pairs (id, outcome), all of them or none."""
        return self._send(self._learn_many(pairs))

    def correct(self, id: str, outcome: Any) -> bool:
        """The outcome turned out to be another; False if it is what is known."""
        return self._send(self._correct(id, outcome))

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        """Add to an outcome; the same `ref` counts once, and without one this call does."""
        return self._send(self._add(id, amount, ref))

    def expire(self, older_than: float, outcome: Any) -> int:
        """Assume an outcome for decisions older than so many seconds; how many there were."""
        return self._send(self._expire(older_than, outcome))

    def predict(
        self, actions: Any = None, *, context: Any = None, available: Any = None
    ) -> Prediction:
        """What a decision would be made of; nothing is recorded."""
        offer = _offer(actions, context, available)
        return self._send(self._post("predict", offer, _prediction))

    def summary(self) -> Summary:
        """How the bandit is doing, for people too."""
        return self._send(self._get("summary", _summary))

    def log(self, first: int = 0, count: int | None = None) -> dict[str, list[Any]]:
        """Decisions from `first` on, all or so many, as columns: see `Bandit.log`."""
        columns: dict[str, list[Any]] = {}
        at: int | None = first
        while at is not None and (request := self._page(at, first, count)):
            at = _join(columns, self._send(request))
        return columns

    def _send(self, request: _Request) -> Any:
        httpx = _httpx()
        for attempt in range(self._retries + 1):
            response = None
            try:
                response = self._http.request(
                    request.method, request.path, content=request.body, headers=JSON
                )
                if response.status_code not in AGAIN or attempt == self._retries:
                    return _read(request, response)
            except httpx.TransportError as error:
                if attempt == self._retries:
                    raise _unreachable(error, attempt + 1) from error
            sleep(self._wait(attempt, response))
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class AsyncClient(_Requests):
    """The same for asyncio: `decision = await client.choose(...)`."""

    _sender = "AsyncClient"

    async def choose(
        self,
        actions: Any = None,
        *,
        context: Any = None,
        available: Any = None,
        event: str | None = None,
    ) -> Decision:
        """See `Client.choose`."""
        offer = _offer(actions, context, available, _named("event", event))
        return await self._send(self._choose(offer))

    async def choose_many(self, offers: Iterable[Mapping[str, Any]]) -> list[Decision]:
        """See `Client.choose_many`."""
        return await self._send(self._choose_many(offers))

    async def learn(self, id: str, outcome: Any) -> bool:
        """See `Client.learn`."""
        return await self._send(self._learn(id, outcome))

    async def learn_many(self, pairs: Iterable[tuple[str, Any]]) -> list[bool]:
        """See `Client.learn_many`."""
        return await self._send(self._learn_many(pairs))

    async def correct(self, id: str, outcome: Any) -> bool:
        """See `Client.correct`."""
        return await self._send(self._correct(id, outcome))

    async def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        """See `Client.add`."""
        return await self._send(self._add(id, amount, ref))

    async def expire(self, older_than: float, outcome: Any) -> int:
        """See `Client.expire`."""
        return await self._send(self._expire(older_than, outcome))

    async def predict(
        self, actions: Any = None, *, context: Any = None, available: Any = None
    ) -> Prediction:
        """See `Client.predict`."""
        offer = _offer(actions, context, available)
        return await self._send(self._post("predict", offer, _prediction))

    async def summary(self) -> Summary:
        """See `Client.summary`."""
        return await self._send(self._get("summary", _summary))

    async def log(self, first: int = 0, count: int | None = None) -> dict[str, list[Any]]:
        """See `Client.log`."""
        columns: dict[str, list[Any]] = {}
        at: int | None = first
        while at is not None and (request := self._page(at, first, count)):
            at = _join(columns, await self._send(request))
        return columns

    async def _send(self, request: _Request) -> Any:
        httpx = _httpx()
        for attempt in range(self._retries + 1):
            response = None
            try:
                response = await self._http.request(
                    request.method, request.path, content=request.body, headers=JSON
                )
                if response.status_code not in AGAIN or attempt == self._retries:
                    return _read(request, response)
            except httpx.TransportError as error:
                if attempt == self._retries:
                    raise _unreachable(error, attempt + 1) from error
            await asyncio.sleep(self._wait(attempt, response))
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


def _join(columns: dict[str, list[Any]], page: Mapping[str, Any]) -> int | None:
    """Add a page of the log to what there is; where the next one begins, None at the end."""
    for name, values in page["columns"].items():
        columns.setdefault(name, []).extend(values)
    return page["next"]


def _unreachable(error: Exception, attempts: int) -> ServiceError:
    what = str(error) or type(error).__name__
    return ServiceError(f"the service cannot be reached, tried {attempts} times: {what}")
