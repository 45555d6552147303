"""Descriptions of configurations: the same in every process, different where numbers differ."""

import dataclasses
import functools
import importlib
import json
import sys
from importlib import import_module

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
        es.EnsembleSampling(learner, 5, es.posteriors.Poisson()),
        es.EnsembleSampling(learner, 5, inflation=2.0),
        es.EnsembleSampling(es.Linear(3, prior_mean=[0.0, 1.0, 2.5]), 5),
        es.EnsembleSampling(es.Linear(30, prior_std=1.0), 5),
        es.EnsembleSampling(es.Linear(30, prior_std=1.1), 5),
        es.ThompsonSampling(es.Exact(learner)),
        es.EpsilonGreedy(learner, 0.1),
        es.EpsilonGreedy(learner, es.agents.Annealed(10)),
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


HELD = """
import dataclasses, functools
import equinox as eqx

def scale(x):
    return {factor} * x

def direct(x):
    # {comment}
    return {factor}   *   x

def through(x):
    return scale(x) + 1

class Callable:
    def __init__(self):
        self.k = 2
    def __call__(self, x):
        return {factor} * x

class Module(eqx.Module):
    a: float = 1.0
    def predict(self, x):
        return {factor} * x

class Child(Module):
    pass

@dataclasses.dataclass(frozen=True)
class Plain:
    a: float = 1.0
    def __call__(self, x):
        return scale(x)

THINGS = dict(
    function=direct,
    helper=through,
    shorthand=lambda x: {factor} * x,
    default=lambda x, k={factor}: k * x,
    partial=functools.partial(direct, 1),
    callable=Callable(),
    method=Callable().__call__,
    module=Module(),
    child=Child(),
    dataclass=Plain(),
    kind=Plain,
    wrapped=functools.lru_cache(direct),
    compiled=eqx.filter_jit(direct),
    several=[lambda x: {factor} * x, lambda x: x],
)
"""


def things(folder, monkeypatch, factor, comment="no change of meaning"):
    """The users' functions and classes as they are after an edit of their file."""
    (folder / "users_own.py").write_text(HELD.format(factor=factor, comment=comment))
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("users_own", None)
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return {name: describe(thing) for name, thing in import_module("users_own").THINGS.items()}


def test_an_edited_function_of_the_same_name_is_another(tmp_path, monkeypatch):
    one = things(tmp_path, monkeypatch, 2)
    same = things(tmp_path, monkeypatch, 2, "a longer comment\n\n    # and another one")
    two = things(tmp_path, monkeypatch, 33)
    for name in one:
        assert json.loads(json.dumps(one[name])) == same[name], f"{name}: only comments changed"
        assert differences(one[name], two[name]), f"{name} was edited"


def test_without_its_text_a_function_is_known_by_its_instructions():
    made = [{"__name__": "session"} for _ in range(3)]
    for space, body in zip(made, ("2 * x", "2 * x", "3 * x"), strict=True):
        exec(f"def f(x):\n    return {body} in {{'a', 'b', 'c'}}", space)
        exec("class C:\n    def __call__(self, x):\n        return f(x)", space)
    for name in ("f", "C"):
        one, same, other = (describe(space[name]) for space in made)
        assert one == same
        assert one != other, name


def test_lambdas_of_one_line_are_told_apart():
    one, two, again = (lambda t: 0.1), (lambda t: 0.2), (lambda t: 0.1)
    assert describe(one) == {**describe(two), "code": describe(one)["code"]}
    assert describe(one) == describe(again) != describe(two)


def test_code_of_installed_packages_and_of_ours_is_known_by_its_name():
    import scipy.linalg

    for thing in (scipy.linalg.solve, json.dumps, es.Linear, optax.adam, es.networks.true_gradient):
        assert isinstance(describe(thing), str)
    assert "code" not in describe(es.Linear(3))
    assert "code" not in describe(functools.partial(jax.nn.leaky_relu))["partial"]


def test_a_function_that_refers_to_itself_is_described():
    def outer():
        def inner(n):
            return inner(n - 1)

        return inner

    assert describe(outer())["closure"] == [f"{__name__}.{outer.__qualname__}.<locals>.inner"]


def test_what_was_recorded_before_code_was_says_nothing_of_it():
    def function(x):
        return x

    new = describe({"make": function, "agent": Settings(1.0)})
    old = {"make": new["make"]["function"], "agent": {"type": new["agent"]["type"], "a": 1.0}}
    assert differences(old, new) == []
    assert differences({**old, "make": "another.name"}, new) == [
        f"make.function: 'another.name' -> {new['make']['function']!r}"
    ]
    changed = {**new, "make": {**new["make"], "code": "0"}}
    assert [line.split(":")[0] for line in differences(changed, new)] == ["make.code"]


@dataclasses.dataclass
class Settings:
    a: float


def test_a_function_with_a_variable_that_was_never_set_is_described_by_the_others():
    one, two = (describe(optax.exponential_decay(rate, 10, 0.9)) for rate in (0.1, 0.2))
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one) == fingerprint(describe(optax.exponential_decay(0.1, 10, 0.9)))
