"""Makes what the replay reads, by Spark: so many messages in so many scopes, without a capture."""

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import StructField

from jobs.app.config import Config
from jobs.bench.nights import BYTES_PER_MESSAGE
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, PACKETS, STREAMS
from schemas.messages import DECODED_TABLES
from schemas.table import Table
from schemas.tables import INGESTED
from schemas.wire import UNLIMITED

T0 = 1_700_000_000_000_000_000  # ns
NULL_GUID = "00000000-0000-0000-0000-000000000000"
CAPTURE = "0123456789abcdef0123456789abcdef"
_ROUND = 500  # messages of a scope; one is resent, two are swapped and one number expires
_NUMBERS = 499  # of a round
_ROUNDS = 200  # of a sequence
_ON_CONNECTION = 20_000  # messages of a scope per connection
_SIZE = 1_000  # bytes of a packet
_SPACING_NS = 10_000_000
_ACKNOWLEDGED = 20  # messages per OrderAck
_LOST = 10_000  # messages, of which the capture misses one


def guid(prefix: str, number: Column) -> Column:
    """Returns the GUID of a generated queue manager."""
    return F.concat(F.lit(prefix), F.lpad(number.cast("string"), 7, "0"), F.lit("-1234-5678-9abc-def012345678"))


def sent(spark: SparkSession, messages: int, scopes: int) -> DataFrame:
    """Returns one row per message: `scope`, its place `k` in it, its numbers, connection and stream offset."""
    of_scope = -(-messages // scopes)
    scope, k = F.expr(f"id div {of_scope}"), F.col("id") % of_scope
    rows = spark.range(messages).select(scope.alias("scope"), k.alias("k"))
    rows = rows.withColumn("turn", F.col("k") + F.col("scope") * 37 % _ROUND if of_scope < _ROUND else F.col("k"))
    p, turn = F.col("p"), F.expr(f"turn div {_ROUND}")
    steps = (  # of a round: from which place on, the number there, less the place
        (300, F.lit(0)),
        (203, F.lit(-1)),
        (202, F.lit(-1)),
        (201, F.lit(-1)),
        (200, F.lit(1)),
        (101, F.lit(0)),
        (100, F.lit(-9)),
    )
    less: Column = F.lit(1)
    for place, number in reversed(steps):
        less = F.when(p >= place, number).otherwise(less)
    number = turn % _ROUNDS * _NUMBERS + p + less
    previous = F.when((F.col("k") == 0) | (F.col("number") == 1), 0).otherwise(
        F.col("number") - F.when(p == 300, 2).otherwise(1)
    )
    sequence = (7_000_000_000_000_000_000 + F.col("scope") * 1_000_000 + F.expr(f"turn div {_ROUND * _ROUNDS}")).cast(
        "decimal(20,0)"
    )
    return (
        rows.withColumn("p", F.col("turn") % _ROUND)
        .withColumn("number", number.cast("long"))
        .withColumn("previous", previous.cast("long"))
        .withColumn("sequence", sequence)
        .withColumn("connection", F.expr(f"k div {_ON_CONNECTION}"))
        .withColumn("offset", F.col("k") % _ON_CONNECTION * _SIZE)
        .withColumn("ns", T0 + F.col("k") * _SPACING_NS + F.col("scope"))
        # Of ten senders one sends to two queues. Their sequences are numbered apart, their messages are not.
        .withColumn("second", (F.col("scope") % 10 == 1).cast("long"))
        .withColumn("source", guid("a", F.col("scope") - F.col("second")))
        .withColumn("receiver", guid("b", F.col("scope") % 50))
        .withColumn("stream_id", _stream_id(forth=True))
    )


def _stream_id(*, forth: bool) -> Column:
    ends = F.concat(F.lit("10.0."), F.col("scope"), F.lit(".1:"), 49_152 + F.col("connection")), F.lit("10.9.0.1:1801")
    return F.concat_ws(">", *(ends if forth else ends[::-1]))


def made(spark: SparkSession, messages: int, scopes: int) -> dict[str, DataFrame]:
    """Returns the tables that the replay reads, but for packets and captures."""
    rows = sent(spark, messages, scopes)
    lost = F.col("k") % _LOST == _LOST - 1
    at = F.timestamp_micros(F.expr("ns div 1000"))
    ordinal = F.col("k") + 1
    known = {
        "stream_offset": F.col("offset"),
        "captured_at": at,
        "captured_ns": F.col("ns"),
        "capture_id": F.lit(CAPTURE),
        "first_frame": F.col("k") * 2,
        "last_frame": F.col("k") * 2 + 1,
        "source_queue_manager": F.col("source"),
        "queue_manager_address": F.lit(NULL_GUID),
        "destination_queue": F.concat(F.lit("DIRECT=OS:server\\private$\\orders"), F.col("scope")),
        "message_id": F.concat_ws("\\", "source", F.col("number") * 2 + F.col("second")),
        "message_id_ordinal": ordinal,
        "label": F.concat(F.lit("order "), F.col("number")),
        "transactional": F.lit(True),
        "tx_sequence_id": F.col("sequence"),
        "tx_sequence_ordinal": F.col("scope"),
        "tx_sequence_timestamp": F.lit(1_600_000_000),
        "tx_sequence_number": F.col("number"),
        "previous_tx_sequence_number": F.col("previous"),
        "tx_first": F.col("number") % 4 == 1,
        "tx_last": F.col("number") % 4 == 0,
        "tx_transaction_id": F.expr("((number - 1) div 4 * 2 + second) % 1048576"),
        "message_class": F.lit(0),
        "body_size": F.lit(1000),
        "body_type": F.lit(8),
        "application_tag": F.lit(0),
        "extension_size": F.lit(0),
        "correlation_id": F.lit(None),
        "sent_at": at - F.expr("interval 1 second"),
        "time_to_reach_queue": F.lit(UNLIMITED),
        "time_to_be_received": F.lit(UNLIMITED),
    }
    ends = (
        rows.groupBy("scope", "connection", "source", "receiver")
        .agg(F.min(at).alias("first_captured_at"), F.max(at).alias("last_captured_at"), F.count("*").alias("n"))
        .withColumn("connection_id", _stream_id(forth=True))
        .withColumn("stream_id", F.explode(F.array(_stream_id(forth=True), _stream_id(forth=False))))
        .withColumn("from_initiator", F.col("stream_id") == F.col("connection_id"))
        .withColumn("addresses", F.transform(F.split("stream_id", ">"), lambda end: F.substring_index(end, ":", 1)))
    )
    acknowledged = rows.where(F.col("k") % _ACKNOWLEDGED == _ACKNOWLEDGED - 1)
    made_columns: dict[str, tuple[DataFrame, dict[str, Column]]] = {
        "messages": (rows.where(~lost), known),
        "streams": (
            ends,
            {
                "src_ip": F.col("addresses")[0],
                "dst_ip": F.col("addresses")[1],
                "mid_stream": F.lit(False),
                "recovered_bytes": F.col("n") * _SIZE,
                "missing_bytes": F.lit(0),
            },
        ),
        "stream_gaps": (rows.where(lost), {"stream_offset": F.col("offset"), "length": F.lit(_SIZE)}),
        "quarantine": (rows.where("false"), {"stage": F.lit("framing"), "stream_offset": F.col("offset")}),
        "acks": (
            acknowledged,
            {
                "stream_id": _stream_id(forth=False),
                "stream_offset": F.col("offset"),
                "captured_at": at,
                "captured_ns": F.col("ns") + 5_000_000,
                "ack_type": F.lit("order_ack"),
                "source_queue_manager": F.col("receiver"),
                "queue_manager_address": F.when(F.col("k") % 40 == 19, NULL_GUID).otherwise(F.col("source")),
                "tx_sequence_id": F.col("sequence"),
                "tx_sequence_number": F.col("number"),
                "previous_tx_sequence_number": F.col("previous"),
            },
        ),
        "handshakes": (
            ends,
            {
                "stream_offset": F.lit(1),  # no other packet of the stream is there
                "handshake_type": F.lit("establish_connection"),
                "client_guid": F.col("source"),
                "server_guid": F.when(F.col("from_initiator"), NULL_GUID).otherwise(F.col("receiver")),
            },
        ),
    }
    tables = {table.name: table for table in (*INGESTED, *DECODED_TABLES)}
    return {name: _shaped(tables[name], *of) for name, of in made_columns.items()}


def _shaped(table: Table, rows: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Returns the rows with all columns of the table; those that nobody gives are null, or else empty."""
    given = {name: F.col(name) for name in rows.columns} | columns
    return rows.select(*(given.get(of.name, _empty(of)).cast(of.dataType).alias(of.name) for of in table.spark))


def _empty(of: StructField) -> Column:
    """Returns a column without a value."""
    if of.nullable:
        return F.lit(None)
    kind = of.dataType.typeName()
    return F.array() if kind == "array" else F.lit("" if kind in ("string", "binary") else 0)


def write_warehouse(spark: SparkSession, folder: Path, messages: int, scopes: int) -> None:
    """Writes a warehouse as `decode` leaves it."""
    tables = made(spark, messages, scopes)
    kinds = {"messages": F.lit("user_message"), "acks": F.col("ack_type"), "handshakes": F.col("handshake_type")}
    keys = ("stream_id", "stream_offset", "captured_at", "captured_ns", "capture_id", "first_frame", "last_frame")
    packets = reduce(
        DataFrame.unionByName, (tables[name].select(*keys, of.alias("packet_type")) for name, of in kinds.items())
    )
    capture = {
        "capture_id": F.lit(CAPTURE),
        "size_bytes": F.lit(messages * BYTES_PER_MESSAGE),
        "content_bytes": F.lit(messages * BYTES_PER_MESSAGE),
        "status": F.lit("ok"),
        "compression": F.lit("none"),
        "ingested_at": F.lit(T0 // 10**9).cast("timestamp"),
    }
    recovered = packets.groupBy("stream_id").agg((F.count("*") * _SIZE).alias("recovered_bytes"))
    streams = tables["streams"].drop("recovered_bytes").join(recovered, "stream_id")
    whole = {
        **tables,
        "streams": streams.select(STREAMS.names),
        "packets": _shaped(PACKETS, packets, {"size": F.lit(_SIZE)}),
        "captures": _shaped(CAPTURES, spark.range(1), capture),
    }
    warehouse = Warehouse.of(spark, Config.load({"warehouse": str(folder)}, None))
    for table in (*INGESTED, *DECODED_TABLES):
        warehouse.create(table)
        if table.name in whole:
            whole[table.name].write.format("delta").mode("append").save(warehouse.location(table.name))
