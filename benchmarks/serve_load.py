"""Decisions per second that the service holds, and how long each takes, client on the same machine.

Fifty actions described by dictionaries, hashed into 256 features; the default agent; outcomes for
half of the decisions. Requests come at a steady rate whether or not earlier ones were answered, so
that a service that falls behind shows it; `--rate 0` asks as fast as `--connections` get answers.

    python benchmarks/serve_load.py --rate 500 --seconds 120 --place sqlite --place postgres
"""

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
from serving import Service, places

ACTIONS, BODIES = 50, 2000


def bodies(rng: random.Random) -> list[bytes]:
    """Decisions to be made: a catalogue in which prices change, in contexts that all differ."""

    def described() -> dict[str, object]:
        return {
            "topic": f"t{rng.randrange(8)}",
            "brand": f"b{rng.randrange(30)}",
            "price": round(rng.random(), 2),
            "new": rng.random() < 0.2,
        }

    catalogue = {f"item{k}": described() for k in range(ACTIONS)}
    found = []
    for _ in range(BODIES):
        catalogue[f"item{rng.randrange(ACTIONS)}"] = described()
        context = {
            "device": rng.choice(["phone", "tablet", "desktop"]),
            "day": rng.randrange(7),
            "member": rng.random() < 0.3,
        }
        found.append(json.dumps({"actions": catalogue, "context": context}).encode())
    return found


class Connection(asyncio.Protocol):
    """One request at a time over a connection that is kept; next to no work, so that what is
    measured is the service."""

    def __init__(self) -> None:
        self._data = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def post(self, path: str, body: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or self._answer is None:
            return
        head = self._data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self._data) >= end + 4 + length:
            body, self._data = self._data[end + 4 : end + 4 + length], b""
            answer, self._answer = self._answer, None
            answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("lost"))


class Load:
    """Counts what was asked and how long it took."""

    def __init__(self, port: int, connections: int):
        self.port, self.free = port, asyncio.Queue[Connection]()
        self.connections = connections
        self.took: list[float] = []
        self.told: list[float] = []
        self.errors: list[str] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            _, made = await loop.create_connection(Connection, "127.0.0.1", self.port)
            self.free.put_nowait(made)

    async def one(self, body: bytes, due: float, outcome: float | None) -> None:
        """A decision, timed from when it was due, and perhaps its outcome."""
        base = "/v1/bandits/default"
        found = await self._ask(f"{base}/choose", body, due, self.took)
        if found is not None and outcome is not None:
            told = json.dumps({"id": found["id"], "outcome": outcome}).encode()
            await self._ask(f"{base}/outcome", told, time.perf_counter(), self.told)

    async def _ask(self, path: str, body: bytes, due: float, took: list[float]) -> dict | None:
        connection = await self.free.get()
        try:
            status, answer = await connection.post(path, body)
        except ConnectionError as error:
            self.errors.append(str(error))
            return None
        self.free.put_nowait(connection)
        took.append(time.perf_counter() - due)
        if status not in (200, 201):
            self.errors.append(f"{status} {answer[:200]!r}")
            return None
        return json.loads(answer)

    async def run(self, rate: float, seconds: float) -> float:
        rng, asked = random.Random(1), bodies(random.Random(0))
        await self.connect()
        began, tasks, n = time.perf_counter(), set(), 0
        while (now := time.perf_counter() - began) < seconds:
            due = now if rate == 0 else n / rate
            if due > now:
                await asyncio.sleep(due - now)
            while rate == 0 and len(tasks) >= self.connections:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            outcome = float(rng.random() < 0.3) if rng.random() < 0.5 else None
            when = began + due if rate else time.perf_counter()
            task = asyncio.create_task(self.one(asked[n % len(asked)], when, outcome))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            n += 1
        if tasks:
            await asyncio.wait(tasks, timeout=30)
        return time.perf_counter() - began


def row(load: Load, seconds: float) -> dict[str, float]:
    took = np.array(load.took) * 1e3
    return {
        "decisions": len(took),
        "per_second": len(took) / seconds,
        "p50_ms": float(np.percentile(took, 50)),
        "p99_ms": float(np.percentile(took, 99)),
        "worst_ms": float(took.max()),
        "outcomes": len(load.told),
        "outcome_p99_ms": float(np.percentile(np.array(load.told) * 1e3, 99)),
        "errors": len(load.errors),
    }


def measure(place: str, args: argparse.Namespace) -> dict[str, object]:
    with places(place) as where, Service(where, workers=args.workers) as service:
        asyncio.run(Load(service.port, args.connections).run(args.rate or 200, args.warm))
        before, size = service.cpu(), service.bytes()
        load = Load(service.port, args.connections)
        client = time.process_time()
        seconds = asyncio.run(load.run(args.rate, args.seconds))
        client = time.process_time() - client
        found = row(load, seconds)
        status = service.get("/v1/bandits/default/status")
        print(load.errors[:3], file=sys.stderr)
        return {
            "place": place,
            "workers": args.workers,
            "rate": args.rate,
            "seconds": seconds,
            **found,
            "service_cores": (service.cpu() - before) / seconds,
            "client_cores": client / seconds,
            "bytes_per_decision": (service.bytes() - size) / max(1, found["decisions"]),
            "behind_s": status["behind"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--rate", type=float, default=500.0, help="decisions per second; 0: most")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warm", type=float, default=15.0, help="seconds before it counts")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = [measure(place, args) for place in args.place or ["sqlite"]]
    for one in found:
        print(json.dumps(one, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
