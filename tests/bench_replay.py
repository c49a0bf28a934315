"""Measures the command `replay` on generated rows: `python tests/bench_replay.py --messages 1000000 --scopes 1000`.

The warehouse is generated as `decode` leaves it, so ten million messages need no capture and no decoding. Each run is
a process of its own. CPU time is that of all its processes; memory is what each process held most, and what all held at
one time.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_nights import markdown
from made_rows import write_warehouse
from measure import watch

_HEADS = ("scopes", "wall s", "CPU s", "of these replay", "the JVM, MB", "all at one time, MB", "Python processes, MB")
_REPLAY = (sys.executable, "-m", "jobs.cli", "replay", "--log-format", "json")


def measure(warehouse: Path, scopes: int) -> list[str]:
    """Returns the cost of a replay as a row of a table."""
    run = watch([*_REPLAY, "--warehouse", str(warehouse)])
    seconds = (run.cost.wall_s, run.cost.cpu_s, run.steps["replay"].cpu_s)
    memory = (f"{run.jvm_mb:.0f}", f"{run.together_mb:.0f}", ", ".join(f"{mb:.0f}" for mb in run.pythons_mb))
    return [f"{scopes:,}", *(f"{one:.1f}" for one in seconds), *memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--heap", default="4g", help="of the JVM")
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[2] --driver-memory {asked.heap} pyspark-shell")
    rows = []
    for scopes in asked.scopes:
        with TemporaryDirectory() as folder:
            write_warehouse(Path(folder), asked.messages, scopes)
            rows.append(measure(Path(folder), scopes))
    print(markdown(_HEADS, rows))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
