"""Measures the whole pipeline beside tshark with a dissector, and beside a day's work with it.

`python -m jobs.bench.benchmark` does so on simulated traffic. Each night is a process of its own, with a JVM that has
compiled nothing. CPU time is that of all its processes: what a night costs, not how long it takes on so many cores.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import open_session, spark_defaults
from jobs.bench.measure import measured
from jobs.bench.nights import (
    BODY,
    DISORDER,
    beside_days_work,
    beside_tshark,
    in_turns,
    markdown,
    night,
    simulate_capture,
    step_costs,
    verdicts_beside,
)
from jobs.transforms.decode import decode_rows
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, PacketType
from schemas.messages import DECODED_TABLES, MESSAGES
from schemas.replay import VERDICTS
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.reference_rows import decode_packet
from udfs.on_spark import map_arrow
from udfs.passes.options import Batches, Pass

HEADING = "## The benchmark"
_APPLICATION = "msmq-replay benchmark"
_HALF = 0.5
_BASE = 0.25  # of the capture
_SMALL_MB = 1
_SAMPLE = 100_000  # messages decoded outside Spark
_SAMPLE_ALONE = 2_000
_ROWS_OF_BATCH, _OF_WORKERS = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.executorEnv."
_GOES = 5
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
        "read, handed to Python": map_arrow(packets, _ending_here(lambda batch: batch), PACKETS.arrow),
        "read, handed to Python, decoded": map_arrow(
            packets, _ending_here(lambda batch: DecodedBatch(batch).rows(MESSAGES)), PACKETS.arrow
        ),
        "read, handed to Python and back": map_arrow(packets, lambda batches: batches, PACKETS.arrow),
        "read, handed to Python, decoded, and back": decode_rows(packets, MESSAGES),
    }

    def least(rows: DataFrame) -> float:
        return min(measured(rows.write.format("noop").mode("overwrite").save).cpu_s for _ in range(_GOES))

    costs = ((name, f"{least(rows) / count * 1e6:.2f}") for name, rows in ways.items())
    return markdown(("packets, in Spark", "CPU µs a message"), costs)


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
    decoded = decoding(tables), decoding_in_spark(tables)
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
