"""Descriptions of configurations: the same in every process, different where numbers differ."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.config import describe, differences, fingerprint


def agents():
    learner = es.Linear(3, prior_mean=[0.0, 1.0, 2.0])
    return (
        es.EnsembleSampling(learner, 5),
        es.EnsembleSampling(learner, 6),
        es.EnsembleSampling(learner, 5, es.Poisson()),
        es.EnsembleSampling(learner, 5, inflation=2.0),
        es.EnsembleSampling(es.Linear(3, prior_mean=[0.0, 1.0, 2.5]), 5),
        es.EnsembleSampling(es.Linear(30, prior_std=1.0), 5),
        es.EnsembleSampling(es.Linear(30, prior_std=1.1), 5),
        es.ThompsonSampling(es.Exact(learner)),
        es.EpsilonGreedy(learner, 0.1),
        es.EpsilonGreedy(learner, es.Annealed(10)),
        es.Uniform(),
    )


def test_descriptions_are_json_and_tell_every_setting_apart():
    marks = [fingerprint(describe(agent)) for agent in agents()]
    assert marks == [fingerprint(json.loads(json.dumps(describe(agent)))) for agent in agents()]
    assert len(set(marks)) == len(marks)


@pytest.mark.parametrize(
    "value", [np.float64(0.5), np.array(0.5), jnp.float32(0.5), 0.5], ids=lambda v: type(v).__name__
)
def test_a_number_is_described_as_itself_whatever_holds_it(value):
    assert describe(value) == 0.5


def test_functions_are_described_by_name_and_what_they_hold():
    assert describe(jnp.tanh) == "jax.numpy.tanh"
    partial = functools.partial(jax.nn.leaky_relu, negative_slope=0.1)
    assert describe(partial)["keywords"] == {"negative_slope": 0.1}
    assert describe(optax.sgd(0.1)) == describe(optax.sgd(0.1))
    assert describe(optax.sgd(0.1)) != describe(optax.sgd(0.2))


def test_what_cannot_be_described_is_named():
    with pytest.raises(TypeError, match="cannot describe <object"):
        describe({"a": [object()]})


def test_differences_name_the_path_and_both_values():
    one, two = (describe(a) for a in agents()[:2])
    assert differences(one, two) == ["posterior.members: 5 -> 6"]
    assert differences(one, one) == []
    assert differences({"a": 1}, {"b": 1}) == ["a: 1 -> None", "b: None -> 1"]
