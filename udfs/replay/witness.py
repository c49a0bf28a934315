"""Looks up the frames of the packets that a witness names."""

import polars as pl

from schemas.replay import Verdict
from schemas.table import row
from schemas.witness import WITNESS, Shows
from udfs.frames.columns import PLACE, key_at, row_key
from udfs.frames.derivation import derives
from udfs.frames.tables import schema_of

_ROLES = {
    Verdict.DUPLICATE.value: Shows.DUPLICATE.value,
    Verdict.OUT_OF_ORDER.value: Shows.REFUSED.value,
    Verdict.UNKNOWN.value: Shows.NOT_JUDGED.value,
}
_PACKETS = schema_of(row(witness=WITNESS.type))["witness"]
_OF_PACKET = pl.Series(dtype=_PACKETS).explode().struct.fields


def with_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows whose `witness` lists keys in place of packets."""
    packet = pl.element().struct
    key = key_at(packet.field("stream_id"), packet.field("stream_offset"))
    return rows.with_columns(pl.col("witness").list.eval(key))


@derives(columns=dict.fromkeys(("outcomes", "findings", "incidents"), ("witness",)))
def places_of(**tables: pl.DataFrame) -> pl.DataFrame:
    """Returns each `stream_id` and `stream_offset` that a key in `witness` of these rows names, once."""
    keys = pl.concat(rows.select(pl.col("witness").explode().alias("key")) for rows in tables.values())
    return keys.drop_nulls().unique().select(_stream_id(), _stream_offset())


@derives(
    columns={
        "packets": (*PLACE, "packet_type", "capture_id", "captured_at", "first_frame"),
        "verdicts": (*PLACE, "verdict"),
    },
)
def find_frames(packets: pl.DataFrame, verdicts: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the `key` of packets, and `packet`: an element of WITNESS without `stream_id` and `stream_offset`.

    Verdicts need only be those of these packets.
    """
    verdict = pl.col("verdict")
    accepted = pl.lit(Shows.ACCEPTED.value)
    role = pl.when(verdict.is_null()).then("packet_type").otherwise(verdict.replace_strict(_ROLES, default=accepted))
    return (
        packets.select(*PLACE, "packet_type", "capture_id", "captured_at", frame_number="first_frame")
        .join(verdicts.select(*PLACE, "verdict"), on=PLACE, how="left")
        .join(captures.select("capture_id", "uri"), on="capture_id", how="left")
        .select(
            row_key().alias("key"),
            pl.struct(role.alias("role"), "uri", "capture_id", "frame_number", "captured_at").alias("packet"),
        )
    )


def with_frames(rows: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Returns rows whose `witness` lists packets in order of time, in place of their keys.

    A key without a packet stays, with the role `not_found`. `frames` are those of `find_frames`.
    """
    numbered = rows.with_row_index("row")
    packets = (
        numbered.select("row", pl.col("witness").alias("key"))
        .explode("key")
        .drop_nulls("key")
        .join(frames, on="key", how="left")
        .unnest("packet")
        .with_columns(pl.col("role").fill_null(Shows.NOT_FOUND.value), _stream_id(), _stream_offset())
        .sort("captured_at", *_OF_PACKET)
        .group_by("row")
        .agg(pl.struct(*_OF_PACKET).alias("witness"))
    )
    return (
        numbered.drop("witness")
        .join(packets, on="row", how="left")
        .with_columns(pl.coalesce("witness", pl.lit([], dtype=_PACKETS)))
        .select(rows.columns)
    )


def _stream_id() -> pl.Expr:
    return pl.col("key").str.extract(r"^([^@]*)").alias("stream_id")


def _stream_offset() -> pl.Expr:
    return pl.col("key").str.extract(r"([^@]*)$").cast(pl.Int64).alias("stream_offset")
