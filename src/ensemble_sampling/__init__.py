"""Ensemble sampling: Thompson sampling for any model."""

from typing import Any

import lazy_loader

__version__ = "0.2.0"

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_ROOMS = ("agents", "learners", "posteriors", "worlds", "networks", "evaluation", "simulation")


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is first asked for; of others, where they are."""
    try:
        return _attribute(name)
    except AttributeError as error:
        alike = [known for known in __all__ if known.lower() == name.lower()]
        if name[0].isupper():  # others may be modules, which Python is about to import
            alike += [f"{room}.{name}" for room in _ROOMS if hasattr(_attribute(room), name)]
            from difflib import get_close_matches

            alike += get_close_matches(name, __all__, 1)
        hint = f": did you mean es.{alike[0]}?" if alike else ""
        raise AttributeError(f"ensemble_sampling has no {name!r}{hint}") from error
