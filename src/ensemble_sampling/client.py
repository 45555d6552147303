"""Decisions of a service, asked for over HTTP, with retries that cannot count anything twice."""

import asyncio
import json
import random
import re
import uuid
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from functools import wraps
from time import sleep
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    overload,
)
from urllib.parse import quote

import numpy as np

from . import checks
from .decide.decisions import Decision, Prediction, Values
from .decide.explain import Explanation, Reason
from .decide.lift import Interval, Lift, moment
from .decide.metrics import Metric
from .decide.segments import Segment, Segments
from .decide.shadows import Compared
from .decide.summary import Summary
from .extras import need
from .ledger.rows import Change

if TYPE_CHECKING:
    import httpx

AGAIN = (408, 429, 503)  # statuses after which the same request is sent again
JSON = {"Content-Type": "application/json"}
KEY = re.compile(r"[!-~]+")
LONGEST = 5.0  # seconds between two attempts


class ServiceError(Exception):
    """A request that the service refused, or that never reached it.

    status, code: those of the answer; None and "unreachable" where there was none.
    """

    def __init__(self, message: str, code: str = "unreachable", status: int | None = None):
        super().__init__(message)
        self.code, self.status = code, status


Since = datetime | timedelta | float | None
P = ParamSpec("P")
T = TypeVar("T")
Reply = Generator[Any, Any, T]  # yields requests, which are answered, and seconds to wait


class _call(Generic[P, T]):
    """Makes a method of a generator, which returns what the method does: at once for a
    `Client`, to be awaited for an `AsyncClient`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Reply[T]]):
        self._steps = steps

    @overload
    def __get__(self, client: "Client", owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...

    def __get__(self, client: Any, owner: Any) -> Any:
        @wraps(self._steps)
        def method(*args: Any, **named: Any) -> Any:
            return client._run(self._steps(client, *args, **named))

        return self._steps if client is None else method


class _Requests:
    """What both clients share: all but how requests are sent."""

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
        httpx = need("httpx", "a client")
        self._unreachable = httpx.TransportError
        self._http = getattr(httpx, self._sender)(
            base_url=url.rstrip("/"),
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}"} if key is not None else {},
            transport=transport,
        )

    @_call
    def choose(
        self,
        actions: Any = None,
        *,
        context: Any = None,
        available: Any = None,
        event: str | None = None,
        subject: str | None = None,
    ) -> Reply[Decision]:
        """Choose among actions, see `Bandit.choose`. The same `event` gets the same decision again.
        `subject` names whom the decision is about, see `erase`."""
        offer = {"actions": actions, "context": context, "available": available}
        body = {**offer, "event": _named("event", event)}
        if subject is not None:
            body["subject"] = checks.text("subject", subject)
        return _decision((yield from self._send("POST", "choose", body)))

    @_call
    def choose_many(self, offers: Iterable[Mapping[str, Any]]) -> Reply[list[Decision]]:
        """Several decisions, all of them or none, each a dictionary with some of the keys
        "actions", "context", "available", "event" and "subject"."""
        several = []
        for one in offers:
            if not isinstance(one, Mapping):
                raise TypeError(f"a decision is a dictionary as choose takes it, got {one!r}")
            several.append({"event": uuid.uuid4().hex, **one})
        made = yield from self._send("POST", "choose", {"decisions": several})
        return [_decision(one) for one in made["decisions"]]

    @_call
    def learn(self, id: str | Decision, outcome: Any) -> Reply[bool]:
        """Report the outcome of a decision, or of an event; False if it was known."""
        return (yield from self._send("POST", "outcome", _observed(id, outcome)))["new"]

    @_call
    def learn_many(self, pairs: Iterable[tuple[str, Any]]) -> Reply[list[bool]]:
        """The same for pairs (id, outcome), all of them or none."""
        several = [_observed(*checks.pair(each)) for each in pairs]
        return (yield from self._send("POST", "outcome", {"outcomes": several}))["new"]

    @_call
    def correct(self, id: str | Decision, outcome: Any) -> Reply[bool]:
        """Replace the outcome of a decision; False if it has this one already."""
        return (yield from self._send("POST", "correct", {"id": _id(id), "outcome": outcome}))[
            "changed"
        ]

    @_call
    def add(self, id: str | Decision, amount: Any, ref: str | None = None) -> Reply[bool]:
        """Add to an outcome. The same `ref` counts once; without a `ref` every call counts."""
        body = {"id": _id(id), "amount": amount, "ref": _named("ref", ref)}
        return (yield from self._send("POST", "add", body))["new"]

    @_call
    def expire(self, older_than: float, outcome: Any) -> Reply[int]:
        """Assume an outcome for older decisions, in seconds, that have none; returns how many."""
        body = {"older_than": older_than, "outcome": outcome}
        return (yield from self._send("POST", "expire", body))["expired"]

    @_call
    def erase(self, subject: str, *, keep: bool = False) -> Reply[int]:
        """Remove what decisions about a subject say, see `Bandit.erase`; returns how many
        decisions. It needs a key of scope admin."""
        body = {"subject": checks.text("subject", subject), "keep": checks.flag("keep", keep)}
        found = yield from self._send("POST", "erase", body)
        if known := found.get("known"):
            warnings.warn(
                f"{known} of their outcomes are known to the state from before decisions were "
                "removed, and stay known to it: only Bandit.migrate begins without",
                stacklevel=2,
            )
        return found["erased"]

    @_call
    def predict(
        self, actions: Any = None, *, context: Any = None, available: Any = None
    ) -> Reply[Prediction]:
        """The probabilities and values of a decision; nothing is recorded."""
        offer = {"actions": actions, "context": context, "available": available}
        found = yield from self._send("POST", "predict", offer)
        return Prediction(np.array(found["probabilities"]), _values(found))

    @_call
    def summary(self) -> Reply[Summary]:
        """How the bandit is doing, see `Bandit.summary`."""
        found = _known(Summary, (yield from self._send("GET", "summary")))
        shadows = tuple(Compared(**_known(Compared, each)) for each in found.get("shadows", ()))
        return Summary(**{**found, "warnings": tuple(found["warnings"]), "shadows": shadows})

    @_call
    def explain(self, id: str | Decision, *, top: int = 5) -> Reply[Explanation]:
        """Why a decision was made, by what is known now, see `Bandit.explain`."""
        checks.text("id", id)
        path = f"explain/{quote(_id(id), safe='')}?top={checks.count('top', top)}"
        found = _known(Explanation, (yield from self._send("GET", path)))
        reasons = tuple(Reason(**_known(Reason, each)) for each in found["reasons"])
        actions, offer = tuple(found["actions"]), tuple(found["offer"])
        return Explanation(**{**found, "reasons": reasons, "actions": actions, "offer": offer})

    @_call
    def lift(
        self, metric: str | None = None, *, daily: bool = False, since: Since = None
    ) -> Reply[Lift]:
        """What the bandit earns compared with the baseline, see `Bandit.lift`."""
        what = "lift" if metric is None else f"metrics/{quote(metric, safe='')}"
        path = f"{what}?daily={int(daily)}&since={int(moment(since))}"
        return _lift((yield from self._send("GET", path)))

    @_call
    def observe(self, id: str | Decision, values: Mapping[str, float]) -> Reply[bool]:
        """Record other numbers that came of a decision: `Bandit.observe`; False if they were
        known."""
        return (yield from self._send("POST", "observe", {"id": _id(id), "values": dict(values)}))[
            "new"
        ]

    @_call
    def metrics(self, *, since: Since = None) -> Reply[tuple[Metric, ...]]:
        """The numbers that `observe` recorded, see `Bandit.metrics`."""
        path = f"metrics?since={int(moment(since))}"
        return tuple(map(_metric, (yield from self._send("GET", path))))

    @_call
    def segments(self, key: str, *, since: Since = None) -> Reply[Segments]:
        """Reward, lift and actions for every value of a key of the context: `Bandit.segments`."""
        path = f"segments/{quote(checks.text('key', key), safe='')}?since={int(moment(since))}"
        found = _known(Segments, (yield from self._send("GET", path)))
        return Segments(**{**found, "parts": tuple(map(_segment, found["parts"]))})

    @_call
    def settings(self) -> Reply[dict[str, Any]]:
        """The settings of the bandit."""
        return (yield from self._send("GET", "settings"))

    @_call
    def configure(self, **settings: Any) -> Reply[dict[str, Any]]:
        """Change some settings, such as `holdback=0.1`, and no others; returns all of them. It
        needs a key of scope admin."""
        return (yield from self._send("PATCH", "settings", settings))

    @_call
    def resume(self) -> Reply[bool]:
        """Let the bandit decide again, see `Bandit.resume`. It needs a key of scope admin."""
        return (yield from self._send("POST", "resume"))["changed"]

    @_call
    def log(self, first: int = 0, count: int | None = None) -> Reply[dict[str, list[Any]]]:
        """Decisions as columns, from number `first` on, `count` of them or all: `Bandit.log`."""
        columns: dict[str, list[Any]] = {}
        at = first
        while at is not None and (count is None or at < first + count):
            most = "" if count is None else f"&count={min(first + count - at, 1000)}"
            page = yield from self._send("GET", f"log?first={at}{most}")
            for name, values in page["columns"].items():
                columns.setdefault(name, []).extend(values)
            at = page["next"]
        return columns

    @_call
    def changes(self) -> Reply[list[Change]]:
        """What was changed of settings and shadows, and removed, when and by whom."""
        return [Change(**one) for one in (yield from self._send("GET", "changes"))]

    @_call
    def status(self) -> Reply[dict[str, Any]]:
        """The state of the bandit in the process that answers, and what is wrong."""
        return (yield from self._send("GET", "status"))

    @_call
    def history(self, buckets: int = 60, *, since: Since = None) -> Reply[list[dict[str, Any]]]:
        """Decisions over time, in so many parts of it at most, oldest first; without `since` from
        where decisions are dense."""
        path = f"history?buckets={checks.count('buckets', buckets)}&since={int(moment(since))}"
        return (yield from self._send("GET", path))

    @_call
    def recent(self, count: int = 20) -> Reply[list[dict[str, Any]]]:
        """The last decisions and why, newest first."""
        return (yield from self._send("GET", f"recent?count={checks.count('count', count)}"))

    @_call
    def evaluate(
        self, candidates: Iterable[str] | None = None, baseline: str = "logged"
    ) -> Reply[dict[str, list[Any]]]:
        """What candidates of the service, or all of them, would have earned on the log: the columns
        of a table, see `es.evaluate`."""
        names = None if candidates is None else list(candidates)
        body = {"candidates": names, "baseline": baseline}
        return (yield from self._send("POST", "evaluate", body))["columns"]

    @_call
    def candidates(self) -> Reply[list[str]]:
        """The agents that the service has beside the one in charge."""
        return (yield from self._send("GET", "shadows"))["candidates"]

    @_call
    def shadow(self, name: str) -> Reply[None]:
        """Let a candidate watch, see `Bandit.shadow`; what it would have earned is in `summary`.
        This and what follows need a key of scope admin."""
        yield from self._send("POST", "shadows", {"name": checks.text("name", name)})

    @_call
    def dismiss(self, name: str) -> Reply[None]:
        """Let a shadow go, see `Bandit.dismiss`."""
        yield from self._send("DELETE", f"shadows/{quote(checks.text('name', name), safe='')}")

    @_call
    def promote(self, name: str) -> Reply[None]:
        """Put a shadow in charge, see `Bandit.promote`."""
        path = f"shadows/{quote(checks.text('name', name), safe='')}/promote"
        yield from self._send("POST", path)

    @_call
    def create(
        self, actions: Iterable[str] | None = None, floor: float | None = None
    ) -> Reply[dict[str, Any]]:
        """Begin the bandit of this client; without arguments one that is there stays as it is."""
        given = {"actions": None if actions is None else list(actions), "floor": floor}
        body = {name: value for name, value in given.items() if value is not None}
        return (yield from self._send("PUT", "", body))

    @_call
    def bandits(self) -> Reply[list[str]]:
        """The bandits that there are."""
        return (yield from self._send("GET", "/v1/bandits"))["bandits"]

    @_call
    def key(self) -> Reply[dict[str, Any]]:
        """What the key of this client allows: `scopes`, and the one `bandit` that it is for."""
        return (yield from self._send("GET", "/v1/key"))

    def _send(self, method: str, what: str, body: Any = None) -> Reply[Any]:
        """Send a request, again where that may help; the value of the answer."""
        try:
            said = None if body is None else json.dumps(body, default=_plain, allow_nan=False)
            content = None if said is None else said.encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(
                "what is sent must be finite where it is a number, must not contain itself or be "
                f"nested too deeply ({error})"
            ) from error
        path = what if what.startswith("/") else f"{self._path}/{what}".rstrip("/")
        request = self._http.build_request(method, path, content=content, headers=JSON)
        for attempt in range(self._retries):
            found = yield request
            after = ""
            if not isinstance(found, Exception):
                if found.status_code not in AGAIN:
                    return _read(found)
                after = found.headers.get("retry-after", "")
            # Longer each time, and not the same for everybody.
            wait = max(float(after) if after.isdigit() else 0.0, 0.05 * 2**attempt)
            yield min(LONGEST, wait) * random.uniform(0.75, 1.25)
        found = yield request
        if isinstance(found, Exception):
            tried, what = self._retries + 1, str(found) or type(found).__name__
            said = f"the service cannot be reached, tried {tried} times: {what}"
            raise ServiceError(said) from found
        return _read(found)


def _named(what: str, given: str | None) -> str:
    """An id by which the service recognizes what is sent twice; a new one if none is given."""
    return uuid.uuid4().hex if given is None else checks.text(what, given)


def _id(decision: str | Decision) -> str:
    return decision.id if isinstance(decision, Decision) else decision


def _observed(id: str | Decision, outcome: Any) -> dict[str, Any]:
    # Where outcomes add up, the reference tells a second sending from a second outcome.
    return {"id": _id(id), "outcome": outcome, "ref": uuid.uuid4().hex}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot be sent as JSON: {value!r}")


def _decision(found: Mapping[str, Any]) -> Decision:
    shares = np.array(found["probabilities"])
    about = (found["id"], found["index"], found["action"], found["probability"])
    control, again = found.get("control"), found.get("again", False)
    return Decision(*about, shares, _values(found), control=control, again=again)


def _interval(found: Mapping[str, Any] | None) -> Interval | None:
    return None if found is None else Interval(**_known(Interval, found))


def _lift(found: Mapping[str, Any]) -> Lift:
    names = ("bandit", "control", "difference", "ratio")
    intervals = {name: _interval(found[name]) for name in names}
    return Lift(**{**_known(Lift, found), **intervals, "parts": tuple(map(_lift, found["parts"]))})


def _metric(found: Mapping[str, Any]) -> Metric:
    guard = None if found["guard"] is None else (found["guard"][0], found["guard"][1])
    about = {"mean": _interval(found["mean"]), "lift": _lift(found["lift"]), "guard": guard}
    return Metric(**{**_known(Metric, found), **about})


def _segment(found: Mapping[str, Any]) -> Segment:
    lift = None if found["lift"] is None else _lift(found["lift"])
    about = {"reward": _interval(found["reward"]), "lift": lift}
    return Segment(**{**_known(Segment, found), **about})


def _values(found: Mapping[str, Any]) -> Values | None:
    if found["mean"] is None:
        return None
    return Values(np.array(found["mean"], float), np.array(found["spread"], float))


def _known(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of an answer; a newer service may say more."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in found.items() if name in names}


def _read(found: "httpx.Response") -> Any:
    """The value of an answer."""
    if found.is_success:
        return found.json() if found.content else None
    try:
        error = found.json()["error"]
        code, message = error["code"], error["message"]
    except (ValueError, KeyError, TypeError):
        code, message = "failed", found.text[:200] or "no words"
    where, status = f"{found.request.method} {found.request.url.path}", found.status_code
    raise ServiceError(f"{where}: {status}, {message}", code, status)


class Client(_Requests):
    """Asks a service for decisions, and reports their outcomes.

    It tries again when the service cannot be reached, is overloaded or restarting; every message
    has an id, so that nothing is decided or counted twice.

    url: where the service listens, such as "http://127.0.0.1:8000".
    key: of `ensemble-sampling keys create`, or None where the service asks for none.
    timeout: seconds for one attempt.
    retries: how often to try again.
    """

    def _run(self, steps: Reply[T]) -> T:
        found = None
        while True:
            try:
                step = steps.send(found)
            except StopIteration as end:
                return end.value
            try:
                found = sleep(step) if isinstance(step, float) else self._http.send(step)
            except self._unreachable as error:
                found = error

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class AsyncClient(_Requests):
    """The same for asyncio: `decision = await client.choose(...)`."""

    _sender = "AsyncClient"

    async def _run(self, steps: Reply[T]) -> T:
        found = None
        while True:
            try:
                step = steps.send(found)
            except StopIteration as end:
                return end.value
            try:
                found = (
                    await asyncio.sleep(step)
                    if isinstance(step, float)
                    else await self._http.send(step)
                )
            except self._unreachable as error:
                found = error

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
