"""Candidates in a file of the user's, compared on the log of a bandit."""

import os
from collections.abc import Mapping
from typing import Any

from ..code import load
from .evaluate import evaluate
from .log import Log
from .results import LOGGED, Comparison


def candidates(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a Python file calls CANDIDATES: a dictionary from names to policies."""
    found = vars(load(path)).get("CANDIDATES")
    if not isinstance(found, Mapping) or not found:
        what = "has no CANDIDATES" if found is None else f"says CANDIDATES = {found!r}"
        raise ValueError(f"{path} must define CANDIDATES = {{name: agent or function}}; it {what}")
    return {str(name): given for name, given in found.items()}


def compare(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], baseline: str = LOGGED
) -> Comparison:
    """The candidates of a file on the log of the bandit in a folder, also while it is running."""
    given = candidates(path)
    try:
        return evaluate(Log.of(folder), given, baseline=baseline)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
