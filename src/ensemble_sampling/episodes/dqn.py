"""Networks that say what actions are worth, learned from replayed episodes: one, or an ensemble."""

from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..agents.greedy import greedy
from ..agents.point import Schedule, as_schedule
from ..config import short
from ..core import Key, Noise, fact
from ..learners.histories import History, Reservoir, Window
from ..learners.network import Member, Network
from ..posteriors.ensemble import Perturbation, Unperturbed
from .networks import as_inputs
from .replay import Replay, returns
from .world import Episode


class Belief(NamedTuple):
    """The members' networks, and what they learn from."""

    members: Member
    replay: Replay


class MemberPolicy(eqx.Module):
    """The best action in the eyes of one member; any, with the chance `epsilon`."""

    network: Network
    member: Member
    epsilon: Array | None = None

    def __call__(self, key: Key, observation: Array, t: Array) -> Array:
        values = action_values(self.network, self.member, self.member.living, observation[None])[0]
        if self.epsilon is None:
            return greedy(key, values)
        coin_key, tie_key = jax.random.split(key)
        explore = jax.random.uniform(coin_key) < self.epsilon
        return greedy(tie_key, jnp.where(explore, 0.0, values))  # exploring: all tie


def action_values(network: Network, member: Member, model: Any, observations: Array) -> Array:
    """(rows, actions) by a member whose network is `model`."""
    nothing = History(jnp.zeros((0, network.dim)), jnp.zeros(0), None, jnp.zeros((), jnp.int32))
    inputs = jax.vmap(as_inputs)(observations)
    return network.loss.mean(network.outputs(nothing, member, model, inputs))


class BootstrappedDQN(eqx.Module):
    """Deep exploration by an ensemble of value functions (Osband et al., 2016, 2018).

    One member, drawn at random, is followed for a whole episode. After it every member takes
    `steps` gradient steps, each on `batch` episodes, the newest among them, towards what their
    steps were worth in its own eyes (see `returns`): with perturbed rewards or weights of its own,
    and with the values that its network had before the first of these steps.

    network: with `arms` the number of actions, and `noise_std` that of rewards. What a member
        thinks of what it has not seen is its draw of `make`; `RandomisedPrior(make, scale)` adds
        prior functions that stay.
    perturbation: how members' data differ: `Gaussian()` adds noise to rewards, `Bernoulli()`
        gives every episode the weight 0 or 2.
    trace: how much of an episode's own return is believed along greedy actions; 0 is one step.
    double: the best next action is that of the network as it is, its value that of the network
        before.
    shared: how many of the network's arrays, from the first on, all members have in common; they
        learn from all, as a trunk with a head for each member.
    capacity, history: how many episodes are kept, and which
    """

    network: Network
    members: int = eqx.field(static=True, default=20)
    perturbation: Perturbation = Unperturbed()
    _: KW_ONLY
    discount: float = 0.99
    trace: float = 0.0
    steps: int = eqx.field(static=True, default=10)
    batch: int = eqx.field(static=True, default=32)
    capacity: int = eqx.field(static=True, default=1000)
    double: bool = eqx.field(static=True, default=False)
    shared: int = eqx.field(static=True, default=0)
    history: Window | Reservoir = Window()
    __repr__ = short

    def __check_init__(self) -> None:
        if not isinstance(self.network, Network) or self.network.arms is None:
            raise TypeError(
                "network must be es.Network(make, dim, arms=..., noise_std=...) with an output for "
                f"each action, got {self.network!r}"
            )
        if self.network.noise_std is None:
            raise ValueError(
                "network needs the noise_std of rewards: targets are made of values, whose noise "
                "cannot be learned from them"
            )
        checks.part("perturbation", self.perturbation, "draw", "reweights")
        for name in ("discount", "trace"):
            checks.scalar(name, getattr(self, name), low=0.0, high=1.0)
        for name in ("members", "steps", "batch", "capacity"):
            checks.size(name, getattr(self, name))
        checks.size("shared", self.shared, least=0)
        checks.flag("double", self.double)
        checks.part("history", self.history, "slot")

    @property
    def label(self) -> str:
        return f"{self.members} value function{'s' if self.members > 1 else ''}"

    def init(self, key: Key, episode: Episode) -> Belief:
        self._check(episode)
        keys = jax.random.split(key, self.members)
        members = jax.vmap(lambda k: self.network.init(k)[1])(keys)
        start = self._share(members.start, lambda array: array[:1])
        members = members._replace(model=start, start=start)
        noise = jax.eval_shape(lambda: self._noise(key, episode.limit))
        return Belief(members, Replay.empty(episode, noise, self.capacity))

    def _check(self, episode: Episode) -> None:
        given = max(1, episode.observations[0].size)
        if given != self.network.dim:
            raise ValueError(
                f"the network takes {self.network.dim} numbers, and the world shows {given}"
            )

    def policy(self, key: Key, state: Belief) -> MemberPolicy:
        chosen = jax.random.randint(key, (), 0, self.members)
        return MemberPolicy(self.network, jax.tree.map(lambda leaf: leaf[chosen], state.members))

    def update(self, key: Key, state: Belief, episode: Episode) -> Belief:
        slot_key, noise_key, batch_key = jax.random.split(key, 3)
        noise = self._noise(noise_key, episode.limit)
        replay = state.replay.add(slot_key, self.history, episode, noise)
        before = state.members

        def step(members: Member, i: Array) -> tuple[Member, None]:
            episodes, noise = replay.batch(jax.random.fold_in(batch_key, i), self.batch)
            gradient = jax.vmap(self._gradient, in_axes=(0, 0, None, 1, None))(
                before, members, episodes, noise, replay.steps
            )
            gradient = self._share(gradient, lambda g: g.mean(axis=0, keepdims=True))
            return jax.vmap(self.network.descend)(members, gradient), None

        members = jax.lax.scan(step, before, jnp.arange(self.steps))[0]
        return Belief(jax.vmap(self.network.examine)(members), replay)

    def diverged(self, state: Belief) -> Array:
        """How often members were put back to their start."""
        return state.members.diverged.sum()

    def _noise(self, key: Key, limit: int) -> Noise:
        return self.perturbation.draw(key, (self.members, limit), 1.0)

    def _share(self, arrays: Any, one: Any) -> Any:
        """The first arrays made the same for all members."""
        leaves, structure = jax.tree.flatten(arrays)
        same = [jnp.broadcast_to(one(x), x.shape) for x in leaves[: self.shared]]
        return jax.tree.unflatten(structure, [*same, *leaves[self.shared :]])

    def _gradient(
        self, before: Member, member: Member, episodes: Episode, noise: Noise, held: Array
    ) -> Any:
        """Of one member's loss on a batch of episodes, in the units of its network."""
        network, rows = self.network, self.batch * episodes.limit
        noise_std: Any = network.noise_std
        targets = jax.lax.stop_gradient(self._targets(before, member, episodes, noise))
        seen = episodes.observations[:, :-1]
        seen, actions = seen.reshape(rows, *seen.shape[2:]), episodes.actions.reshape(rows)
        use = episodes.taken * (1.0 if noise.weight is None else noise.weight[:, None])
        use = (use / jnp.maximum(episodes.taken.sum(), 1)).reshape(rows)

        def misfit(model: Any) -> Array:
            values = action_values(network, member, model, seen)
            chosen = jnp.take_along_axis(values, actions[:, None], axis=1)[:, 0]
            each = jax.vmap(network.loss, in_axes=(0, 0, None))
            return use @ each(chosen, targets.reshape(rows), noise_std)

        return network.anchored(jax.grad(misfit)(member.model), member, jnp.maximum(held, 1.0))

    def _targets(self, before: Member, member: Member, episodes: Episode, noise: Noise) -> Array:
        """What a member thinks that the steps of a batch were worth (batch, limit)."""
        network, shape = self.network, (self.batch, episodes.limit + 1)
        seen = episodes.observations.reshape(-1, *episodes.observations.shape[2:])
        values = action_values(network, before, before.living, seen).reshape(*shape, -1)
        by = values
        if self.double:
            by = action_values(network, member, member.living, seen).reshape(values.shape)
        best = by.argmax(axis=-1)
        value = jnp.take_along_axis(values, best[..., None], axis=-1)[..., 0]
        rewards = episodes.rewards
        if noise.shift is not None:
            noise_std: Any = network.noise_std
            rewards = rewards + noise_std * noise.shift
        # The last state of an episode is one where nothing more was done.
        followed = (best[:, 1:-1] == episodes.actions[:, 1:]) & episodes.taken[:, 1:]
        followed = jnp.pad(followed, ((0, 0), (0, 1)))
        each = jax.vmap(returns, in_axes=(0, 0, 0, 0, None, None))
        given = rewards, episodes.goes_on, value[:, 1:], followed
        return each(*given, self.discount, self.trace)


class DQN(eqx.Module):
    """One value function, and a random action now and then, which does not explore deeply.

    epsilon: the share of random actions; or a schedule, which is a function of the number of
        episodes so far, such as `es.agents.Annealed(50)`
    options: those of `BootstrappedDQN`
    """

    values: BootstrappedDQN
    epsilon: Any

    def __init__(self, network: Network, epsilon: float | Schedule, **options: Any):
        self.values = BootstrappedDQN(network, 1, **options)
        self.epsilon = as_schedule(epsilon)

    @property
    def label(self) -> str:
        return f"DQN, {fact(self.epsilon, 'label')}"

    def init(self, key: Key, episode: Episode) -> Belief:
        return self.values.init(key, episode)

    def policy(self, key: Key, state: Belief) -> MemberPolicy:
        epsilon = jnp.asarray(self.epsilon(state.replay.seen), float)
        return eqx.tree_at(
            lambda policy: policy.epsilon,
            self.values.policy(key, state),
            epsilon,
            is_leaf=lambda leaf: leaf is None,
        )

    def update(self, key: Key, state: Belief, episode: Episode) -> Belief:
        return self.values.update(key, state, episode)

    def diverged(self, state: Belief) -> Array:
        return self.values.diverged(state)
