"""How far a reader walks who follows one decision: `python tests/walk.py`.

For each deed, done once before so that nothing is compiled or imported: the package's own functions
that are called, the files they are in, and how often one is followed by one of another file. Then
the lines of the package and of its tests by room.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from services import running

import ensemble_sampling as es

SOURCE = Path(es.__file__).parent


class Walk(NamedTuple):
    """What was entered, in order."""

    entered: tuple[tuple[str, str], ...]  # (file, function)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Calls, files, changes of file."""
        files = [file for file, _ in self.entered]
        changes = sum(a != b for a, b in pairwise(files))
        return len(files), len(set(files)), changes


class Recorder:
    """Notes calls of the package's own functions while it is on, in threads begun after it.

    apart: functions that have nothing to do with a decision, such as the learning beside it
    """

    def __init__(self, apart: Sequence[str] = ()) -> None:
        self.on, self._apart = False, apart
        self._entered: dict[Any, tuple[str, str]] = {}  # by frame: resumed, it is no new call
        self._inside = f"{SOURCE}/"
        self._away = threading.local()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if not self.on or not code.co_filename.startswith(self._inside):
            return
        if code.co_qualname in self._apart:
            depth = getattr(self._away, "depth", 0)
            self._away.depth = depth + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not getattr(self._away, "depth", 0) and code.co_name[0] != "<":
            where = (code.co_filename.removeprefix(self._inside), code.co_qualname)
            self._entered.setdefault(frame, where)

    def walk(self, deed: Callable[[], Any]) -> Walk:
        self._entered.clear()
        self.on = True
        try:
            deed()
        finally:
            self.on = False
        return Walk(tuple(self._entered.values()))


OFFER = np.array([[0.5, 1.0, -0.3], [0.1, -1.0, 0.2]])


def agent() -> es.core.Agent:
    return es.EnsembleSampling(es.Linear(3, noise_std=1.0), 5)


def on_disk(folder: Path, recorder: Recorder) -> dict[str, Walk]:
    """A decision and its outcome, by a bandit in a folder."""
    with es.Bandit.open(folder / "bandit", agent()) as bandit:
        for _ in range(20):
            bandit.learn(bandit.choose(OFFER).id, 1.0)
        made = []
        return {
            "Bandit.choose": recorder.walk(lambda: made.append(bandit.choose(OFFER))),
            "Bandit.learn": recorder.walk(lambda: bandit.learn(made[0].id, 1.0)),
        }


def over_http(folder: Path, recorder: Recorder) -> dict[str, Walk]:
    """A decision over HTTP, from the request to the row in SQLite."""
    with running(folder / "served") as (url, _), httpx.Client(base_url=url, timeout=120) as client:
        client.put("/v1/bandits/shop", json={"actions": ["a", "b"]}).raise_for_status()

        def decide() -> None:
            body = {"context": {"age": 30}}
            client.post("/v1/bandits/shop/choose", json=body).raise_for_status()

        for _ in range(20):
            decide()
        time.sleep(1.0)  # until what learns beside it rests
        walks = [recorder.walk(decide) for _ in range(9)]
        return {"over HTTP": min(walks, key=lambda walk: walk.counts)}  # what works beside it least


def simulated(recorder: Recorder) -> dict[str, Walk]:
    """A simulation whose program is compiled."""
    world = es.LinearBandit(dim=3, arms=4, noise_std=1.0)

    def run() -> None:
        es.simulate(agent(), world, periods=5, realizations=4)

    run()
    return {"es.simulate": recorder.walk(run)}


def rooms(top: Path) -> dict[str, tuple[int, int]]:
    """(files, lines) of each room, of the package or of its tests."""
    found: dict[str, tuple[int, int]] = {}
    for file in sorted(top.rglob("*.py")):
        inside = file.relative_to(top).parts
        room = f"{inside[0]}/" if len(inside) > 1 else "(ground floor)"
        files, lines = found.get(room, (0, 0))
        found[room] = (files + 1, lines + len(file.read_text().splitlines()))
    return found


if __name__ == "__main__":
    recorder = Recorder(
        ["Engine._update", "Engine._update_often", "Decider.warm", "Decider.prepare"]
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walks = on_disk(folder, recorder) | over_http(folder, recorder) | simulated(recorder)
    if "-v" in sys.argv:
        for name, walk in walks.items():
            print(name, *(f"  {file}: {function}" for file, function in walk.entered), sep="\n")
    print(f"{'':24}{'calls':>8}{'files':>8}{'changes':>9}")
    for name, walk in walks.items():
        calls, files, changes = walk.counts
        print(f"{name:24}{calls:8}{files:8}{changes:9}")
    package, tests = rooms(SOURCE), rooms(Path(__file__).parent)
    print(f"\n{'room':24}{'files':>8}{'lines':>8}{'files':>16}{'lines of tests':>16}")
    for room in sorted(
        package.keys() | tests.keys(), key=lambda room: -package.get(room, (0, 0))[1]
    ):
        (files, lines), (others, tested) = package.get(room, (0, 0)), tests.get(room, (0, 0))
        print(f"{room:24}{files:8}{lines:8}{others:16}{tested:16}")
    sums = [sum(part) for each in (package, tests) for part in zip(*each.values(), strict=True)]
    print(f"{'all':24}{sums[0]:8}{sums[1]:8}{sums[2]:16}{sums[3]:16}")
