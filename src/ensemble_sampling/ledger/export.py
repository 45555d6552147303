"""The log of a bandit's folder as a file, written a few decisions at a time."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..extras import need
from ..files import write_atomically
from ..inputs.descriptions import as_text
from .columns import COLUMNS, Entries, plain
from .ledger import DecisionRow, Ledger
from .sqlite import as_place

SPECIAL = re.compile('[,"\n\r]')  # in a cell of a CSV file
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
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
    rows, size, entry = ledger.all(offers=True), 64, Entries(ledger.decision_id)
    while found := list(islice(rows, size)):
        yield list(map(entry, found))
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
    before: Sequence[Any] = tuple(COLUMNS)
    cells = list(before)
    file.write(f"{','.join(cells)}\r\n".encode())
    for entries in _chunks(ledger):
        lines = []
        for values in entries:
            cells = [
                cell if value is last else _cell(value)  # which takes long where it is much
                for value, last, cell in zip(values, before, cells, strict=True)
            ]
            lines.append(",".join(cells))
            before = values
        file.write("\r\n".join([*lines, ""]).encode())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        text = f"[{','.join(map(_number, value.tolist()))}]"  # probabilities are often the same
    else:
        text = value if isinstance(value, str) else _as_json(plain(value))
    if SPECIAL.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


@lru_cache(2**14, typed=True)
def _number(value: float | bool) -> str:
    return _as_json(value)


def _as_json(value: Any) -> str:
    """Of any length; `as_text` knows timestamps and what is missing, and takes longer."""
    try:
        return _encoded(value)
    except (TypeError, ValueError):
        if isinstance(value, list):
            return f"[{','.join(map(_as_json, value))}]"
        return as_text(value, "a cell")


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
    lines = (line for said in ledger.stream("items", "said") for line in said.split("\n"))
    actions = _kind((line.split("\t", 1)[1] for line in lines), arrow)
    around = _kind(ledger.stream("decisions", "context"), arrow)
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
    """A column; lists of numbers without making a Python object of each, and what is the same
    object again only once."""
    if arrow.types.is_struct(kind):
        there = [{} if value is None else value for value in values]
        fields = [_array(arrow, [one.get(f.name) for one in there], f.type) for f in kind]
        missing = arrow.array([value is None for value in values], arrow.bool_())
        return arrow.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if arrow.types.is_string(kind):
        return arrow.array([_as_words(value) for value in values], kind)
    if not arrow.types.is_list(kind):
        return arrow.array(values, kind)
    distinct = {id(value): value for value in values}
    if 2 * len(distinct) < len(values):
        places = {key: n for n, key in enumerate(distinct)}
        found = _array(arrow, list(distinct.values()), kind)
        return found.take(arrow.array([places[id(value)] for value in values]))
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


def _as_words(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _as_json(plain(value))
