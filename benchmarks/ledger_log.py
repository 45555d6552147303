"""How large a ledger of described offers is, how fast its log streams and how fast it is replayed.

Fifty actions described by three keys each that come and go slowly, and a context of four keys:

    python benchmarks/ledger_log.py --decisions 100000 --place sqlite --place postgres
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ensemble_sampling as es
from ensemble_sampling.ledger.export import export

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

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
            del offered[next(iter(offered))]
            offered |= dict([action(born)])
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
    from servers import admin, schema

    found = admin(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'",
        schema(place),
    )
    assert found is not None
    return int(found[0][0])


def seconds(work: Any) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(kind: str, count: int, folder: Path) -> dict[str, Any]:
    if kind == "sqlite":
        place: str | Path = folder / "bandit"
    else:
        from servers import new_place

        place = new_place()
    with es.Bandit.open(place, agent(256), hasher=es.Hasher(256)) as bandit:

        def fill() -> None:
            for n, (offered, context) in enumerate(offers(count)):
                made = bandit.choose(offered, context=context)
                if n % 4 == 0:
                    bandit.learn(made.id, float(n % 8 == 0))

        filled = seconds(fill)

        def read() -> None:
            assert sum(len(part["id"]) for part in bandit.log(chunk=1000)) == count

        streamed = seconds(read)
    found = {
        "place": kind,
        "decisions": count,
        "bytes_a_decision": round(size(place) / count, 1),
        "decided_a_second": round(count / filled),
        "log_rows_a_second": round(count / streamed),
    }
    for name in ("log.csv", "log.parquet"):
        took = seconds(lambda name=name: export(place, folder / name))
        found[f"{name[4:]}_rows_a_second"] = round(count / took)
    took = seconds(lambda: es.Bandit.migrate(place, agent(512), hasher=es.Hasher(512)).close())
    return {**found, "migrated_a_second": round(count / took)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for kind in args.place or ["sqlite"]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(kind, args.decisions, Path(folder)))
            print(json.dumps(rows[-1], indent=1), flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
