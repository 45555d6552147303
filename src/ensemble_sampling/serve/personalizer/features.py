"""Features as Personalizer has them, lists of objects, as descriptions that a hasher takes."""

from collections.abc import Iterable, Mapping
from typing import Any

DEEPEST = 16  # objects within objects


def described(features: Iterable[Mapping[str, Any] | None] | None) -> dict[str, Any]:
    """All values by the path to them: [{"user": {"age": 3}}] is {"user.age": 3}.

    Nested and flat descriptions are hashed alike, and a flat one is looked up more quickly. A list
    of numbers is a vector, one feature for each position; a path with several values has a list.
    """
    flat: dict[str, Any] = {}
    for part in features or ():
        _flatten("", part or {}, flat, 0)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, Any], depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"features are nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(f"{key}.{name}" if key else name, inner, flat, depth + 1)
    elif isinstance(value, list):
        vector = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
        for at, one in enumerate(value):
            _flatten(f"{key}.{at}" if vector else key, one, flat, depth + 1)
    elif key in flat:
        known = flat[key]
        flat[key] = [*(known if isinstance(known, list) else [known]), value]
    else:
        flat[key] = value
