"""Agents of episodes: closed forms, the gradient of a member, and what explores."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.episodes import (
    DQN,
    PSRL,
    RLSVI,
    BootstrappedDQN,
    DeepSea,
    Episode,
    LinearRLSVI,
    Lookup,
    Table,
)
from ensemble_sampling.episodes.planning import Counts
from ensemble_sampling.episodes.replay import returns
from ensemble_sampling.posteriors import Bernoulli, Gaussian

KEY = jax.random.key(5)
S, A, LIMIT = 3, 2, 4


def network(states=S, actions=A, hidden=(), optimizer=optax.sgd, rate=0.5, **settings):
    make = Lookup(states, actions, hidden)
    settings = {"noise_std": 1.0, "arms": actions, "learning_rate": rate} | settings
    return es.Network(make, 1, 1, optimizer=optimizer, **settings)


def an_episode(rng, cut=False):
    length = int(rng.integers(1, LIMIT + 1))
    on = np.arange(LIMIT) < length
    return Episode(
        jnp.asarray(np.append(rng.integers(0, S, LIMIT), 0) * np.append(True, on)),
        jnp.asarray(rng.integers(0, A, LIMIT) * on),
        jnp.asarray(rng.normal(size=LIMIT) * on, jnp.float32),
        jnp.asarray(length),
        jnp.asarray(cut),
    )


def several(count=12):
    rng = np.random.default_rng(3)
    return [an_episode(rng, cut=bool(i % 3 == 0)) for i in range(count)]


def transitions(episodes):
    """(state, action, reward, next state or None) of all steps."""
    for e in episodes:
        for t in range(int(e.length)):
            last = t == e.length - 1 and not e.cut
            after = None if last else int(e.observations[t + 1])
            yield int(e.observations[t]), int(e.actions[t]), float(e.rewards[t]), after


def counts(episodes, branches=S):
    found = Counts.none(S, A, branches)
    add = jax.jit(Counts.add)
    for episode in episodes:
        found = add(found, episode)
    return found


def test_rlsvi_is_least_squares_with_perturbed_outcomes():
    """A Bayesian regression on indicators of (s, a), at every time, solved as a linear system."""
    episodes = several()
    agent = RLSVI(S, A, LIMIT, noise_std=0.5, prior_std=2.0, prior_mean=0.3)
    found = agent.values(KEY, counts(episodes))
    steps = list(transitions(episodes))
    rows = np.zeros((len(steps), S * A))
    rows[np.arange(len(steps)), [s * A + a for s, a, _, _ in steps]] = 1
    precision = rows.T @ rows / 0.5**2 + np.eye(S * A) / 2.0**2
    luck = np.asarray(jax.random.normal(jax.random.split(KEY)[0], (S, A))).ravel()
    value = np.zeros(S)
    for t in reversed(range(LIMIT)):
        targets = np.array([r + (0 if after is None else value[after]) for _, _, r, after in steps])
        mean = np.linalg.solve(precision, rows.T @ targets / 0.5**2 + 0.3 / 2.0**2)
        q = (mean + luck / np.sqrt(np.diag(precision))).reshape(S, A)
        np.testing.assert_allclose(found[t], q, rtol=2e-4, atol=2e-4)
        value = q.max(axis=1)


def test_noise_is_learned_where_there_is_some():
    """A thousand outcomes of one state and action, noisy at the first state and not at the second:
    the spread of its value is that of a mean with the noise there is."""
    table, n, z = np.zeros((2, 1)), 1000, np.random.default_rng(0).normal(size=1000)
    rewards, squares = np.array([[z.sum()], [n]]), np.array([[(z**2).sum()], [n]])
    found = Counts.none(2, 1, 2)._replace(
        times=jnp.asarray(table + n), rewards=jnp.asarray(rewards), squares=jnp.asarray(squares)
    )
    agent = RLSVI(2, 1, 1, noise_std=0.1, prior_std=100.0, noise_count=2.0)
    values = jax.vmap(agent.values, in_axes=(0, None))(jax.random.split(KEY, 4000), found)
    spread = np.asarray(values[:, 0, :, 0]).std(axis=0)
    small = (2 * 0.1**2 / n) ** 0.5
    np.testing.assert_allclose(spread * n**0.5, (z.std(), small), rtol=5 / 4000**0.5 + 0.05)


def test_linear_rlsvi_with_an_indicator_for_every_action_is_rlsvi():
    learner = es.Linear(S * A, noise_std=0.5, prior_std=2.0, prior_mean=0.3)
    features = lambda state: jnp.eye(S * A)[state * A + jnp.arange(A)]  # noqa: E731
    agent = LinearRLSVI(learner, features, capacity=12)
    state = agent.init(KEY, several(1)[0])
    update = eqx.filter_jit(agent.update)
    for episode in several():
        state = update(KEY, state, episode)
    table = RLSVI(S, A, LIMIT, noise_std=0.5, prior_std=2.0, prior_mean=0.3)
    expected = table.values(KEY, counts(several()))
    found = agent.policy(jax.random.split(KEY)[0], state).weights.reshape(LIMIT, S, A)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_few_branches_keep_the_same_counts_and_say_what_found_no_place():
    episodes = several()
    whole, few, one = (counts(episodes, b) for b in (S, 2, 1))
    for s, a in np.ndindex(S, A):
        pairs = zip(few.after[s, a], few.often[s, a], strict=True)
        known = {int(k): float(n) for k, n in pairs if n > 0}
        if len(np.flatnonzero(whole.often[s, a])) <= 2:
            assert known == {k: n for k, n in enumerate(map(float, whole.often[s, a])) if n > 0}
    assert whole.lost == 0
    assert one.lost > 0
    np.testing.assert_array_equal(whole.times, few.times)


def two_states():
    """From the first state both actions lead to the second, which ends after one more step."""
    moves = np.zeros((2, 2, 2))
    moves[:, :, 1] = 1
    return Table(moves, np.array([[0.0, 0.1], [0.3, 0.2]]), limit=2, noise_std=1.0)


def test_10_000_members_spread_as_posterior_sampling_does():
    world, n = two_states(), 10_000
    truth, found = world.init(KEY), Counts.none(2, 2, 2)
    rng = np.random.default_rng(0)
    add = jax.jit(found.add.__func__)
    for i, action in enumerate(rng.integers(0, 2, 20)):
        policy = lambda key, observation, t, a=action: jnp.asarray(a)  # noqa: E731
        episode, _ = es.episodes.play(jax.random.fold_in(KEY, i), world, truth, policy)
        found = add(found, episode)
    keys = jax.random.split(KEY, n)
    ours = jax.vmap(RLSVI(2, 2, 2, 1.0, 30.0).values, in_axes=(0, None))(keys, found)
    sampler = PSRL(2, 2, 2, 1.0, 30.0, prior_count=1e-6)
    theirs = jax.vmap(sampler.values, in_axes=(0, None))(keys, found)
    for t, s in ((0, 0), (1, 1)):
        mine, other = np.asarray(ours[:, t, s]), np.asarray(theirs[:, t, s])
        error = np.sqrt(2 / n) * other.std(axis=0)
        assert (np.abs(mine.mean(axis=0) - other.mean(axis=0)) < 5 * error + 2e-3).all()
        assert np.abs(mine.std(axis=0) / other.std(axis=0) - 1).max() < 5 / n**0.5 + 2e-3


def test_returns_follow_greedy_actions_and_stop_at_others():
    rewards = np.array([1.0, 2.0, 3.0, 4.0])
    on = np.array([True, True, True, False])
    after, best = np.array([10.0, 20.0, 30.0, 40.0]), np.array([True, False, True, False])
    last = 4.0
    third = 3 + 0.5 * (30 + 0.8 * (last - 30))
    second = 2 + 0.5 * 20
    first = 1 + 0.5 * (10 + 0.8 * (second - 10))
    on_steps = jnp.asarray(on), jnp.asarray(after), jnp.asarray(best)
    found = returns(jnp.asarray(rewards), *on_steps, 0.5, 0.8)
    np.testing.assert_allclose(found, [first, second, third, last], rtol=1e-6)


@pytest.mark.parametrize(
    ("perturbation", "double"), [(Gaussian(), False), (Bernoulli(), True)], ids=["rewards", "masks"]
)
def test_a_step_of_every_member_is_that_of_a_table_of_values(perturbation, double):
    """Two steps of plain gradient descent on tables, in NumPy loops, for members of an ensemble."""
    rate, discount, trace, noise_std = 0.5, 0.9, 0.7, 0.4
    settings = {"discount": discount, "trace": trace, "batch": 3, "steps": 2, "capacity": 4}
    net = network(prior_std=1.0, noise_std=noise_std, rate=rate)
    agent = BootstrappedDQN(net, 3, perturbation, double=double, **settings)
    episodes = several(6)
    state = agent.init(KEY, episodes[0])
    update = jax.jit(agent.update)
    for i, episode in enumerate(episodes[:5]):
        state = update(jax.random.fold_in(KEY, i), state, episode)
    key = jax.random.fold_in(KEY, 9)
    after = update(key, state, episodes[5])
    _, _, batch_key = jax.random.split(key, 3)
    for m in range(3):
        start = np.asarray(state.members.start.rows[m], float)
        before = np.asarray(state.members.model.rows[m], float)
        q = before.copy()
        for i in range(2):
            some, noise = after.replay.batch(jax.random.fold_in(batch_key, i), 3)
            by = q if double else before
            gradient, count = np.zeros_like(q), float(some.length.sum())
            for e in range(3):
                one = jax.tree.map(lambda x, e=e: np.asarray(x[e]), some)
                shift = 0 if noise.shift is None else noise_std * np.asarray(noise.shift[e, m])
                weight = 1 if noise.weight is None else float(noise.weight[e, m])
                later, rewards = 0.0, one.rewards + shift
                for t in reversed(range(int(one.length))):
                    target = rewards[t]
                    if t < one.length - 1 or one.cut:
                        there = one.observations[t + 1]
                        best = by[there].argmax()
                        ahead = before[there, best]
                        if t < one.length - 1 and best == one.actions[t + 1]:
                            ahead += trace * (later - ahead)
                        target = target + discount * ahead
                    later = target
                    at = one.observations[t], one.actions[t]
                    gradient[at] += weight * 2 * (q[at] - target) / noise_std**2 / count
            steps = float(after.replay.steps)
            q -= rate * (gradient + 2 * (q - start) / steps)
        np.testing.assert_allclose(after.members.model.rows[m], q, rtol=2e-3, atol=2e-3)


def test_shared_arrays_stay_the_same_for_all_members_and_learn_from_all():
    net = network(hidden=(4,), optimizer=optax.adam, rate=0.01)
    agent = BootstrappedDQN(net, 3, shared=1, steps=2, batch=2, capacity=4)
    state = agent.init(KEY, several(1)[0])
    before = state.members.model
    for i, episode in enumerate(several(3)):
        state = jax.jit(agent.update)(jax.random.fold_in(KEY, i), state, episode)
    rows, head = jax.tree.leaves(state.members.model)
    assert (np.asarray(rows) == np.asarray(rows[:1])).all()
    assert not (np.asarray(rows) == np.asarray(jax.tree.leaves(before)[0])).all()
    assert not (np.asarray(head[0]) == np.asarray(head[1])).all()


def test_dithering_draws_its_share_of_random_actions():
    agent = DQN(network(), es.agents.Annealed(1.0))
    state = agent.init(KEY, several(1)[0])
    best = int(np.argmax(state.members.model.rows[0, 1]))
    keys = jax.random.split(KEY, 4000)
    for seen, epsilon in ((0, 1.0), (3, 0.25)):
        policy = agent.policy(
            KEY, state._replace(replay=state.replay._replace(seen=jnp.int32(seen)))
        )
        chosen = jax.vmap(lambda k, p=policy: p(k, jnp.int32(1), jnp.int32(0)))(keys)
        assert abs(float((chosen != best).mean()) - epsilon / 2) < 5 * 0.5 / 4000**0.5


def test_planning_finds_the_treasure():
    sea = DeepSea(6)
    agent = RLSVI(sea.states, 2, sea.limit, noise_std=0.05, prior_std=0.5, branches=1)
    found = es.episodes.simulate(agent, sea, 150, 4, keep=True, progress=False)
    assert found.mean[-20:].max() < 0.6
    assert np.isfinite(es.episodes.learning_times(found)).all()
    assert found.diverged == 0
