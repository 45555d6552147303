"""The measured part of capacity.md, from the committed results: prints it as Markdown."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def load() -> str:
    """Decisions over HTTP, client and database on the same two cores."""
    lines = [
        "| place | workers | decisions/s asked | held | p50 ms | p99 ms | errors | cores | "
        "bytes a decision |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in read("serve_load"):
        asked = "as many as 32 connections get" if not row["rate"] else f"{row['rate']:.0f}"
        lines.append(
            f"| {row['place']} | {row['workers']} | {asked} | {row['per_second']:.0f} | "
            f"{row['p50_ms']:.1f} | {row['p99_ms']:.0f} | {row['errors']} | "
            f"{row['service_cores']:.2f} | {row['bytes_per_decision']:.0f} |"
        )
    return "\n".join(lines)


def faults() -> str:
    """What was lost when processes were killed."""
    lines = [
        "| place | kills | decisions acknowledged | lost | outcomes acknowledged | lost | state is "
        "a replay | back after, median and worst (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in ("sqlite", "postgres"):
        row = read(f"serve_faults_{name}")
        back = "; ".join(
            f"{key[len('back_after_') : -2]} {took['median']:.1f}, {took['worst']:.1f}"
            for key, took in row.items()
            if key.startswith("back_after_")
        )
        same = "yes" if row["state_is_a_replay"] else "no"
        lines.append(
            f"| {name} | {row['kills']} | {row['acknowledged']} | {row['lost']} | "
            f"{row['outcomes_acknowledged']} | {row['outcomes_lost']} | {same} | {back} |"
        )
    return "\n".join(lines)


def staleness() -> str:
    """What late learning costs."""
    found = read("serve_staleness")
    late = {row["decisions"]: row for row in found["rows"] if row["kind"] == "late"}
    every = {row["decisions"]: row for row in found["rows"] if row["kind"] == "every"}
    lines = [
        "| decisions behind | every outcome so late | state taken over so seldom |",
        "|---|---|---|",
    ]
    for delay in sorted(late):
        other = every.get(delay)
        cell = "" if other is None else f"{100 * other['lost']:.1f}% ± {100 * other['stderr']:.2f}"
        row = late[delay]
        lines.append(f"| {delay} | {100 * row['lost']:.1f}% ± {100 * row['stderr']:.2f} | {cell} |")
    return "\n".join(lines)


def learner() -> str:
    found = read("serve_learner")
    return (
        f"One learner manages {found['outcomes_per_second']:.0f} outcomes a second of the default "
        f"agent with 256 hashed features ({found['ms_per_outcome']:.2f} ms each); a state takes "
        f"{found['bytes_of_a_state'] / 1e6:.1f} MB. Without HTTP, in batches, a decision takes "
        f"{found['ms_per_decision_in_batches']:.2f} ms."
    )


def many() -> str:
    found = read("serve_many")
    lines = [
        f"| {found['bandits']:,} bandits, {found['busy']} of them busy | open | MB | threads | "
        "files | share of a core |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cpu = f"{100 * row['cpu']:.1f}%" if "cpu" in row else ""
        lines.append(
            f"| {row['what']} | {row['open']} | {row['megabytes']:.0f} | {row['threads']} | "
            f"{row['files']} | {cpu} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print("\n\n".join(part() for part in (load, learner, faults, staleness, many)))
