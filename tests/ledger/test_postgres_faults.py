"""On PostgreSQL, connections that are lost, and interrupts, at every point between statements."""

import itertools
from contextlib import closing, suppress

import numpy as np
import pytest
from servers import admin, lose, new_place, schema
from states import equal

import ensemble_sampling as es
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow, RevisionRow
from ensemble_sampling.ledger.postgres import Postgres
from ensemble_sampling.ledger.rows import decision_row
from ensemble_sampling.ledger.schema import INSERT, seal
from ensemble_sampling.serve.types import Refused

psycopg = pytest.importorskip("psycopg")
AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFER = np.random.default_rng(0).normal(size=(3, 2))


@pytest.fixture
def place():
    return new_place()


@pytest.fixture
def ledger(place):
    with closing(Ledger(place, shared=True)) as found:
        found.add_decisions([decided(0)])
        yield found


@pytest.fixture
def database(place):
    Ledger(place).close()
    with closing(Postgres(place)) as found:
        found.open()
        yield found


def decided(number):
    features = np.array([number, 0.5], np.float32)
    return DecisionRow(number, 1e9 + number, 1, None, features, np.array([0.25, 0.75], np.float32))


class Faults:
    """Does something to a connection at the nth time that a call waits for the server."""

    def __init__(self, monkeypatch, place):
        self._wait, self._place = psycopg.Connection.wait, place
        self._left = 0
        monkeypatch.setattr(psycopg.Connection, "wait", lambda *given: self._waiting(*given))

    def _waiting(self, connection, *given):
        self._left -= 1
        if self._left != 0:
            return self._wait(connection, *given)
        if self._kind == "lost":
            lose(self._place)
        if self._kind == "interrupt first":
            raise KeyboardInterrupt
        found = self._wait(connection, *given)
        if self._kind == "answer lost":
            lose(self._place)
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if self._kind == "interrupt":
            raise KeyboardInterrupt
        return found

    def at(self, nth, kind, call):
        """(whether it came to that, whether the call failed by it)."""
        self._left, self._kind, failed = nth, kind, False
        try:
            call()
        except (OSError, KeyboardInterrupt):
            failed = True
        except Refused:
            pass
        reached, self._left = self._left <= 0, 0
        return reached, failed


KINDS = ["lost", "answer lost", "interrupt", "interrupt first"]


def refused(ledger):
    """As an `add` that is refused after some of it was written."""
    with ledger.turn():
        ledger.set("refused", True)
        ledger.add_decisions([decided(ledger.decisions)])
        ledger.set("refused", True)
        raise Refused("conflict", "no")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_ledger_goes_on_whenever_its_connection_is_lost(place, shared, kind, monkeypatch):
    faults, nth = Faults(monkeypatch, place), 0
    with closing(Ledger(place, shared=shared)) as ledger:
        for nth in itertools.count(1):
            first, learned, revised = ledger.decisions, ledger.outcomes, ledger.revisions

            def write(first=first):
                with ledger.turn():
                    ledger.add_decisions([decided(first), decided(first + 1)])
                    ledger.set("last", first)

            calls = {
                "refused": lambda: refused(ledger),
                "write": write,
                "observe": lambda n=first: ledger.add_outcomes([OutcomeRow(n, 1.0, 1.0)]),
                "revise": lambda n=first: ledger.add_outcomes([], [RevisionRow(n, 2.0, 2.0)]),
                "store": lambda n=first: ledger.store("x", b"%d" % n, durable=False),
                "read": ledger.table,
            }
            cut = {}
            for name, call in calls.items():
                cut[name], failed = faults.at(nth, kind, call)
                assert "interrupt" not in kind or failed == cut[name]  # none is swallowed
                if failed:
                    call_again(name, call, ledger, (first, learned, revised))
            assert ledger.setting("last") == first
            assert ledger.setting("refused") is None
            assert ledger.stored("x") == b"%d" % first
            found = ledger.decisions, ledger.outcomes, ledger.revisions
            assert found == (first + 2, learned + 1, revised + 1)
            if not any(cut.values()):
                break
        assert nth > 4
        assert ledger.table()["outcome"] == [2.0, None] * nth


@pytest.mark.parametrize("kind", ["lost", "answer lost"])
@pytest.mark.filterwarnings("ignore:1 decisions that go have no outcome yet")
@pytest.mark.parametrize(
    "remove", [lambda b: b.retain(0), lambda b: b.erase("her")], ids=["retain", "erase"]
)
def test_a_removal_is_whole_whenever_its_connection_is_lost(place, remove, kind, monkeypatch):
    faults, nth = Faults(monkeypatch, place), 0
    with es.Bandit.open(place, AGENT) as bandit:
        for nth in itertools.count(1):
            for subject in ("her", "her", None):
                bandit.learn(bandit.choose(OFFER, subject=subject).id, float(nth))
            bandit.choose(OFFER, subject="her")
            before, state = bandit.log(), bandit.state
            reached, failed = faults.at(nth, kind, lambda: remove(bandit))
            if failed and "her" in bandit.log()["subject"]:
                assert bandit.log() == before
                assert equal(bandit.state, state)
                remove(bandit)
            assert "her" not in bandit.log()["subject"]
            if not reached:
                break
        assert nth > 10
        state = bandit.state
        bandit._replica.forget(bandit._ledger)
    with es.Bandit.open(place, AGENT) as bandit:
        assert equal(bandit.state, state)


def call_again(name, call, ledger, before):
    """What failed is there or not, and is not to be doubled."""
    place = {"write": 0, "observe": 1, "revise": 2}.get(name)
    now = (ledger.decisions, ledger.outcomes, ledger.revisions)
    if place is None or now[place] == before[place]:
        with suppress(Refused):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bandit_goes_on_whenever_its_connection_is_lost(place, kind, monkeypatch):
    faults, known, nth = Faults(monkeypatch, place), {}, 0
    with es.Bandit.open(place, AGENT) as bandit:
        bandit.learn(bandit.choose(OFFER).id, 0.0)
        known |= dict.fromkeys(bandit.log()["id"], 0.0)
        for nth in itertools.count(1):
            cut, chosen = [], bandit.choose(OFFER).id
            with pytest.raises(ValueError, match="has the outcome"):
                bandit.learn(next(iter(known)), 77.0)
            for call in (
                lambda: bandit.choose(OFFER),
                lambda id=chosen: bandit.learn(id, 1.0),
                lambda id=chosen: bandit.correct(id, 2.0),
                lambda id=chosen: bandit.add(id, 3.0, ref="order"),
            ):
                reached, failed = faults.at(nth, kind, call)
                cut.append(reached)
                if failed:
                    call()
            known[chosen] = 5.0
            if not any(cut):
                break
        assert nth > 4
        log, state = bandit.log(), bandit.state
        assert len(set(log["id"])) == len(log["id"]) <= 3 * nth + 1
        recorded = dict(zip(log["id"], log["outcome"], strict=True))
        assert {id: y for id, y in recorded.items() if y is not None} == known
        bandit._replica.version = None
        assert equal(bandit.state, state)  # replay agrees


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_is_created_whole_or_not_at_all(kind, monkeypatch):
    """Nothing that is done under the lock of an opening is done by a connection without it: it
    fails, up to the point where the lock is given back."""
    cut = []
    for nth in itertools.count(1, 3):
        place = new_place()
        with monkeypatch.context() as patch:
            faults = Faults(patch, place)
            reached, failed = faults.at(nth, kind, lambda place=place: Ledger(place).close())
            cut.append(failed)
        with closing(Ledger(place)) as ledger:
            ledger.add_decisions([decided(0)])
            assert len(ledger.table()["id"]) == 1
        if not reached:
            break
    assert "interrupt" in kind or cut == sorted(cut, reverse=True)
    assert sum(cut) > 5


def test_after_a_lost_connection_nothing_is_done_outside_of_its_transaction(ledger, place):
    ledger.set("x", "before")

    def turn():
        with ledger.turn():
            ledger.set("x", "first")
            lose(place)
            for _ in range(3):
                with pytest.raises(OSError, match="connection"):
                    ledger.set("x", "outside")

    with pytest.raises(OSError, match="nothing was recorded"):
        turn()
    assert ledger.setting("x") == "before"


def test_after_an_interrupt_that_somebody_caught_the_rest_of_a_turn_fails(
    ledger, place, monkeypatch
):
    faults = Faults(monkeypatch, place)

    def turn():
        with ledger.turn():
            ledger.set("x", "first")
            assert faults.at(1, "interrupt", lambda: ledger.set("x", "second")) == (True, True)
            with pytest.raises(OSError, match="connection was lost"):
                ledger.set("x", "third")

    with pytest.raises(OSError, match="nothing was recorded"):
        turn()
    assert ledger.setting("x") is None


def test_a_transaction_of_a_lost_connection_fails_until_it_is_rolled_back(database, place):
    database.begin()
    database.store("x", b"1", durable=True)
    lose(place)
    for call in (lambda: database.store("x", b"2", durable=True), database.commit):
        with pytest.raises(psycopg.OperationalError):
            call()
        assert database.in_transaction
    database.rollback()
    assert database.stored("x") is None
    database.store("x", b"3", durable=True)
    assert database.stored("x") == b"3"


def test_what_another_wrote_while_the_connection_was_lost_is_known(place):
    with closing(Ledger(place)) as ledger:
        ledger.add_decisions([decided(0)])
        lose(place)
        with closing(Ledger(place)) as other:
            other.add_decisions([decided(1)])
        assert ledger.stored("x") is None  # by a new connection
        assert ledger.decisions == 2
        ledger.add_decisions([decided(2)])
        assert len(ledger.table()["id"]) == 3


def test_a_commit_that_rolls_back_is_an_error(ledger):
    def turn():
        with ledger.turn():
            ledger.set("x", 1)
            with suppress(psycopg.Error):
                ledger._database.execute("SELECT 1 / 0")

    with pytest.raises(OSError, match="a part of it had failed; nothing was recorded"):
        turn()
    assert ledger.setting("x") is None


def test_rows_that_are_refused_at_the_end_of_a_turn_say_why(ledger):
    row = seal("decisions", decision_row(decided(0), None, None, ledger.dtype))

    def turn():
        with ledger.turn():
            ledger.set("x", 1)
            ledger._database.executemany(INSERT["decisions"], [row])
            ledger.add_decisions([decided(1)])
            ledger.add_outcomes([OutcomeRow(0, 1.0, 1.0)])

    with pytest.raises(OSError, match=r"(?s)duplicate key .*; nothing was recorded"):
        turn()
    assert ledger.setting("x") is None
    ledger.add_decisions([decided(1)])
    assert [row.number for row in ledger.all()] == [0, 1]


def test_what_the_driver_has_prepared_is_of_one_connection(ledger, place):
    """It prepares what is asked often, and forgets all of that after a refusal."""
    for number in range(1, 4):
        lose(place)
        for _ in range(7):
            ledger.set("x", number)
            ledger.add_decisions([decided(ledger.decisions)])
        renewals = ledger._database.counts.renewals
        with pytest.raises(Refused):
            refused(ledger)
        ledger.add_decisions([decided(ledger.decisions)])
        assert ledger.setting("x") == number
        assert ledger._database.counts.renewals == renewals  # a refusal costs no connection
        assert len(ledger.table()["id"]) == 8 * number + 1


def test_after_a_write_that_the_server_refuses_a_bandit_writes_again(place):
    table = f'"{schema(place)}".decisions'
    with es.Bandit.open(place, AGENT) as bandit:
        for number in range(1, 4):
            for _ in range(7):
                id = bandit.choose(OFFER).id
                bandit.learn(id, 1.0)
                bandit.add(id, 1.0, ref="order")
            admin(f"ALTER TABLE {table} ADD CONSTRAINT until CHECK (number < {8 * number - 1})")
            with pytest.raises(OSError, match=r"(?s)violates check .*; nothing was recorded"):
                bandit.choose(OFFER)
            admin(f"ALTER TABLE {table} DROP CONSTRAINT until")
            bandit.choose(OFFER)
            assert len(bandit.log()["id"]) == 8 * number
            assert bandit.log()["outcome"] == ([2.0] * 7 + [None]) * number


def test_a_transaction_that_nobody_knows_of_is_left_behind(database):
    """An interrupt may come between what the server did and what was noted of it."""
    database._connection.execute("BEGIN")
    database._connection.execute("INSERT INTO blobs VALUES ('x', 1, '')")
    database.store("y", b"1", durable=True)
    assert (database.stored("x"), database.stored("y")) == (None, b"1")


def test_many_rows_at_once(place):
    with closing(Ledger(place)) as ledger:
        ledger.add_decisions([decided(number) for number in range(10_000)])
        assert ledger.ask("SELECT count(*) FROM decisions") == 10_000


def test_who_waits_too_long_for_a_turn_is_told_and_goes_on(ledger, place):
    hasty = place.replace("#", "&options=-c%20lock_timeout%3D100ms#")
    with closing(Ledger(hasty, shared=True)) as other:
        for _ in range(7):  # also with statements that the driver has prepared
            with ledger.turn(), pytest.raises(OSError, match="lock timeout"):
                other.set("x", 1)
            other.set("x", 2)
        assert ledger.setting("x") == 2
