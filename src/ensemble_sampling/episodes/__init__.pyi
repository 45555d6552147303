"""The public names of this room; see the package's own stub."""

from .adapters import Gymnasium, Gymnax
from .deep_sea import DeepSea
from .dqn import DQN, BootstrappedDQN
from .least_squares import LinearRLSVI
from .loop import Event, Measure, play, realization
from .networks import Lookup
from .planning import PSRL, RLSVI
from .run import learning_times, simulate, sweep
from .tables import Table, chain, river_swim
from .world import Agent, Episode, Policy, Step, World

__all__ = [
    "DQN",
    "PSRL",
    "RLSVI",
    "Agent",
    "BootstrappedDQN",
    "DeepSea",
    "Episode",
    "Event",
    "Gymnasium",
    "Gymnax",
    "LinearRLSVI",
    "Lookup",
    "Measure",
    "Policy",
    "Step",
    "Table",
    "World",
    "chain",
    "learning_times",
    "play",
    "realization",
    "river_swim",
    "simulate",
    "sweep",
]
