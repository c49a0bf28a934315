"""Measures how quickly packets are decoded by the functions for SQL, beside the table `messages`, in Spark.

`python -m jobs.bench.functions --packets 1000000` simulates user messages, repeats them to that number in a table, and
prints for each way how many packets a second it decodes on this machine, as Markdown. Nothing is written meanwhile.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.config import Config
from jobs.app.spark_session import open_session
from jobs.bench.measure import measured
from jobs.simulator import simulate
from jobs.steps import ingest
from jobs.transforms.decode import decode_rows
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, PacketType
from schemas.messages import MESSAGES
from udfs.functions import DECODERS, register

_SIMULATED = 5_000


def rates(packets: DataFrame) -> Iterator[str]:
    """Yields lines of Markdown: packets a second and CPU µs a packet of each way to decode user messages."""
    register(packets.sparkSession)
    calls = {name: F.call_function(name, F.col("raw")) for name in DECODERS}
    ways = {
        "read, not decoded": packets,
        "the table `messages`": decode_rows(packets, MESSAGES),
        **{f"`{name}`": packets.select(call) for name, call in calls.items()},
        "all four functions": packets.select(*calls.values()),
    }
    count = packets.count()
    yield f"| {count:,} packets, by | packets a second | CPU µs a packet |"
    yield "| --- | --- | --- |"
    for name, rows in ways.items():
        cost = measured(rows.write.format("noop").mode("overwrite").save)
        yield f"| {name} | {count / cost.wall_s:,.0f} | {cost.cpu_s / count * 1e6:,.1f} |"


def main() -> int:
    """Measures once and prints the rates; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000, help="how many packets to decode")
    asked = parser.parse_args().packets
    spark = open_session("functions")
    with TemporaryDirectory() as folder:
        simulate(folder, 1, _SIMULATED)
        given = {"captures": [f"{folder}/*.pcap"], "warehouse": f"{folder}/tables"}
        ingest.run(spark, Config.load(given, None))
        stored = Warehouse(spark, f"{folder}/tables").read(PACKETS)
        stored = stored.where(F.col("packet_type") == PacketType.USER_MESSAGE.value)
        times = spark.range(-(-asked // stored.count())).select(F.col("id").alias("time"))
        many = str(Path(folder) / "many")
        stored.crossJoin(times).drop("time").limit(asked).repartition(8).write.format("delta").save(many)
        for line in rates(spark.read.format("delta").load(many)):
            print(line, flush=True)  # noqa: T201 - the result
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
