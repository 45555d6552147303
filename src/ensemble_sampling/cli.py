"""The command line: reproduce the paper, plan an ensemble, look at a running bandit."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Ensemble sampling: Thompson sampling for any model.",
)


class Scale(StrEnum):
    laptop = "laptop"
    paper = "paper"


def _warn(message: str) -> None:
    typer.echo(message, err=True)


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
    realizations: Annotated[
        int | None, typer.Option(help="This many realizations instead, for every panel.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("reproduction"),
    force: Annotated[
        bool, typer.Option("--force", help="Run panels again whose results are there.")
    ] = False,
    report: Annotated[
        bool, typer.Option(help="Draw figures and write the report, or only save the results.")
    ] = True,
) -> None:
    """Run the paper's experiments; interrupted, it goes on where it stopped."""
    from .paper import report as reporting
    from .paper import reproduce as running

    began = time.perf_counter()
    with _told():
        running.reproduce(
            panels or (),
            scale.value,
            realizations,
            seed,
            out,
            force=force,
            say=_warn,
            finished=(lambda panel: reporting.draw(out, panel)) if report else lambda panel: None,
        )
        written = reporting.build(out, _warn) if report else out
    typer.echo(f"{written} after {time.perf_counter() - began:.0f} s")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with results.", metavar="DIR")],
) -> None:
    """Rebuild figures and report from saved results, without running anything."""
    from .paper import report as reporting

    with _told():
        typer.echo(str(reporting.build(folder, _warn)))


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="A bandit's folder.", metavar="DIR")],
    plot: Annotated[Path | None, typer.Option(help="Draw its history to this file.")] = None,
) -> None:
    """How a bandit is doing, also while it is running."""
    from .decide import summary

    with _told():
        typer.echo(str(summary.inspect(folder, plot)))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A bandit's folder.", metavar="DIR")],
    file: Annotated[Path, typer.Argument(help="A .parquet or .csv file.", metavar="FILE")],
) -> None:
    """Write a bandit's log as a table, also while it is running."""
    from .decide.export import export

    with _told():
        typer.echo(f"{export(folder, file)} decisions in {file}")


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="A bandit's folder.", metavar="DIR")],
    to: Annotated[Path, typer.Argument(help="A new folder.", metavar="TO")],
) -> None:
    """Copy a bandit's ledger to a new folder, also while it is running."""
    from .decide.ledger import Ledger

    with _told():
        ledger = Ledger(folder, write=False)
        try:
            ledger.backup(to)
            typer.echo(f"{ledger.decisions} decisions in {to}")
        finally:
            ledger.close()


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A bandit's folder.", metavar="DIR")],
    candidates: Annotated[
        Path, typer.Argument(help="A Python file with CANDIDATES = {name: agent or function}.")
    ],
    baseline: Annotated[
        str, typer.Option(help="Take differences from what was earned, or from this candidate.")
    ] = "logged",
    out: Annotated[Path | None, typer.Option(help="Where text, JSON and figure go.")] = None,
) -> None:
    """What other agents would have earned on a bandit's log, also while it is running."""
    from .evaluate.candidates import compare
    from .simulate.checkpoint import as_folder

    with _told():
        if out is not None:
            as_folder("out", out)
        found = compare(folder, candidates, baseline)
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
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    most: Annotated[int | None, typer.Option(help="The largest ensemble to consider.")] = None,
    out: Annotated[Path, typer.Option(help="Where text, JSON and figure go.")] = Path("plan"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not text.")] = False,
) -> None:
    """How many members a problem needs, found by simulating it."""
    import json
    import shutil

    import ensemble_sampling as es

    from .simulate.checkpoint import as_folder

    with _told():
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
            tolerance,
            realizations,
            seed,
            most=most,
            checkpoint=unfinished,
        )
        found.save(out)
        shutil.rmtree(unfinished)
    typer.echo(json.dumps(found.data(), indent=1) if as_json else f"{found}\n{out}/plan.png")


@contextmanager
def _told() -> Iterator[None]:
    """What was asked wrongly is said in a sentence, not in a traceback; Ctrl-C ends at once."""
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _interrupted) if on_main else None
    try:
        yield
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


if __name__ == "__main__":
    app()
