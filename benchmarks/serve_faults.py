"""Kill processes of the service under load, again and again, and see that nothing was lost.

A worker, the learner, the database server and the whole service are killed in turn with SIGKILL
while clients ask and tell. Afterwards: every decision and every outcome that was acknowledged is
in the ledger once, as it was answered; and the state is that of a replay from the beginning.

    python benchmarks/serve_faults.py --place sqlite --kills 50
    python benchmarks/serve_faults.py --place postgres --kills 50
"""

import argparse
import http.client
import json
import os
import random
import signal
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from serving import Place, Service, places

import ensemble_sampling as es

ACTIONS = {f"item{k}": {"topic": f"t{k % 3}", "price": k / 10} for k in range(8)}


class Client(threading.Thread):
    """Asks and tells without end; what fails is asked again under the same event."""

    def __init__(self, port: int, seed: int):
        super().__init__(daemon=True)
        self.port, self.rng, self.ending = port, random.Random(seed), False
        self.decided: dict[str, dict[str, Any]] = {}  # acknowledged, by event
        self.told: dict[str, float] = {}
        self.last = time.monotonic()  # when the last answer came
        self.odd: list[str] = []
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.ending:
            event = uuid.uuid4().hex
            context = {"device": self.rng.choice(["phone", "desktop"])}
            made = self._until("choose", {"event": event, "actions": ACTIONS, "context": context})
            if made is None:
                return
            self.decided[event] = made
            if self.rng.random() < 0.7:
                outcome = float(self.rng.random() < 0.1 + 0.1 * made["index"])
                if self._until("outcome", {"id": made["id"], "outcome": outcome}) is None:
                    return
                self.told[made["id"]] = outcome

    def _until(self, what: str, body: dict[str, Any]) -> dict[str, Any] | None:
        while not self.ending:
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                path, head = f"/v1/bandits/default/{what}", {"Content-Type": "application/json"}
                self._connection.request("POST", path, json.dumps(body), head)
                answer = self._connection.getresponse()
                said = answer.read()
                if answer.status == 200:
                    self.last = time.monotonic()
                    return json.loads(said)
                if answer.status != 503:
                    self.odd.append(f"{answer.status} {said[:300]!r}")
            except (OSError, http.client.HTTPException):
                self._connection = None
            time.sleep(0.02)
        return None


def kill(what: str, service: Service, place: Place) -> None:
    if what == "whole":
        service.kill()
        service.start()
    elif what == "database":
        assert place.postgres is not None
        place.postgres.kill()
        time.sleep(0.3)
        place.postgres.start()
    else:
        learner = None
        with suppress(OSError, ValueError):
            learner = service.get("/v1/bandits/default/status")["learner"]
        pid = int(learner.split(":")[1]) if learner else None
        workers = [one for one in service.workers_pids() if (one == pid) == (what == "learner")]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(workers[0], signal.SIGKILL)


def back(clients: list[Client], limit: float = 60.0) -> float:
    """Seconds until everybody got an answer again."""
    began = time.monotonic()
    while any(client.last < began for client in clients):
        if time.monotonic() - began > limit:
            raise TimeoutError("no answer for a minute")
        time.sleep(0.005)
    return time.monotonic() - began


def check(place: Place, clients: list[Client]) -> dict[str, Any]:
    """What the ledger holds against what was acknowledged; the state against a replay."""
    where = f"{place.url}#default" if place.postgres else place.folder / "default"
    with es.Bandit.open(where) as bandit:  # pyright: ignore[reportArgumentType]
        log, state = bandit.log(), bandit.state
        outcomes, known = bandit._ledger.outcomes, bandit._ledger.outcomes
        rows = {id: n for n, id in enumerate(log["id"])}
        bandit._ledger.discard("state.safetensors")
        bandit._replica.version = None
        bandit._replica._marks = []
        replayed = bandit._replica.state(bandit._ledger)
        same = jax.tree.all(jax.tree.map(np.array_equal, state, jax.tree.map(np.array, replayed)))
    lost = wrong = forgotten = 0
    for client in clients:
        for made in client.decided.values():
            n = rows.get(made["id"])
            lost += n is None
            if n is not None:
                wrong += log["action"][n] != made["action"]
                wrong += not np.isclose(log["probability"][n], made["probability"], rtol=1e-6)
        for id, outcome in client.told.items():
            n = rows.get(id)
            forgotten += n is None or log["outcome"][n] != outcome
    events = sum(len(client.decided) for client in clients)
    return {
        "decisions": len(rows),
        "acknowledged": events,
        "ids_distinct": len({m["id"] for c in clients for m in c.decided.values()}) == events,
        "lost": lost,
        "changed": wrong,
        "outcomes": outcomes,
        "outcomes_acknowledged": sum(len(client.told) for client in clients),
        "outcomes_lost": forgotten,
        "state_is_a_replay": bool(same),
        "learned": known,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two kills")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    kinds = ["worker", "learner", "whole"] + ["database"] * (args.place == "postgres")
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    with places(args.place) as place:
        with Service(place, workers=args.workers) as service:
            clients = [Client(service.port, seed) for seed in range(args.clients)]
            for client in clients:
                client.start()
            back(clients)
            for n in range(args.kills):
                time.sleep(args.pause * random.Random(n).uniform(0.5, 1.5))
                kind = kinds[n % len(kinds)]
                kill(kind, service, place)
                took[kind].append(back(clients))
                print(f"{n + 1} {kind}: back after {took[kind][-1]:.2f} s", flush=True)
            for client in clients:
                client.ending = True
            for client in clients:
                client.join()
            odd = [one for client in clients for one in client.odd]
        found = check(place, clients)
    found |= {"place": args.place, "kills": args.kills, "odd_answers": odd[:5]}
    found |= {f"back_after_{k}_s": {"median": float(np.median(v)), "worst": max(v)}
              for k, v in took.items() if v}  # fmt: skip
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    good = not (found["lost"] or found["changed"] or found["outcomes_lost"] or odd)
    raise SystemExit(0 if good and found["state_is_a_replay"] and found["ids_distinct"] else 1)


if __name__ == "__main__":
    main()
