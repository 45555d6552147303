"""The agent of a bandit that was given none: it is told nothing and learns the rest."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..agents import ThompsonSampling
from ..core import Agent
from ..learners.arms import IndependentArms
from ..learners.blend import Blend
from ..learners.linear import Linear
from ..learners.per_action import PerAction
from ..learners.random_features import RandomFeatures, Waves
from ..persistent import Persistent
from ..posteriors.ensemble import Ensemble


@dataclass(frozen=True)
class Default:
    """Everything the default agent is made of. A folder records it, so that a later version with
    other numbers here goes on with those that the folder was begun with.

    An ensemble of models with a learned scale, each a blend (see `Blend`) of two that are linear:
    one in the features and in smooth and fine waves of them, one in the features alone, for where
    that is enough. There is one for each of a fixed set of actions (which are then all tried now
    and again, see `Persistent`), or one for all where actions come and go. Descriptions that are
    hashed have no waves: their pairs are features already, and the second model is one of a
    narrower prior, for most of them mean nothing.

    kind: which way of putting these together; another one would be another agent.
    spread: of the members before the first outcome, in units of the noise: their perturbations are
        inflated by so much over the length of a row of features. Members that spread as widely as
        the posterior explore long after it has ceased to pay, since contexts that differ make even
        a greedy choice explore.
    """

    members: int = 64
    spread: float = 1.3
    smooth: tuple[int, float, float] = (80, 1.0, 2.0)
    fine: tuple[int, float, float] = (80, 3.0, 1.0)
    shrink: float = 0.3
    trust: float = 0.05
    faith: float = 2.0
    tries: float = 1.0
    chance: float = 0.5
    terms: int = 16
    kind: int = 2

    @classmethod
    def recorded(cls, settings: dict[str, Any]) -> "Default":
        """That of a folder, as `settings` wrote it."""
        if unknown := settings.keys() - {setting.name for setting in fields(cls)}:
            raise ValueError(
                f"the folder's default agent has the settings {sorted(unknown)}, which this "
                "version does not know: update ensemble-sampling"
            )
        if settings.get("kind") != cls.kind:
            raise ValueError(
                f"the folder's default agent is of kind {settings.get('kind', 1)}, from before the "
                f"first release, and this version makes kind {cls.kind}: Bandit.migrate(folder) "
                "replays its history into that one"
            )
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings.items()
        }
        return cls(**plain)

    @property
    def settings(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def agent(self, arms: int | None, width: int, hashed: bool) -> Agent:
        """For rows of `width` features, and a fixed number of actions or any."""
        if width == 0:
            if arms is None:
                raise ValueError("actions that come and go must be described by features")
            return ThompsonSampling(Ensemble(IndependentArms(arms), self.members))
        waves = () if hashed else (Waves(*self.smooth), Waves(*self.fine))
        plain = Linear(width, prior_std=self.shrink) if hashed else Linear(width)

        def learner(width: int) -> Any:
            blend = Blend((Linear(width), plain), self.trust, self.faith)
            return blend if arms is None else PerAction(blend, arms)

        length = (self.terms if hashed else width) + sum(w.amplitude**2 for w in waves)
        model = RandomFeatures(learner, width, waves) if waves else learner(width)
        inflation = self.spread / math.sqrt(1 + length)
        posterior = Ensemble(model, self.members, inflation=inflation)
        if arms is None:
            return ThompsonSampling(posterior)
        return Persistent(posterior, self.tries, self.chance)
