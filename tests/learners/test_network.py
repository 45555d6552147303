"""Networks as learners: held to a plain NumPy loop, to the linear case, and to their limits."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import learn, noises, thetas, updates

import ensemble_sampling as es

DIM, HIDDEN, PERIODS, BATCH, STEPS, NOISE_STD = 4, 5, 12, 7, 3, 2.0


PAPER: dict[str, Any] = {"learning_rate": 0.1, "optimizer": optax.sgd}


def neuron() -> es.Network:
    make = es.networks.GaussianMLP(DIM, (), prior_std=1.5, squash=True)
    return es.Network(make, DIM, PERIODS, NOISE_STD, 1.5, batch=BATCH, **PAPER)


def two_layer(**changes) -> es.Network:
    make = es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=0.7)
    settings: dict[str, Any] = PAPER | {"batch": BATCH, "capacity": PERIODS} | changes
    return es.Network(make, DIM, noise_std=NOISE_STD, prior_std=0.7, **settings)


def data(periods=PERIODS, dim=DIM, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.arange(periods), rng.normal(size=(periods, dim)), rng.normal(size=periods)


def rows_and_masks(key, t: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The batch rows and dropout uniforms of observation t, drawn as the learner draws them."""
    _, batch_key, mask_key = jax.random.split(key, 3)
    rows = jax.random.bits(batch_key, (STEPS, BATCH), jnp.uint32) % jnp.uint32(t + 1)
    uniform = lambda k: jax.random.uniform(jax.random.fold_in(k, 0), (width,))  # noqa: E731
    keys = [jax.random.split(jax.random.fold_in(mask_key, i), BATCH) for i in range(STEPS)]
    return np.asarray(rows), np.stack([np.asarray(jax.vmap(uniform)(k)) for k in keys])


def numpy_sgd(weights, anchor, x, targets, draws, prior_std, rate, drop=None, published=False):
    """The paper's update, observation by observation and step by step, gradients by hand."""
    w1, w2 = (w.copy() for w in weights)
    for t in range(len(x)):
        rows, uniforms = draws[t]
        for i in range(STEPS):
            xb, yb = x[rows[i]], targets[rows[i]]
            mask = np.ones((BATCH, len(w2))) if drop is None else uniforms[i] < 1 - drop
            before = xb @ w1.T
            hidden = np.where(before >= 0, before, 0.01 * before)
            error = 2 * ((hidden * mask) @ w2 - yb) / NOISE_STD**2 / BATCH
            back = error[:, None] * w2 * mask * np.where(before >= 0, 1, 0.01)
            pull = 2 / (prior_std**2 * (t + 1))
            g2 = error @ (hidden if published else hidden * mask) + pull * (w2 - anchor[1])
            g1 = back.T @ xb + pull * (w1 - anchor[0])
            w1, w2 = w1 - rate * g1, w2 - rate * g2
    return w1, w2


def test_a_two_layer_ensemble_equals_the_numpy_loop(float64):
    ensemble = es.Ensemble(two_layer(), members=3)
    key = jax.random.key(1)
    i, x, y = data()
    start, end = learn(ensemble, key, i, x, y)
    shift, _ = noises(ensemble, key, PERIODS)
    keys = [jax.random.split(jax.random.fold_in(key, t))[1] for t in range(PERIODS)]
    draws = [rows_and_masks(k, t, HIDDEN) for t, k in enumerate(keys)]
    for m in range(3):
        begin = [np.asarray(w[m]) for w in start[1].model.weights]
        targets = y + NOISE_STD * np.asarray(shift)[:, m]
        want = numpy_sgd(begin, begin, x, targets, draws, 0.7, 0.1)
        for have, w in zip(end[1].model.weights, want, strict=True):
            np.testing.assert_allclose(have[m], w, rtol=1e-9, atol=1e-9)


def test_a_neuron_equals_the_numpy_loop(float64):
    ensemble = es.Ensemble(neuron(), members=2)
    key = jax.random.key(2)
    i, x, y = data()
    start, end = learn(ensemble, key, i, x, y)
    shift, _ = noises(ensemble, key, PERIODS)
    for m in range(2):
        theta = anchor = np.asarray(start[1].model.weights[0][m])
        for t in range(PERIODS):
            rows, _ = rows_and_masks(jax.random.split(jax.random.fold_in(key, t))[1], t, 1)
            for r in rows:
                before = x[r] @ theta
                output = np.where(before >= 0, before, 0.01 * before)
                error = 2 * (output - y[r] - NOISE_STD * np.asarray(shift)[r, m]) / NOISE_STD**2
                gradient = (error * np.where(before >= 0, 1, 0.01)) @ x[r] / BATCH
                gradient += 2 * (theta - anchor) / (1.5**2 * (t + 1))
                theta = theta - 0.1 * gradient
        np.testing.assert_allclose(end[1].model.weights[0][m], theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("readout", [es.networks.true_gradient, es.networks.published_gradient])
def test_dropout_equals_the_numpy_loop(readout, float64):
    posterior = es.posteriors.Dropout(two_layer(learning_rate=0.2), 0.4, readout=readout)
    key = jax.random.key(3)
    i, x, y = data()
    start, end = learn(posterior, key, i, x, y)
    keys = [jax.random.fold_in(key, t) for t in range(PERIODS)]
    draws = [rows_and_masks(k, t, HIDDEN) for t, k in enumerate(keys)]
    begin = [np.asarray(w) for w in start[1].model.weights]
    zero = [np.zeros_like(w) for w in begin]
    published = readout is es.networks.published_gradient
    want = numpy_sgd(begin, zero, x, y, draws, 0.7, 0.2, 0.4, published)
    for have, w in zip(end[1].model.weights, want, strict=True):
        np.testing.assert_allclose(have, w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("hidden", [(5,), (5, 4)])
@pytest.mark.parametrize("squash", [False, True])
def test_both_readouts_predict_the_same_and_dropout_of_nothing_is_the_plain_network(
    squash, hidden, outputs
):
    module = es.networks.GaussianMLP(DIM, hidden, outputs, 0.7, squash=squash)(jax.random.key(0))
    for seed in range(4):
        key = jax.random.key(seed)
        x = jax.random.normal(key, (DIM,))
        for rate in (0.0, 0.5):
            true, published = (
                module.masked(x, key, rate, readout)
                for readout in (es.networks.true_gradient, es.networks.published_gradient)
            )
            np.testing.assert_allclose(published, true, rtol=1e-5, atol=1e-7)
            if rate == 0:
                np.testing.assert_allclose(true, module(x), rtol=1e-6, atol=1e-7)


def test_a_coherent_mask_is_the_same_for_every_action_and_an_incoherent_one_is_not():
    key = jax.random.key(0)
    same = jnp.ones((50, DIM))
    for coherent in (True, False):
        posterior = es.posteriors.Dropout(two_layer(), 0.5, coherent=coherent)
        values = np.asarray(posterior.sample(key, posterior.init(key))(same))
        assert (np.ptp(values) < 1e-7 * np.abs(values).max()) == coherent


def test_with_no_data_a_member_predicts_exactly_as_its_prior_draw_inflated_or_not():
    learner, key = two_layer(), jax.random.key(5)
    x = jax.random.normal(key, (6, DIM))
    want = jax.vmap(learner.make(key))(x)
    np.testing.assert_array_equal(learner.predict(*learner.init(key), x), want)
    one = jax.random.split(key, 2)[0]
    _, members = es.Ensemble(learner, 2, inflation=2.5).init(key)
    for ours, theirs in zip(members.start.weights, learner.make(one).weights, strict=True):
        np.testing.assert_allclose(ours[0], 2.5 * theirs, rtol=1e-6)


def test_gaussian_weights_have_the_prior_variance_and_centers_are_small():
    make = es.networks.GaussianMLP(100, (50,), prior_std=2.0)
    first, second = make(jax.random.key(0)).weights
    assert first.shape == (50, 100)
    assert second.shape == (50,)
    # 5,000 draws: the standard deviation's own error is 2 / sqrt(10,000) = 0.02.
    assert abs(float(first.std()) - 2.0) < 0.08
    center = np.asarray(make.center(jax.random.key(0)).weights[0])
    assert abs(center.std() - 0.01) < 0.0004


@pytest.mark.parametrize("room", [1, 5], ids=["full history", "room left"])
def test_a_linear_network_on_whole_batches_becomes_the_linear_ensemble(room, float64):
    noise_std, prior_std, members, periods = 0.5, 1.5, 4, 10
    linear = es.Ensemble(es.Linear(DIM, noise_std, prior_std=prior_std), members)

    def make(key):  # a network that is linear, drawn exactly as Linear draws its prior
        return es.networks.MLP([prior_std * jax.random.normal(key, (DIM,))])

    how: Any = PAPER | {"batch": None, "steps": 4000, "learning_rate": 0.05}
    network = es.Network(make, DIM, room * periods, noise_std, prior_std, **how)
    key = jax.random.key(6)
    i, x, y = data(periods)
    _, exact = learn(linear, key, i, x, y)
    _, trained = learn(es.Ensemble(network, members), key, i, x, y)
    np.testing.assert_allclose(
        trained[1].model.weights[0], thetas(linear.learner, exact), atol=1e-6
    )


def test_any_equinox_module_and_optimizer_learns():
    def make(key):
        return eqx.nn.MLP(DIM, "scalar", 8, 2, activation=jax.nn.tanh, key=key)

    learner = es.Network(make, DIM, 64, 0.1, 1.0, optimizer=optax.adam, learning_rate=0.01, steps=8)
    ensemble = es.Ensemble(learner, 3)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, DIM))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    start, end = learn(ensemble, jax.random.key(0), np.zeros(200, int), x, y)
    values = [ensemble.values(jax.random.key(0), b, jnp.asarray(x), 1) for b in (start, end)]
    before, after = (np.mean((np.asarray(v) - y) ** 2) for v in values)
    assert after < 0.1 * before
    assert np.any(np.asarray(jax.tree.leaves(end[1].optimizer)[0]) != 0)


class Shuffled(eqx.Module):
    """Reads the features in an order of its own, and only those it looks at."""

    order: jax.Array
    looks: jax.Array
    inner: es.networks.MLP

    def __init__(self, key):
        self.order = jax.random.permutation(key, DIM)
        self.looks = jnp.arange(DIM) < DIM - 1
        self.inner = es.networks.MLP([jax.random.normal(key, (DIM,))])

    def __call__(self, x):
        return self.inner(jnp.where(self.looks, x[self.order], 0.0))


def test_arrays_that_are_no_floats_stay_as_each_member_drew_them():
    learner = es.Network(Shuffled, DIM, PERIODS, 1.0, 1.0, **PAPER)
    ensemble, key = es.Ensemble(learner, 4), jax.random.key(0)
    start, end = learn(ensemble, key, *data())
    orders = np.asarray(end[1].fixed.order)
    np.testing.assert_array_equal(orders, start[1].fixed.order)
    assert len({tuple(order) for order in orders}) > 1
    x = jax.random.normal(key, (6, DIM))
    for m, values in enumerate(ensemble.values(key, end, x, 1)):
        weights = np.asarray(end[1].model.inner.weights[0][m])
        want = np.asarray(x)[:, orders[m][:-1]] @ weights[:-1]
        np.testing.assert_allclose(values, want, rtol=1e-5, atol=1e-6)
    assert np.any(end[1].model.inner.weights[0] != start[1].model.inner.weights[0])


def test_numpy_arrays_in_a_module_are_learned_as_well():
    def make(key):
        ones: Any = np.ones(DIM)
        return es.networks.MLP([ones])

    learner = es.Network(make, DIM, PERIODS)
    start, end = learn(es.posteriors.Point(learner), jax.random.key(0), *data())
    assert np.all(np.asarray(end[1].model.weights[0]) != start[1].model.weights[0])


def test_history_is_stored_once_and_perturbations_once_per_member():
    history, members = es.Ensemble(two_layer(), 6).init(jax.random.key(0))
    assert history.features.shape == (PERIODS, DIM)
    assert history.outcomes.shape == (PERIODS,)
    assert members.noise.shift.shape == (6, PERIODS)
    assert members.noise.weight is None
    _, members = es.Ensemble(two_layer(), 6, es.posteriors.Poisson()).init(jax.random.key(0))
    assert members.noise.weight.shape == (6, PERIODS)
    assert members.noise.shift is None


def test_bootstrap_weights_enter_the_loss(float64):
    """A weight of two counts as the observation twice, of zero as never."""
    learner = two_layer(batch=None, steps=1, capacity=2)
    key, x = jax.random.key(0), jnp.ones(DIM)
    shared, member = learner.init(key, 1.0, es.core.Noise(weight=jnp.ones(())))
    base = member.model.weights[0]

    def once(weight):
        noise = es.core.Noise(weight=jnp.array(weight))
        given = (es.core.Action(jnp.array(0), x), jnp.array(1.0), noise)
        return learner.observe(key, shared, member, *given)[1].model.weights[0]

    np.testing.assert_allclose(once(0.0), base, atol=1e-15)
    np.testing.assert_allclose(once(2.0) - base, 2 * (once(1.0) - base), atol=1e-12)


def test_a_diverged_member_never_acts_is_put_back_and_counted():
    ensemble = es.Ensemble(two_layer(learning_rate=1e6), 4)
    key = jax.random.key(0)
    start, end = learn(ensemble, key, *data(1))
    assert int(ensemble.diverged(end)) > 0
    assert not np.asarray(end[1].healthy).all()
    x = jax.random.normal(key, (6, DIM))
    sick = np.asarray(ensemble.values(key, end, x, 1))
    fresh = np.asarray(ensemble.values(key, start, x, 1))
    unhealthy = ~np.asarray(end[1].healthy)
    np.testing.assert_array_equal(sick[unhealthy], fresh[unhealthy])


def test_a_diverged_member_learns_again_from_history():
    learner, key = two_layer(), jax.random.key(1)
    shared, member = learner.init(key)
    lost = jax.tree.map(lambda w: w * jnp.nan, member.model)
    broken = member._replace(model=lost, healthy=jnp.array(False))
    i, x, y = data()
    seen = (i, jnp.asarray(x, float), jnp.asarray(y, float))
    keys = jax.random.split(key, PERIODS)
    _, after = updates(es.posteriors.Point(learner), (shared, broken), keys, *seen)
    assert bool(after.healthy)
    for now, then in zip(after.model.weights, member.start.weights, strict=True):
        assert np.isfinite(now).all()
        assert np.any(now != then)


def test_diverged_members_are_counted_in_the_result():
    make = es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=1.0)
    learner = es.Network(make, DIM, 20, 1.0, 1.0, learning_rate=1e6, optimizer=optax.sgd)
    world = es.NetworkBandit(DIM, arms=5, hidden=HIDDEN, noise_std=1.0)
    result = es.simulate(es.EnsembleSampling(learner, 3), world, periods=20, realizations=4)
    assert result.diverged > 0
    assert np.isfinite(result.mean).all()


# One output per action


def test_with_one_output_per_action_only_the_chosen_one_learns():
    arms = 3
    make = lambda key: es.networks.MLP([jax.random.normal(key, (arms, DIM))])  # noqa: E731
    learner = es.Network(make, DIM, 10, 1.0, 1.0, arms=arms, **PAPER)
    key = jax.random.key(0)
    shared, member = learner.init(key)
    context = jax.random.normal(key, (DIM,))
    action = es.core.Action(jnp.array(1), context)
    _, after = learner.observe(key, shared, member, action, jnp.array(5.0), es.core.Noise())
    moved = np.any(np.asarray(after.model.weights[0] != member.model.weights[0]), axis=1)
    np.testing.assert_array_equal(moved, [False, True, False])
    values = learner.predict(shared, member, jnp.tile(context, (arms, 1)))
    np.testing.assert_allclose(values, member.model.weights[0] @ context, rtol=1e-5)


# The paper's order, small


def test_thirty_models_beat_epsilon_greedy_on_the_papers_neuron():
    periods, runs = 1000, 40
    make = es.networks.GaussianMLP(100, (), prior_std=10**0.5, squash=True)
    learner = es.Network(make, 100, periods, 10.0, 10**0.5, **PAPER)

    def late(agent) -> np.ndarray:
        regret = es.simulate(agent, es.worlds.NeuronBandit(), periods, runs, keep=True).regret
        assert regret is not None
        return regret[:, -200:].mean(axis=1)

    ensemble = late(es.EnsembleSampling(learner, 30))
    gap = late(es.EpsilonGreedy(learner, es.agents.Annealed(150))) - ensemble
    assert gap.mean() > 3 * gap.std() / np.sqrt(runs)
