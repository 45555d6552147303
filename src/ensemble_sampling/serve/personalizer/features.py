"""Features as Personalizer has them, lists of objects, as descriptions that a hasher takes."""

from collections.abc import Iterable, Mapping
from typing import Any

DEEPEST = 16  # objects within objects


def described(features: Iterable[Mapping[str, Any] | None] | None) -> dict[str, Any]:
    """All that is said, by the path to it: [{"user": {"age": 3}}] is {"user.age": 3}.

    What is nested and what is not are hashed alike, and a flat description is found again more
    quickly. A list of numbers is a vector, told apart by position; what is said twice is a list.
    """
    said: dict[str, Any] = {}
    for part in features or ():
        _say("", part or {}, said, 0)
    return said


def _say(key: str, value: Any, said: dict[str, Any], depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"features are nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        for name, inner in value.items():
            _say(f"{key}.{name}" if key else name, inner, said, depth + 1)
    elif isinstance(value, list):
        vector = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
        for at, one in enumerate(value):
            _say(f"{key}.{at}" if vector else key, one, said, depth + 1)
    elif key in said:
        known = said[key]
        said[key] = [*(known if isinstance(known, list) else [known]), value]
    else:
        said[key] = value
