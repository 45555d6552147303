"""Any Equinox network as a learner: anchored to its prior draw, fed minibatches of its history."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from .. import checks
from ..core import Action, Key, Noise
from ..networks import Readout, true_gradient
from ..rewards import Reward, checked
from .histories import History, Reservoir, Window
from .losses import Loss, SquaredError


class _Draw(eqx.Module):
    """A plain function key -> module, made part of the configuration's structure."""

    function: Callable[[Key], Any] = eqx.field(static=True)

    def __call__(self, key: Key) -> Any:
        return self.function(key)


def _configured(make: Any) -> Any:
    """`make` as part of a configuration: a module with settings of its own, or a plain function."""
    if not callable(make):
        raise TypeError(f"make must be a function key -> module, got {make!r}")
    return make if isinstance(make, eqx.Module) else _Draw(make)


class Member(NamedTuple):
    """One network: where it is, where it started, how strongly it is pulled back there.

    A network that is not `healthy` has diverged: its start acts in its place, and its next
    update begins there, to learn again from the history.
    """

    model: Any
    start: Any
    fixed: Any  # what `make` drew that is not learned: arrays of integers, truth values, keys
    pull: Array
    optimizer: Any
    noise: Noise
    healthy: Array
    diverged: Array

    @property
    def living(self) -> Any:
        return jax.tree.map(lambda now, then: jnp.where(self.healthy, now, then), *self[:2])


class Network(eqx.Module):
    """A network drawn by `make(key)`, learning by a few minibatch steps per observation.

    With n observations held each step follows the gradient of

        mean over a batch of loss(g(a_b), y_b + noise_b) + |theta - theta_0|^2 / (prior_std^2 n),

    the paper's loss of Section 5.2 divided by n, with theta_0 the member's own prior draw. A
    single best model starts at `make.center(key)` where there is one, else at a draw, and is
    pulled to zero. Batches are drawn with replacement from the history and shared by all members,
    whose inputs are then one matrix product; each member has its own targets. `batch=None` takes
    the whole history in every step.

    make: key -> Equinox module taking features (dim,) to an output like the outcome. Its arrays of
        floats are learned; other arrays stay as drawn, everything else is the same for all draws.
    capacity: how many observations are kept; what happens beyond is `history`'s business.
    outcomes, reward: for outcome vectors, their width and the known reward R(y).
    arms: for a network from a common context to one output per action (arms,), of which only
        the chosen one learns; `predict` then reads the first row of the features.
    """

    make: Callable[[Key], Any]
    dim: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    noise_std: float
    prior_std: float
    learning_rate: float
    steps: int = eqx.field(static=True)
    batch: int | None = eqx.field(static=True)
    optimizer: Callable[[Any], optax.GradientTransformation] = eqx.field(static=True)
    loss: Loss
    history: Window | Reservoir
    outcomes: int | None = eqx.field(static=True)
    reward: Reward | None
    arms: int | None = eqx.field(static=True)
    dropout: float | None
    readout: Readout = eqx.field(static=True)
    weights_shared = False

    def __init__(
        self,
        make: Callable[[Key], Any],
        dim: int,
        capacity: int,
        noise_std: float = 1.0,
        prior_std: float = 1.0,
        *,
        learning_rate: float = 0.1,
        steps: int = 3,
        batch: int | None = 64,
        optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd,
        loss: Loss | None = None,
        history: Window | Reservoir | None = None,
        outcomes: int | None = None,
        reward: Any = None,
        arms: int | None = None,
        dropout: float | None = None,
        readout: Readout = true_gradient,
    ):
        self.make = _configured(make)
        self.dim = checks.size("dim", dim)
        self.capacity = checks.size("capacity", capacity)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_std = checks.positive("prior_std", prior_std)
        self.learning_rate = checks.positive("learning_rate", learning_rate)
        self.steps = checks.size("steps", steps)
        self.batch = None if batch is None else checks.size("batch", batch)
        if not callable(optimizer) or not hasattr(optimizer(self.learning_rate), "update"):
            raise TypeError(
                "optimizer must make a transformation from the learning rate: give optax.adam and "
                f"learning_rate=0.1, not optax.adam(0.1); got {optimizer!r}"
            )
        self.optimizer = optimizer
        self.outcomes = outcomes
        self.reward = checked(reward, outcomes)
        self.arms = None if arms is None else checks.size("arms", arms)
        if arms is not None and outcomes is not None:
            raise ValueError("give outcomes (a vector per action) or arms (one output each)")
        needed = ("__call__", "mean") if reward is None else ("__call__", "mean", "expected")
        self.loss = checks.part("loss", SquaredError() if loss is None else loss, *needed)
        self.history = checks.part("history", Window() if history is None else history, "slot")
        if dropout is not None:
            checks.scalar("dropout", dropout, low=0.0, high=1.0)
        self.dropout = dropout
        if not callable(readout):
            raise TypeError(f"readout must be a function such as true_gradient, got {readout!r}")
        self.readout = readout
        self._check_module()

    @property
    def _outcome_shape(self) -> tuple[int, ...]:
        return () if self.outcomes is None else (self.outcomes,)

    def _check_module(self) -> None:
        """Try `make` and what it makes on shapes alone, at no cost."""
        try:
            module = eqx.filter_eval_shape(self.make, jax.random.key(0))
        except Exception as error:
            raise TypeError(
                "make must be a function key -> module; for make(jax.random.key(0)) it raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if not callable(module):
            raise TypeError(f"make must return a module that can be called, got {module!r}")
        if not jax.tree.leaves(eqx.filter(module, _is_parameter)):
            raise ValueError(f"the module has no array of floats to learn: {module!r}")
        row = jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float))
        try:
            output = eqx.filter_eval_shape(lambda m, x: m(x), module, row)
        except Exception as error:
            raise ValueError(
                f"the module must take features of shape ({self.dim},), but it raised "
                f"{type(error).__name__}: {error}"
            ) from error
        wanted = self._outcome_shape if self.arms is None else (self.arms,)
        shape = getattr(output, "shape", None)
        if shape != wanted:
            raise ValueError(
                f"the module must map features of shape ({self.dim},) to an output of shape "
                f"{wanted}, but it gives {shape}"
            )

    def check_outcome(self, outcome: Any) -> None:
        """Refuse what cannot be learned: another shape, or what the loss has no likelihood for."""
        if np.shape(outcome) != self._outcome_shape:
            raise ValueError(
                f"the outcome must have shape {self._outcome_shape}, got {np.shape(outcome)}"
            )
        if hasattr(self.loss, "check"):
            self.loss.check(outcome)  # pyright: ignore[reportAttributeAccessIssue]

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[History, Member]:
        learned, fixed = _parts(self.make(key))
        return self._start(
            jax.tree.map(lambda w: spread * w, learned), fixed, 1.0, noise or Noise()
        )

    def center(self, key: Key) -> tuple[History, Member]:
        learned, fixed = _parts(getattr(self.make, "center", self.make)(key))
        return self._start(learned, fixed, 0.0, Noise())

    def _start(
        self, parameters: Any, fixed: Any, pull: float, noise: Noise
    ) -> tuple[History, Member]:
        room = (self.capacity, *self._outcome_shape)
        shift = None if noise.shift is None else jnp.zeros(room)
        weight = None if noise.weight is None else jnp.ones(self.capacity)
        index = None if self.arms is None else jnp.zeros(self.capacity, jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        history = History(jnp.zeros((self.capacity, self.dim)), jnp.zeros(room), index, zero)
        return history, Member(
            model=parameters,
            start=parameters,
            fixed=fixed,
            pull=jnp.asarray(pull, float),
            optimizer=self.optimizer(self.learning_rate).init(parameters),
            noise=Noise(shift, weight),
            healthy=jnp.array(True),
            diverged=zero,
        )

    def _outputs(self, member: Member, parameters: Any, features: Array, keys: Any) -> Array:
        """The network's raw outputs for rows of features, masked where keys are given."""
        # What is no array (activation functions, sizes) is the same for every draw.
        drawn = eqx.filter_eval_shape(self.make, jax.random.key(0))
        rest = eqx.filter(drawn, _is_shape, inverse=True)
        module = eqx.combine(parameters, member.fixed, rest)
        if keys is None:
            return jax.vmap(module)(features)
        if hasattr(module, "masked"):
            return jax.vmap(lambda x, k: module.masked(x, k, self.dropout, self.readout))(
                features, keys
            )
        return jax.vmap(lambda x, k: module(x, key=k))(features, keys)

    def predict(self, shared: History, member: Member, features: Array) -> Array:
        return self._rewards(member, features, None)

    def predict_masked(self, member: Member, features: Array, keys: Key) -> Array:
        """Expected rewards with a fresh dropout mask for every key."""
        return self._rewards(member, features, keys)

    def _rewards(self, member: Member, features: Array, keys: Key | None) -> Array:
        checks.features(features, self.dim, self.arms)
        if self.arms is not None:
            keys = None if keys is None else keys[:1]
            return self.loss.mean(self._outputs(member, member.living, features[:1], keys)[0])
        outputs = self._outputs(member, member.living, features, keys)
        if self.reward is None:
            return self.loss.mean(outputs)
        return self.loss.expected(self.reward, outputs, self.noise_std)

    def observe(
        self,
        key: Key,
        shared: History,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[History, Member]:
        self._check(member, action, outcome, noise)
        slot_key, batch_key, mask_key = jax.random.split(key, 3)
        history, member = self._keep(slot_key, shared, member, action, outcome, noise)
        held = jnp.minimum(history.seen, self.capacity)
        rows, use = self._batches(batch_key, held)

        def step(member: Member, numbered: tuple[Array, Array]) -> tuple[Member, None]:
            rows, i = numbered
            keys = None
            if self.dropout is not None:
                keys = jax.random.split(jax.random.fold_in(mask_key, i), rows.shape[0])
            return self._step(history, member, rows, use, held, keys), None

        unroll = self.steps if self.steps <= 4 else 1  # a loop costs time, its copies compilation
        member, _ = jax.lax.scan(step, member, (rows, jnp.arange(self.steps)), unroll=unroll)
        return history, self._examine(member)

    def _check(self, member: Member, action: Action, outcome: Array, noise: Noise) -> None:
        self.check_outcome(outcome)
        checks.array("the action's features", action.features, (self.dim,))
        if self.arms is not None:
            checks.index(action.index, self.arms)
        if jax.tree.structure(noise) != jax.tree.structure(member.noise):
            raise ValueError(
                f"the noise has {_kinds(noise)}, but the member was started for "
                f"{_kinds(member.noise)}: give init the same kinds"
            )

    def _keep(
        self,
        key: Key,
        history: History,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[History, Member]:
        """Put the observation, and the member's perturbation of it, where the history says."""
        slot, kept = self.history.slot(key, history.seen, self.capacity)

        def put(array: Array, new: Array) -> Array:
            return array.at[slot].set(jnp.where(kept, new, array[slot]))

        history = History(
            put(history.features, action.features),
            put(history.outcomes, outcome),
            None if history.chosen is None else put(history.chosen, action.index),
            history.seen + 1,
        )
        return history, member._replace(noise=jax.tree.map(put, member.noise, noise))

    def _batches(self, key: Key, held: Array) -> tuple[Array, Array | None]:
        """(rows of the history for every step, how much each of a step's rows counts)."""
        if self.batch is None:
            rows = jnp.broadcast_to(jnp.arange(self.capacity), (self.steps, self.capacity))
            return rows, (rows[0] < held) * (self.capacity / held)
        bits = jax.random.bits(key, (self.steps, self.batch), jnp.uint32)
        # Uniform to held / 2^32, at half randint's cost.
        return bits % held.astype(jnp.uint32), None

    def _step(
        self,
        history: History,
        member: Member,
        rows: Array,
        use: Array | None,
        held: Array,
        keys: Key | None,
    ) -> Member:
        """One gradient step on the batch `rows` of the history, weighed by `use`."""
        gradient = jax.grad(self._misfit)(member.model, history, member, rows, use, keys)
        # The pull's gradient is written out: it is one fused pass over the weights this way.
        gradient = jax.tree.map(
            lambda g, w, w0: g + 2 * (w - member.pull * w0) / (self.prior_std**2 * held),
            gradient,
            member.model,
            member.start,
        )
        optimizer = self.optimizer(self.learning_rate)
        updates, state = optimizer.update(gradient, member.optimizer, member.model)

        # Putting a diverged network back here, not where it is noticed, saves a pass over all
        # weights: this one reads them anyway.
        def revive(now: Array, then: Array) -> Array:
            return jnp.where(member.healthy, now, then)

        model = jax.tree.map(revive, optax.apply_updates(member.model, updates), member.start)
        state = jax.tree.map(revive, state, optimizer.init(member.start))
        return member._replace(model=model, optimizer=state, healthy=jnp.array(True))

    def _misfit(
        self,
        model: Any,
        history: History,
        member: Member,
        rows: Array,
        use: Array | None,
        keys: Key | None,
    ) -> Array:
        """The mean loss over a batch, as the member sees the outcomes."""
        targets = history.outcomes[rows]
        if member.noise.shift is not None:
            targets = targets + self.noise_std * member.noise.shift[rows]
        outputs = self._outputs(member, model, history.features[rows], keys)
        if history.chosen is not None:
            outputs = jnp.take_along_axis(outputs, history.chosen[rows, None], axis=1)[:, 0]
        each = jax.vmap(lambda o, y: self.loss(o, y, self.noise_std))(outputs, targets)
        if member.noise.weight is not None:
            each = each * member.noise.weight[rows]
        return each.mean() if use is None else (each * use).mean()

    def _examine(self, member: Member) -> Member:
        """Notice a network that blew up."""
        # One pass: the sum of squares is infinite or NaN where a weight is, or is about to be.
        norm = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(member.model))
        healthy = jnp.isfinite(norm)
        return member._replace(healthy=healthy, diverged=member.diverged + ~healthy)

    def diverged(self, member: Member) -> Array:
        """How often the network had to be put back to its start."""
        return member.diverged


def _parts(module: Any) -> tuple[Any, Any]:
    """(what of a module is learned: its arrays of floats, its other arrays)."""
    return eqx.partition(
        eqx.filter(jax.tree.map(_as_jax, module), eqx.is_array), eqx.is_inexact_array
    )


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_parameter(leaf: Any) -> bool:
    return _is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _kinds(noise: Noise) -> str:
    named = [name for name, part in noise._asdict().items() if part is not None]
    return " and ".join(named) or "none"
