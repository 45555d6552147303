"""What a bandit says: a decision, what it is made of, and a prediction."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..tables import Table, html_facts, series


class Values(NamedTuple):
    """What every action is expected to bring, `mean` over the agent's models, and the standard
    error of that, `spread`: how much models as wide as the posterior differ about it."""

    mean: np.ndarray
    spread: np.ndarray

    def __repr__(self) -> str:
        return f"Values(mean={series(self.mean)}, spread={series(self.spread)})"


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and how likely that was.

    `action` is the name of the chosen action, or its `index` where actions have no names.
    `probabilities` are those the index was drawn from: `probability` is what off-policy evaluation
    divides by. `values` says what every action was expected to bring, None for agents without
    models. `ranking` is None unless you asked for the `top` actions. `control` says whether the
    baseline made it, None where nothing is held back. `again` says that the subject has this
    decision already; `index` is then the place of its action in this offer.
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

    def __repr__(self) -> str:
        ranked = "" if self.ranking is None else f", ranking={list(self.ranking)}"
        return (
            f"Decision({self.action!r}, probability={self.probability:.4g} among "
            f"{len(self.probabilities)} actions{ranked}, id={self.id!r})"
        )

    def _repr_html_(self) -> str:
        facts = {"probability": self.probability, "among": f"{len(self.probabilities)} actions"}
        if self.values is not None:
            mean, spread = (value[self.index] for value in self.values)
            facts["expected to bring"] = f"{mean:.4g} ± {spread:.4g}"
        return html_facts(f"decision {self.id}", {"action": str(self.action), **facts})


class Prediction(NamedTuple):
    """The probabilities and values of a decision that was not made."""

    probabilities: np.ndarray
    values: Values | None

    def __repr__(self) -> str:
        worth = "" if self.values is None else f", values={self.values!r}"
        return f"Prediction(probabilities={series(self.probabilities)}{worth})"

    def _repr_html_(self) -> str:
        columns: dict[str, Any] = {"probability": self.probabilities}
        if self.values is not None:
            columns |= self.values._asdict()
        return Table(index=range(len(self.probabilities)), **columns)._repr_html_()
