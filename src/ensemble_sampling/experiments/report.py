"""Results -> figures and a report. It reads what was saved and never runs anything."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..files import Damaged, read_json
from .claims import Claim, Unavailable, Verdict
from .page import contents, html, plain, table
from .panels import Figure, Results
from .study import Study

CURVES = (
    "Curves are drawn as averages over a hundredth of the periods each, with 95% confidence bands; "
    "the JSON files have every period. In tables ± is one standard error, of which the bands are "
    "1.96 to either side."
)
VERDICTS = (
    "Each verdict follows from the results: a claim holds, or does not, where the whole 95% "
    "interval lies on one side of the threshold. Agents are compared in the same worlds; where a "
    "claim takes several comparisons, each is widened so that the interval covers them all."
)


def load(
    study: Study, folder: str | os.PathLike[str], say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Results by name of the panel, where their file is there and whole; `say` hears of damage."""
    found = {}
    for name in study.panels:
        path = Path(folder) / f"{name}.json"
        if not path.exists():
            continue
        try:
            found[name] = read_json(path)
        except Damaged as error:
            say(f"{error}; the report leaves it out")
    return found


Pictures = list[tuple[str, bytes]]
"""The title and the SVG of each panel of a figure."""
SIGNS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗"}


def draw_figure(figure: Figure, found: Results, folder: Path) -> Pictures:
    """Write `figure<n>.png` and `.svg`; -> its panels, each by itself."""
    from . import figures  # Matplotlib is slow to import

    return figures.save(figure, found, folder)


def build(
    study: Study,
    folder: str | os.PathLike[str],
    say: Callable[[str], None] = print,
    drawn: Mapping[int, Pictures] = MappingProxyType({}),
) -> Path:
    """Draw the figures and write `report.md` and `report.html` into a folder with results.

    drawn: what `draw_figure` gave for figures that need not be drawn again, by number
    """
    folder = Path(folder)
    found = load(study, folder, say)
    if not found:
        names = ", ".join(f"{name}.json" for name in study.panels)
        raise ValueError(f"{folder} holds no results; expected some of {names}")
    pictures = {
        f"figure{figure.number}.png": drawn.get(figure.number) or draw_figure(figure, found, folder)
        for figure in _present(study, found)
    }
    text = markdown(study, found, study.more(folder))
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(html(text, folder, pictures), encoding="utf-8")
    return folder / "report.html"


def _present(study: Study, found: Results) -> list[Figure]:
    """The figures of which at least one panel was run."""
    return [f for f in study.figures if any(panel.name in found for panel in f.panels)]


def markdown(study: Study, found: Results, more: Sequence[str] = ()) -> str:
    """The whole report; `more` comes after the figures."""
    present = _present(study, found)
    sections = [
        CURVES,
        *_claims(study, found, present),
        *(part for figure in present for part in _figure(figure, found)),
        *more,
        "## Settings",
        *_settings(study, found),
        "## What was reduced",
        _reduced(study, found),
        study.notes.strip(),
        _diverged(study, found),
    ]
    start = [f"# {plain(study.title)}", study.about.strip(), contents(sections)]
    return "\n\n".join(filter(None, [*start, *sections])) + "\n"


def _claims(study: Study, found: Results, present: Sequence[Figure]) -> list[str]:
    numbers = [figure.number for figure in present]
    asked = [c for c in study.claims if c.figure is None or c.figure in numbers]
    if not asked:
        return []
    head = ("figure", "claim", "measured", "estimate (95% interval)", "verdict")
    left = len(study.claims) - len(asked)
    note = f" The claims about figures that were not run ({left}) are left out." if left else ""
    rows = [_claim(claim, found) for claim in asked]
    return ["## What is claimed, and what was measured", VERDICTS + note, table(head, rows)]


def _claim(claim: Claim, found: Results) -> list[str]:
    figure = "" if claim.figure is None else str(claim.figure)
    start = [figure, plain(claim.statement), plain(claim.measured)]
    try:
        verdict, text = claim.check(found)
    except Exception as error:
        # A mistake in one claim does not take away the report of a long run.
        kind = "" if isinstance(error, Unavailable) else f"{type(error).__name__}: "
        return [*start, "", f"not computed: {plain(f'{kind}{error}')}"]
    return [*start, plain(text), f"{SIGNS.get(verdict, '?')} **{plain(verdict)}**"]


def _figure(figure: Figure, found: Results) -> list[str]:
    remark = f" ({figure.remark})" if figure.remark else ""
    run = [panel for panel in figure.panels if panel.name in found]
    return [
        f"## Figure {figure.number}{remark}",
        f"![Figure {figure.number}](figure{figure.number}.png)",
        figure.caption,
        *(text for panel in run for text in panel.tables(found[panel.name])),
    ]


def _settings(study: Study, found: Results) -> list[str]:
    subjects = {panel.name: figure.subject for figure in study.figures for panel in figure.panels}
    rows = []
    for name, data in found.items():
        panel, realizations = study.panels[name], data["realizations"]
        times = realizations / panel.realizations
        more = f" ({times:.3g} times the full number)" if times > 1 else ""
        rows.append(
            [
                plain(name),
                plain(": ".join(dict.fromkeys((subjects[name], panel.title)))),
                f"{data['periods']:,}",
                f"{realizations:,}{more}",
                str(data["seed"]),
                plain(str(data["device"])),
                f"{data['seconds']:.0f}",
            ]
        )
    head = ("panel", "what", "periods", "realizations", "seed", "device", "seconds")
    used = {", ".join(f"{k} {v}" for k, v in data["versions"].items()) for data in found.values()}
    note = (
        "Seconds are from a panel's first simulation to its last, compilation included; panels may "
        "have run side by side. Full settings of every agent and environment are in the JSON files."
    )
    return [table(head, rows), f"{note} Versions: {'; '.join(sorted(used))}."]


def _reduced(study: Study, found: Results) -> str:
    lines = [
        f"- {plain(name)}: {data['realizations']:,} realizations instead of {panel.realizations:,}."
        for name, panel in study.panels.items()
        if (data := found.get(name)) and data["realizations"] < panel.realizations
    ]
    lines += [f"- {plain(name)}: not run." for name in study.panels if name not in found]
    return "\n".join(lines) or "Nothing: every panel has its full number of realizations."


def _diverged(study: Study, found: Results) -> str:
    counts = [
        f"{plain(name)} {plain(entry['label'])}: {entry['diverged']:,}"
        for name, data in found.items()
        for entry in data[study.panels[name].entries]
        if entry.get("diverged")
    ]
    return f"Members put back to their start, over all realizations: {', '.join(counts) or 'none'}."
