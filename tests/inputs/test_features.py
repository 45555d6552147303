"""What is on offer, however it is described, becomes a table, names and a mask."""

import time

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import murmurhash3_32

import ensemble_sampling as es
from ensemble_sampling.inputs.features import Inputs
from ensemble_sampling.inputs.hashing import murmur3
from ensemble_sampling.inputs.offer import mask, names_of


def read(given, context=None, hasher=None):
    """(features, names) of what is on offer."""
    inputs = Inputs(hasher=hasher)
    offer = inputs.read(given, context, None)
    return inputs.covering([offer]).table(offer), offer.names


def test_hashes_are_those_of_murmur3():
    for text in ("", "a", "context.user=ann", "action.kind=täglich", "€" * 7, "x" * 100):
        assert murmur3(text) == murmurhash3_32(text, positive=True)


def test_hashing_is_the_same_in_every_process():
    # A change would give the features of every ledger another meaning.
    # The constant, the context, the action and the pair of the two have a column each.
    row = es.Hasher(100)([{"kind": "tea"}], {"user": "ann"})[0]
    assert {int(i): row[i] for i in row.nonzero()[0]} == {10: 1, 27: 1, 89: -1, 91: -1}


def test_interactions_tell_contexts_apart():
    actions = [{"kind": "tea"}, {"kind": "coffee"}]
    alone, pairs = es.Hasher(512, interactions=False), es.Hasher(512)

    def difference(hasher, user):
        return np.subtract(*hasher(actions, {"user": user}))

    # Without pairs the context shifts both actions alike, and no linear model could prefer.
    assert np.array_equal(difference(alone, "ann"), difference(alone, "bob"))
    assert not np.array_equal(difference(pairs, "ann"), difference(pairs, "bob"))


def test_descriptions_may_nest():
    hasher = es.Hasher(1024)
    nested = hasher([{"size": {"width": 2.5}, "tags": ["new", "red"], "sale": True}])
    # Constant, size.width, two tags and the sale.
    assert np.sort(np.abs(nested[0][nested[0] != 0])).tolist() == [1.0, 1.0, 1.0, 1.0, 2.5]
    with pytest.raises(TypeError, match=r"action\.when must be text"):
        hasher([{"when": object()}])
    with pytest.raises(ValueError, match=r"action\.price must be finite"):
        hasher([{"price": float("inf")}])


def test_data_frames_may_hold_text_when_hashed():
    frame = pd.DataFrame({"kind": ["tea", "coffee"], "price": [2.0, 3.0]}, index=["t", "c"])
    table, names = read(frame, {"user": "ann"}, es.Hasher(64))
    records = [{"kind": "tea", "price": 2.0}, {"kind": "coffee", "price": 3.0}]
    assert names == ["t", "c"]
    assert np.array_equal(table, es.Hasher(64)(records, {"user": "ann"}).astype(table.dtype))
    with pytest.raises(TypeError, match="Hasher"):
        read(frame)


def test_texts_name_and_describe_themselves():
    table, names = read(["tea", "coffee"], None, es.Hasher(64))
    assert names == ["tea", "coffee"]
    assert not np.array_equal(table[0], table[1])
    with pytest.raises(TypeError, match="list or a mapping"):
        read("tea", None, es.Hasher(64))


def test_names_must_be_storable():
    with pytest.raises(TypeError, match="name must be text or a number"):
        read({(1, 2): [0.0]})


NAMES = ["tea", "coffee", "cake"]


@pytest.mark.parametrize(
    "available",
    [
        ["tea", "cake"],
        ("cake", "tea"),
        {"tea", "cake"},
        frozenset({"tea", "cake"}),
        dict.fromkeys(["tea", "cake"]).keys(),
        np.array(["tea", "cake"]),
        pd.Index(["cake", "tea"]),
        pd.Series(["cake", "tea"]),
        (name for name in ("tea", "cake")),
        [True, False, True],
        np.array([True, False, True]),
        {"cake": True, "tea": True, "coffee": False},
        {"tea": np.bool_(True), "coffee": np.bool_(False), "cake": True},
        pd.Series({"cake": True, "tea": True, "coffee": False}),
        pd.Series({"cake": True, "tea": True, "coffee": False}, dtype="boolean"),
    ],
    ids=lambda given: type(given).__name__,  # what they hold has no order, or no name
)
def test_availability_is_read_by_name_wherever_there_are_names(available):
    assert mask(available, NAMES, 3).tolist() == [True, False, True]


def test_availability_without_names_goes_by_position():
    assert mask([True, False], None, 2).tolist() == [True, False]
    assert mask({1: False, 0: True}, None, 2).tolist() == [True, False]
    shuffled = pd.Series([False, True], index=[1, 0])
    assert mask(shuffled, None, 2).tolist() == [True, False]


@pytest.mark.parametrize(
    ("available", "error", "message"),
    [
        ("teacake", TypeError, "names of those on offer, got 'teacake'"),
        (b"tea", TypeError, "names of those on offer"),
        (1, TypeError, "got 1"),
        (True, TypeError, "got True"),
        (["tea", "milk"], ValueError, "'milk', which is not on offer: .*'coffee'"),
        ([], ValueError, "at least one action"),
        ([["tea"]], TypeError, "names of actions"),
        ({"tea": True}, ValueError, "says nothing of the action 'coffee'"),
        ({"tea": True, "coffee": True, "cake": True, "milk": True}, ValueError, "'milk'"),
        ({"tea": 1, "coffee": 0, "cake": 1}, TypeError, "true or false"),
        ({"tea": None, "coffee": True, "cake": True}, TypeError, "true or false"),
        (pd.Series([True, False, True]), ValueError, "0, which is not on offer"),
        (pd.Series([True] * 3, index=["tea", "tea", "cake"]), ValueError, "name every action once"),
        (pd.DataFrame({"tea": [True]}), TypeError, "data frame"),
        ([True, False], ValueError, r"shape \(3,\), got \(2,\)"),
        ([False] * 3, ValueError, "at least one action"),
        (["tea", True, False], ValueError, "True, which is not on offer"),
        ([True, "tea", "cake"], TypeError, "true or false for every action"),
        ({True, False}, TypeError, "as a set must hold names"),
        (np.ma.array([True] * 3, mask=[False, True, False]), ValueError, "masked"),
    ],
)
def test_availability_that_cannot_be_meant_is_refused(available, error, message):
    with pytest.raises(error, match=message):
        mask(available, NAMES, 3)


def test_names_are_found_in_time_linear_in_their_number():
    names = [f"item {i}" for i in range(10_000)]
    inputs = Inputs(10_000, names)
    offer = {name: [1.0] for name in reversed(names)}
    began = time.process_time()
    read = inputs.read(offer, None, names[::2])
    inputs.read(offer, None, dict.fromkeys(names, True))
    for number in range(0, 10_000, 10):
        inputs.arm(number, 0, names[number])
    # About 40 ms; looked up one by one in a list it would take seconds.
    assert time.process_time() - began < 1.0
    assert read.available.sum() == 5_000
    with pytest.raises(ValueError, match="'item 7' occurs twice"):
        names_of([*names, "item 7"])


def test_rows_are_put_in_the_order_of_the_agents_own_actions():
    given = {"cake": [3.0], "tea": [1.0], "coffee": [2.0]}
    free = {"cake": False, "tea": True, "coffee": True}
    offer = Inputs(3, NAMES).read(given, None, free)
    assert offer.actions.tolist() == [[1.0], [2.0], [3.0]]  # pyright: ignore
    assert offer.names == NAMES
    assert offer.available.tolist() == [True, True, False]
    words = Inputs(3, NAMES, es.Hasher(8)).read({name: {"k": name} for name in given}, {}, None)
    assert words.actions == ['{"k":"tea"}', '{"k":"coffee"}', '{"k":"cake"}']


class Frame:
    """What polars has of a data frame: no index."""

    columns = ("price", "weight")

    def to_numpy(self):
        return np.array([[2.0, 1.0], [3.0, 5.0]])

    def to_dicts(self):
        return [{"price": 2.0, "weight": 1.0}, {"price": 3.0, "weight": 5.0}]


def test_a_data_frame_without_an_index_has_rows_without_names():
    table, names = read(Frame())
    assert table.tolist() == [[2.0, 1.0], [3.0, 5.0]]
    assert names is None
    hashed, names = read(Frame(), None, es.Hasher(32))
    assert names is None
    assert np.array_equal(hashed, es.Hasher(32)(Frame().to_dicts()).astype(hashed.dtype))


def test_a_matrix_is_read_as_a_plain_array():
    table, _ = read(np.ones((1, 2), np.float32).view(np.matrix))
    assert type(table) is np.ndarray
    assert table[0].shape == (2,)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_masked_is_refused_and_what_is_not_is_read(kind):
    values = np.array([[1.0, 2.0], [3.0, 4.0]], kind)
    hidden = np.ma.array(values, mask=[[False, True], [False, False]])
    for given in (hidden, {"a": hidden[0], "b": hidden[1]}, [hidden[0], hidden[1]]):
        with pytest.raises(ValueError, match=r"masked: fill it first"):
            read(given)
    table, _ = read(np.ma.array(values))
    assert type(table) is np.ndarray
    assert np.array_equal(table, values)


@pytest.mark.parametrize(
    "given",
    [
        [["1.0", "2.0"]],
        [[1.0, "2.0"]],
        [[1.0, None]],
        [[1.0, 2.0 + 1j]],
        np.array([["2024-01-01"]], "M8[D]"),
        [[object()]],
    ],
)
def test_only_numbers_are_numbers(given):
    with pytest.raises(TypeError, match=r"must be rows of numbers of one width, got .*Hasher"):
        read(given)


def test_features_are_bounded_so_that_their_squares_fit():
    edge = np.array([[9.9e14, -9.9e14]])
    assert np.isfinite(np.square(read(edge)[0] * 1e3)).all()
    for large in (1e15, -1e15, 3e38, 1e300, np.inf, np.nan):
        with pytest.raises(ValueError, match=r"finite and below 1e\+15, got .* in row 0, column 1"):
            read([[0.0, large]])


def mixture(one: str, other: str, width: int, numbers: int, numeric: bool) -> tuple[int, int]:
    """(column, sign) of a pair of terms by murmur3's finish of a mixture of their hashes."""
    first, second = (murmurhash3_32(term, positive=True) if term else 0 for term in (one, other))
    h = (first * 0x9E3779B1 + second) % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor % 2**32
    h ^= h >> 16
    zone = (width - numbers, numbers) if numeric and numbers else (0, width - numbers)
    return zone[0] + (h >> 1) % zone[1], -1 if h & 1 else 1


@pytest.mark.parametrize("numbers", [0, 5])
@pytest.mark.parametrize("interactions", [True, False])
def test_mixed_pairs_are_where_a_plain_loop_puts_them(numbers, interactions):
    hasher = es.Hasher(17, interactions, numbers, names=True)
    actions = [{"kind": "hot", "price": 2.5}, {}, {"kind": "cold"}]
    context = {"who": "new", "hour": 3}
    around = [("context.hour", 3.0, True), ("context.who=new", 1.0, False)]
    own = [
        [("action.kind=hot", 1.0, False), ("action.price", 2.5, True)],
        [],
        [("action.kind=cold", 1.0, False)],
    ]
    expected = np.zeros((3, 17))
    for row, (terms, name) in enumerate(zip(own, "abc", strict=True)):
        said = [("", *term) for term in [*terms, *around, ("context", 1.0, False)]]
        said.append(("", f"name={name}", 1.0, False))
        for other, size, numeric in around if interactions else []:
            said += [(other, one, size * value, numeric or n) for one, value, n in terms]
        for other, one, value, numeric in said:
            column, sign = mixture(other, one, 17, numbers, numeric)
            expected[row, column] += sign * value
    np.testing.assert_allclose(hasher(actions, context, "abc"), expected, atol=1e-12)
    assert hasher([], context, []).shape == (0, 17)
    np.testing.assert_array_equal(hasher([{}], None, None), hasher([None]))


def test_mixed_pairs_fall_anywhere():
    """No column or sign is favoured, and none tells of another pair of the same terms."""
    hasher, count = es.Hasher(64), 300
    hashes = [
        np.array([murmurhash3_32(f"{of}={n}", positive=True) for n in range(count)], np.uint32)
        for of in ("context.user", "action.item")
    ]
    where, signs = hasher._columns(hashes[0][:, None], hashes[1], np.zeros((count, count), bool))
    counts = np.bincount(where.ravel() * 2 + (signs.ravel() > 0), minlength=128)
    surplus = np.square(counts - count**2 / 128).sum() / (count**2 / 128)
    assert abs(surplus - 127) < 4 * np.sqrt(2 * 127)  # chi-square
    for one, other in ((where[1:], where[:-1]), (where[:, 1:], where[:, :-1])):
        assert abs((one == other).mean() - 1 / 64) < 4 * np.sqrt(1 / 64 / count**2)
    corners = signs[1:, 1:] * signs[:-1, 1:] * signs[1:, :-1] * signs[:-1, :-1]
    assert abs(corners.mean()) < 4 / (count - 1)
