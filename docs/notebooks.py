"""Notebooks from pages: `python docs/notebooks.py` runs those of `docs/notebooks/` and writes each,
with what it printed and drew, as an `.ipynb`; the site shows the same below each block.
"""

import ast
import base64
import contextlib
import html
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "notebooks"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PRE = '<pre style="white-space: pre-wrap">'  # also on a phone


def cells(text: str) -> list[tuple[str, str]]:
    """(kind, source) of a page's cells in their order."""
    parts = BLOCK.split(text)  # text and code by turns
    kinds = ("markdown" if i % 2 == 0 else "code" for i in range(len(parts)))
    return [(kind, part.strip()) for kind, part in zip(kinds, parts, strict=True) if part.strip()]


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and what its last expression shows."""
    tree, printed, shown = ast.parse(source), io.StringIO(), None
    last = tree.body.pop().value if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last), "cell", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if shown is not None:
        data: dict[str, Any] = {"text/plain": repr(shown)}
        if hasattr(shown, "_repr_png_"):
            data["image/png"] = base64.b64encode(shown._repr_png_()).decode()
        elif hasattr(shown, "_repr_html_"):
            data["text/html"] = shown._repr_html_()
        found.append(
            {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None}
        )
    return found


def notebook(page: Path) -> dict[str, Any]:
    """The page, run, in the format of Jupyter's notebooks."""
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    for number, (kind, source) in enumerate(cells(page.read_text(encoding="utf-8"))):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": run(source, names)}
        made.append({**cell, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def shown_below(output: dict[str, Any]) -> str:
    """An output as HTML, for the site."""
    if output["output_type"] == "stream":
        return f"{PRE}{html.escape(output['text'])}</pre>"
    data = output["data"]
    if "image/png" in data:
        return f'<img alt="the figure" src="data:image/png;base64,{data["image/png"]}">'
    plain = data.get("text/html", "").replace(' border="1" class="dataframe"', "")
    return plain or f"{PRE}{html.escape(data['text/plain'])}</pre>"


COLAB = "https://colab.research.google.com/github"
BINDER = "https://mybinder.org/v2/gh"


def with_outputs(text: str, written: dict[str, Any], name: str, repository: str = "") -> str:
    """A page's text with what was shown below each block, and links to the notebook.

    repository: its public address on GitHub, from which others open notebooks; "" where it has none
    """
    outputs = iter([cell["outputs"] for cell in written["cells"] if cell["cell_type"] == "code"])

    def block(match: re.Match[str]) -> str:
        below = "\n\n".join(map(shown_below, next(outputs)))
        return f"{match[0]}\n\n{below}"

    links = [f"[Download this notebook]({name})"]
    if found := re.fullmatch(r"https://github\.com/([^/]+/[^/]+)/?", repository):
        at = f"docs/notebooks/{name}"
        links.append(f"[Open in Colab]({COLAB}/{found[1]}/blob/main/{at})")
        links.append(f"[Open in Binder]({BINDER}/{found[1]}/main?labpath={at})")
    else:
        links.append("or upload it to Colab or any Jupyter where this package is installed")
    return f"{BLOCK.sub(block, text)}\n{', '.join(links)}.\n"


def main() -> None:
    """Write every notebook again."""
    os.environ["MPLBACKEND"] = "Agg"
    for page in sorted(HERE.glob("*.md")):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            made = notebook(page)
        page.with_suffix(".ipynb").write_text(f"{json.dumps(made, indent=1)}\n", encoding="utf-8")
        print(page.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
