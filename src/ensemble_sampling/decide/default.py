"""The agent of a bandit that was given none: it is told nothing and learns the rest."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .. import checks
from ..agents.persistent import Persistent
from ..agents.thompson import ThompsonSampling
from ..agents.widening import Widening
from ..core import Agent
from ..learners.arms import IndependentArms
from ..learners.linear import Linear
from ..learners.random_features import RandomFeatures, Waves
from ..learners.several import Blend, PerAction
from ..posteriors.ensemble import Ensemble
from ..posteriors.restarting import Restarting


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

    Many actions have few waves each, or none: they have few outcomes each to learn them from, and
    the memory that a model takes grows with the square of its waves.

    kind: which way of putting these together; another one would be another agent.
    spread: of the members before the first outcome, in units of the noise: their perturbations are
        inflated by so much over the length of a row of features. Members that spread as widely as
        the posterior explore long after it has ceased to pay, since contexts that differ make even
        a greedy choice explore.
    share: of all decisions that tries take, see `Persistent`; None is no bound.
    most: waves of a kind, of all actions together; None is no bound.
    widen: where actions come and go, members spread more about an action about which they differ
        by so many times as much as about the best one, see `Widening`; None is never.
    stray: how many times farther from their median than usual an outcome can count, see `Usual`.
    odds: outcomes between two false alarms that the world has changed, see `Restarting`; None never
        starts again.
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
    share: float | None = 0.05
    most: int | None = 8000
    widen: float | None = 3.0
    stray: float = 20.0
    odds: float | None = 20_000.0
    kind: int = 3

    @classmethod
    def recorded(cls, settings: dict[str, Any]) -> "Default":
        """That of a folder, as `settings` wrote it: one that says no `odds` notices no change."""
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
        return cls(**{"odds": None, **plain})

    def as_told(self, steady: bool | None) -> "Default":
        """The same for a world that is known to stay as it is, or not."""
        if steady is None:
            return self
        return replace(self, odds=None if checks.flag("steady", steady) else type(self).odds)

    @property
    def settings(self) -> dict[str, Any]:
        said = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {k: v for k, v in said.items() if k != "odds" or v is not None}

    def agent(self, arms: int | None, width: int, hashed: bool) -> Agent:
        """For rows of `width` features, and a fixed number of actions or any."""
        if width == 0:
            if arms is None:
                raise ValueError("actions that come and go must be described by features")
            return ThompsonSampling(self._restarting(Ensemble(IndependentArms(arms), self.members)))
        waves = () if hashed else self._waves(arms)
        plain = Linear(width, prior_std=self.shrink) if hashed else Linear(width)

        def learner(width: int) -> Any:
            both = Blend((Linear(width), plain), self.trust, self.faith)
            model = both if hashed or waves else plain
            return model if arms is None else PerAction(model, arms)

        length = (self.terms if hashed else width) + sum(w.amplitude**2 for w in waves)
        model = RandomFeatures(learner, width, waves) if waves else learner(width)
        inflation = self.spread / math.sqrt(1 + length)
        posterior = self._restarting(Ensemble(model, self.members, inflation=inflation))
        if arms is not None:
            return Persistent(posterior, self.tries, self.chance, share=self.share)
        if self.widen is None:
            return ThompsonSampling(posterior)
        return Widening(posterior, max(1.0, 1 / inflation), self.widen)

    def _restarting(self, posterior: Any) -> Any:
        return posterior if self.odds is None else Restarting(posterior, self.odds)

    def _waves(self, arms: int | None) -> tuple[Waves, ...]:
        """As many of each kind as there is room for; cosines and sines come in pairs."""
        kinds = [Waves(*self.smooth), Waves(*self.fine)]
        if self.most is not None and arms is not None:
            kinds = [w._replace(number=min(w.number, self.most // arms)) for w in kinds]
        return tuple(w for w in kinds if w.number >= 2)
