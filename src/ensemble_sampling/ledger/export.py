"""The log of a bandit's folder as a file, written a few decisions at a time."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..extras import need
from ..files import write_atomically
from ..inputs.descriptions import as_text
from .columns import COLUMNS, entry, plain
from .ledger import DecisionRow, Ledger
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
        largest = max(_size(row) for row in found)
        size = max(1, min(2**14, NUMBERS // max(1, largest)))


def _size(row: DecisionRow) -> int:
    """How many numbers a decision has, or about as much in words."""
    offer, own = row.offer, len(row.features) + len(row.context or "") // 8
    if offer is None or offer.actions is None:
        return own
    actions = offer.actions
    return own + (actions.size if isinstance(actions, np.ndarray) else 16 * len(actions))


def _write_csv(ledger: Ledger, file: Any) -> None:
    """Lists and descriptions are JSON; what is not there is empty."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for entries in _chunks(ledger):
        writer.writerows([_cell(value) for value in values] for values in entries)
    text.detach()


def _cell(value: Any) -> Any:
    value = plain(value)
    return as_text(value, "a cell") if isinstance(value, list | dict | bool) else value


def _arrow() -> Any:
    need("pyarrow.parquet", "writing Parquet (not CSV)", ValueError)
    import pyarrow

    return pyarrow


def _write_parquet(ledger: Ledger, file: Any) -> None:
    """Names are text, also those that are numbers; outcomes lists where any is one; descriptions
    structs, of which a field that is not always of one kind is JSON."""
    arrow = _arrow()
    said = "SELECT outcome FROM outcomes UNION ALL SELECT outcome FROM revisions"
    several = ledger.ask(f"SELECT count(*) FROM ({said}) AS said WHERE outcome LIKE '[%'")
    around, own = _kinds(ledger, arrow)
    kinds = {
        "text": arrow.string(),
        "float": arrow.float64(),
        "int": arrow.int64(),
        "bool": arrow.bool_(),
        "number": arrow.from_numpy_dtype(ledger.dtype),
        "outcome": arrow.list_(arrow.float64()) if several else arrow.float64(),
        "context": around,
        "action": own,
    }

    def kind(word: str) -> Any:
        return arrow.list_(kind(word[1:-1])) if word.startswith("[") else kinds[word]

    schema = arrow.schema([(name, kind(word)) for name, word in COLUMNS.items()])
    with arrow.parquet.ParquetWriter(file, schema) as writer:
        for entries in _chunks(ledger):
            arrays = []
            for values, field in zip(zip(*entries, strict=True), schema, strict=True):
                if COLUMNS[field.name] == "outcome" and several:
                    values = [[y] if isinstance(y, float) else y for y in values]
                arrays.append(_array(arrow, list(values), field.type))
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _kinds(ledger: Ledger, arrow: Any) -> tuple[Any, Any]:
    """The types of contexts and of actions: lists of numbers, structs of fields, or JSON."""
    numbers = arrow.list_(arrow.from_numpy_dtype(ledger.dtype))
    batches = (said for (said,) in ledger.stream("SELECT said FROM items") if said)
    lines = (line for said in batches for line in said.split("\n"))
    actions = _kind((line.split("\t", 1)[1] for line in lines), arrow)
    contexts = (text for (text,) in ledger.stream("SELECT context FROM decisions") if text)
    around = _kind(contexts, arrow)
    rows = ledger.ask("SELECT count(*) FROM items WHERE rows IS NOT NULL")
    given = ledger.ask("SELECT count(*) FROM decisions WHERE length(features) > 0")
    text = arrow.string()
    own = numbers if actions is None else text if rows or given else actions
    return numbers if around is None else text if given else around, own


def _kind(texts: Iterable[str], arrow: Any) -> Any:
    """The type of some descriptions; None where there are none."""
    fields: dict[str, Any] = {}
    found = None
    for text in texts:
        said, found = json.loads(text), text
        if not isinstance(said, dict):
            return arrow.string()
        for name, value in said.items():
            kind = _field_kind(value, arrow)
            known = fields.setdefault(name, kind)
            if kind is not None and known != kind:
                fields[name] = kind if known is None else _wider(known, kind, arrow)
    if found is None:
        return None
    kinds = [(name, arrow.string() if kind is None else kind) for name, kind in fields.items()]
    return arrow.struct(kinds) if kinds else arrow.string()


def _field_kind(value: Any, arrow: Any) -> Any:
    for known, kind in ((bool, arrow.bool_()), (int, arrow.int64()), (float, arrow.float64())):
        if isinstance(value, known):
            return kind
    return None if value is None else arrow.string()


def _wider(one: Any, other: Any, arrow: Any) -> Any:
    numbers = {arrow.int64(), arrow.float64()}
    return arrow.float64() if {one, other} == numbers else arrow.string()


def _array(arrow: Any, values: list[Any], kind: Any) -> Any:
    """A column; lists of numbers without making a Python object of each."""
    if not arrow.types.is_list(kind):
        return arrow.array([_as(arrow, value, kind) for value in values], kind)
    lengths = [0 if value is None else len(value) for value in values]
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, np.ndarray) for value in there):
        items = _flat(arrow, np.concatenate(there), kind.value_type)
    else:
        items = _array(arrow, [item for value in there for item in value], kind.value_type)
    offsets = arrow.array(np.concatenate([[0], np.cumsum(lengths)]), arrow.int32())
    missing = arrow.array([value is None for value in values], arrow.bool_())
    return arrow.ListArray.from_arrays(offsets, items, type=kind, mask=missing)


def _flat(arrow: Any, numbers: np.ndarray, kind: Any) -> Any:
    if numbers.ndim == 1:
        return arrow.array(numbers, kind)
    ends = np.linspace(0, numbers.size, len(numbers) + 1, dtype=np.int32)
    inner = arrow.array(numbers.ravel(), kind.value_type)
    return arrow.ListArray.from_arrays(arrow.array(ends, arrow.int32()), inner)


def _as(arrow: Any, value: Any, kind: Any) -> Any:
    """A value as a column of this kind takes it: text and structs, whatever it was."""
    if value is None:
        return None
    if arrow.types.is_struct(kind):
        return {field.name: _as(arrow, value.get(field.name), field.type) for field in kind}
    if not arrow.types.is_string(kind) or isinstance(value, str):
        return value
    return as_text(plain(value), "a cell")
