"""How work that takes long shows where it is: by the caller's function, bars, or not at all."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape as escape_html
from importlib.util import find_spec

Progress = Callable[[int, int], None]
"""Told how many realizations are done, and how many there are."""

Track = Callable[[str, float], AbstractContextManager[Progress]]
"""(label, effort) -> progress of one of several pieces of work, with its share of the whole."""


@contextmanager
def reported(progress: bool | Progress | None, label: str) -> Iterator[Progress]:
    """The caller's own function, or a bar."""
    if callable(progress):
        yield progress
    elif progress is None or isinstance(progress, bool):
        with bars(progress) as track, track(label, 1.0) as report:
            yield report
    else:
        raise TypeError(
            f"progress must be true, false or a function of (done, total), got {progress!r}"
        )


@contextmanager
def bars(progress: bool | None, whole: float | None = None) -> Iterator[Track]:
    """A bar with rate and time left for each piece of work, by default where there is a terminal
    or a notebook.

    whole: the efforts of all pieces together; one more bar then shows how much of it is done, and
        the others go when they are full.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    seen = console.is_terminal or console.is_jupyter
    if progress is False or (progress is None and not seen):
        yield lambda label, effort: nullcontext(lambda done, total: None)
        return
    if console.is_jupyter and find_spec("ipywidgets") is None:  # without it rich shows nothing
        yield _in_notebook()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bars(*columns, console=console, speed_estimate_period=300) as shown:
        everything = None if whole is None else shown.add_task("[bold]all", total=whole, done="")

        @contextmanager
        def track(label: str, effort: float) -> Iterator[Progress]:
            task = shown.add_task(escape(label), total=None, done="")
            began, before, share = time.perf_counter(), None, 0.0

            def report(done: int, total: int) -> None:
                nonlocal before, share
                before = done if before is None else before  # what a checkpoint brought is no rate
                rate = (done - before) / (time.perf_counter() - began)
                text = f"{done}/{total}" + (f" {rate:.3g} realizations/s" if rate else "")
                shown.update(task, completed=done, total=total, done=text)
                if everything is not None:
                    shown.advance(everything, (done / total - share) * effort)
                    share = done / total

            yield report
            if everything is not None:
                report(1, 1)
                shown.remove_task(task)

        yield track


def _in_notebook() -> Track:
    """A bar of the browser's own for each piece of work."""
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    @contextmanager
    def track(label: str, effort: float) -> Iterator[Progress]:
        handle, began = display(HTML(""), display_id=True), time.perf_counter()

        def report(done: int, total: int) -> None:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            text = f"{done}/{total}, {time.perf_counter() - began:.0f} s"
            handle.update(HTML(f"<div>{escape_html(label)} {bar} {text}</div>"))

        yield report

    return track
