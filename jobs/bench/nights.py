"""Runs nights on simulated captures, and what they are measured beside: tshark alone, and a day's work with it.

CPU time is that of all processes of a run. "At the margin" is what a capture costs more than the next smaller one, so
that start-up does not count.
"""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from deltalake import DeltaTable

from jobs.bench.measure import Cost, Watched, measured, watch
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.wireshark.generate import dissector
from schemas.replay import Verdict

_SEED = 1
BODY = 1_000  # bytes of a message's body
BYTES_PER_MESSAGE = 1_740  # of the capture, with such a body; some messages cross a router and are there twice
DISORDER = 0.001
_ONE_FILE = 1 << 62
_NIGHTLY = (sys.executable, "-m", "jobs.cli", "nightly")
_DAYS_WORK = (sys.executable, "-m", "jobs.bench.day_peer")
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
    run = watch([*_DAYS_WORK, str(capture.path), str(folder)])
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
