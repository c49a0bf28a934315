"""Measure the pipeline on simulated traffic: `python -m jobs.benchmark --megabytes 500`.

CPU time is that of all processes of the run (Python, JVM, Python workers), read from /proc: the figures of a stage are
what it costs, not how long it takes on so many cores. tshark, where it is installed, reads the same file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.pandas.types import to_arrow_schema

from jobs import decode, ingest, replay
from jobs.config import Config
from jobs.errors import JobError, UsageError
from jobs.session import open_session
from jobs.transforms.decode import decoded_rows
from jobs.warehouse import Warehouse
from schemas.ingest import PACKETS, PacketType
from schemas.messages import DECODED, MESSAGES
from udfs.decode import Decoded
from udfs.packet import decode_packet
from udfs.simulation import CAPTURE_PREFIX, simulate

_APPLICATION = "msmq-replay benchmark"
_SEED = 1
_BODY = 1_000  # bytes of a message's body
_BYTES_PER_MESSAGE = 1_740  # of the capture, with such a body: some cross a router, and so the wire twice
_DISORDER = 0.001
_SAMPLE = 100_000  # messages decoded outside Spark
_SAMPLE_ALONE = 2_000
_ROWS = 10_000  # of a batch, as Spark sends them
_GOES = 5
_ONE_FILE = 1 << 62
_TSHARK = {
    "tshark -q": ("-q",),  # only reads the records
    "tshark -q -z expert": ("-q", "-z", "expert"),  # dissects them, TCP's sequence analysis included
}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a stage took, in seconds."""

    wall_s: float
    cpu_s: float


def cpu_seconds() -> float:
    """User and system time of this process, of its descendants, and of those of them that have ended."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since, and its parent counts it
        pid = int(path.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    total, family = 0, [os.getpid()]
    while family:
        pid = family.pop()
        total += ticks[pid]
        family += children[pid]
    return total * _TICK_S


def measured(work: Callable[..., Any], *arguments: Any) -> Cost:
    """What it costs to do this."""
    wall, cpu = time.monotonic(), cpu_seconds()
    work(*arguments)
    return Cost(time.monotonic() - wall, cpu_seconds() - cpu)


def peak_worker_mb() -> float:
    """Most memory, in MB, that a Python worker of this process's JVM has held at once, of those that live."""
    peaks = [0]
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            worker = b"pyspark.daemon" in path.with_name("cmdline").read_bytes()
            lines = path.read_text().splitlines() if worker else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return max(peaks) / 1024


class Night(NamedTuple):
    """A capture, how large it is, and what each stage cost on it."""

    capture: Path
    megabytes: float
    stages: dict[str, Cost]

    @property
    def pipeline(self) -> Cost:
        """All stages together."""
        return Cost(*map(sum, zip(*self.stages.values(), strict=True)))


def night(folder: Path, megabytes: int) -> Night:
    """Simulate a capture of about so many MB in the folder, and run the stages on it.

    Raises:
        UsageError: the folder holds tables, which would leave nothing to do.
    """
    warehouse = folder / "warehouse"
    if warehouse.exists():
        raise UsageError(f"{warehouse} exists: name a folder without tables.")
    messages = max(megabytes * 1_000_000 // _BYTES_PER_MESSAGE, 1)
    simulate(str(folder), _SEED, messages, bodies=(_BODY, _BODY), disorder=_DISORDER, file_bytes=_ONE_FILE)
    (capture,) = folder.glob(f"{CAPTURE_PREFIX}_*.pcap")
    config = Config.load({"captures": [str(capture)], "warehouse": str(warehouse)}, None)
    spark = open_session(_APPLICATION)
    runs = {"ingest": ingest.run, "decode": decode.run, "replay": replay.run}
    return Night(
        capture, capture.stat().st_size / 1e6, {name: measured(run, spark, config) for name, run in runs.items()}
    )


def decoding(warehouse: Warehouse) -> list[str]:
    """Markdown: messages per core-second of both decoding paths outside Spark, and how many take the slow one.

    The bodies of the packets are not among what is stored of them.
    """
    of_messages = F.col("packet_type") == PacketType.USER_MESSAGE.value
    stored = warehouse.read(PACKETS).where(of_messages).limit(_SAMPLE).toArrow()
    schema = to_arrow_schema(MESSAGES.spark)
    batches = stored.combine_chunks().to_batches(_ROWS)
    alone = [
        (row["raw"], row["trailer"], row["size"])
        for row in stored.select(["raw", "trailer", "size"]).slice(0, _SAMPLE_ALONE).to_pylist()
    ]
    together_s = _cpu(lambda: [Decoded(batch).rows(MESSAGES, schema) for batch in batches])
    alone_s = _cpu(lambda: [decode_packet(*packet) for packet in alone])
    slow, every = map(sum, zip(*(_decoded_alone(warehouse.read(table)) for table in DECODED), strict=True))
    return [
        "| decoding, outside Spark | messages per core-second |",
        "| --- | ---: |",
        f"| in batches | {len(stored) / together_s:,.0f} |",
        f"| one by one | {len(alone) / alone_s:,.0f} |",
        "",
        f"{slow} of {every} packets ({slow / max(every, 1):.2%}) were decoded one by one.",
    ]


def decoding_in_spark(warehouse: Warehouse) -> list[str]:
    """Markdown: CPU time of a message to be read, to be handed to Python and back besides, and to be decoded there."""
    packets = warehouse.read(PACKETS).where(F.col("packet_type") == PacketType.USER_MESSAGE.value)
    count = packets.count()
    ways = {
        "read": packets,
        "read, handed to Python and back": packets.mapInArrow(lambda batches: batches, packets.schema),
        "read, decoded in Python": decoded_rows(packets, MESSAGES),
    }

    def least(rows: DataFrame) -> float:
        return min(measured(rows.write.format("noop").mode("overwrite").save).cpu_s for _ in range(_GOES))

    return [
        "| packets, in Spark | CPU µs a message |",
        "| --- | ---: |",
        *(f"| {name} | {least(rows) / count * 1e6:.2f} |" for name, rows in ways.items()),
    ]


def _decoded_alone(rows: DataFrame) -> tuple[int, int]:
    slow, every = rows.agg(F.count_if("decoded_alone"), F.count("*")).collect()[0]
    return slow, every


def _cpu(work: Callable[[], Any]) -> float:
    """The least CPU time of this process for it, of several goes."""
    times = []
    for _ in range(_GOES):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def benchmark(folder: Path, megabytes: int) -> str:
    """Markdown: what every stage costs on a capture of about so many MB, made in the folder, and at the margin.

    Start-up counts apart: a night with a tenth of the traffic warms Spark up, a second one like it is the base that the
    margin is reckoned from. tshark, where it is installed, reads the same capture.
    """
    _, base, large = (
        night(folder / name, size)
        for name, size in (("warm", megabytes // 10 + 1), ("base", megabytes // 10 + 1), ("large", megabytes))
    )
    lines = [
        (
            f"{large.megabytes:.0f} MB and, as the base, {base.megabytes:.0f} MB; {os.cpu_count()} cores; "
            f"peak memory of a Python worker {peak_worker_mb():.0f} MB."
        ),
        "",
        "| stage | wall s | CPU s | MB per core-second | at the margin |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    more = large.megabytes - base.megabytes
    rows = large.stages | {"all": large.pipeline}
    for name, (wall_s, cpu_s) in rows.items():
        extra = cpu_s - (base.stages | {"all": base.pipeline})[name].cpu_s
        margin = f"{more / extra:.1f}" if extra > 0 else "-"
        lines.append(f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {large.megabytes / cpu_s:.1f} | {margin} |")
    if tshark := shutil.which("tshark"):
        read = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name, options in _TSHARK.items():
            wall_s, cpu_s = measured(read, [tshark, "-r", str(large.capture), *options])
            lines.append(f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {large.megabytes / cpu_s:.1f} | |")
            times = cpu_s / large.stages["ingest"].cpu_s
            lines.append(f"| ingest, in times of that | | | {times:.2f} | |")
    tables = Config.load({"warehouse": str(folder / "large" / "warehouse")}, None)
    warehouse = Warehouse.of(open_session(_APPLICATION), tables)
    lines += ["", *decoding(warehouse), "", *decoding_in_spark(warehouse)]
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser("python -m jobs.benchmark", allow_abbrev=False)
    parser.add_argument("--megabytes", type=int, required=True, help="size of the capture")
    parser.add_argument("--keep", metavar="FOLDER", help="make capture and tables here, and leave them")
    options = parser.parse_args()
    try:
        if options.keep:
            print(benchmark(Path(options.keep), options.megabytes))  # noqa: T201 - the result
        else:
            with TemporaryDirectory() as folder:
                print(benchmark(Path(folder), options.megabytes))  # noqa: T201 - the result
    except JobError as error:
        print(f"benchmark: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
