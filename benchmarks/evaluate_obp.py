"""Our estimates beside those of the Open Bandit Pipeline, on the same arrays.

    pip install --no-deps --target /tmp/obp obp     # it asks for much that is not used here
    PYTHONPATH=/tmp/obp python benchmarks/evaluate_obp.py

Two logs: one that was simulated, and the sample of real clicks that the pipeline brings along (the
Open Bandit Dataset, 10,000 decisions of each campaign made by Thompson sampling). There the policy
to be evaluated is uniform, whose clicks the same sample counts in as many decisions of its own. The
reward model is ours in both, handed to the pipeline as an array. It has no clipped weights: there
it gets propensities that are as large as clipping makes them.
"""

import argparse
import importlib.util
import json
import sys
import types
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd

import ensemble_sampling as es
from ensemble_sampling.evaluation.model import RewardModel

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "evaluate_obp.json"


def pipeline():
    """(its estimators, its folder), without the packages that these do not use."""
    found = importlib.util.find_spec("obp")
    if found is None or found.origin is None:
        sys.exit("obp is not installed; see the top of this file")
    folder = Path(found.origin).parent
    if importlib.util.find_spec("torch") is None:
        torch = types.ModuleType("torch")
        torch.Tensor = type("Tensor", (), {})  # pyright: ignore[reportAttributeAccessIssue]
        sys.modules["torch"] = torch
    package = types.ModuleType("obp.ope")
    package.__path__ = [str(folder / "ope")]
    sys.modules["obp.ope"] = package
    from obp.ope import estimators  # pyright: ignore[reportMissingImports]

    return estimators, folder


def theirs(module, log, pi, values, clip):
    """The pipeline's estimates under our names."""
    chosen, rows = log.chosen, np.arange(len(log))
    data = {
        "reward": log.outcome,
        "action": chosen,
        "position": np.zeros(len(log), int),
        "pscore": log.propensity,
        "action_dist": pi[:, :, None],
    }
    model = {"estimated_rewards_by_reg_model": values[:, :, None]}
    plain = module.InverseProbabilityWeighting().estimate_policy_value
    clipped = {**data, "pscore": np.maximum(log.propensity, pi[rows, chosen] / clip)}
    normal = module.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value
    only = {name: data[name] for name in ("position", "action_dist")}
    return {
        "direct": module.DirectMethod().estimate_policy_value(**only, **model),
        "inverse propensity": plain(**data),
        "clipped": plain(**clipped),
        "self-normalised": normal(**data),
        "doubly robust": module.DoublyRobust().estimate_policy_value(**data, **model),
        "switch": module.SwitchDoublyRobust(tau=clip).estimate_policy_value(**data, **model),
    }


def compared(module, name, log, pi, clip, **more):
    """One log: both estimates of everything, and how far they are apart."""
    values = RewardModel(log).values()
    ours = es.evaluate(log, pi, model=values, clip=clip)
    other = theirs(module, log, pi, values, clip)
    row = {
        "log": name,
        "decisions": len(log),
        "actions": log.arms,
        "effective": ours.effective,
        "largest_weight": ours.largest,
        "unsupported": ours.unsupported,
        **more,
        "estimates": {
            method: {
                "ours": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "obp": float(other[method]),
                "apart": abs(estimate.value - float(other[method])),
            }
            for method, estimate in ours.estimates.items()
        },
    }
    worst = max(entry["apart"] for entry in row["estimates"].values())
    shown = {method: f"{entry['ours']:.6g}" for method, entry in row["estimates"].items()}
    print(f"{name}: at most {worst:.1e} apart", more, shown)
    return row


def simulated(decisions=5000, actions=10, dim=5):
    rng = np.random.default_rng(0)
    x, theta = rng.normal(size=(decisions, dim)), rng.normal(size=(2, dim, actions))
    shares = np.exp(x @ theta[0])
    shares = 0.9 * shares / shares.sum(axis=1, keepdims=True) + 0.1 / actions
    luck = rng.random((decisions, 1))
    chosen = np.minimum((luck > shares.cumsum(axis=1)).sum(axis=1), actions - 1)
    y = (x @ theta[1])[np.arange(decisions), chosen] + rng.normal(size=decisions)
    pi = rng.dirichlet(np.ones(actions), decisions)
    return es.Log(chosen, y, propensities=shares, context=x), pi


def clicks(folder, campaign):
    """(the log of Thompson sampling, uniform play, its share of clicks in a log of its own)."""
    read = {
        policy: pd.read_csv(folder / "dataset" / "obd" / policy / campaign / f"{campaign}.csv")
        for policy in ("bts", "random")
    }
    data = read["bts"].sort_values("timestamp")
    users = [name for name in data.columns if name.startswith("user_feature")]
    context = pd.get_dummies(data[users], drop_first=True).to_numpy(float)
    items = pd.read_csv(folder / "dataset" / "obd" / "bts" / campaign / "item_context.csv")
    log = es.Log(
        data["item_id"].to_numpy(),
        data["click"].to_numpy(),
        data["propensity_score"].to_numpy(),
        context=context,
        actions=list(range(len(items))),
    )
    return (
        log,
        np.full((len(log), len(items)), 1 / len(items)),
        np.mean(read["random"]["click"].to_numpy()),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    module, folder = pipeline()
    rows = [compared(module, "simulated", *simulated(), clip=20.0)]
    for campaign in ("all", "men", "women"):
        log, pi, earned = clicks(folder, campaign)
        rows.append(compared(module, campaign, log, pi, 20.0, uniform_earned=float(earned)))
    about = {"obp": metadata.version("obp"), "numpy": np.__version__}
    out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
