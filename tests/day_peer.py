"""Does what a user would build in a day instead of this product: `python tests/day_peer.py CAPTURE FOLDER`.

tshark writes the fields of messages, by the generated dissector. Spark makes two Delta tables of them: `messages`, and
`verdicts`, by one window over each sequence of a session and sender, in the order of the capture. That is right for a
clean capture with one message in a frame. It takes one file, and knows nothing of routers, acknowledgments and bytes
that the capture missed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.spark_session import spark_defaults
from jobs.wireshark.generate import dissector

_OF_FRAME = {
    "frame": ("frame.number", "bigint"),
    "captured": ("frame.time_epoch", "double"),
    **{end + version: (f"ip{version}.{end}", "string") for end in ("src", "dst") for version in ("", "v6")},
    "stream": ("tcp.stream", "bigint"),
}
_OF_PACKET = {
    **dict.fromkeys(("packet_type", "source_queue_manager", "destination_queue", "label", "transactional"), "string"),
    **dict.fromkeys(("message_id_ordinal", "body_size", "tx_sequence_number", "previous_tx_sequence_number"), "bigint"),
    "tx_sequence_id": "decimal(20,0)",
}
"""Types of fields of which a frame has one for each packet."""
_BETWEEN = "\x1f"  # values of a frame; tshark escapes control characters in texts
_MESSAGES = ("user_message", "administration")
_TRUE = ("1", "True")  # as tshark 4.0 and as 4.2 print it


def extract(capture: Path, folder: Path) -> Path:
    """Writes the fields of all frames that end a message as tab-separated values; returns their file."""
    table, script = folder / "fields.tsv", folder / "msmq.lua"
    script.write_text(dissector(), encoding="utf-8")
    fields = [*(field for field, _ in _OF_FRAME.values()), *(f"msmq.{name}" for name in _OF_PACKET)]
    settings = ["-X", f"lua_script:{script}", "-o", f"msmq.only:{','.join(_OF_PACKET)}"]
    command = ["tshark", *settings, "-r", str(capture), "-Y", "msmq.source_queue_manager", "-T", "fields"]
    command += ["-E", f"aggregator={_BETWEEN}", *(option for field in fields for option in ("-e", field))]
    with table.open("wb") as out:
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL)
    return table


def messages(spark: SparkSession, table: Path) -> DataFrame:
    """Returns one row per message."""
    schema = ", ".join(f"{name} STRING" for name in (*_OF_FRAME, *_OF_PACKET))
    frames = spark.read.csv(str(table), schema, sep="\t", quote="", escape="")
    packets = F.arrays_zip(*(F.coalesce(F.split(name, _BETWEEN), F.array()).alias(name) for name in _OF_PACKET))
    found = frames.select(*_OF_FRAME, F.posexplode(packets).alias("place", "packet"))
    return found.where(F.col("packet.packet_type").isin(*_MESSAGES)).select(
        *(F.col(name).cast(kind).alias(name) for name, (_, kind) in _OF_FRAME.items()),
        "place",
        *(F.col(f"packet.{name}").cast(kind).alias(name) for name, kind in _OF_PACKET.items()),
    )


def verdicts(found: DataFrame) -> DataFrame:
    """Returns one row per transactional message: what its receiver did, by the highest number that came before it."""
    of_session = ("src", "srcv6", "dst", "dstv6", "source_queue_manager", "tx_sequence_id")
    before = Window.partitionBy(*of_session).orderBy("frame", "place").rowsBetween(Window.unboundedPreceding, -1)
    number, previous, highest = F.col("tx_sequence_number"), F.col("previous_tx_sequence_number"), F.col("highest")
    verdict = (
        F.when(highest.isNull() & (previous > 0), "unknown")
        .when(number <= highest, "duplicate")
        .when(previous > highest, "out_of_order")
        .when(number > F.coalesce(highest, F.lit(0)) + 1, "gap")
        .otherwise("in_order")
    )
    judged = found.where(F.col("transactional").isin(*_TRUE)).withColumn("highest", F.max(number).over(before))
    return judged.withColumn("verdict", verdict)


def main() -> None:
    """Writes both tables; logs when each step ends."""
    parser = argparse.ArgumentParser("python tests/day_peer.py", allow_abbrev=False)
    parser.add_argument("capture", type=Path)
    parser.add_argument("folder", type=Path, help="a new one, for the tables")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True)
    began = time.monotonic()

    def ended(step: str) -> None:
        line = {"step": step, "seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201 - the log

    table = extract(asked.capture, asked.folder)
    ended("tshark")
    spark = (
        SparkSession.builder.master("local[*]").appName("a day's work").config(map={**spark_defaults()}).getOrCreate()
    )
    places = {name: str(asked.folder / name) for name in ("messages", "verdicts")}
    messages(spark, table).write.format("delta").save(places["messages"])
    verdicts(spark.read.format("delta").load(places["messages"])).write.format("delta").save(places["verdicts"])
    spark.read.format("delta").load(places["verdicts"]).groupBy("verdict").count().show()
    ended("Spark")


if __name__ == "__main__":
    main()
