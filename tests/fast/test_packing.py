"""The short ways of a decision: the same numbers as the long ones, and nothing kept that moves."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.agents.greedy import shares
from ensemble_sampling.decide import programs
from ensemble_sampling.decide.programs import Programs, Rule, State, padded
from ensemble_sampling.fast import inline, packing
from ensemble_sampling.fast.argmax import first
from ensemble_sampling.inputs.scale import Scale

AGENT = es.EnsembleSampling(es.Linear(dim=3, noise_std=0.5), members=4)


@pytest.fixture
def bandit() -> es.Bandit:
    bandit, rng = es.Bandit(AGENT), np.random.default_rng(0)
    for _ in range(5):
        bandit.learn(bandit.choose(rng.normal(size=(4, 3)).astype(np.float32)).id, 1.0)
    return bandit


def shares_by_hand(values: np.ndarray, available: np.ndarray) -> np.ndarray:
    found = np.zeros(values.shape)
    for model, row in enumerate(values):
        offered = row[available]
        if np.isnan(offered).any():
            found[model] = np.nan
            continue
        best = [k for k in np.flatnonzero(available) if row[k] == offered.max()]
        found[model, best] = 1 / len(best)
    return found


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("actions", [7, 16, 48, 100, 128])
def test_shares_are_those_of_a_loop(compiled, actions):
    rng, settled = np.random.default_rng(1), actions != 7
    run = partial(shares, settled=settled)
    run = jax.jit(run) if compiled else run
    for _ in range(20):
        values = rng.integers(0, 3, (5, actions)).astype(np.float32)
        values[rng.random((5, actions)) < 0.3 / actions] = np.nan
        available = rng.random(actions) < 0.7
        available[rng.integers(actions)] = True
        expected = shares_by_hand(values, available)
        np.testing.assert_allclose(run(jnp.asarray(values), jnp.asarray(available)), expected)


def test_the_first_that_is_true_is_found():
    for true in ([False, True, True], [True, False, True], [False, False, False]):
        assert int(first(jnp.array(true))) == int(np.argmax(true))
    for place in (0, 31, 63, 64, 100):
        true = (np.arange(128) == place) | (np.arange(128) > 110)
        assert int(first(jnp.array(true))) == place


@pytest.mark.parametrize(("rows", "room"), [(1, 8), (5, 8), (9, 16)])
def test_a_packed_decision_is_the_same(bandit, rows, room):
    rng, replica = np.random.default_rng(2), bandit._replica
    programs = replica.programs
    held = replica.sync(bandit._ledger)
    table = rng.normal(size=(rows, 3)).astype(np.float32)
    mask = np.arange(rows) % 3 != 1
    filled, free = padded(table, mask)
    assert len(free) == room
    sheet = packing.Sheet(table.shape, table.dtype, room)
    everything = np.ones(rows, bool)
    everything.flags.writeable = False  # so that it need not be written twice
    sheet.filled((1, 2), table + 1, everything)  # of which nothing must be left
    packed = sheet.filled((7, 8), table, mask)
    fresh = packing.Sheet(table.shape, table.dtype, room).filled((7, 8), table, mask)
    np.testing.assert_array_equal(packed.view(np.uint32), fresh.view(np.uint32))
    words = np.array([7, 8], np.uint32)
    alone = programs._choose(programs._bound, words, held.arrays, filled, free)
    found = programs._choose_sheet(programs._bound, packed, held.arrays)
    np.testing.assert_array_equal(found, alone)


def test_a_packed_outcome_is_learned_the_same(bandit):
    replica, programs = bandit._replica, bandit._replica.programs
    held = lambda: programs.copy(replica.sync(bandit._ledger)).arrays  # noqa: E731
    x = np.array([1.0, -2.0, 0.5], np.float32)
    packed = packing.Slip(len(x), x.dtype).filled((7, 8, 9), x, 0.25)
    one = programs._learn_slip(programs._bound, packed, held())
    words, outcome = np.array([7, 8, 9], np.uint32), np.float32(0.25)
    other = programs._learn(programs._bound, words, held(), x, outcome)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("floor", [None, 0.2])
def test_packed_programs_give_the_numbers_of_plain_ones(floor):
    """What is only faster changes nothing: choices, ranks, values and states."""
    rule = Rule(AGENT, floor)
    rng, start = np.random.default_rng(6), jnp.array([3, 4], jnp.uint32)
    offers = [rng.normal(size=(rows, 3)).astype(np.float32) for rows in (2, 5, 9)]
    found = []
    for each in (Programs(rule), packing.Packed(rule)):
        state, said = each.begin(start, Scale.init(3, True)), []
        for n, table in enumerate(offers):
            mask = np.arange(len(table)) != 1
            numbers, room = each.choose(state, (7, n), table, mask)
            (again,) = each.choose_many(state, [(7, n)], [table], [mask])
            jax.tree.map(np.testing.assert_array_equal, (numbers, room), again)
            index = int(numbers[-1])
            order = each.rank(state, (7, n), table, mask, index)
            state = each.learn(state, (8, n, index), table[index], 0.5)
            said.append((numbers, room, order))
        found.append((said, each.state(each.copy(state))))
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("ready", [True, False])
def test_what_may_not_have_been_read_is_not_written_to(bandit, ready):
    """JAX reads an array when its program runs, which may be after it was called."""
    programs, given = bandit._replica.programs, []

    class Later(list):
        def is_ready(self):
            return ready

    programs._learn_slip = lambda bound, packed, held: given.append(packed) or [Later()]
    held = bandit._replica.sync(bandit._ledger)
    for number in (5, 6):
        programs.learn(held, (1, number, 0), np.ones(3, np.float32), 1.0)
    numbers = [np.asarray(packed).view(np.uint32)[1] for packed in given]
    assert numbers == ([6, 6] if ready else [5, 6])  # the same memory, or not


def test_an_agent_without_any_numbers_is_told_outcomes():
    bandit = es.Bandit(es.Uniform(), normalise=False)
    for count in (1, 2):
        bandit.learn(bandit.choose(np.eye(3)).id, 5.0)
        assert bandit.summary().outcomes == count


def test_programs_are_given_an_array_that_lies_where_it_is_filled_in():
    where = inline.device()
    if where is None:
        pytest.skip("decisions run on JAX's default device")
    table, free = np.ones((5, 3), np.float32), np.ones(5, bool)
    sheet = packing.Sheet(table.shape, table.dtype, 8, where)
    shown = sheet.filled((1, 2), table, free)
    assert isinstance(shown, jax.Array)
    for factor in (2, 3):
        assert sheet.filled((1, 2), factor * table, free) is shown
        np.testing.assert_array_equal(jax.jit(lambda x: x[-8:-3])(shown), factor * table)
    slip = packing.Slip(3, np.float32, where)
    one = slip.filled((1, 2, 3), table[0], 0.5)
    assert isinstance(one, jax.Array)
    assert slip.filled((1, 2, 4), table[0], 0.25) is one
    np.testing.assert_array_equal(one[3:], [0.25, 1, 1, 1])


def test_memory_that_cannot_be_shared_is_given_as_it_is():
    odd = np.zeros(101, np.uint8)[1:].view(np.float32)  # JAX would copy what is not aligned
    for where in (None, inline.device()):
        assert packing._shown(odd, where) is odd
    begin = {
        packing._aligned((size,), np.dtype("float32")).ctypes.data % 64 for size in range(1, 99)
    }
    assert begin == {0}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_are_uniform(dtype):
    """Over decisions of one stream and over streams: 10 boxes, chi-squared below its 0.999."""
    numbers = jnp.arange(10_000, dtype=jnp.uint32)
    for words in (
        jnp.stack([jnp.full_like(numbers, 31327077), numbers], axis=1),
        jnp.stack([numbers, jnp.zeros_like(numbers)], axis=1),
    ):
        with jax.enable_x64(dtype == "float64"):
            u = np.asarray(jax.vmap(lambda w: programs._uniform(w, jnp.dtype(dtype)))(words))
        assert u.dtype == dtype
        assert u.min() >= 0
        assert u.max() < 1
        for boxes in (u, (u * 10) % 1, (u[1:] + 7 * u[:-1]) % 1):
            counts = np.bincount((boxes * 10).astype(int), minlength=10)
            expected = len(boxes) / 10
            assert ((counts - expected) ** 2 / expected).sum() < 27.9


def test_what_the_caller_does_to_an_offer_later_is_not_recorded():
    bandit = es.Bandit(AGENT)
    table, free = np.ones((2, 3), np.float32), np.array([True, False])
    bandit.choose(table)
    bandit.choose(table, available=free)
    table[:], free[:] = 5.0, True
    log = bandit.log()
    assert log["offer"] == [[[1.0] * 3] * 2] * 2
    assert log["available"][1] == [True, False]


def test_what_waits_to_be_written_is_all_there_when_it_is_read():
    bandit, rng = es.Bandit(AGENT), np.random.default_rng(3)
    offers = [rng.normal(size=(2 + n % 3, 3)).astype(np.float32) for n in range(5)]
    made = []
    for n in range(133):
        made.append(bandit.choose(offers[n % 5]))
        if n % 2:
            bandit.learn(made[-1].id, float(n))
        if n == 64:
            assert len(bandit.log()["id"]) == n + 1
    log = bandit.log()
    assert log["id"] == [decision.id for decision in made]
    assert log["offer"] == [offers[n % 5].tolist() for n in range(len(made))]
    assert log["outcome"] == [float(n) if n % 2 else None for n in range(len(made))]
    assert bandit._ledger.ask("SELECT sum(length(rows)) FROM items") < 5 * 200


def test_small_states_are_computed_by_the_thread_that_asks_and_large_ones_are_not():
    where = inline.device()
    assert where is not None
    assert where.platform == "cpu"
    assert where != jax.devices()[0]
    small = es.Bandit(AGENT)
    assert small._replica.sync(small._ledger).arrays[0].devices() == {where}
    large = es.Bandit(es.EnsembleSampling(es.Linear(dim=400, noise_std=1.0), members=3))
    assert large._replica.sync(large._ledger).arrays[0].devices() == {jax.devices()[0]}


def test_states_keep_the_names_of_their_arrays():
    state = State(None, {"a": (jnp.zeros(2), jnp.ones(()))})
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    assert [jax.tree_util.keystr(path) for path, _ in flat] == [
        ".belief['a'][0]",
        ".belief['a'][1]",
    ]
    again = jax.tree.map(lambda leaf: leaf + 1, state)
    assert again.scale is None
    assert float(again.belief["a"][1]) == 2.0


def test_a_state_is_the_same_packed_and_taken_apart():
    rng = np.random.default_rng(4)
    large = jnp.asarray(rng.normal(size=(100, 50)).astype(np.float32))
    key, count = jax.random.key(3), jnp.arange(3, dtype=jnp.int32)
    floats = (jnp.ones((2, 3)), jnp.zeros((0, 5)), jnp.full((), 7.0))  # one of them is empty
    state = State(None, {"a": (large, key), "b": (count, *floats)})
    programs = packing.Packed(Rule(es.Uniform()))
    held = programs.hold(state)
    assert len(held.arrays) == 4  # the large one, the floats, the key, the whole numbers
    for one in (held, programs.copy(held)):
        again = programs.state(one)
        assert jax.tree.structure(again) == jax.tree.structure(state)
        leaves = zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True)
        assert all(a.dtype == b.dtype and bool((a == b).all()) for a, b in leaves)
    assert programs.hold(programs.state(held)).layout is held.layout


class Certain(es.ThompsonSampling):
    """Another rule on the same values."""

    def probabilities(self, state, features, available=None, key=None):
        return (jnp.arange(features.shape[0]) == 2).astype(float)


def test_who_has_other_probabilities_decides_by_them():
    bandit = es.Bandit(Certain(AGENT.posterior))
    rows = np.eye(3, dtype=np.float32)
    assert [bandit.choose(rows).probabilities.tolist() for _ in range(3)] == [[0, 0, 1]] * 3


class Grows(es.Uniform):
    """Its state is another after the first outcome."""

    def init(self, key):
        return {"last": None, "n": jnp.zeros(())}

    def update(self, key, state, action, outcome):
        return {"last": outcome, "n": state["n"] + 1}


def test_a_state_that_changes_its_shapes_is_refused_before_anything_is_recorded():
    bandit = es.Bandit(Grows())
    decision = bandit.choose(np.eye(3))
    with pytest.raises(ValueError, match="update must keep the shapes and types of the state"):
        bandit.learn(decision.id, 5.0)
    assert bandit.summary().outcomes == 0


class Empty(es.EpsilonGreedy):
    """With an array of nothing before its numbers."""

    def init(self, key):
        belief, t = super().init(key)
        return (jnp.zeros(0), belief), t

    def values(self, key, state, features):
        return super().values(key, (state[0][1], state[1]), features)

    def update(self, key, state, action, outcome):
        belief, t = super().update(key, (state[0][1], state[1]), action, outcome)
        return (state[0][0], belief), t


def test_an_empty_array_may_come_first_in_a_state():
    learner: Any = es.Linear(2, noise_std=1.0)
    plain, empty = (kind(learner, 0.1) for kind in (es.EpsilonGreedy, Empty))
    chosen = []
    for agent in (plain, empty):
        bandit = es.Bandit(agent)
        for n in range(5):
            chosen.append(bandit.choose(np.eye(2)))
            bandit.learn(chosen[-1].id, float(n))
    assert [d.index for d in chosen[:5]] == [d.index for d in chosen[5:]]


class Keyed(es.Uniform):
    """Its state is a key, of which JAX does not tell whether it is computed."""

    def init(self, key):
        return (key,)

    def update(self, key, state, action, outcome):
        return (jax.random.fold_in(state[0], 1),)


@pytest.mark.parametrize("agent", [es.Uniform(), Keyed()])
def test_a_state_may_have_no_numbers(agent):
    bandit = es.Bandit(agent, normalise=False)
    for _ in range(3):
        assert bandit.learn(bandit.choose(np.ones((3, 2), np.float32)).id, 1.0)


def test_two_threads_do_not_fill_in_the_same_sheet(monkeypatch):
    bandit, rng = es.Bandit(AGENT), np.random.default_rng(0)
    bandit.choose(rng.normal(size=(4, 3)))
    replica = bandit._replica
    state, read = replica.fresh(), replica.inputs.read
    offers = [read(rng.normal(size=(4, 3)), None, None) for _ in range(2)]
    alone = [replica.choose(n, offer, state)[1].tolist() for n, offer in enumerate(offers)]
    programs: Any = replica.programs
    choose, inner = programs._choose_sheet, []

    def interrupted(*given):
        if not inner:
            inner.append(None)
            inner[0] = replica.choose(1, offers[1], state)[1].tolist()
        return choose(*given)

    monkeypatch.setattr(replica.programs, "_choose_sheet", interrupted)
    assert [replica.choose(0, offers[0], state)[1].tolist(), inner[0]] == alone


def test_a_mask_that_shows_another_array_is_read_every_time():
    bandit, free = es.Bandit(AGENT), np.array([True, False, False])
    shown = free[:]
    shown.flags.writeable = False
    rows = np.random.default_rng(0).normal(size=(3, 3))
    assert bandit.choose(rows, available=shown).index == 0
    free[:] = [False, False, True]
    assert bandit.choose(rows, available=shown).index == 2
