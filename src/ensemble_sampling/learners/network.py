"""Any Equinox network as a learner: anchored to its prior draw, fed minibatches of its history."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
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


def _is_configuration(make: Any) -> bool:
    return isinstance(make, eqx.Module)


class Member(NamedTuple):
    """One network: where it is, where it started, how strongly it is pulled back there.

    A network that is not `healthy` has diverged: its start acts in its place, and its next
    update begins there, to learn again from the history.
    """

    model: Any
    start: Any
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

    After n observations each step follows the gradient of

        mean over a batch of loss(g(a_b), y_b + noise_b) + |theta - theta_0|^2 / (prior_std^2 n),

    the paper's loss of Section 5.2 divided by n, with theta_0 the member's own prior draw. A
    single best model starts at `make.center(key)` where there is one, else at a draw, and is
    pulled to zero. Batches are drawn with replacement from the history and shared by all members,
    whose inputs are then one matrix product; each member has its own targets. `batch=None` takes
    the whole history in every step.

    make: key -> Equinox module taking features (dim,) to an output like the outcome.
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
        if not callable(make):
            raise TypeError(f"make must be a function key -> module, got {make!r}")
        self.make = make if _is_configuration(make) else _Draw(make)
        self.dim = checks.size("dim", dim)
        self.capacity = checks.size("capacity", capacity)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_std = checks.positive("prior_std", prior_std)
        self.learning_rate = checks.positive("learning_rate", learning_rate)
        self.steps = checks.size("steps", steps)
        self.batch = None if batch is None else checks.size("batch", batch)
        if not callable(optimizer):
            raise TypeError(
                "optimizer must make a transformation from the learning rate: give optax.adam and "
                f"learning_rate=0.1, not optax.adam(0.1); got {optimizer!r}"
            )
        self.optimizer = optimizer
        self.loss = SquaredError() if loss is None else loss
        self.history = Window() if history is None else history
        self.outcomes = outcomes
        self.reward = checked(reward, outcomes)
        self.arms = None if arms is None else checks.size("arms", arms)
        if arms is not None and outcomes is not None:
            raise ValueError("give outcomes (a vector per action) or arms (one output each)")
        if dropout is not None:
            checks.scalar("dropout", dropout, low=0.0, high=1.0)
        self.dropout = dropout
        self.readout = readout
        self._check_output()

    @property
    def _outcome_shape(self) -> tuple[int, ...]:
        return () if self.outcomes is None else (self.outcomes,)

    def _check_output(self) -> None:
        row = jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float))
        output = jax.eval_shape(lambda k, x: self.make(k)(x), jax.random.key(0), row)
        wanted = self._outcome_shape if self.arms is None else (self.arms,)
        shape = getattr(output, "shape", None)
        if shape != wanted:
            raise ValueError(
                f"the module must map features of shape ({self.dim},) to an output of shape "
                f"{wanted}, but it gives {shape}"
            )

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[History, Member]:
        model = jax.tree.map(
            lambda leaf: spread * leaf if eqx.is_inexact_array(leaf) else leaf, self.make(key)
        )
        return self._start(model, 1.0, noise or Noise())

    def center(self, key: Key) -> tuple[History, Member]:
        return self._start(getattr(self.make, "center", self.make)(key), 0.0, Noise())

    def _start(self, model: Any, pull: float, noise: Noise) -> tuple[History, Member]:
        parameters = eqx.filter(model, eqx.is_inexact_array)
        room = (self.capacity, *self._outcome_shape)
        shift = None if noise.shift is None else jnp.zeros(room)
        weight = None if noise.weight is None else jnp.ones(self.capacity)
        index = None if self.arms is None else jnp.zeros(self.capacity, jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        history = History(jnp.zeros((self.capacity, self.dim)), jnp.zeros(room), index, zero)
        state = self.optimizer(self.learning_rate).init(parameters)
        noise, healthy = Noise(shift, weight), jnp.array(True)
        pulled = jnp.asarray(pull, float)
        return history, Member(parameters, parameters, pulled, state, noise, healthy, zero)

    def _module(self, parameters: Any) -> Any:
        # What is not a parameter (activation functions, sizes) is the same for every draw.
        fixed = eqx.filter(
            eqx.filter_eval_shape(self.make, jax.random.key(0)),
            lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct),
            inverse=True,
        )
        return eqx.combine(parameters, fixed)

    def outputs(self, parameters: Any, features: Array, keys: Key | None = None) -> Array:
        """The network's raw outputs for rows of features, masked where keys are given."""
        module = self._module(parameters)
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
            return self.loss.mean(self.outputs(member.living, features[:1], keys)[0])
        mean = self.loss.mean(self.outputs(member.living, features, keys))
        return mean if self.reward is None else self.reward.expected(mean, self.noise_std)

    def observe(
        self,
        key: Key,
        shared: History,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[History, Member]:
        if jnp.shape(outcome) != self._outcome_shape:
            raise ValueError(
                f"the outcome must have shape {self._outcome_shape}, got {jnp.shape(outcome)}"
            )
        slot_key, batch_key, mask_key = jax.random.split(key, 3)
        slot, kept = self.history.slot(slot_key, shared.seen, self.capacity)
        put = lambda array, new: array.at[slot].set(jnp.where(kept, new, array[slot]))  # noqa: E731
        history = History(
            put(shared.features, action.features),
            put(shared.outcomes, outcome),
            None if shared.chosen is None else put(shared.chosen, action.index),
            shared.seen + 1,
        )
        member = member._replace(noise=jax.tree.map(put, member.noise, noise))
        held = jnp.minimum(history.seen, self.capacity)
        size = self.history.effective(history.seen, self.capacity)
        if self.batch is None:
            rows = jnp.broadcast_to(jnp.arange(self.capacity), (self.steps, self.capacity))
            use = (rows[0] < held) * (self.capacity / held)
        else:
            bits = jax.random.bits(batch_key, (self.steps, self.batch), jnp.uint32)
            rows = bits % held.astype(jnp.uint32)  # uniform to held / 2^32, at half randint's cost
            use = None

        def step(member: Member, numbered: tuple[Array, Array]) -> tuple[Member, None]:
            rows, i = numbered
            keys = None
            if self.dropout is not None:
                keys = jax.random.split(jax.random.fold_in(mask_key, i), rows.shape[0])
            return self._step(history, member, rows, use, size, keys), None

        unroll = self.steps if self.steps <= 4 else 1  # a loop costs time, its copies compilation
        member, _ = jax.lax.scan(step, member, (rows, jnp.arange(self.steps)), unroll=unroll)
        return history, self._examine(member)

    def _step(
        self,
        history: History,
        member: Member,
        rows: Array,
        use: Array | None,
        size: Array,
        keys: Key | None,
    ) -> Member:
        """One gradient step on the batch `rows` of the history, weighed by `use`."""
        targets = history.outcomes[rows]
        if member.noise.shift is not None:
            targets = targets + self.noise_std * member.noise.shift[rows]

        def loss(model: Any) -> Array:
            outputs = self.outputs(model, history.features[rows], keys)
            if history.chosen is not None:
                outputs = jnp.take_along_axis(outputs, history.chosen[rows, None], axis=1)[:, 0]
            each = jax.vmap(lambda o, y: self.loss(o, y, self.noise_std))(outputs, targets)
            if member.noise.weight is not None:
                each = each * member.noise.weight[rows]
            if use is not None:
                each = each * use
            return each.mean()

        # The pull's gradient is written out: it is one fused pass over the weights this way.
        gradient = jax.tree.map(
            lambda g, w, w0: g + 2 * (w - member.pull * w0) / (self.prior_std**2 * size),
            jax.grad(loss)(member.model),
            member.model,
            member.start,
        )
        optimizer = self.optimizer(self.learning_rate)
        updates, state = optimizer.update(gradient, member.optimizer, member.model)
        # Putting a diverged network back here, not where it is noticed, saves a pass over all
        # weights: this one reads them anyway.
        revive = lambda now, then: jnp.where(member.healthy, now, then)  # noqa: E731
        model = jax.tree.map(revive, optax.apply_updates(member.model, updates), member.start)
        state = jax.tree.map(revive, state, optimizer.init(member.start))
        return member._replace(model=model, optimizer=state, healthy=jnp.array(True))

    def _examine(self, member: Member) -> Member:
        """Notice a network that blew up."""
        # One pass: the sum of squares is infinite or NaN where a weight is, or is about to be.
        norm = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(member.model))
        healthy = jnp.isfinite(norm)
        return member._replace(healthy=healthy, diverged=member.diverged + ~healthy)

    def diverged(self, member: Member) -> Array:
        """How often the network had to be put back to its start."""
        return member.diverged
