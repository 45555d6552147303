"""An interrupt (Ctrl-C, a timeout's exception) at any moment leaves a bandit that works."""

import contextlib
import gc
import itertools
import random
import shutil
import signal
import sys
import threading
import time

import numpy as np
import pytest
from servers import new_place
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide import bandit as bandits
from ensemble_sampling.decide import summary
from ensemble_sampling.decide.summary import summarize
from ensemble_sampling.fast import memory
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger import (
    backup,
    ledger,
    locks,
    offers,
    opening,
    postgres,
    reading,
    schema,
    settings,
    sqlite,
    transactions,
)
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, Opinion, OutcomeRow, RevisionRow

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFER = np.random.default_rng(0).normal(size=(5, 2))
OURS = (
    ledger,
    transactions,
    settings,
    sqlite,
    postgres,
    schema,
    reading,
    offers,
    backup,
    opening,
    memory,
    summary,
)
TRACED = {module.__file__ for module in (*OURS, contextlib)}
CLOSING = {module.__file__ for module in (bandits, ledger, transactions, sqlite, locks)}


PLACES = ["memory", "disk", "postgres"]

BEFORE = 100  # steps, at most, that come before anything is closed


def interrupt_at(step, call, traced=TRACED):
    """Interrupt a call at its nth step inside the ledger; False if it has fewer."""
    seen, former = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename not in traced:
            return None
        frame.f_trace_opcodes = True
        seen += event == "opcode"
        if seen == step:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(former)
    return False


def place(folder, where):
    """Of a ledger that is not there yet."""
    if where == "postgres":
        return new_place()
    return None if where == "memory" else folder / "shop"


def rows_of(number):
    return np.array([[number // 2, 1.0], [number, 0.5]], np.float32)


def decided(number):
    """A decision whose offer is now and then that of the one before."""
    features = np.array([number, 0.5], np.float32)
    shares = np.array([0.25, 0.75], np.float32)
    offer = Offer(rows_of(number), None, ["a", "b"], np.array([number % 3 > 0, True]))
    return DecisionRow(number, 1e9 + number, 1, "b", features, shares, offer=offer)


def opinions(numbers):
    return [Opinion(number, 0, number % 2, 0.5, 0.75) for number in numbers]


def outcome(book, number):
    found = book.find([number]).get(number)
    assert found is not None
    return found.outcome


def observed(number):
    return OutcomeRow(number, float(number), float(number))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("where", PLACES)
def test_interrupted_at_any_step_a_write_is_whole_or_absent(tmp_path, where, rows):
    book = Ledger(place(tmp_path, where))
    stride = {"memory": 1, "disk": 5, "postgres": 11}[where]  # a disk is slow
    for step in range(1, 10_000, stride):
        book.check()
        first = book.decisions
        numbers = range(first, first + rows)
        cut = interrupt_at(
            step, lambda n=numbers: book.add_decisions([decided(i) for i in n], opinions(n))
        )
        book.check()
        assert book.decisions in ((first, first + rows) if cut else (first + rows,))
        left = range(book.decisions, first + rows)
        book.add_decisions([decided(i) for i in left], opinions(left))
        learned = book.outcomes
        again = interrupt_at(step, lambda n=numbers: book.add_outcomes([observed(i) for i in n]))
        book.check()
        assert book.outcomes in ((learned, learned + rows) if again else (learned + rows,))
        if book.outcomes == learned:
            assert outcome(book, first) is None
            book.add_outcomes([observed(i) for i in numbers])
        assert outcome(book, first) == first
        revised = book.revisions
        new = RevisionRow(first, -1.0, -1.0, -1.0, "ref")
        late = interrupt_at(step, lambda row=new: book.add_outcomes([], [row]))
        assert book.revisions in ((revised, revised + 1) if late else (revised + 1,))
        if book.revisions == revised:
            book.add_outcomes([], [new])
        if not cut and not again and not late:
            break
    else:
        raise AssertionError("a write never got through")
    assert step > 100
    table = book.table()  # checks that no row is missing
    assert table["first"] == [float(number) for number in range(book.decisions)]
    assert table["outcome"] == [
        float(number) if number % rows else -1.0 for number in range(book.decisions)
    ]
    assert table["offer"] == [rows_of(n).tolist() for n in range(book.decisions)]
    assert table["available"] == [[n % 3 > 0, True] for n in range(book.decisions)]
    assert [said.decision for said in book.opinions(0)] == list(range(book.decisions))
    assert [row.number for row in book.learned(after=0)] == list(range(book.decisions))
    book.close()


def test_a_reading_interrupted_at_any_step_writes_what_was_waiting_just_once():
    """In memory rows are written when something is read."""
    book, step, cut = Ledger(None), 0, True
    while cut:
        step, first = step + 1, book.decisions
        book.add_decisions([decided(first), decided(first + 1)])
        cut = interrupt_at(step, lambda: book.find([10**6]))
        assert book.ask("SELECT count(*) FROM decisions") == first + 2
    assert step > 50
    assert len(book.table()["id"]) == book.decisions == 2 * step


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_interrupted_readings_and_backups_leave_the_ledger_as_it_was(tmp_path, where):
    book = Ledger(None if where == "memory" else tmp_path / "shop")
    book.add_decisions([decided(number) for number in range(3)])
    book.add_outcomes([observed(0), observed(2)], [RevisionRow(0, 5.0, 5.0)])
    before = book.table()
    for step in (*range(1, 200, 7), *range(200, 10**6, 61)):
        target = tmp_path / f"backup-{step}"
        calls = [lambda to=target: book.backup(to), lambda: summarize(book), book.table]
        cut = [interrupt_at(step, call) for call in calls]
        book.check()
        assert book.table() == before
        book.add_decisions([])
        if target.exists():  # whole, if it is there at all
            copy = Ledger(target, write=False)
            assert copy.table() == before
            copy.close()
            shutil.rmtree(target)
        if not any(cut):
            break
    book.add_decisions([decided(3)])
    assert book.pending(before=1e12) == [1, 3]
    book.close()


def open_again(opening, former, step):
    """Open what was being closed when it was interrupted: at once, or, if that was before it had
    begun, after closing it again."""
    try:
        return opening()
    except OSError as error:
        said = str(error)
    assert step < BEFORE
    assert "this process has it open already" in said
    assert "call its close() first" in said
    former.close()
    return opening()


@pytest.mark.parametrize(("shared", "stride"), [(False, 7), (True, 16)])  # a disk is slow
def test_interrupted_at_any_step_a_closing_leaves_a_folder_that_can_be_opened(
    tmp_path, shared, stride
):
    def opening():
        return Ledger(tmp_path, shared=shared)

    beside, step, number = opening() if shared else None, 0, 0
    for step in range(1, 5000, stride):
        book = opening()
        number = book.decisions
        book.add_decisions([decided(number)])
        cut = interrupt_at(step, book.close, CLOSING)
        after = open_again(opening, book, step)
        book.close()  # harmless to the one that is open now
        assert after.decisions == number + 1
        after.add_outcomes([observed(number)])
        after.close()
        if beside is not None:
            assert beside.outcomes == number + 1
        if not cut:
            break
    assert step > 2 * BEFORE
    if beside is not None:
        beside.close()
    with contextlib.closing(Ledger(tmp_path)) as book:  # nothing is held any more
        assert book.outcomes == book.decisions == number + 1


def test_interrupted_at_any_step_a_closing_keeps_no_other_thread_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT", 0.2)
    found = []

    def elsewhere():
        with contextlib.closing(Ledger(tmp_path / "other", shared=True)) as book:
            found.append(book.decisions)

    for step in itertools.count(1, 7):
        book = Ledger(tmp_path / "shop", shared=True)
        cut = interrupt_at(step, book.close, CLOSING)
        book.close()
        thread = threading.Thread(target=elsewhere, daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), step
        if not cut:
            break
    assert set(found) == {0}
    assert len(found) > 30


def test_interrupted_at_the_end_of_a_with_a_bandit_can_be_opened_again(tmp_path):
    def opening():
        return es.Bandit.open(tmp_path, AGENT)

    step = 0
    for step in range(1, 5000, 25):
        bandit = opening()
        cut = interrupt_at(step, lambda each=bandit: each.__exit__(None, None, None), CLOSING)
        with open_again(opening, bandit, step) as after:
            after.learn(after.choose(OFFER).id, 1.0)
        bandit.close()
        with pytest.raises(ValueError, match="closed"):
            bandit.choose(OFFER)
        if not cut:
            break
    assert step > 100


def test_a_bandit_that_nobody_has_any_more_lets_its_folder_go(tmp_path):
    es.Bandit.open(tmp_path, AGENT).choose(OFFER)
    gc.collect()
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert len(bandit.log()["id"]) == 1


class Alarm:
    """Raises KeyboardInterrupt in a call, so many seconds after it began."""

    def __init__(self):
        self.armed = False

    def __call__(self, *_):
        if self.armed:
            raise KeyboardInterrupt

    def during(self, delay, call):
        """What the call gave, or None."""
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, delay)
            given = call()
            self.armed = False
            return given
        except KeyboardInterrupt:
            return None
        finally:
            self.armed = False


@pytest.fixture
def alarm():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")
    alarm = Alarm()
    former = signal.signal(signal.SIGALRM, alarm)
    yield alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in JAX's own
@pytest.mark.parametrize("where", PLACES)
def test_interrupts_at_random_moments_never_wedge_a_bandit(tmp_path, alarm, where):
    home = place(tmp_path, where)
    bandit = es.Bandit(AGENT) if home is None else es.Bandit.open(home, AGENT)
    dice, known = random.Random(0), {}
    for _ in range(20):  # compiled, and past the first rescalings
        known[bandit.choose(OFFER).id] = None
    began = time.perf_counter()
    for id in known:
        bandit.learn(id, 1.0)
        known[id] = 1.0
    usual = (time.perf_counter() - began) / len(known)
    for number in range(100 if where == "postgres" else 300):
        value, most = float(number), usual * dice.choice([0.1, 1.5])
        chosen = alarm.during(dice.uniform(1e-6, most), lambda: bandit.choose(OFFER))
        if chosen is not None:
            assert chosen.id not in known
            known[chosen.id] = None
        decision = bandit.choose(OFFER)  # works, whatever happened
        assert decision.id not in known
        known[decision.id] = value
        alarm.during(dice.uniform(1e-6, most), lambda i=decision.id, y=value: bandit.learn(i, y))
        bandit.learn(decision.id, value)
    log, state = bandit.log(), bandit.state
    assert len(set(log["id"])) == len(log["id"])
    recorded = dict(zip(log["id"], log["outcome"], strict=True))
    assert all(recorded[id] == outcome for id, outcome in known.items())
    assert all(recorded[id] is None for id in recorded.keys() - known.keys())
    bandit._replica.version = None
    assert equal(bandit.state, state)  # replay agrees
    bandit.close()
