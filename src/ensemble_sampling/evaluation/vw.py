"""Logs that Vowpal Wabbit reads and writes: its text format, and decisions as JSON."""

import gzip
import json
import marshal
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TextIO

import numpy as np

from .. import checks
from ..inputs.descriptions import as_text
from ..inputs.features import HASHER, Inputs
from ..inputs.offer import Offer, everything
from ..ledger.rows import DecisionRow
from .log import Log
from .sources import gather

SAMPLE = 1000  # lines by which to tell whether examples have several
NEAR = 1e-3  # how far probabilities may be from what they should be, by rounding
WITHOUT = "lines without _label_cost"
SKIPPED = "lines to be skipped (_skipLearn)"


def read_text(path: str | os.PathLike[str], arms: int | None = None) -> Log:
    """See `Log.read_vw`."""
    if arms is not None:
        checks.size("arms", arms)
    elif not _has_blocks(path):
        arms = _largest_action(path)
    rows = _of_blocks(path) if arms is None else _of_lines(path, arms)
    return gather(rows, f"{path}", Inputs(hasher=HASHER))


def read_dsjson(path: str | os.PathLike[str]) -> Log:
    """See `Log.read_dsjson`."""
    left_out, dropped = Counter[str](), Counter[float]()
    rows = _of_dsjson(path, left_out, dropped)
    log = gather(rows, f"{path}", Inputs(hasher=HASHER), excluded=left_out)
    if len(dropped) > 1:
        warnings.warn(
            f"the decisions in {path} have {len(dropped)} values of pdrop, from {min(dropped)} to "
            f"{max(dropped)}: of some kinds more were dropped before they were logged, but every "
            "line counts once here, so that estimates are for the decisions that are left",
            stacklevel=3,
        )
    return log


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    packed = os.fspath(path).endswith(".gz")
    with (
        gzip.open(path, "rt", encoding="utf-8") if packed else open(path, encoding="utf-8") as file
    ):
        yield file  # pyright: ignore[reportReturnType]


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The lines of a file, counted from 1; what goes wrong with one says which."""
    number = 0
    try:
        with _opened(path) as file:
            for line in file:
                number += 1
                yield number, line
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}, after line {number}: {error}") from error


class _Label(NamedTuple):
    """An action, what it cost and how likely it was; None where that is not said."""

    action: int
    cost: float | None
    chance: float | None


def _parted(line: str) -> tuple[list[str], str]:
    """The words of the label, and the features. A word that touches the bar, or begins with an
    apostrophe, is a tag, which says nothing here."""
    head, _, rest = line.partition("|")
    words = head.split()
    if words and (head[-1:].strip() or words[-1][0] == "'"):
        words.pop()
    return words, rest


def _label(word: str, path: Any, number: int) -> _Label:
    """`action:cost:probability`, of which the last two may be left out."""
    action, *numbers = word.split(":")
    try:
        cost, chance = [*map(float, numbers), None, None][:2]
        fine = len(numbers) <= 2 and (cost is None or math.isfinite(cost))
        if fine and (chance is None or 0 < chance <= 1 + NEAR):
            return _Label(int(action), cost, None if chance is None else min(chance, 1.0))
    except ValueError:
        pass
    raise ValueError(
        f"{path}, line {number}: a label must be action:cost:probability, with a probability above "
        f"0 and at most 1, got {checks.shown(word)}"
    )


def _has_blocks(path: str | os.PathLike[str]) -> bool:
    """Whether examples have several lines: some line is shared, or has no label."""
    for _, line in islice(_lines(path), SAMPLE):
        if line.strip():
            words, _ = _parted(line)
            if not words or words[0] == "shared":
                return True
    return False


def _largest_action(path: str | os.PathLike[str]) -> int:
    found = 1
    for number, line in _lines(path):
        words, _ = _parted(line)
        found = max([found, *(_label(word, path, number).action for word in words)])
    return found


def _of_blocks(path: str | os.PathLike[str]) -> Iterator[DecisionRow]:
    """Decisions of `--cb_adf`: a line for each action, perhaps one that all share before them."""
    context: str | None = None
    actions: list[str] = []
    chosen: tuple[int, _Label] | None = None
    begun = 0
    for number, line in _with_end(path):
        if not line.strip():
            if begun and not actions:
                raise ValueError(f"{path}, line {begun}: an example must have actions, got none")
            if begun:
                offer = Offer(actions, context, None, everything(len(actions)))
                yield _decided(offer, chosen)
            context, actions, chosen, begun = None, [], None, 0
            continue
        words, rest = _parted(line)
        if words == ["shared"]:
            if begun:
                raise ValueError(
                    f"{path}, line {number}: the shared line must be the first of an example: is "
                    "the empty line before it missing?"
                )
            context = _described(rest, path, number, "context")
        else:
            if len(words) > 1 or (words and chosen is not None):
                raise ValueError(
                    f"{path}, line {number}: an example of --cb_adf has one label, got another, "
                    f"{words[-1]!r}; for --cb K say arms=K"
                )
            if words:
                chosen = len(actions), _label(words[0], path, number)
            actions.append(_described(rest, path, number, "action"))
        begun = begun or number


def _with_end(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The lines, and an empty one."""
    yield from _lines(path)
    yield 0, ""


def _of_lines(path: str | os.PathLike[str], arms: int) -> Iterator[DecisionRow]:
    """Decisions of `--cb K`: a line each. Where several actions are in the label, they are all that
    could be chosen, and one of them has a cost."""
    names, every = list(range(1, arms + 1)), everything(arms)
    for number, line in _lines(path):
        if not line.strip():
            continue
        words, rest = _parted(line)
        labels = [_label(word, path, number) for word in words if word != "shared"]
        known = [label for label in labels if label.cost is not None]
        if len(labels) < len(words) or len(known) > 1:
            raise ValueError(
                f"{path}, line {number}: a line of --cb {arms} has one cost, got "
                f"{checks.shown(' '.join(words))}; for --cb_adf leave out arms"
            )
        for label in labels:
            if not 1 <= label.action <= arms:
                raise ValueError(
                    f"{path}, line {number}: an action must be 1 to {arms}, got {label.action}"
                )
        free = every
        if len(labels) > 1:
            free = np.isin(names, [label.action for label in labels])
        offer = Offer(None, _described(rest, path, number, "context"), names, free)
        yield _decided(offer, (known[0].action - 1, known[0]) if known else None)


def _decided(offer: Offer, chosen: tuple[int, _Label] | None) -> DecisionRow:
    """A decision of which the chosen action's probability is known."""
    index, label = chosen or (0, _Label(0, None, None))
    shares = np.array([] if label.chance is None else [label.chance])
    reward = None if label.cost is None else 0.0 - label.cost
    row = DecisionRow(0, 0.0, index, None, np.zeros(0), shares, foreign=True, offer=offer)
    return row._replace(outcome=reward, reward=reward)


def _described(text: str, path: Any, number: int, what: str) -> str:
    try:
        return _as_json(text, what)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


@lru_cache(maxsize=2**14)
def _as_json(text: str, what: str) -> str:
    """The features behind the first bar as JSON; actions are said again and again."""
    return as_text(features(text), what)


def features(text: str) -> dict[str, Any]:
    """`User device=phone hour:8 |Item new` as {"User": {"device": "phone", "hour": 8.0}, "Item":
    {"new": True}}; what has no namespace is at the top."""
    found: dict[str, Any] = {}
    for part in text.split("|"):
        said, terms, weight = found, part.split(), 1.0
        if part[:1].strip():
            name, _, by = terms.pop(0).partition(":")
            weight = float(by) if by else 1.0
            said = found.get(name)
            if not isinstance(said, dict):
                _say(found, name, said := {})
        for term in terms:
            _say(said, *_term(term, weight))
    return found


def _term(term: str, weight: float) -> tuple[str, Any]:
    """A feature by name; in a namespace of a weight everything is a number."""
    name, colon, value = term.partition(":")
    if not colon:
        name, equal, word = term.partition("=")
        if weight != 1.0 or not name or not equal:
            return term, True if weight == 1.0 else weight
        return name, word
    try:
        number = float(value) * weight
    except ValueError:
        return (name, value) if weight == 1.0 else (f"{name}={value}", weight)
    if math.isinf(number):
        raise ValueError(f"a feature must be finite, got {checks.shown(term)}")
    return name, None if math.isnan(number) else number


def _say(said: dict[str, Any], name: str, value: Any) -> None:
    """What is said twice is a list."""
    if name not in said:
        said[name] = value
    elif isinstance(said[name], list):
        said[name].append(value)
    else:
        said[name] = [said[name], value]


def _of_dsjson(
    path: str | os.PathLike[str], left_out: Counter[str], dropped: Counter[float]
) -> Iterator[DecisionRow]:
    """Decisions of lines like {"_label_cost": ..., "_label_probability": ..., "_labelIndex": ...,
    "a": [...], "p": [...], "c": {..., "_multi": [...]}}; `dropped` counts what `pdrop` says."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError(f"a line must be an object, got {checks.shown(event)}")
            why = WITHOUT if "_label_cost" not in event else SKIPPED
            if why == WITHOUT or event.get("_skipLearn"):
                left_out[why] += 1
                continue
            yield _of_event(event)
            dropped[float(event.get("pdrop") or 0.0)] += 1
        except (KeyError, TypeError, ValueError) as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{path}, line {number}: {said}") from error


def _of_event(event: dict[str, Any]) -> DecisionRow:
    around, cost, chance = event["c"], event["_label_cost"], event["_label_probability"]
    actions = [_action(marshal.dumps(one, 2)) for one in around["_multi"]]
    index = _chosen(event, len(actions))
    for name, value in (("_label_cost", cost), ("_label_probability", chance)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise TypeError(f"{name} must be a finite number, got {checks.shown(value)}")
    if not 0 < chance <= 1 + NEAR:
        raise ValueError(f"_label_probability must be above 0 and at most 1, got {chance}")
    shares, foreign = np.array([min(chance, 1.0)]), True
    if "p" in event:
        shares, foreign = _shares(event["a"], event["p"], len(actions)), False
        if abs(shares[index] - chance) > NEAR:
            raise ValueError(
                f"_label_probability is {chance}, but p says {shares[index]:g} of that action"
            )
    context = as_text(_plain(around), "context")
    offer = Offer(actions, context, None, everything(len(actions)))
    row = DecisionRow(0, 0.0, index, None, np.zeros(0), shares, foreign=foreign, offer=offer)
    return row._replace(outcome=0.0 - cost, reward=0.0 - cost)


@lru_cache(maxsize=2**14)
def _action(content: bytes) -> str:
    """What was said of an action, which is said again and again, as JSON."""
    return as_text(_plain(marshal.loads(content)), "action")


def _chosen(event: dict[str, Any], size: int) -> int:
    """Which of the actions was chosen: by its position, or by its number, which is one more."""
    known, places = {}, set()
    for name, first in (("_labelIndex", 0), ("_label_Action", 1)):
        if (number := event.get(name)) is not None:
            known[name] = number
            places.add(number - first if type(number) is int else -1)
    if len(places) != 1 or not 0 <= min(places) < size:
        raise ValueError(
            f"_labelIndex, or _label_Action less one, must be one of the {size} actions in _multi, "
            f"got {known or 'neither'}"
        )
    return places.pop()


def _shares(numbers: Any, chances: Any, size: int) -> np.ndarray:
    """The probabilities of all actions, from those of some of them by their numbers."""
    found = np.zeros(size)
    if len(numbers) != len(chances) or not all(1 <= n <= size for n in numbers):
        raise ValueError(
            f"a must hold numbers of actions, 1 to {size}, and p as many probabilities, got "
            f"{checks.shown(numbers)} and {checks.shown(chances)}"
        )
    found[np.array(numbers, int) - 1] = chances
    total = found.sum()
    if not abs(total - 1) < NEAR or found.min() < 0:
        raise ValueError(f"p must be at least 0 and sum to 1, got {checks.shown(chances)}")
    return found / total


def _plain(value: Any) -> Any:
    """What is said, without keys that begin with _, but for words in _text. Lists of numbers are
    told apart by position."""
    if isinstance(value, dict):
        words = value.get("_text")
        found = {name: _plain(inner) for name, inner in value.items() if name[:1] != "_"}
        return {**found, "_text": words.split()} if isinstance(words, str) else found
    if isinstance(value, list):
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
            return {str(at): one for at, one in enumerate(value)}
        return [_plain(one) for one in value]
    return value
