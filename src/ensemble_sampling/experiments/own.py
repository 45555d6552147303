"""A study in a file of the user's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..code import load
from .declare import Figure
from .study import Study

EXPECTED = "STUDY = es.Study(title, [es.Experiment(...)], claims=[...])"


def from_file(path: str | os.PathLike[str]) -> Study:
    """What a Python file calls STUDY."""
    names = vars(load(path))
    if "STUDY" not in names:
        parts = [n for n, v in names.items() if hasattr(v, "jobs") or isinstance(v, Figure)]
        has = f"; it has {', '.join(parts)}, which belong into it" if parts else ""
        raise ValueError(f"{path} must define {EXPECTED}{has}")
    study = names["STUDY"]
    if not isinstance(study, Study):
        raise ValueError(f"{path} must define {EXPECTED}; it says STUDY = {study!r}")
    return study


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """What does not fit in a study is said with the name of its file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
