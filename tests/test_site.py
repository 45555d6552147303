"""The documentation site has every page and every name; its tables are those of the results."""

import json
import re
import runpy
from pathlib import Path

import ensemble_sampling as es

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_and_on_the_first_page():
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    results = set(re.findall(r"results/[\w/-]+\.md", nav))
    assert pages == set(re.findall(r"[\w/-]+\.md", nav)) - results
    linked = set(re.findall(r"\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert pages - {"index.md"} == linked


def test_a_notebook_has_the_cells_of_its_page_and_what_they_showed():
    parts = runpy.run_path(str(DOCS / "notebooks.py"))
    pages = sorted((DOCS / "notebooks").glob("*.md"))
    assert [page.stem for page in pages] == ["evaluate-a-change", "figure-3", "first-bandit"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        written = json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], cell["source"]) for cell in written["cells"]]
        assert cells == parts["cells"](text), "run docs/notebooks.py"
        shown = parts["with_outputs"](text, written, "x.ipynb")
        assert "data:image/png;base64," in shown
        assert "<table" in shown or "<pre" in shown
        assert "colab" not in shown
        shown = parts["with_outputs"](text, written, "x.ipynb", "https://github.com/a/b")
        assert "google.com/github/a/b/blob/main/docs/notebooks/x.ipynb)" in shown
        assert "mybinder.org/v2/gh/a/b/main?labpath=docs/notebooks/x.ipynb)" in shown
    names = {}
    (printed, value) = parts["run"]("x = 3\nprint('<')\nx / 9", names)
    assert printed["text"] == "<\n"
    assert parts["shown_below"](printed).endswith(">&lt;\n</pre>")
    assert value["data"]["text/plain"] == repr(1 / 3)


def test_who_searches_for_reward_finds_the_pages_that_say_outcome():
    names = ("index", "faq", "tutorial/real-decisions", "reference/deciding")
    names += tuple(
        f"how-to/{name}" for name in ("late-feedback", "clicks", "what-to-ask", "evaluate")
    )
    for name in names:
        assert "reward" in (DOCS / f"{name}.md").read_text().lower(), name


def test_no_place_is_left_to_be_filled_in():
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        left = re.findall(
            r"^[A-Z_]{3,}$|\bTODO\b|\bTBD\b|\bXXX\b|<[a-z]+ here>", text, re.MULTILINE
        )
        assert not left, page.name


def test_lists_render_which_needs_an_empty_line_before_and_four_spaces_within():
    for page in DOCS.rglob("*.md"):
        inside, before = False, ""
        for number, line in enumerate(page.read_text().splitlines(), 1):
            where, indent = f"{page.name}:{number}", len(line) - len(line.lstrip())
            item = re.match(r" *(?:[-*]|\d+\.) ", line)
            fence = line.lstrip().startswith("```")
            if fence or (item and not inside):
                assert indent % 4 == 0, where
            if item and not inside:
                alone = not before.strip() or re.match(r" *(?:[-*]|\d+\.) | +\S", before)
                assert alone, where
            inside, before = inside != fence, line


def test_every_name_is_in_the_reference():
    said = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    paths = re.findall(r"^::: (\S+)$", said, re.MULTILINE)
    listed = {path.rpartition(".")[2] for path in paths}
    rooms = (es.agents, es.learners, es.posteriors, es.worlds, es.episodes, es.evaluation)
    names = {name for room in rooms for name in room.__all__}
    names |= {name for name in es.__all__ if not hasattr(getattr(es, name), "__path__")}
    assert names - {"core", "networks"} <= listed
    assert len(paths) == len(set(paths))


def test_the_comparison_is_that_of_the_results():
    page = DOCS / "explanation" / "comparison.md"
    parts = runpy.run_path(str(page.with_suffix(".py")))
    for part in ("quality", "bakeoff", "no_context"):
        assert parts[part]() in page.read_text()


def test_a_win_of_the_bakeoff_is_significant_by_the_rule_of_its_paper(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    code = runpy.run_path(str(ROOT / "benchmarks" / "bakeoff.py"))
    score, wins, tally = (code[name] for name in ("Score", "wins", "tally"))
    for more, known in ((0.0515, False), (0.0525, True)):  # 1.645 times the root of 0.4973 / 500
        low, high = score(0.5, 500), score(0.5 + more, 500)
        assert (wins(high, low), wins(low, high)) == (known, False)
    assert not wins(score(1.0, 9), score(1.0, 9))
    ours = {"a": score(0.9, 500), "b": score(0.5, 500), "c": score(0.5, 500), "d": score(0, 9)}
    theirs = {"a": score(0.5, 500), "b": score(0.9, 500), "c": score(0.51, 500)}
    assert tally(ours, theirs) == (1, 1, 1)
    assert code["better"]([theirs, {"a": score(0.6, 500)}])["a"].mean == 0.6


def test_the_capacity_is_that_of_the_results():
    page = DOCS / "how-to" / "capacity.md"
    parts = runpy.run_path(str(page.with_suffix(".py")))
    for part in ("load", "learner", "faults", "staleness", "many"):
        assert parts[part]() in page.read_text()


def test_the_times_are_those_of_the_results():
    page = DOCS / "explanation" / "where-the-time-goes.md"
    written = runpy.run_path(str(page.with_suffix(".py")))["page"]()
    assert written == page.read_text(), f"run {page.with_suffix('.py').relative_to(ROOT)}"


def test_the_picture_of_the_rooms_is_that_of_their_imports():
    picture = runpy.run_path(str(Path(__file__).with_name("rooms_picture.py")))["picture"]()
    assert picture in (ROOT / "CONTRIBUTING.md").read_text(), "run tests/rooms_picture.py"


def test_parameters_of_docstrings_become_a_list():
    listed = runpy.run_path(str(DOCS / "parameters.py"))["listed"]
    text = "Does it.\n\na: one\n    more\nb: two\n\nAnd: not in a list\nthis: neither"
    expected = "Does it.\n\n- **a**: one\n    more\n- **b**: two\n\n- **And**: not in a list\n"
    assert listed(text).startswith(expected[:40])
