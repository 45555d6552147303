"""Simulated worlds: the loop over periods, its execution, checkpoints, progress and results."""

from .execution import chunk_size, footprint, memory
from .loop import Event, Measure, realization
from .progress import Progress
from .results import Moments, Result, mean_and_error, numbers
from .run import simulate

__all__ = [
    "Event",
    "Measure",
    "Moments",
    "Progress",
    "Result",
    "chunk_size",
    "footprint",
    "mean_and_error",
    "memory",
    "numbers",
    "realization",
    "simulate",
]
