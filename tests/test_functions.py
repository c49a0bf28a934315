"""The functions that decode packets in SQL say what the tables say, and fail on no bytes."""

import random
from pathlib import Path
from typing import Any

import pytest
from plain_parser import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from random_packets import any_packet, damaged, stored, tables
from test_connect import run_over_connect

from jobs.cli.command import Summary
from schemas.ingest import PACKETS
from schemas.messages import ACKS, MESSAGES
from udfs import functions

HEADERS = ("msmq_user_header", "msmq_transaction_header", "msmq_message_properties")
Row = dict[str, Any]


def decoded(name: str, raw: bytes) -> Row | None:
    """What a function makes of a packet, without Spark."""
    return functions.DECODERS[name][1](raw)


def agrees(raw: bytes, size: int, expected: Row | tuple[str, str]) -> None:
    """Holds what the functions say of a packet to what the tables hold of it: a row, or a reason and a sentence."""
    packet = decoded("msmq_packet", raw)
    assert packet is not None
    if isinstance(expected, tuple):
        assert (packet["decodes"], packet["reason"], packet["detail"]) == (False, *expected)
        assert [decoded(name, raw) for name in HEADERS] == [None] * 3
        return
    assert (packet["decodes"], packet["size"], packet["packet_type"]) == (True, size, expected["packet_type"])
    for name in HEADERS:
        header = decoded(name, raw) or {}
        assert {column: expected.get(column, value) for column, value in header.items()} == header
    assert (decoded("msmq_transaction_header", raw) is not None) == bool(expected.get("transactional"))


def test_packets_whole_and_without_their_bodies_say_what_the_tables_and_a_third_parser_say() -> None:
    rng = random.Random(1)
    packets = [any_packet(rng) for _ in range(500)]
    without_bodies = [stored(packet) for packet in packets]
    assert sum(len(raw) < size for raw, _, size in without_bodies) > 200
    for packet, (raw, _, size) in zip(packets, without_bodies, strict=True):
        agrees(packet, size, parse(packet))
        agrees(raw, size, parse(packet))
    broken = [damaged(rng, packet) for packet in packets]
    rows = tables([(packet, None, len(packet)) for packet in broken])
    assert sum(isinstance(row, tuple) for row in rows) > 20
    for packet, row in zip(broken, rows, strict=True):
        agrees(packet, len(packet), row)


def test_no_bytes_are_an_error() -> None:
    rng = random.Random(6)
    packet = any_packet(rng)
    tries = [b"", b"\x10", b"LIOR" * 9, *(packet[:cut] for cut in range(len(packet)))]
    tries += [rng.randbytes(rng.randrange(200)) for _ in range(500)]
    tries += [damaged(rng, packet)[: rng.randrange(len(packet))] + rng.randbytes(3) for _ in range(500)]
    for raw in tries:
        for name in functions.DECODERS:
            decoded(name, raw)


def packets_with_rows(spark: SparkSession, warehouse: Path) -> DataFrame:
    """Every packet of a warehouse beside its row of `messages` and of `acks`, where it has one."""
    packets, messages, acks = (
        spark.read.format("delta").load(str(warehouse / table.name)) for table in (PACKETS, MESSAGES, ACKS)
    )
    key = ["stream_id", "stream_offset"]
    both = messages.select(*key, F.struct("*").alias("m")), acks.select(*key, F.struct("*").alias("a"))
    return packets.join(both[0], key, "left").join(both[1], key, "left")


def test_the_registered_functions_say_what_the_tables_say(spark: SparkSession, orders: tuple[Path, Summary]) -> None:
    functions.register(spark)
    rows = packets_with_rows(spark, orders[0])
    calls = {name.removeprefix("msmq_"): F.call_function(name, F.col("raw")) for name in functions.DECODERS}
    found = rows.withColumns(calls).cache()
    user_shaped = "m IS NOT NULL OR a IS NOT NULL"
    differ = {
        "packet": F.expr("packet.packet_type <> packet_type OR packet.size <> size OR NOT packet.decodes"),
        "user_header": F.expr(f"(user_header IS NOT NULL) <> ({user_shaped})"),
        "message_properties": F.expr(f"(message_properties IS NOT NULL) <> ({user_shaped})"),
        "transaction_header": F.expr("(transaction_header IS NOT NULL) <> coalesce(m.transactional, false)"),
    }
    for header in ("user_header", "transaction_header", "message_properties"):
        for field in found.schema[header].dataType.names:  # type: ignore[attr-defined]
            same = F.col(f"{header}.{field}").eqNullSafe(F.col(f"m.{field}"))
            differ[f"{header}.{field}"] = F.col("m").isNotNull() & F.col(header).isNotNull() & ~same
    counts = found.select(*(F.count_if(wrong).alias(name) for name, wrong in differ.items()), F.count("*").alias("all"))
    (counted,) = counts.collect()
    found.unpersist()
    assert counted.asDict() == dict.fromkeys(differ, 0) | {"all": rows.count()}
    nothing = spark.sql("SELECT msmq_user_header(CAST('garbage' AS BINARY)), msmq_packet(CAST(NULL AS BINARY))")
    assert list(nothing.collect()[0]) == [None, None]


OVER_CONNECT = """
import sys
from pyspark.sql import SparkSession
from udfs import functions
spark = SparkSession.builder.getOrCreate()
functions.register(spark)
packets = spark.read.format("delta").load(sys.argv[1])
packets.createOrReplaceTempView("packets")
print(spark.sql("SELECT count(msmq_user_header(raw).source_queue_manager) FROM packets").first()[0])
print(packets.where("msmq_user_header(raw) IS NOT NULL").count())
"""


@pytest.mark.slow
def test_the_functions_work_over_spark_connect(spark: SparkSession, orders: tuple[Path, Summary]) -> None:
    done = run_over_connect(spark, OVER_CONNECT, str(orders[0] / PACKETS.name))
    assert done.returncode == 0, done.stderr[-3000:]
    expected = packets_with_rows(spark, orders[0]).where("m IS NOT NULL OR a IS NOT NULL").count()
    assert done.stdout.split() == [str(expected)] * 2
