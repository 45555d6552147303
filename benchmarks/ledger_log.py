"""How large a ledger of described offers is, how fast its log streams and how fast it is replayed.

Fifty actions described by three keys each that come and go slowly, and a context of four keys:

    python benchmarks/ledger_log.py --decisions 100000 --place sqlite --place postgres

A million of them are recorded a thousand at a time, and not replayed:

    python benchmarks/ledger_log.py --million --place sqlite --place postgres
"""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from serving import Postgres

import ensemble_sampling as es
from ensemble_sampling.inputs.descriptions import as_text
from ensemble_sampling.inputs.offer import Offer, everything
from ensemble_sampling.ledger.export import export
from ensemble_sampling.ledger.rows import OutcomeRow, decided

ACTIONS, EVERY = 50, 200  # on offer at once; decisions after which one of them is replaced


def agent(width: int) -> Any:
    return es.EnsembleSampling(es.Linear(dim=width), members=5)


def offers(count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Actions on offer, and a context, so many times."""
    rng, born = np.random.default_rng(0), ACTIONS

    def action(number: int) -> tuple[str, dict[str, Any]]:
        kind = str(rng.choice(["news", "sport", "arts", "science"]))
        price = round(float(rng.gamma(2, 10)), 2)
        return f"article-{number}", {"kind": kind, "price": price, "author": int(rng.integers(500))}

    offered = dict(action(n) for n in range(ACTIONS))
    for n in range(count):
        if n % EVERY == EVERY - 1:
            offered = dict([*[*offered.items()][1:], action(born)])  # a new one
            born += 1
        yield (
            offered,
            {
                "device": str(rng.choice(["phone", "desktop", "tablet"])),
                "hour": int(rng.integers(24)),
                "age": int(rng.integers(18, 90)),
                "country": str(rng.choice(["de", "fr", "it", "nl", "pl"])),
            },
        )


def size(place: str | Path) -> int:
    """Bytes on disk, with indices."""
    if isinstance(place, Path):
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    import psycopg

    with psycopg.connect(place.partition("#")[0]) as connection:
        query = (
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = 'bandit_log' AND c.relkind = 'r'"
        )
        return int(connection.execute(query).fetchall()[0][0])


def rates(what: str, count: int, work: Any) -> dict[str, int]:
    """Per second, and per second of processor time, which a busy machine changes little."""
    wall, own = time.perf_counter(), time.process_time()
    work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    return {f"{what}_a_second": round(count / wall), f"{what}_a_cpu_second": round(count / own)}


def memory() -> int:
    """The most that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def one_by_one(bandit: es.Bandit, count: int) -> None:
    for n, (offered, context) in enumerate(offers(count)):
        made = bandit.choose(offered, context=context)
        if n % 4 == 0:
            bandit.learn(made.id, float(n % 8 == 0))


def by_thousands(bandit: es.Bandit, count: int) -> None:
    """Straight into its ledger."""
    shares, free = np.full(ACTIONS, 1 / ACTIONS, np.float32), everything(ACTIONS)
    given, first = offers(count), 0
    described: tuple[Any, list[str]] = (None, [])
    while some := list(islice(given, 1000)):
        rows = []
        for n, (offered, context) in enumerate(some, first):
            if offered is not described[0]:
                described = offered, [as_text(one, "action") for one in offered.values()]
            about = as_text(context, "context")
            offer = Offer(described[1], about, list(offered), free)
            rows.append(decided(n, float(n), offer, n % ACTIONS, shares))
        told = [OutcomeRow(row.number, 1.0, 1.0) for row in rows[::4]]
        bandit._ledger.add_decisions(rows, outcomes=told)
        first += len(rows)


def measure(kind: str, count: int, million: bool, folder: Path) -> dict[str, Any]:
    server = Postgres(folder / "postgres") if kind == "postgres" else None
    place = folder / "bandit" if server is None else f"{server.url}#log"
    chooses, fill = (es.Uniform(), by_thousands) if million else (agent(256), one_by_one)
    with es.Bandit.open(place, chooses, hasher=es.Hasher(256)) as bandit:
        found = rates("decided", count, lambda: fill(bandit, count))
        before = memory()

        def read() -> None:
            assert sum(len(part["id"]) for part in bandit.log(chunk=1000)) == count

        found |= rates("log_rows", count, read)
    about = {"place": kind, "decisions": count, "one_by_one": not million}
    found = {**about, "bytes_a_decision": round(size(place) / count, 1), **found}
    for name in ("log.csv", "log.parquet"):
        write = partial(export, place, folder / name)
        found |= rates(f"{name[4:]}_rows", count, write)
    found["memory_added_mb"] = memory() - before
    if not million:
        hasher = es.Hasher(512)
        migrate = partial(es.Bandit.migrate, place, agent(512), hasher=hasher)
        found |= rates("migrated", count, lambda: migrate().close())
    found["load_average"] = round(os.getloadavg()[0], 1)
    if server is not None:
        server.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--decisions", type=int)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    count = args.decisions or (1_000_000 if args.million else 100_000)
    rows = []
    for kind in args.place or ["sqlite"]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(kind, count, args.million, Path(folder)))
            print(json.dumps(rows[-1], indent=1), flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
