"""Makes the tables of a night with so many messages and scopes, which benchmarks of the replay read.

Each run of 500 messages of a scope has one that is resent, two that are swapped and one number that expires.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
from bench_nights import BYTES_PER_MESSAGE
from deltalake import write_deltalake

from jobs.tables import delta_commits
from jobs.tables.layout import DECLARATION
from schemas.ingest import CAPTURES, PACKETS, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, DECODED_TABLES, HANDSHAKES, MESSAGES
from schemas.table import Table
from schemas.tables import INGESTED
from udfs.frames.columns import UTC as _US
from udfs.frames.derivation import to_arrow, to_frame
from udfs.frames.tables import with_columns_of
from udfs.replay.order.ends import NULL_GUID

_T0 = 1_700_000_000_000_000_000
_ROUND = 500  # messages of a scope
_NUMBERS = 499  # of a round
_ROUNDS = 200  # of a sequence
_OF_SEQUENCE = _ROUND * _ROUNDS
_ON_CONNECTION = 20_000  # messages of a scope per connection
_SPACING_NS = 10_000_000
_ACKNOWLEDGED = 20  # messages per OrderAck
_LOST = 10_000  # messages, of which the capture misses one
_QUEUES_OF_ONE = 10  # of so many senders one sends to two queues
_RECEIVERS = 50
_CAPTURE = "0123456789abcdef0123456789abcdef"
_SIZE = 1000  # bytes of a packet
_PACKET = ("stream_id", "stream_offset", "captured_at", "captured_ns", "first_frame", "last_frame")
_PACKET_TYPES = {
    MESSAGES: pl.lit("user_message"),
    ACKS: pl.col("ack_type"),
    HANDSHAKES: pl.col("handshake_type"),
}
_STEPS = ((100, 1), (101, -9), (200, 0), (201, 1), (202, -1), (203, -1), (300, -1))
"""Of a round: up to which place, the number there, less the place."""


def _guid(prefix: str, number: pl.Expr) -> pl.Expr:
    """Returns the GUID of a generated queue manager."""
    digits = number.cast(pl.String).str.zfill(7)
    return pl.concat_str(pl.lit(prefix), digits, pl.lit("-1234-5678-9abc-def012345678"))


def _stream_id(*, forth: bool) -> pl.Expr:
    near = pl.concat_str(pl.lit("10.0."), "scope", pl.lit(".1:"), (49_152 + pl.col("connection")).cast(pl.String))
    far = pl.lit("10.9.0.1:1801")
    return pl.concat_str(*((near, far) if forth else (far, near)), separator=">")


def _sent(messages: int, scopes: int, low: int, high: int) -> pl.DataFrame:
    """Returns a row per message from `low` to `high`: its `scope`, place `k` in it, numbers, connection and offset."""
    of_scope = -(-messages // scopes)
    k, scope, p = pl.col("k"), pl.col("scope"), pl.col("p")
    whole = k + scope * 37 % _ROUND if of_scope < _ROUND else k
    less = pl.lit(0)
    for place, number in reversed(_STEPS):
        less = pl.when(p < place).then(number).otherwise(less)
    of_second = (scope % _QUEUES_OF_ONE == 1).cast(pl.Int64)
    previous = pl.when((k == 0) | (pl.col("number") == 1)).then(0)
    return (
        pl.select(pl.int_range(low, high).alias("id"))
        .select((pl.col("id") // of_scope).alias("scope"), (pl.col("id") % of_scope).alias("k"))
        .with_columns(whole.alias("turn"))
        .with_columns((pl.col("turn") % _ROUND).alias("p"), (k // _ON_CONNECTION).alias("connection"))
        .with_columns((pl.col("turn") // _ROUND % _ROUNDS * _NUMBERS + p + less).alias("number"))
        .with_columns(
            previous.otherwise(pl.col("number") - pl.when(p == 300).then(2).otherwise(1)).alias("previous"),
            (7_000_000_000_000_000_000 + scope * 1_000_000 + pl.col("turn") // _OF_SEQUENCE)
            .cast(pl.UInt64)
            .alias("sequence"),
            (k % _ON_CONNECTION * _SIZE).alias("offset"),
            (_T0 + k * _SPACING_NS + scope).alias("ns"),
            of_second.alias("second"),
            _guid("a", scope - of_second).alias("source"),
            _guid("b", scope % _RECEIVERS).alias("receiver"),
            _stream_id(forth=True).alias("stream_id"),
            # As a sender counts: also where the numbers of a new sequence begin again.
            (pl.col("turn") // _OF_SEQUENCE * _OF_SEQUENCE + pl.col("number")).alias("nth"),
        )
    )


def nights_of(messages: int, scopes: int) -> list[range]:
    """Returns which connections of each scope the first night has; and, if there are several, a later one."""
    of_scope = -(-messages // scopes)
    connections = -(-of_scope // _ON_CONNECTION)
    later = max(connections // 100, 1) if connections > 1 else 0
    return [range(connections - later), *([range(connections - later, connections)] if later else [])]


def _connections(messages: int, scopes: int) -> pl.DataFrame:
    """Returns one row per stream, two of each connection, with the count `n` of its messages and its times."""
    of_scope = -(-messages // scopes)
    scope, first, last = pl.col("scope"), pl.col("connection") * _ON_CONNECTION, pl.col("last")
    of_second = (scope % _QUEUES_OF_ONE == 1).cast(pl.Int64)
    ends = [(pl.col("ns_of") + place * _SPACING_NS) // 1000 for place in (first, last - 1)]
    rows = pl.select(pl.int_range(-(-messages // of_scope)).alias("scope"))
    counts = pl.min_horizontal(of_scope, messages - scope * of_scope)
    both = pl.DataFrame({"from_initiator": [True, False]})
    return (
        rows.with_columns(
            pl.int_ranges(0, (counts + _ON_CONNECTION - 1) // _ON_CONNECTION).alias("connection"),
            counts.alias("of_scope"),
        )
        .explode("connection")
        .with_columns(pl.min_horizontal((pl.col("connection") + 1) * _ON_CONNECTION, "of_scope").alias("last"))
        .with_columns((last - first).alias("n"), (_T0 + scope).alias("ns_of"))
        .with_columns(
            *(at.cast(_US).alias(f"{end}_captured_at") for at, end in zip(ends, ("first", "last"), strict=True)),
            _guid("a", scope - of_second).alias("source"),
            _guid("b", scope % _RECEIVERS).alias("receiver"),
            _stream_id(forth=True).alias("connection_id"),
        )
        .join(both, how="cross")
        .with_columns(
            pl.when("from_initiator").then("connection_id").otherwise(_stream_id(forth=False)).alias("stream_id")
        )
    )


def small_tables(messages: int, scopes: int, night: range) -> dict[Table, pa.Table]:
    """Returns the tables that have a row per connection, with those of a night."""
    rows = _connections(messages, scopes).filter(pl.col("connection").is_in(night))
    address = pl.col("stream_id").str.split(">").list
    streams = rows.select(
        *("stream_id", "connection_id", "from_initiator", "first_captured_at", "last_captured_at"),
        address.get(0).str.replace(r":\d+$", "").alias("src_ip"),
        address.get(1).str.replace(r":\d+$", "").alias("dst_ip"),
        pl.lit(value=False).alias("mid_stream"),
        (pl.col("n") * _SIZE).alias("recovered_bytes"),
        pl.lit(0).alias("missing_bytes"),
    )
    handshakes = rows.select(
        "stream_id",
        pl.lit(1).alias("stream_offset"),  # no other packet of the stream is there
        pl.lit("establish_connection").alias("handshake_type"),
        pl.col("source").alias("client_guid"),
        pl.when("from_initiator").then(pl.lit(NULL_GUID)).otherwise("receiver").alias("server_guid"),
    )
    return {STREAMS: _shaped(STREAMS, streams), HANDSHAKES: _shaped(HANDSHAKES, handshakes)}


def large_tables(messages: int, scopes: int, night: range, at_once: int = 500_000) -> Iterator[dict[Table, pa.Table]]:
    """Yields parts of the tables that have a row for each of some messages, with those of a night."""
    for low in range(0, messages, at_once):
        rows = _sent(messages, scopes, low, min(low + at_once, messages))
        rows = rows.filter(pl.col("connection").is_in(night))
        lost = pl.col("k") % _LOST == _LOST // 2  # not where a sequence begins
        acknowledged = rows.filter(pl.col("k") % _ACKNOWLEDGED == _ACKNOWLEDGED - 1)
        yield {
            MESSAGES: _shaped(MESSAGES, rows.filter(~lost).select(**_message())),
            STREAM_GAPS: _shaped(
                STREAM_GAPS, rows.filter(lost).select("stream_id", stream_offset="offset", length=pl.lit(_SIZE))
            ),
            ACKS: _shaped(ACKS, acknowledged.select(**_ack())),
        }


def write_night(folder: Path, messages: int, scopes: int, night: range) -> None:
    """Writes what a night decodes: each message, acknowledgment and handshake is a packet of one size."""
    small, counts = small_tables(messages, scopes, night), list[pl.DataFrame]()
    for part in ({HANDSHAKES: small[HANDSHAKES]}, *large_tables(messages, scopes, night)):
        for table, rows in part.items():
            _append(folder, table, rows)
            if table in _PACKET_TYPES:
                packets = to_frame(rows).select(
                    *_PACKET, _PACKET_TYPES[table].alias("packet_type"), capture_id=pl.lit(_CAPTURE), size=pl.lit(_SIZE)
                )
                _append(folder, PACKETS, _shaped(PACKETS, packets))
                counts.append(packets.group_by("stream_id").agg(recovered_bytes=pl.sum("size").cast(pl.Int64)))
    recovered = pl.concat(counts).group_by("stream_id").agg(pl.sum("recovered_bytes"))
    streams = to_frame(small[STREAMS]).drop("recovered_bytes").join(recovered, "stream_id")
    capture = {
        "capture_id": _CAPTURE,
        "status": "ok",
        "compression": "none",
        **dict.fromkeys(("size_bytes", "content_bytes"), messages * BYTES_PER_MESSAGE),
        "ingested_at": datetime.fromtimestamp(_T0 // 10**9, UTC),
    }
    whole = {STREAMS: streams} | ({} if night.start else {CAPTURES: pl.DataFrame([capture])})
    for table in (*INGESTED, *DECODED_TABLES):
        _append(folder, table, _shaped(table, whole[table]) if table in whole else table.arrow.empty_table())
        delta_commits.set_properties(str(folder / table.name), {DECLARATION: table.fingerprint})


def _append(folder: Path, table: Table, rows: pa.Table) -> None:
    """Appends rows to a table without constraints; columns that no replay reads are null, or else empty."""
    columns = {
        of.name: values if of.nullable or not values.null_count else pa.repeat(_empty(of.type), len(values))
        for of, values in zip(table.arrow, rows.columns, strict=True)
    }
    write_deltalake(str(folder / table.name), pa.table(columns), mode="append")


def _empty(of: pa.DataType) -> pa.Scalar:
    if pa.types.is_list(of):
        return pa.scalar([], of)
    if pa.types.is_boolean(of):
        return pa.scalar(value=False)
    return pa.scalar(b"" if pa.types.is_binary(of) else "" if pa.types.is_string(of) else 0, of)


def _message() -> dict[str, pl.Expr]:
    number, k, at = pl.col("number"), pl.col("k"), (pl.col("ns") // 1000).cast(_US)
    return {
        "stream_id": pl.col("stream_id"),
        "stream_offset": pl.col("offset"),
        "captured_at": at,
        "captured_ns": pl.col("ns"),
        "capture_id": pl.lit(_CAPTURE),
        "first_frame": k * 2,
        "last_frame": k * 2 + 1,
        "source_queue_manager": pl.col("source"),
        "queue_manager_address": pl.lit(NULL_GUID),
        "destination_queue": pl.concat_str(pl.lit("DIRECT=OS:server\\private$\\orders"), "scope"),
        "message_id": pl.concat_str("source", pl.col("nth") * 2 + pl.col("second"), separator="\\"),
        "message_id_ordinal": k + 1,
        "label": pl.concat_str(pl.lit("order "), "number"),
        "transactional": pl.lit(value=True),
        "tx_sequence_id": pl.col("sequence"),
        "tx_sequence_ordinal": pl.col("scope"),
        "tx_sequence_timestamp": pl.lit(1_600_000_000),
        "tx_sequence_number": number,
        "previous_tx_sequence_number": pl.col("previous"),
        "tx_first": number % 4 == 1,
        "tx_last": number % 4 == 0,
        "tx_transaction_id": ((pl.col("nth") - 1) // 4 * 2 + pl.col("second")) % (1 << 20),
        "message_class": pl.lit(0),
        "body_size": pl.lit(1000),
        "body_type": pl.lit(8),
        "application_tag": pl.lit(0),
        "extension_size": pl.lit(0),
        "sent_at": at - pl.duration(seconds=1),
        "time_to_reach_queue": pl.lit(None, pl.Int64),
        "time_to_be_received": pl.lit(None, pl.Int64),
    }


def _ack() -> dict[str, pl.Expr]:
    names_none = pl.col("k") % (2 * _ACKNOWLEDGED) == _ACKNOWLEDGED - 1
    return {
        "stream_id": _stream_id(forth=False),
        "stream_offset": pl.col("offset"),
        "captured_at": (pl.col("ns") // 1000).cast(_US),
        "captured_ns": pl.col("ns") + _SPACING_NS // 2,
        "ack_type": pl.lit("order_ack"),
        "source_queue_manager": pl.col("receiver"),
        "queue_manager_address": pl.when(names_none).then(pl.lit(NULL_GUID)).otherwise("source"),
        "tx_sequence_id": pl.col("sequence"),
        "tx_sequence_number": pl.col("number"),
        "previous_tx_sequence_number": pl.col("previous"),
    }


def _shaped(table: Table, rows: pl.DataFrame) -> pa.Table:
    made = to_arrow(with_columns_of(table, rows))
    return pa.Table.from_arrays([made[one.name].cast(one.type) for one in table.arrow], schema=table.arrow)
