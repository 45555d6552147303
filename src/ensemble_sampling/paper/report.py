"""Results -> figures and a report. It reads what was saved and never runs anything."""

import base64
import os
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..files import Damaged, read_json
from . import FIGURES, PANELS, figures, others
from .claims import CLAIMS, Claim, Results, Unavailable
from .declare import Figure, Panel
from .tables import plain, table

DEVIATIONS = """\
- **The theorem is withdrawn.** The authors withdrew the paper's regret bound (Theorem 3): its proof
  compared ensemble sampling with Thompson sampling's actions on the wrong history. Nothing here
  rests on it. The experiments are unaffected.
- **The loss is divided by the number of observations.** The paper writes a sum over the history;
  the learning rates it quotes fit a mean over each minibatch, with the prior's pull divided by the
  number of observations.
- **Dropout follows the published gradient.** The code behind the published curves lets the output
  weights learn from the unmasked hidden units, and draws a mask for every action. Panel 3c does the
  same, by name (`published_gradient`); the library's own default is the true gradient
  (`true_gradient`).
- **Members that diverge are put back to their start.** A learning rate of 0.1 is at the edge of
  stability for the two-layer network. A member whose weights are no longer finite cannot act; it is
  reset to its prior draw and counted below.
- **Minibatches are shared by the members of an ensemble.** Each member has its own prior draw and
  its own noise on the targets; the rows that a step looks at are the same for all.
"""

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
  max-width: 60rem; padding: 1rem 1.5rem 4rem; }
h1, h2, h3 { line-height: 1.2; margin-top: 2em; } h1 { margin-top: 1em; }
img { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.87em; margin: 1em 0; }
th, td { text-align: left; vertical-align: top; padding: 0.35em 0.7em; }
td { border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; }
td { font-variant-numeric: tabular-nums; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { table { display: block; overflow-x: auto; } }
"""


def load(folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Panel name -> results, of every panel that is there and whole; damage is told by name."""
    found = {}
    for name in PANELS:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        try:
            found[name] = read_json(path)
        except Damaged as error:
            say(f"{error}; the report leaves it out")
    return found


def build(folder: str | os.PathLike[str], say: Callable[[str], None] = print) -> Path:
    """Draw the figures and write `report.md` and `report.html` into a folder with results."""
    folder = Path(folder)
    found = load(folder, say)
    if not found:
        names = ", ".join(f"{name}.json" for name in PANELS)
        raise ValueError(f"{folder} holds no results; expected some of {names}")
    for figure in _present(found):
        figures.save(figure, found, folder)
    text = markdown(found, others.section(others.load(folder), folder))
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(html(text, folder), encoding="utf-8")
    return folder / "report.html"


def _present(found: Results) -> list[Figure]:
    """The figures of which at least one panel was run."""
    return [figure for figure in FIGURES if any(panel.name in found for panel in figure.panels)]


def draw(folder: str | os.PathLike[str], panel: Panel) -> None:
    """Only the figure that a panel belongs to, from what there is so far."""
    found = load(Path(folder), say=lambda message: None)
    for figure in FIGURES:
        if panel in figure.panels:
            figures.save(figure, found, Path(folder))


def markdown(found: Results, more: Sequence[str] = ()) -> str:
    """The whole report; `more` comes after the figures."""
    sections = [
        "# Ensemble sampling: the paper's experiments",
        "Lu and Van Roy, *Ensemble Sampling*, 2017 ([arXiv:1705.07347]"
        "(https://arxiv.org/abs/1705.07347)). Every panel shows the expected regret in each "
        "period: the best mean reward minus the mean reward of the chosen action, averaged over "
        "realizations. Curves are drawn as averages over a hundredth of the periods each, with "
        "95% confidence bands; the JSON files have every period. In tables ± is one standard "
        "error, of which the bands are 1.96 to either side.",
        "## What the paper claims, and what was measured",
        *_claims(found),
        *(part for figure in _present(found) for part in _figure(figure, found)),
        *more,
        "## Settings",
        *_settings(found),
        "## What was reduced",
        _reduced(found),
        "## Deviations from the paper's text",
        DEVIATIONS.rstrip(),
        _diverged(found),
    ]
    return "\n\n".join(sections) + "\n"


def _claims(found: Results) -> list[str]:
    note = (
        "Each verdict follows from the results: a claim holds, or does not, where the whole 95% "
        "interval lies on one side of the threshold. Agents are compared in the same worlds; "
        "where a claim takes several comparisons, each is widened so that the interval covers "
        "them all."
    )
    head = ("figure", "claim", "measured", "estimate (95% interval)", "verdict")
    return [note, table(head, [_claim(claim, found) for claim in CLAIMS])]


def _claim(claim: Claim, found: Results) -> list[str]:
    start = [str(claim.figure), claim.statement, claim.measured]
    try:
        interval = claim.quantity(found)
    except Unavailable as reason:
        return [*start, "", f"not computed: {plain(str(reason))}"]
    estimate, low, high = (f"{number:.3g}" for number in interval)
    return [*start, f"{estimate} ({low} to {high})", f"**{claim.verdict(interval)}**"]


def _figure(figure: Figure, found: Results) -> list[str]:
    parts = [
        f"## Figure {figure.number}{' (ours, not the paper’s)' if figure.ours else ''}",
        f"![Figure {figure.number}](figure{figure.number}.png)",
        figure.caption,
    ]
    for panel in figure.panels:
        if panel.name in found:
            parts += panel.tables(found[panel.name])
    return parts


def _settings(found: Results) -> list[str]:
    subjects = {panel.name: figure.subject for figure in FIGURES for panel in figure.panels}
    rows = [
        [
            name,
            plain(f"{subjects[name]}: {PANELS[name].title}"),
            f"{data['periods']:,}",
            f"{data['realizations']:,}",
            str(data["seed"]),
            plain(str(data["device"])),
            f"{data['seconds']:.0f}",
        ]
        for name, data in found.items()
    ]
    head = ("panel", "what", "periods", "realizations", "seed", "device", "seconds")
    used = {", ".join(f"{k} {v}" for k, v in data["versions"].items()) for data in found.values()}
    note = (
        "Seconds are from a panel's first simulation to its last, compilation included; panels may "
        "have run side by side. Full settings of every agent and environment are in the JSON files."
    )
    return [table(head, rows), f"{note} Versions: {'; '.join(sorted(used))}."]


def _reduced(found: Results) -> str:
    lines = [
        f"- {name}: {data['realizations']:,} realizations instead of {panel.realizations:,}."
        for name, panel in PANELS.items()
        if (data := found.get(name)) and data["realizations"] < panel.realizations
    ]
    lines += [f"- {name}: not run." for name in PANELS if name not in found]
    return "\n".join(lines) or "Nothing: every panel has the published number of realizations."


def _diverged(found: Results) -> str:
    counts = [
        f"{name} {plain(entry['label'])}: {entry['diverged']:,}"
        for name, data in found.items()
        for entry in data[PANELS[name].entries]
        if entry.get("diverged")
    ]
    return f"Members put back to their start, over all realizations: {', '.join(counts) or 'none'}."


def html(text: str, folder: Path) -> str:
    """The report as one page with its pictures inside."""
    from markdown_it import MarkdownIt

    body = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))
    body = body.replace(" ± ", "\u00a0±\u00a0")  # a number stays with its error

    def inside(match: re.Match[str]) -> str:
        picture = base64.b64encode((folder / match[1]).read_bytes()).decode()
        return f'src="data:image/png;base64,{picture}"'

    body = re.sub(r'src="([^":]+\.png)"', inside, body)
    title = text.split("\n", 1)[0].removeprefix("# ")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
