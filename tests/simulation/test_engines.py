"""Engines: a cluster gives the numbers of this machine to the last bit, whatever it loses."""

import json
import os
import time
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_panels
from jax import Array
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.experiments import Paths, Study
from ensemble_sampling.simulation import cluster
from ensemble_sampling.simulation.programs import Run
from ensemble_sampling.simulation.run import Work

WORLD = es.GaussianArms(arms=3)
LEARNER = es.IndependentArms(arms=3, noise_std=1.0)
AGENT = es.EnsembleSampling(LEARNER, members=3)


def simulated(agent: Any = AGENT, realizations=22, **options: Any) -> es.simulation.Result:
    options = {"keep": True, "chunk": 4, "progress": False} | options
    return es.simulate(agent, WORLD, 12, realizations, seed=5, **options)


def identical(one: es.simulation.Result, other: es.simulation.Result) -> None:
    for name in ("mean", "stderr", "regret", "cumulative_stderr", "diverged"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


class Backwards:
    """An engine of somebody's own: the last chunk first."""

    jobs = 1

    def __init__(self):
        self.ran = []

    def run(self, works, chunks):
        for at, number in reversed(chunks):
            self.ran.append((at, number))
            yield (at, number), works[at].ready()(number)


def test_the_order_in_which_an_engine_gives_chunks_changes_nothing(tmp_path):
    engine = Backwards()
    identical(simulated(engine=engine), simulated())
    assert engine.ran == [(0, n) for n in (5, 4, 3, 2, 1, 0)]
    simulated(engine=Backwards(), checkpoint=tmp_path)
    engine = Backwards()
    identical(
        simulated(engine=engine, checkpoint=tmp_path), simulated(engine=es.simulation.Local())
    )
    assert engine.ran == []  # nothing was left to do


class Asked(Exception): ...


class Refusing:
    jobs = 1

    def run(self, works, chunks):
        raise Asked
        yield


def test_every_kind_of_panel_runs_where_it_is_told_to(tmp_path):
    options: Any = {"periods": 4, "realizations": 8, "laptop": 4, "effort": 1.0}
    path = Paths("4a", "Paths", WORLD, LEARNER, (2,), **options)
    study = Study("All kinds", [*toy_panels.FIGURE.panels, path])
    for panel in ("1a", "1b", "4a"):
        with pytest.raises(Asked):
            es.experiments.run(
                study, [panel], realizations=8, out=tmp_path, say=lambda _: None, engine=Refusing()
            )


def test_what_is_no_engine_is_refused():
    for wrong in ("ray", es.simulation.Local, 3):
        with pytest.raises(TypeError, match=r"engine must be es.simulation.Local"):
            simulated(engine=wrong)
    with pytest.raises(TypeError, match="address must be a text"):
        es.simulation.Ray(6379)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="retries"):
        es.simulation.Ray(retries=-1)


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'ray>=2.40' \(extra 'ray'\)"):
        es.simulation.Ray()
    ran = CliRunner().invoke(app, ["reproduce", "1a", "--engine", "ray", "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert "this needs ray: pip install 'ray>=2.40'" in ran.output
    ran = CliRunner().invoke(app, ["reproduce", "--address", "auto", "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert "add --engine ray" in ran.output


class Own(es.Uniform):
    """Of a user's: always the same arm, and what it has seen times `scale`."""

    scale: Any
    arm: int = eqx.field(static=True, default=0)

    def init(self, key):
        return jnp.zeros(())

    def act(self, key, state, features, available=None):
        return jnp.asarray(self.arm)

    def update(self, key, state, action, outcome):
        return state + self.scale * outcome


def seen(agent, key, state, event) -> Array:
    return state


class Slow(es.Uniform):
    """Run by Python: says what it begins, and takes its time.

    doomed: the node that does not end what it begins, and that the others wait for
    """

    folder: str = eqx.field(static=True)
    seconds: float = eqx.field(static=True, default=0.0)
    fatal: bool = eqx.field(static=True, default=False)
    doomed: str = eqx.field(static=True, default="")
    host: ClassVar[bool] = True

    def init(self, key):
        import ray

        if self.fatal:
            os._exit(1)
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "here"
        name = "-".join(map(str, jax.random.key_data(key).tolist()))  # the realization's
        with open(f"{self.folder}/{name}", "a") as file:
            file.write(f"{node}\n")
        time.sleep(300 if node == self.doomed else self.seconds)
        began = time.time()
        while self.doomed and not self.held() and time.time() < began + 300:
            time.sleep(0.05)
        return jnp.zeros(())

    def held(self) -> bool:
        """Whether the doomed node has something in hand."""
        return any(self.doomed in file.read_text() for file in Path(self.folder).iterdir())


SMALL: Any = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def nodes():
    """A cluster of one node with room for two chunks, on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    head = {**SMALL, "num_cpus": 2, "include_dashboard": False}
    head["_system_config"] = {"health_check_period_ms": 1000}  # a node is given up after five
    started = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()


pytestmark = pytest.mark.xdist_group("ray")


def test_cluster_and_machine_agree_to_the_last_bit(nodes, float64):
    there = simulated(engine=es.simulation.Ray(nodes.address))
    identical(there, simulated())
    assert there.regret is not None
    assert there.regret.dtype == np.float64


def test_cluster_runs_what_users_wrote(nodes):
    options: Any = {"measure": seen, "coupled": True, "keep": [3, -1]}
    for agent in (Own(1.5, arm=2), es.ThompsonSampling(es.Exact(LEARNER))):
        given = options if isinstance(agent, Own) else {"expected": True}
        identical(simulated(agent, engine=es.simulation.Ray(), **given), simulated(agent, **given))


def test_a_class_that_lost_its_fields_on_the_way_is_refused():
    from ensemble_sampling.simulation.transport import cloudpickle, pack, unpack

    work = Work(((Own(2.5), WORLD),), Run(3, 2, seed=0), 2)
    assert len(jax.tree.leaves(unpack(pack(work)).points)) == 4
    with pytest.raises(ValueError, match=r"not come through .* 4 settings there, and 5 here"):
        unpack(cloudpickle.dumps((work, 5)))  # pyright: ignore[reportPrivateImportUsage]


def test_cluster_goes_on_where_this_machine_stopped(nodes, tmp_path):
    whole = simulated(checkpoint=tmp_path)
    for number in (0, 3, 5):
        (tmp_path / f"chunk-{number:05d}.npz").unlink()
    told = []
    resumed = simulated(
        checkpoint=tmp_path, engine=es.simulation.Ray(), progress=lambda *now: told.append(now)
    )
    identical(resumed, whole)
    assert [told[0], told[-1], len(told)] == [(12, 22), (22, 22), 4]
    assert len(list(tmp_path.glob("chunk-*.npz"))) == 6


def test_cluster_sweeps_to_the_same_bits(nodes):
    def agent(prior_std, members):
        return es.EnsembleSampling(
            es.IndependentArms(arms=3, noise_std=1.0, prior_std=prior_std), members
        )

    def swept(engine):
        settings = {"prior_std": [0.5, 1.0], "members": [2, 3]}
        options: Any = {"chunk": 8, "windows": [(0, 3)], "progress": False}
        return es.sweep(agent, WORLD, settings, 10, 10, **options, engine=engine)

    here, there = swept(None), swept(es.simulation.Ray())
    assert here.programs == there.programs == 2
    assert here.averages is not None
    assert there.averages is not None
    assert np.array_equal(here.averages, there.averages)
    for one, other in zip(here.results, there.results, strict=True):
        identical(one, other)


OWN_STUDY = """
import jax.numpy as jnp
import ensemble_sampling as es


class First(es.Uniform):
    scale: float = 1.0

    def init(self, key):
        return jnp.zeros(())

    def act(self, key, state, features, available=None):
        return first(features)

    def update(self, key, state, action, outcome):
        return state + self.scale * outcome


def first(features):
    return jnp.zeros((), jnp.int32)


WORLD = es.GaussianArms(arms=3)
PANEL = es.experiments.Experiment("own", WORLD, [First(2.0)], periods=5, realizations=20)
STUDY = es.experiments.Study("Own", [PANEL])
"""


def test_cluster_runs_a_study_that_workers_have_no_file_of(nodes, tmp_path):
    file = tmp_path / "only_the_driver_has_this.py"
    file.write_text(OWN_STUDY)
    on_cluster = ["--engine", "ray", "--address", nodes.address]
    series = []
    for place, options in (("there", on_cluster), ("here", [])):
        ran = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / place), *options])
        assert ran.exit_code == 0, ran.output
        series.append(json.loads((tmp_path / place / "own.json").read_text())["series"])
    assert series[0] == series[1]


def test_cluster_fails_as_this_machine_does(nodes):
    class Broken(es.GaussianArms):
        def outcome(self, key, world, action):
            return super().outcome(key, world, action) / 0.0

    for engine in (es.simulation.Local(), es.simulation.Ray()):
        with pytest.raises(ValueError, match=r"Broken gave an outcome .* realization \d of seed 5"):
            es.simulate(AGENT, Broken(3), 4, 8, seed=5, engine=engine, progress=False)


def test_cluster_with_other_versions_or_devices_is_refused(nodes, monkeypatch):
    versions = cluster.versions()
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "versions", lambda: {**versions, "jax": "0.0.1"})
        with pytest.raises(ValueError, match=f"has jax {versions['jax']}, this process 0.0.1"):
            simulated(engine=es.simulation.Ray())
    monkeypatch.setattr(cluster, "processor", lambda: "of another kind")
    with pytest.raises(ValueError, match=r"processor .*, this process .* of another kind"):
        simulated(engine=es.simulation.Ray(), realizations=21)
    identical(simulated(engine=es.simulation.Ray(exact=False)), simulated())
    with pytest.raises(ValueError, match=r"is connected to .* already, and not to elsewhere:1"):
        simulated(engine=es.simulation.Ray("elsewhere:1"))


def test_cluster_is_free_again_after_an_interrupt(nodes, tmp_path):
    import ray

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    began = time.time()
    slow = Slow(str(tmp_path), 0.5)
    with pytest.raises(KeyboardInterrupt):
        simulated(slow, 40, chunk=1, engine=es.simulation.Ray(), progress=interrupt)
    while ray.available_resources().get("CPU", 0) < 2:
        assert time.time() < began + 60
        time.sleep(0.1)
    assert len(list(tmp_path.iterdir())) < 12  # of forty


def test_cluster_that_loses_a_chunk_too_often_says_so(nodes, tmp_path):
    with pytest.raises(ConnectionError, match="lost with its worker 1 times"):
        simulated(Slow(str(tmp_path), fatal=True), 1, chunk=1, engine=es.simulation.Ray(retries=0))


def test_cluster_runs_again_what_a_killed_node_had_in_hand(nodes, tmp_path):
    node = nodes.add_node(**SMALL)
    local, there, saved = (tmp_path / name for name in ("local", "there", "saved"))
    local.mkdir()
    there.mkdir()
    killed = []

    def kill(done, total):
        if done and not killed:
            nodes.remove_node(node, allow_graceful=False)
            killed.append(done)

    slow, options = Slow(str(there), 0.1, doomed=node.node_id), {"chunk": 1, "realizations": 10}
    found = simulated(slow, **options, engine=es.simulation.Ray(), progress=kill, checkpoint=saved)
    assert killed
    identical(found, simulated(Slow(str(local)), **options))
    assert len(list(saved.glob("chunk-*.npz"))) == 10
    begun = [file.read_text().split() for file in there.iterdir()]
    assert len(begun) == 10
    assert max(map(len, begun)) == 2  # run again, and elsewhere
    assert all(runs[-1] != node.node_id for runs in begun if len(runs) > 1)
