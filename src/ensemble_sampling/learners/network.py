"""Any Equinox network as a learner: anchored to its prior draw, fed minibatches of its history."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.lax import optimization_barrier as barrier

from .. import checks
from ..core import Action, Key, Noise, some_key
from ..fast import module
from ..networks import Readout, true_gradient
from ..rewards import Reward, as_reward
from . import modules
from .histories import History, Moments, Reservoir, Scales, Window, put
from .losses import Loss, SquaredError


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
    widths: Any = None  # the prior's standard deviation of each array, where `make` decides it
    error: Any = None  # the mean squared surprise, where the noise is learned

    @property
    def living(self) -> Any:
        return jax.tree.map(lambda now, then: jnp.where(self.healthy, now, then), *self[:2])


class Batch(NamedTuple):
    """What a step learns from."""

    rows: Array  # of the history
    use: Array | None  # how much each counts; None: all the same
    keys: Key | None  # of their dropout masks, or of the models averaged over


Step = Callable[[Array, History, Member, Batch], Member]
"""(number of the step, history, member, batch) -> the member after it."""

SHARE = 0.2
"""Of the learned noise, how much members with perturbations of their own see, and networks with
dropout: with all of it they explore for longer than pays. Others are meant for a posterior, and see
it all."""


OPTIONAL = {
    **dict.fromkeys(("noise_std", "prior_std"), checks.positive),
    **dict.fromkeys(("batch", "arms", "indices"), checks.size),
}
"""What is checked of a setting that may be None."""


class Network(eqx.Module):
    """A network drawn by `make(key)`, learning by a few minibatch steps per observation.

    With n observations held each step follows the gradient of

        mean over a batch of loss(g(a_b), y_b + noise_b) + |(theta - theta_0) / prior_std|^2 / n,

    the paper's loss of Section 5.2 divided by n, with theta_0 the member's own prior draw. A
    single best model starts at `make.center(key)` where there is one, else at a draw, and is
    pulled to zero. Batches are drawn with replacement from the history and shared by all members,
    whose inputs are then one matrix product; each member has its own targets. `batch=None` takes
    the whole history in every step.

    Sizes are the only settings it needs. The paper's networks learn with `learning_rate=0.1`,
    `optimizer=optax.sgd`, the same `prior_std` as `make`, and the world's `noise_std`.

    make: key -> Equinox module taking features (dim,) to an output like the outcome. Its arrays of
        floats are learned; other arrays and `Frozen` parts stay as drawn, everything else is the
        same for all draws. With an attribute `pull` of 0 members are pulled to zero, not to their
        draw; with a method `penalty(parameters, widths)` they have that in place of the pull.
    capacity: how many observations are kept; what happens beyond is `history`'s business.
    noise_std: of the outcomes' noise. By default it is learned from how far off the member was,
        and the network itself has no units: features have their running mean taken off and are
        divided by their running standard deviation, and outputs are around the outcomes' mean.
    prior_std: of the weights. By default each array's own, as `make` draws it, and the network
        learns theta / prior_std: a step is the same share of what a weight may be in every layer.
    learning_rate, optimizer: `optimizer(learning_rate)` makes the steps; Adam's do not depend on
        the size of the loss.
    loss, history: by default `SquaredError()` and `Window()`.
    outcomes, reward: for outcome vectors, their width and the known reward R(y).
    arms: for a network from a common context to one output per action (arms,), of which only
        the chosen one learns; `predict` then reads the first row of the features.
    indices: for a module with many models in it, `module.at(index)` with `module.index(key)` a
        random one: how many of them a step averages over. The module itself is the mean model.
    """

    make: Callable[[Key], Any]
    dim: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True, default=2048)
    noise_std: float | None = None
    prior_std: float | None = None
    _: KW_ONLY
    learning_rate: float = 0.03
    steps: int = eqx.field(static=True, default=3)
    batch: int | None = eqx.field(static=True, default=64)
    optimizer: Callable[[Any], optax.GradientTransformation] = eqx.field(
        static=True, default=optax.adam
    )
    loss: Loss = eqx.field(default=None)
    history: Window | Reservoir = eqx.field(default=None)
    outcomes: int | None = eqx.field(static=True, default=None)
    reward: Reward | None = None
    arms: int | None = eqx.field(static=True, default=None)
    dropout: float | None = None
    readout: Readout = eqx.field(static=True, default=true_gradient)
    indices: int | None = eqx.field(static=True, default=None)
    weights_shared = False

    def __post_init__(self) -> None:
        self.make = modules.as_config(self.make)
        self.dim = checks.size("dim", self.dim)
        self.capacity = checks.size("capacity", self.capacity)
        self.steps = checks.size("steps", self.steps)
        self.learning_rate = checks.positive("learning_rate", self.learning_rate)
        for name, check in OPTIONAL.items():
            if (given := getattr(self, name)) is not None:
                setattr(self, name, check(name, given))
        if not callable(self.optimizer) or not hasattr(self._optimizer, "update"):
            raise TypeError(
                "optimizer must make a transformation from the learning rate: give optax.adam and "
                f"learning_rate=0.1, not optax.adam(0.1); got {self.optimizer!r}"
            )
        self.reward = as_reward(self.reward, self.outcomes)
        if self.arms is not None and self.outcomes is not None:
            raise ValueError("give outcomes (a vector per action) or arms (one output each)")
        needed = ("__call__", "mean", *(() if self.reward is None else ("expected",)))
        loss = SquaredError() if self.loss is None else self.loss
        self.loss = checks.part("loss", loss, *needed)
        history = Window() if self.history is None else self.history
        self.history = checks.part("history", history, "slot")
        if self.dropout is not None:
            checks.scalar("dropout", self.dropout, low=0.0, high=1.0)
        if not callable(self.readout):
            raise TypeError(
                f"readout must be a function such as true_gradient, got {self.readout!r}"
            )
        outputs = self._outcome_shape if self.arms is None else (self.arms,)
        modules.check(self.make, self.dim, outputs)

    @property
    def _outcome_shape(self) -> tuple[int, ...]:
        return () if self.outcomes is None else (self.outcomes,)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return self.optimizer(self.learning_rate)

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
        learned, fixed = (modules.spread(part, spread) for part in modules.parts(self.make(key)))
        return self._start(learned, fixed, getattr(self.make, "pull", 1.0), noise or Noise())

    def center(self, key: Key) -> tuple[History, Member]:
        learned, fixed = modules.parts(getattr(self.make, "center", self.make)(key))
        return self._start(learned, fixed, 0.0, Noise())

    def _start(
        self, parameters: Any, fixed: Any, pull: float, noise: Noise
    ) -> tuple[History, Member]:
        shape, index, zero = self._outcome_shape, (), jnp.zeros((), jnp.int32)
        if self.indices is not None:
            make = lambda key: self.make(key).index(key)  # noqa: E731
            index = eqx.filter_eval_shape(make, some_key()).shape
        shift = None if noise.shift is None else jnp.zeros((self.capacity, *index, *shape))
        weight = None if noise.weight is None else jnp.ones(self.capacity)
        history = History(
            features=jnp.zeros((self.capacity, self.dim)),
            outcomes=jnp.zeros((self.capacity, *shape)),
            chosen=None if self.arms is None else jnp.zeros(self.capacity, jnp.int32),
            seen=zero,
            scales=Scales.unknown(self.dim, shape) if self.noise_std is None else None,
        )
        return history, Member(
            model=parameters,
            start=parameters,
            fixed=fixed,
            pull=jnp.asarray(pull, float),
            optimizer=self._optimizer.init(parameters),
            noise=Noise(shift, weight),
            healthy=jnp.array(True),
            diverged=zero,
            widths=modules.widths(self.make) if self.prior_std is None else None,
            error=jnp.zeros(shape) if self.noise_std is None else None,
        )

    def prior_widths(self, member: Member) -> Any:
        """The prior's standard deviation of every weight."""
        if (std := self.prior_std) is not None:
            return jax.tree.map(lambda w: jnp.full(w.shape, std, float), member.model)
        return jax.tree.map(lambda w, s: jnp.broadcast_to(s, w.shape), member.model, member.widths)

    def noise(self, shared: History, member: Member) -> Any:
        """The noise's standard deviation: as given, or as the member has learned it."""
        if shared.scales is None:
            return self.noise_std
        return shared.scales.noise_std(member.error, shared.held)

    def index(self, key: Key, member: Member) -> Any:
        """A random one of the models in a module with `indices`."""
        return modules.whole(self.make, member.model, member.fixed).index(key)

    def outputs(
        self,
        shared: History,
        member: Member,
        parameters: Any,
        features: Array,
        keys: Any = None,
        index: Any = None,
    ) -> Array:
        """The outputs for rows of features, masked where keys are given, as the loss takes them."""
        module, inputs = modules.whole(self.make, parameters, member.fixed), shared.inputs(features)
        if index is not None:
            module = module.at(index)
        if keys is None:
            outputs = jax.vmap(module)(inputs)
        elif hasattr(module, "masked"):
            masked = lambda x, k: module.masked(x, k, self.dropout, self.readout)  # noqa: E731
            outputs = jax.vmap(masked)(inputs, keys)
        else:
            outputs = jax.vmap(lambda x, k: module(x, key=k))(inputs, keys)
        rescale = getattr(self.loss, "scale", None)
        if shared.scales is None or rescale is None:
            return outputs
        scale: Moments = rescale(shared.scales.outcomes)
        return scale.center + scale.spread * outputs

    def output(
        self, shared: History, member: Member, parameters: Any, action: Action, keys: Any = None
    ) -> Array:
        """The output that an outcome of the action is compared with."""
        output = self.outputs(shared, member, parameters, action.features[None], keys)[0]
        return output if self.arms is None else output[action.index]

    def predict(
        self,
        shared: History,
        member: Member,
        features: Array,
        keys: Key | None = None,
        index: Any = None,
    ) -> Array:
        """Expected rewards: with a dropout mask for every key, or under the model of an index."""
        checks.features(features, self.dim, self.arms)
        if self.arms is not None:
            features, keys = features[:1], None if keys is None else keys[:1]
        outputs = self.outputs(shared, member, member.living, features, keys, index)
        if self.reward is not None:
            return self.loss.expected(self.reward, outputs, self.noise(shared, member))
        return self.loss.mean(outputs if self.arms is None else outputs[0])

    def observe(
        self,
        key: Key,
        shared: History,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
        step: Step | None = None,
        batch_key: Key | None = None,
    ) -> tuple[History, Member]:
        """Learn from one outcome: by `step` in place of gradient steps, and on the batches of
        `batch_key`, where they are given."""
        self._check(member, action, outcome, noise)
        slot_key, common_key, mask_key = jax.random.split(key, 3)
        member = self._note_surprise(mask_key, shared, member, action, outcome)
        # The observation, and the member's perturbation of it, go where the history says.
        slot, kept = self.history.slot(slot_key, shared.seen, self.capacity)
        history = shared.add(slot, kept, action, outcome)
        member = member._replace(
            noise=jax.tree.map(lambda old, new: put(old, slot, kept, new), member.noise, noise)
        )
        rows, use = self._batches(common_key if batch_key is None else batch_key, history.held)

        def numbered(member: Member, at: tuple[Array, Array]) -> tuple[Member, None]:
            rows, i = at
            keys = None
            if self.dropout is not None or self.indices is not None:
                # A mask for every row, or a few models for all of them.
                each = rows.shape[0] if self.indices is None else self.indices
                keys = jax.random.split(jax.random.fold_in(mask_key, i), each)
            return (step or self._step)(i, history, member, Batch(rows, use, keys)), None

        def one_by_one(member: Member) -> Member:
            unroll = self.steps if self.steps <= 4 else 1  # a loop costs time, copies compilation
            at = rows, jnp.arange(self.steps)
            return self.examine(jax.lax.scan(numbered, member, at, unroll=unroll)[0])

        if step is None and jax.default_backend() == "gpu":
            kernel: Any = module("network_kernel")
            if kernel is not None and kernel.applies(self, member):

                def at_once(member: Member) -> Member:
                    model, norm = kernel.learn(self, history, member, rows)
                    return self.examine(member._replace(model=model), norm)

                return history, jax.lax.platform_dependent(member, cuda=at_once, default=one_by_one)
        return history, one_by_one(member)

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

    def _note_surprise(
        self, key: Key, shared: History, member: Member, action: Action, outcome: Array
    ) -> Member:
        """Note how far off the member is, before it learns: what its noise is learned from."""
        if shared.scales is None:
            return member
        keys = None if self.dropout is None else jax.random.split(key, 1)
        output = self.output(shared, member, member.living, action, keys)
        square = (outcome - self.loss.mean(output)) ** 2
        # Before outcomes differ, surprises have no unit; nor does a lost network say anything.
        scale = shared.scales.outcomes.variance
        square = jnp.where((scale > 0) & jnp.isfinite(square), square, scale)
        count = jnp.minimum(shared.seen + 1, self.capacity)
        return member._replace(error=member.error + (square - member.error) / count)

    def _batches(self, key: Key, held: Array) -> tuple[Array, Array | None]:
        """(rows of the history for every step, how much each of a step's rows counts)."""
        if self.batch is None:
            rows = jnp.broadcast_to(jnp.arange(self.capacity), (self.steps, self.capacity))
            return rows, (rows[0] < held) * (self.capacity / held)
        bits = jax.random.bits(key, (self.steps, self.batch), jnp.uint32)
        # Uniform to held / 2^32, at half randint's cost.
        rows = bits % held.astype(jnp.uint32)
        # Left free, a GPU draws a row's number anew for each of the row's features.
        return (barrier(rows) if jax.default_backend() == "gpu" else rows), None

    def _step(self, i: Array, history: History, member: Member, batch: Batch) -> Member:
        """One gradient step on a batch of the history."""
        return self.descend(member, self.gradient(history, member, batch))

    def descend(self, member: Member, gradient: Any) -> Member:
        """The member after a step of the optimizer against a gradient in its units."""
        return self.apply_updates(
            member, *self._optimizer.update(gradient, member.optimizer, member.model)
        )

    def apply_updates(self, member: Member, updates: Any, state: Any) -> Member:
        """The member after updates in the units of `gradient`, its optimizer in a new state."""
        if member.widths is not None:
            updates = jax.tree.map(jnp.multiply, updates, member.widths)

        # Putting a diverged network back here, not where it is noticed, saves a pass over all
        # weights: this one reads them anyway.
        def revive(now: Array, then: Array) -> Array:
            return jnp.where(member.healthy, now, then)

        model = jax.tree.map(revive, optax.apply_updates(member.model, updates), member.start)
        state = jax.tree.map(revive, state, self._optimizer.init(member.start))
        return member._replace(model=model, optimizer=state, healthy=jnp.array(True))

    def gradient(self, history: History, member: Member, batch: Batch) -> Any:
        """Of what is minimised (see above), in units of the prior where `make` has one."""
        gradient = jax.grad(self._misfit)(member.model, history, member, batch)
        return self.anchored(gradient, member, history.held)

    def anchored(self, gradient: Any, member: Member, held: Array) -> Any:
        """A mean loss's gradient with the prior's pull of `held` observations, in units of the
        prior where `make` has one."""
        std = self.prior_std
        if hasattr(self.make, "penalty"):
            penalty = jax.grad(self.make.penalty)(member.model, member.widths)  # pyright: ignore[reportFunctionMemberAccess]
            total = jax.tree.map(lambda g, p: g + p / held, gradient, penalty)
            return jax.tree.map(jnp.multiply, total, member.widths)

        # The pull to the start is written out: it is one fused pass over the weights this way.
        def pulled(g: Array, w: Array, w0: Array, s: Any = None) -> Array:
            if std is not None:
                return g + 2 * (w - member.pull * w0) / (std**2 * held)
            return s * g + 2 * (w - member.pull * w0) / (s * held)

        widths = () if std is not None else (member.widths,)
        return jax.tree.map(pulled, gradient, member.model, member.start, *widths)

    def _misfit(
        self, model: Any, history: History, member: Member, batch: Batch, index: Any = None
    ) -> Array:
        """The mean loss over a batch, as the member sees the outcomes: that of the model of an
        index, or the average over a few of them where the member holds many."""
        if self.indices is not None and index is None:
            several = jax.vmap(lambda key: self.index(key, member))(batch.keys)
            batch = batch._replace(keys=None)
            each = jax.vmap(lambda one: self._misfit(model, history, member, batch, one))(several)
            return each.mean()
        rows, use, keys = batch
        targets, noise_std = history.outcomes[rows], self.noise(history, member)
        explores = self.dropout is not None or jax.tree.leaves(member.noise)
        if history.scales is not None and explores:
            noise_std = SHARE * noise_std
        if member.noise.shift is not None:
            shift = member.noise.shift[rows]
            shift = shift if index is None else jnp.tensordot(shift, index, (1, 0))
            targets = targets + noise_std * shift
        outputs = self.outputs(history, member, model, history.features[rows], keys, index)
        if history.chosen is not None:
            outputs = jnp.take_along_axis(outputs, history.chosen[rows, None], axis=1)[:, 0]
        each = jax.vmap(lambda o, y: self.loss(o, y, noise_std))(outputs, targets)
        if member.noise.weight is not None:
            each = each * member.noise.weight[rows]
        return each.mean() if use is None else (each * use).mean()

    def examine(self, member: Member, norm: Array | None = None) -> Member:
        """Notice a network that blew up, by the sum of squares of its weights."""
        if norm is None:
            # One pass: it is infinite or NaN where a weight is, or is about to be.
            norm = jnp.asarray(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(member.model)))
        healthy = jnp.isfinite(norm)
        return member._replace(healthy=healthy, diverged=member.diverged + ~healthy)

    def diverged(self, member: Member) -> Array:
        """How often the network had to be put back to its start."""
        return member.diverged


def _kinds(noise: Noise) -> str:
    named = [name for name, part in noise._asdict().items() if part is not None]
    return " and ".join(named) or "none"
