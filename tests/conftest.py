"""Settings for every test: property tests are repeatable, and float64 is asked for by name.

Two thirds of the time would go into optimising programs that run once or twice, so they are
compiled the quick way; `make test-optimised` runs some as users' programs are compiled.
"""

import faulthandler
import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import jax
import pytest
from hypothesis import settings

# Modules beside this file, for tests and for the processes that tests start.
HERE = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
settings.load_profile("repeatable")


OPTIMISED = (
    # What computes for longer than it takes to compile, or holds to the last bit only then.
    "evaluation/test_evaluate.py::test_an_agent_alone_learns_as_a_bandit_does[None",
    "learners/test_histories.py::test_a_thinned_ensemble",
    "learners/test_linear.py::test_a_million_float32_outcomes",
    "learners/test_network.py::test_thirty_models_beat",
    "experiments/test_paper_1a.py",
)
SLOW = (
    # Claims over many worlds, kills and interrupts over many rounds, studies, trained networks.
    "learners/test_several.py::test_models_are_trusted",
    "learners/test_several.py::test_a_blend_of",
    "learners/test_several.py::test_the_narrow_width",
    "test_contract.py::test_every_environment_can_be_simulated",
    "test_contract.py::test_jit_traces_act_and_update_once",
    "test_contract.py::test_one_decision_at_a_time",
    "ledger/test_crash.py::test_killed_at_random_moments",
    "test_packages.py::test_readme_works_in_an_empty_environment",
    "study/test_diagnostics.py",
    "simulation/test_engines.py::test_cluster",
    "posteriors/test_ensemble.py::test_members_along_the_last_axis",
    "posteriors/test_estimators.py",
    "fast/test_fused.py",
    "fast/test_removable.py::test_without_one",
    "serve/test_personalizer_admin.py",
    "serve/test_serve_process.py",
    "serve/test_shared_machine.py",
    "serve/test_shared_states.py",
    "experiments/test_studies.py",
    "test_docs.py::test_every_python_block_of_a_page_runs[docs/",
    "episodes/test_value_agents.py::test_10_000_members",
    "experiments/test_experiments.py",
    "ledger/test_export.py::test_an_export_takes_little_memory",
    "learners/test_forgetting.py",
    "study/test_gold.py",
    "learners/test_histories.py",
    "decide/test_interrupts.py",
    "posteriors/test_laplace.py",
    "learners/test_network.py",
    "learners/test_network_defaults.py",
    "posteriors/test_network_posteriors.py",
    "test_packages.py",
    "agents/test_persistent.py",
    "study/test_planning.py",
    "ledger/test_postgres_faults.py::test_a_ledger_goes_on_whenever_its_connection_is_lost[False",
    "ledger/test_postgres_faults.py::test_a_ledger_is_created",
    "ledger/test_postgres_faults.py::test_a_removal_is_whole_whenever_its_connection_is_lost[erase",
    "decide/test_default.py::test_neither_units_nor_origins_matter_where_the_world_changes[some",
    "decide/test_strays.py::test_one_stray_outcome_does_not_ruin_the_default_agent[299",
    "serve/test_demo.py::test_a_ledger_is_filled",
    "learners/test_random_features.py",
    "test_rewards.py::test_a_click_network",
    "learners/test_scales.py",
    "serve/test_serve_fuzz.py::test_generated",
    "decide/test_shadows.py",
    "simulation/test_simulate.py::test_coupling_sharpens",
    "simulation/test_simulate.py::test_expected_scoring",
    "study/test_sizing.py",
    "simulation/test_sweep.py",
    "worlds/test_worlds.py",
)
VARIATIONS = (
    # Cases of the contract that differ from another by one setting, or train networks.
    "arms that forget",
    "ensemble of linear that forget",
    "vector outcomes",
    "vectors of unknown scale",
    "forgetting per action",
    "poisson ensemble of unknown scale",
    "networks with a reservoir",
    "clicks",
    "output per action",
    "bernoulli ensemble of networks",
    "dropout",
    "growing ensemble of networks",
    "laplace",
    "bayes by backprop",
    "blend",
    "ensemble++",
    "epinet",
    "exact random features",
    "growing ensemble of linear",
    "hypermodel",
    "langevin",
    "neural-linear",
    "persistent",
    "randomised priors",
    "restarting per action",
    "symmetric ensemble",
    "upper confidence bounds of an ensemble",
    "widening",
    "coordinates",
)


def pytest_collection_modifyitems(items):
    """Which tests are slow; and what shares states that take long runs in one process."""
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        variation = False
        if isinstance(case, str):
            item.add_marker(pytest.mark.xdist_group(case))
            variation = any(part in case for part in VARIATIONS)
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(OPTIMISED):
            item.add_marker(pytest.mark.optimised)
        elif variation or name.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A thread that never ends keeps its process from ending, and with it the whole run: after a
    while it is ended, and says where it hangs."""
    if not session.config.pluginmanager.hasplugin("dsession"):  # which waits for the others
        faulthandler.dump_traceback_later(ENDING, exit=True, file=sys.__stderr__ or 2)


ENDING = 120  # seconds from the last test to the end of a process
MAPS = Path("/proc/self/maps")  # where there is such a thing
MANY = 30_000  # Linux lets a process have 65,530, and kills it then


@pytest.fixture(autouse=True)
def compiled(request):
    """Every compiled program holds a few mappings of memory; a process forgets them in time."""
    yield
    request.config.ran = getattr(request.config, "ran", 0) + 1
    if request.config.ran % 20 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()


@pytest.fixture
def float64():
    """Float64 arithmetic for the length of one test."""
    with jax.enable_x64(True):
        yield
