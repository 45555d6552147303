"""A room uses only the rooms above it, so that each can be read without those below."""

import ast
from pathlib import Path

import pytest

import ensemble_sampling

ORDER = [
    # the ground floor
    (
        *("core", "checks", "code", "compilation", "config", "extras", "files", "linalg"),
        *("rewards", "tables", "fast"),
    ),
    ("intervals", "networks", "primitives", "sequences"),
    ("learners",),
    ("posteriors",),
    ("agents",),
    ("testing",),
    ("worlds",),
    ("simulation",),
    ("episodes",),
    ("inputs",),
    ("ledger",),
    ("decide",),
    ("study",),
    ("evaluation",),
    ("experiments",),
    ("serve", "client"),
    ("cli",),
]
FLOOR = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
EXCEPT = {("worlds", "learners"), ("worlds", "posteriors"), ("worlds", "agents")}
SOURCE = Path(ensemble_sampling.__file__).parent
FILES = [f for f in sorted(SOURCE.rglob("*.py")) if f.parent != SOURCE or f.stem in FLOOR]


def used(file: Path) -> set[str]:
    """The rooms a file imports from, wherever in the file it does."""
    inside = (SOURCE.name, *file.relative_to(SOURCE).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*(inside[: len(inside) - node.level] if node.level else ())]
            base += node.module.split(".") if node.module else []
            paths = [[*base, alias.name] for alias in node.names]
        else:
            continue
        found |= {path[1] for path in paths if path[0] == SOURCE.name and len(path) > 1}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_a_room_uses_only_rooms_above_it(file):
    room = file.relative_to(SOURCE).with_suffix("").parts[0]
    assert room in FLOOR, f"{room} has no place in the order of rooms"
    below = {name for name in used(file) - {room} if FLOOR.get(name, 0) > FLOOR[room]}
    beside = {name for name in used(file) if (room, name) in EXCEPT}
    below = below if room != "fast" else set()  # what is fast is beside what it makes faster
    assert not below | beside, f"{file.name} imports {sorted(below | beside)}"
    unknown = used(file) - FLOOR.keys() - set(ensemble_sampling.__all__) - {"__version__"}
    assert not unknown, f"{file.name} imports {sorted(unknown)}, which has no place"


def test_every_file_has_its_place():
    assert {file.stem for file in SOURCE.glob("*.py")} <= {*FLOOR, "__init__", "__main__"}
    assert {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()} <= {
        *FLOOR
    }
