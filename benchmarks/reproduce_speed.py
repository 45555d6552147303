"""The paper's panels at full scale, from an empty compilation cache and with a warm one.

python benchmarks/reproduce_speed.py                        on a GPU: a minute and a half
python benchmarks/reproduce_speed.py 1a --scale laptop      less of it

Each run is a process of its own, timed from its start to its end, figures and report included.
Programs are those in the cache; a panel's seconds go from its first simulation to its last, and
panels run side by side. Written to results/benchmarks/reproduce_speed.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ensemble_sampling import files

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "reproduce_speed.json"
CODE = "from ensemble_sampling.cli import app; app()"


def measured(panels: list[str], scale: str, cache: Path, out: Path) -> dict[str, Any]:
    """One run in a new process; programs it had to compile, and what its panels say."""
    environment = {**os.environ, "ENSEMBLE_SAMPLING_CACHE": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    before, began = _programs(cache), time.perf_counter()
    options = ["reproduce", *panels, "--scale", scale, "--out", str(out)]
    subprocess.run([sys.executable, "-c", CODE, *options], check=True, env=environment)
    seconds = time.perf_counter() - began
    saved = {path.stem: files.read_json(path) for path in sorted(out.glob("*.json"))}
    return {
        "seconds": round(seconds, 2),
        "programs_compiled": _programs(cache) - before,
        "panels": {name: data["seconds"] for name, data in saved.items()},
        "device": next(iter(saved.values()))["device"],
        "versions": next(iter(saved.values()))["versions"],
    }


def _programs(cache: Path) -> int:
    return len(list(cache.glob("*-cache")))


def main() -> None:
    about = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("panels", nargs="*", default=["1", "2", "3"], help="the paper's eight")
    parser.add_argument("--scale", default="paper", choices=("paper", "laptop"))
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    found: dict[str, Any] = {"panels": asked.panels, "scale": asked.scale}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for name in ("cold", "warm"):
            run = measured(asked.panels, asked.scale, cache, Path(folder) / name)
            found |= {"device": run.pop("device"), "versions": run.pop("versions"), name: run}
            print(name, run, flush=True)
            files.write_json(asked.out, found)


if __name__ == "__main__":
    main()
