"""For the documentation site: results lie beside the pages, and files outside it are left as text.

In the repository pages link to `../../results/...`, which works there; a site has only what is in
its folder.
"""

import json
import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHOWN = ("*.png", "*.svg", "*.md", "*.json", "*.html")
OUTSIDE = re.compile(r"\]\((?:\.\./)+(?!results/)([A-Za-z][^)#]*)(#[^)]*)?\)")
RESULTS = re.compile(r"\]\(((?:\.\./)+)results/")


def on_files(files: Any, config: Any) -> Any:
    """Add the results."""
    from mkdocs.structure.files import File

    for pattern in SHOWN:
        for path in sorted((ROOT / "results").rglob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to results lead to their copies, those to other files to nowhere; what a notebook
    shows stands below its blocks."""
    written = Path(page.file.abs_src_path).with_suffix(".ipynb")
    if written.exists():
        found = json.loads(written.read_text(encoding="utf-8"))
        below = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["with_outputs"]
        markdown = below(markdown, found, written.name, config.get("repo_url") or "")
    markdown = RESULTS.sub(lambda m: f"]({m[1][3:]}results/", markdown)
    here = Path(page.file.src_uri).parent

    def outside(match: re.Match[str]) -> str:
        target = (ROOT / "docs" / here / match[0][2:-1].split("#")[0]).resolve()
        if (ROOT / "docs") in target.parents or not target.exists():
            return match[0]
        return f"] (`{target.relative_to(ROOT).as_posix()}`)"

    return OUTSIDE.sub(outside, markdown)
