"""Agents of the user's own, declared in a Python file that `serve --agents` names."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..code import load
from ..decide.setup import Options

SETTINGS = ("agent", "actions", "floor", "hasher")
RULE = "baseline"


class Agents(NamedTuple):
    """What a file of the user's declares: what bandits are begun with, what may become one of their
    shadows, and the functions that decide for their control groups, by name."""

    options: dict[str, Options]
    candidates: dict[str, Any]
    rules: dict[str, Any]


def read_agents(path: str | os.PathLike[str] | None) -> Agents:
    """AGENTS = {name: agent, or {"agent": ..., "actions": ..., "floor": ..., "hasher": ...,
    "baseline": function}} and CANDIDATES = {name: agent} of a Python file; one of them will do."""
    if path is None:
        return Agents({}, {}, {})
    found = vars(load(path))
    if "AGENTS" not in found and "CANDIDATES" not in found:
        raise ValueError(f"{path} must define AGENTS = {{name: agent}} or CANDIDATES; has neither")
    for what in ("AGENTS", "CANDIDATES"):
        if not isinstance(found.get(what, {}), Mapping):
            raise ValueError(f"{path} must define {what} = {{name: agent}}; got {found[what]!r}")
    agents, candidates = found.get("AGENTS", {}), found.get("CANDIDATES", {})
    options = {str(name): _options(name, given) for name, given in agents.items()}
    rules = {
        str(name): given[RULE]
        for name, given in agents.items()
        if isinstance(given, Mapping) and RULE in given
    }
    return Agents(options, {str(name): given for name, given in candidates.items()}, rules)


def _options(name: str, given: Any) -> Options:
    if not isinstance(given, Mapping):
        return Options(given)
    if unknown := set(given) - {*SETTINGS, RULE}:
        known = ", ".join([*SETTINGS, RULE])
        raise ValueError(f"AGENTS[{name!r}] may have {known}; got {sorted(unknown)}")
    if not callable(given.get(RULE, callable)):
        raise ValueError(
            f"AGENTS[{name!r}] may have a function of a context and the actions as {RULE}, got "
            f"{given[RULE]!r}: others are settings"
        )
    return Options(**{key: value for key, value in given.items() if key != RULE})
