"""The measured parts of where-the-time-goes.md, from the committed results: writes them there."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
RESULTS = Path(__file__).parents[2] / "results" / "benchmarks" / "bench-x86-64-cpu-2-cores.json"


def read(part: str) -> Any:
    return json.loads(RESULTS.read_text())[part]


def table(*lines: list[str]) -> str:
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rows])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120)


def pair() -> str:
    """A decision and its outcome beside a plain loop, a peer and the disk."""

    def ms(work: str, other: str = "") -> str:
        found = [r for r in read("latency")["rows"] if r["work"] == f"choose + learn, {work}"]
        if other:
            seconds = [row["other_seconds"] for row in found if row["other"].startswith(other)]
        else:
            seconds = [row["seconds"] for row in found]
        return f"{1e3 * min(seconds):.2f} ms"

    sizes = (("10 x 16", 10), ("100 x 100", 30), ("1,000 x 100", 30))
    return table(
        ["actions x features, members", "ours", "plain NumPy", "Vowpal Wabbit, fastest", "on disk"],
        *(
            [
                f"{size}, {members}",
                ms(f"linear, {size}"),
                ms(f"linear, {size}", "plain NumPy"),
                ms(f"linear, {size}", "Vowpal Wabbit"),
                ms(f"linear on disk, {size}"),
            ]
            for size, members in sizes
        ),
    )


def simulated() -> dict[tuple[str, int], Any]:
    """(work, decisions) -> its row, with µs per decision."""
    found = {}
    for row in read("simulate")["rows"]:
        work, *size = re.split(r", ([\d,]+) x ([\d,]+) periods", row["work"])[:3]
        decisions = int(size[0].replace(",", "")) * int(size[1].replace(",", ""))
        each = {"us": 1e6 * row["seconds"] / decisions}
        if "fraction" in row:
            each["limit"] = each["us"] * row["fraction"]
            needs = {what: total / decisions for what, total in row["needs"].items()}
            each |= {"operations": 0.0, "bytes": 0.0, "normals": 0.0, **needs}
        found[work, decisions] = {**row, **each}
    return found


def simulations() -> str:
    """What a decision needs at least, what it takes, and the plain loop."""
    head = ["one decision of", "operations", "bytes", "normals", "limit", "ours", "of the limit"]
    lines = [[*head, "NumPy loop / ours"]]
    for (work, _), row in simulated().items():
        if "fraction" in row and "other" in row:
            needs = [_short(row[what]) for what in ("operations", "bytes", "normals")]
            limit, ours = (f"{_short(row[what])} µs" for what in ("limit", "us"))
            share = f"{100 * row['fraction']:.0f}%"
            lines.append([work, *needs, limit, ours, share, f"{row['ratio']:.0f}"])
    return table(*lines)


def _short(number: float) -> str:
    for unit, least, size in ((" M", 1e6, 1e6), (" K", 1e4, 1e3)):
        if number >= least:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}" if number else ""


def arms() -> str:
    """All realizations of K = 200, beside what must be moved and drawn for them."""
    rates, name = read("simulate"), "Gaussian arms, K = 200, 100 members"
    row = simulated()[name, 20_000_000]
    moved, drawn = row["needs"]["bytes"], row["needs"]["normals"]
    memory, cache = rates["bytes_of_memory_per_second"], rates["bytes_per_second"]
    return _wrapped(
        f"10,000 realizations of 2,000 periods with 200 arms and 100 members take "
        f"{row['seconds']:.1f} s, {row['us']:.2f} µs a decision. Moving "
        f"{moved / 20e6 / 1e3:.1f} KB a decision at the {memory / 1e9:.0f} GB/s of memory would "
        f"take {moved / memory:.1f} s, and in cache, where chunks of realizations stay, "
        f"{moved / cache:.1f} s; drawing {drawn / 20e6:.0f} normal numbers a decision takes "
        f"{drawn / rates['normals_per_second']:.1f} s on both cores."
    )


def terms() -> str:
    """What is left when parts are taken away."""
    rows = {work: row["us"] for (work, n), row in simulated().items() if n < 20_000_000}
    name = "Gaussian arms, K = 200"
    full = rows[f"{name}, 100 members"]
    still, none = rows[f"{name}, no noise for members"], rows[f"{name}, no members"]
    return table(
        ["Gaussian arms, K = 200", "a decision"],
        ["noise for the members", f"{full - still:.2f} µs"],
        ["choosing, and moving one column of the members", f"{still - none:.2f} µs"],
        ["keys, the outcome and its regret", f"{none:.2f} µs"],
    )


def cipher() -> str:
    """Random numbers with the cipher written out and with JAX's own loop, in the same run."""
    row = next(r for r in read("simulate")["rows"] if "cipher" in r.get("other", ""))
    return _wrapped(
        f"With the cipher as JAX compiles it, the keys and the noise of a decision take "
        f"{row['ratio']:.1f} times as long."
    )


def growth() -> str:
    return table(
        ["with", "from", "to", "time", "memory"],
        *(
            [
                name,
                f"{one['sizes'][-3]:,}",
                f"{one['sizes'][-1]:,}",
                f"{one['exponent']:.2f}",
                f"{one['exponent of bytes']:.2f}",
            ]
            for name, one in read("growth")["rows"].items()
        ),
    )


def startup() -> str:
    lines = [["a fresh process", "compiled before", "nothing compiled before"]]
    for row in read("startup")["rows"]:
        name = row["work"].removesuffix(", warm cache")
        lines.append([name, f"{row['seconds']:.2f} s", f"{row['other_seconds']:.2f} s"])
    return table(*lines)


def gpu() -> str:
    """The same work on a GPU, at the paper's sizes."""
    found = json.loads((RESULTS.parent / "bench-nvidia-h200.json").read_text())["simulate"]
    lines = [["on an H200", "in all", "of the limit"]]
    for row in found["rows"]:
        share = f"{100 * row['fraction']:.0f}%" if "fraction" in row else ""
        lines.append([row["work"], f"{row['seconds']:.2f} s", share])
    return table(*lines)


def panels() -> str:
    """The paper's eight panels at full scale, in a process of their own."""
    found = json.loads((RESULTS.parent / "reproduce_speed.json").read_text())
    cold, warm = found["cold"], found["warm"]
    return _wrapped(
        f"The paper's eight panels at full scale, from the start of the process to the report, "
        f"take {cold['seconds']:.0f} s on an H200 with nothing compiled before, and "
        f"{warm['seconds']:.0f} s the next time."
    )


PARTS = (pair, simulations, arms, terms, cipher, gpu, panels, growth, startup)


def page() -> str:
    """The page with each part put in after its mark, in place of the paragraph that is there."""
    text = PAGE.read_text()
    for part in PARTS:
        mark = f"<!-- {part.__name__} -->\n"
        before, found, after = text.partition(mark)
        assert found, f"the page has no {mark}"
        text = before + mark + part() + "\n\n" + after.partition("\n\n")[2]
    return text.rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
