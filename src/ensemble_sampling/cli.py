"""The command line: reproduce the paper, plan an ensemble, look at a bandit, serve several."""

import atexit
import gc
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .extras import EXTRAS, install

# Everything is freed with the process: collecting garbage before that takes half a second.
atexit.register(gc.freeze)


@contextmanager
def _errors() -> Iterator[None]:
    """Print a mistake of the user as one sentence, not as a traceback; Ctrl-C ends at once."""
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _interrupted) if on_main else None
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        _warn(f"error: this needs {error.name}: {install(error.name)}")
        raise typer.Exit(2) from error
    except (ValueError, OSError) as error:
        _warn(f"error: {error}")
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        _interrupted()
    finally:
        if on_main:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _interrupted(*_: Any) -> None:
    """Leave as a kill would: every file is whole or absent, so that nothing is lost by it.

    An exception cannot be relied on: raised inside one of JAX's callbacks it is swallowed, and
    where it got out, the interpreter crashed among JAX's objects while it ended.
    """
    shown = "\033[?25h\n" if sys.stderr.isatty() else ""  # bars hide the cursor
    os.write(2, f"{shown}interrupted; the same command goes on from here\n".encode())
    os._exit(130)


def _warn(message: str) -> None:
    typer.echo(message, err=True)


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        with _errors():
            return super().invoke(ctx)


BRIEFLY = """\
serve shop                 decide and learn over HTTP, in a folder that is made if it is not there
inspect shop               how a bandit is doing; export, backup, upgrade do more with its ledger
evaluate shop FILE         what other policies would have earned on its log
reproduce, run FILE, plan  the paper's experiments, a study of yours, how many members you need
--help, COMMAND --help     all commands, all options"""
"""What one can do, in five lines."""

app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    add_completion=False,
    help="Ensemble sampling: Thompson sampling for any model.",
)


def _version(asked: bool) -> None:
    if asked:
        from . import __version__

        typer.echo(f"ensemble-sampling {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Ensemble sampling: Thompson sampling for any model."""
    if context.invoked_subcommand is None:
        typer.echo(BRIEFLY)


class Scale(StrEnum):
    laptop = "laptop"
    paper = "paper"


class Own(StrEnum):
    full = "full"
    laptop = "laptop"


class Where(StrEnum):
    local = "local"
    ray = "ray"


Count = Annotated[int | None, typer.Option(help="This many realizations instead, for every panel.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
Force = Annotated[bool, typer.Option("--force", help="Run panels again whose results are there.")]
OnEngine = Annotated[
    Where, typer.Option("--engine", help="This machine, or a Ray cluster (extra 'ray').")
]
Address = Annotated[
    str | None,
    typer.Option(help="Of the Ray cluster, by default the one on this machine."),
]


def _engine(where: Where, address: str | None) -> Any:
    from .simulation.cluster import Ray
    from .simulation.run import Local

    if where is Where.ray:
        return Ray(address)
    if address is not None:
        raise ValueError("--address is of a Ray cluster: add --engine ray")
    return Local()


@app.command()
def reproduce(
    panels: Annotated[
        list[str] | None,
        typer.Argument(
            help="1a 1b 2a 2b 3a 3b 3c 3d, our 4a 4b, whole figures 1 2 3 4, or all (the default)."
        ),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="The published number of realizations, or what two cores manage.")
    ] = Scale.laptop,
    realizations: Count = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("reproduction"),
    force: Force = False,
    report: Annotated[
        bool, typer.Option(help="Draw figures and write the report, or only save the results.")
    ] = True,
    engine: OnEngine = Where.local,
    address: Address = None,
) -> None:
    """Run the paper's experiments; interrupted, it goes on where it stopped."""
    began = time.perf_counter()
    from .compilation import start_devices

    start_devices()
    from .experiments.paper import STUDY

    count = _count("full" if scale is Scale.paper else "laptop", realizations)
    asked: Any = {"force": force, "engine": _engine(engine, address), "report": report}
    _run_study(STUDY, panels, count, seed, out, began, **asked)


def _count(declared: str, realizations: int | None) -> int | str:
    return declared if realizations is None else realizations


def _run_study(
    study: Any,
    panels: list[str] | None,
    count: int | str,
    seed: int,
    out: Path,
    began: float,
    **asked: Any,
) -> None:
    """Run panels of a study, and say where the report is."""
    from .experiments import runner

    asked |= {"realizations": count, "seed": seed, "out": out, "say": _warn}
    made = runner.run(study, panels or (), **asked)
    typer.echo(f"{made} after {time.perf_counter() - began:.0f} s")


@app.command()
def deep(
    panels: Annotated[
        list[str] | None, typer.Argument(help="Panels or numbers of figures, or all.")
    ] = None,
    scale: Annotated[
        Own, typer.Option(help="The full number of seeds, or what two cores manage.")
    ] = Own.laptop,
    realizations: Count = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("deep"),
    force: Force = False,
    engine: OnEngine = Where.local,
    address: Address = None,
) -> None:
    """Run the study of deep exploration; interrupted, it goes on where it stopped."""
    began = time.perf_counter()
    from .compilation import start_devices

    start_devices()
    from .experiments.deep import STUDY

    asked: Any = {"force": force, "engine": _engine(engine, address)}
    _run_study(STUDY, panels, _count(scale.value, realizations), seed, out, began, **asked)


@app.command()
def run(
    file: Annotated[
        Path,
        typer.Argument(
            help="A Python file with STUDY = es.experiments.Study(...).", metavar="FILE"
        ),
    ],
    panels: Annotated[
        list[str] | None, typer.Argument(help="Panels or numbers of figures, or all.")
    ] = None,
    scale: Annotated[
        Own, typer.Option(help="The full number of realizations, or what is for a laptop.")
    ] = Own.full,
    realizations: Count = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where results and report go, by default FILE-results.")
    ] = None,
    force: Force = False,
    engine: OnEngine = Where.local,
    address: Address = None,
) -> None:
    """Run a study of your own: results, figures and a report with claims."""
    from .experiments.study import from_file

    began = time.perf_counter()
    folder = Path(f"{file.stem}-results") if out is None else out
    study = from_file(file)
    asked: Any = {"force": force, "engine": _engine(engine, address)}
    try:
        _run_study(study, panels, _count(scale.value, realizations), seed, folder, began, **asked)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with results.", metavar="DIR")],
    study: Annotated[
        Path | None,
        typer.Option(help="The Python file of a study of your own; else it is one of ours."),
    ] = None,
) -> None:
    """Rebuild figures and report from saved results, without running anything."""
    from .experiments import deep, paper
    from .experiments.report import build
    from .experiments.study import from_file

    ours = paper.STUDY
    if any((folder / f"{name}.json").exists() for name in deep.STUDY.panels):
        ours = deep.STUDY
    typer.echo(build(ours if study is None else from_file(study), folder, _warn))


Ledger = Annotated[
    str, typer.Argument(help="A bandit's folder, or postgresql://...#name.", metavar="DIR")
]


@app.command()
def inspect(
    place: Ledger,
    plot: Annotated[Path | None, typer.Option(help="Draw its history to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not text.")] = False,
) -> None:
    """How a bandit is doing, also while it is running."""
    from .decide import summary

    found = summary.inspect(place, plot)
    typer.echo(json.dumps(asdict(found), indent=1) if as_json else str(found))


@app.command()
def export(
    place: Ledger,
    file: Annotated[Path, typer.Argument(help="A .parquet or .csv file.", metavar="FILE")],
) -> None:
    """Write a bandit's log as a table, also while it is running."""
    from .ledger.export import export

    typer.echo(f"{export(place, file)} decisions in {file}")


@app.command()
def backup(
    place: Ledger,
    to: Annotated[Path, typer.Argument(help="A new folder.", metavar="TO")],
) -> None:
    """Copy a bandit's ledger to a new folder, also while it is running."""
    from .ledger.ledger import Ledger
    from .ledger.sqlite import as_place

    with closing(Ledger(as_place(place), write=False)) as ledger:
        ledger.backup(to)
        typer.echo(f"{ledger.decisions} decisions in {to}")


@app.command()
def upgrade(place: Ledger) -> None:
    """Bring the ledger of an earlier version up to date, all of it or nothing."""
    from .ledger.sqlite import as_place
    from .ledger.upgrade import upgrade

    typer.echo(f"{place}: {upgrade(as_place(place))}")


@app.command()
def evaluate(
    place: Ledger,
    candidates: Annotated[
        Path, typer.Argument(help="A Python file with CANDIDATES = {name: agent or function}.")
    ],
    baseline: Annotated[
        str, typer.Option(help="Take differences from what was earned, or from this candidate.")
    ] = "logged",
    out: Annotated[Path | None, typer.Option(help="Where text, JSON and figure go.")] = None,
) -> None:
    """What other agents would have earned on a bandit's log, also while it is running."""
    from .evaluation.evaluate import compare
    from .simulation.checkpoint import as_folder

    if out is not None:
        as_folder("out", out)
    found = compare(place, candidates, baseline)
    if out is not None:
        found.save(out)
    typer.echo(str(found) if out is None else f"{found}\n{out}/evaluation.png")


@app.command()
def plan(
    arms: Annotated[int, typer.Option(help="Actions to choose from.")],
    periods: Annotated[int, typer.Option(help="The horizon.")],
    tolerance: Annotated[
        float, typer.Option(help="Loss in the last period that is acceptable, in reward.")
    ],
    dim: Annotated[
        int | None,
        typer.Option(help="For a linear bandit with actions on the unit sphere; else independent."),
    ] = None,
    noise_std: Annotated[float, typer.Option(help="Of the outcomes.")] = 1.0,
    prior_std: Annotated[float, typer.Option(help="Of the arms' means, or of theta.")] = 1.0,
    realizations: Annotated[int, typer.Option(help="More narrow the range.")] = 4000,
    seed: Seed = 0,
    most: Annotated[int | None, typer.Option(help="The largest ensemble to consider.")] = None,
    out: Annotated[Path, typer.Option(help="Where text, JSON and figure go.")] = Path("plan"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not text.")] = False,
) -> None:
    """How many members a problem needs, found by simulating it."""
    import ensemble_sampling as es

    from .simulation.checkpoint import as_folder

    as_folder("out", out)
    if dim is None:
        learner = es.IndependentArms(arms, noise_std, prior_std=prior_std)
        environment = es.GaussianArms(arms, noise_std, prior_std=prior_std)
    else:
        learner = es.Linear(dim, noise_std, prior_std=prior_std)
        environment = es.LinearBandit(dim, arms, noise_std, prior_std=prior_std)
    unfinished = out / "unfinished"
    found = es.plan(
        learner,
        environment,
        periods,
        tolerance=tolerance,
        realizations=realizations,
        seed=seed,
        most=most,
        checkpoint=unfinished,
    )
    found.save(out)
    shutil.rmtree(unfinished)
    typer.echo(json.dumps(found.data(), indent=1) if as_json else f"{found}\n{out}/plan.png")


@app.command()
def serve(
    place: Annotated[str, typer.Argument(help="A folder, or postgresql://... .", metavar="DIR")],
    host: Annotated[str, typer.Option(help="Where to listen; others need keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Processes that serve.", min=1)] = 1,
    bandit: Annotated[
        list[str] | None, typer.Option(help="Begin this one too; may be given several times.")
    ] = None,
    agents: Annotated[
        Path | None, typer.Option(help="A Python file with AGENTS and CANDIDATES = {name: agent}.")
    ] = None,
    role: Annotated[str, typer.Option(help="both, decide or learn: what it does.")] = "both",
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 1_000_000,
    max_actions: Annotated[int, typer.Option(help="Of a decision.")] = 1000,
    max_features: Annotated[int, typer.Option(help="Of an action.")] = 1000,
    max_decisions: Annotated[int, typer.Option(help="Or outcomes, of a request.")] = 1000,
    rate: Annotated[float, typer.Option(help="Requests per second of a key; 0: any.")] = 5000.0,
    max_open: Annotated[int, typer.Option(help="Bandits that a process keeps open.")] = 50,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
) -> None:
    """Serve bandits over HTTP, until it is told to end."""
    from .serve import run
    from .serve.http.admission import Limits

    limits = Limits(max_body, max_actions, max_features, max_decisions, rate, open=max_open)
    file = None if agents is None else str(agents)
    named = bandit or []
    options = run.Options(place, host, port, workers, named, file, role, limits, access_log)
    raise typer.Exit(run.serve(options))


@app.command()
def demo(
    place: Annotated[
        Path | None,
        typer.Argument(help="A folder to keep it in, else it is gone at the end.", metavar="DIR"),
    ] = None,
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Serve a simulated shop as it is after a week, to look at; visitors go on coming."""
    from .serve.demo import demo

    raise typer.Exit(demo(place, port, opens=not no_open))


keys = typer.Typer(no_args_is_help=True, help="Keys to a service: make, list and revoke them.")
app.add_typer(keys, name="keys")
Served = Annotated[str, typer.Argument(help="The folder or URL that is served.", metavar="DIR")]


@keys.command("create")
def create_key(
    place: Served,
    scope: Annotated[
        list[str], typer.Option(help="decide, learn, read or admin; may be given several times.")
    ],
    bandit: Annotated[str | None, typer.Option(help="Only for this one.")] = None,
    note: Annotated[str, typer.Option(help="Whose it is, what it is for.")] = "",
    expires: Annotated[float | None, typer.Option(help="After so many days.")] = None,
) -> None:
    """Make a key; it is printed once and not kept."""
    from .serve.http.keys import Keys
    from .serve.storage import Storage

    storage = Storage.of(place)
    secret, key = Keys(storage).create(scope, bandit, note, expires)
    _warn(f"key {key.id}, shown only now; revoke it with `keys revoke {storage} {key.id}`")
    typer.echo(secret)


@keys.command("list")
def list_keys(place: Served) -> None:
    """The keys there are, and were; none of them is shown."""
    from .serve.http.keys import Keys, table
    from .serve.storage import Storage

    typer.echo(table(Keys(Storage.of(place)).all()))


@keys.command("revoke")
def revoke_key(
    place: Served, id: Annotated[str, typer.Argument(help="As `list` shows it.", metavar="ID")]
) -> None:
    """Refuse a key from now on, within a second in services that run."""
    from .serve.http.keys import Keys
    from .serve.storage import Storage

    new = Keys(Storage.of(place)).revoke(id)
    typer.echo(f"key {id} is revoked" if new else f"key {id} was revoked already")


if __name__ == "__main__":
    app()
