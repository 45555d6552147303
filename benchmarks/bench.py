"""Where the time goes: the main work beside a plain implementation and the limits of the machine.

python benchmarks/bench.py                    two cores: under ten minutes; what `make bench` runs
python benchmarks/bench.py --only latency     one part (see PARTS), into the same file
python benchmarks/bench.py --only simulate --full     a GPU: as many realizations as it likes

One table: the work, our seconds (median, and the range over repeats), the other's in the same run
and by turns, their ratio, and the fraction of the limit: operations that must be done over the
measured rate of matrix products, or bytes that must move over the measured bandwidth. The same as
JSON in results/benchmarks/, by the device's name. Vowpal Wabbit and MABWiser are left out where
they cannot be imported.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es
from ensemble_sampling import files
from ensemble_sampling.paper import figure2, figure3

sys.path.insert(0, str(Path(__file__).parent))
from bandit_speed import mabwiser, ours, vowpal_wabbit
from network_speed import numpy_loop

OUT = Path(__file__).parents[1] / "results" / "benchmarks"
LINE = 64  # bytes that move at once
BLOCK = 0.5  # seconds after which a slow contender gives way to the next


class Row(NamedTuple):
    """One line of the table; times in seconds, `limit` what the machine needs at least."""

    work: str
    ours: list[float]
    other: str = ""
    others: list[float] | None = None
    limit: float | None = None

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "work": self.work,
            "seconds": float(np.median(self.ours)),
            "range": [float(min(self.ours)), float(max(self.ours))],
            "repeats": len(self.ours),
        }
        if self.others:
            told |= {"other": self.other, "other_seconds": float(np.median(self.others))}
            told["ratio"] = told["other_seconds"] / told["seconds"]
        if self.limit is not None:
            told |= {"limit_seconds": self.limit, "fraction": self.limit / told["seconds"]}
        return told


def device() -> str:
    if jax.default_backend() == "cpu":
        return f"{platform.machine()} CPU, {os.cpu_count()} cores"
    return jax.local_devices()[0].device_kind


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def by_turns(repeats: int, *calls: Callable[[], Any]) -> list[list[float]]:
    """Seconds of each, which all meet the same machine; the first of each is not counted."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repeats):
        for call, seconds in zip(calls, taken, strict=True):
            seconds.append(timed(call))
    return taken


def rates() -> tuple[float, float]:
    """(operations per second of a matrix product, bytes per second of a copy)."""
    size = 2048 if jax.default_backend() == "cpu" else 8192
    key = jax.random.key(0)
    x, long = jax.random.normal(key, (size, size)), jnp.ones(2**26)
    product, copy = jax.jit(lambda x: x @ x), jax.jit(lambda x: x + 1.0)
    products, copies = by_turns(5, lambda: product(x), lambda: copy(long))
    return 2 * size**3 / float(np.median(products)), 2 * long.nbytes / float(np.median(copies))


def numpy_arms(arms: int, members: int, periods: int, rng: np.random.Generator) -> None:
    """One realization of Gaussian arms, as one would first write it."""
    truth = rng.normal(size=arms)
    models, pulls = rng.normal(size=(members, arms)), np.ones(arms)
    for _ in range(periods):
        a = int(np.argmax(models[rng.integers(members)]))
        outcome = truth[a] + rng.normal()
        pulls[a] += 1
        models[:, a] += (outcome + rng.normal(size=members) - models[:, a]) / pulls[a]


def numpy_linear(dim: int, arms: int, members: int, periods: int, rng: Any) -> None:
    """One realization of a linear bandit, as one would first write it."""
    actions, truth = rng.normal(size=(arms, dim)), rng.normal(size=dim)
    models, cov = rng.normal(size=(members, dim)), np.eye(dim)
    for _ in range(periods):
        x = actions[int(np.argmax(actions @ models[rng.integers(members)]))]
        outcome = x @ truth + rng.normal()
        gain = cov @ x / (1 + x @ cov @ x)
        cov -= np.outer(gain, x @ cov)
        models += np.outer(outcome + rng.normal(size=members) - models @ x, gain)


def simulated(work: str, agent: Any, world: Any, size: tuple[int, int], **kept: Any) -> Row:
    """realizations and periods are `size`; beside one realization of `loop` for each of ours."""
    realizations, periods = size
    run = lambda: es.simulate(agent, world, periods, realizations, seed=1).mean  # noqa: E731
    calls = [run] if kept.get("loop") is None else [run, kept["loop"]]
    mine, *loop = by_turns(kept.get("repeats", 3), *calls)
    others = [realizations * seconds for seconds in loop[0]] if loop else None
    limit = kept["limit"] * realizations * periods if "limit" in kept else None
    return Row(f"{work}, {realizations:,} x {periods:,} periods", mine, "NumPy loop", others, limit)


def simulate(rate: float, bandwidth: float, full: bool) -> list[Row]:
    """Network and neuron ensembles at the paper's settings, Gaussian arms, dense linear models."""
    found, rng = [], np.random.default_rng(0)
    many, periods = (1000, 500) if full else (8, 100)
    inner = 3 * 64  # steps x batch: inputs a member learns from in a period
    for members in (10, 30, 100):
        agent = es.EnsembleSampling(figure3.learner, members)
        operations = members * inner * 4 * 101 * 50 + 100 * 2 * 101 * 50
        loop = None if full or members > 10 else lambda: numpy_loop(10, periods, rng)
        found.append(
            simulated(
                f"network, {members} members",
                agent,
                figure3.environment,
                (many, periods),
                loop=loop,
                limit=operations / rate,
                repeats=2 if members == 100 else 3,
            )
        )
    agent = es.EnsembleSampling(figure2.learner, 30)
    operations = 30 * inner * 4 * 100 + 100 * 2 * 100
    size = (1000, 2000) if full else (40, 100)
    limit = operations / rate
    found.append(simulated("neuron, 30 members", agent, figure2.environment, size, limit=limit))
    for arms in (50, 200):
        agent = es.EnsembleSampling(es.IndependentArms(arms, noise_std=1.0), 100)
        # A column of members is read and written by the line, one member and four sums are read.
        moved = 100 * 2 * LINE + 5 * 4 * arms
        size = (10_000, 2_000) if full else (400, 250)
        loop = None if full else lambda arms=arms: numpy_arms(arms, 100, 250, rng)
        found.append(
            simulated(
                f"Gaussian arms, K = {arms}, 100 members",
                agent,
                es.GaussianArms(arms),
                size,
                loop=loop,
                limit=moved / bandwidth,
            )
        )
    for dim in (20, 100):
        agent = es.EnsembleSampling(es.Linear(dim, noise_std=1.0), 30)
        moved = 4 * (2 * (2 * dim**2 + 2 * 30 * dim) + 100 * dim)  # state read and written, actions
        size = (1000, 1000) if full else (40, 250)
        loop = None if full else lambda dim=dim: numpy_linear(dim, 100, 30, 250, rng)
        found.append(
            simulated(
                f"linear, d = {dim}, 30 members",
                agent,
                es.LinearBandit(dim, 100, noise_std=1.0),
                size,
                loop=loop,
                limit=moved / bandwidth,
            )
        )
    return found


class NumpyBandit:
    """A linear ensemble as one would first write it, which keeps nothing."""

    def __init__(self, dim: int, members: int):
        self.rng = np.random.default_rng(0)
        self.cov = np.eye(dim, dtype=np.float32)
        self.models = self.rng.normal(size=(members, dim)).astype(np.float32)

    def step(self, features: np.ndarray, reward: Any) -> tuple[float, float]:
        began = time.perf_counter()
        votes = np.argmax(features @ self.models.T, axis=0)
        index = int(votes[self.rng.integers(len(votes))])
        chosen, value = time.perf_counter(), reward(index)
        resumed, x = time.perf_counter(), features[index]
        gain = self.cov @ x / (1 + x @ self.cov @ x)
        self.cov -= np.outer(gain, x @ self.cov)
        noise = self.rng.normal(size=len(self.models)).astype(np.float32)
        self.models += np.outer(value + noise - self.models @ x, gain)
        return chosen - began, time.perf_counter() - resumed


def network_agent(dim: int, members: int) -> Any:
    return es.EnsembleSampling(es.Network(es.GaussianMLP(dim, (50,)), dim, 2000), members)


def contenders(actions: int, dim: int, members: int, folder: str) -> dict[str, Any]:
    linear = es.EnsembleSampling(es.Linear(dim, noise_std=1.0), members)
    steps = {
        "linear": ours(es.Bandit(linear)),
        "linear, on disk": ours(es.Bandit.open(folder, linear)),
        "default": ours(es.Bandit()),
        "network": ours(es.Bandit(network_agent(dim, members))),
        "plain NumPy": NumpyBandit(dim, members).step,
    }
    peers: dict[str, Callable[[], Any]] = {"MABWiser LinTS": lambda: mabwiser(actions)}
    for explorer in ("--epsilon 0.1", "--softmax", "--squarecb", f"--bag {members}"):
        if actions < 1000 or "epsilon" in explorer:
            peers[f"Vowpal Wabbit {explorer}"] = lambda e=explorer: vowpal_wabbit(e)
    for name, make in peers.items():
        try:
            steps[name] = make()
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return steps


def one_sync(folder: str) -> Callable[[], float]:
    """The least that a durable call costs: 4 KB written and synced, in a file of a fixed size."""
    file = os.open(Path(folder) / "least", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(4096 * 64), 0)
    os.fsync(file)

    def call(at: list[int] = [0]) -> float:  # noqa: B006
        began = time.perf_counter()
        os.pwrite(file, bytes(4096), 4096 * (at[0] % 64))
        os.fdatasync(file)
        at[0] += 1
        return time.perf_counter() - began

    return call


def latency(rate: float, bandwidth: float, full: bool) -> list[Row]:
    """`choose` and `learn` together, in blocks by turns; JAX's default settings."""
    found = []
    for actions, dim, members, rounds in (
        (10, 16, 10, 600),
        (100, 100, 30, 200),
        (1000, 100, 30, 40),
    ):
        rng = np.random.default_rng(0)
        theta = rng.normal(size=dim)
        taken: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            steps, sync = contenders(actions, dim, members, folder), one_sync(folder)
            syncs = []
            for block in range(-1, 5):
                offers = [
                    rng.normal(size=(actions, dim)).astype(np.float32) for _ in range(rounds // 5)
                ]
                means = [features @ theta / np.sqrt(dim) for features in offers]
                for name, step in steps.items():
                    time.sleep(0.05)  # until the threads of the one before are at rest
                    until = time.perf_counter() + BLOCK
                    for features, mean in zip(offers, means, strict=True):
                        if time.perf_counter() > until:
                            break
                        took = sum(step(features, lambda i, mean=mean: float(mean[i])))
                        if block >= 0:  # the first compiles
                            taken.setdefault(name, []).append(took)
                syncs += [sync() for _ in range(20)]
        size, plain = f"{actions:,} x {dim}", taken["plain NumPy"]
        peers = {n: s for n, s in taken.items() if n.startswith(("Vowpal", "MABW"))}
        for name in ("linear", "default", "network"):
            found.append(_quantiles(f"{name}, {size}", taken[name], "plain NumPy", plain))
        for name, seconds in peers.items():
            found.append(_quantiles(f"linear, {size}", taken["linear"], name, seconds))
        name, least = "two syncs of 4 KB", 2 * float(np.median(syncs))
        disk = _quantiles(f"linear on disk, {size}", taken["linear, on disk"], name, [least])
        found.append(disk._replace(limit=least))
    return found


def _quantiles(work: str, seconds: list[float], name: str, other: list[float]) -> Row:
    """So many repeats that their extremes say nothing: the tenths and the median stand for them."""
    quantiles = [float(q) for q in np.quantile(seconds, [0.1, 0.5, 0.9])]
    return Row(f"choose + learn, {work}", quantiles, name, [float(np.median(other))])


SCALED = {
    "members": [10, 30, 100, 300],
    "arms": [30, 100, 300, 1000],
    "dim": [16, 32, 64, 128],
    "periods": [50, 100, 200, 400],
}


def grown(members: int = 30, arms: int = 100, dim: int = 32, periods: int = 100) -> float:
    agent = es.EnsembleSampling(es.Linear(dim, noise_std=1.0), members)
    world = es.LinearBandit(dim, arms, noise_std=1.0)
    run = lambda: es.simulate(agent, world, periods, 40, seed=1).mean  # noqa: E731
    return float(np.median(by_turns(3, run)[0]))


def growth(rate: float, bandwidth: float, full: bool) -> dict[str, Any]:
    """Seconds of a linear ensemble over one size at a time, with fitted exponents, and a plot."""
    found = {}
    for name, sizes in SCALED.items():
        seconds = [grown(**{name: size}) for size in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        found[name] = {"sizes": sizes, "seconds": seconds, "exponent": slope}
    return found


def draw(growth: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name, one in growth.items():
        axes.loglog(
            one["sizes"], one["seconds"], "o-", label=f"{name}: exponent {one['exponent']:.2f}"
        )
    axes.set(xlabel="size", ylabel="seconds")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


STARTS = {
    "import": "import ensemble_sampling",
    "first decision": "import numpy as np, ensemble_sampling as es\n"
    "es.Bandit(es.EnsembleSampling(es.Linear(16), 10)).choose(np.ones((10, 16), np.float32))",
    "first figure": "import matplotlib\nmatplotlib.use('Agg')\nimport ensemble_sampling as es\n"
    "agent = es.EnsembleSampling(es.IndependentArms(10, noise_std=1.0), 10)\n"
    "es.simulate(agent, es.GaussianArms(10), 100, 10, seed=0).plot()",
}


def startup(rate: float, bandwidth: float, full: bool) -> list[Row]:
    """A fresh process; where it compiles, with an empty cache and with a full one."""
    found = []
    for name, code in STARTS.items():
        with tempfile.TemporaryDirectory() as folder:
            empty = {
                **os.environ,
                "JAX_COMPILATION_CACHE_DIR": "",
                "ENSEMBLE_SAMPLING_CACHE": folder,
            }
            empty.pop("JAX_COMPILATION_CACHE_DIR")
            run = lambda: subprocess.run([sys.executable, "-c", code], check=True, env=empty)  # noqa: B023, E731
            cold = [timed(run)]
            warm = [timed(run) for _ in range(3)]
        found.append(Row(f"{name}, warm cache", warm, "cold cache", cold))
    return found


PARTS = {"simulate": simulate, "latency": latency, "growth": growth, "startup": startup}


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'work':52} {'ours':>9} {'range':>17}  {'other':30} {'its time':>9} {'ratio':>6} of limit"
    )
    for row in rows:
        low, high = row["range"]
        other = row.get("other", "")
        at = f"{_short(row['other_seconds']):>9} {row['ratio']:6.2f}" if other else " " * 16
        limit = f"{row['fraction']:7.0%}" if "fraction" in row else ""
        spread = f"{_short(low)}-{_short(high)}"
        print(f"{row['work']:52} {_short(row['seconds']):>9} {spread:>17}  {other:30} {at} {limit}")


def _short(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def main() -> None:
    about = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--full", action="store_true", help="the paper's sizes: for a GPU")
    options = parser.parse_args()
    name = re.sub(r"[^a-z0-9]+", "-", device().lower()).strip("-")
    path = OUT / f"bench-{name}.json"
    kept = files.read_json(path) if path.exists() else {}
    kept.pop("sha256", None)
    rate, bandwidth = rates()
    print(f"{device()}: {rate / 1e9:,.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s")
    for part in [options.only] if options.only else PARTS:
        began = time.perf_counter()
        found = PARTS[part](rate, bandwidth, options.full)
        if isinstance(found, list):
            found = [row.told() for row in found]
            show(found)
        else:
            for size, one in found.items():
                print(f"time grows with {size} to the power {one['exponent']:.2f}")
            draw(found, path.with_name(path.stem + "-growth.png"))
        about_part = {"operations_per_second": rate, "bytes_per_second": bandwidth}
        kept[part] = {**about_part, "took_seconds": time.perf_counter() - began, "rows": found}
        python = f"Python {platform.python_version()}, JAX {jax.__version__}"
        files.write_json(path, {**kept, "device": device(), "software": python})


if __name__ == "__main__":
    main()
