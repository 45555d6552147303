"""Where the time goes: the main work beside a plain implementation and the limits of the machine.

python benchmarks/bench.py                    two cores: under ten minutes; what `make bench` runs
python benchmarks/bench.py --only latency     one part (see PARTS), into the same file
python benchmarks/bench.py --only simulate --full     a GPU: as many realizations as it likes

One table: the work, our seconds (median, and the range over repeats), the other's in the same run
and by turns, their ratio, and the fraction of the limit: the longest of the operations that must be
done over the measured rate of matrix products, the normal numbers that must be drawn over their
rate, and the bytes that must move over the bandwidth. On a CPU that is the cache's, for a call's
realizations are kept in it. The same as JSON in results/benchmarks/, by the device's name. Vowpal
Wabbit and MABWiser are left out where they cannot be imported.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es
from ensemble_sampling import files
from ensemble_sampling.experiments.paper import figure2, figure3
from ensemble_sampling.primitives import quick
from ensemble_sampling.simulation import programs

sys.path.insert(0, str(Path(__file__).parent))
from bandit_speed import mabwiser, ours, vowpal_wabbit
from network_speed import device_limits, numpy_loop

OUT = Path(__file__).parents[1] / "results" / "benchmarks"
CPU = jax.default_backend() == "cpu"
LINE = 64 if CPU else 32  # bytes that move at once
BLOCK = 0.5  # seconds after which a slow contender gives way to the next


class Row(NamedTuple):
    """One line of the table; times in seconds.

    limit: what it takes at least, unless that follows from `needs`: operations, bytes and normals
    """

    work: str
    ours: list[float]
    other: str = ""
    others: list[float] | None = None
    limit: float | None = None
    needs: Mapping[str, float] | None = None

    def told(self, rates: "Rates") -> dict[str, Any]:
        told: dict[str, Any] = {
            "work": self.work,
            "seconds": float(np.median(self.ours)),
            "range": [float(min(self.ours)), float(max(self.ours))],
            "repeats": len(self.ours),
        }
        if self.others:
            told |= {"other": self.other, "other_seconds": float(np.median(self.others))}
            told["other_range"] = [float(min(self.others)), float(max(self.others))]
            told["ratio"] = told["other_seconds"] / told["seconds"]
        limit = self.limit
        if self.needs is not None:
            told["needs"], limit = dict(self.needs), rates.limit(**self.needs)
        if limit is not None:
            told |= {"limit_seconds": limit, "fraction": limit / told["seconds"]}
        return told


def device() -> str:
    if CPU:
        return f"{platform.machine()} CPU, {os.cpu_count()} cores"
    return jax.local_devices()[0].device_kind


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def by_turns(repeats: int, *calls: Callable[[], Any]) -> list[list[float]]:
    """Seconds of each, which all meet the same machine."""
    rounds = [[timed(call) for call in calls] for _ in range(repeats)]
    return [list(seconds) for seconds in zip(*rounds, strict=True)]


class Rates(NamedTuple):
    """What the machine does in a second at best; on a CPU `bytes` are in cache."""

    operations: float
    normals: float
    bytes: float
    bytes_of_memory: float

    @classmethod
    def measured(cls) -> "Rates":
        key = jax.random.key(0)
        keys = jax.random.split(quick(key), 1024)
        draw = jax.jit(lambda keys: jax.vmap(lambda k: jax.random.normal(k, (4096,)))(keys).max())
        normals = keys.size * 4096 / _fastest(lambda: draw(keys))
        if not CPU:
            limits = device_limits()
            bandwidth = limits["bytes per second"]
            return cls(limits["operations per second"], normals, bandwidth, bandwidth)
        x = jax.random.normal(key, (2048, 2048))
        product = jax.jit(lambda x: x @ x)
        operations = 2 * len(x) ** 3 / _fastest(lambda: product(x))
        # What the chunks of two cores take of the cache, and what no cache can hold.
        return cls(operations, normals, _bandwidth(2**22, 100), _bandwidth(2**26, 4))

    def or_better(self, other: "Rates") -> "Rates":
        """What was reached at one time or the other: a machine is rarely all ours."""
        return Rates(*map(max, self, other))

    def limit(self, operations: float = 0.0, bytes: float = 0.0, normals: float = 0.0) -> float:
        """Seconds that so much takes at least."""
        return max(operations / self.operations, bytes / self.bytes, normals / self.normals)


def _fastest(call: Callable[[], Any]) -> float:
    call()
    return min(by_turns(7, call)[0])


def _bandwidth(size: int, passes: int) -> float:
    """Bytes read and written in a second, in place: new memory would be cleared first."""
    x = jnp.ones(size)
    over = jax.jit(lambda x: jax.lax.fori_loop(0, passes, lambda _, x: 0.5 * x + 1.0, x))
    return 2 * passes * x.nbytes / _fastest(lambda: over(x))


def numpy_arms(arms: int, members: int, periods: int, rng: np.random.Generator) -> None:
    """One realization of Gaussian arms, as one would first write it."""
    truth = rng.normal(size=arms)
    models, pulls = rng.normal(size=(members, arms)), np.ones(arms)
    for _ in range(periods):
        a = int(np.argmax(models[rng.integers(members)]))
        outcome = truth[a] + rng.normal()
        pulls[a] += 1
        models[:, a] += (outcome + rng.normal(size=members) - models[:, a]) / pulls[a]


def numpy_linear(dim: int, arms: int, members: int, periods: int, rng: np.random.Generator) -> None:
    """One realization of a linear bandit, as one would first write it."""
    actions, truth = rng.normal(size=(arms, dim)), rng.normal(size=dim)
    models, cov = rng.normal(size=(members, dim)), np.eye(dim)
    for _ in range(periods):
        x = actions[int(np.argmax(actions @ models[rng.integers(members)]))]
        outcome = x @ truth + rng.normal()
        gain = cov @ x / (1 + x @ cov @ x)
        cov -= np.outer(gain, x @ cov)
        models += np.outer(outcome + rng.normal(size=members) - models @ x, gain)


def numpy_neuron(members: int, periods: int, rng: np.random.Generator) -> None:
    """One realization of a single neuron, model by model, as one would first write it."""
    of, how = figure2.environment, figure2.learner
    actions, truth = rng.uniform(-1, 1, (of.arms, of.dim)), rng.normal(size=of.dim)
    start = rng.normal(size=(members, of.dim)) * figure2.PRIOR_STD
    models, inputs = start.copy(), np.zeros((periods, of.dim))
    targets = np.zeros((members, periods))
    for t in range(periods):
        x = actions[int(np.argmax(actions @ models[rng.integers(members)]))]
        inputs[t] = x
        outcome = 1 / (1 + np.exp(-x @ truth)) + figure2.NOISE_STD * rng.normal()
        for m in range(members):
            targets[m, t] = outcome + figure2.NOISE_STD * rng.normal()
            for _ in range(how.steps):
                rows = rng.integers(t + 1, size=64)
                value = 1 / (1 + np.exp(-inputs[rows] @ models[m]))
                error = 2 * (value - targets[m, rows]) / figure2.NOISE_STD**2 / 64
                pull = 2 * (models[m] - start[m]) / figure2.PRIOR_STD**2 / (t + 1)
                models[m] -= 0.1 * ((error * value * (1 - value)) @ inputs[rows] + pull)


class Item(NamedTuple):
    """Something to simulate, what a period of a realization needs at least, and the plain loop.

    loop: a function of the number of periods, which is asked for `looped` of them and scaled
    """

    work: str
    agent: Any
    world: Any
    realizations: int
    periods: int
    needs: Mapping[str, float] | None = None
    loop: Callable[[int], Any] | None = None
    looped: int = 250
    repeats: int = 5

    def run(self) -> Any:
        size = (self.periods, self.realizations)
        return es.simulate(self.agent, self.world, *size, seed=1, progress=False).mean

    def compile(self) -> None:
        """By a single call of as many realizations as one of `run` has."""
        size = programs.chunk_size(self.agent, self.world, self.periods, self.realizations)
        es.simulate(self.agent, self.world, self.periods, size, seed=1, chunk=size, progress=False)

    def calls(self) -> list[Callable[[], Any]]:
        loop = self.loop
        return [self.run] if loop is None else [self.run, lambda: loop(self.looped)]

    def row(self, mine: list[float], others: list[float] | None = None) -> Row:
        decisions = self.realizations * self.periods
        row = Row(f"{self.work}, {self.realizations:,} x {self.periods:,} periods", mine)
        if others is not None:
            scaled = [seconds * decisions / self.looped for seconds in others]
            row = row._replace(other="NumPy loop", others=scaled)
        if self.needs is not None:
            row = row._replace(needs={n: decisions * each for n, each in self.needs.items()})
        return row


def items(full: bool) -> list[Item]:
    """Network and neuron ensembles at the paper's settings, Gaussian arms, dense linear models."""
    found, rng = [], np.random.default_rng(0)
    steps = 3 * 64  # inputs a member learns from in a period: steps x batch
    for members in (10, 30, 100):
        weights = 101 * 50
        needs = {
            "operations": members * steps * 4 * weights + 100 * 2 * weights,
            "bytes": 4 * 3 * members * weights,  # in and out, and where they started
            "normals": members,
        }
        size = (1000, 500) if full else (8, 100)
        loop = lambda periods, members=members: numpy_loop(members, periods, rng)  # noqa: E731
        agent = es.EnsembleSampling(figure3.learner, members)
        found.append(
            Item(f"network, {members} members", agent, figure3.environment, *size, needs, loop, 20)
        )
    needs = {"operations": 30 * steps * 4 * 100 + 100 * 2 * 100, "normals": 30}
    size = (1000, 2000) if full else (40, 100)
    agent = es.EnsembleSampling(figure2.learner, 30)
    loop = lambda periods: numpy_neuron(30, periods, rng)  # noqa: E731
    found.append(Item("neuron, 30 members", agent, figure2.environment, *size, needs, loop, 100))
    for arms in (50, 200):
        learner, world = es.IndependentArms(arms, noise_std=1.0), es.GaussianArms(arms)
        # A column of members is read and written by the line, and so is an entry of four sums; one
        # member and the two sums of the mean are read.
        needs = {"bytes": 2 * (100 + 4) * LINE + 4 * 3 * arms, "normals": 101}
        size = (10_000, 2000) if full else (256, 2000)
        loop = lambda periods, arms=arms: numpy_arms(arms, 100, periods, rng)  # noqa: E731
        name, agent = f"Gaussian arms, K = {arms}", es.EnsembleSampling(learner, 100)
        found.append(Item(f"{name}, 100 members", agent, world, *size, needs, loop, 1000))
    if not full:
        found.append(found[-1]._replace(realizations=10_000, loop=None, repeats=2))
        still = es.EnsembleSampling(learner, 100, es.posteriors.Unperturbed())
        found.append(Item(f"{name}, no noise for members", still, world, *size))
        found.append(Item(f"{name}, no members", es.Uniform(), world, *size))
    for dim in (20, 100):
        agent = es.EnsembleSampling(es.Linear(dim, noise_std=1.0), 30)
        state = 2 * (dim**2 + 30 * dim)  # sums with what they lost: read and written
        needs = {
            "operations": 2 * (100 * dim + 3 * dim**2 + 2 * 30 * dim),
            "bytes": 4 * (2 * state + 100 * dim),
            "normals": 31,
        }
        size = (1000, 1000) if full else (200, 500)
        world = es.LinearBandit(dim, 100, noise_std=1.0)
        loop = lambda periods, dim=dim: numpy_linear(dim, 100, 30, periods, rng)  # noqa: E731
        found.append(Item(f"linear, d = {dim}, 30 members", agent, world, *size, needs, loop))
    return found


def cipher(lanes: int = 64, periods: int = 1000) -> Row:
    """Keys and noise of Gaussian arms, with the cipher written out and as JAX compiles it."""

    def period(key: Any, t: Any) -> Any:
        noise = jax.random.split(jax.random.fold_in(key, t))[0]
        return jax.random.normal(noise, (100,)).sum()

    each = jax.jit(
        lambda keys: jax.lax.map(
            lambda t: jax.vmap(period, (0, None))(keys, t), jnp.arange(periods)
        )
    )
    plain = jax.random.split(jax.random.key(0), lanes)
    calls = [lambda keys=keys: each(keys) for keys in (quick(plain), plain)]
    jax.block_until_ready([call() for call in calls])
    work = f"keys and noise of 100 members, {lanes} x {periods:,} periods"
    ours, others = by_turns(7, *calls)
    return Row(work, ours, "JAX's own cipher", others)


def simulate(full: bool) -> list[Row]:
    """All by turns, beside one realization of a plain loop for each of ours unless at full size."""
    found = [item._replace(loop=None, repeats=3) if full else item for item in items(full)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Item.compile, found))
    taken = [[[] for _ in item.calls()] for item in found]
    for turn in range(max(item.repeats for item in found)):
        for item, lists in zip(found, taken, strict=True):
            if turn < item.repeats:
                for call, seconds in zip(item.calls(), lists, strict=True):
                    seconds.append(timed(call))
    rows = [item.row(*lists) for item, lists in zip(found, taken, strict=True)]
    return [*rows, cipher()] if CPU else rows


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
    return es.EnsembleSampling(es.Network(es.networks.GaussianMLP(dim, (50,)), dim, 2000), members)


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


def latency(full: bool) -> list[Row]:
    """`choose` and `learn` together, in blocks by turns; JAX's default settings."""
    found = []
    for actions, dim, members, rounds in (
        (10, 16, 10, 3000),
        (100, 100, 30, 1000),
        (1000, 100, 30, 100),
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
    "members": [10, 30, 100, 300, 1000],
    "arms": [30, 100, 300, 1000, 3000],
    "dim": [16, 32, 64, 128, 256],
    "periods": [100, 300, 1000, 3000, 10_000],
}
LANES = 32


def grown(members: int = 30, arms: int = 100, dim: int = 32, periods: int = 500) -> Item:
    agent = es.EnsembleSampling(es.Linear(dim, noise_std=1.0), members)
    world = es.LinearBandit(dim, arms, noise_std=1.0)
    return Item("", agent, world, LANES, periods)


def held(item: Item) -> int:
    """Bytes that a call of as many realizations holds at a time."""
    outline = programs.Outline.of(item.agent, item.world)
    shared = (False,) * len(outline.shapes)
    mode = programs.Run(item.periods, LANES, seed=0).mode
    program, *_ = programs._program(outline, shared, LANES, mode)
    about = program.memory_analysis()
    sizes = (about.temp_size_in_bytes, about.argument_size_in_bytes, about.output_size_in_bytes)
    return sum(sizes)


def growth(full: bool) -> dict[str, Any]:
    """Seconds and bytes of a linear ensemble over one size at a time, with exponents fitted to the
    three largest: what does not grow hides it in the others."""
    found = {}
    for name, sizes in SCALED.items():
        points = [grown(**{name: size}) for size in sizes]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(Item.compile, points))
            memory = list(pool.map(held, points))
        seconds = [float(np.median(s)) for s in by_turns(3, *(point.run for point in points))]
        found[name] = {"sizes": sizes, "seconds": seconds, "bytes": memory}
        for what, values in (("exponent", seconds), ("exponent of bytes", memory)):
            found[name][what] = float(np.polyfit(np.log(sizes[-3:]), np.log(values[-3:]), 1)[0])
    return found


def draw(growth: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
    panels = (("seconds", "exponent", "seconds"), ("bytes", "exponent of bytes", "MiB"))
    for axes, (what, exponent, label) in zip(both, panels, strict=True):
        for name, one in growth.items():
            values = np.array(one[what]) / (2**20 if what == "bytes" else 1)
            axes.loglog(one["sizes"], values, "o-", label=f"{name}: {one[exponent]:.2f}")
        axes.set(xlabel="size", ylabel=label)
        axes.legend(title="exponent", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)


AGENT = "es.EnsembleSampling(es.Linear(16), 10)"
DONE = "\nprint('done', flush=True)\n"
BEGUN = "import sys, numpy as np, ensemble_sampling as es\nrows = np.ones((10, 16), np.float32)\n"
REOPENED = (
    f"{BEGUN}bandit = es.Bandit.open(sys.argv[1], {{}})\ndecision = bandit.choose(rows)\n{DONE}"
    "bandit.learn(decision.id, 1.0)\nbandit.close()"
)
STARTS = {
    "import of Bandit": f"import ensemble_sampling\nensemble_sampling.Bandit{DONE}",
    "first decision": f"{BEGUN}es.Bandit({AGENT}).choose(rows){DONE}",
    "first decision in a folder": REOPENED.format(AGENT),
    "first decision in a folder, default agent": REOPENED.format("None"),
    "first figure": "import matplotlib\nmatplotlib.use('Agg')\nimport ensemble_sampling as es\n"
    "agent = es.EnsembleSampling(es.IndependentArms(10, noise_std=1.0), 10)\n"
    f"es.simulate(agent, es.GaussianArms(10), 100, 10, seed=0).plot(){DONE}",
}


def startup(full: bool) -> list[Row]:
    """A fresh process until the work is done; where it compiles, with a full cache and with an
    empty one; with the bytecode that installed packages have. Folders were begun and closed."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, code in STARTS.items():

            def run(cache: str, code: str = code, name: str = name) -> float:
                environment = {**os.environ, "ENSEMBLE_SAMPLING_CACHE": cache}
                environment |= {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
                for switch in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
                    environment.pop(switch, None)
                command = [sys.executable, "-c", code, f"{folder}/{name}"]
                began = time.perf_counter()
                process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
                assert process.stdout is not None
                done = process.stdout.readline()
                took = time.perf_counter() - began
                if process.wait() or not done:
                    raise RuntimeError(f"{name} failed")
                return took

            run(f"{folder}/kept")
            run(f"{folder}/kept")  # what a folder that was begun needs more
            warm, cold = [], []
            for repeat in range(5):
                warm.append(run(f"{folder}/kept"))
                cold.append(run(f"{folder}/{name} {repeat}"))
            found.append(Row(f"{name}, warm cache", warm, "cold cache", cold))
    return found


PARTS = {"simulate": simulate, "latency": latency, "growth": growth, "startup": startup}


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'work':60} {'ours':>9} {'range':>17}  {'other':30} {'its time':>9} {'ratio':>6} of limit"
    )
    for row in rows:
        low, high = row["range"]
        other = row.get("other", "")
        at = f"{_short(row['other_seconds']):>9} {row['ratio']:6.2f}" if other else " " * 16
        limit = f"{row['fraction']:7.0%}" if "fraction" in row else ""
        spread = f"{_short(low)}-{_short(high)}"
        print(f"{row['work']:60} {_short(row['seconds']):>9} {spread:>17}  {other:30} {at} {limit}")


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
    rates = Rates.measured()
    for part in [options.only] if options.only else PARTS:
        began = time.perf_counter()
        found = PARTS[part](options.full)
        rates = rates.or_better(Rates.measured())
        print(
            f"{part} on {device()}: {rates.operations / 1e9:,.0f} GFLOP/s, "
            f"{rates.bytes / 1e9:,.0f} GB/s ({rates.bytes_of_memory / 1e9:,.1f} of memory), "
            f"{rates.normals / 1e6:,.0f} M normals/s"
        )
        if isinstance(found, list):
            found = [row.told(rates) for row in found]
            show(found)
        else:
            for size, one in found.items():
                time_, memory = one["exponent"], one["exponent of bytes"]
                print(f"with {size}: time to the power {time_:.2f}, memory {memory:.2f}")
            draw(found, path.with_name(path.stem + "-growth"))
        about_part = {f"{name}_per_second": rate for name, rate in rates._asdict().items()}
        kept[part] = {**about_part, "took_seconds": time.perf_counter() - began, "rows": found}
        python = f"Python {platform.python_version()}, JAX {jax.__version__}"
        files.write_json(path, {**kept, "device": device(), "software": python})


if __name__ == "__main__":
    main()
