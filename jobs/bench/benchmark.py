"""Measures the whole pipeline beside tshark with a dissector: `python -m jobs.bench.benchmark`.

Everything runs on simulated traffic, in one go. CPU time is that of all processes: the cost of a stage, not how long
it takes on so many cores. Start-up counts separately: the cost of a capture a quarter as large is subtracted.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import open_session, spark_defaults
from jobs.bench.measure import Cost, measured, read_moved, watch_workers
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import decode, ingest, replay
from jobs.transforms.decode import decode_rows
from jobs.warehouse.store import Warehouse
from jobs.wireshark.generate import dissector
from schemas.ingest import PACKETS, PacketType
from schemas.messages import DECODED_TABLES, MESSAGES
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.reference_rows import decode_packet
from udfs.on_spark import map_arrow
from udfs.passes.options import Batches, Pass

_APPLICATION = "msmq-replay benchmark"
_SEED = 1
_BODY = 1_000  # bytes of a message's body
_BYTES_PER_MESSAGE = 1_740  # of the capture, with such a body; some messages cross a router and are there twice
_DISORDER = 0.001
_HALF = 0.5
_BASE = 0.25  # of the capture; below 64 MB queries run without code generation, which costs differently
_SMALL_MB = 1
_SAMPLE = 100_000  # messages decoded outside Spark
_SAMPLE_ALONE = 2_000
_ROWS_OF_BATCH, _OF_WORKERS = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.executorEnv."
_GOES = 5
_ONE_FILE = 1 << 62
_STAGES = {"ingest": ingest.run, "decode": decode.run, "replay": replay.run}
_JUDGED_BY = (
    *("source_queue_manager", "message_id_ordinal", "destination_queue", "transaction_flags"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
)
_PEER_FIELDS = (
    *("frame.number", "frame.time_epoch", "ip.src", "ip.dst", "tcp.stream"),
    *(f"msmq.{name}" for name in _JUDGED_BY),
)
_OF_TRANSACTION = "msmq.transaction_flags"  # acknowledgments have sequence numbers too
_EVENTS = {"enabled": "true", "compress": "false", "rolling.enabled": "false"}


class Capture(NamedTuple):
    """Holds a capture and its size in MB."""

    path: Path
    megabytes: float


class Night(NamedTuple):
    """Holds the cost of each stage on a capture."""

    capture: Capture
    warehouse: Path
    stages: dict[str, Cost]

    @property
    def cpu_s(self) -> float:
        """Returns the CPU seconds of all stages."""
        return sum(cost.cpu_s for cost in self.stages.values())

    @property
    def wall_s(self) -> float:
        """Returns the wall seconds of all stages."""
        return sum(cost.wall_s for cost in self.stages.values())

    @property
    def wall_s_per_mb(self) -> float:
        """Returns the wall seconds of all stages for each MB of the capture."""
        return self.wall_s / self.capture.megabytes


def simulate_capture(folder: Path, megabytes: float, *, largest: float = 0.0) -> Capture:
    """Simulates a capture of about `megabytes`; one sender has the share `largest` of all messages, if not 0."""
    messages = max(int(megabytes * 1_000_000 / _BYTES_PER_MESSAGE), 1)
    simulate(
        str(folder),
        _SEED,
        messages,
        bodies=(_BODY, _BODY),
        disorder=_DISORDER,
        file_bytes=_ONE_FILE,
        largest_sender=largest,
    )
    (path,) = folder.glob(f"{CAPTURE_PREFIX}_*.pcap")
    return Capture(path, path.stat().st_size / 1e6)


def night(spark: SparkSession, capture: Capture, *, bodies: str = "drop") -> Night:
    """Runs the stages on a capture, into a warehouse next to it."""
    warehouse = capture.path.with_name(f"warehouse-{bodies}")
    config = Config.load({"captures": [str(capture.path)], "warehouse": str(warehouse), "bodies": bodies}, None)
    return Night(capture, warehouse, {name: measured(run, spark, config) for name, run in _STAGES.items()})


class Peer(NamedTuple):
    """Holds the cost of tshark with a dissector, and the number of transactional messages it found."""

    cost: Cost
    messages: int


def peer(tshark: str, capture: Capture) -> Peer:
    """Extracts the capture's transactional messages as tab-separated values, by tshark with the generated dissector.

    The dissector adds only the fields that acceptance is judged by.
    """
    table, script = capture.path.with_name("peer.tsv"), capture.path.with_name("msmq.lua")
    script.write_text(dissector(), encoding="utf-8")
    options = [option for name in _PEER_FIELDS for option in ("-e", name)]
    settings = ["-X", f"lua_script:{script}", "-o", f"msmq.only:{','.join(_JUDGED_BY)}"]
    command = [tshark, *settings, "-r", str(capture.path), "-Y", _OF_TRANSACTION, "-T", "fields"]
    with table.open("wb") as out:
        cost = measured(
            partial(subprocess.run, [*command, *options], check=True, stdout=out, stderr=subprocess.DEVNULL)
        )
    transactions = _PEER_FIELDS.index(_OF_TRANSACTION)
    with table.open() as rows:
        return Peer(cost, sum(row.rstrip("\n").split("\t")[transactions].count(",") + 1 for row in rows))


def whole_way(dropped: tuple[Night, Night], kept: tuple[Night, Night], peers: tuple[Peer, Peer] | None) -> str:
    """Returns Markdown on capture to verdicts, beside tshark; the first of each pair is a quarter as large."""
    base, large = (pair.capture.megabytes for pair in dropped)
    costs = {
        "capture to verdicts, bodies dropped": (dropped[0].cpu_s, dropped[1].cpu_s, dropped[1].wall_s),
        "capture to verdicts, bodies kept": (kept[0].cpu_s, kept[1].cpu_s, kept[1].wall_s),
    }
    costs |= {
        f"of the former, {name}": (dropped[0].stages[name].cpu_s, cost.cpu_s, cost.wall_s)
        for name, cost in dropped[1].stages.items()
    }
    title = "tshark with the generated dissector, to a text file"
    if peers:
        costs = {title: (peers[0].cost.cpu_s, peers[1].cost.cpu_s, peers[1].cost.wall_s)} | costs
    rows = []
    first: float | None = None
    for what, (base_s, large_s, wall_s) in costs.items():
        rate = (large - base) / (large_s - base_s)
        first = rate if peers and first is None else first
        times = f"{rate / first:.1f}" if first else "-"
        rows.append((what, f"{wall_s:.1f}", f"{large_s:.1f}", f"{rate:.1f}", times))
    return _table(("what", "wall s", "CPU s", "MB per core-second", "times tshark"), rows)


def profile(large: Night, log: Path) -> str:
    """Returns Markdown on the time of each stage, and the bytes it moves for each byte of the capture."""
    heads = ("stage", "wall s", "CPU s, Python", "CPU s, JVM", "bytes shuffled", "through Arrow")
    rows = []
    for (name, cost), bytes_moved in zip(large.stages.items(), read_moved(log, large.stages.values()), strict=True):
        shares = (f"{count / large.capture.megabytes / 1e6:.3f}" for count in bytes_moved)
        rows.append((name, f"{cost.wall_s:.1f}", f"{cost.python_s:.1f}", f"{cost.jvm_s:.1f}", *shares))
    return _table((*heads, "written, of the capture's"), rows)


def growth(nights: list[tuple[Night, float]]) -> str:
    """Returns Markdown on how cost and memory grow with the capture; the base comes first."""
    base = nights[0][0]
    heads = ("capture, MB", "wall s", "CPU s", *_STAGES, "CPU ms per MB more than the base", "worker's peak, MB")
    rows = []
    for found, peak_mb in nights:
        size, cpu_s = found.capture.megabytes, found.cpu_s
        more_mb = size - base.capture.megabytes
        more = f"{(cpu_s - base.cpu_s) / more_mb * 1e3:.1f}" if more_mb else "-"
        stages = (f"{cost.cpu_s:.1f}" for cost in found.stages.values())
        rows.append((f"{size:.0f}", f"{found.wall_s:.1f}", f"{cpu_s:.1f}", *stages, more, f"{peak_mb:.0f}"))
    return _table(heads, rows)


def model(small: Night, middle: Night, large: Night) -> str:
    """Returns Markdown on each stage's fixed cost and cost a GB, from two nights, and how well they predict a third."""
    predicting = f"predicted for {middle.capture.megabytes:.0f} MB"
    rows = []
    for name in _STAGES:
        least, between, most = (found.stages[name].cpu_s for found in (small, middle, large))
        per_mb = (most - least) / (large.capture.megabytes - small.capture.megabytes)
        fixed = least - per_mb * small.capture.megabytes
        predicted = fixed + per_mb * middle.capture.megabytes
        off = predicted / between - 1
        rows.append((name, f"{fixed:.1f}", f"{per_mb * 1e3:.1f}", f"{predicted:.1f}", f"{between:.1f}", f"{off:+.0%}"))
    return _table(("stage", "fixed, CPU s", "CPU s per GB", predicting, "measured", "error"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; its first column is text, the others are numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def small_nights(folder: Path) -> str:
    """Returns Markdown on a night with one small capture and one with nothing new, each in its own process."""
    capture = simulate_capture(folder, _SMALL_MB)
    command = [sys.executable, "-m", "jobs.cli", "nightly", "--captures", str(capture.path)]
    rows = []
    for what in ("a night with one small capture", "a second one with nothing new"):
        began = time.monotonic()
        subprocess.run(  # noqa: S603 - this program
            [*command, "--warehouse", str(folder / "warehouse")],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        rows.append((what, f"{time.monotonic() - began:.1f}"))
    return _table(("a process of its own", "wall s"), rows)


def decoding(warehouse: Warehouse) -> str:
    """Returns Markdown on the rates of both decoders outside Spark, and the share of packets that take the slow one.

    Bodies are not part of the stored packets. Batches are as large as Spark's, in the environment of Spark's workers.
    """
    of_messages = F.col("packet_type") == PacketType.USER_MESSAGE.value
    stored = warehouse.read(PACKETS).where(of_messages).limit(_SAMPLE).toArrow()
    defaults = spark_defaults()
    environment = {k.removeprefix(_OF_WORKERS): v for k, v in defaults.items() if k.startswith(_OF_WORKERS)}
    with mock.patch.dict(os.environ, environment), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        together, alone = pool.submit(decoding_rates, stored, int(defaults[_ROWS_OF_BATCH])).result()
    slow, every = map(sum, zip(*(_decoded_alone(warehouse.read(table)) for table in DECODED_TABLES), strict=True))
    rates = (("in batches", f"{together:,.0f}"), ("one by one", f"{alone:,.0f}"))
    table = _table(("decoding, outside Spark", "messages per core-second"), rates)
    return f"{table}\n\n{slow} of {every} packets ({slow / max(every, 1):.2%}) were decoded one by one."


def decoding_rates(stored: pa.Table, rows: int) -> tuple[float, float]:
    """Returns messages per core-second, in batches of `rows` and one by one."""
    batches = stored.combine_chunks().to_batches(rows)
    alone = [
        (row["raw"], row["trailer"], row["size"])
        for row in stored.select(["raw", "trailer", "size"]).slice(0, _SAMPLE_ALONE).to_pylist()
    ]
    together_s = _cpu(lambda: [DecodedBatch(batch).rows(MESSAGES) for batch in batches])
    alone_s = _cpu(lambda: [decode_packet(*packet) for packet in alone])
    return len(stored) / together_s, len(alone) / alone_s


def decoding_in_spark(warehouse: Warehouse) -> str:
    """Returns Markdown on the CPU time of a message: read, handed to Python, decoded there, and returned."""
    packets = warehouse.read(PACKETS).where(F.col("packet_type") == PacketType.USER_MESSAGE.value)
    count = packets.count()
    ways = {
        "read": packets,
        "read, handed to Python": map_arrow(packets, _ending_here(lambda batch: batch), packets.schema),
        "read, handed to Python, decoded": map_arrow(
            packets, _ending_here(lambda batch: DecodedBatch(batch).rows(MESSAGES)), packets.schema
        ),
        "read, handed to Python and back": map_arrow(packets, lambda batches: batches, packets.schema),
        "read, handed to Python, decoded, and back": decode_rows(packets, MESSAGES),
    }

    def least(rows: DataFrame) -> float:
        return min(measured(rows.write.format("noop").mode("overwrite").save).cpu_s for _ in range(_GOES))

    costs = ((name, f"{least(rows) / count * 1e6:.2f}") for name, rows in ways.items())
    return _table(("packets, in Spark", "CPU µs a message"), costs)


def _ending_here(work: Callable[[pa.RecordBatch], object]) -> Pass:
    """Returns a pass that does this to each batch, and returns no rows."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            work(batch)
        yield from ()

    return run


def _decoded_alone(rows: DataFrame) -> tuple[int, int]:
    slow, every = rows.agg(F.count_if("decoded_alone"), F.count("*")).collect()[0]
    return slow, every


def _cpu(work: Callable[[], Any]) -> float:
    """Returns the least CPU time of this process for the work, of several runs."""
    times = []
    for _ in range(_GOES):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def benchmark(folder: Path, megabytes: int, largest: int) -> str:
    """Returns Markdown on everything, with captures of about `megabytes` and up to `largest` MB, made in the folder."""
    events = folder / "events"
    events.mkdir()
    settings = [f"--conf spark.eventLog.{name}={value}" for name, value in (_EVENTS | {"dir": events.as_uri()}).items()]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join((*settings, "pyspark-shell"))
    spark = open_session(_APPLICATION)
    base, half, full, skewed = (
        simulate_capture(folder / name, size, largest=share)
        for name, size, share in (
            ("base", megabytes * _BASE, 0.0),
            ("half", megabytes / 2, 0.0),
            ("full", megabytes, 0.0),
            ("skewed", megabytes, _HALF),
        )
    )
    peak_mb = watch_workers()
    # The JVM compiles for minutes, and runs faster afterwards.
    night(spark, simulate_capture(folder / "warm", megabytes))
    steps = [(night(spark, capture), peak_mb()) for capture in (base, half, full)]
    dropped = steps[0][0], steps[-1][0]
    kept = night(spark, base, bodies="keep"), night(spark, full, bodies="keep")
    uneven = night(spark, skewed)
    if largest > megabytes:
        steps.append((night(spark, simulate_capture(folder / "largest", largest)), peak_mb()))
    tables = Warehouse.of(spark, Config.load({"warehouse": str(dropped[1].warehouse)}, None))
    decoded = decoding(tables), decoding_in_spark(tables)
    ours = tables.read(MESSAGES).where("transactional").count()
    spark.stop()  # completes the event log
    (log,) = events.iterdir()
    tshark = shutil.which("tshark")
    peers = (peer(tshark, base), peer(tshark, full)) if tshark else None
    theirs = f", tshark {peers[1].messages:,}" if peers else "; tshark is not installed"
    setting = (
        f"{full.megabytes:.0f} MB of simulated traffic, bodies of {_BODY} bytes, {_DISORDER:.1%} disorder; "
        f"{os.cpu_count()} cores. What a capture of {base.megabytes:.0f} MB costs is taken off, as start-up."
    )
    skew = (
        f"One sender with half of all messages: {uneven.wall_s_per_mb / dropped[1].wall_s_per_mb:.2f} times "
        f"the even case's wall time for each MB ({uneven.wall_s:.1f} s, {dropped[1].wall_s:.1f} s)."
    )
    parts = (
        setting,
        whole_way(dropped, kept, peers),
        f"Transactional messages found: {ours:,}{theirs}.",
        "## Where the time goes",
        profile(dropped[1], log),
        "## Growth",
        growth(steps),
        model(steps[0][0], steps[-2][0], steps[-1][0]),
        "## Skew",
        skew,
        "## Small nights",
        small_nights(folder / "small"),
        "## Decoding",
        *decoded,
    )
    return "\n\n".join(parts)


def main() -> int:
    """Runs the benchmark and returns the exit code."""
    parser = argparse.ArgumentParser("python -m jobs.bench.benchmark", allow_abbrev=False)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the capture")
    parser.add_argument("--largest", type=int, default=0, help="size of a larger one, to see how the cost grows")
    parser.add_argument("--out", type=Path, help="a file for the result, beside the terminal")
    options = parser.parse_args()
    try:
        with TemporaryDirectory() as folder:
            found = benchmark(Path(folder), options.megabytes, options.largest)
    except JobError as error:
        print(f"benchmark: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    print(found)  # noqa: T201 - the result
    if options.out:
        options.out.write_text(f"# Benchmark\n\nHow fast it is on one machine. Made by `make bench`.\n\n{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
