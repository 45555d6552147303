"""What a bandit is configured with: as given, as recorded, and as first decisions settle it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import checks
from ..agents.thompson import as_agent
from ..config import describe, differences
from ..core import fact
from ..inputs.columns import Columns
from ..inputs.hashing import Hasher, precision, recordable
from ..inputs.offer import Offer, Offers, names_of
from ..ledger.ledger import Ledger
from ..ledger.sqlite import public
from .default import Default

if TYPE_CHECKING:
    from .replica import Replica

HASHER = Hasher(256, numbers=64, names=True, mixed=True)  # for the default agent


class Options(NamedTuple):
    """A configuration as it was given; None is what the ledger has, or else the default."""

    agent: Any = None
    seed: int | None = None
    normalise: bool | None = None
    hasher: Hasher | None = None
    actions: Any = None
    floor: float | None = None

    @classmethod
    def recorded(cls, description: Any, agent: Any = None) -> "Options":
        """Those of a ledger, but for the agent, which is no text."""
        return cls(
            agent,
            description["seed"],
            description["normalise"],
            Hasher.recorded(description["hasher"]),
            description["actions"],
            description.get("floor"),
        )


class Setup:
    """Who decides, by what settings, and what rows are made of.

    What is still open (the names of columns, a hasher for the default agent) is settled by the
    first decisions, and only if they are recorded.

    agent: None where it is the default one, which `recipe` makes when the number of features is
        known.
    recipe: what the default agent is made of.
    arms: the number of fixed actions of the default agent, where they have no names.
    inputs: how offers are read.
    columns: what rows are made of, as the ledger has it.
    """

    def __init__(self, options: Options, recipe: Default | None = None, arms: int | None = None):
        agent, seed, normalise, hasher, actions, floor = self.options = options
        if seed is not None:
            checks.size("seed", seed, least=0, below=2**32)
        if floor is not None:
            floor = float(checks.scalar("floor", floor, low=0.0, high=1.0))
        self.seed, self.floor, self.dtype = seed or 0, floor or 0.0, precision()
        self.normalise = normalise is None or checks.flag("normalise", normalise)
        if hasher is not None:
            checks.part("hasher", hasher, "width", "__call__")
        self.columns: Columns | None = None
        self._plain: Columns | None = None  # columns of which there is nothing to record
        self.agent, self.recipe = None, None
        if agent is None:
            self.recipe = recipe or Default()
            self.inputs = _of_default(actions, arms, hasher)
            return
        self.agent = agent = as_agent(agent)
        about = fact(agent, "arms"), actions, hasher
        self.inputs = Offers(*about, expected=fact(agent, "columns"))
        dim = fact(agent, "dim")
        if hasher is not None and dim not in (None, hasher.width):
            raise ValueError(f"the hasher makes {hasher.width} features, the agent takes {dim}")

    @property
    def description(self) -> Any:
        """What decides every number; the default agent by what it is made of, see `Default`."""
        who = {"agent": self.agent} if self.recipe is None else {"default": self.recipe.settings}
        return describe(
            {
                **who,
                "seed": self.seed,
                "normalise": self.normalise,
                "hasher": recordable(self.inputs.hasher),
                "actions": self.inputs.names,
                "precision": str(self.dtype),
                **({"floor": self.floor} if self.floor else {}),  # new: others go on unchanged
            }
        )

    def taken_over(self, ledger: Ledger, recorded: Any, migrate: bool) -> "Setup":
        """What the ledger was begun with, where nothing else is given. Migrating, the numbers of
        today's default agent take the place of those recorded."""
        if "default" not in recorded and not migrate:
            where = public(ledger.place)
            raise ValueError(f"{where} was begun with an agent: open it with that one")
        if self.options.hasher is not None:
            recorded = {**recorded, "hasher": None}  # whatever that is
        known = zip(self.options, Options.recorded(recorded), strict=True)
        merged: list[Any] = [theirs if ours is None else ours for ours, theirs in known]
        return Setup(Options(*merged), None if migrate else Default.recorded(recorded["default"]))

    def check(self, recorded: Any, place: Any) -> None:
        """Refuse to go on with a ledger that was begun otherwise."""
        if changed := differences(recorded, self.description):
            raise ValueError(
                f"{public(place)} was begun with another configuration; it differs in\n  "
                + "\n  ".join(changed)
                + "\nOpen it with that one, or let Bandit.migrate replay its history into this one."
            )

    def record(self, ledger: Ledger, promoted: str | None = None) -> None:
        """Record what decides every number, and what the columns are called."""
        columns = self.inputs.columns
        named = columns.description if columns else {}
        ledger.describe({**self.description, **named}, promoted)
        self.columns = columns

    def record_columns(self, ledger: Ledger) -> None:
        """Record what the columns are called, where that is new."""
        columns = self.inputs.columns
        if columns is None or columns is self._plain:
            return
        if columns.plain:
            self._plain = columns
        elif columns != self.columns:
            self.record(ledger)

    @contextmanager
    def tentative(self, replica: "Replica") -> Iterator[None]:
        """What offers settle holds only if they are recorded."""
        inputs, unsettled = self.inputs, replica.width is None
        columns, hasher = inputs.columns, inputs.hasher
        try:
            yield
        except BaseException:
            inputs.columns = columns or self.columns
            if unsettled:
                inputs.hasher = hasher
                replica.unsettle()
            raise

    def bring_hasher(self, replica: "Replica", worded: Iterator[bool]) -> None:
        """For the default agent, where any of the first offers is told in words."""
        if self.recipe is not None and replica.width is None and any(worded):
            self.inputs.hasher = HASHER
            replica.settle(HASHER.width)

    def settle(self, replica: "Replica", ledger: Ledger, width: int | None) -> None:
        """The number of features, which the first decisions fix; and record the hasher that they,
        or others before them, have brought."""
        replica.settle(width)
        if self.recipe is None or ledger.decisions:
            return
        if ledger.description["hasher"] != self.description["hasher"]:
            self.record(ledger)


def _of_default(actions: Any, arms: int | None, hasher: Hasher | None) -> Offers:
    """How offers are read for the default agent, whose fixed actions are those that are named."""
    names = None if actions is None else names_of(actions)
    if names is not None and not names:
        raise ValueError("actions must name at least one action, got none")
    return Offers(arms if names is None else len(names), names, hasher, missing=True)


def common_width(offers: list[Offer]) -> int | None:
    """The number of features, where offers agree in it."""
    widths = {offer.table.shape[1] for offer in offers}
    if len(widths) > 1:
        raise ValueError(f"offers differ in their number of features: {sorted(widths)}")
    return next(iter(widths), None)
