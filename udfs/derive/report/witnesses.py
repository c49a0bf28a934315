"""Looks up the rows that prove what a report lists."""

from collections.abc import Iterable, Sequence
from functools import reduce

import polars as pl

from udfs.derive.columns import null

KEY = ["stream_id", "stream_offset"]
_COLUMNS = pl.Schema(
    {
        **dict.fromkeys(("stream_id", "capture_id"), pl.String),
        **dict.fromkeys(("stream_offset", "captured_ns", "first_frame", "last_frame"), pl.Int64),
        **dict.fromkeys(("message_id", "destination_queue", "label", "verdict", "reason"), pl.String),
        **dict.fromkeys(("tx_sequence_id", "incoming_tx_sequence_id"), pl.UInt64),
        **dict.fromkeys(("tx_sequence_number", "previous_tx_sequence_number", "incoming_tx_sequence_number"), pl.Int64),
        "ack_latency_ms": pl.Float64,
        **dict.fromkeys(("ack_type", "acknowledged_message_id", "packet_type"), pl.String),
        **dict.fromkeys(("message_class", "length"), pl.Int64),
    }
)


def of_witness(names: Iterable[str]) -> list[str]:
    """Returns which of the columns of a table a witness shows."""
    return [name for name in names if name in _COLUMNS]


def witness_keys(listed: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Returns the distinct keys (KEY) of the packets in `witness` of these rows."""
    packets = pl.concat(rows.select(pl.col("witness").explode()) for rows in listed)
    return packets.select(pl.col("witness").struct[name] for name in KEY).drop_nulls().unique()


def witness_rows(keys: pl.DataFrame, tables: Sequence[pl.DataFrame], captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with these distinct keys (KEY), each from the first table that has it, with its capture's `uri`.

    Columns that a table lacks are null.
    """

    def found(rows: pl.DataFrame) -> pl.DataFrame:
        columns = (pl.col(name) if name in rows.columns else null(of).alias(name) for name, of in _COLUMNS.items())
        return rows.join(keys, on=KEY, how="semi").select(columns).cast(_COLUMNS)

    def added(before: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([before, found(rows).join(before, on=KEY, how="anti")])

    best = reduce(added, tables, pl.DataFrame(schema=_COLUMNS))
    return best.join(captures.select("capture_id", "uri"), on="capture_id", how="left")


def unseen(keys: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the keys that no row has."""
    return keys.join(rows, on=KEY, how="anti")


def uris(captures: pl.DataFrame, wanted: Sequence[str]) -> pl.DataFrame:
    """Returns `capture_id` and `uri` of these captures."""
    return captures.filter(pl.col("capture_id").is_in(list(wanted))).select("capture_id", "uri")
