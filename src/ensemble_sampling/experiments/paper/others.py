"""The report's section on other posteriors, from what `benchmarks/posteriors.py` measured."""

from pathlib import Path
from typing import Any

from ...files import Damaged, read_json
from ..page import plain, table

FILE = Path("benchmarks") / "posteriors.json"
ALONE = ("decision, µs", "update, µs")
WORLDS = {"network": "The paper's two-layer network bandit", "linear": "A linear bandit"}


def load(folder: Path) -> dict[str, Any]:
    """What was measured, if it is there and whole."""
    try:
        return read_json(folder / FILE) if (folder / FILE).exists() else {}
    except Damaged:
        return {}


def section(measured: dict[str, Any], folder: Path | None = None) -> list[str]:
    """Tables for every world, the least regret first; nothing where nothing was measured."""
    worlds = {name: _tested(measured.get(name, {})) for name in WORLDS}
    if not any(worlds.values()):
        return []
    parts = [
        "## Other posteriors (ours, not the paper’s)",
        "The paper names other ways of drawing a plausible model, and more came after it. All "
        "play in the same worlds; the settings of each are chosen among three to six by the "
        "cumulative regret in other worlds than those shown. Regret is cumulative, and at the end "
        "that of a period over the last tenth, ± one standard error; µs are of a period of one "
        "realization where many run at once, and of single decisions and updates on a CPU; state "
        "is what an agent keeps between periods.",
    ]
    picture = FILE.with_suffix(".png")
    if folder is None or (folder / picture).exists():
        parts.append(f"![Regret against compute]({picture.as_posix()})")
    head = ("agent", "cumulative regret", "at the end", "µs", *ALONE, "state, KiB", "chosen")
    for name, rows in worlds.items():
        if rows:
            about = next(iter(rows.values()))["plan"]
            parts.append(
                f"{WORLDS[name]}, {about['periods']:,} periods, {about['realizations']:,} "
                f"realizations ({about['machine']}):"
            )
            parts.append(table(head, [_row(agent, row) for agent, row in rows.items()]))
    return parts


def _tested(rows: dict[str, Any]) -> dict[str, Any]:
    whole = [(agent, row) for agent, row in rows.items() if "cumulative" in row]
    return dict(sorted(whole, key=lambda entry: entry[1]["cumulative"][0]))


def _row(agent: str, row: dict[str, Any]) -> list[str]:
    chosen = ", ".join(f"{name} {_short(value)}" for name, value in row["chosen"].items())
    return [
        plain(agent),
        "{:,.0f} ± {:,.0f}".format(*row["cumulative"]),
        "{:.2f} ± {:.2f}".format(*row["final"]),
        f"{row['seconds_per_period'] * 1e6:.2f}",
        *(f"{row[f'{what}_seconds'] * 1e6:.0f}" for what in ("decision", "update")),
        f"{row['state_bytes'] / 1024:,.0f}",
        plain(chosen),
    ]


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
