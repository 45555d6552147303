"""A report in Markdown, and as one page of HTML: for desks and phones, light and dark."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape, unescape
from pathlib import Path

STYLE = """\
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #ddd; --head: #888;
  --link: #0058a8; --yes: #1a7f37; --no: #b3261e; --open: #8a5a00; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 60rem; padding: 1rem 1.5rem 4rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; margin-top: 2em; } h1 { margin-top: 1em; }
a { color: var(--link); }
img { width: 100%; height: auto; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 0.5rem; }
.scroll { overflow-x: auto; margin: 1em 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.87em; }
th, td { text-align: left; vertical-align: top; padding: 0.35em 0.7em; background: var(--paper); }
th { border-bottom: 2px solid var(--head); }
td { border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
.yes strong { color: var(--yes); } .no strong { color: var(--no); }
.open strong { color: var(--open); }
.yes, .no, .open { border-left: 3px solid; padding-left: 0.5em; }
.yes { border-left-color: var(--yes); } .no { border-left-color: var(--no); }
.open { border-left: 3px dashed var(--open); }
@media (max-width: 40rem) {
  body { padding: 0.5rem 1rem 3rem; }
  th, td { padding: 0.35em 0.5em; }
  .scroll th:first-child, .scroll td:first-child { position: sticky; left: 0; max-width: 8.5rem; }
  .scroll td:not(:first-child) { white-space: nowrap; }
  .cards thead { display: none; }
  .cards, .cards tbody, .cards tr, .cards td { display: block; }
  .cards tr { border: 1px solid var(--line); border-radius: 0.4em; padding: 0.5em 0.7em;
    margin: 0.7em 0; }
  .cards td { border: 0; padding: 0.1em 0; }
  .cards td::before { content: attr(data-head) ": "; color: var(--head); }
  .cards td:empty { display: none; }
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #16181c; --line: #3a3d43; --head: #9a9da3; --link: #7db8ff;
    --yes: #5fd07f; --no: #ff8a80; --open: #e0b04c; }
  img { filter: invert(0.91) hue-rotate(180deg); }
}
"""

CARDS = "verdict"
"""Tables with this column become a card for each row where the screen is narrow."""
MARKS = {"✓": "yes", "✗": "no", "?": "open"}
"""Before a verdict in bold, and the class that colours it: it can be read without the colour."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown; put `plain` around what came from outside."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """A label as it is, in Markdown and in the page made from it: no markup, no end of a cell."""
    return re.sub(r"([\\`*_\[\]<>|&~#])", r"\\\1", " ".join(text.split()))


def with_error(mean: float, error: float, digits: int = 3) -> str:
    """A mean and its standard error."""
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def contents(sections: Iterable[str]) -> str:
    """Links to all headings of the second level, whose anchors are those of GitHub and MkDocs."""
    heads = (line[3:] for part in sections for line in part.split("\n") if line.startswith("## "))
    return "\n".join(f"- [{head}](#{_anchor(head)})" for head in heads)


def _anchor(head: str) -> str:
    return re.sub(r"[^\w -]", "", unescape(head).lower()).strip().replace(" ", "-")


def html(text: str, folder: Path, panels: Mapping[str, Sequence[tuple[str, bytes]]] = {}) -> str:
    """The page. `panels` has the parts of some pictures, which it shows instead: title and SVG."""
    from markdown_it import MarkdownIt

    body = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))
    body = body.replace(" ± ", "\u00a0±\u00a0")  # a number stays with its error
    body = re.sub(r"<h2>(.*?)</h2>", _heading, body)
    body = re.sub(r"<table>.*?</table>", lambda found: _table(found[0]), body, flags=re.DOTALL)

    def inside(found: re.Match[str]) -> str:
        name, alt = unescape(found[1]), unescape(found[2])
        if name in panels:
            parts = (_image(f"{alt}, {what}", svg, "svg+xml") for what, svg in panels[name])
            return f'<div class="panels">{"".join(parts)}</div>'
        return _image(alt, (folder / name).read_bytes())

    body = re.sub(r'<p><img src="([^":]+\.png)" alt="([^"]*)" /></p>', inside, body)
    title = re.sub(r"\\(.)", r"\1", text.split("\n", 1)[0].removeprefix("# "))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _heading(found: re.Match[str]) -> str:
    return f'<h2 id="{_anchor(re.sub("<[^>]*>", "", found[1]))}">{found[1]}</h2>'


def _image(alt: str, content: bytes, kind: str = "png") -> str:
    inside = base64.b64encode(content).decode()
    return f'<img src="data:image/{kind};base64,{inside}" alt="{escape(alt)}">'


def _table(table: str) -> str:
    """Scrolls by itself, not the page; one with verdicts is a list of cards on a phone."""
    heads = [re.sub(r"<[^>]*>", "", head) for head in re.findall(r"<th>(.*?)</th>", table)]
    if CARDS not in heads:
        return f'<div class="scroll">{table}</div>'

    def row(found: re.Match[str]) -> str:
        named = iter(heads)
        return re.sub("<td>", lambda _: f'<td data-head="{next(named)}">', found[0])

    body = re.sub(r"<tr>.*?</tr>", row, table, flags=re.DOTALL)
    for mark, kind in MARKS.items():
        body = re.sub(rf"<td([^>]*>{re.escape(mark)} <strong>)", rf'<td class="{kind}"\1', body)
    return body.replace("<table>", '<table class="cards">')
