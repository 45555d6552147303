"""What an administrator does to a bandit that several processes serve: change its settings, its
shadows and the agent in charge, and import what another bandit has learned."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from msgspec import structs

from .. import checks
from ..decide import shadows, weighted
from ..decide.baselines import RULE, made
from ..decide.control import Control
from ..decide.replica import Replica, base_states, resume
from ..decide.shadows import REMOVED, SHADOWS
from ..decide.snapshots import SNAPSHOT
from ..decide.transfer import import_history, read_history
from ..decide.weighted import REWARD
from ..files import Damaged
from ..inputs.features import Columns
from ..inputs.hashing import Hasher
from .replicas import APPRENTICE, HELD, SETTINGS, Replicas, as_served
from .replicas import settings as stored
from .types import Erased, Refused, Settings, refusing

IMPORTED = "imported"  # the setting with the digests of files that were imported
KEPT = "kept"  # the setting with what `keep` stores
BEGUN = "begun"  # a change that is no setting


def configure(replicas: Replicas, given: Mapping[str, Any], who: str | None = None) -> None:
    """Change some settings, in all processes, by name: the others stay as they are. The ledger
    keeps who did."""
    with replicas.change():
        ledger, main = replicas.ledger, replicas.main
        before = stored(ledger)
        settings = structs.replace(before, **given)
        with refusing():
            checks.outcome(settings.default)
            if settings.wait is not None and main.width is not None:
                main.outcome(settings.default, ledger)  # refuses what the agent cannot learn
            held = {name: value for name, value in given.items() if name in HELD}
            if held.get("baseline") == RULE:
                if replicas.rule is None:
                    raise ValueError('the baseline "rule" is one of the file of `serve --agents`')
                held["baseline"] = replicas.rule
            control = Control.of(ledger, ledger.decision_id(0))
            control = control.changed(ledger, main.setup, **held)
            made(control.baseline, replicas.rule, main.setup, ledger)  # refuses an unknown rule
            if REWARD in given:
                weighted.change(main, ledger, given[REWARD], who)
        control.record(ledger, who)
        apprentice = shadows.recorded(ledger).get(APPRENTICE)
        if settings.mode == "apprentice" and apprentice is None:
            ledger.add_shadow(APPRENTICE, main.setup.description)
        if settings.mode != "apprentice" and apprentice is not None:
            ledger.add_shadow(APPRENTICE, None)
        if _own(settings) != _own(before):
            ledger.change(SETTINGS, _own(settings), who)


def _own(settings: Settings) -> dict[str, Any]:
    """Those that are recorded by their own name."""
    others = {*HELD, REWARD}
    return {name: v for name, v in structs.asdict(settings).items() if name not in others}


def halt(replicas: Replicas, metric: str) -> None:
    """Leave all decisions to the baseline, since the bound of a metric is broken."""
    with replicas.change():
        control = replace(Control.of(replicas.ledger), halted=metric)
        replicas.divided(control)  # nobody decides where its rule is unknown
        control.record(replicas.ledger, "guardrail")


def resume_agent(replicas: Replicas, who: str | None = None) -> bool:
    """See `Bandit.resume`."""
    with replicas.change():
        control = Control.of(replicas.ledger)
        if control.halted is None:
            return False
        control = replace(control, halted=None, since=replicas.ledger.decisions)
        control.record(replicas.ledger, who)
        return True


def keep(replicas: Replicas, name: str, content: bytes | None) -> None:
    """Store something small with the ledger; None removes it."""
    with replicas.turn():
        kept = replicas.ledger.setting(KEPT) or {}
        kept.pop(name, None)
        if content is not None:
            kept[name] = b64encode(content).decode()
        replicas.ledger.set(KEPT, kept)


def import_state(replicas: Replicas, content: bytes) -> int:
    """Learn from the exported history of a bandit of the same configuration; how many outcomes. The
    same file a second time adds nothing."""
    try:
        about, features = read_history(content)
    except Damaged as error:
        raise Refused("invalid", str(error)) from error
    with replicas.change():
        ledger, digest = replicas.ledger, sha256(content).hexdigest()
        known = ledger.setting(IMPORTED) or []
        if digest in known:
            return 0
        if not ledger.decisions:
            _settle_as(replicas, about)
        with refusing():
            found = import_history(ledger, replicas.main, about, features)
        ledger.set(IMPORTED, [*known, digest])
        return found


def _settle_as(replicas: Replicas, about: dict[str, Any]) -> None:
    """Within a turn: settle what the first decision would have, as the other bandit did."""
    said, theirs = replicas.ledger.description, about["agent"]
    known = {name: theirs[name] for name in ("hasher", "columns") if name in theirs}
    if {**said, **known} != said:
        with refusing():
            Hasher.recorded(known.get("hasher"))
            Columns.recorded(known.get("columns"))
        replicas.ledger.describe({**said, **known})
        replicas.reload()


def erase(replicas: Replicas, subject: str, keep: bool, who: str | None = None) -> Erased:
    """See `Bandit.erase`."""
    with replicas.door:
        known = 0 if keep else replicas.ledger.knows_only_base(subject)
        states = partial(_base_states, replicas) if keep else None
        erased = replicas.ledger.erase(subject, states)
        if erased and not keep:
            replicas.control.forget(replicas.ledger)
        if erased:
            replicas.ledger.change(REMOVED, {"erased": erased, "known": keep}, who)
        return Erased(erased, known)


def _base_states(replicas: Replicas) -> dict[str, bytes]:
    """Within a turn: those of replicas that learn, which know more than those that decide."""
    ledger = replicas.ledger
    if ledger.configured != replicas.loaded:
        replicas.reload()
    main = resume(Replica(as_served(replicas.options)), ledger)
    return base_states([main, *replicas.watching(ledger, main).replicas().values()], ledger)


def begun(replicas: Replicas, given: dict[str, Any], who: str | None) -> None:
    """Record that a bandit was begun."""
    with replicas.turn():
        replicas.ledger.change(BEGUN, given, who)


def shadow(replicas: Replicas, name: str, who: str | None = None) -> None:
    """Make a candidate a shadow, which learns everything that is recorded."""
    candidates = replicas.candidates
    if name not in candidates:
        raise Refused("unknown", f"there is no candidate {name!r}; there are {[*candidates]}")
    with replicas.change():
        if replicas.main.agent is None:
            raise Refused("conflict", "there is no decision yet, on which shadows watch")
        if name not in shadows.recorded(replicas.ledger):
            with refusing():
                one = shadows.candidate(candidates[name], replicas.main)
            replicas.ledger.add_shadow(name, one.setup.description)
            replicas.ledger.change(SHADOWS, {"began": name}, who)


def dismiss(replicas: Replicas, name: str, who: str | None = None) -> None:
    """Remove a shadow; its opinions stay in the ledger."""
    with replicas.change(), refusing():
        shadows.dismiss(replicas.ledger, name)
        replicas.ledger.change(SHADOWS, {"dismissed": name}, who)


def promote(replicas: Replicas, name: str, who: str | None = None) -> None:
    """Put a shadow in charge, in all processes."""
    ledger, candidates = replicas.ledger, replicas.candidates
    with replicas.door:
        with replicas.change():
            known = shadows.recorded(ledger).get(name)
            if known is None or name not in candidates:
                raise Refused("unknown", f"there is no shadow {name!r}")
            learned = ledger.stored(f"shadow-{known.number}.safetensors")
            one = shadows.candidate(candidates[name], replicas.main, known)
            shadows.promote(ledger, name, one)
            ledger.change(SHADOWS, {"promoted": name}, who)
        if learned is not None:
            ledger.store(SNAPSHOT, learned)
