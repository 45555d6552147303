"""The log of a bandit's folder as a file, written a few decisions at a time."""

import csv
import io
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_atomically
from .columns import COLUMNS, entry, plain
from .ledger import Ledger
from .sqlite import as_place

NUMBERS = 2**20  # in features that are held in memory at a time, about


def export(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write the log of the bandit in a folder to a file, a few decisions at a time; how many.

    The file's name says how: `.parquet` (needs pyarrow) or `.csv`. Also while another process runs
    the bandit: the log is as it was when the export began.
    """
    path = Path(path)
    kinds = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix not in kinds:
        raise ValueError(f"a log is written to a .parquet or a .csv file, got {path}")
    if path.suffix == ".parquet":
        _arrow()  # or say what is missing, before anything is done
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    ledger = Ledger(as_place(folder), write=False)
    try:
        write_atomically(path, lambda file: kinds[path.suffix](ledger, file))
        return ledger.decisions
    finally:
        ledger.close()


def _chunks(ledger: Ledger) -> Iterator[list[tuple[Any, ...]]]:
    """All entries, so many at a time that their numbers fit into little memory."""
    rows, size = ledger.all(offers=True), 64
    while found := list(islice(rows, size)):
        yield [entry(row, ledger.decision_id) for row in found]
        actions = max(1 if row.offer is None else len(row.offer.available) for row in found)
        size = max(1, min(2**14, NUMBERS // max(1, actions * len(found[0].features))))


def _write_csv(ledger: Ledger, file: Any) -> None:
    """Lists are JSON; what is not there is empty."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for entries in _chunks(ledger):
        writer.writerows([_cell(value) for value in values] for values in entries)
    text.detach()


def _cell(value: Any) -> Any:
    value = plain(value)
    return json.dumps(value) if isinstance(value, list | bool) else value


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            "writing Parquet needs pyarrow: pip install 'ensemble-sampling[parquet]', or write .csv"
        ) from error
    return pyarrow


def _write_parquet(ledger: Ledger, file: Any) -> None:
    """Names are text, also those that are numbers; outcomes lists where any is one."""
    arrow = _arrow()
    number = arrow.from_numpy_dtype(ledger.dtype)
    basic = {
        "text": arrow.string(),
        "float": arrow.float64(),
        "int": arrow.int64(),
        "bool": arrow.bool_(),
        "number": number,
    }
    said = "SELECT outcome FROM outcomes UNION ALL SELECT outcome FROM revisions"
    several = ledger.ask(f"SELECT count(*) FROM ({said}) AS said WHERE outcome LIKE '[%'")
    basic["outcome"] = arrow.list_(arrow.float64()) if several else arrow.float64()

    def kind(word: str) -> Any:
        return arrow.list_(kind(word[1:-1])) if word.startswith("[") else basic[word]

    schema = arrow.schema([(name, kind(word)) for name, word in COLUMNS.items()])
    with arrow.parquet.ParquetWriter(file, schema) as writer:
        for entries in _chunks(ledger):
            arrays = []
            for n, (name, word) in enumerate(COLUMNS.items()):
                values = [values[n] for values in entries]
                if word == "outcome" and several:
                    values = [[y] if isinstance(y, float) else y for y in values]
                arrays.append(_array(arrow, values, word, schema.field(name).type))
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _array(arrow: Any, values: list[Any], word: str, kind: Any) -> Any:
    """A column; lists of numbers without making a Python object of each."""
    if word in ("text", "[text]"):
        return arrow.array([_named(value) for value in values], kind)
    if not word.startswith("["):
        return arrow.array(values, kind)
    lengths = [0 if value is None else len(value) for value in values]
    there = [value for value in values if value is not None]
    flat = np.concatenate(there) if there else np.zeros(0)
    if flat.ndim == 2:
        inner = arrow.array(flat.ravel(), kind.value_type.value_type)
        ends = np.linspace(0, flat.size, len(flat) + 1, dtype=np.int32)
        items = arrow.ListArray.from_arrays(arrow.array(ends, arrow.int32()), inner)
    else:
        items = arrow.array(flat, kind.value_type) if there else arrow.array([], kind.value_type)
    offsets = arrow.array(np.concatenate([[0], np.cumsum(lengths)]), arrow.int32())
    missing = arrow.array([value is None for value in values], arrow.bool_())
    return arrow.ListArray.from_arrays(offsets, items, type=kind, mask=missing)


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(item) for item in value]
    return value if isinstance(value, str) or value is None else json.dumps(value)
