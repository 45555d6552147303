"""The functions a bandit runs: an agent and a state, asked to choose, to rank and to learn."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..agents.greedy import shares
from ..config import as_array
from ..core import Action, Agent, Key, fact, some_key
from ..inputs.scale import Scale
from ..primitives import PLAIN, first, in_one_step, quick
from .decisions import Values


class Rule(NamedTuple):
    """What decides: an agent, and the share of decisions left to chance, if any."""

    agent: Agent
    floor: float | None = None


class State(NamedTuple):
    """Everything learned; a function of the ledger's outcomes in their order."""

    scale: Scale | None
    belief: Any


class Drawn(NamedTuple):
    """An index drawn from probabilities, and what every action is expected to bring."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    probabilities: np.ndarray
    values: Values | None


Found = tuple[np.ndarray, int]
"""What `choose` puts into one array, and for how many actions: filled up to that many."""


class Programs:
    """A rule's functions, compiled once for all rules of one structure; in plain Python, where the
    agent runs there, they are called as they are.

    A state is handed over as `hold` gives it. `learn` consumes it: what is to outlive that is a
    `copy`. `fast.packing` has the same methods, with fewer arrays to hand over.

    belief: the shapes of what the agent learns.
    kind: equal for two that share their compiled programs.
    """

    def __init__(self, rule: Rule):
        self.host, self._rule = bool(fact(rule.agent, "host")), rule
        self.belief, self.kind = None, rule.agent
        if not self.host:
            self._rule = rule = jax.tree.map(as_array, rule)
            self.belief = jax.eval_shape(init, rule, some_key())
            about = [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(rule)]
            self.kind = jax.tree.structure(rule), tuple(about)

    def begin(self, key: Array, scale: Scale | None) -> Any:
        """The state before anything is learned."""
        start = jax.random.wrap_key_data(key, impl=PLAIN)
        return State(scale, self._run(init)(self._rule, start))

    def like(self, scale: Scale | None) -> State:
        """The shapes of a state, and where they are to lie: nothing is computed."""
        about = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # noqa: E731
        return jax.tree.map(about, State(scale, self.belief))

    def expect(self, scale: Scale | None) -> None:
        """Find the programs for its states before there is one."""

    def hold(self, state: State) -> Any:
        return state

    def state(self, held: Any) -> State:
        return held

    def copy(self, held: Any) -> Any:
        return held if self.host else jax.tree.map(lambda leaf: jnp.asarray(leaf).copy(), held)

    def choose(self, held: Any, words: Any, table: np.ndarray, mask: np.ndarray) -> Found:
        """What is drawn by the words (stream, number) of a decision."""
        table, mask = self._filled(table, mask)
        found = self._run(choose)(self._rule, np.array(words, np.uint32), held, table, mask)
        return np.asarray(found), len(mask)

    def choose_many(
        self, held: Any, words: list[Any], tables: list[np.ndarray], masks: list[np.ndarray]
    ) -> list[Found]:
        """What is drawn for several offers of one shape."""
        if self.host or len(words) == 1:
            offers = zip(words, tables, masks, strict=True)
            return [self.choose(held, word, table, mask) for word, table, mask in offers]
        filled = [self._filled(*offer) for offer in zip(tables, masks, strict=True)]
        stacked = (np.stack(part) for part in zip(*filled, strict=True))
        keys = np.array(words, np.uint32)
        found = np.asarray(self._run(choose_many)(self._rule, keys, held, *stacked))
        room = len(filled[0][1])
        return [(row, room) for row in found]

    def rank(
        self, held: Any, words: Any, table: np.ndarray, mask: np.ndarray, index: int
    ) -> list[int]:
        """All actions by what one plausible model thinks of them, the one at `index` first."""
        table, mask = self._filled(table, mask)
        about = (np.array(words, np.uint32), held, table, mask, np.int32(index))
        return np.asarray(self._run(rank)(self._rule, *about)).tolist()

    def learn(self, held: Any, words: Any, features: np.ndarray, outcome: Any) -> Any:
        """The state after the outcome of a decision, by its words (stream, number, index)."""
        y, keys = np.asarray(outcome, features.dtype), np.array(words, np.uint32)
        return self._run(learn_alike, 2)(self._rule, keys, held, features, y)

    def check(self, held: Any, features: np.ndarray, outcome: np.ndarray) -> None:
        """Raise an error if such an outcome cannot be learned, by shapes alone."""
        words = np.zeros(3, np.uint32)
        jax.eval_shape(learn_alike, self._rule, words, held, features, outcome)

    def _run(self, function: Any, consumed: int | None = None) -> Any:
        return function if self.host else _jitted(function, consumed)

    def _filled(self, table: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fixed = self.host or fact(self._rule.agent, "arms") is not None
        return (table, mask) if fixed else padded(table, mask)


@cache
def _jitted(function: Any, consumed: int | None) -> Any:
    return jax.jit(function, donate_argnums=() if consumed is None else consumed)


def room(rows: int) -> int:
    """A power of two, so that few sizes are compiled."""
    return max(8, 1 << (rows - 1).bit_length())


def padded(table: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Filled up with actions that are not available, so that few sizes are compiled."""
    rows, size = len(mask), room(len(mask))
    filled, offered = np.zeros((size, table.shape[1]), table.dtype), np.zeros(size, bool)
    filled[:rows], offered[:rows] = table, mask
    return filled, offered


def init(rule: Rule, key: Key) -> Any:
    return rule.agent.init(key)


def probabilities(rule: Rule, look: Key, state: State, features: Array, available: Array) -> Array:
    """How likely a rule is to choose each action (K,), whose features are as the agent takes them.

    look: the key by which it looks at them
    """
    chances = rule.agent.probabilities(state.belief, features, available, look)
    return _lifted(rule, chances, available)


def _lifted(rule: Rule, chances: Array, available: Array) -> Array:
    """With the share that is left to chance."""
    if rule.floor is None:
        return chances
    return (1 - rule.floor) * chances + rule.floor * available / available.sum()


def _by_values(agent: Agent) -> Any:
    """Its `chances`, unless a class that knows nothing of them gave it other probabilities."""
    homes = [kind for kind in type(agent).__mro__ if "probabilities" in vars(kind)]
    return fact(agent, "chances") if homes and "chances" in vars(homes[0]) else None


def _judged(
    rule: Rule, look: Key, state: State, features: Array, available: Array
) -> tuple[Array, Array | None]:
    """`probabilities`, and the values that they come from, if the agent has any."""
    about: Any = fact(rule.agent, "values")
    by_values = _by_values(rule.agent)
    if by_values is None:
        chances = probabilities(rule, look, state, features, available)
        return chances, about(look, state.belief, features)
    leaves = [leaf for leaf in jax.tree.leaves(state.belief) if isinstance(leaf, Array)]
    numbers = (leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size)
    word = next(numbers, available).ravel()[0]
    values = in_one_step(lambda *given: about(look, *given), word, state.belief, features)
    return _lifted(rule, by_values(state.belief, values, available), available), values


def choose(rule: Rule, words: Array, state: State, features: Array, available: Array) -> Array:
    """The probabilities of a decision; the values of all actions, if the agent has them: their
    mean over its models, and how far these spread, were they as wide as the posterior, which is the
    mean's standard error; and, as one more entry, the index drawn.

    That is how `agent.act` is distributed; drawing from what is recorded makes the propensity
    exact for every agent, also where probabilities are themselves estimated from samples.
    """
    key = _key(rule, words)
    features, look = offered(rule, key, state, features, available)
    chances, values = _judged(rule, look, state, features, available)
    total = jnp.where(chances > 0, jnp.cumsum(chances), -1.0)  # none that has no share, by rounding
    index = first(total > total.max() * _uniform(words, chances.dtype))
    worth = [] if values is None else [values.mean(axis=0), values.std(axis=0)]
    if worth:
        worth[1] /= fact(rule.agent, "inflation")
    drawn = [chances, *worth, index[None]]
    return jnp.concatenate([part.astype(chances.dtype) for part in drawn])


def _uniform(words: Array, dtype: Any) -> Array:
    """A number in [0, 1) for (stream, number): murmur3's finaliser over both, since the cipher's
    twenty rounds take as long as the rest of a decision among ten actions."""
    mixed = words[1] * jnp.uint32(0x9E3779B9) + words[0]
    parts = []
    for salt in (jnp.uint32(0x7F4A7C15), words[0]):
        mixed = mixed ^ salt
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
        mixed = mixed ^ (mixed >> 16)
        parts.append(mixed)
    if dtype != jnp.float64:
        return (parts[1] >> 8).astype(dtype) * 2.0**-24
    return (parts[0] >> 6).astype(dtype) * 2.0**-26 + (parts[1] >> 5).astype(dtype) * 2.0**-53


choose_many = jax.vmap(choose, in_axes=(None, 0, None, 0, 0))


def rank(
    rule: Rule, words: Array, state: State, features: Array, available: Array, index: Array
) -> Array:
    """All actions in order (K,): the one chosen, the others as one plausible model has them, those
    that are not available last.

    It is drawn from the models that would have chosen the same, since those of another opinion
    would not put the others after it. Where none would have, it is the mean of all models, and
    where there are no models, chance.
    """
    key = _key(rule, words)
    features, look = offered(rule, key, state, features, available)
    model_key, tie_key = jax.random.split(jax.random.fold_in(key, 2))
    values = fact(rule.agent, "values")(look, state.belief, features)
    if values is None:
        worth = jnp.zeros(jnp.shape(available))
    else:
        alike = shares(values, available)[:, index]  # a tie is half a vote
        model = jax.random.categorical(model_key, jnp.log(alike))
        worth = jnp.where(alike.sum() > 0, values[model], values.mean(axis=0))
    ties = jax.random.uniform(tie_key, jnp.shape(available))
    chosen = jnp.arange(len(ties)) == index
    return jnp.lexsort((ties, -worth, ~jnp.asarray(available), ~chosen))


def offered(
    rule: Rule, key: Key, state: State, features: Array, available: Array
) -> tuple[Array, Key]:
    """The features of every action as the agent takes them, and the key to look at them by."""
    features = features if state.scale is None else state.scale.apply(features)
    if not (len(features) == 1 and fact(rule.agent, "context")):
        features = jnp.broadcast_to(features, (*jnp.shape(available), jnp.shape(features)[1]))
    return features, jax.random.fold_in(key, 1)


def learn(rule: Rule, words: Array, state: State, features: Array, outcome: Array) -> State:
    """The state after the outcome of a decision; its index is the third of the words."""
    key, index = _key(rule, words[:2]), words[2].astype(jnp.int32)
    scale = None if state.scale is None else state.scale.see(features)
    features = features if scale is None else scale.apply(features)
    return State(scale, rule.agent.update(key, state.belief, Action(index, features), outcome))


def learn_alike(rule: Rule, words: Array, state: State, features: Array, outcome: Array) -> State:
    """`learn`, where the state keeps its shapes and types: it is compiled for those."""
    array = lambda leaf: leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)  # noqa: E731
    found = learn(rule, words, state, features, outcome)
    if fact(rule.agent, "host"):
        return found
    found = jax.tree.map(array, found)
    before, after = _about(state), _about(found)
    if (before, jax.tree.structure(state)) != (after, jax.tree.structure(found)):
        raise ValueError(
            f"{fact(rule.agent, 'label')}: update must keep the shapes and types of the state; "
            f"before {before}, after {after}"
        )
    return found


def _about(state: State) -> list[tuple[tuple[int, ...], Any]]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)]


def _key(rule: Rule, words: Array) -> Key:
    """A key for (stream, number), those of every decision: the cipher takes any two words."""
    return quick(jax.random.wrap_key_data(words, impl=PLAIN), rule.agent)
