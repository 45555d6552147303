"""Tables found or made in a database: created, checked, or known to be a copy."""

import json
import time
import warnings
from typing import Any

import numpy as np

from ..inputs.features import precision
from . import schema
from .rows import seal
from .sqlite import transaction

REVISIONS = "revisions before"  # the setting that says how many there were before an id


def open_tables(db: Any, write: bool) -> np.dtype:
    """Make the tables of a new ledger, or check those there are; the precision of its numbers."""
    empty = db.empty()
    if empty and not write:
        raise FileNotFoundError("it holds no decisions")
    file = db.identity()
    found = 0 if empty else schema.read_format(db)
    if empty:
        with transaction(db):
            schema.create(db, schema.new_id(), str(precision()), file)
    elif found != schema.FORMAT:
        raise ValueError(
            f"it has format {found}, and this version reads format {schema.FORMAT}: "
            + schema.way_from(found)
        )
    about = schema.read_about(db)
    if write and file and not db.same(about["file"], file):
        _rename(db, file)
    db.opened()
    return np.dtype(about["precision"])


def _rename(db: Any, file: str) -> None:
    """A copy goes on by a new id: the original may be in use, or come back."""
    held, id = schema.counts(db), schema.new_id()
    row = (held["ids"], id, held["decisions"], held["outcomes"], time.time())
    with transaction(db):
        db.execute(schema.INSERT["ids"], seal("ids", row))
        db.execute(schema.SET, seal("about", ("file", file)))
        revisions = (f"setting {REVISIONS} {id}", json.dumps(held["revisions"]))
        db.execute(schema.SET, seal("about", revisions))
    warnings.warn(
        f"the ledger in {db.name} is a copy, or was restored from one: decisions from now "
        f"on go by the id {id}-..., while the {held['decisions']} before keep theirs and can "
        "still be learned from",
        stacklevel=6,
    )
