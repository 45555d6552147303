"""A service to look at: a simulated shop, what it looks like after a week, and visitors that go on
coming. All of it is done by a bandit as anybody would open it; only the visitors are made up."""

import heapq
import math
import tempfile
import threading
import time
import warnings
import webbrowser
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from ..client import Client, ServiceError
from ..decide.bandit import Bandit, parts
from ..decide.decisions import Decision
from . import run
from .agents import read_agents
from .replicas import SETTINGS
from .storage import DEFAULT

STEP = 3600.0  # seconds, for whose visitors is decided together
VISITORS = 12.0  # of a step, on the average of a day
TURN = 4.5  # days after which tastes change
WATCHED = 5.0  # days after which a candidate begins to watch
WAIT = 6 * 3600.0  # seconds after which nothing is expected of a visitor any more
FLOOR, HOLDBACK, WHO = 0.05, 0.1, "the shop"
PACE = 1.0  # seconds between two visitors who come while somebody looks
HURRY = 100.0  # how much sooner these make up their minds
AGENTS = """\
import ensemble_sampling as es

CANDIDATES = {"three members": es.EnsembleSampling(es.Linear(dim=256), members=3)}
"""


class Item(NamedTuple):
    """Something the shop sells, from one day on until another."""

    name: str
    kind: str
    price: float
    first: float = 0.0
    last: float = math.inf


ITEMS = (
    Item("trail shoes", "sport", 80.0),
    Item("tennis racket", "sport", 60.0, last=3.0),
    Item("yoga mat", "sport", 25.0, first=2.0),
    Item("novel", "books", 15.0),
    Item("cookbook", "books", 30.0),
    Item("atlas", "books", 45.0, first=3.5),
    Item("teapot", "kitchen", 35.0),
    Item("bread knife", "kitchen", 50.0, last=5.5),
    Item("espresso cups", "kitchen", 20.0, first=5.0),
    Item("chess set", "games", 40.0, first=1.0),
    Item("card game", "games", 12.0),
)
KINDS = ("sport", "books", "kitchen", "games")
TASTES = (  # how much visitors with a phone like each kind, and those without, before and after
    ((1.6, -0.6, -0.2, 0.4), (-0.8, 1.2, 0.5, -0.4)),
    ((-0.6, 0.2, -0.4, 1.9), (0.4, 0.2, 1.5, -0.6)),
)
SOURCES = ("search", "newsletter", "advert")


class Shop:
    """Visitors, what they are shown, and what comes of it: `due` has (when, id, margin) of outcomes
    that are still to come, some of them hours later. Of a few visitors nothing is ever heard."""

    def __init__(self, seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self.due: list[tuple[float, str, float]] = []

    def offer(self, day: float) -> dict[str, Any]:
        """What is sold on a day."""
        sold = (item for item in ITEMS if item.first <= day < item.last)
        return {item.name: {"kind": item.kind, "price": item.price} for item in sold}

    def visitor(self, hour: float) -> dict[str, Any]:
        """What is known of somebody who comes; in the evening more have a phone."""
        phone = self._rng.random() < (0.7 if hour >= 18 else 0.45)
        return {
            "device": "phone" if phone else "desktop",
            "source": SOURCES[self._rng.integers(len(SOURCES))],
            "returning": bool(self._rng.random() < 0.3),
            "hour": int(hour),
        }

    def count(self, hour: float) -> int:
        """How many come in a step; few at night."""
        return self._rng.poisson(VISITORS * (1 - 0.85 * math.cos(2 * math.pi * (hour - 4) / 24)))

    def visit(
        self, made: Decision, context: dict[str, Any], day: float, now: float, hurry: float = 1.0
    ) -> None:
        """What comes of showing somebody an item, and when."""
        item = next(item for item in ITEMS if item.name == made.action)
        likes = TASTES[day >= TURN][context["device"] != "phone"][KINDS.index(item.kind)]
        keen = likes + 0.6 * context["returning"] - 0.5 * math.log(item.price / 30) - 2.4
        buys = self._rng.random() < 1 / (1 + math.exp(-keen))
        delay = self._rng.exponential(2400.0) if buys else 900.0 + self._rng.exponential(900.0)
        if buys or self._rng.random() < 0.9:
            margin = round(0.3 * item.price, 2) if buys else 0.0
            heapq.heappush(self.due, (now + min(delay, WAIT - STEP) / hurry, made.id, margin))

    def come(self, now: float) -> list[tuple[str, float]]:
        """The outcomes that are known by now."""
        found = []
        while self.due and self.due[0][0] <= now:
            found.append(heapq.heappop(self.due)[1:])
        return found


def fill(
    folder: Path, shop: Shop, candidates: Mapping[str, Any], until: float, days: float
) -> None:
    """A ledger as it is after so many days of visitors, which end at the time `until`."""
    now = [begin := until - days * 86400]
    watched, baseline = begin + WATCHED * 86400, {"action": "novel"}
    with warnings.catch_warnings(), Bandit.open(folder, floor=FLOOR) as bandit:
        warnings.simplefilter("ignore")  # the change of tastes is noticed; the dashboard says it
        with parts(bandit) as (_, ledger):
            ledger.clock = lambda: now[0]
            ledger.change(SETTINGS, {"wait": WAIT}, WHO)
        bandit.configure(holdback=HOLDBACK, baseline=baseline, who=WHO)
        for at in np.arange(begin, until, STEP).tolist():
            day, hour, now[0] = (at - begin) / 86400, _hour(at), at
            if at - STEP < watched <= at:
                for name, agent in candidates.items():
                    bandit.shadow(name, agent, who=WHO)
            bandit.learn_many(shop.come(at))
            if hour % 4 < 1:
                bandit.expire(WAIT, 0.0)
            contexts = [shop.visitor(hour) for _ in range(shop.count(hour))]
            made = bandit.choose_many([shop.offer(day)] * len(contexts), contexts=contexts)
            for decision, context in zip(made, contexts, strict=True):
                shop.visit(decision, context, day, at)


def _hour(at: float) -> float:
    local = time.localtime(at)
    return local.tm_hour + local.tm_min / 60


def live(shop: Shop, client: Client, ended: threading.Event) -> None:
    """Visitors from now on, until it ended."""
    while not ended.wait(PACE):
        now = time.time()
        context = shop.visitor(_hour(now))
        with suppress(ServiceError):  # such as while the service ends
            made = client.choose(shop.offer(7.0), context=context)
            shop.visit(made, context, 7.0, now, HURRY)
            if come := shop.come(now):
                client.learn_many(come)


def demo(place: Path | None, port: int = 0, opens: bool = True, days: float = 7.0) -> int:
    """Serve the shop until told to end; the exit status.

    place: a folder, where there may be a shop from before; None: one that is removed at the end.
    opens: whether to open the dashboard in a browser.
    """
    with ExitStack() as stack:
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-")))
        place.mkdir(parents=True, exist_ok=True)
        listening = run.bind("127.0.0.1", port)  # before anything that takes time
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        shop, agents = Shop(), place / "agents.py"
        if not (place / DEFAULT).exists():
            print("a week of visitors ...", flush=True)
            agents.write_text(AGENTS)
            fill(place / DEFAULT, shop, read_agents(agents).candidates, time.time(), days)
        print(f"dashboard at {url}/dashboard\nvisitors go on coming; Ctrl-C ends it", flush=True)
        ended = threading.Event()
        about = (url, shop, ended, opens)
        threading.Thread(target=_visit, args=about, name="visitors", daemon=True).start()
        stack.callback(ended.set)
        candidates = str(agents) if agents.exists() else None
        return run.work(run.Options(str(place), agents=candidates), listening)


def _visit(url: str, shop: Shop, ended: threading.Event, opens: bool) -> None:
    """In a thread: when the service decides, open the dashboard and let visitors come."""
    while not ended.wait(0.05):
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=60).status_code == 200:
                break
    if opens and not ended.is_set():
        webbrowser.open(f"{url}/dashboard")
    with Client(url, timeout=60) as client:
        live(shop, client, ended)
