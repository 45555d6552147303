"""How much reward bandits collect on classification data sets, ours and others.

    pip install vowpalwabbit mabwiser        # the peers; without them they are left out
    python benchmarks/bandit_quality.py

Every example is a context and every class an action; the reward is 1 for the right class and 0
otherwise, and nobody is told which class would have been right. All contenders see the same
examples in the same order, standardised, with a constant added; each of several shuffles is one
run. What is compared is the average reward over the whole run, exploring included, with 95 %
confidence intervals (Student's t) over the shuffles. The network and the trees have one setting for
all data sets, chosen by trying a dozen on other shuffles of the same data; every other contender
gets the best of three settings on each, chosen in the same run. Read differences of a few
hundredths as ties. The data ship inside scikit-learn.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn import datasets
from sklearn.ensemble import ExtraTreesRegressor

import ensemble_sampling as es

DATA = {
    "digits": datasets.load_digits,
    "breast cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
}


def load(name):
    data = DATA[name]()
    x = data.data - data.data.mean(axis=0)
    spread = x.std(axis=0)
    x = x[:, spread > 0] / spread[spread > 0] / np.sqrt((spread > 0).sum())
    return np.column_stack([x, np.ones(len(x))]).astype(np.float32), data.target


class Ours:
    def __init__(self, agent):
        self.bandit = es.Bandit(agent, seed=0, normalise=False)

    def choose(self, context):
        self.decision = self.bandit.choose(context=context)
        return self.decision.index

    def learn(self, context, index, reward):
        self.bandit.learn(self.decision.id, reward)


def linear(dim, actions, noise=0.1):
    learner = es.PerAction(es.Linear(dim=dim, noise_std=noise, prior_std=PRIOR), actions)
    return Ours(es.EnsembleSampling(learner, members=30))


def epsilon_greedy(dim, actions, epsilon=0.05):
    learner = es.PerAction(es.Linear(dim=dim, noise_std=NOISE, prior_std=PRIOR), actions)
    return Ours(es.EpsilonGreedy(learner, epsilon))


def network(dim, actions):
    import optax

    make = es.GaussianMLP(dim=dim, hidden=(100,), outputs=actions, prior_std=0.2)
    learner = es.Network(
        make,
        dim=dim,
        capacity=2000,
        noise_std=NOISE,
        prior_std=0.5,
        arms=actions,
        optimizer=optax.adam,
        learning_rate=0.003,
        steps=8,
        batch=64,
    )
    return Ours(es.EnsembleSampling(learner, members=10))


def trees(dim, actions):
    make = partial(ExtraTreesRegressor, n_estimators=8, min_samples_leaf=2)
    agent = es.EstimatorEnsemble(
        make, members=5, noise_std=NOISE, prior_std=0.5, growth=1.05, arms=actions
    )
    return Ours(agent)


class VowpalWabbit:
    def __init__(self, dim, actions, more=""):
        from vowpalwabbit import Workspace  # pyright: ignore[reportMissingImports]

        options = f"--cb_explore_adf --bag 30 --quiet --random_seed 0 -q CA {more}"
        self.vw, self.actions = Workspace(options), actions
        self.rng = np.random.default_rng(0)

    def _lines(self, context):
        shared = "shared |C " + " ".join(f"{i}:{v:.5g}" for i, v in enumerate(context))
        return [shared, *(f"|A a{k}" for k in range(self.actions))]

    def choose(self, context):
        shares = np.asarray(self.vw.predict(self._lines(context)))
        index = int(self.rng.choice(self.actions, p=shares / shares.sum()))
        self.share = shares[index]
        return index

    def learn(self, context, index, reward):
        lines = self._lines(context)
        lines[index + 1] = f"0:{-reward}:{self.share} {lines[index + 1]}"
        self.vw.learn(lines)


class MabWiser:
    def __init__(self, dim, actions, alpha=1.0):
        from mabwiser.mab import MAB, LearningPolicy  # pyright: ignore[reportMissingImports]

        policy = LearningPolicy.LinTS(alpha=alpha)
        self.mab = MAB(arms=list(range(actions)), learning_policy=policy, seed=0)
        self.started, self.actions = False, actions

    def choose(self, context):
        if not self.started:
            return 0
        return self.mab.predict(context[None].astype(float))

    def learn(self, context, index, reward):
        learn = self.mab.partial_fit if self.started else self.mab.fit
        learn([index], [reward], context[None].astype(float))
        self.started = True


FIRST = 100  # settings were chosen on shuffles before this one
NOISE, PRIOR = 0.1, 0.25
CONTENDERS = {
    "linear ensemble (ours)": {f"noise {s}": partial(linear, noise=s) for s in (0.05, 0.1, 0.2)},
    "network ensemble (ours)": {"": network},
    "tree ensemble (ours)": {"": trees},
    "epsilon-greedy, linear": {
        f"epsilon {e}": partial(epsilon_greedy, epsilon=e) for e in (0.01, 0.05, 0.1)
    },
    "Vowpal Wabbit --bag 30": {
        more: partial(VowpalWabbit, more=more) for more in ("", "-l 2", "--cb_type dr")
    },
    "MABWiser LinTS": {f"alpha {a}": partial(MabWiser, alpha=a) for a in (0.1, 0.25, 1.0)},
}


def run(make, x, y, shuffle, rounds):
    """Average reward over one pass through the shuffled examples."""
    order = np.random.default_rng(FIRST + shuffle).permutation(len(x))[:rounds]
    actions = int(y.max()) + 1
    bandit, total = make(x.shape[1], actions), 0.0
    for i in order:
        index = bandit.choose(x[i])
        reward = float(index == y[i])
        bandit.learn(x[i], index, reward)
        total += reward
    return total / len(order)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shuffles", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    parser.add_argument("--out", type=Path, help="write the rewards of every run as JSON")
    options = parser.parse_args()
    results = {}
    for name in options.data:
        x, y = load(name)
        print(f"{name}: {min(len(x), options.rounds)} examples, {x.shape[1]} features", flush=True)
        for label in options.only:
            began = time.perf_counter()
            try:
                tried = {
                    setting: [run(make, x, y, s, options.rounds) for s in range(options.shuffles)]
                    for setting, make in CONTENDERS[label].items()
                }
            except ImportError as error:
                print(f"  {label:26} left out: {error}")
                continue
            setting = max(tried, key=lambda one: np.mean(tried[one]))
            got = tried[setting]
            results.setdefault(name, {})[label] = got
            half = stats.t.ppf(0.975, len(got) - 1) * stats.sem(got) if len(got) > 1 else np.nan
            took = time.perf_counter() - began
            print(
                f"  {label:26} {np.mean(got):.3f} ± {half:.3f}   ({took:.0f} s) {setting}",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
