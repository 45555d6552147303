"""What a bandit is configured with: as given, as recorded, and as first decisions complete it."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import checks
from ..agents.thompson import as_agent
from ..config import describe, differences
from ..core import fact
from ..inputs.features import Columns, Inputs, no_context, precision
from ..inputs.hashing import Hasher
from ..inputs.offer import Offer, names_of
from ..ledger.ledger import Ledger
from ..ledger.sqlite import public
from .default import Default
from .rebuild import called, rebuild


class Options(NamedTuple):
    """A configuration as it was given; None is what the ledger has, or else the default."""

    agent: Any = None
    seed: int | None = None
    normalise: bool | None = None
    hasher: Any = None
    actions: Any = None
    floor: float | None = None
    steady: bool | None = None

    @classmethod
    def recorded(cls, description: Any, agent: Any = None) -> "Options":
        """The options of a ledger, but for the agent, which is no text."""
        return cls(
            agent,
            description["seed"],
            description["normalise"],
            Hasher.recorded(description["hasher"]),
            description["actions"],
            description.get("floor"),
        )


class Setup:
    """Who decides, by what settings, and how offers become numbers.

    A setup does not change. Where offers say more than it knows of, `covering` gives another.

    agent: None where it is the default one and the number of features is not known yet.
    recipe: what the default agent is made of; None for an agent that was given.
    inputs: how offers are read, and numbers made of them.
    arms: the number of fixed actions of the default agent, where they have no names.
    hashes: whether the default agent hashes all that is described from the first offer on.
    """

    def __init__(
        self,
        options: Options,
        recipe: Default | None = None,
        *,
        arms: int | None = None,
        columns: Columns | None = None,
        hashes: bool = False,
    ):
        agent, seed, normalise, hasher, actions, floor, steady = self.options = options
        if seed is not None:
            checks.size("seed", seed, least=0, below=2**32)
        if floor is not None:
            floor = float(checks.scalar("floor", floor, low=0.0, high=1.0))
        if hasher is not None:
            checks.part("hasher", hasher, "width", "__call__")
        self.seed, self.floor, self.dtype = seed or 0, floor or 0.0, precision()
        self.normalise = normalise is None or checks.flag("normalise", normalise)
        self.recipe = (recipe or Default()).as_told(steady) if agent is None else None
        if agent is not None and steady is not None:
            raise ValueError("steady is about the default agent, agent=None: leave one of them out")
        if agent is None:
            names = None if actions is None else names_of(actions)
            if names is not None and not names:
                raise ValueError("actions must name at least one action, got none")
            arms = arms if names is None else len(names)
            about = {"grows": True, "hashes": hashes, "columns": columns}
            self.inputs, self.agent = Inputs(arms, names, hasher, **about), None
        else:
            self.agent = agent = as_agent(agent)
            told = {"expected": fact(agent, "columns"), "columns": columns}
            self.inputs = Inputs(fact(agent, "arms"), actions, hasher, **told)
            dim = fact(agent, "dim")
            if hasher is not None and dim not in (None, hasher.width):
                raise ValueError(f"the hasher makes {hasher.width} features, the agent takes {dim}")
        self._complete()

    def _complete(self) -> None:
        """Make the default agent, where the number of features is known."""
        width, hashed = self.inputs.width, self.inputs.hasher is not None
        if self.recipe is not None and width is not None:
            self.agent = self.recipe.agent(self.inputs.arms, width, hashed)

    @property
    def width(self) -> int | None:
        """The number of features; None until the first offer says so."""
        known = self.inputs.width
        return known if self.agent is None or known is not None else fact(self.agent, "dim")

    def covering(self, offers: Sequence[Offer]) -> "Setup":
        """A setup for all that is said in these offers: mostly this one."""
        inputs = self.inputs.covering(offers)
        if inputs is self.inputs:
            return self
        other = copy.copy(self)
        other.inputs = inputs
        dim = None if self.recipe is not None or self.agent is None else fact(self.agent, "dim")
        if dim and not inputs.width:
            raise no_context(dim)
        if dim not in (None, inputs.width):
            raise ValueError(f"this bandit's actions have {dim} features, got {inputs.width}")
        other._complete()
        return other

    @property
    def description(self) -> Any:
        """What decides every number; the default agent by what it is made of, see `Default`."""
        who = {"agent": self.agent} if self.recipe is None else {"default": self.recipe.settings}
        columns = self.inputs.columns
        return describe(
            {
                **who,
                "seed": self.seed,
                "normalise": self.normalise,
                "hasher": self.inputs.hasher,
                "actions": self.inputs.names,
                "precision": str(self.dtype),
                **({"floor": self.floor} if self.floor else {}),
                **({"columns": columns.description} if columns is not None else {}),
            }
        )

    def as_recorded(self, ledger: Ledger, recorded: Any, migrate: bool) -> "Setup":
        """This setup with what the ledger was begun with, where nothing else is given. Migrating,
        the numbers of today's default agent take the place of those recorded."""
        if not migrate and "agent" in recorded:
            return self._as_given(ledger, recorded)
        columns = Columns.recorded(recorded.get("columns"))
        if self.recipe is None:
            dim = fact(self.agent, "dim")
            hashed = self.options.hasher is not None
            if columns is not None and not hashed and dim not in (None, columns.width):
                raise ValueError(
                    f"the decisions in {public(ledger.place)} have {columns.width} features, this "
                    f"agent {dim}"
                )
            return Setup(self.options, columns=columns)
        if self.options.hasher is not None:
            recorded = {**recorded, "hasher": None}
        known = zip(self.options, Options.recorded(recorded), strict=True)
        merged: list[Any] = [theirs if ours is None else ours for ours, theirs in known]
        recipe = None if migrate else Default.recorded(recorded["default"])
        hashes = self.inputs.hashes
        return Setup(Options(*merged), recipe, columns=columns, hashes=hashes)

    def _as_given(self, ledger: Ledger, recorded: Any) -> "Setup":
        """This setup for a ledger that was begun with an agent of its own: the same, or none."""
        about, agent = (
            recorded["agent"],
            self.agent if self.recipe is None else rebuild(recorded["agent"]),
        )
        if agent is None:
            raise ValueError(
                f"{public(ledger.place)} was begun with an agent, {called(about)}, that its record "
                "cannot make again, since there are functions or classes in it: open it with that "
                "one, Bandit.open(folder, agent), or let Bandit.migrate(folder) replay its history "
                "into the default agent"
            )
        options = self.options._replace(agent=agent)
        if not differences(about, describe(agent)):  # else `check` says what
            known = zip(options, Options.recorded(recorded, agent), strict=True)
            merged: list[Any] = [theirs if ours is None else ours for ours, theirs in known]
            options = Options(*merged)
        return Setup(options, columns=Columns.recorded(recorded.get("columns")))

    def check(self, recorded: Any, place: Any) -> None:
        """Refuse to go on with a ledger that was begun otherwise."""
        if changed := differences(recorded, self.description):
            raise ValueError(
                f"{public(place)} was begun with another configuration; it differs in\n  "
                + "\n  ".join(changed)
                + "\nOpen it with that one, or let Bandit.migrate replay its history into this one."
            )
