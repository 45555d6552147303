"""Every Python block of the README and the documentation runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[str]:
    """The code, each block moved down to its own line so that errors point into the page."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m[1] for m in BLOCK.finditer(text)]


# As `python -W error` would: no block may warn. Libraries may do so among themselves, and what
# is left open is closed at a time that nobody can tell.
QUIET = pytest.mark.filterwarnings(
    "error",
    "ignore::ResourceWarning",
    "default::DeprecationWarning:(?!ensemble_sampling|__main__)",
)


@QUIET
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), names)


def test_the_readme_leads_with_a_short_example():
    first = blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert 1 <= len(first.strip().splitlines()) <= 15


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
