"""Measures the whole pipeline beside tshark with a dissector, and beside a day's work with it.

`python -m jobs.bench.benchmark` does so on simulated traffic. Each night is a process of its own, with a JVM that has
compiled nothing. CPU time is that of all its processes: what a night costs, not how long it takes on so many cores.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import open_session
from jobs.bench.nights import (
    BODY,
    DISORDER,
    beside_days_work,
    beside_tshark,
    in_turns,
    night,
    simulate_capture,
    step_costs,
    verdicts_beside,
)
from jobs.warehouse.store import Warehouse
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS

HEADING = "## The benchmark"
_APPLICATION = "msmq-replay benchmark"
_HALF = 0.5
_BASE = 0.25  # of the capture
_SMALL_MB = 1
_DAYS_WORK = (
    "*A day's work* is what a user would build instead: tshark with the dissector writes fields, Spark makes two Delta "
    "tables of them, messages and verdicts by one window (`jobs/bench/day_peer.py`). No connections, gaps, "
    "acknowledgments, outcomes, findings or report."
)


def small_nights(folder: Path) -> str:
    """Returns Markdown on a night with one small capture, and one with nothing new."""
    capture = simulate_capture(folder, _SMALL_MB)
    first, second = (night(capture).run.cost for _ in range(2))
    return (
        f"A night with one small capture: {first.wall_s:.1f} s, {first.cpu_s:.1f} CPU s; a second one with nothing "
        f"new: {second.wall_s:.1f} s, {second.cpu_s:.1f} CPU s."
    )


def benchmark(folder: Path, megabytes: int, largest: int, rounds: int) -> str:
    """Returns Markdown on everything, with captures of about `megabytes` and up to `largest` MB, made in the folder."""
    tshark = shutil.which("tshark")
    sizes = [megabytes * _BASE, megabytes, *([largest] if largest > megabytes else [])]
    dropped = [in_turns(simulate_capture(folder / f"{size:g}", size), tshark, rounds) for size in sizes]
    full = dropped[1]
    kept = [night(found.capture, bodies="keep")._replace(tshark=found.tshark) for found in dropped[:2]]
    uneven = night(simulate_capture(folder / "skewed", megabytes, largest=_HALF))
    small = small_nights(folder / "small")
    spark = open_session(_APPLICATION)
    tables = Warehouse.of(spark, Config.load({"warehouse": str(full.warehouse)}, None))
    ours = tables.read(MESSAGES).where("transactional").count()
    judged = {row["verdict"]: row["count"] for row in tables.read(VERDICTS).groupBy("verdict").count().collect()}
    spark.stop()
    per_mb = [found.run.cost.wall_s / found.capture.megabytes for found in (uneven, full)]
    setting = (
        f"Simulated traffic, bodies of {BODY} bytes, {DISORDER:.1%} disorder; {os.cpu_count()} cores. Each night is "
        "a process of its own, from the start of Spark to the report."
    )
    if rounds > 1:
        setting += f" With bodies dropped, each figure is the median of {rounds} runs by turns."
    skew = (
        f"One sender with half of all messages: {per_mb[0] / per_mb[1]:.2f} times the wall time for each MB "
        f"({uneven.run.cost.wall_s:.1f} s, otherwise {full.run.cost.wall_s:.1f} s)."
    )
    found_in = f"Transactional messages found in {full.capture.megabytes:.0f} MB: {ours:,}"
    beside = [f"{found_in}; tshark is not installed."]
    if full.tshark and full.days_work:
        beside = [
            f"{found_in}, tshark {full.tshark.messages:,}.",
            _DAYS_WORK,
            beside_days_work(dropped),
            f"Verdicts in {full.capture.megabytes:.0f} MB; a day's work counts messages on their way to a router, too:",
            verdicts_beside(judged, full.days_work.verdicts),
        ]
    parts = (
        setting,
        beside_tshark({"dropped": dropped, "kept": kept}),
        *beside,
        "CPU seconds of steps, and memory, with bodies dropped:",
        step_costs(dropped),
        skew,
        small,
    )
    return "\n\n".join(parts)


def on_page(page: str, found: str) -> str:
    """Returns the page with the result in place of what is below its heading of the benchmark."""
    head, _, _ = page.partition(HEADING)
    return f"{head}{HEADING}\n\n{found}\n"


def main() -> int:
    """Runs the benchmark and returns the exit code."""
    parser = argparse.ArgumentParser("python -m jobs.bench.benchmark", allow_abbrev=False)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the capture")
    parser.add_argument("--largest", type=int, default=0, help="size of a larger one, to see how the cost grows")
    parser.add_argument("--rounds", type=int, default=1, help="runs with each capture, by turns")
    parser.add_argument("--page", type=Path, help="a page in Markdown that ends with the result of a benchmark")
    options = parser.parse_args()
    try:
        with TemporaryDirectory() as folder:
            found = benchmark(Path(folder), options.megabytes, options.largest, options.rounds)
    except JobError as error:
        print(f"benchmark: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    print(found)  # noqa: T201 - the result
    if options.page:
        options.page.write_text(on_page(options.page.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
