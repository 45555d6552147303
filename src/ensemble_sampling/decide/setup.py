"""What a bandit was begun with: its agent and settings, as given, as the folder has them, and as
the first decision settles them."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import checks
from ..agents.thompson import as_agent
from ..config import differences
from ..core import fact
from ..inputs.columns import Columns, needs_hasher
from ..inputs.hashing import Hasher, precision
from ..inputs.offer import Offers, names_of
from ..ledger.ledger import Ledger
from ..ledger.sqlite import Place, public
from ..ledger.transactions import Process
from . import notices
from .default import Default
from .replica import Mind
from .shadows import Shadows

HASHER = Hasher(256, numbers=64, names=True, mixed=True)  # for the default agent


class Begun:
    """The part of a `Bandit` that knows who decides, by what settings, and what rows are made of.

    A folder is refused if it was begun otherwise. What is still open (the number of features, the
    names of columns, a hasher for the default agent) is settled by the first decisions, and only
    if they are recorded.
    """

    _mind_type: type[Mind] = Mind
    _ledger: Ledger
    _folder: Place
    _snapshot_every: int

    def _setup(
        self,
        agent: Any,
        seed: int | None,
        normalise: bool | None,
        hasher: Hasher | None,
        actions: Any,
        floor: float | None,
        recipe: Default | None = None,
    ) -> None:
        recipe = (recipe or Default()) if agent is None else None
        if seed is not None:
            checks.size("seed", seed, least=0, below=2**32)
        if floor is not None:
            floor = float(checks.scalar("floor", floor, low=0.0, high=1.0))
        self._options = (seed, normalise, hasher, actions, floor)
        normalise = normalise is None or checks.flag("normalise", normalise)
        if hasher is not None:
            checks.part("hasher", hasher, "width", "__call__")
        self._watch, self._shadows = notices.Watch(), Shadows()
        self._plain: Columns | None = None  # columns of which there is nothing to record
        self._mutex, self._pid = threading.RLock(), os.getpid()
        if agent is not None:
            agent = as_agent(agent)
            arms, columns = fact(agent, "arms"), fact(agent, "columns")
            self._offers = Offers(arms, actions, hasher, expected=columns)
        else:
            names = None if actions is None else names_of(actions)
            if names is not None and not names:
                raise ValueError("actions must name at least one action, got none")
            arms = None if names is None else len(names)
            self._offers = Offers(arms, names, hasher, missing=True)
        settings = (self._offers, seed or 0, normalise, floor or 0.0)
        self._mind = self._mind_type(agent, recipe, *settings)
        dim = self._mind.width
        if hasher is not None and dim not in (None, hasher.width):
            raise ValueError(f"the hasher makes {hasher.width} features, the agent takes {dim}")
        self._mind.settle(hasher.width if hasher else None)

    def _begin(self, migrate: bool) -> None:
        recorded = self._ledger.description
        columns = None if recorded is None else Columns.recorded(recorded.pop("columns", None))
        if self._mind.recipe is not None and recorded is not None:
            self._take_over(recorded, migrate)
        if self._offers.hasher is None:
            self._offers.columns = columns
        self._columns, self._offers.begun = columns, self._ledger.decisions > 0
        changed = [] if recorded is None else differences(recorded, self._mind.description)
        if changed and not migrate:
            raise ValueError(
                f"{public(self._folder)} was begun with another configuration; it differs in\n  "
                + "\n  ".join(changed)
                + "\nOpen it with that one, or let Bandit.migrate replay its history into this one."
            )
        width, taken = self._ledger.width, self._mind.width
        if width is not None and taken not in (None, width):
            raise ValueError(
                f"the decisions in {public(self._folder)} have {width} features, this agent {taken}"
            )
        self._mind.settle(width)
        if changed:
            self._mind.check_history(self._ledger)
            self._mind.forget(self._ledger)
        self._mind.sync(self._ledger)
        if changed or recorded is None:
            self._describe()
            self._mind.save(self._ledger)

    def _describe(self, promoted: str | None = None) -> None:
        """Record what decides every number, and what the columns are called."""
        columns = self._offers.columns
        named = columns.description if columns else {}
        self._ledger.describe({**self._mind.description, **named}, promoted)
        self._columns = columns

    def _describe_columns(self) -> None:
        """Record what the columns are called, where that is new."""
        columns = self._offers.columns
        if columns is None or columns is self._plain:
            return
        if columns.plain:
            self._plain = columns
        elif columns != self._columns:
            self._describe()

    def _describe_anew(self) -> None:
        """Record a hasher that the first offers brought, or that others before them had brought."""
        recorded = self._ledger.description
        if recorded["hasher"] != self._mind.description["hasher"]:
            self._describe()

    def _take_over(self, recorded: Any, migrate: bool) -> None:
        """What the folder was begun with, where it is not told otherwise.

        Migrating, the numbers of today's default agent take the place of those recorded.
        """
        if "default" not in recorded and not migrate:
            where = public(self._folder)
            raise ValueError(f"{where} was begun with an agent: open it with that one")
        seed, normalise, hasher, actions, floor = self._options
        self._setup(
            None,
            recorded["seed"] if seed is None else seed,
            recorded["normalise"] if normalise is None else normalise,
            Hasher.recorded(recorded["hasher"]) if hasher is None else hasher,
            recorded["actions"] if actions is None else actions,
            recorded.get("floor") if floor is None else floor,
            None if migrate else Default.recorded(recorded["default"]),
        )

    def _turn(self) -> Any:
        """The mutex, to be followed by `_ready`; in a fork another may hold it for ever."""
        if Process.id != self._pid:
            self._ledger.check()  # says what to do
        return self._mutex

    def _ready(self, writes: bool = False) -> None:
        """Refuse to go on where what follows could not be right."""
        self._ledger.check(writes)
        if precision() is not self._mind.dtype:
            raise ValueError(
                f"jax_enable_x64 was changed while this bandit was open in {self._mind.dtype}: "
                "change it back, or close the bandit and migrate it"
            )

    @contextmanager
    def _tentative(self, offers: list[tuple[Any, Any, Any]]) -> Iterator[None]:
        """What the first offers settle holds only if they are recorded."""
        open_width, columns = self._mind.width is None, self._offers.columns
        hasher = self._offers.hasher
        try:
            self._look(offers)
            yield
        except BaseException:
            self._offers.columns = columns or self._columns
            if open_width:
                self._offers.hasher = hasher
                self._mind.unsettle()
            raise

    def _settle(self, widths: set[int]) -> None:
        """The number of features, which the first decisions fix."""
        if len(widths) > 1:
            raise ValueError(f"offers differ in their number of features: {sorted(widths)}")
        begun = self._ledger.decisions > 0
        self._mind.settle(next(iter(widths), None))
        if not begun and self._mind.recipe is not None:
            self._describe_anew()

    def _look(self, offers: list[tuple[Any, Any, Any]]) -> None:
        """Bring a hasher where the first offers are not numbers and nobody gave one."""
        if self._mind.recipe is None or self._mind.width is not None:
            return
        if any(needs_hasher(features, context) for features, context, _ in offers):
            self._offers.hasher = HASHER
            self._mind.settle(HASHER.width)
