"""What a summary and its figure say is what the ledger holds, by plain counting."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import ensemble_sampling as es
from ensemble_sampling.decide import summary as summary_module
from ensemble_sampling.decide.summary import Summary, draw, summarize
from ensemble_sampling.ledger import ledger as ledger_module
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow

SHARES = [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75], [0.0, 1.0], [0.125, 0.875], [0.5, 0.5]]
ORDER = [3, 0, 4, 1]  # outcomes come in this order, of decisions made at 100, 110, ...
REWARDS = {3: 5.0, 0: 1.0, 4: None, 1: 3.0}
ARRIVAL = {3: 131.0, 0: 132.0, 4: 145.0, 1: 149.0}


@pytest.fixture
def ledger(monkeypatch):
    ledger = Ledger(None)
    for number, shares in enumerate(SHARES):
        at, row = 100.0 + 10 * number, np.zeros(1, np.float32)
        ledger.add_decisions([DecisionRow(number, at, 0, None, row, np.array(shares, np.float32))])
    for number in ORDER:
        monkeypatch.setattr(ledger_module.time, "time", lambda n=number: ARRIVAL[n])
        ledger.add_outcomes([OutcomeRow(number, [1.0], REWARDS[number], expired=number == 0)])
    monkeypatch.setattr(summary_module.time, "time", lambda: 175.0)
    return ledger


def test_a_summary_counts_what_is_there(ledger):
    assert summarize(ledger, diverged=2, recent=3) == Summary(
        decisions=6,
        outcomes=4,
        expired=1,
        pending=2,
        waiting=175.0 - 120.0,  # decision 2 is the oldest without an outcome
        reward=(5.0 + 1.0 + 3.0) / 3,
        recent_reward=(1.0 + 3.0) / 2,  # of the last three outcomes one has no reward
        agreement=(1.0 + (0.125**2 + 0.875**2) + 0.5) / 3,
        diverged=2,
        recent=3,
    )


def test_a_summary_of_nothing_says_none_yet():
    empty = summarize(Ledger(None))
    assert (empty.waiting, empty.reward, empty.recent_reward, empty.agreement) == (None,) * 4
    assert str(empty).count("none yet") == 3


def test_a_summary_reads_well(ledger):
    assert str(summarize(ledger, recent=3)).splitlines() == [
        "decisions  6",
        "outcomes   4, of which 1 expired",
        "pending    2, the oldest for 0:00:55",
        "reward     3, over the last 3 outcomes 2",
        "agreement  0.7604 over the last 3 decisions (1: members all choose alike)",
        "diverged   0 times",
    ]


def lines(figure):
    return [axis.lines[0].get_xydata().tolist() for axis in figure.axes]


def test_the_figure_shows_reward_agreement_and_what_is_waited_for(ledger):
    figure = draw(ledger, window=2)
    reward, share, agreement, pending = lines(figure)
    assert len(share) == len(SHARES)
    assert sum(np.asarray(line.get_ydata())[-1] for line in figure.axes[1].lines) == 1
    assert reward == [[0, 1.0], [1, 2.0], [3, 4.0]]
    alike = [sum(share**2 for share in shares) for shares in SHARES]
    trailing = [alike[0], *[(a + b) / 2 for a, b in pairwise(alike)]]
    assert np.allclose(agreement, list(enumerate(trailing)), rtol=0, atol=1e-6)
    made = [100.0 + 10 * number for number in range(6)]
    waited = [sum(t < now for t in made) for now in made] + [6]
    come = [sum(t <= now for t in ARRIVAL.values()) for now in made] + [4]
    assert [y for _, y in pending] == [a - b for a, b in zip(waited, come, strict=True)]


def test_nothing_is_waited_for_where_every_outcome_came_at_once():
    bandit = es.Bandit(es.Uniform())
    for _ in range(5):
        bandit.learn(bandit.choose(np.ones((3, 2))).id, 1.0)
    assert [y for _, y in lines(bandit.plot())[3]] == [0] * 6
    assert bandit.summary().pending == 0
    assert bandit.summary().waiting is None


def test_the_figure_has_the_95_percent_interval_of_a_mean_and_the_shares_of_actions():
    bandit = es.Bandit(es.Uniform(), actions=None)
    rewards = [1.0, 1.5, 9.0, 2.0]
    for reward in rewards:
        bandit.learn(bandit.choose({"tea": [1.0], "cake": [0.0]}), reward)
    figure = bandit.plot()
    names = bandit.log()["action"]
    for line in figure.axes[1].lines:
        expected = [names[: n + 1].count(line.get_label()) / (n + 1) for n in range(4)]
        assert np.allclose(line.get_ydata(), expected)
    upper = np.asarray(figure.axes[0].collections[0].get_paths()[0].vertices)[:, 1].max()
    bounds = [
        np.mean(rewards[:n]) + stats.t.ppf(0.975, n - 1) * stats.sem(rewards[:n]) for n in (2, 3, 4)
    ]
    assert np.isclose(upper, min(9.0, max(bounds)))  # no mean is beyond what was seen


def test_a_figure_of_one_decision_or_of_none_has_axes_that_mean_something():
    bandit = es.Bandit(es.Uniform())
    for _ in range(2):
        for axis in bandit.plot().axes:
            low, high = axis.get_ylim()
            assert high - low >= 1
        bandit.learn(bandit.choose(np.ones((2, 1))), 0.0)
