"""What an overview tells is what the ledger holds, by plain loops."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from servers import new_place

from ensemble_sampling.decide import overview
from ensemble_sampling.decide.decisions import Values
from ensemble_sampling.decide.explain import SHOWN
from ensemble_sampling.decide.overview import history, recent
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.intervals import Span
from ensemble_sampling.ledger import ledger as ledger_module
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow, RevisionRow

NAMES = [f"a{n}" for n in range(12)]


@pytest.fixture
def at(monkeypatch):
    """Sets the time at which outcomes arrive."""
    clock = {"now": 0.0}
    monkeypatch.setattr(ledger_module.time, "time", lambda: clock["now"])

    def set_to(now: float) -> None:
        clock["now"] = now

    return set_to


@pytest.fixture(params=["memory", "postgresql"])
def told(request, at):
    """A ledger of 200 decisions and what is known of them, in lists: outcomes come late or never,
    some are corrected, ten decisions were made elsewhere, sizes of offers vary."""
    ledger = Ledger(None if request.param == "memory" else new_place())
    rng, known = np.random.default_rng(0), []
    for number in range(200):
        size = int(rng.integers(2, 13))
        shares = rng.dirichlet(np.ones(size)).astype(np.float32)
        chosen, elsewhere = int(rng.integers(size)), 100 <= number < 110
        name = None if number % 17 == 0 else NAMES[chosen]
        row = np.zeros(1, np.float32)
        made = DecisionRow(
            number, 1000.0 + number, chosen, name, row, shares[:1] if elsewhere else shares
        )
        ledger.add_decisions([made._replace(foreign=elsewhere)])
        name = str(chosen) if name is None else name
        known.append(
            {"row": made, "name": name, "foreign": elsewhere, "reward": None, "came": None}
        )
    for number in rng.permutation(200)[:150].tolist():
        one = known[number]
        one["came"] = 1000.0 + number + float(rng.exponential(20))
    late = sorted((n for n in range(200) if known[n]["came"]), key=lambda n: known[n]["came"])
    for number in late:
        at(known[number]["came"])
        y = float(rng.normal())
        ledger.add_outcomes([OutcomeRow(number, y, y)])
        known[number]["reward"] = y
    for number in late[::10]:
        for y in (7.0, float(rng.normal())):  # the last one holds
            ledger.add_outcomes([], [RevisionRow(number, y, y)])
            known[number]["reward"] = y
    yield ledger, known
    ledger.close()


def test_history_is_what_plain_counting_gives(told):
    ledger, known = told
    parts = history(ledger, buckets=7)
    begin, end = 1000.0, max(1199.0, *(one["came"] or 0 for one in known))
    often = Counter(one["name"] for one in known)
    most = sorted(often, key=lambda name: (-often[name], name))[:8]
    assert len(parts) == 7
    for n, part in enumerate(parts):
        low, high = begin + (end - begin) * n / 7, begin + (end - begin) * (n + 1) / 7
        inside = [one for one in known if low < one["row"].time <= high]
        inside += known[:1] if n == 0 else []  # the first is at the very beginning
        rewards = [one["reward"] for one in inside if one["reward"] is not None]
        votes = [one["row"] for one in inside if not one["foreign"]]
        assert part["time"] == pytest.approx(high)
        assert part["decisions"] == len(inside)
        assert part["outcomes"] == len(rewards)
        mean = sum(rewards) / len(rewards) if rewards else None
        assert part["reward"] == (mean if mean is None else pytest.approx(mean))
        if len(rewards) > 1:
            variance = sum((y - mean) ** 2 for y in rewards) / (len(rewards) - 1)
            assert part["stderr"] == pytest.approx(math.sqrt(variance / len(rewards)))
        alike = [sum(float(p) ** 2 for p in row.probabilities) for row in votes]
        other = [row.probabilities[row.chosen] < max(row.probabilities) for row in votes]
        assert part["agreement"] == (pytest.approx(np.mean(alike)) if votes else None)
        assert part["exploration"] == (pytest.approx(np.mean(other)) if votes else None)
        made = sum(one["row"].time <= high for one in known)
        come = sum(one["came"] is not None and one["came"] <= high for one in known)
        assert part["pending"] == made - come
        count = Counter(one["name"] for one in inside)
        shares = {name: pytest.approx(count[name] / len(inside)) for name in most} if inside else {}
        assert part["actions"] == shares
    assert parts[-1]["pending"] == 50


def test_an_interval_is_students_or_for_clicks_wilsons():
    plain = overview._interval(np.array([1.0, 2.0, 3.0]), Span(1.0, 3.0, False))
    reach = 4.302652729911275 / math.sqrt(3)  # the 97.5% point of t with two degrees of freedom
    assert plain["low"] == pytest.approx(2 - reach)
    assert plain["high"] == pytest.approx(2 + reach)
    clicks = overview._interval(np.array([1.0] + 9 * [0.0]), Span(0.0, 1.0, True))
    assert 0.0025 < clicks["low"] < 0.0179  # Clopper and Pearson's, and Wilson's
    assert 0.4042 < clicks["high"] < 0.46
    none = overview._interval(np.zeros(10), Span(0.0, 1.0, True))
    assert none["low"] == 0.0
    assert 0.25 < none["high"] < 0.31  # ten zeros are no certainty
    assert overview._interval(np.ones(1), Span(0.0, 2.0, False))["low"] is None
    assert overview._interval(np.ones(1), Span(0.0, 1.0, True))["high"] == 1.0


def test_few_decisions_are_one_part_and_none_are_no_parts(at):
    ledger = Ledger(None)
    assert history(ledger) == []
    assert recent(ledger) == []
    share = np.array([0.25, 0.75], np.float32)
    ledger.add_decisions([DecisionRow(0, 5.0, 1, None, np.zeros(1, np.float32), share)])
    (part,) = history(ledger)
    assert part == {
        "time": 5.0, "decisions": 1, "outcomes": 0, "reward": None, "stderr": None, "low": None,
        "high": None, "agreement": 0.625, "exploration": 0.0, "pending": 1, "actions": {"1": 1.0},
    }  # fmt: skip


@pytest.fixture(scope="module")
def long():
    """12,000 decisions, of which every other one has an outcome."""
    ledger, share, row = Ledger(None), np.array([0.5, 0.5], np.float32), np.zeros(1, np.float32)
    ledger.add_decisions([DecisionRow(n, float(n), n % 2, None, row, share) for n in range(12_000)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module.time, "time", lambda: 11_999.0)
        ledger.add_outcomes([OutcomeRow(n, 1.0, 1.0) for n in range(0, 12_000, 2)])
    return ledger


def test_only_the_last_decisions_are_looked_at(long, monkeypatch):
    read = []
    ask_all = Ledger.ask_all
    monkeypatch.setattr(
        Ledger, "ask_all", lambda self, query: read.append(ask_all(self, query)) or read[-1]
    )
    parts = history(long, 10)
    assert sum(part["decisions"] for part in parts) == overview.LATEST
    assert parts[-1]["pending"] == 6_000  # those before count too
    assert max(len(rows) for rows in read) <= overview.LATEST


def test_no_query_of_the_history_walks_through_a_whole_table(long, monkeypatch):
    asked = []
    ask_all = Ledger.ask_all
    monkeypatch.setattr(
        Ledger, "ask_all", lambda self, query: asked.append(query) or ask_all(self, query)
    )
    history(long)
    for query in asked:
        if query.endswith("LIMIT 1"):
            continue
        steps = [row[3] for row in ask_all(long, f"EXPLAIN QUERY PLAN {query}")]
        walks = [step for step in steps if step.startswith("SCAN") and "imports" not in step]
        assert not walks, (query, steps)


def test_large_offers_are_sampled(long, monkeypatch):
    monkeypatch.setattr(overview, "BYTES", 12_000)
    seen = []
    votes = overview._votes
    monkeypatch.setattr(overview, "_votes", lambda *a: seen.append(a[1]) or votes(*a))
    assert history(long, 10)[-1]["agreement"] == 0.5
    with_votes = sum(row[6] is not None for row in seen[0])
    assert with_votes * 12 <= 12_000  # a row has 12 bytes
    assert with_votes > 800


def test_recent_decisions_say_why():
    ledger, row = Ledger(None), np.zeros(1, np.float32)
    share = np.array([0.2, 0.0, 0.5, 0.3], np.float32)
    free = np.array([True, False, True, True])
    offer = Offer(np.arange(4, dtype=np.float32)[:, None], None, ["tea", "gone", 7, "<b>"], free)
    ledger.add_decisions([DecisionRow(0, 10.0, 3, "<b>", row, share, offer=offer)])
    ledger.add_decisions([DecisionRow(1, 11.0, 2, 7, row, share, offer=offer)])
    ledger.add_outcomes([OutcomeRow(0, 2.5, 2.5)])

    def value(offered):
        x = offered.actions[:, 0].astype(float)
        return Values(np.where(x == 2, np.nan, 10 * x), x)

    newest, older = recent(ledger, 5, value)
    third, fifth = pytest.approx(0.3), pytest.approx(0.2)
    assert newest["id"] == ledger.decision_id(1)
    assert (newest["action"], newest["explored"], newest["outcome"]) == (7, False, None)
    assert older == {
        "id": ledger.decision_id(0), "time": 10.0, "action": "<b>", "outcome": 2.5, "reward": 2.5,
        "probability": third, "explored": True, "expired": False, "foreign": False,
        "control": None,
        "offered": 3,
        "actions": [
            {"name": 7, "chosen": False, "probability": 0.5, "mean": None, "spread": 2.0},
            {"name": "<b>", "chosen": True, "probability": third, "mean": 30.0, "spread": 3.0},
            {"name": "tea", "chosen": False, "probability": fifth, "mean": 0.0, "spread": 0.0},
        ],
    }  # fmt: skip
    json.dumps(newest, allow_nan=False)


def test_of_many_actions_the_likeliest_and_the_chosen_one_are_told():
    ledger, share = Ledger(None), np.arange(100, 0, -1).astype(np.float32)
    made = DecisionRow(0, 1.0, 99, None, np.zeros(1, np.float32), share / share.sum())
    ledger.add_decisions([made])
    (one,) = recent(ledger)
    names = [action["name"] for action in one["actions"]]
    assert names == [*range(SHOWN - 1), 99]
    assert one["offered"] == 100


@pytest.mark.parametrize("count", [0, -1, 1001, 2.5, None])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(ValueError, match="count must be a number from 1 to 1000, got"):
        recent(Ledger(None), count)
    with pytest.raises(ValueError, match="buckets must be a number from 1 to 1000, got"):
        history(Ledger(None), count)


def test_the_axis_begins_where_decisions_are_dense():
    def made(ledger: Ledger, times: list[float], **about) -> int:
        for number, time in enumerate(times, start=ledger.decisions):
            one = np.ones(1, np.float32)
            ledger.add_decisions([DecisionRow(number, time, 0, "a", one, one)])
        return sum(part["decisions"] for part in history(ledger, 10, **about))

    ledger, trials = Ledger(None), [10.0 * n for n in range(4)]
    assert made(ledger, trials) == 4
    assert made(ledger, [10_000.0 + n for n in range(96)]) == 96
    dense = history(ledger, 10)
    assert dense[0]["time"] == 10_000 + 95 / 10
    assert dense[-1]["pending"] == 100
    assert made(ledger, [], since=0.0) == 100
    assert made(ledger, [], since=10_050.0) == 46
    assert history(ledger, 10, 20_000.0) == []
    even = Ledger(None)
    assert made(even, [float(n) for n in range(100)]) == 100
    ledger.close()
    even.close()
