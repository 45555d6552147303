"""For the API reference: the lines `name: what it is` of our docstrings become a list."""

import re
from typing import Any

import griffe

LINE = re.compile(r"^(\w+(?:, \w+)*): ")


def listed(text: str) -> str:
    """Parameters as Markdown; a continuation is indented below its first line."""
    found, within = [], False
    for line in text.splitlines():
        begins = LINE.match(line) and (within or not found or not found[-1].strip())
        if begins:
            line = LINE.sub(r"- **\1**: ", line)
            within = True
        elif line.strip() and not line.startswith(" "):
            within = False
        found.append(line)
    return "\n".join(found)


class Parameters(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)
