"""The report's section on other posteriors."""

from ensemble_sampling.experiments.paper import others

PLAN = {"periods": 500, "realizations": 1000, "machine": "a GPU"}


def row(regret, **more):
    costs = {"seconds_per_period": 2e-6, "decision_seconds": 3e-4, "update_seconds": 5e-4}
    known = {"cumulative": [regret, 1.0], "final": [0.5, 0.01], "chosen": {"step": ["sgd", 0.1]}}
    return {"plan": PLAN, "state_bytes": 2048, **known, **costs, **more}


def test_agents_are_listed_by_their_regret_and_those_not_tested_are_not():
    measured = {"network": {"a|b": row(30.0), "best": row(1234.5), "not": {"plan": PLAN}}}
    *_, about, listed = others.section(measured)
    assert about.endswith("500 periods, 1,000 realizations (a GPU):")
    lines = listed.splitlines()[2:]
    assert lines == [
        "| a\\|b | 30 ± 1 | 0.50 ± 0.01 | 2.00 | 300 | 500 | 2 | step sgd 0.1 |",
        "| best | 1,234 ± 1 | 0.50 ± 0.01 | 2.00 | 300 | 500 | 2 | step sgd 0.1 |",
    ]


def test_nothing_measured_is_no_section(tmp_path):
    assert others.section(others.load(tmp_path)) == []
