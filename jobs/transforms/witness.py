"""Looks up the frames of the packets that a witness names."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.replay import Verdict
from schemas.witness import WITNESS, Shows

_ROLES = {
    Verdict.DUPLICATE: Shows.DUPLICATE,
    Verdict.OUT_OF_ORDER: Shows.REFUSED,
    Verdict.UNKNOWN: Shows.NOT_JUDGED,
}


def find_frames(keys: DataFrame, packets: DataFrame, verdicts: DataFrame, captures: DataFrame) -> DataFrame:
    """Returns `key` and `packet`, an element of WITNESS without `stream_id` and `stream_offset`, of packets with a key.

    The keys are those in `witness` of the rows.
    """
    named = keys.select(F.explode("witness").alias("key")).distinct()
    named = named.withColumns({"stream_id": _stream_id(), "stream_offset": _stream_offset()})
    place = ["stream_id", "stream_offset"]
    found = packets.join(F.broadcast(named), place).select(
        *place, "key", "packet_type", "capture_id", "captured_at", F.col("first_frame").alias("frame_number")
    )
    judged = verdicts.join(F.broadcast(named.select(*place)), place, "left_semi").select(*place, "verdict")
    role = F.when(F.col("verdict").isNotNull(), Shows.ACCEPTED.value).otherwise(F.col("packet_type"))
    for verdict, shown in _ROLES.items():
        role = F.when(F.col("verdict") == verdict.value, shown.value).otherwise(role)
    uris = captures.select("capture_id", "uri")
    return (
        found.join(judged, place, "left")
        .join(F.broadcast(uris), "capture_id", "left")
        .select("key", F.struct(role.alias("role"), "uri", "capture_id", "frame_number", "captured_at").alias("packet"))
    )


def with_frames(rows: DataFrame, frames: DataFrame) -> DataFrame:
    """Returns rows whose `witness` lists packets in order of time, in place of their keys.

    A key without a packet stays, with the role `not_found`.
    """
    others = [name for name in rows.columns if name != "witness"]
    of_packet = [f"packet.{name}" for name in ("uri", "capture_id", "frame_number", "captured_at")]
    role = F.coalesce("packet.role", F.lit(Shows.NOT_FOUND.value)).alias("role")
    place = (_stream_id().alias("stream_id"), _stream_offset().alias("stream_offset"))
    shown = F.struct(F.col("packet.captured_at").alias("time"), F.struct(role, *of_packet, *place).alias("shown"))
    in_order = F.array_sort(F.collect_list(F.when(F.col("key").isNotNull(), shown)))
    return (
        rows.select(*others, F.explode_outer("witness").alias("key"))
        .join(frames, "key", "left")
        .groupBy(*others)
        .agg(F.transform(in_order, lambda one: one["shown"]).cast(WITNESS.type).alias("witness"))
    )


def keys_of(*tables: DataFrame) -> DataFrame:
    """Returns the witnesses of all rows of these tables."""
    return reduce(DataFrame.union, (rows.select("witness") for rows in tables))


def _stream_id() -> Column:
    return F.substring_index("key", "@", 1)


def _stream_offset() -> Column:
    return F.substring_index("key", "@", -1).cast("long")
