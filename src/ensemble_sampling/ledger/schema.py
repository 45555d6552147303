"""The format of a ledger: its tables, how they are created, and how older ones are read."""

import json
import sqlite3
import time
import uuid
from typing import Any

from ..files import Damaged
from .rows import Base, seal, unseal

FORMAT = 5
BEFORE = 4  # the format that `upgrade` brings up to date
FOREIGN = " REFERENCES decisions"  # in a table of some folders, where SQLite does not look at it
COLUMNS = {  # without foreign keys, which would look for what refers to every row that is removed
    "about": [
        "name TEXT PRIMARY KEY",  # format, precision, file, counts
        "value TEXT NOT NULL",
    ],
    "ids": [  # by what name decisions go; a copy of a ledger goes on by a new one
        "number INTEGER PRIMARY KEY",
        "id TEXT NOT NULL",
        "decisions INTEGER NOT NULL",  # how many there were before it
        "outcomes INTEGER NOT NULL",
        "time REAL NOT NULL",
    ],
    "agents": [  # what chose and learned from which decision on; the last holds
        "number INTEGER PRIMARY KEY",
        "first INTEGER NOT NULL",
        "time REAL NOT NULL",
        "description TEXT NOT NULL",  # JSON
    ],
    "decisions": [
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "time REAL NOT NULL",  # seconds since 1970
        "chosen INTEGER NOT NULL",  # row of the offer
        "action TEXT",  # its name as JSON, if it has one
        "subject TEXT",  # whom it is about, if that was said
        "context TEXT",  # its description as JSON, if it has one
        "item INTEGER",  # what was said of the chosen action, see items
        "features BLOB NOT NULL",  # numbers given of the context and the chosen action
        "probabilities BLOB NOT NULL",  # of every action on offer
        "available BLOB",  # a bit for every action on offer; NULL: all could be chosen
        "control INTEGER",  # 1: left to the baseline; 0: to the agent; NULL: nothing was held back
        "holdback REAL",  # the share that was left to the baseline then
        "baseline REAL",  # how likely it was to choose what was chosen
    ],
    "outcomes": [
        "sequence INTEGER PRIMARY KEY",  # 1, 2, 3, ...: the order of learning
        "decision INTEGER NOT NULL UNIQUE",
        "time REAL NOT NULL",
        "outcome TEXT NOT NULL",  # JSON: a number or a list
        "reward REAL",  # what it was worth; NULL where only the agent knows
        "expired INTEGER NOT NULL",  # 1: it never came, and was assumed
    ],
    "items": [  # actions on offer that were not on offer before
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...; its n-th is item 2^20 * number + n
        "count INTEGER NOT NULL",
        "width INTEGER",  # of rows of numbers; NULL: they are described
        "rows BLOB",  # of numbers
        "said TEXT",  # lines: the name as JSON, if any, a tab, and the description as JSON
    ],
    "offers": [  # what was on offer, from one decision on until the next row says otherwise
        "decision INTEGER PRIMARY KEY",
        "number INTEGER NOT NULL",  # 0, 1, 2, ...
        "context INTEGER",  # how many of a decision's features are the context's
        "count INTEGER",  # of actions; NULL: what was on offer is not recorded
        "names TEXT",  # of all of them as JSON, unless the items say them
        "items BLOB",  # of all of them, see `offers`; NULL: nothing was said of them
    ],
    "imports": [  # decisions that were made elsewhere
        "number INTEGER PRIMARY KEY",
        "first INTEGER NOT NULL",
        "count INTEGER NOT NULL",
        "time REAL NOT NULL",
    ],
    "revisions": [  # outcomes that turned out to be others
        "number INTEGER PRIMARY KEY",  # 1, 2, 3, ...
        "decision INTEGER NOT NULL",
        "nth INTEGER NOT NULL",  # of this decision: 1, 2, ...; the last holds
        "time REAL NOT NULL",
        "added TEXT",  # JSON: what was added; NULL: it was corrected
        "ref TEXT",  # by which the same addition is told, if it was given
        "outcome TEXT NOT NULL",  # JSON: what it is from then on
        "reward REAL",
    ],
    "shadows": [  # agents beside the one in charge
        "number INTEGER PRIMARY KEY",
        "name TEXT NOT NULL",
        "first INTEGER NOT NULL",  # decision
        "time REAL NOT NULL",
        "description TEXT",  # JSON; NULL: it is no more
    ],
    "opinions": [  # what shadows would have done
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "decision INTEGER NOT NULL",
        "shadow INTEGER NOT NULL",
        "chosen INTEGER NOT NULL",  # by the shadow
        "probability REAL NOT NULL",  # it had for what was chosen
        "propensity REAL NOT NULL",  # which that really had
    ],
    "events": [  # by what ids of their own callers know decisions
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "event TEXT NOT NULL",
        "slot TEXT NOT NULL",  # which of several decisions of the event; mostly empty
        "decision INTEGER NOT NULL",
        "deferred INTEGER NOT NULL",  # 1: nothing is assumed of it until it is activated
    ],
    "metrics": [  # what else came of decisions; the last of a name holds
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "decision INTEGER NOT NULL",
        "time REAL NOT NULL",
        "name TEXT NOT NULL",
        "value REAL",
    ],
    "changes": [  # of settings that decide nothing of what is learned
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "decision INTEGER NOT NULL",  # how many there were
        "time REAL NOT NULL",
        "name TEXT NOT NULL",
        "value TEXT NOT NULL",  # JSON: what it is from then on
        "who TEXT",  # changed it, if that was said
    ],
    "bases": [  # states that know what is no longer in the tables
        "name TEXT PRIMARY KEY",
        "content BLOB NOT NULL",
    ],
    "erasures": [  # that what was said of somebody was removed
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "time REAL NOT NULL",
        "decisions INTEGER NOT NULL",  # how many
        "kept INTEGER NOT NULL",  # 1: the state goes on knowing it
    ],
    "activations": [  # deferred decisions that count from then on
        "number INTEGER PRIMARY KEY",  # 0, 1, 2, ...
        "decision INTEGER NOT NULL UNIQUE",
        "time REAL NOT NULL",
    ],
}
UNIQUE = {"revisions": ", UNIQUE (decision, nth)", "events": ", UNIQUE (event, slot)"}
SCHEMA = {
    table: f"CREATE TABLE {table} ({', '.join(columns)}, checksum BLOB NOT NULL"
    f"{UNIQUE.get(table, '')})"
    for table, columns in COLUMNS.items()
}
LEASES = ["name TEXT PRIMARY KEY", "holder TEXT NOT NULL", "until REAL NOT NULL"]
SCHEMA["leases"] = f"CREATE TABLE leases ({', '.join(LEASES)})"  # who does what, until when
INDEXES = (
    "CREATE INDEX decisions_by_subject ON decisions (subject, number) WHERE subject IS NOT NULL",
    "CREATE INDEX metrics_by_decision ON metrics (decision, name, number)",
)
INSERT = {
    table: f"INSERT INTO {table} VALUES ({', '.join('?' * (len(columns) + 1))})"
    for table, columns in COLUMNS.items()
}
SET = (
    f"{INSERT['about']} ON CONFLICT (name) "
    "DO UPDATE SET value = excluded.value, checksum = excluded.checksum"
)
SET_BASE = (
    f"{INSERT['bases']} ON CONFLICT (name) "
    "DO UPDATE SET content = excluded.content, checksum = excluded.checksum"
)
COUNTED = tuple(table for table in COLUMNS if table not in ("about", "bases"))
FIRST = {"outcomes": 1, "revisions": 1}  # the number of the first row, where it is not 0
KEY = {table: COLUMNS[table][0].split()[0] for table in COUNTED}
NUMBERS = {table: "number" if table == "offers" else KEY[table] for table in COUNTED}
COUNTS = ", ".join(  # how many rows there have been, by the number of the last
    f"coalesce((SELECT {NUMBERS[table]} FROM {table} ORDER BY {KEY[table]} DESC LIMIT 1)"
    f" + {1 - FIRST.get(table, 0)}, 0)"
    for table in COUNTED
)
SAID = ", ".join(f"(SELECT value FROM about WHERE name = '{name}')" for name in ("offers", "base"))
STANDING = f"SELECT {COUNTS}, {SAID}"


class Counts:
    """How many rows each table has, as far as that is known without asking the database.

    held: None where it has to be asked: while a write is under way and after it was cut short,
        between turns where others write as well, and after the connection was lost.
    stale: whether whatever else is remembered of the tables may be wrong as well.
    renewals: how often the connection was made anew: others may have written meanwhile.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] | None = None
        self.stale, self.renewals = True, 0

    def lose(self) -> None:
        self.held, self.stale = None, True


def new_id() -> str:
    return uuid.uuid4().hex[:12]


def create(db: Any, id: str, precision: str, file: str) -> None:
    """The tables of a new ledger, within a transaction."""
    about = {"format": str(FORMAT), "precision": precision, "file": file}
    for statement in (*SCHEMA.values(), *INDEXES):
        db.execute(statement)
    db.executemany(INSERT["about"], [seal("about", row) for row in about.items()])
    db.execute(INSERT["ids"], seal("ids", (0, id, 0, 0, time.time())))
    record_counts(db)


def counts(db: Any) -> dict[str, int]:
    """How many rows there have been: by the number of the last, or when some were removed."""
    *found, _, base = db.execute(STANDING).fetchone()
    least = read_base(base).counts
    return {table: max(n, least.get(table, 0)) for table, n in zip(COUNTED, found, strict=True)}


def read_base(text: str | None) -> Base:
    return Base() if text is None else Base(**json.loads(text))


def record_counts(db: Any, held: dict[str, int] | None = None) -> None:
    """How many rows there are now: what is cut off later is missed."""
    db.execute(SET, seal("about", ("counts", json.dumps(counts(db) if held is None else held))))


def read_about(db: Any) -> dict[str, str]:
    """Everything a ledger says of itself, after checking it and its tables."""
    if (altered := db.altered()) is not None:
        raise Damaged(f"its table {altered} is missing or altered")
    rows = [unseal("about", row) for row in db.execute("SELECT * FROM about")]
    about: dict[str, str] = {row[0]: row[1] for row in rows}
    if missing := {"format", "precision", "file", "counts"} - about.keys():
        raise Damaged(f"the table about lacks {', '.join(sorted(missing))}")
    now = counts(db)
    for table, held in json.loads(about["counts"]).items():
        if now[table] < held:
            raise Damaged(f"it has {now[table]} {table}, and had {held} when it was closed")
    return about


def read_format(db: Any) -> int:
    """The number of the format; every format has it at the same place."""
    try:
        row = db.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
        return int(row[0])
    except (sqlite3.OperationalError, TypeError, ValueError) as error:
        if getattr(error, "sqlite_errorname", "SQLITE_ERROR") != "SQLITE_ERROR":
            raise  # the disk; not a table that is missing
        raise ValueError(f"it holds no ledger of decisions: {error}") from error


def way_from(found: int) -> str:
    """What to do with a ledger of another format."""
    if found > FORMAT:
        return "update ensemble-sampling"
    if found == BEFORE:
        return "`ensemble-sampling upgrade` brings it up to date"
    return (
        "it can neither be read nor upgraded. Export its log with the version that wrote it, and "
        "let Bandit.learn_from read that into a new folder"
    )
