"""Simulated worlds: the loop over periods, its programs, chunks, engines, checkpoints, results."""

from .cluster import Ray
from .loop import Event, Measure, realization
from .plot import plot
from .programs import chunk_size, footprint, memory
from .progress import Progress
from .results import Result, load_result, mean_and_error, numbers
from .run import Engine, Local, Moments, simulate
from .sweep import sweep
from .table import Best, Sweep

__all__ = [
    "Best",
    "Engine",
    "Event",
    "Local",
    "Measure",
    "Moments",
    "Progress",
    "Ray",
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
