"""What is said of an action or a context, as JSON text.

The text is what a ledger keeps, what tells two descriptions apart, and what is parsed only once.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from .. import checks

DEEPEST = 64  # lists and dictionaries within one another
DESCRIPTION_LETTERS = 2**16  # characters of one description
LARGEST = checks.LARGEST_DATUM
BEGINNING = date(2020, 1, 1).toordinal()  # days are counted from here, in years
TIME, SPAN = "$time", "$seconds"  # how JSON has timestamps and time spans
Term = tuple[str, float, bool]
"""A name, how much of it there is, and whether that is a number someone gave."""

_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


def as_text(given: Any, what: str) -> str:
    """A description of text, numbers, timestamps, lists and dictionaries as JSON.

    what: "action" or "context", for messages.
    """
    try:
        text = _encoded(given)
    except (TypeError, ValueError, RecursionError):  # more than JSON has: slower
        text = _encoded(_plain(given, what, 1))
    if len(text) > DESCRIPTION_LETTERS:
        raise ValueError(
            f"the description of {_an(what)} has {len(text)} characters as JSON, and at most "
            f"{DESCRIPTION_LETTERS} are accepted (DESCRIPTION_LETTERS in "
            "ensemble_sampling.inputs.descriptions)"
        )
    if text.count("{") + text.count("[") > DEEPEST:
        _plain(given, what, 1)  # says where it is too deep, if it is
    if not text.isascii() and not checks.encodable(text):
        raise ValueError(f"a description must be text that UTF-8 can encode, got {text!r}")
    return text


def _an(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _plain(value: Any, where: str, depth: int) -> Any:
    """As JSON has it: what is missing as null, timestamps and time spans with a tag."""
    if depth > DEEPEST and isinstance(value, Mapping | list | tuple | set | frozenset):
        raise ValueError(
            f"{where.split('.')[0]} contains itself, or is nested deeper than {DEEPEST} "
            "(DEEPEST in ensemble_sampling.inputs.descriptions)"
        )
    value = _native(value)
    if missing(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{where}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return [_plain(item, where, depth + 1) for item in value]
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | Decimal):
        return _number(value, where)
    if isinstance(value, date):
        return {TIME: value.isoformat()}
    if isinstance(value, timedelta):
        return {SPAN: value.total_seconds()}
    raise TypeError(
        f"{where} must be text, a number, a timestamp, a list or a dictionary, got {value!r}"
    )


def _native(value: Any) -> Any:
    """A scalar of NumPy as Python has it; its nanoseconds would become mere integers."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"
        return value.astype(kind).item()
    return value.item()


def _number(value: Any, where: str) -> Any:
    if not abs(value) < LARGEST:
        said = checks.shown(value)
        raise ValueError(f"{where} must be finite and below {LARGEST:g}, got {said}")
    return float(value) if isinstance(value, Decimal) else value


def missing(value: Any) -> bool:
    """Whether it stands for a value that is not there: None, NaN, or pandas' NaT and NA."""
    if value is None or value is getattr(sys.modules.get("pandas"), "NA", None):
        return True
    kinds = float | np.floating | datetime | np.datetime64 | np.timedelta64
    return isinstance(value, kinds) and bool(value != value)


def from_text(text: str | None) -> Any:
    """What was said."""
    return None if text is None else json.loads(text, object_hook=_revived)


def _revived(found: dict[str, Any]) -> Any:
    """A timestamp or a time span where that is what a dictionary says, else the dictionary."""
    if len(found) == 1 and (TIME in found or SPAN in found):
        ((tag, value),) = found.items()
        with suppress(ValueError, OverflowError):
            if tag == TIME and isinstance(value, str):
                return datetime.fromisoformat(value) if "T" in value else date.fromisoformat(value)
            if tag == SPAN and isinstance(value, int | float) and not isinstance(value, bool):
                return timedelta(seconds=value)
    return found


@lru_cache(maxsize=2**14)
def numbers_of(text: str) -> dict[str, float] | None:
    """The fields of a description that says nothing but numbers and truth values by name, those
    that are missing as NaN; None for any other."""
    found = json.loads(text)
    if not isinstance(found, dict) or not found:
        return None
    if not all(value is None or isinstance(value, int | float) for value in found.values()):
        return None
    return {k: np.nan if v is None else float(_number(v, k)) for k, v in found.items()}


@lru_cache(maxsize=2**14)
def terms_of(text: str, where: str) -> tuple[Term, ...]:
    """Everything a description says, in the order of names, so that sums do not depend, in
    rounding, on the order in which it was said."""
    said = from_text(text)
    if isinstance(said, list) and not any(isinstance(v, str | bool | list | dict) for v in said):
        said = {str(place): value for place, value in enumerate(said)}  # a row of numbers
    return tuple(sorted(_terms(said, where)))


def _terms(said: Any, where: str) -> Iterator[Term]:
    if said is None:
        if where not in ("action", "context"):  # of which nothing is said at all
            yield f"{where}=missing", 1.0, False
    elif isinstance(said, Mapping):
        for name, value in said.items():
            yield from _terms(value, f"{where}.{name}")
    elif isinstance(said, list):
        for item in said:
            yield from _terms(item, where)
    elif isinstance(said, str | bool):
        yield f"{where}={said}", 1.0, False
    elif isinstance(said, date):
        yield from _moment(said, where)
    elif isinstance(said, timedelta):
        yield where, said.total_seconds() / 86400, True
    else:
        yield where, float(_number(said, where)), True


def _moment(when: date, where: str) -> Iterator[Term]:
    """A timestamp, or a day, as its own clock has it."""
    yield f"{where}.weekday={when.weekday()}", 1.0, False
    passed = float(when.toordinal() - BEGINNING)
    if isinstance(when, datetime):
        yield f"{where}.hour={when.hour}", 1.0, False
        passed += (when.hour + when.minute / 60) / 24
    yield f"{where}.day", passed / 365.25, True
