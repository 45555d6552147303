"""The public names of this room, beside `es.evaluate` and `es.replay`."""

from .informed import Informed
from .log import Log
from .world import Logged

__all__ = ["Informed", "Log", "Logged"]
