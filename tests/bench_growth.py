"""By hand: `python tests/bench_growth.py --nights 30` runs equal nights into one warehouse, and says what each cost.

The traffic of one simulation is cut into captures of equal size, each a night of its own. Captures of all nights
together are past `in_memory_bytes`, those of one night are not: so a warehouse grows for months.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_nights import BODY, BYTES_PER_MESSAGE, DISORDER, markdown
from measure import Watched, watch

from jobs.simulator import CAPTURE_PREFIX, simulate

STEPS = ("Starting Spark", "ingest", "decode", "replay", "report")
_NIGHTLY = (sys.executable, "-m", "jobs.cli", "nightly", "--log-format", "json")
_IN_MEMORY = 1.5  # times the size of a night


def grow(folder: Path, nights: int, megabytes: float) -> list[Watched]:
    """Runs the nights, one after the other, each in a process of its own, into the folder `warehouse`."""
    file_bytes = int(megabytes * 1e6)
    messages = int(nights * file_bytes / BYTES_PER_MESSAGE * 1.15)
    simulate(str(folder / "sim"), 1, messages, bodies=(BODY, BODY), disorder=DISORDER, file_bytes=file_bytes)
    captures = sorted((folder / "sim").glob(f"{CAPTURE_PREFIX}_*.pcap"))[:nights]
    if len(captures) < nights or captures[-1].stat().st_size < file_bytes / 2:
        raise ValueError(f"The traffic fills only {len(captures)} captures.")
    options = ("--in-memory-bytes", str(int(file_bytes * _IN_MEMORY)), "--warehouse", str(folder / "warehouse"))
    return [watch([*_NIGHTLY, *options, "--captures", str(capture)]) for capture in captures]


def costs(nights: list[Watched]) -> str:
    """Returns a Markdown table of CPU seconds: a row a night, a column a step."""
    rows = []
    for number, found in enumerate(nights, 1):
        steps = (f"{found.steps[name].cpu_s:.1f}" if name in found.steps else "-" for name in STEPS)
        rows.append((str(number), f"{found.cost.wall_s:.1f}", f"{found.cost.cpu_s:.1f}", *steps))
    return markdown(("night", "wall s", "CPU s", *STEPS), rows)


def main() -> int:
    """Runs the nights, prints what they cost, and returns the exit code."""
    parser = argparse.ArgumentParser("python tests/bench_growth.py", allow_abbrev=False)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--megabytes", type=float, default=7, help="size of the capture of a night")
    parser.add_argument("--folder", type=Path, help="an empty folder that keeps captures and warehouse")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        nights = grow(options.folder or Path(temporary), options.nights, options.megabytes)
    print(costs(nights))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
