"""How long work shows where it is."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Told how many realizations are done, and how many there are."""


@contextmanager
def reported(progress: bool | Progress | None, label: str, total: int) -> Iterator[Progress]:
    """The caller's own function, a bar with rate and time left, or silence."""
    if callable(progress):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if progress is False or (progress is None and not console.is_terminal):
        yield lambda done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, rate="")
        began, before = time.perf_counter(), None

        def report(done: int, total: int) -> None:
            nonlocal before
            before = done if before is None else before  # what a checkpoint brought is no rate
            rate = (done - before) / (time.perf_counter() - began)
            bar.update(task, completed=done, rate=f"{rate:.3g} realizations/s" if rate else "")

        yield report
