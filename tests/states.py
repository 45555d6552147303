"""States of bandits compared, and calls that are interrupted."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def equal(one: Any, other: Any) -> bool:
    """Whether two states are the same bit for bit."""
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def interrupted(line: int, call: Callable[[], Any], within: str) -> Any:
    """The result of a call that is interrupted at the given line of the files `within` a folder,
    counted as they run."""
    count, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(within):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)
