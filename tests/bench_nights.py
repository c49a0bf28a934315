"""Measures the whole pipeline beside tshark with a dissector, and beside a day's work with it, on simulated traffic.

`python tests/bench_nights.py` is what `make bench` runs. Each night is a process of its own, with a JVM that has
compiled nothing. CPU time is that of all its processes: what a night costs, not how long it takes on so many cores. "At
the margin" is what a capture costs more than the next smaller one, so that start-up does not count.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

from deltalake import DeltaTable
from measure import Cost, Watched, measured, watch

from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import open_session
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.warehouse.store import Warehouse
from jobs.wireshark.generate import dissector
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS, Verdict

HEADING = "## The benchmark"
_APPLICATION = "msmq-replay benchmark"
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
_NIGHTLY = (sys.executable, "-m", "jobs.cli", "nightly")
_PEER = (sys.executable, str(Path(__file__).with_name("day_peer.py")))
_JUDGED_BY = (
    *("source_queue_manager", "message_id_ordinal", "destination_queue", "transaction_flags"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
)
_TSHARK_FIELDS = (
    *("frame.number", "frame.time_epoch", "ip.src", "ip.dst", "tcp.stream"),
    *(f"msmq.{name}" for name in _JUDGED_BY),
)
_OF_TRANSACTION = "msmq.transaction_flags"  # acknowledgments have sequence numbers too
_SAME_VERDICTS = {
    "in_order": (Verdict.IN_ORDER, Verdict.NEW_SEQUENCE),
    "gap": (Verdict.GAP_EXPIRED,),
    "duplicate": (Verdict.DUPLICATE,),
    "out_of_order": (Verdict.OUT_OF_ORDER,),
    "unknown": (Verdict.UNKNOWN,),
}
"""Those of the day's work, and those of a night that they stand for."""

_Run = TypeVar("_Run")


class Capture(NamedTuple):
    """Holds a capture and its size in MB."""

    path: Path
    megabytes: float


class Extract(NamedTuple):
    """Holds the cost of tshark with a dissector, and the number of transactional messages it found."""

    cost: Cost
    messages: int


class DaysWork(NamedTuple):
    """Holds the cost of what a user would build in a day, and its verdicts."""

    run: Watched
    verdicts: Counter[str]


class Night(NamedTuple):
    """Holds a capture, the warehouse that a night made of it, what that cost, and what the others cost on the capture.

    These are None without tshark.
    """

    capture: Capture
    warehouse: Path
    run: Watched
    tshark: Extract | None = None
    days_work: DaysWork | None = None


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


def night(capture: Capture, *, bodies: str = "drop") -> Night:
    """Runs a night on a capture in a process of its own, into a warehouse next to it."""
    warehouse = capture.path.with_name(f"warehouse-{bodies}")
    options = ["--captures", str(capture.path), "--warehouse", str(warehouse), "--bodies", bodies]
    return Night(capture, warehouse, watch([*_NIGHTLY, *options, "--log-format", "json"]))


def in_turns(capture: Capture, tshark: str | None, rounds: int) -> Night:
    """Runs a night into an empty warehouse, tshark alone and a day's work, in turns; returns the median of each."""
    nights: list[Night] = []
    extracts: list[Extract] = []
    works: list[DaysWork] = []
    for _ in range(rounds):
        if nights:
            shutil.rmtree(nights[0].warehouse)
        nights.append(night(capture))
        if tshark:
            extracts.append(run_tshark(tshark, capture))
            works.append(run_days_work(capture))
    found = _median(nights, lambda one: one.run.cost)
    if not tshark:
        return found
    return found._replace(
        tshark=_median(extracts, lambda one: one.cost), days_work=_median(works, lambda one: one.run.cost)
    )


def _median(runs: Sequence[_Run], cost: Callable[[_Run], Cost]) -> _Run:
    """Returns the run whose CPU time is in the middle."""
    return sorted(runs, key=lambda run: cost(run).cpu_s)[len(runs) // 2]


def run_tshark(tshark: str, capture: Capture) -> Extract:
    """Extracts the capture's transactional messages as tab-separated values, by tshark with the generated dissector.

    The dissector adds only the fields that acceptance is judged by.
    """
    table, script = capture.path.with_name("tshark.tsv"), capture.path.with_name("msmq.lua")
    script.write_text(dissector(), encoding="utf-8")
    options = [option for name in _TSHARK_FIELDS for option in ("-e", name)]
    settings = ["-X", f"lua_script:{script}", "-o", f"msmq.only:{','.join(_JUDGED_BY)}"]
    command = [tshark, *settings, "-r", str(capture.path), "-Y", _OF_TRANSACTION, "-T", "fields"]
    with table.open("wb") as out:
        cost = measured(
            partial(subprocess.run, [*command, *options], check=True, stdout=out, stderr=subprocess.DEVNULL)
        )
    transactions = _TSHARK_FIELDS.index(_OF_TRANSACTION)
    with table.open() as rows:
        return Extract(cost, sum(row.rstrip("\n").split("\t")[transactions].count(",") + 1 for row in rows))


def run_days_work(capture: Capture) -> DaysWork:
    """Runs what a user would build in a day, in a process of its own, into an empty folder next to the capture."""
    folder = capture.path.with_name("days-work")
    shutil.rmtree(folder, ignore_errors=True)
    run = watch([*_PEER, str(capture.path), str(folder)])
    judged = DeltaTable(str(folder / "verdicts")).to_pyarrow_table(columns=["verdict"])
    return DaysWork(run, Counter(judged["verdict"].to_pylist()))


def beside_tshark(nights_by_bodies: Mapping[str, Sequence[Night]]) -> str:
    """Returns Markdown on nights with captures of rising size: what each costs, whole and at the margin."""
    heads = (
        *("bodies", "capture, MB", "wall s", "CPU s", "CPU s a GB, at the margin"),
        *("tshark, CPU s", "times tshark", "at the margin"),
    )
    rows = []
    for bodies, nights in nights_by_bodies.items():
        for before, found in zip((None, *nights), nights, strict=False):
            own = (f"{found.run.cost.wall_s:.1f}", f"{found.run.cost.cpu_s:.1f}", _more(before, found, _own_s))
            theirs = f"{_tshark_s(found):.1f}" if found.tshark else "-"
            costs = (*own, theirs, *_ratios(before, found, _tshark_s))
            rows.append((bodies, f"{found.capture.megabytes:.0f}", *costs))
    return markdown(heads, rows)


def beside_days_work(nights: Sequence[Night]) -> str:
    """Returns Markdown on a day's work with the captures of these nights: its cost, and how often it is a night's."""
    heads = (
        *("capture, MB", "wall s", "CPU s", "of these tshark", "CPU s a GB, at the margin"),
        *("times msmq-replay", "at the margin", "the JVM, MB"),
    )
    rows = []
    for before, found in zip((None, *nights), nights, strict=False):
        if found.days_work:
            run = found.days_work.run
            own = (run.cost.wall_s, run.cost.cpu_s, run.steps["tshark"].cpu_s)
            costs = (*(f"{cost:.1f}" for cost in own), _more(before, found, _days_work_s))
            ratios = _ratios(before, found, _days_work_s)
            rows.append((f"{found.capture.megabytes:.0f}", *costs, *ratios, f"{run.jvm_mb:.0f}"))
    return markdown(heads, rows)


def verdicts_beside(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """Returns Markdown on the verdicts of a night and of a day's work."""
    rows = (
        (name.replace("_", " "), f"{sum(ours.get(one, 0) for one in same):,}", f"{theirs.get(name, 0):,}")
        for name, same in _SAME_VERDICTS.items()
    )
    return markdown(("verdict", "msmq-replay", "a day's work"), rows)


def _own_s(found: Night) -> float:
    return found.run.cost.cpu_s


def _tshark_s(found: Night) -> float:
    return found.tshark.cost.cpu_s if found.tshark else 0.0


def _days_work_s(found: Night) -> float:
    return found.days_work.run.cost.cpu_s if found.days_work else 0.0


def _more(before: Night | None, found: Night, cost: Callable[[Night], float]) -> str:
    """Returns what a GB costs, from one night to the next."""
    if before is None:
        return "-"
    return f"{(cost(found) - cost(before)) / (found.capture.megabytes - before.capture.megabytes) * 1e3:.0f}"


def _ratios(before: Night | None, found: Night, cost: Callable[[Night], float]) -> tuple[str, str]:
    """Returns how often a cost is that of the night, whole and from one night to the next."""
    if not cost(found):
        return "-", "-"
    at_margin = "-"
    if before is not None:
        at_margin = f"{(cost(found) - cost(before)) / (_own_s(found) - _own_s(before)):.2f}"
    return f"{cost(found) / _own_s(found):.2f}", at_margin


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
    parser = argparse.ArgumentParser("python tests/bench_nights.py", allow_abbrev=False)
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
