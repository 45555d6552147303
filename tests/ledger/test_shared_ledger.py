"""Several processes write to one ledger in turns: nothing is lost, doubled or half-written."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from servers import new_place

from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger import locks, schema
from ensemble_sampling.ledger.ledger import (
    DecisionRow,
    Event,
    Ledger,
    Opinion,
    OutcomeRow,
    RevisionRow,
)
from ensemble_sampling.ledger.sqlite import Sqlite, as_place


@pytest.fixture(params=["folder", "postgres"])
def place(request, tmp_path):
    """Where a ledger can be shared."""
    return tmp_path / "shop" if request.param == "folder" else new_place()


def offer_of(number, actions=3):
    table = np.arange(2 * actions, dtype=np.float32).reshape(actions, 2) + number // 3
    return Offer(table, None, [f"a{k}" for k in range(actions)], np.ones(actions, bool))


def decided(number, made=1e9):
    offer = offer_of(number)
    shares = np.array([0.25, 0.25, 0.5], np.float32)
    return DecisionRow(number, made + number, 2, "a2", offer.actions[2], shares, offer=offer)


def decide(ledger, count=1, **more):
    """So many decisions in one turn; their numbers."""
    with ledger.turn():
        numbers = range(ledger.decisions, ledger.decisions + count)
        ledger.add_decisions([decided(n) for n in numbers], **more)
    return list(numbers)


def observed(number):
    return OutcomeRow(number, float(number), float(number))


def shared(word):
    """A ledger by its place as the command line of a process has it."""
    return Ledger(as_place(word), shared=True)


def opinion_of(number):
    return Opinion(number, 0, number % 3, 0.5, 0.5)


def outcome(ledger, number):
    return ledger.find([number])[number].outcome


def process(code, *words):
    """Another process, which imports this module and runs code."""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{start}from test_shared_ledger import *\n{code}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([*command, *map(str, words)], **pipes)


def test_what_one_wrote_the_other_sees_and_goes_on_from(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        assert decide(one, 2) == [0, 1]
        assert other.decisions == 2
        assert decide(other, 3) == [2, 3, 4]
        assert outcome(one, 0) is None  # also by heart
        other.add_outcomes([observed(0), observed(3)])
        assert outcome(one, 0) == 0.0
        assert outcome(one, 3) == 3.0
        assert one.find([0, 1, 4, 9]).keys() == {0, 1, 4}
        assert [row.number for row in one.learned(after=0)] == [0, 3]
        assert one.pending(before=1e12) == other.pending(before=1e12) == [1, 2, 4]
        assert one.number(other.decision_id(4)) == 4
        assert one.table() == other.table()
        rows = [offer_of(n).actions.tolist() for n in range(5)]
        assert one.table()["offer"] == rows
        assert one.ask("SELECT count(*) FROM offers") == 2  # that of decision 0 is that of 1 and 2


def everything_but(ledger, error):
    """All that can be written, in a turn that then fails."""
    with ledger.turn():
        ledger.add_decisions([decided(2)], events=[Event("e", "", 2)])
        ledger.add_outcomes([observed(0)])
        ledger.describe({"agent": 1})
        ledger.add_shadow("s", {})
        ledger.keep("chosen")
        ledger.set("mode", "online")
        ledger.activate(1)
        assert ledger.decisions == 3
        assert outcome(ledger, 0) == 0.0
        raise error


def test_everything_in_a_turn_is_there_or_nothing(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        decide(one, 2)
        for error in (ValueError, KeyboardInterrupt, GeneratorExit):
            with pytest.raises(error):
                everything_but(one, error)
            for ledger in (one, other):
                assert ledger.decisions == 2
                assert ledger.find([2]) == {}
                assert outcome(ledger, 0) is None
                assert ledger.description is ledger.setting("mode") is None
                assert list(ledger.shadows()) == ledger.events("e") == []
                assert ledger.keeps == "all"
        with one.turn():
            one.add_decisions([decided(2)], events=[Event("e", "", 2)])
            one.add_outcomes([observed(2)])
        assert outcome(other, 2) == 2.0
        assert other.table()["offer"][2] == offer_of(2).actions.tolist()
        assert decide(other) == [3]


def swallows_an_error(ledger):
    with ledger.turn():
        ledger.add_outcomes([observed(1)])
        with pytest.raises(OSError, match="nothing was recorded"):
            ledger.add_outcomes([observed(0)])  # it has one
        with pytest.raises(OSError, match="nothing of this turn"):
            ledger.add_outcomes([observed(1)])


def fails_at_its_end(ledger):
    """PostgreSQL is told all of a turn at once."""
    with ledger.turn():
        ledger.add_outcomes([observed(1)])
        ledger.add_outcomes([observed(0)])  # it has one


def test_a_turn_that_failed_in_part_fails_as_a_whole(place):
    with closing(Ledger(place, shared=True)) as ledger:
        decide(ledger, 2)
        ledger.add_outcomes([observed(0)])
        if isinstance(place, Path):
            with pytest.raises(OSError, match="nothing of this turn was recorded"):
                swallows_an_error(ledger)
        else:
            with pytest.raises(OSError, match="nothing was recorded"):
                fails_at_its_end(ledger)
        assert ledger.outcomes == 1
        assert [row.number for row in ledger.learned(after=0)] == [0]
        with pytest.raises(OSError, match="nothing was recorded"):
            ledger.add_outcomes([observed(0)])
        ledger.add_outcomes([observed(1)])
        assert ledger.outcomes == 2


def test_a_reading_turn_sees_one_state_and_writes_nothing(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        decide(one, 2)
        with one.turn(write=False):
            decide(other, 2)
            assert one.decisions == 2
            assert len(one.table()["id"]) == one.ask("SELECT count(*) FROM decisions") == 2
            with pytest.raises(RuntimeError, match="a turn that only reads"):
                one.add_outcomes([observed(0)])
            with pytest.raises(RuntimeError, match="a turn that only reads"), one.turn():
                pass
        assert one.decisions == 4
        rows = one.learned(after=0)
        one.add_outcomes([observed(n) for n in range(4)])
        next(rows)
        with pytest.raises(RuntimeError, match="before a reading has come to its end"):
            decide(one)
        del rows
        assert decide(one) == [4]


def test_turns_work_in_exclusive_ledgers_and_in_memory(tmp_path):
    for where in (None, tmp_path):
        with closing(Ledger(where)) as ledger:
            decide(ledger, 2)
            with pytest.raises(ZeroDivisionError):
                everything_but(ledger, ZeroDivisionError)
            assert (ledger.decisions, ledger.outcomes, ledger.keeps) == (2, 0, "all")
            assert decide(ledger, 2) == [2, 3]
            with ledger.turn(write=False):
                assert len(ledger.table()["id"]) == 4


def test_events_are_found_again(place):
    events = [Event("e", "", 0), Event("page", "top", 1, True), Event("page", "side", 2)]
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        decide(one, 3, events=events)
        assert other.events("page") == events[1:]
        assert other.events("nothing") == []
        found = other.find_events([("e", ""), ("page", "side"), ("page", ""), ("x", "")])
        assert found == {("e", ""): events[0], ("page", "side"): events[2]}
        many = [(f"no {n}", "") for n in range(1000)]
        assert other.find_events([*many, ("e", "")]) == {("e", ""): events[0]}
        with pytest.raises(OSError, match="nothing was recorded"):
            decide(other, 1, events=[Event("e", "", 3)])
        assert other.decisions == 3
    with closing(Ledger(place, write=False)) as reader:
        assert reader.events("e") == events[:1]


def test_deferred_decisions_wait_to_be_activated(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        decide(one, 4, events=[Event("a", "", 1, True), Event("b", "", 2, True)])
        assert one.pending(before=1e12) == [0, 3]
        assert other.activate(2)
        assert not one.activate(2)
        assert one.pending(before=1e12) == other.pending(before=1e12) == [0, 2, 3]
        assert one.pending(before=1e9 + 2) == [0, 2]
        other.add_outcomes([observed(0), observed(1)])
        decide(other, 1)
        assert one.pending(before=1e12) == other.pending(before=1e12) == [2, 3, 4]
    with closing(Ledger(place, write=False)) as reader:
        assert reader.pending(before=1e12) == [2, 3, 4]


def test_what_is_pending_is_not_looked_for_in_all_of_history(tmp_path):
    with closing(Ledger(tmp_path)) as ledger:
        decide(ledger, 1000)
        ledger.add_outcomes([observed(n) for n in range(990)])
        assert ledger.pending(before=1e12) == list(range(990, 1000))
        steps = 0

        def step():
            nonlocal steps
            steps += 1

        assert isinstance(ledger._database, Sqlite)
        ledger._database.connection.set_progress_handler(step, 10)  # instructions of SQLite's
        for n in range(990, 995):
            ledger.add_outcomes([observed(n)])
            decide(ledger)
            assert len(ledger.pending(before=1e12)) == 10
        assert steps < 200


def test_one_holds_the_lease_until_it_ends(place, monkeypatch):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        assert one.holder() is None
        assert one.lease("a", 60)
        assert not other.lease("b", 60)
        assert other.lease("b", 60, name="another")
        assert one.lease("a", 0.05)
        assert other.holder() == "a"
        time.sleep(0.1)
        assert other.holder() is None
        assert other.lease("b", 60)
        one.release("a")  # is not its own any more
        assert one.holder() == "b"
        other.release("b")
        assert one.holder() is None
        with one.turn():
            assert one.lease("a", 60)


def test_settings_are_kept(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        assert one.setting("service") is None
        one.set("service", {"wait": 3.5})
        assert other.setting("service") == {"wait": 3.5}
        other.set("service", ["ä", None])
        assert one.setting("service") == ["ä", None]
    with closing(Ledger(place)) as ledger:
        assert ledger.setting("service") == ["ä", None]


def test_bytes_are_stored_whole_and_their_version_changes(place):
    with closing(Ledger(place, shared=True)) as one, closing(Ledger(place, shared=True)) as other:
        assert one.stored("x.bin") is one.stored_version("x.bin") is None
        versions = []
        for n in range(4):
            one.store("x.bin", bytes([n]) * 10**5, durable=n % 2 == 0)
            assert other.stored("x.bin") == bytes([n]) * 10**5
            versions.append(other.stored_version("x.bin"))
            assert versions[-1] == one.stored_version("x.bin")
        other.discard("x.bin")
        other.discard("x.bin")
        assert one.stored("x.bin") is one.stored_version("x.bin") is None
        one.store("x.bin", b"")
        versions.append(other.stored_version("x.bin"))
        assert other.stored("x.bin") == b""
        assert len(set(versions)) == len(versions)


def test_several_revisions_of_one_decision_in_one_call(place):
    with closing(Ledger(place, shared=True)) as ledger:
        decide(ledger)
        added = [RevisionRow(0, float(n), None, 1.0, f"order {n}") for n in range(1, 4)]
        ledger.add_outcomes([observed(0)], added)
        assert ledger.revised(0) == [(1.0, f"order {n}") for n in range(1, 4)]
        assert outcome(ledger, 0) == 3.0


def test_a_folder_is_served_or_taken_alone(tmp_path):
    with closing(Ledger(tmp_path, shared=True)):
        with pytest.raises(OSError, match="it is being served: ask the service, or stop it"):
            Ledger(tmp_path)
        Ledger(tmp_path, shared=True).close()
        assert Ledger(tmp_path, write=False).decisions == 0
        (tmp_path / "lock").unlink()
        with pytest.raises(OSError, match="another process has it open"):
            Ledger(tmp_path)
    with (
        closing(Ledger(tmp_path)),
        pytest.raises(OSError, match="this process has it open already"),
    ):
        Ledger(tmp_path, shared=True)
    with pytest.raises(ValueError, match="only read is not shared"):
        Ledger(tmp_path, write=False, shared=True)


def test_in_one_process_ledgers_of_a_folder_have_one_lock_until_the_last_is_closed(tmp_path):
    """Whoever closes a file drops the locks that SQLite has on it for all of the process."""
    one, other = (Ledger(tmp_path, shared=True) for _ in range(2))
    lock = one._database._database_lock  # pyright: ignore[reportAttributeAccessIssue]
    assert lock is other._database._database_lock  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(2):  # closed twice, it counts once
        one.close()
        assert not any(file.closed for file in lock._files)
    other.close()
    assert all(file.closed for file in lock._files)
    Ledger(tmp_path).close()


def test_where_there_are_no_other_locks_those_of_sqlite_do(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "EXACT", False)
    test_a_turn_that_failed_in_part_fails_as_a_whole(tmp_path)
    with closing(Ledger(tmp_path, shared=True)):
        with pytest.raises(OSError, match="this process has it open"):
            Ledger(tmp_path)
        Ledger(tmp_path, shared=True).close()
    with closing(Ledger(tmp_path)), pytest.raises(OSError, match="this process has it open"):
        Ledger(tmp_path, shared=True)


def test_a_writer_that_hangs_is_waited_for_but_not_for_ever(tmp_path, monkeypatch):
    with (
        closing(Ledger(tmp_path, shared=True)) as one,
        closing(Ledger(tmp_path, shared=True)) as other,
    ):
        monkeypatch.setattr(locks, "WAIT", 0.05)
        with one.turn():
            with pytest.raises(OSError, match="other processes have been writing"):
                decide(other)
            assert other.decisions == 0  # which can be read meanwhile
        assert decide(other) == [0]


MANY = """
name, rounds = sys.argv[2], int(sys.argv[3])
with closing(shared(sys.argv[1])) as ledger:
    for n in range(rounds):
        with ledger.turn():
            number = ledger.decisions
            event = Event(f"{name} {n}", "", number)
            opinion = opinion_of(number)
            ledger.add_decisions([decided(number)], [opinion], events=[event])
            if n % 2:
                waiting = ledger.pending(before=1e12)
                ledger.add_outcomes([observed(waiting[0])])
"""


def test_four_processes_at_once_lose_nothing(place):
    rounds = 200
    several = [process(MANY, place, name, rounds) for name in "abcd"]
    assert [one.wait(60) for one in several] == [0] * 4
    with closing(Ledger(place, write=False)) as ledger:
        table = ledger.table()  # checks that no row is missing
        assert len(table["id"]) == ledger.decisions == 4 * rounds
        assert len(set(table["id"])) == 4 * rounds
        assert table["offer"] == [offer_of(n).actions.tolist() for n in range(4 * rounds)]
        assert sorted(row.number for row in ledger.learned(after=0)) == list(range(2 * rounds))
        keys = [(f"{name} {n}", "") for name in "abcd" for n in range(rounds)]
        found = ledger.find_events(keys)
        assert sorted(event.decision for event in found.values()) == list(range(4 * rounds))
        for name in "abcd":  # in the order each of them made them
            own = [found[f"{name} {n}", ""].decision for n in range(rounds)]
            assert own == sorted(own)
        assert len(list(ledger.opinions(0))) == 4 * rounds
        assert ledger.ask("SELECT count(*) FROM offers") == (4 * rounds + 2) // 3


KILLED = """
ledger = shared(sys.argv[1])
decide(ledger, 2)
with ledger.turn():
    ledger.add_decisions([decided(2)], events=[Event("e", "", 2)])
    ledger.add_outcomes([observed(0)])
    print("within", flush=True)
    input()
"""


def test_killed_in_the_middle_of_a_turn_nothing_of_it_is_there(place):
    with closing(Ledger(place, shared=True)) as ledger:
        with process(KILLED, place) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "within\n"
            assert ledger.decisions == 2
            other.send_signal(signal.SIGKILL)
        assert (ledger.decisions, ledger.outcomes) == (2, 0)
        assert decide(ledger, events=[Event("e", "", 2)]) == [2]
        assert ledger.table()["outcome"] == [None] * 3


FORKED = """
ledger = shared(sys.argv[1])
decide(ledger)
child = os.fork()
if child == 0:
    try:
        decide(ledger)
    except RuntimeError as error:
        print(error, flush=True)
    ledger.close()
    sys.exit()
os.waitpid(child, 0)
print(decide(ledger), flush=True)
"""


def test_a_fork_is_refused(place):
    with process(FORKED, place) as other:
        assert other.stdout is not None
        assert "is a fork" in other.stdout.readline()
        assert other.stdout.readline() == "[1]\n"
        assert other.wait(20) == 0


def test_many_can_begin_a_ledger_at_once(place):
    code = "input()\nledger = shared(sys.argv[1])\n"
    code += "decide(ledger)\nprint(ledger.id, flush=True)"
    several = [process(code, place) for _ in range(3)]
    for one in several:
        assert one.stdin is not None
        one.stdin.write("go\n")
    names = {one.communicate()[0] for one in several}
    assert len(names) == 1
    with closing(Ledger(place, shared=True)) as ledger:
        assert names == {f"{ledger.id}\n"}
        assert ledger.decisions == 3
        assert schema.read_format(ledger._database) == schema.FORMAT
        assert os.getpid() == ledger._session.pid
