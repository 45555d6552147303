"""Simulated worlds: the loop over periods, its execution, checkpoints, progress and results."""

from .execution import chunk_size, footprint, memory
from .loop import Event, Measure, realization
from .plots import plot
from .progress import Progress
from .results import Moments, Result, mean_and_error, numbers
from .run import simulate
from .stored import load_result
from .sweep import sweep
from .table import Best, Sweep

__all__ = [
    "Best",
    "Event",
    "Measure",
    "Moments",
    "Progress",
    "Result",
    "Sweep",
    "chunk_size",
    "footprint",
    "load_result",
    "mean_and_error",
    "memory",
    "numbers",
    "plot",
    "realization",
    "simulate",
    "sweep",
]
