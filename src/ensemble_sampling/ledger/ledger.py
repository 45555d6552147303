"""The durable ledger behind a Bandit: every decision and outcome, in order, in a database."""

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .columns import Entries, columns
from .offers import BATCH, KNOWN, Writer
from .opening import REVISIONS, open_tables
from .reading import RECENT, History, Pending, Recent
from .retention import Going, Retention
from .rows import (
    PAGE,
    Base,
    Change,
    DecisionRow,
    Event,
    Opinion,
    OutcomeRow,
    RevisionRow,
    consecutive,
    decision_row,
    event_row,
    outcome_row,
    read_pages,
    revision_row,
    seal,
    unseal,
)
from .schema import INSERT
from .settings import Blobs, Settings
from .sqlite import Database, Place, database, in_words
from .transactions import Process, Transactions, explained

ID = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,17})")
NO_TURN = nullcontext()
PART = 100_000  # decisions that are removed in one turn
Rows = dict[str, list[Any]]  # by table


class Session:
    """The process that opened a database, whose forks must not use it."""

    def __init__(self, database: Database):
        self._database, self.pid = database, os.getpid()

    def check(self, writes: bool = False) -> None:
        """Refuse a ledger that cannot be written to: cheap, for every call. One that `writes` looks
        where to when it has, and before that only if something went wrong the last time."""
        if Process.id != self.pid:
            raise RuntimeError(
                f"this bandit was opened by the process {self.pid}, of which this one is a fork; "
                "one process writes to a ledger: open bandits in the child, each in its own "
                "folder, or send what is to be decided to the parent"
            )
        if self._database.closed:
            raise ValueError("this bandit was closed: open it again")
        if not writes or self._database.counts.held is None:
            self._database.check("nothing was done")


class Ledger:
    """Decisions and outcomes in order.

    place: a folder; the URL of a PostgreSQL database with the bandit's name behind a #; or None,
        which keeps them in memory.
    write: whether to write to it, or only to read it as it is now.
    shared: whether other processes may write as well, in turns; else one process writes at a time,
        and others may read meanwhile. What shows that it is taken dies with the process.
    durable: whether what is written must outlive a loss of power, in SQLite.

    Every `add_...` is all or nothing, and on disk when it returns; within a `turn`, when that ends.

    dtype: the precision in which it keeps features and probabilities.
    """

    dtype: np.dtype

    def __init__(
        self, place: Place, write: bool = True, *, shared: bool = False, durable: bool = True
    ):
        if shared and not write:
            raise ValueError("a ledger that is only read is not shared: it stays what it is")
        self.place, self.closed, self._shared = place, False, shared
        self.clock: Callable[[], float] = lambda: time.time()  # a simulation sets its own
        self._database = db = database(place, write, shared, durable)
        self._counts, self._session = db.counts, Session(db)
        try:
            with explained(db, "cannot open the ledger"):
                db.open()
                with db.opening():
                    self.dtype = open_tables(db, write)
                self._recent, self._pending = Recent(), Pending()
                self._offers = Writer(self.dtype)
                caches = (self._recent, self._pending, self._offers)
                self._transactions = Transactions(db, write, shared, self._session.check, caches)
                self._transactions.settle()
        except BaseException:
            self.close()
            raise
        # What a part does alone is asked of it without a detour.
        settings, blobs = Settings(db, self._transactions), Blobs(db)
        self._retention = Retention(db, self._transactions)
        self.base_state = self._retention.base
        self.check, self.turn = self._session.check, self._transactions.turn
        self.setting, self.set, self.keep = settings.get, settings.set, settings.keep_offers
        self.lease, self.holder, self.release = settings.lease, settings.holder, settings.release
        self.store, self.stored, self.discard = blobs.store, blobs.read, blobs.discard
        self.stored_version, self.where = blobs.version, db.where

    def close(self) -> None:
        """Let others write; what was recorded is safe without. Called again, it does what an
        interrupt kept it from."""
        try:
            self._close()
        except BaseException:  # by an interrupt; whoever opens it next is not to be kept out
            self._close()
            raise

    def _close(self) -> None:
        self.closed = self._database.closed = True
        if os.getpid() == self._session.pid:  # in a fork all this is the parent's, and left to it
            self._database.close()

    @property
    def decisions(self) -> int:
        """How many there are."""
        return (self._counts.held or self._transactions.counts())["decisions"]

    @property
    def outcomes(self) -> int:
        """How many there are."""
        return (self._counts.held or self._transactions.counts())["outcomes"]

    @property
    def revisions(self) -> int:
        """How often an outcome was corrected or added to."""
        return self.known[1]

    @property
    def known(self) -> tuple[int, int]:
        """How many outcomes and revisions there are."""
        held = self._counts.held or self._transactions.counts()
        return held["outcomes"], held["revisions"]

    @property
    def observed(self) -> int:
        """How many values of metrics there are."""
        return (self._counts.held or self._transactions.counts())["metrics"]

    @property
    def changed(self) -> int:
        """How often a setting was changed."""
        return (self._counts.held or self._transactions.counts())["changes"]

    @property
    def erasures(self) -> int:
        """How often what was said of somebody was removed."""
        return (self._counts.held or self._transactions.counts())["erasures"]

    @property
    def configured(self) -> tuple[int, int]:
        """What changes when the configuration does, or the shadows beside it."""
        held = self._counts.held or self._transactions.counts()
        return held["agents"], held["shadows"]

    @property
    def next_shadow(self) -> int:
        """The number that the next shadow has."""
        return self.configured[1]

    @property
    def base(self) -> Base:
        """What was removed from it."""
        if self._counts.held is None:
            self._transactions.counts()  # which reads it
        return self._transactions.base

    @property
    def keeps(self) -> str:
        """What is kept of an offer: "all" of it, or only what was "chosen"."""
        return self._transactions.keeps

    @property
    def id(self) -> str:
        """What decisions go by from now on."""
        return self._transactions.names[-1].id

    def decision_id(self, number: int) -> str:
        """The id of a decision; those from before a copy was made keep the original's."""
        names = self._transactions.names
        name = names[-1]
        if number < name.decisions:
            name = next(name for name in reversed(names) if number >= name.decisions)
        return f"{name.id}-{number}"

    def number(self, id: Any) -> int:
        """The number of the decision with this id."""
        if not isinstance(id, str):
            raise TypeError(
                f"a decision's id is text, as in bandit.learn(decision.id, outcome); got {id!r}"
            )
        match = ID.fullmatch(id)
        if match is None:
            raise ValueError(f"{id!r} is not the id of a decision, as decision.id has it")
        ledger, number = match[1], int(match[2])
        held, names = self._counts.held or self._transactions.counts(), self._transactions.names
        if number < self._transactions.base.decisions:
            raise ValueError(f"decision {id} is older than what this ledger retains")
        if number < held["decisions"]:
            if ledger == names[-1].id and number >= names[-1].decisions:
                return number  # mostly
            if self.decision_id(number) == id:
                return number
        if ledger not in [name.id for name in names]:
            raise ValueError(f"decision {id!r} belongs to the ledger {ledger}, this is {self.id}")
        raise ValueError(f"there is no decision {id} in this ledger")

    def outcomes_as(self, id: str) -> int | None:
        """How many outcomes there were when it last went by `id`; None if it never did."""
        names = self._transactions.names
        ends = [*(name.outcomes for name in names[1:]), self.outcomes]
        return {name.id: end for name, end in zip(names, ends, strict=True)}.get(id)

    def revisions_as(self, id: str) -> int | None:
        """How many revisions there were when it last went by `id`; None if that was not recorded,
        as it was not by earlier versions. Their times cannot tell: a clock may be put back."""
        names = reversed(self._transactions.names)
        after = [name for name, before in pairwise(names) if before.id == id]
        if not after or not self.revisions:
            return self.revisions
        return self.setting(f"{REVISIONS} {after[0].id}")

    def _insert(self, held: dict[str, int], rows: Rows) -> None:
        """All of the sealed rows or none, where the tables have so many as are `held`."""
        counts, db = self._counts, self._database
        counts.held, renewals = None, counts.renewals  # unknown until all is done
        statements = [(INSERT[table], new) for table, new in rows.items() if new]
        if self._transactions.kind is not None:
            self._transactions.insert(statements)
        else:
            try:
                db.write(statements)
            except db.errors as error:
                raise self._transactions.write_error(error, held) from error
            db.check("nothing of this call is acknowledged")
        for table, new in rows.items():
            held[table] += len(new)
        if counts.renewals == renewals:
            counts.held = held

    def add_decisions(
        self,
        rows: list[DecisionRow],
        opinions: Sequence[Opinion] = (),
        outcomes: Sequence[OutcomeRow] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """Record decisions, numbered on from those there are, what shadows said of them, what
        came of them where that is known already, and by what ids their callers know them.

        Either all of the decisions were made elsewhere (`foreign`), or none.
        """
        if not rows and not events:
            return
        alone = self._counts.held is not None and self._transactions.kind is None
        with NO_TURN if alone else self._transactions.writing():
            held, now = self._counts.held or self._transactions.counts(), self.clock()
            if rows and rows[0].number != held["decisions"]:
                raise ValueError(f"decision {held['decisions']} is next, got {rows[0].number}")
            offers = self._offers
            if (offers.items, offers.offers) != (held["items"], held["offers"]):
                self._follow_offers(held)
            self._counts.held = None  # unknown until all is done: offers are remembered at once
            whole = self._transactions.keeps == "all"
            kept = [offers.change(row, whole) for row in rows]
            new: Rows = {
                "items": [one.items for one in kept if one.items is not None],
                "decisions": [
                    decision_row(row, one.item, one.available, self.dtype)
                    for row, one in zip(rows, kept, strict=True)
                ],
                "offers": [one.offer for one in kept if one.offer is not None],
                "opinions": [
                    seal("opinions", (n, *said))
                    for n, said in enumerate(opinions, held["opinions"])
                ],
                "outcomes": [
                    outcome_row(n, now, row) for n, row in enumerate(outcomes, held["outcomes"] + 1)
                ],
                "events": [event_row(n, row) for n, row in enumerate(events, held["events"])],
            }
            if rows and rows[0].foreign:
                row = (held["imports"], rows[0].number, len(rows), now)
                new["imports"] = [seal("imports", row)]
            self._insert(held, new)
            recent = self._recent.rows
            for row in rows if not outcomes else ():
                if row.features.dtype == row.probabilities.dtype == self.dtype:  # not rounded
                    recent[row.number] = row if row.offer is None else DecisionRow(*row[:-1])
            while len(recent) > RECENT:
                del recent[next(iter(recent))]

    def _follow_offers(self, held: dict[str, int]) -> None:
        """Let what makes rows of offers see the last that are there, by whomever."""
        first = max(self._offers.items, held["items"] - KNOWN // 16) - 1
        with self._transactions.reading() as db:
            found = db.execute("SELECT * FROM items WHERE number > ? ORDER BY number", (first,))
            items = [unseal("items", row) for row in found.fetchall()]
            found = db.execute("SELECT * FROM offers ORDER BY decision DESC LIMIT 1")
            self._offers.see(items, [unseal("offers", row) for row in found.fetchall()])

    def add_outcomes(self, rows: list[OutcomeRow], revised: Sequence[RevisionRow] = ()) -> None:
        """Record outcomes in the order they are learned, and those that take another's place."""
        if not rows and not revised:
            return
        alone = self._counts.held is not None and self._transactions.kind is None
        with NO_TURN if alone else self._transactions.writing():
            held, now = self._counts.held or self._transactions.counts(), self.clock()
            revisions = self._revisions(revised, held["revisions"], now) if revised else []
            for row in rows:
                self._recent.rows.pop(row.decision, None)
            outcomes = [
                outcome_row(n, now, row) for n, row in enumerate(rows, held["outcomes"] + 1)
            ]
            self._insert(held, {"outcomes": outcomes, "revisions": revisions})

    def _revisions(
        self, rows: Sequence[RevisionRow], held: int, now: float
    ) -> list[tuple[Any, ...]]:
        """Numbered by themselves, and by decision."""
        made, before = [], {row.decision: len(self.revised(row.decision)) for row in rows}
        for number, row in enumerate(rows, start=held + 1):
            before[row.decision] += 1
            made.append(revision_row(number, before[row.decision], now, row))
        return made

    @property
    def description(self) -> Any:
        """The configuration that chooses and learns now; None in a new ledger."""
        with self._transactions.reading() as db:
            row = db.execute("SELECT * FROM agents ORDER BY number DESC LIMIT 1").fetchone()
            return None if row is None else json.loads(unseal("agents", row)[3])

    def describe(self, description: Any, promoted: str | None = None) -> None:
        """From the next decision on, this is the configuration; that of a former shadow, if any."""
        with self._transactions.writing():
            held, now = self._transactions.counts(), self.clock()
            first = held["decisions"]
            row = (held["agents"], first, now, json.dumps(description))
            new: Rows = {"agents": [seal("agents", row)]}
            if promoted is not None:
                row = (held["shadows"], promoted, first, now, None)
                new["shadows"] = [seal("shadows", row)]
            self._insert(held, new)

    def change(self, name: str, value: Any, who: str | None = None) -> None:
        """Remember a setting, and that it was changed, by whom."""
        with self.turn():
            self.set(name, value)
            held = self._transactions.counts()
            row = (held["changes"], held["decisions"], self.clock(), name, json.dumps(value), who)
            self._insert(held, {"changes": [seal("changes", row)]})

    def changes(self) -> Iterator[Change]:
        """Every change of a setting, in order."""
        for _, decision, at, name, text, who in self._all("changes"):
            yield Change(decision, at, name, json.loads(text), who)

    def add_metrics(self, rows: Sequence[tuple[int, str, float]]) -> None:
        """Record (decision, name, value) of what else came of decisions."""
        with self._transactions.writing():
            held, now = self._transactions.counts(), self.clock()
            new = [(n, at, now, *said) for n, (at, *said) in enumerate(rows, held["metrics"])]
            self._insert(held, {"metrics": [seal("metrics", row) for row in new]})

    def metrics(self, decision: int) -> dict[str, float]:
        """What else came of a decision, by name."""
        with self._transactions.reading() as db:
            query = "SELECT * FROM metrics WHERE decision = ? ORDER BY number"
            rows = [unseal("metrics", row) for row in db.execute(query, (decision,)).fetchall()]
            return {name: value for _, _, _, name, value in rows}

    def shadows(self) -> Iterator[tuple[int, str, int, Any]]:
        """(number, name, first decision, description or None) of every shadow, in order."""
        for number, name, first, _, text in self._all("shadows"):
            yield number, name, first, None if text is None else json.loads(text)

    def add_shadow(self, name: str, description: Any) -> None:
        """From the next decision on there is a shadow of this name, or none for None."""
        text = None if description is None else json.dumps(description)
        with self._transactions.writing():
            held = self._transactions.counts()
            row = (held["shadows"], name, held["decisions"], self.clock(), text)
            self._insert(held, {"shadows": [seal("shadows", row)]})

    def opinions(self, shadow: int) -> Iterator[Opinion]:
        """What a shadow would have done."""
        for row in self._all("opinions"):
            if row[2] == shadow:
                yield Opinion(*row[1:])

    def _all(self, table: str) -> Iterator[Sequence[Any]]:
        """The rows of a table whose numbers begin at 0."""
        with self._transactions.reading() as db:
            query = f"SELECT * FROM {table} WHERE number > ? ORDER BY number"
            rows = (unseal(table, row) for row in read_pages(db, query, -1))
            yield from consecutive(table, rows, 0, self._transactions.counts()[table])

    def events(self, event: str) -> list[Event]:
        """The decisions of an event, in their order."""
        with self._transactions.reading() as db:
            query = "SELECT * FROM events WHERE event = ? ORDER BY number"
            return [_event(row) for row in db.execute(query, (event,)).fetchall()]

    def find_events(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Event]:
        """The known events among some pairs (event, slot)."""
        found: dict[tuple[str, str], Event] = {}
        with self._transactions.reading() as db:
            there = self._transactions.counts()["events"]
            wanted = list(dict.fromkeys(event for event, _ in keys)) if there else []
            for start in range(0, len(wanted), PAGE):
                some = wanted[start : start + PAGE]
                query = f"SELECT * FROM events WHERE event IN ({', '.join('?' * len(some))})"
                rows = [_event(row) for row in db.execute(query, some).fetchall()]
                found |= {(row.event, row.slot): row for row in rows}
        return {key: found[key] for key in keys if key in found}

    def activate(self, decision: int) -> bool:
        """A decision that was deferred counts from now on; False if it did already."""
        with self._transactions.writing():
            query = "SELECT number FROM activations WHERE decision = ?"
            with self._transactions.reading() as db:
                if db.execute(query, (decision,)).fetchone() is not None:
                    return False
            held = self._transactions.counts()
            row = (held["activations"], decision, self.clock())
            self._insert(held, {"activations": [seal("activations", row)]})
            return True

    @contextmanager
    def _history(self) -> Iterator[History]:
        with self._transactions.reading() as db:
            held = self._transactions.counts()
            yield History(db, self.dtype, held, self._transactions.base)

    def decision(self, number: int) -> DecisionRow:
        """The decision with this number."""
        known = self._recent.rows.get(number)
        if known is not None and self._counts.held is not None and not self._shared:
            return known
        return self.find([number])[number]

    def find(self, numbers: Sequence[int]) -> dict[int, DecisionRow]:
        """The decisions with these numbers, as far as there are such."""
        if not numbers:
            return {}
        with self._history() as history:
            recent = self._recent.rows
            if self._shared:
                recent = self._recent.follow(self._database, self.outcomes)
            known = {number: recent[number] for number in numbers if number in recent}
            others = list({number: None for number in numbers if number not in known})
            return known | history.decisions(others) if others else known

    def last_about(self, subject: str) -> DecisionRow | None:
        """The last decision about a subject."""
        query = "SELECT number FROM decisions WHERE subject = ? ORDER BY number DESC LIMIT 1"
        with self._transactions.reading() as db:
            row = db.execute(query, (subject,)).fetchone()
        return None if row is None else self.decision(row[0])

    def pending(self, before: float) -> list[int]:
        """Decisions made by the time `before` whose outcome has not come, oldest first; without
        those that were deferred and not activated."""
        with self._transactions.reading() as db:
            held = self._transactions.counts()
            return self._pending.before(before, db, held, self._transactions.base)

    def learned(self, after: int) -> Iterator[DecisionRow]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        with self._history() as history:
            yield from history.learned(after)

    def revised(self, decision: int) -> list[tuple[Any, str | None]]:
        """(what was added, by what reference) for every revision of a decision's outcome."""
        with self._history() as history:
            return history.revisions(decision)

    def first_revised(self, after: int) -> int | None:
        """The earliest outcome that any but the first `after` revisions changed."""
        with self._history() as history:
            return history.first_revised(after)

    def saying(self, side: str, name: str, starts: Sequence[str]) -> Iterator[DecisionRow]:
        """The decisions in which something may be said by this name of "the context", or of "the
        action" that was chosen, that begins, as JSON, as any of `starts`; in order. Some of them
        say it elsewhere."""
        text, table = "d.context", "decisions AS d"
        if side == "the action":
            text, table = "i.said", f"{table} JOIN items AS i ON i.number = d.item / {BATCH}"
        key = json.dumps(name, ensure_ascii=False)
        for sign in ("!", "%", "_"):
            key = key.replace(sign, f"!{sign}")
        patterns = [f"%{key}:{start}%" for start in starts]
        any_of = " OR ".join([f"{text} LIKE ? ESCAPE '!'"] * len(patterns))
        query = f"SELECT d.number FROM {table} WHERE d.number > ? AND ({any_of}) ORDER BY d.number"
        after = -1
        while True:
            with self._transactions.reading() as db:
                some = db.execute(f"{query} LIMIT {PAGE}", (after, *patterns)).fetchall()
                found = self.find([number for (number,) in some])
            yield from (found[number] for number in sorted(found))
            if len(some) < PAGE:
                return
            after = some[-1][0]

    def latest(self, count: int) -> Iterator[DecisionRow]:
        """The last `count` decisions."""
        with self._history() as history:
            rows = history.between(max(0, self.decisions - count), self.decisions)
            yield from (row for row in rows if not row.erased)

    def between(self, first: int, last: int) -> Iterator[DecisionRow]:
        """The decisions first, ..., last - 1, with what was on offer."""
        with self._history() as history:
            rows = history.between(first, min(last, self.decisions), offers=True)
            yield from (row for row in rows if not row.erased)

    def all(self, offers: bool = False) -> Iterator[DecisionRow]:
        """Every decision, with what was on offer if that is wanted."""
        with self._history() as history:
            yield from (row for row in history.all(offers) if not row.erased)

    def ask(self, query: str, *values: Any) -> Any:
        """The one value a query gives."""
        return self.ask_all(query, *values)[0][0]

    def ask_all(self, query: str, *values: Any) -> list[Any]:
        """All rows a query gives."""
        with self._transactions.reading() as db:
            return db.execute(query, values).fetchall()

    def stream(self, table: str, column: str) -> Iterator[Any]:
        """What a column says where it says anything, a few rows at a time."""
        query = f"SELECT number, {column} FROM {table} WHERE number > ? ORDER BY number"
        with self._transactions.reading() as db:
            yield from (row[1] for row in read_pages(db, query, -1) if row[1])

    def iterate(self, query: str, *values: Any) -> Iterator[Sequence[Any]]:
        """The rows a query gives, one after another."""
        with self._transactions.reading() as db:
            yield from db.execute(query, values)

    def knows_only_base(self, subject: str) -> int:
        """How many outcomes about a subject the base knows, so that no replay is without them."""
        numbers, last = self._retention.find(subject), self.base.outcomes
        return sum(0 < (row.sequence or 0) <= last for row in self.find(numbers).values())

    def retain(self, since: float, states: Callable[[], Mapping[str, bytes]]) -> int:
        """Remove decisions made before the time `since`, and all that came of them; how many. Of
        more than `PART` the oldest so many, since others wait meanwhile: call it again.

        states: gives the base that replays begin at from now on, by the names of their snapshots;
            called within the turn, so that it knows every outcome there is.
        """
        first = min(self._retention.first_since(since), self.base.decisions + PART)
        if first <= self.base.decisions:
            return 0
        unused = self._retention.unused(Going(first))
        with self._removing():
            before = self._transactions.base.decisions
            if first <= before:
                return 0
            self._retention.rebase(states())
            self._retention.remove_before(first, unused)
        return first - before

    def erase(self, subject: str, states: Callable[[], Mapping[str, bytes]] | None) -> int:
        """Remove what was said of the decisions about a subject, and what came of them; how many.

        states: as for `retain`, where the agents go on knowing it; None: they are to learn all
            again without it.
        """
        if not self._retention.find(subject):
            return 0
        unused = self._retention.unused(Going(subject=subject))
        with self._removing():
            numbers = self._retention.find(subject)
            if not numbers:
                return 0
            if states is not None:
                self._retention.rebase(states())
            known = self.find(numbers)
            told = [n for n in numbers if known[n].sequence is not None]
            # What waits for an outcome has none to wait for; what was learned is revised.
            waiting = [OutcomeRow(n, None, None) for n in numbers if known[n].sequence is None]
            revised = [RevisionRow(n, None, None) for n in told] if states is None else []
            self.add_outcomes(waiting, revised)
            self._retention.erase(subject, states is not None, unused)
        return len(numbers)

    @contextmanager
    def _removing(self) -> Iterator[Database]:
        """A turn in which rows are changed or removed; what is remembered of them does not hold
        after it, and their room is given back."""
        with self.turn(), self._transactions.writing() as db:
            with explained(db, "cannot write to the ledger"):
                yield db
            for cache in (self._recent, self._pending, self._offers):
                cache.clear()
            self._counts.lose()
        try:
            self._database.compact()
        except (OSError, *self._database.errors) as error:  # it is removed all the same
            warnings.warn(
                f"could not give back the room of what was removed from {self._database.name}: "
                f"{in_words(error)}; the next removal tries again",
                stacklevel=4,
            )

    def table(self, rows: range | None = None) -> dict[str, list[Any]]:
        """Every decision, or some, in columns that `pandas.DataFrame` and Parquet take as is."""
        found = self.all(offers=True) if rows is None else self.between(rows.start, rows.stop)
        return columns(map(Entries(self.decision_id), found))

    def tidy(self) -> None:
        """Do, outside of a turn, what would otherwise be done while somebody waits."""
        with explained(self._database, "cannot write to the ledger"):
            self._database.tidy()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Everything recorded so far into the new folder `path`: all of it there, or nothing."""
        self.check()
        with explained(self._database, "cannot back up the ledger"):
            self._database.backup(Path(path))


def _event(row: Sequence[Any]) -> Event:
    _, event, slot, decision, deferred = unseal("events", row)
    return Event(event, slot, decision, bool(deferred))
