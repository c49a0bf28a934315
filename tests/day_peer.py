"""Does what a user would build in a day instead of this product: `python tests/day_peer.py CAPTURE FOLDER`.

tshark writes the fields of messages, by the generated dissector. Spark makes two Delta tables of them: `messages`, and
`verdicts`, by one window over each sequence of a session and sender, in the order of the capture. That is right for a
clean capture. It takes one file, and knows nothing of routers, acknowledgments and bytes that the capture missed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli.spark_session import spark_defaults
from jobs.wireshark.generate import dissector

_OF_FRAME = {
    "frame": "frame.number",
    "captured": "frame.time_epoch",
    **{end + version: f"ip{version}.{end}" for end in ("src", "dst") for version in ("", "v6")},
    "stream": "tcp.stream",
}
_OF_PACKET = (
    *("packet_type", "source_queue_manager", "message_id_ordinal", "destination_queue", "transactional"),
    *("label", "label_length", "body_size", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
)
"""A frame has several values of these, one for each packet that has the field."""
_BETWEEN = "\x1f"  # values of a frame; tshark escapes control characters in texts
_WITH_USER_HEADER = ("user_message", "administration", "order_ack", "final_ack")
_MESSAGES = ("user_message", "administration")
_TRUE = ("1", "True")  # as tshark 4.0 and as 4.2 print it


def extract(tshark: str, capture: Path, folder: Path) -> Path:
    """Writes the fields of all frames that end a message as tab-separated values; returns their file."""
    table, script = folder / "fields.tsv", folder / "msmq.lua"
    script.write_text(dissector(), encoding="utf-8")
    fields = [*_OF_FRAME.values(), *(f"msmq.{name}" for name in _OF_PACKET)]
    settings = ["-X", f"lua_script:{script}", "-o", f"msmq.only:{','.join(_OF_PACKET)}"]
    command = [tshark, *settings, "-r", str(capture), "-Y", "msmq.source_queue_manager", "-T", "fields"]
    command += ["-E", f"aggregator={_BETWEEN}", *(option for field in fields for option in ("-e", field))]
    with table.open("wb") as out:
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL)
    return table


def messages(spark: SparkSession, table: Path) -> DataFrame:
    """Returns one row per message: a frame may hold several packets, and a packet need not have each field."""
    schema = ", ".join(f"{name} STRING" for name in (*_OF_FRAME, *_OF_PACKET))
    frames = spark.read.csv(str(table), schema, sep="\t", quote="", escape="")
    frames = frames.withColumns({name: F.split(name, _BETWEEN) for name in _OF_PACKET})
    packets = frames.select("*", F.posexplode("packet_type").alias("place", "kind"))

    def nth(column: str, until: Column, has: Callable[[Column], Column]) -> Column:
        """Returns the place of a packet's value in a field that only packets which have something have."""
        return F.size(F.filter(F.slice(column, F.lit(1), until + 1), has)) - 1

    nth_header = nth("packet_type", F.col("place"), lambda kind: kind.isin(*_WITH_USER_HEADER))
    found = packets.where(F.col("kind").isin(*_MESSAGES)).withColumn("nth", nth_header)
    of_message = F.col("nth")
    has_label = F.get("label_length", of_message) != "0"
    of_label = F.when(has_label, nth("label_length", of_message, lambda length: length != "0"))
    transactional = F.get("transactional", of_message).isin(*_TRUE)
    of_transaction = F.when(transactional, nth("transactional", of_message, lambda flag: flag.isin(*_TRUE)))
    return found.select(
        F.col("frame").cast("bigint").alias("frame"),
        "place",
        F.col("captured").cast("double").cast("timestamp").alias("captured_at"),
        F.coalesce("src", "srcv6").alias("src"),
        F.coalesce("dst", "dstv6").alias("dst"),
        F.col("stream").cast("bigint").alias("stream"),
        F.get("source_queue_manager", of_message).alias("source_queue_manager"),
        F.get("message_id_ordinal", of_message).cast("bigint").alias("message_id_ordinal"),
        F.get("destination_queue", of_message).alias("destination_queue"),
        F.get("label", of_label).alias("label"),
        F.get("body_size", of_message).cast("bigint").alias("body_size"),
        transactional.alias("transactional"),
        F.get("tx_sequence_id", of_transaction).cast("decimal(20,0)").alias("tx_sequence_id"),
        F.get("tx_sequence_number", of_transaction).cast("bigint").alias("number"),
        F.get("previous_tx_sequence_number", of_transaction).cast("bigint").alias("previous"),
    )


def verdicts(found: DataFrame) -> DataFrame:
    """Returns one row per transactional message: what its receiver did, by the highest number that came before it."""
    of_sequence = Window.partitionBy("src", "dst", "source_queue_manager", "tx_sequence_id").orderBy("frame", "place")
    before = of_sequence.rowsBetween(Window.unboundedPreceding, -1)
    number, previous, highest = F.col("number"), F.col("previous"), F.col("highest")
    verdict = (
        F.when(highest.isNull() & (previous > 0), "unknown")
        .when(number <= highest, "duplicate")
        .when(previous > highest, "out_of_order")
        .when(number > F.coalesce(highest, F.lit(0)) + 1, "gap")
        .otherwise("in_order")
    )
    return found.where("transactional").withColumn("highest", F.max(number).over(before)).withColumn("verdict", verdict)


def run(spark: SparkSession, table: Path, folder: Path) -> dict[str, Any]:
    """Writes both tables and returns their counts."""
    places = {name: str(folder / name) for name in ("messages", "verdicts")}
    messages(spark, table).write.format("delta").save(places["messages"])
    verdicts(spark.read.format("delta").load(places["messages"])).write.format("delta").save(places["verdicts"])
    judged = spark.read.format("delta").load(places["verdicts"]).groupBy("verdict").count().collect()
    count = spark.read.format("delta").load(places["messages"]).count()
    return {"messages": count, "verdicts": {row["verdict"]: row["count"] for row in judged}}


def main() -> int:
    """Runs all of it and prints the counts; logs when each step ends; returns the exit code."""
    parser = argparse.ArgumentParser("python tests/day_peer.py", allow_abbrev=False)
    parser.add_argument("capture", type=Path)
    parser.add_argument("folder", type=Path, help="a new one, for the tables")
    asked = parser.parse_args()
    tshark = shutil.which("tshark")
    if tshark is None:
        parser.error("tshark is not installed")
    asked.folder.mkdir(parents=True)
    began = time.monotonic()

    def ended(step: str, **more: Any) -> None:
        line = {"step": step, "seconds": round(time.monotonic() - began, 1), **more}
        print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201 - the log

    table = extract(tshark, asked.capture, asked.folder)
    ended("tshark")
    builder = SparkSession.builder.master("local[*]").appName("a day's work")
    for key, value in spark_defaults().items():
        builder = builder.config(key, value)
    counts = run(builder.getOrCreate(), table, asked.folder)
    ended("Spark", **counts)
    print(json.dumps(counts))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
