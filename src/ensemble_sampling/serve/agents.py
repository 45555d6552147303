"""Agents of the user's own, declared in a Python file that `serve --agents` names."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..code import load


class Spec(NamedTuple):
    """What a bandit is begun with; None: the default, or what its ledger says."""

    agent: Any = None
    actions: list[Any] | None = None
    floor: float | None = None
    hasher: Any = None


class Agents(NamedTuple):
    """What a file of the user's declares."""

    specs: dict[str, Spec]
    candidates: dict[str, Any]


def read_agents(path: str | os.PathLike[str] | None) -> Agents:
    """AGENTS = {name: agent, or {"agent": ..., "actions": ..., "floor": ..., "hasher": ...}} and
    CANDIDATES = {name: agent} of a Python file; one of them will do."""
    if path is None:
        return Agents({}, {})
    found = vars(load(path))
    if "AGENTS" not in found and "CANDIDATES" not in found:
        raise ValueError(f"{path} must define AGENTS = {{name: agent}} or CANDIDATES; has neither")
    for what in ("AGENTS", "CANDIDATES"):
        if not isinstance(found.get(what, {}), Mapping):
            raise ValueError(f"{path} must define {what} = {{name: agent}}; got {found[what]!r}")
    specs = {str(name): _spec(name, given) for name, given in found.get("AGENTS", {}).items()}
    return Agents(specs, {str(name): given for name, given in found.get("CANDIDATES", {}).items()})


def _spec(name: str, given: Any) -> Spec:
    if not isinstance(given, Mapping):
        return Spec(given)
    unknown = set(given) - set(Spec._fields)
    if unknown:
        raise ValueError(
            f"AGENTS[{name!r}] may have {', '.join(Spec._fields)}; got {sorted(unknown)}"
        )
    return Spec(**given)
