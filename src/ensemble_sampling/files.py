"""Files that are whole or absent, also through a crash."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Any], Any]) -> None:
    """All of the file or nothing of it: `write` gets the open file."""
    temporary = path.with_suffix(path.suffix + f".{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
