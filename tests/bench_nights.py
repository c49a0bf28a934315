"""Measures the whole pipeline beside what a user would build in a day with tshark, on simulated traffic.

`python tests/bench_nights.py` is what `make bench` runs. Each night is a process of its own, with a JVM that has
compiled nothing. CPU time is that of all its processes: what a night costs, not how long it takes on so many cores. "At
the margin" is what a capture costs more than the next smaller one, so that start-up does not count.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from measure import Watched, watch

from jobs.simulator import CAPTURE_PREFIX, simulate

HEADING = "## The benchmark"
_HALF = 0.5
_BASE = 0.25  # of the capture
_SMALL_MB = 1
_DAYS_WORK = (
    "*A day's work* is what a user would build instead: tshark with the dissector writes fields, Spark makes two Delta "
    "tables of them, messages and verdicts by one window (`tests/day_peer.py`). No connections, gaps, "
    "acknowledgments, outcomes, findings or report."
)
_SEED = 1
BODY = 1_000  # bytes of a message's body
BYTES_PER_MESSAGE = 1_740  # of the capture, with such a body; some messages cross a router and are there twice
DISORDER = 0.001
_ONE_FILE = 1 << 62
_NIGHTLY = (sys.executable, "-m", "jobs.main", "nightly")
_PEER = (sys.executable, str(Path(__file__).with_name("day_peer.py")))


class Capture(NamedTuple):
    """Holds a capture and its size in MB."""

    path: Path
    megabytes: float


class Night(NamedTuple):
    """Holds a capture, what a night with it cost, and what a day's work cost, or None without tshark."""

    capture: Capture
    run: Watched
    days_work: Watched | None = None


def simulate_capture(folder: Path, megabytes: float, *, largest: float = 0.0) -> Capture:
    """Simulates a capture of about `megabytes`; one sender has the share `largest` of all messages, if not 0."""
    messages = max(int(megabytes * 1_000_000 / BYTES_PER_MESSAGE), 1)
    simulate(
        str(folder),
        _SEED,
        messages,
        bodies=(BODY, BODY),
        disorder=DISORDER,
        file_bytes=_ONE_FILE,
        largest_sender=largest,
    )
    (path,) = folder.glob(f"{CAPTURE_PREFIX}_*.pcap")
    return Capture(path, path.stat().st_size / 1e6)


def night(capture: Capture, *, bodies: str = "drop", keeps_tables: bool = False) -> Watched:
    """Runs a night on a capture in a process of its own, into a warehouse next to it, which is empty unless kept."""
    warehouse = capture.path.with_name("warehouse")
    if not keeps_tables:
        shutil.rmtree(warehouse, ignore_errors=True)
    options = ["--captures", str(capture.path), "--warehouse", str(warehouse), "--bodies", bodies]
    return watch([*_NIGHTLY, *options, "--log-format", "json"])


def run_days_work(capture: Capture) -> Watched:
    """Runs what a user would build in a day, in a process of its own, into an empty folder next to the capture."""
    folder = capture.path.with_name("days-work")
    shutil.rmtree(folder, ignore_errors=True)
    return watch([*_PEER, str(capture.path), str(folder)])


def in_turns(capture: Capture, rounds: int) -> Night:
    """Runs a night and, if tshark is installed, a day's work, in turns; returns the median of each by CPU time."""
    has_tshark = shutil.which("tshark") is not None
    turns = [(night(capture), run_days_work(capture) if has_tshark else None) for _ in range(rounds)]
    nights, works = zip(*turns, strict=True)
    return Night(capture, _median(nights), _median(works) if has_tshark else None)


def _median(runs: Sequence[Watched]) -> Watched:
    return sorted(runs, key=lambda run: run.cost.cpu_s)[len(runs) // 2]


def beside(nights: Sequence[Night], bodies: str) -> list[Sequence[str]]:
    """Returns rows of what each night costs, whole and at the margin, and how often a day's work costs that."""
    rows: list[Sequence[str]] = []
    for before, found in zip((None, *nights), nights, strict=False):
        own = (f"{found.run.cost.wall_s:.1f}", f"{found.run.cost.cpu_s:.1f}", _margin(before, found, _own_s))
        work = ("-",) * 5
        if found.days_work:
            cost = found.days_work.cost
            costs = (f"{cost.wall_s:.1f}", f"{cost.cpu_s:.1f}", f"{found.days_work.steps['tshark'].cpu_s:.1f}")
            work = (*costs, _margin(before, found, _work_s), f"{cost.cpu_s / found.run.cost.cpu_s:.2f}")
        rows.append((bodies, f"{found.capture.megabytes:.0f}", *own, *work))
    return rows


_HEADS = (
    *("bodies", "capture, MB", "wall s", "CPU s", "CPU s a GB, at the margin"),
    *("a day's work, wall s", "CPU s", "of these tshark", "CPU s a GB, at the margin", "times msmq-replay"),
)


def _own_s(found: Night) -> float:
    return found.run.cost.cpu_s


def _work_s(found: Night) -> float:
    return found.days_work.cost.cpu_s if found.days_work else 0.0


def _margin(before: Night | None, found: Night, cost: Callable[[Night], float]) -> str:
    """Returns what a GB costs, from one night to the next."""
    if before is None:
        return "-"
    return f"{(cost(found) - cost(before)) / (found.capture.megabytes - before.capture.megabytes) * 1e3:.0f}"


def step_costs(nights: Sequence[Night]) -> str:
    """Returns Markdown on the CPU seconds of each night's steps, and the memory of its driver and its JVM."""
    names = list(dict.fromkeys(name for found in nights for name in found.run.steps))
    rows = []
    for found in nights:
        costs = (f"{found.run.steps[name].cpu_s:.1f}" if name in found.run.steps else "-" for name in names)
        memory = (f"{megabytes:.0f}" for megabytes in (found.run.python_mb, found.run.jvm_mb))
        rows.append((f"{found.capture.megabytes:.0f}", *costs, *memory))
    return markdown(("capture, MB", *names, "a Python process, MB", "the JVM, MB"), rows)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; its first column is text, the others are numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def benchmark(folder: Path, megabytes: int, largest: int, rounds: int) -> str:
    """Returns Markdown on everything, with captures of about `megabytes` and up to `largest` MB, made in the folder."""
    sizes = [megabytes * _BASE, megabytes, *([largest] if largest > megabytes else [])]
    dropped = [in_turns(simulate_capture(folder / f"{size:g}", size), rounds) for size in sizes]
    kept = [Night(found.capture, night(found.capture, bodies="keep"), found.days_work) for found in dropped[:2]]
    full = dropped[1].run.cost.wall_s / dropped[1].capture.megabytes
    uneven = simulate_capture(folder / "skewed", megabytes, largest=_HALF)
    skew = night(uneven).cost.wall_s / uneven.megabytes / full
    small = simulate_capture(folder / "small", _SMALL_MB)
    first, second = night(small).cost, night(small, keeps_tables=True).cost
    setting = (
        f"Simulated traffic, bodies of {BODY} bytes, {DISORDER:.1%} disorder; {os.cpu_count()} cores. Each night is a "
        "process of its own, from the start of Spark to the report."
    )
    if rounds > 1:
        setting += f" With bodies dropped, each figure is the median of {rounds} runs by turns."
    others = (
        f"One sender with half of all messages: {skew:.2f} times the wall time for each MB. A night with one small "
        f"capture: {first.wall_s:.1f} s, {first.cpu_s:.1f} CPU s; a second one with nothing new: {second.wall_s:.1f} "
        f"s, {second.cpu_s:.1f} CPU s."
    )
    nights = markdown(_HEADS, [*beside(dropped, "dropped"), *beside(kept, "kept")])
    of_steps = "CPU seconds of steps, and memory, with bodies dropped:"
    return "\n\n".join((setting, nights, _DAYS_WORK, of_steps, step_costs(dropped), others))


def on_page(page: str, found: str) -> str:
    """Returns the page with the result in place of what is below its heading of the benchmark."""
    head, _, _ = page.partition(HEADING)
    return f"{head}{HEADING}\n\n{found}\n"


def main() -> None:
    parser = argparse.ArgumentParser("python tests/bench_nights.py", allow_abbrev=False)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the capture")
    parser.add_argument("--largest", type=int, default=0, help="size of a larger one, to see how the cost grows")
    parser.add_argument("--rounds", type=int, default=1, help="runs with each capture, by turns")
    parser.add_argument("--page", type=Path, help="a page in Markdown that ends with the result of a benchmark")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = benchmark(Path(folder), options.megabytes, options.largest, options.rounds)
    print(found)  # noqa: T201 - the result
    if options.page:
        options.page.write_text(on_page(options.page.read_text(), found))


if __name__ == "__main__":
    main()
