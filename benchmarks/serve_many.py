"""What a service of very many bandits takes, of which few are asked: memory, threads, idle CPU.

The bandits are begun over HTTP, and each decides and learns once. Then the service is started
anew; a few bandits are kept busy, nobody asks anything for a while, and at last all of them are
asked once more, one after another.

    python benchmarks/serve_many.py --out results/benchmarks/serve_many.json
"""

import argparse
import http.client
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from serving import Service, places

ACTIONS = {f"item{k}": {"topic": f"t{k % 3}", "price": k / 10} for k in range(8)}


class Client:
    """Asks on one connection, and says what went wrong."""

    def __init__(self, service: Service):
        self._http = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        self._http.request(method, f"/v1/bandits/{path}", content)
        answer = self._http.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {said[:300]!r}")
        return json.loads(said)

    def play(self, name: str) -> None:
        """A decision, and its outcome."""
        made = self.send("POST", f"{name}/choose", {"actions": ACTIONS})
        self.send("POST", f"{name}/outcome", {"id": made["id"], "outcome": 1.0})


def measured(service: Service) -> dict[str, Any]:
    """What the whole service takes now."""
    found = {"megabytes": 0.0, "threads": 0, "files": 0}
    for pid in service.pids():
        told = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        found["megabytes"] += int(told["VmRSS"].split()[0]) / 1000
        found["threads"] += int(told["Threads"])
        found["files"] += len(os.listdir(f"/proc/{pid}/fd"))
    return found


def opened(service: Service) -> int:
    """How many bandits are open: the metrics know those."""
    return service.get("/metrics").count("ensemble_learning{")


def cpu_share(service: Service, seconds: float) -> float:
    began, used = time.monotonic(), service.cpu()
    time.sleep(seconds)
    return (service.cpu() - used) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bandits", type=int, default=2000)
    parser.add_argument("--busy", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    names, rows = [f"b{n}" for n in range(args.bandits)], []

    def say(what: str, **more: Any) -> None:
        row = {"what": what, "open": opened(service), **measured(service), **more}
        rows.append(row)
        cpu = f"{100 * row['cpu']:5.1f}% of a core" if "cpu" in row else ""
        print(f"{what:24} {row['open']:4} open {row['megabytes']:6.0f} MB {row['threads']:4} "
              f"threads {row['files']:5} files {cpu}", flush=True)  # fmt: skip

    with places("sqlite") as place:
        with Service(place) as service:
            client, began = Client(service), time.monotonic()
            for name in names:
                client.send("PUT", name)
                client.play(name)
            say("each begun and used", seconds=time.monotonic() - began)
        began = time.monotonic()
        with Service(place) as service:
            say("started", seconds=time.monotonic() - began, cpu=cpu_share(service, args.seconds))
            client, end, count = Client(service), time.monotonic() + args.seconds, 0
            for name in itertools.cycle(names[: args.busy]):
                client.play(name)
                count += 1
                if time.monotonic() > end:
                    break
            say("some of them busy", decisions_per_second=count / args.seconds)
            time.sleep(8.0)  # until nothing is learned or looked at any more
            say("these idle, still open", cpu=cpu_share(service, args.seconds))
            began = time.monotonic()
            for name in names:
                client.play(name)
            say("all asked in turn", seconds=time.monotonic() - began)
            time.sleep(8.0)
            say("all idle", cpu=cpu_share(service, args.seconds))
    if args.out:
        about = {"bandits": args.bandits, "busy": args.busy, "seconds": args.seconds}
        args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
