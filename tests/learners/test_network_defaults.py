"""Networks told nothing but their sizes: no units, no widths, and nothing blows up."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import learn, noises

import ensemble_sampling as es
from ensemble_sampling.learners import modules
from ensemble_sampling.learners.network import SHARE
from ensemble_sampling.networks import OUTPUT_STD

DIM, HIDDEN, PERIODS, BATCH, STEPS = 4, 5, 12, 7, 3


def default(**settings) -> es.Network:
    return es.Network(
        es.networks.GaussianMLP(DIM, (HIDDEN,)), DIM, PERIODS, batch=BATCH, **settings
    )


def data(periods=PERIODS, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.arange(periods), rng.normal(size=(periods, DIM)), rng.normal(size=periods)


def forward(w1, w2, x):
    """(before the rectifier, after it, output) for rows x without units."""
    before = np.column_stack([x, np.ones(len(x))]) @ w1.T
    hidden = np.where(before >= 0, before, 0.01 * before)
    return before, hidden, hidden @ w2


def numpy_loop(weights, x, y, shift, rows, rate):
    """The default's update with plain gradient steps on theta / prior_std, gradients by hand."""
    start = w1, w2 = weights
    s1, s2 = np.sqrt(1 / (DIM + 1)), OUTPUT_STD * np.sqrt(2 / HIDDEN)
    surprises = []
    for t in range(len(x)):
        if t >= 2:  # before, outcomes do not differ
            seen, told = x[:t], y[:t]
            inputs = np.clip((x[t] - seen.mean(0)) / seen.std(0), -5, 5)[None]
            off = y[t] - told.mean() - told.std() * forward(w1, w2, inputs)[2][0]
            surprises.append(off**2)
        seen, told, n = x[: t + 1], y[: t + 1], t + 1
        scale, spread = (seen.std(0), told.std()) if t else (1.0, 1.0)
        square = (sum(surprises) + 2 * spread**2) / (n + 2)
        noise = SHARE * np.clip(np.sqrt(square), spread / 10, spread) / spread
        inputs = np.clip((x - seen.mean(0)) / scale, -5, 5)
        targets = (y - told.mean()) / spread + noise * shift
        for r in rows[t]:
            before, hidden, output = forward(w1, w2, inputs[r])
            error = 2 * (output - targets[r]) / noise**2 / BATCH
            back = error[:, None] * w2 * np.where(before >= 0, 1, 0.01)
            g1 = s1 * back.T @ np.column_stack([inputs[r], np.ones(BATCH)])
            g2 = s2 * error @ hidden
            g1, g2 = g1 + 2 * (w1 - start[0]) / (s1 * n), g2 + 2 * (w2 - start[1]) / (s2 * n)
            w1, w2 = w1 - rate * s1 * g1, w2 - rate * s2 * g2
    return w1, w2


def test_the_default_equals_the_numpy_loop(float64, monkeypatch):
    exact = [np.sqrt(1 / (DIM + 1)), OUTPUT_STD * np.sqrt(2 / HIDDEN)]
    known = es.networks.MLP([jnp.asarray(s) for s in exact], constant=True)
    monkeypatch.setattr(modules, "widths", lambda make: known)
    rate, key = 0.002, jax.random.key(1)
    ensemble = es.Ensemble(default(optimizer=optax.sgd, learning_rate=rate), members=3)
    i, x, y = data()
    start, end = learn(ensemble, key, i, x, y)
    shift, _ = noises(ensemble, key, PERIODS)
    rows = []
    for t in range(PERIODS):
        batch_key = jax.random.split(jax.random.split(jax.random.fold_in(key, t))[1], 3)[1]
        bits = jax.random.bits(batch_key, (STEPS, BATCH), jnp.uint32)
        rows.append(np.asarray(bits % jnp.uint32(t + 1)))
    for m in range(3):
        begin = [np.asarray(w[m]) for w in start[1].model.weights]
        want = numpy_loop(begin, x, y, np.asarray(shift)[:, m], rows, rate)
        for have, w, w0 in zip(end[1].model.weights, want, begin, strict=True):
            np.testing.assert_allclose(have[m], w, rtol=1e-8, atol=1e-10)
            assert np.abs(w - w0).max() > 0.01


@pytest.mark.parametrize("loss", [es.learners.SquaredError(), es.learners.CrossEntropy()])
def test_units_of_features_do_not_matter(loss, float64):
    """Features c + D x give the same members, and the same predictions of moved features."""
    ensemble, key = es.Ensemble(default(loss=loss), 3), jax.random.key(2)
    i, x, y = data()
    y = (y > 0).astype(float)
    c, d = np.array([5.0, -1.0, 0.0, 300.0]), np.array([100.0, 0.01, 2.0, -3.0])[:, None].T
    signs = np.sign(d)  # a feature's sign is no unit
    _, plain = learn(ensemble, key, i, x * signs, y)
    _, moved = learn(ensemble, key, i, c + d * x, y)
    values = ensemble.values(key, plain, jnp.asarray(x * signs), 1)
    np.testing.assert_allclose(
        ensemble.values(key, moved, jnp.asarray(c + d * x), 1), values, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.01), (-7.0, 30.0)])
def test_units_of_outcomes_do_not_matter(a, b, float64):
    """Outcomes a + b y give predictions a + b times those of y."""
    ensemble, key = es.Ensemble(default(), 3), jax.random.key(2)
    i, x, y = data()
    _, plain = learn(ensemble, key, i, x, y)
    _, moved = learn(ensemble, key, i, x, a + b * y)
    values = np.asarray(ensemble.values(key, plain, jnp.asarray(x), 1))
    np.testing.assert_allclose(
        ensemble.values(key, moved, jnp.asarray(x), 1), a + b * values, rtol=1e-6, atol=1e-8 * b
    )


def test_each_entry_of_a_vector_outcome_has_a_scale_of_its_own(float64):
    def ensemble(unit):
        make = es.networks.GaussianMLP(DIM, (HIDDEN,), 2)
        reward = es.Reward(lambda y: y[0] + y[1] / unit, 2)
        return es.Ensemble(es.Network(make, DIM, PERIODS, outcomes=2, reward=reward), 3)

    i, x, y = data()
    y, key = np.column_stack([y, np.roll(y, 1)]), jax.random.key(0)
    values = []
    for unit in (1.0, 1000.0):
        _, end = learn(ensemble(unit), key, i, x, y * [1.0, unit])
        values.append(ensemble(unit).values(key, end, jnp.asarray(x), 1))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("hidden", [(), (8,), (512,), (64, 64)])
def test_functions_drawn_by_default_vary_alike_at_all_widths(hidden):
    """Over 2,000 draws, within five standard errors; ReLU's slope of 0.01 below 0 adds 0.01 %."""
    make = es.networks.GaussianMLP(10, hidden)
    x = jax.random.rademacher(jax.random.key(0), (10,), float)
    outputs = jax.vmap(lambda key: make(key)(x))(jax.random.split(jax.random.key(1), 2000))
    assert float(outputs.std()) == pytest.approx(OUTPUT_STD, rel=5 * np.sqrt(3 / 2000))


def test_a_constant_is_added_by_default_and_not_to_the_papers():
    key = jax.random.key(0)
    assert es.networks.GaussianMLP(DIM, (HIDDEN,))(key).weights[0].shape == (HIDDEN, DIM + 1)
    assert es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=1.0)(key).weights[0].shape == (
        HIDDEN,
        DIM,
    )
    assert float(es.networks.GaussianMLP(DIM, ())(key)(jnp.zeros(DIM))) != 0


class Made(eqx.Module):
    """Weights of a known spread, a bias that starts at zero, and an order that is not learned."""

    weight: jax.Array
    bias: jax.Array
    order: jax.Array

    def __init__(self, key):
        self.weight = 3.0 * jax.random.normal(key, (100,))
        self.bias = jnp.zeros(())
        self.order = jnp.arange(100)

    def __call__(self, x):
        return self.weight[self.order] @ x + self.bias


def test_the_priors_widths_are_found_from_draws():
    found = modules.widths(Made)
    # The root mean square of 3,200 draws, within five standard errors.
    assert float(found.weight) == pytest.approx(3.0, rel=5 / np.sqrt(2 * 3200))
    assert float(found.bias) == 1.0
    _, member = es.Network(Made, 100).init(jax.random.key(0))
    assert float(member.widths.weight) == float(found.weight)
    assert es.Network(Made, 100, prior_std=2.0).init(jax.random.key(0))[1].widths is None


def test_the_learned_noise_is_that_of_the_outcomes():
    """Of a line with noise of 3 % or 100 % of the outcomes' spread, after 400 outcomes."""
    make = es.networks.GaussianMLP(DIM, ())
    ensemble = es.Ensemble(es.Network(make, DIM, 400, learning_rate=0.1), 4)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, DIM))
    for noise, low, high in ((0.03, 0.1, 0.5), (30.0, 0.9, 1.0)):
        y = x[:, 0] + noise * rng.normal(size=400)
        _, (shared, members) = learn(ensemble, jax.random.key(0), np.zeros(400, int), x, y)
        for error in members.error:
            std = shared.scales.noise_std(error, shared.held) / shared.scales.outcomes.spread
            assert low <= float(std) <= high + 1e-6


def crossed(periods: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts in the plane, and rewards (periods, 2): which action pays is a matter of corners."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (periods, 2))
    right = (x[:, 0] * x[:, 1] > 0).astype(int)
    return x, np.eye(2)[right]


@jax.jit
def run(agent, x, rewards):
    def step(state, row):
        features, reward, t = row
        act_key, learn_key = jax.random.split(jax.random.fold_in(jax.random.key(1), t))
        a = agent.act(act_key, state, jnp.tile(features, (2, 1)))
        return agent.update(learn_key, state, es.core.Action(a, features), reward[a]), a

    rows = (x, rewards, jnp.arange(len(x)))
    return jax.lax.scan(step, agent.init(jax.random.key(0)), rows)


def check_learned(posterior, x, rewards, least):
    """In the last 200 decisions it earns so much of what can be earned, and no network is lost."""
    agent = es.ThompsonSampling(posterior)
    state, chosen = run(agent, jnp.asarray(x, float), jnp.asarray(rewards, float))
    best = rewards == rewards.max(axis=1, keepdims=True)
    assert int(agent.diverged(state)) == 0
    assert best[np.arange(len(x)), np.asarray(chosen)][-200:].mean() > least


CORNERS = es.Network(es.networks.GaussianMLP(2, (32,), outputs=2), dim=2, capacity=512, arms=2)
CLICKS = dataclasses.replace(CORNERS, loss=es.learners.CrossEntropy())


@pytest.mark.parametrize(("a", "b", "scale"), [(0, 1, 1), (5, 0.01, 10), (1e6, 1e3, 1e-3)])
def test_with_sizes_alone_it_learns_what_no_line_can_in_any_units(a, b, scale):
    """Choosing by corners: a line stays near 1/2."""
    x, rewards = crossed(500, seed=0)
    check_learned(es.Ensemble(CORNERS, 5), scale * x, a + b * rewards, 0.85)


def test_clicks_and_dropout_learn_with_sizes_alone():
    check_learned(es.Ensemble(CLICKS, 5), *crossed(500, seed=1), 0.85)
    check_learned(es.posteriors.Dropout(CORNERS, 0.2), *crossed(500, seed=2), 0.75)


def test_outcomes_that_never_differ_and_features_that_never_vary_are_no_trouble():
    ensemble, key = es.Ensemble(default(), 3), jax.random.key(0)
    i, x, y = data()
    _, end = learn(ensemble, key, i, np.ones_like(x), np.full_like(y, 7.0))
    values = np.asarray(ensemble.values(key, end, jnp.ones((2, DIM)), 1))
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values, 7.0, atol=1.0)  # in an unknown unit, near the only outcome
    assert int(ensemble.diverged(end)) == 0
