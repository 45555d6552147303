"""What a bandit says: a decision, what it is made of, and a prediction."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Values(NamedTuple):
    """What every action is expected to bring, `mean` over the agent's models, and the standard
    error of that, `spread`: how much models as wide as the posterior differ about it."""

    mean: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and how likely that was.

    `action` is the name of the chosen action, or its `index` where actions have no names.
    `probabilities` are those the index was drawn from: `probability` is what off-policy
    evaluation divides by. `values` says what every action was expected to bring, None for agents
    that expect nothing; `ranking` is there if it was asked for.
    """

    id: str
    index: int
    action: Any
    probability: float
    probabilities: np.ndarray = field(compare=False)  # the id says which
    values: Values | None = field(compare=False, default=None)
    ranking: tuple[Any, ...] | None = field(compare=False, default=None)


class Prediction(NamedTuple):
    """What a decision would be made of: how likely every action would be, and its value."""

    probabilities: np.ndarray
    values: Values | None
