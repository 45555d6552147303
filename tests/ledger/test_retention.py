"""What is removed is gone from everywhere, all or nothing; what was learned stays, or goes."""

# pyright: reportAttributeAccessIssue=false

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from processes import Process
from servers import admin, new_place, schema
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.summary import summarize
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger.export import export
from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.ledger.retention import Retention
from ensemble_sampling.ledger.rows import decided
from ensemble_sampling.serve.admin import erase
from ensemble_sampling.serve.types import Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFERS = np.random.default_rng(0).normal(size=(60, 3, 2))
DAY = 86400.0


@pytest.fixture
def clock(monkeypatch):
    """A time that only tests change."""
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.fixture(params=["memory", "disk", "postgres"])
def place(request, tmp_path):
    if request.param == "postgres":
        pytest.importorskip("psycopg")
        return new_place()
    return None if request.param == "memory" else tmp_path / "shop"


def opened(place, agent: Any = AGENT, **options):
    options = {"normalise": False, **options}
    if place is None:
        return es.Bandit(agent, **options)
    return es.Bandit.open(place, agent, **options)


def play(bandit, clock, days=10, subjects=lambda n: None, learns=lambda n: True):
    """A decision a day; its outcome comes the same day."""
    ids = []
    for n in range(days):
        clock[0] += DAY
        made = bandit.choose(OFFERS[n], subject=subjects(n))
        if learns(n):
            bandit.learn(made.id, float(np.sin(n) + made.index))
        ids.append(made.id)
    return ids


def goes_on(bandit, other):
    """Both decide alike, and learn the same from it."""
    for n in range(20, 25):
        one, two = (each.choose(OFFERS[n]) for each in (bandit, other))
        assert np.array_equal(one.probabilities, two.probabilities)
        assert one.index == two.index
        for each, made in ((bandit, one), (other, two)):
            each.learn(made.id, float(n))
    assert equal(bandit.state, other.state)


def test_old_decisions_go_and_what_was_learned_of_them_stays(place, clock):
    bandit, other = opened(place), opened(None)
    ids = play(bandit, clock)
    clock[0] -= 10 * DAY
    play(other, clock)
    before = bandit.state
    assert bandit.retain(days=3.5) == 6
    assert bandit.retain(days=3.5) == 0
    log = bandit.log()
    assert log["id"] == ids[6:]
    assert [None] * 4 != log["outcome"] == other.log()["outcome"][6:]
    assert equal(bandit.state, before)
    assert (bandit.summary().decisions, bandit.summary().removed) == (10, 6)
    goes_on(bandit, other)
    with pytest.raises(ValueError, match="older than what this ledger retains"):
        bandit.learn(ids[0], 1.0)
    if place is not None:
        bandit.close()
        for made in Path(place).glob("*.safetensors") if isinstance(place, Path) else ():
            made.unlink()  # its base is in the ledger
        bandit = opened(place)
        goes_on(bandit, other)
        bandit.close()


def test_all_can_go_and_it_goes_on(place, clock):
    bandit, other = opened(place), opened(None)
    play(bandit, clock, days=5)
    play(other, clock, days=5)
    clock[0] += DAY
    assert bandit.retain(days=0.5) == 5
    assert bandit.log()["id"] == []
    goes_on(bandit, other)
    clock[0] += DAY
    assert bandit.retain(0.5) == 5
    assert equal(bandit.state, other.state)


def test_room_is_given_back(tmp_path, clock):
    agent = es.EnsembleSampling(es.Linear(dim=8), members=2)
    about = {"agent": agent, "hasher": es.Hasher(8)}
    bandit, words = opened(tmp_path / "shop", **about), "x" * 200
    for n in range(300):
        clock[0] += DAY
        bandit.choose([{"a": f"{words}{n}{k}"} for k in range(4)], context={"b": f"{n}{words}"})
    file = tmp_path / "shop" / "ledger.sqlite"
    bandit.close()
    full, bandit = file.stat().st_size, opened(tmp_path / "shop", **about)
    with pytest.warns(UserWarning, match="290 decisions that go have no outcome yet"):
        assert bandit.retain(days=9.5) == 290
    bandit.close()
    assert file.stat().st_size < full / 3
    bandit = opened(tmp_path / "shop", **about)
    offers = bandit.log()["offer"]
    assert offers[0][3]["a"] == f"{words}2903"
    bandit.close()


def test_corrections_of_what_is_left_are_learned_after_decisions_went(place, clock):
    bandit, other = opened(place), opened(None)
    ids = play(bandit, clock)
    clock[0] -= 10 * DAY
    theirs = play(other, clock)
    bandit.retain(days=3.5)
    for n in (10, 11):
        for each, known in ((bandit, ids), (other, theirs)):
            made = each.choose(OFFERS[n])
            each.learn(made.id, 0.5)
            known.append(made.id)
    assert bandit.correct(ids[10], 4.0)
    assert other.correct(theirs[10], 4.0)
    assert equal(bandit.state, other.state)  # it is after the base
    assert bandit.correct(ids[8], -4.0)  # the base knows it: what it was stays known
    assert bandit.choose(OFFERS[30]).probabilities.sum() == pytest.approx(1.0)


def whose(n):
    return f"person-{n % 3}"


@pytest.mark.parametrize("keep", [False, True])
def test_a_subject_is_erased_from_everywhere(place, clock, tmp_path, keep):
    bandit, other = opened(place), opened(None)
    start = clock[0]
    ids = play(bandit, clock, 12, whose)
    clock[0] = start
    play(other, clock, 12, whose, (lambda n: True) if keep else (lambda n: n % 3 != 1))
    bandit.choose(OFFERS[50], subject="person-1")
    other.choose(OFFERS[50])
    assert bandit.erase("person-1", keep=keep) == 5
    assert bandit.erase("person-1") == 0
    log = bandit.log()
    rest = [n for n in range(12) if n % 3 != 1]
    assert log["id"] == [ids[n] for n in rest]
    assert log["outcome"] == [other.log()["outcome"][n] for n in rest]
    assert log["subject"] == [whose(n) for n in rest]
    assert log["offer"] == [OFFERS[n].astype(np.float32).tolist() for n in rest]
    assert equal(bandit.state, other.state)
    with pytest.raises(ValueError, match="was erased"):
        bandit.learn(ids[1], 3.0)
    bandit.backup(tmp_path / "copy")
    with es.Bandit.open(tmp_path / "copy", AGENT, normalise=False) as copy:
        assert copy.log() == log
        assert equal(copy.state, other.state)
    export(tmp_path / "copy", tmp_path / "log.csv")
    assert "person-1" not in (tmp_path / "log.csv").read_text()
    (record,) = bandit._ledger.ask_all("SELECT decisions, kept FROM erasures")
    assert tuple(record) == (5, int(keep))
    if place is not None:
        bandit.close()
        bandit = opened(place)
        assert equal(bandit.state, other.state)
    goes_on(bandit, other)


def test_nothing_that_was_said_of_them_is_left_in_the_file(tmp_path, clock):
    bandit = opened(tmp_path / "shop", None)
    for n in range(40):
        clock[0] += 1.0
        secret = f"secret-{n}" if n % 2 else f"open-{n}"
        offer = [{"word": f"{secret}-{k}"} for k in range(3)]
        about = {"where": f"{secret}-there"}
        made = bandit.choose(offer, context=about, subject="her" if n % 2 else None)
        bandit.learn(made.id, 123456.5 if n % 2 else 1.0)
    assert bandit.erase("her") == 20
    bandit.close()
    content = b"".join(path.read_bytes() for path in (tmp_path / "shop").rglob("*.sqlite*"))
    assert b"open-2-there" in content
    assert b"open-2-1" in content
    for word in (b"secret", b"123456.5", b'"her"'):
        assert word not in content
    with opened(tmp_path / "shop", None) as again:
        assert len(again.log()["id"]) == 20
        again.choose([{"word": "new"}, {"word": "newer"}], context={"where": "here"})


@pytest.mark.parametrize("offer", [OFFERS[0], [{"word": "tea", "price": 3}, {"word": "cake"}]])
def test_a_bandit_of_which_all_was_erased_begins_anew(offer):
    bandit = es.Bandit()
    for n in range(9):
        bandit.learn(bandit.choose(offer, subject="her").id, 5.0 + n)
    assert bandit.erase("her") == 9
    for n in range(5):
        made = bandit.choose(offer)
        assert made.probabilities.sum() == pytest.approx(1.0)
        assert n or np.ptp(made.probabilities) < 0.5
        bandit.learn(made.id, float(n))
    values = bandit.predict(offer).values
    assert values is not None
    assert np.isfinite(values.mean).all()
    assert bandit.summary().decisions == 14


def test_what_is_offered_to_others_as_well_stays(clock):
    bandit, offer = es.Bandit(), [{"word": "tea"}, {"word": "cake"}]
    for subject in ("her", "him", "her"):
        bandit.learn(bandit.choose(offer, subject=subject).id, 1.0)
    assert bandit.erase("her") == 2
    assert bandit.log()["offer"] == [offer]


def texts(bandit):
    """All that the table of items says."""
    return "".join(text for (text,) in bandit._ledger.ask_all("SELECT said FROM items") if text)


SAID = [{"word": "hers"}, {"word": "hers too"}]


@pytest.mark.parametrize("keep", [False, True])
def test_where_only_the_chosen_action_is_kept_it_is_erased_too(keep):
    bandit = es.Bandit(offers="chosen")
    for offer, subject in ((SAID, "her"), ([{"word": "his"}], "him"), ([{"word": "his"}], "her")):
        bandit.learn(bandit.choose(offer, subject=subject).id, 1.0)
    assert bandit.erase("her", keep=keep) == 2
    assert "hers" not in texts(bandit)
    assert bandit.log()["features"] == [{"word": "his"}]


def test_what_several_were_offered_goes_with_the_last_of_them():
    bandit = es.Bandit()
    for subject in ("her", "him", "her"):
        bandit.choose(SAID, subject=subject)
    bandit.choose([{"word": "open"}], subject="them")
    assert bandit.erase("her") == 2
    assert bandit.log()["offer"] == [SAID, [{"word": "open"}]]
    bandit.choose([{"word": "new"}], subject="her")
    assert bandit.erase("her") == 1  # who is erased again
    assert "new" not in texts(bandit)
    assert "hers" in texts(bandit)
    assert bandit.erase("him") == 1
    assert "hers" not in texts(bandit)
    assert bandit.log()["offer"] == [[{"word": "open"}]]
    bandit.choose(SAID)
    assert bandit.log()["offer"][-1] == SAID


def test_what_was_offered_before_retention_goes_with_who_is_left(place, clock):
    bandit = opened(place, None)
    for n in range(6):
        clock[0] += DAY
        bandit.learn(bandit.choose(SAID, subject=f"s{n}").id, 1.0)
    assert bandit.retain(days=1.5) == 4
    assert bandit.erase("s4", keep=True) == bandit.erase("s5", keep=True) == 1
    assert "hers" not in texts(bandit)
    assert bandit.log()["id"] == []
    bandit.close()


def test_where_all_decisions_go_so_does_the_last_offer(place, clock):
    bandit = opened(place, None)
    bandit.learn(bandit.choose(SAID).id, 1.0)
    bandit.learn(bandit.choose(SAID).id, 1.0)
    clock[0] += 2 * DAY
    assert bandit.retain(days=1) == 2
    assert "hers" not in texts(bandit)
    bandit.choose(SAID)
    clock[0] += DAY / 2
    bandit.choose(SAID)
    clock[0] += DAY * 0.75
    assert bandit.retain(days=1) == 1  # and the offer goes on
    bandit.choose(SAID[1:])
    assert bandit.log()["offer"] == [SAID, SAID[1:]]
    bandit.close()


def test_an_action_that_is_no_longer_offered_goes_and_those_that_came_with_it_stay(clock):
    bandit = es.Bandit()
    for offer in (SAID, SAID, SAID[1:]):
        clock[0] += DAY
        bandit.learn(bandit.choose(offer).id, 1.0)
    assert bandit.retain(days=0.5) == 2
    assert json.dumps("hers") not in texts(bandit)
    assert bandit.log()["offer"] == [SAID[1:]]


def test_what_was_decided_elsewhere_keeps_no_offer():
    bandit = es.Bandit()
    bandit.choose(SAID, subject="her")
    bandit.learn_from({"said": [{"word": "else"}], "y": [1.0]}, features="said", outcome="y")
    assert bandit.erase("her") == 1
    assert "hers" not in texts(bandit)
    assert bandit.log()["features"] == [{"word": "else"}]


def test_of_items_in_one_row_those_stay_that_others_were_offered():
    bandit = es.Bandit()
    both = [{"word": "hers"}, {"word": "of all"}]
    bandit.choose(both, subject="her")
    bandit.choose([{"word": "of all"}], subject="him")
    assert bandit.erase("her") == 1
    assert "hers" not in texts(bandit)
    assert bandit.log()["offer"] == [[{"word": "of all"}]]


def test_whoever_writes_while_traces_are_looked_for_is_seen(tmp_path, clock):
    """Another process uses an item after those in use were looked up."""
    one = Ledger(tmp_path / "shop", shared=True)
    other = Ledger(tmp_path / "shop", shared=True)
    words, free, shares = ['{"a":1}', '{"b":2}'], np.ones(1, bool), np.ones(1, np.float32)

    def choose(ledger, text, subject):
        offer = Offer([text], None, None, free)
        row = decided(ledger.decisions, 1e9, offer, 0, shares, subject)
        ledger.add_decisions([row])

    choose(one, words[0], "her")
    choose(one, words[1], "him")
    real = Retention.unused

    def late(self, going):
        found = real(self, going)
        if other.decisions == 2:
            choose(other, words[0], "them")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Retention, "unused", late)
        assert one.erase("her", None) == 1
    assert [row.description for row in other.all()] == [words[1], words[0]]
    one.close()
    other.close()


@pytest.mark.parametrize("method", ["remove_before", "rebase", "erase", "_erase_offers", "_set"])
def test_a_removal_that_fails_leaves_all_as_it_was(tmp_path, clock, monkeypatch, method):
    bandit = opened(tmp_path / "shop")
    play(bandit, clock, 9, whose)
    log, state, real = bandit.log(), bandit.state, getattr(Retention, method)

    def fails(*given):
        real(*given)
        raise OSError("no space left")

    monkeypatch.setattr(Retention, method, fails)
    erases, retains = method in ("erase", "_erase_offers"), method not in ("erase", "_erase_offers")
    if erases:
        with pytest.raises(OSError, match="no space left"):
            bandit.erase("person-1")
    if retains:
        with pytest.raises(OSError, match="no space left"):
            bandit.retain(days=4)
    monkeypatch.undo()
    assert bandit.log() == log
    assert equal(bandit.state, state)
    bandit.close()
    with opened(tmp_path / "shop") as again:
        assert again.log() == log
        assert equal(again.state, state)
        assert again.erase("person-1") == 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: b.retain(-1), "days must be"),
        (lambda b: b.retain("ten"), "days must be"),
        (lambda b: b.retain(float("nan")), "days must be"),
        (lambda b: b.erase(7), "subject must be text"),
        (lambda b: b.erase(""), "subject"),
        (lambda b: b.erase("a", keep="yes"), "keep must be"),
        (lambda b: b.choose(OFFERS[0], subject=7), "subject must be text"),
        (lambda b: b.choose(OFFERS[0], subject=""), "subject"),
        (lambda b: b.choose(OFFERS[0], subject="\udcff"), "subject"),
        (lambda b: b.choose_many(OFFERS[:2], subjects=["a"]), "2 decisions, but 1 entries"),
        (lambda b: b.choose_many(OFFERS[:1], subjects=[7]), "subject must be text"),
    ],
)
def test_bad_input_changes_nothing(call, says):
    bandit = opened(None)
    bandit.choose(OFFERS[0], subject="a")
    with pytest.raises((TypeError, ValueError), match=says):
        call(bandit)
    assert bandit.log()["subject"] == ["a"]
    assert bandit.erase("nobody") == 0


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_units_stay_those_of_the_base_live_and_after_opening(tmp_path, clock, keep, snapshot):
    # Outcomes and features that grow ask for other units at the 16th and 32nd outcome.
    folder = tmp_path / "shop"
    bandit = es.Bandit.open(folder)
    for n in range(40):
        clock[0] += DAY
        made = bandit.choose(OFFERS[n] * (1 + n), subject=whose(n))
        bandit.learn(made.id, float(n) ** 2)
        if n == 9:
            assert bandit.retain(days=4) > 0
        if n == 12:
            assert bandit.erase("person-2", keep=keep) > 0
        if n == 20 and snapshot:
            bandit.close()
            bandit = es.Bandit.open(folder)
    state = bandit.state
    bandit.close()
    with es.Bandit.open(folder) as again:
        assert equal(again.state, state)
        again._replica.forget(again._ledger)
    with es.Bandit.open(folder) as again:
        assert equal(again.state, state)


def test_many_go_in_parts(place, clock, monkeypatch):
    monkeypatch.setattr("ensemble_sampling.ledger.ledger.PART", 4)
    bandit, other = opened(place), opened(None)
    play(bandit, clock)
    clock[0] -= 10 * DAY
    play(other, clock)
    assert bandit._ledger.retain(clock[0] - 3.5 * DAY, bandit._base_states) == 4
    assert bandit.retain(days=3.5) == 2
    goes_on(bandit, other)
    bandit.close()


@pytest.mark.parametrize("where", ["disk", "postgres"])
def test_a_removal_is_done_although_its_room_cannot_be_given_back(
    where, tmp_path, clock, monkeypatch
):
    bandit = opened(new_place() if where == "postgres" else tmp_path / "shop")
    play(bandit, clock, 4, whose)

    def fails():
        raise OSError("the disk is busy")

    monkeypatch.setattr(bandit._ledger._database, "compact", fails)
    with pytest.warns(UserWarning, match="could not give back the room.*the disk is busy"):
        assert bandit.erase("person-1") == 1
    assert bandit.log()["subject"] == ["person-0", "person-2", "person-0"]
    bandit.close()


def test_room_is_given_back_only_where_something_went(tmp_path, clock, monkeypatch):
    with opened(tmp_path / "shop") as bandit:
        play(bandit, clock, 4, whose)
        monkeypatch.setattr(bandit._ledger._database, "compact", lambda: pytest.fail("compacted"))
        assert bandit.erase("nobody") == 0
        assert bandit.retain(days=30) == 0


def test_postgres_vacuums_every_table_that_lost_rows_however_long_it_takes(clock):
    bandit = opened(place := new_place())
    play(bandit, clock, 6, whose)
    bandit.observe(bandit.choose(OFFERS[0], subject="person-1").id, {"margin": 1.0})
    name = schema(place)
    before = bandit._ledger.ask("SELECT now()")
    clock[0] += DAY
    assert bandit.retain(days=1.5) > 0
    assert bandit._ledger.ask("SHOW statement_timeout") == "1min"
    query = "SELECT relname FROM pg_stat_all_tables WHERE schemaname = %s AND last_vacuum > %s"
    found: set[str] = set()
    gone = {"decisions", "outcomes", "offers", "items", "metrics", "bases", "blobs", "activations"}
    for _ in range(100):  # statistics come a little later
        found = {table for (table,) in admin(query, name, before) or ()}
        if gone <= found:
            break
        Event().wait(0.05)
    assert gone <= found
    bandit.close()


def test_a_service_says_what_went_without_outcome_and_what_a_base_goes_on_knowing(pair, clock):
    one, two = pair
    for n in range(6):
        clock[0] += DAY
        (made,) = one.choose(OFFERS[n].tolist(), subject=whose(n))
        if n != 1:
            one.learn((made.id, float(n)))
    one.step()
    assert not summarize(one.ledger).warnings
    one.configure({"retain": 2.5})
    one.step()
    (said,) = summarize(two.ledger).warnings
    assert "1 of 3 decisions that were removed had no outcome, and can have none any more" in said
    found = erase(one.replicas, whose(4), keep=False)
    assert (found.erased, found.known) == (1, 1)
    found = erase(one.replicas, whose(5), keep=True)
    assert (found.erased, found.known) == (1, 0)


LIFE = """
import itertools, os, sys
import numpy as np
sys.path[:0] = sys.argv[2:]
from test_retention import AGENT, OFFERS, opened
bandit = opened(sys.argv[1], snapshot_every=3)
for n in itertools.count(bandit._ledger.decisions):
    made = bandit.choose(OFFERS[n % 60], subject=f"s{n}")
    bandit.learn(made.id, float(n % 7))
    if n % 3 == 0:
        bandit.erase(f"s{n - 2}", keep=n % 2 == 0)
        os.write(1, f"erased {n - 2}\\n".encode())
    if n % 8 == 0:
        bandit.retain(days=0)
        os.write(1, f"removed {n}\\n".encode())
"""


def test_a_kill_at_any_moment_leaves_a_ledger_that_is_whole(tmp_path):
    folder, rng = tmp_path / "shop", np.random.default_rng(0)
    here = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    for life in range(4):
        command = [sys.executable, "-c", LIFE, str(folder), *here]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(2)]  # pyright: ignore
            time.sleep(rng.uniform(0.0, 0.5))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines()  # pyright: ignore
        said = [line.split() for line in lines if line.strip()]
        assert said, life
        with opened(folder) as bandit:
            log, state = bandit.log(), bandit.state
            erased = [int(n) for what, n in said if what == "erased"]
            removed = [int(n) for what, n in said if what == "removed"]
            assert not {f"s{n}" for n in erased} & set(log["subject"])
            numbers = [int(id.rpartition("-")[2]) for id in log["id"]]
            assert min(numbers, default=10**9) > max(removed, default=-1)
            bandit._replica.version = None
            bandit._replica._marks = []
            bandit._replica.forget(bandit._ledger)
            assert equal(bandit.state, state)  # replayed from its base


@pytest.fixture
def pair(tmp_path, clock):
    made = [Process(tmp_path / "shop", AGENT, normalise=False) for _ in range(2)]
    yield made
    for process in made:
        process.updater.close()
        process.replicas.close()


def test_a_service_removes_what_is_older_than_its_setting(pair, clock):
    one, two = pair
    for n in range(6):
        clock[0] += DAY
        (made,) = (one, two)[n % 2].choose(OFFERS[n].tolist(), subject=whose(n))
        one.learn((made.id, float(n)))
    for process in (one, two):
        process.step()
    one.configure({"retain": 2.5})
    one.step()
    assert len(one.ledger.table()["id"]) == 3
    known, state = one.known, one.main.version.state
    two.step()
    assert two.known == known
    (made,) = two.choose(OFFERS[0].tolist())
    two.learn((made.id, 1.0))
    for process in (one, two):
        process.step()
    assert one.known == two.known == (7, 0)
    assert not equal(one.main.version.state, state)
    third = Process(one.replicas.ledger.place, AGENT, normalise=False)
    assert third.ledger.table()["id"] == one.ledger.table()["id"]
    third.updater.close()
    third.replicas.close()


@pytest.mark.parametrize("keep", [False, True])
def test_a_service_erases_a_subject_and_all_processes_forget(pair, clock, keep):
    one, two = pair
    for n in range(9):
        clock[0] += 1.0
        (made,) = one.choose(OFFERS[n].tolist(), subject=whose(n), event=f"e{n}")
        one.learn((made.id, float(n)))
    for process in (one, two):
        process.step()
    before = one.main.version.state
    assert two.erase("person-2", keep).erased == 3
    assert two.erase("person-2", keep).erased == 0
    for _ in range(2):
        for process in (one, two):
            process.step()
    assert equal(one.main.version.state, two.main.version.state)
    assert equal(one.main.version.state, before) == keep
    assert one.ledger.table()["subject"].count("person-2") == 0
    with pytest.raises(Refused):
        one.learn(("e2", 1.0))
    (made,) = one.choose(OFFERS[2].tolist(), event="e2")
    assert not made.again
