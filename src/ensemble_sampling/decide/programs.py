"""The functions a bandit runs, compiled once for all agents of one structure."""

import math
from dataclasses import is_dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..agents.greedy import shares
from ..config import as_array
from ..core import Action, Agent, Facts, Key, fact, some_key
from ..fast.argmax import first
from ..fast.inline import chosen, placed
from ..fast.one_step import in_one_step
from ..fast.threefry import quick
from .states import Layout, State


class Rule(NamedTuple):
    """What decides: an agent, and the share of decisions left to chance, if any."""

    agent: Agent
    floor: float | None = None


class Programs(NamedTuple):
    """What a rule does, as functions of its numbers, something and a state; the numbers and the
    state as `Layout` packs them."""

    choose: Any
    learn: Any
    rank: Any
    choose_many: Any  # with a leading axis on all but the state; None in plain Python
    choose_packed: Any  # with all but the state in one array
    learn_packed: Any


class Begun(NamedTuple):
    """What a rule begins with."""

    bound: Any
    init: Any
    programs: Any  # those for states of a layout
    where: Any = None  # the processor it runs on, if not JAX's default
    belief: Any = None  # the shapes of what `init` gives, where it is compiled


def rule_of(agent: Agent, floor: float = 0.0) -> Begun:
    """What a bandit does by an agent; where that runs in plain Python, as it is."""
    rule = Rule(agent, floor or None)
    if fact(agent, "host"):
        rule = rule._replace(agent=_once(agent))
        here = Programs(choose, learn, rank, None, None, None)
        return Begun(rule, init, lambda _: here)
    layout, leaves = Layout.of(jax.tree.map(as_array, rule))
    compiled, bound = _of(layout), layout.placed(leaves)
    begin = compiled(init)
    belief = jax.eval_shape(begin, bound, some_key())
    where = chosen(belief)
    programs = partial(_compiled, layout)
    return Begun(placed(bound, where), begin, programs, where, belief)


@lru_cache(maxsize=64)
def _of(layout: Layout) -> Any:
    """Compiles functions of rules of one structure; settings stay free."""

    @cache
    def compiled(function: Any) -> Any:
        return jax.jit(lambda bound, *rest: function(layout.unpacked(bound), *rest))

    return compiled


@lru_cache(maxsize=64)
def _compiled(rules: Layout, states: Layout | None) -> Programs:
    """For rules and states of these structures; none while that of states is not known."""
    if states is None:
        return Programs(*[None] * 6)

    def of(function: Any, learns: bool = False) -> Any:
        def run(bound: list[Array], about: Array, held: list[Array], *rest: Any) -> Any:
            state = State.of(states, held, states.unpacked(held))
            rule = rules.unpacked(bound)
            found = function(rule, about, state, *rest)
            return states.packed(_kept(rule, states, found)) if learns else found

        return jax.jit(run, donate_argnums=2 if learns else ())

    many = jax.vmap(choose, in_axes=(None, 0, None, 0, 0))
    alone = of(choose), of(learn, True), of(rank), of(many)
    return Programs(*alone, of(choose_packed), of(learn_packed, True))


def _kept(rule: Rule, before: Layout, state: State) -> list[Array]:
    """The arrays of a state, which must be laid out as it was: it is packed that way."""
    array = lambda leaf: leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)  # noqa: E731
    after, leaves = Layout.of(jax.tree.map(array, state.parts))
    if after != before:
        raise ValueError(
            f"{fact(rule.agent, 'label')}: update must keep the shapes and types of the state; "
            f"before {list(before.about)}, after {list(after.about)}"
        )
    return leaves


class _Once:
    """A posterior in plain Python that is asked twice what its models think, and thinks once.

    Compiled, that is the compiler's work.
    """

    def __init__(self, posterior: Any):
        self.posterior, self.last = posterior, (None, None, None)  # belief, what of it, values
        said = {name: fact(posterior, name) for name in vars(Facts) if not name.startswith("_")}
        vars(self).update({name: value for name, value in said.items() if name != "values"})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.posterior, name)

    def values(self, key: Key, belief: Any, features: Any, draws: int) -> Any:
        about = (np.asarray(jax.random.key_data(key)), np.asarray(features))
        known, asked, values = self.last
        if known is not belief or asked is None or not all(map(np.array_equal, asked, about)):
            values = self.posterior.values(key, belief, features, draws)
            self.last = belief, about, values
        return values


def _once(agent: Agent) -> Agent:
    posterior = getattr(agent, "posterior", None)
    if posterior is None or not is_dataclass(agent) or isinstance(agent, type):
        return agent
    return replace(agent, posterior=_Once(posterior))


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
    leaves = [leaf for leaf in jax.tree.leaves(state.belief) if isinstance(leaf, Array)]
    numbers = (leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size)
    word = next(numbers, None)
    if by_values is None or word is None:
        chances = probabilities(rule, look, state, features, available)
        return chances, about(look, state.belief, features)

    def valued(packed: Any, features: Array) -> Any:
        return about(look, state.apart(packed).belief, features)

    values = in_one_step(valued, word.ravel()[0], state.together, features)
    return _lifted(rule, by_values(state.belief, values, available), available), values


def choose(rule: Rule, words: Array, state: State, features: Array, available: Array) -> Array:
    """The probabilities of a decision; the values of all actions, if the agent has them: their
    mean and spread over its models; and, as one more entry, the index drawn.

    That is how `agent.act` is distributed; drawing from what is recorded makes the propensity
    exact for every agent, also where probabilities are themselves estimated from samples.
    """
    key = _key(rule, words)
    features, look = offered(rule, key, state, features, available)
    chances, values = _judged(rule, look, state, features, available)
    total = jnp.where(chances > 0, jnp.cumsum(chances), -1.0)  # none that has no share, by rounding
    index = first(total > total.max() * _uniform(words, chances.dtype))
    worth = [] if values is None else [values.mean(axis=0), values.std(axis=0)]
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


class Sheet:
    """One array (..., d) for `choose_packed`, to be filled in anew for every offer of a shape: the
    words of the key and what is available, in rows of their own, then the features, in `room` rows.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, room: int, where: Any = None):
        rows, width = shape
        self.room, above = room, -(-(room + 2) // width)
        whole = _aligned((above + room, width), np.dtype(dtype))
        flat, self._shown = whole.reshape(-1), _shown(whole, where)
        self._bits, self._free = flat.view(np.uint32), flat[2 : rows + 2]
        self._table, self._mask = whole[above : above + rows], None

    def filled(self, stream: int, number: int, table: np.ndarray, mask: np.ndarray) -> Any:
        """Whoever is given it is done with it before the next offer."""
        if mask is not self._mask:
            self._mask = None  # in case of an interrupt
            self._free[:] = mask
            if mask.base is None and not mask.flags.writeable:
                self._mask = mask
        self._table[:], bits = table, self._bits
        bits[0], bits[1] = stream, number
        return self._shown


def _shown(memory: np.ndarray, where: Any) -> Any:
    """What a program on a processor of one's own (`inline.device`) is given of memory that is
    filled in again and again: an array that lies there, which is found faster than NumPy's."""
    if where is None:
        return memory
    array = jax.device_put(memory, where)
    return array if np.shares_memory(np.asarray(array), memory) else memory


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that XLA reads where they lie: what does not begin at 64 bytes it copies first."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def choose_packed(rule: Rule, packed: Array, state: State) -> Array:
    """`choose` by a `Sheet`; there must be features."""
    rows, width = packed.shape
    sizes = (1 << n for n in range(32))
    room = next(size for size in sizes if size + -(-(size + 2) // width) == rows)
    flat = packed[: rows - room].reshape(-1)
    return choose(rule, _words(flat, 2), state, packed[rows - room :], flat[2 : room + 2] != 0)


class Slip:
    """One array (d + 4,) for `learn_packed`, to be filled in anew for every outcome: three words,
    the outcome and the features."""

    def __init__(self, width: int, dtype: Any, where: Any = None):
        self._whole = _aligned((width + 4,), np.dtype(dtype))
        self._bits, self._features = self._whole.view(np.uint32), self._whole[4:]
        self._shown = _shown(self._whole, where)

    def filled(self, words: tuple[int, int, int], features: np.ndarray, outcome: float) -> Any:
        """Not to be filled in again before what was learned from it is there: where the state is
        not there yet, it is read later than it is given."""
        bits = self._bits
        bits[0], bits[1], bits[2] = words
        self._whole[3], self._features[:] = outcome, features
        return self._shown


def learn_packed(rule: Rule, packed: Array, state: State) -> State:
    """`learn` by a `Slip`: an outcome that is a single number."""
    return learn(rule, _words(packed[:3], 3), state, packed[4:], packed[3])


def _words(numbers: Array, count: int) -> Array:
    """The first words of 32 bits that lie in an array of numbers."""
    return jax.lax.bitcast_convert_type(numbers[:count], jnp.uint32).reshape(-1)[:count]


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


def _key(rule: Rule, words: Array) -> Key:
    """A key for (stream, number), those of every decision: the cipher takes any two words."""
    return quick(jax.random.wrap_key_data(words, impl="threefry2x32"), rule.agent)
