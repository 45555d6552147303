"""Many realizations of an agent in a world of episodes, by the machinery of `simulation`."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..core import fact
from ..simulation import programs
from ..simulation.programs import Outline, check_kept, check_settings
from ..simulation.progress import Progress, reported
from ..simulation.results import Result, Window
from ..simulation.run import Engine, Task, as_engine, run_all
from ..simulation.sweep import run_sweep
from ..simulation.table import Sweep
from .loop import Measure, empty_episode, play, realization
from .world import Agent, World


@dataclass(frozen=True)
class Run(programs.Run):
    """A run whose periods are episodes."""

    @property
    def mode(self) -> tuple[Any, ...]:
        return realization, self.periods, self.measure

    @property
    def about(self) -> dict[str, str]:
        return {"seed": str(self.seed)}

    def footprint(self, agent: Any, environment: Any) -> int:
        # As in `programs.footprint`: carried, updated, and what an episode computes.
        return 4 * _state_bytes(Outline.of(agent, environment)) + 8 * self.periods

    def check(self, agent: Any, environment: Any) -> None:
        check_parts(agent, environment)

    def mistakes(self, environment: Any, tally: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        actions, limit = environment.actions, environment.limit
        return {
            f"was given an action that is not one of its {actions}": tally["stray"] > 0,
            "gave a reward or regret that is not finite": tally["nonfinite"] > 0,
            f"did not end an episode within its limit of {limit} steps": tally["endless"] > 0,
        }


def check_parts(agent: Agent, environment: World) -> None:
    """Raise an error that says why if the parts do not fit."""
    checks.part("agent", agent, "init", "policy", "update")
    checks.part("world", environment, "init", "reset", "step", "regret", "limit", "actions")
    checks.size("limit", environment.limit)
    checks.size("actions", environment.actions)
    check_settings(agent, environment)
    _state_bytes(Outline.of(agent, environment))


@lru_cache(maxsize=256)
def _state_bytes(outline: Outline) -> int:
    """What is held from episode to episode; shapes that disagree fail here."""
    settings, key = outline.inputs()

    def one(settings: Any, key: Any) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, settings)
        world = environment.init(key)
        state, observation = environment.reset(key, world)
        after = environment.step(key, world, state, jnp.zeros((), jnp.int32))
        check_kept("step", "state", environment, state, after.state)
        check_kept("step", "observation", environment, observation, after.observation)
        if jnp.shape(after.reward) or jnp.shape(after.end):
            raise ValueError(
                f"{fact(environment, 'label')}: a step has one reward and one end, got shapes "
                f"{jnp.shape(after.reward)} and {jnp.shape(after.end)}"
            )
        state = agent.init(key, empty_episode(environment))
        policy = agent.policy(key, state)
        action = policy(key, observation, jnp.zeros((), jnp.int32))
        if jnp.shape(action) or not jnp.issubdtype(action.dtype, jnp.integer):
            raise TypeError(
                f"{fact(agent, 'label')}: a policy must give the number of one action, got "
                f"{action.dtype} of shape {jnp.shape(action)}"
            )
        episode, _ = play(key, environment, world, policy)
        check_kept("update", "state", agent, state, agent.update(key, state, episode))
        return world, state

    held = jax.tree.leaves(jax.eval_shape(one, settings, key))
    return sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in held)


def simulate(
    agent: Agent,
    world: World,
    episodes: int,
    realizations: int,
    *,
    seed: int = 0,
    keep: bool | Iterable[int] = False,
    measure: Measure | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> Result:
    """Regret per episode of `agent` in `world`, over many independent realizations.

    The same as `es.simulate`, where a period is an episode: realization r draws its world, its
    luck and its agent from `fold_in(key(seed), r)`.

    measure: what to record of every episode in place of the regret
    keep, chunk, checkpoint, progress, engine: as for `es.simulate`
    """
    began = time.perf_counter()
    engine = as_engine(engine)
    run = Run(episodes, realizations, seed, measure=measure, keep=keep)
    run.check(agent, world)
    about = {"agent": agent, "world": world}
    with reported(progress, fact(agent, "label")) as report:
        task = Task.of([(agent, world)], run, chunk, checkpoint, about)
        ((result,),) = run_all([task], report, engine)
    return replace(result, seconds=time.perf_counter() - began)


def sweep(
    agent: Any,
    world: Any,
    settings: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    episodes: int,
    realizations: int,
    *,
    seed: int = 0,
    measure: Measure | None = None,
    windows: Iterable[Window] | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> Sweep:
    """Regret of an agent in a world at every point of a grid or list of settings; see `es.sweep`.

    agent, world: one for all points, or a function that makes it from the settings its arguments
        name. Deep seas of several sizes share a program where they are given the same `most`.
    """
    where: Any = {"chunk": chunk, "checkpoint": checkpoint, "progress": progress, "engine": engine}
    run = Run(episodes, realizations, seed, measure=measure)
    return run_sweep(agent, world, settings, run, windows, lambda a: a, ("step",), **where)


def learning_times(result: Result, threshold: float = 0.9, first: int = 1) -> np.ndarray:
    """Episodes until the average regret so far was below `threshold`, in every realization; NaN
    where it never was.

    The rule of bsuite 0.3.6 for deep sea, here after every episode and not only those that bsuite
    logs; for the stochastic sea it has 0.8, from episode 100 on.

    result: with the regret of every realization and episode (`keep=True`, or of a sweep)
    """
    if result.regret is None or result.regret.shape[1] != result.periods:
        raise ValueError("learning times need the regret of every episode: simulate(keep=True)")
    count = np.arange(1, result.periods + 1)
    below = np.cumsum(result.regret, axis=1, dtype=np.float64) / count < threshold
    below &= count >= first
    return np.where(below.any(axis=1), below.argmax(axis=1) + 1.0, np.nan)
