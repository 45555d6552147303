"""Descriptions of actions become numbers, and numbers get a common scale."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.features import Scale, read


def test_scale_is_the_root_mean_square_of_what_is_not_zero():
    rows = np.array([[3.0, 0.0, 0.0], [-4.0, 5.0, 0.0], [0.0, 0.0, 0.0]])
    scale = Scale.init(3)
    for row in rows:
        scale = scale.see(jnp.asarray(row))
    # (9 + 16) / 2 and 25 / 1; the last feature was never seen and keeps its unit.
    expected = [1 / np.sqrt(12.5), 1 / 5, 1.0]
    assert np.asarray(scale.apply(jnp.ones(3))) == pytest.approx(expected)


def test_scale_leaves_indicators_exactly_alone():
    scale = Scale.init(4)
    rows = np.random.default_rng(0).integers(0, 2, size=(50, 4)).astype(float)
    for row in rows:
        scale = scale.see(jnp.asarray(row))
    assert np.array_equal(scale.apply(jnp.asarray(rows)), rows)


def test_scale_survives_tiny_and_huge_features():
    scale = Scale.init(2).see(jnp.asarray([1e-30, 9e17]))
    assert np.all(np.isfinite(scale.apply(jnp.asarray([1e-30, 9e17]))))
    assert float(scale.apply(jnp.asarray([0.0, 9e17]))[1]) == pytest.approx(1.0)


def test_hashing_is_the_same_in_every_process():
    # Murmur hashes of names: a change would make the features of every ledger meaningless.
    # The constant, the context, the action and the pair of the two have a column each.
    row = es.Hasher(32)([{"kind": "tea"}], {"user": "ann"})[0]
    assert {int(i): row[i] for i in row.nonzero()[0]} == {5: 1, 6: -1, 10: -1, 13: -1}


def test_interactions_tell_contexts_apart():
    actions = [{"kind": "tea"}, {"kind": "coffee"}]
    difference = lambda hasher, user: np.subtract(*hasher(actions, {"user": user}))  # noqa: E731
    alone, pairs = es.Hasher(512, interactions=False), es.Hasher(512)
    # Without pairs the context shifts both actions alike, and no linear model could prefer.
    assert np.array_equal(difference(alone, "ann"), difference(alone, "bob"))
    assert not np.array_equal(difference(pairs, "ann"), difference(pairs, "bob"))


def test_descriptions_may_nest():
    hasher = es.Hasher(1024)
    nested = hasher([{"size": {"width": 2.5}, "tags": ["new", "red"], "sale": True, "note": None}])
    # Constant, size.width, two tags and the sale; nothing is said by None.
    assert np.sort(np.abs(nested[0][nested[0] != 0])).tolist() == [1.0, 1.0, 1.0, 1.0, 2.5]
    with pytest.raises(TypeError, match=r"action\.when must be text"):
        hasher([{"when": object()}])
    with pytest.raises(ValueError, match=r"action\.price must be finite"):
        hasher([{"price": float("nan")}])


def test_data_frames_may_hold_text_when_hashed():
    frame = pd.DataFrame({"kind": ["tea", "coffee"], "price": [2.0, 3.0]}, index=["t", "c"])
    table, names = read(frame, {"user": "ann"}, es.Hasher(64))
    records = [{"kind": "tea", "price": 2.0}, {"kind": "coffee", "price": 3.0}]
    assert names == ["t", "c"]
    assert np.array_equal(table, es.Hasher(64)(records, {"user": "ann"}).astype(table.dtype))
    with pytest.raises(TypeError, match="Hasher"):
        read(frame, None, None)


def test_texts_name_and_describe_themselves():
    table, names = read(["tea", "coffee"], None, es.Hasher(64))
    assert names == ["tea", "coffee"]
    assert not np.array_equal(table[0], table[1])
    with pytest.raises(TypeError, match="list or a mapping"):
        read("tea", None, es.Hasher(64))


def test_names_must_be_storable():
    with pytest.raises(TypeError, match="name must be text or a number"):
        read({(1, 2): [0.0]}, None, None)
