"""What a bandit says: a decision, what it is made of, and a prediction."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Values(NamedTuple):
    """What every action is expected to bring, `mean` over the agent's models, and how much they
    differ about it: the standard deviation `spread`."""

    mean: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and how likely that was.

    `action` is the name of the chosen action, or its `index` where actions have no names.
    `probabilities` are those the index was drawn from: `probability` is what off-policy
    evaluation divides by. `values` says what every action was expected to bring, None for agents
    that expect nothing; `ranking` is there if it was asked for.
    `control` says whether it was left to the baseline, None where nothing is held back. `again`:
    the decision that holds for its subject already, `index` being where its action is now.
    """

    id: str
    index: int
    action: Any
    probability: float
    probabilities: np.ndarray = field(compare=False)  # the id says which
    values: Values | None = field(compare=False, default=None)
    ranking: tuple[Any, ...] | None = field(compare=False, default=None)
    control: bool | None = field(compare=False, default=None)
    again: bool = field(compare=False, default=False)


class Prediction(NamedTuple):
    """What a decision would be made of: how likely every action would be, and its value."""

    probabilities: np.ndarray
    values: Values | None
