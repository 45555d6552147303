"""The agent of a folder, made again from what the folder recorded of it."""

import inspect
from typing import Any

import numpy as np

from .. import agents, learners, networks, posteriors
from ..config import describe, differences
from ..core import Agent


def rebuild(description: Any) -> Agent | None:
    """The agent that is described so; None where the record does not say all of it, as of
    functions, large arrays and classes of one's own."""
    try:
        agent = _part(description)
        return None if differences(description, describe(agent)) else agent
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def called(said: Any) -> str:
    """What it is, in a few words: the types it is made of, from outside to inside."""
    if not isinstance(said, dict) or "type" not in said:
        return ""
    inside = next(filter(None, map(called, said.values())), "")
    return " of ".join(filter(None, [said["type"].rpartition(".")[2], inside]))


def _part(said: Any) -> Any:
    """A setting, or a part made by its class from its settings."""
    if isinstance(said, list):
        return tuple(map(_part, said))
    if not isinstance(said, dict):
        return said
    maker = _class(said["type"])
    known = {**(said.get("posterior") or {}), **said}  # an agent's learner is in its posterior
    wanted = inspect.signature(maker).parameters
    given = {name: _part(known[name]) for name in wanted if name in known}
    if (root := said.get("prior_root")) is not None:  # of the covariance, as it is kept
        root = np.array(root)
        even = (root == root.flat[0] * np.eye(len(root))).all() if root.ndim else True
        given["prior_std" if even else "prior_cov"] = root.flat[0].item() if even else root @ root.T
    return maker(**given)


def _class(name: str) -> Any:
    """A class of ours by its recorded name, which does not say the file."""
    package, _, name = name.rpartition(".")
    rooms = [room for room in (agents, posteriors, learners, networks) if hasattr(room, name)]
    if package != "ensemble_sampling" or not rooms:
        raise KeyError(name)
    return getattr(rooms[0], name)
