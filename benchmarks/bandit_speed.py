"""How long one decision and its outcome take: ours in memory and on disk, and two peers.

    pip install vowpalwabbit mabwiser        # the peers; without them they are left out
    python benchmarks/bandit_speed.py

One process, blocks of fifty rounds by turns, so that all face the same machine: 100 actions x 100
features, 30 members. Every contender gets its input in the form it likes best, made before the
clock starts: NumPy arrays for ours and MABWiser, text already formatted for Vowpal Wabbit.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import ensemble_sampling as es
from ensemble_sampling import files


def ours(bandit):
    def step(features, reward):
        began = time.perf_counter()
        decision = bandit.choose(features)
        chosen = time.perf_counter()
        value = reward(decision.index)
        resumed = time.perf_counter()
        bandit.learn(decision.id, value)
        return chosen - began, time.perf_counter() - resumed

    return step


def vowpal_wabbit(explorer):
    from vowpalwabbit import Workspace  # pyright: ignore[reportMissingImports]

    vw = Workspace(f"--cb_explore_adf {explorer} --quiet --random_seed 0")
    rng = np.random.default_rng(0)

    def step(features, reward):
        lines = ["| " + " ".join(f"{i}:{x:.5g}" for i, x in enumerate(row)) for row in features]
        began = time.perf_counter()
        shares = np.asarray(vw.predict(lines))
        index = int(rng.choice(len(shares), p=shares / shares.sum()))
        chosen = time.perf_counter()
        lines[index] = f"0:{-reward(index)}:{shares[index]} {lines[index]}"
        resumed = time.perf_counter()
        vw.learn(lines)
        return chosen - began, time.perf_counter() - resumed

    return step


def mabwiser(actions):
    from mabwiser.mab import MAB, LearningPolicy  # pyright: ignore[reportMissingImports]

    mab = MAB(arms=list(range(actions)), learning_policy=LearningPolicy.LinTS(alpha=1.0), seed=0)
    started = False

    def step(features, reward):
        # One model per action over a common context, which is the form MABWiser has.
        nonlocal started
        context = features[:1].astype(float)
        if not started:
            mab.fit([0], [0.0], context)
            started = True
        began = time.perf_counter()
        index = mab.predict(context)
        chosen = time.perf_counter()
        value = reward(index)
        resumed = time.perf_counter()
        mab.partial_fit([index], [value], context)
        return chosen - began, time.perf_counter() - resumed

    return step


def contenders(actions, dim, members, folder):
    agent = es.EnsembleSampling(es.Linear(dim=dim, noise_std=1.0), members=members)
    per_action = es.EnsembleSampling(es.PerAction(es.Linear(dim=dim), actions), members=members)
    bandit = es.Bandit(per_action)

    class OnContext:
        choose = staticmethod(lambda features: bandit.choose(context=features[0]))
        learn = staticmethod(bandit.learn)

    steps = {
        "ours, in memory": ours(es.Bandit(agent)),
        "ours, on disk": ours(es.Bandit.open(folder, agent)),
        "ours, a model per action": ours(OnContext),
    }
    for name, make in (
        (f"Vowpal Wabbit --bag {members}", lambda: vowpal_wabbit(f"--bag {members}")),
        ("MABWiser LinTS", lambda: mabwiser(actions)),
    ):
        try:
            steps[name] = make()
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return steps


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--actions", type=int, default=100)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--members", type=int, default=30)
    parser.add_argument("--asynchronous", action="store_true", help="JAX's own default on a CPU")
    parser.add_argument("--out", type=Path, help="keep the medians in this JSON file, by turns")
    options = parser.parse_args()
    # As docs/how-to/latency.md advises: a decision waits for its numbers, so let the thread that
    # asks compute them.
    jax.config.update("jax_cpu_enable_async_dispatch", options.asynchronous)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=options.features)
    with tempfile.TemporaryDirectory() as folder:
        steps = contenders(options.actions, options.features, options.members, folder)
        seconds = {name: [] for name in steps}
        draw = lambda: rng.normal(size=(options.actions, options.features))  # noqa: E731
        for block in range(-1, -(-options.rounds // 50)):
            offers = [draw().astype(np.float32) for _ in range(50)]
            values = [features @ theta / np.sqrt(options.features) for features in offers]
            for name, step in steps.items():
                time.sleep(0.1)  # until NumPy's threads, which spin after a product, are at rest
                for features, means in zip(offers, values, strict=True):
                    took = step(features, lambda index, means=means: float(means[index]))
                    if block >= 0:  # the first compiles
                        seconds[name].append(took)
    base = np.median(np.sum(seconds["ours, in memory"], axis=1))
    print(f"{'median of ' + str(options.rounds):30}  choose ms  learn ms  both ms   90 %  x ours")
    for name, took in seconds.items():
        choose, learn = np.median(took, axis=0) * 1e3
        both = np.sum(took, axis=1)
        print(
            f"{name:30} {choose:10.3f} {learn:9.3f} {np.median(both) * 1e3:8.3f} "
            f"{np.quantile(both, 0.9) * 1e3:6.2f} {np.median(both) / base:7.1f}"
        )
    if options.out is not None:
        keep(options, {n: float(np.median(np.sum(s, axis=1))) * 1e3 for n, s in seconds.items()})


def keep(options, medians):
    """Beside what an earlier run of the other kind (asynchronous or not) left there."""
    kept = files.read_json(options.out) if options.out.exists() else {}
    sizes = {name: getattr(options, name) for name in ("rounds", "actions", "features", "members")}
    kind = "asynchronous" if options.asynchronous else "synchronous"
    about = f"Python {platform.python_version()}, JAX {jax.__version__}, {os.cpu_count()} cores"
    new = {**sizes, "machine": about, "milliseconds_of_both": medians}
    kept.pop("sha256", None)
    files.write_json(options.out, {**kept, kind: new})


if __name__ == "__main__":
    main()
