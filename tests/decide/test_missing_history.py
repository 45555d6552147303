"""Features that are missing in a history, where an agent takes none."""

import numpy as np
import pytest

import ensemble_sampling as es


def test_a_history_with_missing_features_is_refused_before_anything_is_recorded(tmp_path):
    bandit = es.Bandit.open(tmp_path / "b", actions=["a", "b"])
    for x in (1.0, np.nan, 2.0):
        bandit.learn(bandit.choose(context=[x, 1.0]).id, x if x == x else 0.0)
    linear = es.EnsembleSampling(es.PerAction(es.Linear(2), 2), 4)
    with pytest.raises(ValueError, match=r"missing \(NaN\) in 1 of 3 decisions of the history"):
        bandit.shadow("linear", linear)
    assert bandit.summary().shadows == ()
    bandit.close()
    with pytest.raises(ValueError, match=r"missing \(NaN\) in 1 of 3 decisions of the history"):
        es.Bandit.migrate(tmp_path / "b", linear, actions=["a", "b"])
    es.Bandit.open(tmp_path / "b", actions=["a", "b"]).close()
