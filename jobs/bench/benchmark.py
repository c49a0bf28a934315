"""Measures the whole pipeline beside tshark with a dissector: `python -m jobs.bench.benchmark`.

Each night is a process of its own, with a JVM that has compiled nothing, on simulated traffic. CPU time is that of all
its processes: what a night costs, not how long it takes on so many cores. "At the margin" is what a capture costs more
than the next smaller one, so that start-up does not count.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import open_session, spark_defaults
from jobs.bench.measure import Cost, Watched, measured, watch
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.transforms.decode import decode_rows
from jobs.warehouse.store import Warehouse
from jobs.wireshark.generate import dissector
from schemas.ingest import PACKETS, PacketType
from schemas.messages import DECODED_TABLES, MESSAGES
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.reference_rows import decode_packet
from udfs.on_spark import map_arrow
from udfs.passes.options import Batches, Pass

HEADING = "## The benchmark"
_APPLICATION = "msmq-replay benchmark"
_SEED = 1
_BODY = 1_000  # bytes of a message's body
BYTES_PER_MESSAGE = 1_740  # of the capture, with such a body; some messages cross a router and are there twice
_DISORDER = 0.001
_HALF = 0.5
_BASE = 0.25  # of the capture
_SMALL_MB = 1
_SAMPLE = 100_000  # messages decoded outside Spark
_SAMPLE_ALONE = 2_000
_ROWS_OF_BATCH, _OF_WORKERS = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.executorEnv."
_GOES = 5
_ONE_FILE = 1 << 62
_NIGHTLY = (sys.executable, "-m", "jobs.cli", "nightly")
_JUDGED_BY = (
    *("source_queue_manager", "message_id_ordinal", "destination_queue", "transaction_flags"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
)
_PEER_FIELDS = (
    *("frame.number", "frame.time_epoch", "ip.src", "ip.dst", "tcp.stream"),
    *(f"msmq.{name}" for name in _JUDGED_BY),
)
_OF_TRANSACTION = "msmq.transaction_flags"  # acknowledgments have sequence numbers too


class Capture(NamedTuple):
    """Holds a capture and its size in MB."""

    path: Path
    megabytes: float


class Peer(NamedTuple):
    """Holds the cost of tshark with a dissector, and the number of transactional messages it found."""

    cost: Cost
    messages: int


class Night(NamedTuple):
    """Holds a capture, the warehouse that a night made of it, what that cost, and what tshark cost on the capture."""

    capture: Capture
    warehouse: Path
    run: Watched
    peer: Peer | None = None


def simulate_capture(folder: Path, megabytes: float, *, largest: float = 0.0) -> Capture:
    """Simulates a capture of about `megabytes`; one sender has the share `largest` of all messages, if not 0."""
    messages = max(int(megabytes * 1_000_000 / BYTES_PER_MESSAGE), 1)
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


def night(capture: Capture, *, bodies: str = "drop", peer: Peer | None = None) -> Night:
    """Runs a night on a capture in a process of its own, into a warehouse next to it."""
    warehouse = capture.path.with_name(f"warehouse-{bodies}")
    options = ["--captures", str(capture.path), "--warehouse", str(warehouse), "--bodies", bodies]
    return Night(capture, warehouse, watch([*_NIGHTLY, *options, "--log-format", "json"]), peer)


def run_peer(tshark: str, capture: Capture) -> Peer:
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


def beside_peer(nights_by_bodies: Mapping[str, Sequence[Night]]) -> str:
    """Returns Markdown on nights with captures of rising size: what each costs, whole and at the margin."""
    heads = (
        "bodies",
        "capture, MB",
        "wall s",
        "CPU s",
        "CPU s a GB, at the margin",
        "tshark, CPU s",
        "times tshark",
        "at the margin",
    )
    rows = []
    for bodies, nights in nights_by_bodies.items():
        for before, found in zip((None, *nights), nights, strict=False):
            cpu_s, theirs_s = _cpu_s(found)
            more, times = "-", "-"
            if before is not None:
                base_s, base_theirs_s = _cpu_s(before)
                more = f"{(cpu_s - base_s) / (found.capture.megabytes - before.capture.megabytes) * 1e3:.0f}"
                times = f"{(theirs_s - base_theirs_s) / (cpu_s - base_s):.2f}" if theirs_s else "-"
            theirs = (f"{theirs_s:.1f}", f"{theirs_s / cpu_s:.2f}") if theirs_s else ("-", "-")
            costs = (f"{found.run.cost.wall_s:.1f}", f"{cpu_s:.1f}", more, *theirs, times)
            rows.append((bodies, f"{found.capture.megabytes:.0f}", *costs))
    return _table(heads, rows)


def _cpu_s(night: Night) -> tuple[float, float]:
    """Returns the CPU seconds of a night, and those of tshark; 0 if that is not installed."""
    return night.run.cost.cpu_s, night.peer.cost.cpu_s if night.peer else 0.0


def step_costs(nights: Sequence[Night]) -> str:
    """Returns Markdown on the CPU seconds of each night's steps, and the memory of its driver and its JVM."""
    names = list(dict.fromkeys(name for found in nights for name in found.run.steps))
    rows = []
    for found in nights:
        costs = (f"{found.run.steps[name].cpu_s:.1f}" if name in found.run.steps else "-" for name in names)
        memory = (f"{megabytes:.0f}" for megabytes in (found.run.python_mb, found.run.jvm_mb))
        rows.append((f"{found.capture.megabytes:.0f}", *costs, *memory))
    return _table(("capture, MB", *names, "a Python process, MB", "the JVM, MB"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
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
    return (
        f"Decoding outside Spark, messages a core-second: {together:,.0f} in batches, {alone:,.0f} one by one, as "
        f"{slow:,} of {every:,} packets were."
    )


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
    tshark = shutil.which("tshark")
    sizes = [megabytes * _BASE, megabytes, *([largest] if largest > megabytes else [])]
    dropped = []
    for size in sizes:
        capture = simulate_capture(folder / f"{size:g}", size)
        dropped.append(night(capture, peer=run_peer(tshark, capture) if tshark else None))
    full = dropped[1]
    kept = [night(found.capture, bodies="keep", peer=found.peer) for found in dropped[:2]]
    uneven = night(simulate_capture(folder / "skewed", megabytes, largest=_HALF))
    small = small_nights(folder / "small")
    spark = open_session(_APPLICATION)
    tables = Warehouse.of(spark, Config.load({"warehouse": str(full.warehouse)}, None))
    ours = tables.read(MESSAGES).where("transactional").count()
    decoded = decoding(tables), decoding_in_spark(tables)
    spark.stop()
    theirs = f", tshark {full.peer.messages:,}" if full.peer else "; tshark is not installed"
    per_mb = [found.run.cost.wall_s / found.capture.megabytes for found in (uneven, full)]
    setting = (
        f"Simulated traffic, bodies of {_BODY} bytes, {_DISORDER:.1%} disorder; {os.cpu_count()} cores. Each night is "
        "a process of its own, from the start of Spark to the report."
    )
    skew = (
        f"One sender with half of all messages: {per_mb[0] / per_mb[1]:.2f} times the wall time for each MB "
        f"({uneven.run.cost.wall_s:.1f} s, otherwise {full.run.cost.wall_s:.1f} s)."
    )
    parts = (
        setting,
        beside_peer({"dropped": dropped, "kept": kept}),
        f"Transactional messages found in {full.capture.megabytes:.0f} MB: {ours:,}{theirs}.",
        "CPU seconds of steps, and memory, with bodies dropped:",
        step_costs(dropped),
        skew,
        small,
        *decoded,
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
    parser.add_argument("--page", type=Path, help="a page in Markdown that ends with the result of a benchmark")
    options = parser.parse_args()
    try:
        with TemporaryDirectory() as folder:
            found = benchmark(Path(folder), options.megabytes, options.largest)
    except JobError as error:
        print(f"benchmark: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    print(found)  # noqa: T201 - the result
    if options.page:
        options.page.write_text(on_page(options.page.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
