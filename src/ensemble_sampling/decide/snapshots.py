"""The state of a bandit on disk: a cache of what replaying its ledger gives."""

import hashlib
import json
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..config import differences
from ..files import Damaged
from ..inputs.features import Columns
from ..inputs.scale import Fields, Usual, out_of_range
from ..ledger.ledger import Ledger
from . import notices

SNAPSHOT = "state.safetensors"
SCALE_IN = (".scale.size", ".scale.mean", ".scale.far")  # what `_named` calls parts of a state


class Snapshot(NamedTuple):
    """The state after the first `sequence` outcomes of the ledger `ledger`."""

    state: Any
    ledger: str
    sequence: int
    description: Any
    diverged: int
    revisions: int = 0  # of outcomes, which it knows
    usual: Usual = Usual()  # where outcomes are
    fields: Fields = {}  # noqa: RUF012 (never changed) the units of numbers in descriptions
    changed: notices.Changed = notices.Changed()


def pack(snapshot: Snapshot) -> bytes:
    """The contents of a file, with a checksum over everything in it."""
    tensors = {name: _numbers(leaf) for name, leaf in _named(snapshot.state).items()}
    about = {
        "ledger": snapshot.ledger,
        "sequence": str(snapshot.sequence),
        "description": json.dumps(snapshot.description),
        "diverged": str(snapshot.diverged),
        "revisions": str(snapshot.revisions),
        "usual": json.dumps(snapshot.usual),
        "fields": json.dumps(snapshot.fields),
        "changed": json.dumps(snapshot.changed),
    }
    return save(tensors, {**about, "checksum": _checksum(tensors, about)})


def load_snapshot(ledger: Ledger, name: str, like: Any, description: Any) -> Snapshot | None:
    """The one beside the ledger, see `unpack`."""
    content = ledger.stored(name)
    return None if content is None else unpack(content, like, ledger, description, name)


def unpack(
    content: bytes, like: Any, ledger: Ledger, description: Any, name: str = SNAPSHOT
) -> Snapshot | None:
    """The state to start from, of the shapes `like`; None if there is nothing to be gained by it.

    It is only a cache: one that is damaged or another agent's is passed over with a warning. One
    that knows what the ledger does not is refused, since then the ledger is the wrong one.
    """
    path = ledger.where(name)
    try:
        tensors, about = _read_snapshot(content, path)
    except Damaged as error:
        return _passed_over(str(error))
    sequence, known = int(about["sequence"]), ledger.outcomes_as(about["ledger"])
    if known is None:
        raise ValueError(f"the snapshot {path} belongs to another ledger; delete it")
    if sequence > known:
        raise ValueError(
            f"the snapshot {path} knows {sequence} outcomes, the ledger beside it only {known}: "
            "restore the ledger, or delete the snapshot"
        )
    revisions, known = int(about.get("revisions", 0)), ledger.revisions_as(about["ledger"])
    if known is None and revisions:
        return _passed_over(f"the snapshot {path} is older than this copy of the ledger")
    if known is not None and revisions > known:
        raise ValueError(
            f"the snapshot {path} knows {revisions} revised outcomes, the ledger beside it only "
            f"{known}: restore the ledger, or delete the snapshot"
        )
    if sequence == 0:  # nothing learned, and perhaps before the number of features was known
        return None
    recorded = json.loads(about["description"])
    if differences(recorded, description):
        return _passed_over(f"the snapshot {path} is another agent's")
    if _shapes(tensors) != _shapes({name: _plain(leaf) for name, leaf in _named(like).items()}):
        return _passed_over(f"the snapshot {path} does not fit this agent's state")
    leaves = [_restored(tensors[name], leaf) for name, leaf in _named(like).items()]
    state = jax.tree.unflatten(jax.tree.structure(like), leaves)
    fields = {name: tuple(pair) for name, pair in json.loads(about["fields"]).items()}
    counts = (int(about["diverged"]), revisions, _usual(about), fields)
    return Snapshot(state, about["ledger"], sequence, recorded, *counts)


def _passed_over(why: str) -> None:
    warnings.warn(f"{why}; the state is rebuilt from the ledger", stacklevel=7)


def _shapes(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def snapshot_noticed(ledger: Ledger, name: str = SNAPSHOT) -> tuple[int, dict[str, str]]:
    """How often members had been put back when the snapshot was taken, and what its user should
    know of that and of all else it had learned."""
    content = ledger.stored(name)
    if content is None:
        return 0, {}
    try:
        tensors, about = _read_snapshot(content, ledger.where(name))
    except Damaged as error:
        raise Damaged(f"{error}; delete it: opening the bandit writes a new one") from error
    diverged, strays = int(about.get("diverged", 0)), _usual(about).strays
    columns = Columns.recorded((ledger.description or {}).get("columns"))
    far = out_of_range(*map(tensors.get, SCALE_IN))
    seen = int(about["sequence"]), strays, far, columns
    changed = notices.Changed(*json.loads(about.get("changed", "[]")))
    return diverged, notices.learned(diverged, *seen, changed)


def _usual(about: dict[str, str]) -> Usual:
    return Usual(*json.loads(about.get("usual", "[]")))


def _read_snapshot(content: bytes, path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        tensors = load(content)
        about = _metadata(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    if about.pop("checksum", None) != _checksum(tensors, about):
        raise _damaged(path, "its checksum does not fit its contents")
    return tensors, about


def _metadata(content: bytes) -> dict[str, str]:
    """The words in the header of a safetensors file, which begins with its length."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]).get("__metadata__", {})


def _damaged(path: str, why: str) -> Damaged:
    return Damaged(f"the snapshot {path} is damaged ({why})")


def _checksum(tensors: dict[str, np.ndarray], about: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _named(state: Any) -> dict[str, Any]:
    """The arrays of a state by their path in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path) or "state": leaf for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _plain(leaf: Any) -> Any:
    """The shape of the numbers of an array that has this shape."""
    return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf


def _restored(array: np.ndarray, leaf: Any) -> jax.Array:
    """Where it is to lie: elsewhere, it would be moved there for every decision."""
    found = jax.device_put(array, leaf.sharding, may_alias=False)  # jnp.asarray would compile it
    return jax.random.wrap_key_data(found) if _is_key(leaf) else found
