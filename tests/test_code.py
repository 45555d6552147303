"""What is known by its name and version, and what only by its text: code of others."""

import sys
import types
from functools import partial, wraps

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.code import is_known


def square(x):
    return x * x


class Own(eqx.Module):
    """A part that somebody else wrote."""

    width: float = 1.0


@wraps(jnp.tanh)
def renamed(x):
    return 2 * x


def without_a_module(text):
    space = {"es": es}
    exec(text, space)
    return space["it"]


@pytest.mark.parametrize(
    "part",
    [
        square,
        Own,
        Own(),
        [es.Linear(2), Own()],
        {"f": square},
        partial(optax.sgd, learning_rate=square),
        partial(square),
        es.EpsilonGreedy(es.Linear(2), lambda t: 0.1),
        partial(optax.sgd, square),
        optax.scale_by_schedule(square),
        renamed,
        jax.jit(partial(square)),
        jax.custom_jvp(partial(square)),
        np.vectorize(square),
        without_a_module("def it(x): return x"),
        without_a_module("class Arms(es.GaussianArms): pass\nit = Arms(2)"),
        types.FunctionType((lambda: 0).__code__, {}),
        optax.scale(0.1),
        jax.jit(optax.constant_schedule(0.1)),
        sys.modules[__name__],
    ],
    ids=lambda part: type(part).__name__,
)
def test_code_of_others_is_not_known_by_its_name(part):
    assert not is_known(part)


@pytest.mark.parametrize("part", [None, jax.nn.relu, jnp.tanh, optax.adam, es.Linear(2), es.Linear])
def test_what_its_module_has_under_its_name_is_known(part):
    assert is_known(part)
    assert is_known(partial(optax.adam, b1=part))
