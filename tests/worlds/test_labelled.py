"""Labelled data as a world: the right class brings 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ensemble_sampling as es


def test_labelled_data_reward_the_right_class():
    x = np.eye(4).repeat(5, axis=0)
    world = es.Classification(x, np.array(list("abcd")).repeat(5), flips=0.25)
    assert world.classes == ("a", "b", "c", "d")
    offer = world.offer(jax.random.key(1), world.init(jax.random.key(0)))
    right = int(np.argmax(offer.features[0]))
    np.testing.assert_allclose(offer.means, np.where(np.arange(4) == right, 0.75, 0.25))
    easy = es.Classification(x, np.arange(4).repeat(5))
    offer = easy.offer(jax.random.key(1), easy.init(jax.random.key(0)))
    for k in range(4):
        action = es.core.Action(jnp.asarray(k), offer.features[k])
        assert easy.outcome(jax.random.key(k), offer.world, action) == (k == right)


@pytest.mark.parametrize("label", [np.nan, None, pd.NA], ids=str)
def test_a_missing_class_is_refused(label):
    with pytest.raises(ValueError, match="1 of 3 are missing, the first is row 1"):
        es.Classification(np.zeros((3, 1)), np.array([0.0, label, 1.0], object))
