"""Measures layouts of `verdicts` by an analyst's queries: `python tests/bench_layout.py --messages 3000000`.

Made rows of thirty days are written in each layout, and each query is asked of each: how many files cannot be left out
by their statistics.
"""

import argparse
import os
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from made_rows import large_tables
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.spark_session import open_session
from schemas.messages import MESSAGES

_DAYS = 30
_SCOPES = 1_000
_NS_PER_DAY = 86_400 * 10**9
_READ = ["stream_id", "stream_offset", "source_queue_manager", "destination_queue", "message_id", "message_id_ordinal"]
_FILES = 48  # of a table: a fleet's has hundreds, of the size that OPTIMIZE makes


def verdicts(rows: DataFrame, messages: int) -> DataFrame:
    """Returns what queries ask for of so many messages, spread over the days."""
    apart = _DAYS * _NS_PER_DAY // max(messages // _SCOPES, 1)
    since = 1_700_000_000 * 10**9 + F.col("message_id_ordinal") * apart
    receiver = F.pmod(F.regexp_extract("destination_queue", r"(\d+)$", 1), F.lit(50))
    return rows.select(
        *_READ,
        F.concat_ws("->", "source_queue_manager", receiver).alias("session_id"),
        (since + F.pmod(F.xxhash64("stream_id"), F.lit(apart))).alias("captured_ns"),
    ).withColumn("captured_at", F.timestamp_micros(F.expr("captured_ns div 1000")))


class Layout(NamedTuple):
    """How a table's rows lie: what it is clustered by, or in which order it is written."""

    clustered: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()


LAYOUTS = {
    "as replay leaves them": Layout(),
    "written by time": Layout(ordered=("captured_at",)),
    "clustered by sender, time": Layout(clustered=("source_queue_manager", "captured_at")),
}


def write(spark: SparkSession, rows: DataFrame, place: Path, layout: Layout) -> None:
    """Writes the rows in a layout, in about so many files."""
    columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in rows.schema)
    by = f"CLUSTER BY ({', '.join(layout.clustered)})" if layout.clustered else ""
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {by}")
    if layout.ordered:
        rows = rows.repartitionByRange(_FILES, *layout.ordered).sortWithinPartitions(*layout.ordered)
    elif not layout.clustered:
        rows = rows.repartition(_FILES, "destination_queue").sortWithinPartitions("destination_queue", "captured_ns")
    rows.write.format("delta").mode("append").save(str(place))
    if layout.clustered:
        spark.sql(f"OPTIMIZE delta.`{place}`").collect()


Range = tuple[Any, Any]


def queries(last: datetime, one: Row) -> dict[str, dict[str, Range]]:
    """What analysts ask: columns with the lowest and the highest value wanted, about a message that is there."""

    def exactly(*names: str) -> dict[str, Range]:
        return {name: (one[name], one[name]) for name in names}

    return {
        "the last day": {"captured_at": (last - timedelta(days=1), last)},
        "a queue's last week": exactly("destination_queue") | {"captured_at": (last - timedelta(days=7), last)},
        "a session": exactly("session_id"),
        "a message by its key": exactly("stream_id", "stream_offset"),
    }


def files_read(place: Path, wanted: dict[str, Range]) -> tuple[int, int]:
    """Of a table's files, those that a reader cannot leave out by their least and greatest values; all of them."""
    files = pa.table(DeltaTable(str(place)).get_add_actions(flatten=True)).to_pylist()
    read = 0
    for file in files:
        bounds = [(file.get(f"min.{name}"), file.get(f"max.{name}"), *of) for name, of in wanted.items()]
        read += all(
            least is None or (str(low) <= str(most) and str(least) <= str(high)) for least, most, low, high in bounds
        )
    return read, len(files)


def main() -> None:
    """Writes the rows in each layout, and prints how many files each query reads of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000)
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[2] --driver-memory 4g pyspark-shell")
    spark = open_session("benchmark of layouts")
    with TemporaryDirectory() as folder:
        source = Path(folder, "made")
        for number, part in enumerate(large_tables(asked.messages, _SCOPES)):
            pq.write_table(part[MESSAGES].select(_READ), Path(folder, f"{number}.parquet"))
        messages = spark.read.parquet(f"{folder}/*.parquet")
        verdicts(messages, asked.messages).write.parquet(str(source))
        rows = spark.read.parquet(str(source))
        size = sum(file.stat().st_size for file in source.glob("*.parquet")) // _FILES
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(size))
        last = rows.agg(F.max("captured_at")).collect()[0][0]
        asks = queries(last, rows.orderBy(F.xxhash64("message_id")).limit(1).collect()[0])
        print(f"| files read | {' | '.join(asks)} |", "| --- |" + " ---: |" * len(asks), sep="\n")  # noqa: T201
        for name, layout in LAYOUTS.items():
            place = Path(folder, name.replace(" ", "_"))
            write(spark, rows, place, layout)
            read = (f"{of} of {every}" for of, every in (files_read(place, wanted) for wanted in asks.values()))
            print(f"| {name} | {' | '.join(read)} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
