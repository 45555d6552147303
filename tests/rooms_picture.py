"""Draws which room imports which, for CONTRIBUTING.md: `python tests/rooms_picture.py`.

An arrow that follows from others is left out, and so is what all stand on: the ground floor, and
`fast`, which is beside what it makes faster.
"""

from test_rooms import FILES, FLOOR, ORDER, SOURCE, used

LEFT_OUT = {*ORDER[0], *ORDER[1]}


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports, lowest floors first."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        room = file.relative_to(SOURCE).with_suffix("").parts[0]
        found.setdefault(room, set()).update((used(file) & FLOOR.keys()) - {room} - LEFT_OUT)
    return {room: found[room] for room in sorted(found, key=FLOOR.__getitem__)}


def reached(room: str, rooms: dict[str, set[str]]) -> set[str]:
    """What a room imports, by itself or by others."""
    return rooms[room].union(*(reached(other, rooms) for other in rooms[room]))


def picture() -> str:
    """Mermaid: from what imports to what is imported."""
    rooms = {room: others for room, others in imports().items() if room not in LEFT_OUT}
    lines = ["```mermaid", "graph BT"]
    for room, others in rooms.items():
        known = {far for other in others for far in reached(other, rooms)}
        needed = sorted(others - known, key=lambda other: (-FLOOR[other], other))
        lines += [f"    {room} --> {other}" for other in needed] or [f"    {room}"]
    return "\n".join([*lines, "```"])


if __name__ == "__main__":
    print(picture())
