"""What was said in the decisions of a log, and numbers made of it: on disk where it is much."""

import math
import pickle
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..inputs.features import Inputs, precision
from ..inputs.offer import Offer, everything
from ..inputs.scale import fields_of, frozen, with_fields

IN_MEMORY = 1 << 26  # bytes of anything; more of them wait on disk
AT_ONCE = 512  # offers that are read together
CHUNK = 8192  # arrays of so many decisions are


class Said:
    """Offers in their order, of which any slice can be read again; all of their actions count as
    available, for a log knows better. Beyond `IN_MEMORY` they wait in a file without a name.

    sizes: how many actions each of them has
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (slices read it later)
        weakref.finalize(self, self._file.close)
        self._ends, self.sizes = array("q"), array("q")

    def add(self, offer: Offer) -> None:
        content = pickle.dumps((offer.actions, offer.context, offer.names), pickle.HIGHEST_PROTOCOL)
        self._file.write(content)
        self._ends.append(len(content) + (self._ends[-1] if self._ends else 0))
        self.sizes.append(len(offer.available))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, decisions: slice) -> list[Offer]:
        start, stop, _ = decisions.indices(len(self))
        begin = self._ends[start - 1] if start else 0
        self._file.seek(begin)
        content, found = memoryview(self._file.read(self._ends[stop - 1] - begin)), []
        for size, end in zip(self.sizes[start:stop], self._ends[start:stop], strict=True):
            one, content = content[: end - begin], content[end - begin :]
            begin = end
            actions, context, names = pickle.loads(one)
            found.append(Offer(actions, context, names, everything(size)))
        return found

    def __iter__(self) -> Iterator[Offer]:
        for start in range(0, len(self), AT_ONCE):
            yield from self[start : start + AT_ONCE]


class Ragged:
    """An array (K, ...) for every decision, where K differs, read as one array (n, K, ...) that is
    filled up with zeros. Beyond `IN_MEMORY` it waits in a file without a name.

    sizes: the K of every decision
    widths: how many actions each has: more, where a single row stands for all of them
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (slices read it later)
        weakref.finalize(self, self._file.close)
        self.sizes = self.widths = array("q")

    def add(self, part: np.ndarray) -> None:
        if not self.sizes:
            self.dtype, self._row = part.dtype, part.shape[1:]
        elif part.shape[1:] != self._row:
            raise ValueError(f"actions must have {self._row} features, got {part.shape[1:]}")
        self.sizes.append(len(part))
        self._file.write(part.astype(self.dtype, copy=False).tobytes())

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), max(self.widths), *self._row

    def __getitem__(self, decisions: slice) -> np.ndarray:
        start, stop, _ = decisions.indices(len(self))
        found = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for first in range(start, stop, CHUNK):  # so that little is there twice
            last = min(first + CHUNK, stop)
            found[first - start : last - start] = self._part(first, last)
        return found

    def _part(self, start: int, stop: int) -> np.ndarray:
        sizes, widths = (np.array(each[start:stop])[:, None] for each in (self.sizes, self.widths))
        count, size = sizes.sum(), math.prod(self._row) * self.dtype.itemsize
        self._file.seek(int(np.frombuffer(self.sizes, np.int64)[:start].sum()) * size)
        rows = np.frombuffer(self._file.read(count * size), self.dtype).reshape(count, *self._row)
        if (sizes == self.shape[1]).all():  # nothing to be filled up
            return rows.reshape(len(sizes), self.shape[1], *self._row)
        action = np.arange(self.shape[1])
        found = rows[np.cumsum(sizes, axis=0) - sizes + np.minimum(action, sizes - 1)]
        found[action >= widths] = 0
        return found


class Made:
    """Features (n, K, d), or (n, 1, d) where actions share them, that are made of what was said
    when they are first asked for: reading a long log need not wait for them."""

    def __init__(
        self, said: Said, tables: Callable[[], Iterable[np.ndarray]], width: int, shared: bool
    ):
        self._tables, self.dtype = tables, precision()
        self._widths = array("q", [1] * len(said)) if shared else said.sizes
        self.shape = (len(said), max(self._widths), width)

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def made(self) -> Ragged:
        made = Ragged()
        for table in self._tables():
            made.add(table)
        made.widths = self._widths
        return made

    def __getitem__(self, decisions: slice) -> np.ndarray:
        return self.made[decisions]


class _Chosen(NamedTuple):
    """What was said of the context and of the chosen action, as `Inputs.numbers_in` takes it."""

    context: str | None
    description: str | None
    features: np.ndarray = np.zeros(0)


def in_units(said: Said, chosen: array, inputs: Inputs) -> Iterator[np.ndarray]:
    """Hashed features of every decision, whose numbers are in units of the log's first outcomes, 1,
    2, 4, ... or 1024 of them, as those of the default agent are (see `Replica`): a number that
    never varied gets its unit when it first does."""

    def numbers(offer: Offer, index: int) -> dict[str, float]:
        actions, context, *_ = inputs.worded(offer)
        action = None if actions is None else str(actions[index])
        return inputs.numbers_in(_Chosen(None if context is None else str(context), action))

    first = frozen(len(said))
    fields = fields_of([numbers(*one) for one in zip(said[:first], chosen, strict=False)])
    for offer, index in zip(said, chosen, strict=True):
        fields = with_fields(fields, numbers(offer, index))
        yield inputs.table(offer, fields)
