"""Chooses what the pictures of the worst sessions show: messages, OrderAcks and missing bytes over time."""

from datetime import datetime

import polars as pl

from schemas.replay import Verdict
from udfs.derive.columns import ACK_PAIR, PLACE, SEQUENCE, count, count_if, nanoseconds, signed
from udfs.derive.frames import Frames, derives
from udfs.derive.replay.acks import pair_acks, select_order_acks
from udfs.derive.report.rows import in_period

PICTURE = ["session_id", "scope_key"]
_POINT = (
    *("source_queue_manager", "destination_queue", "captured_ns", "tx_sequence_id", "tx_sequence_number"),
    *("previous_tx_sequence_number", "verdict", "ack_latency_ms", "capture_id", "last_frame"),
)


@derives(
    ("session_id",),
    columns={"verdicts": (*PICTURE, *PLACE, "captured_at", "replay_order", "accepted", *_POINT, "fate")},
)
def of_drawn(verdicts: pl.DataFrame, gaps: pl.DataFrame, *, since: datetime | None, scopes: int, limit: int) -> Frames:
    """Returns `points` and `holes` of whole sessions: `verdicts` with their `fate`, and `gaps` with `carriers`."""
    recent = verdicts.filter(in_period(since))
    return {"points": points(recent, scopes, limit), "holes": holes(gaps, recent, limit)}


def points(verdicts: pl.DataFrame, scopes: int, limit: int) -> pl.DataFrame:
    """Returns the messages of each session's worst `scopes` scopes, about `limit` of each at most, in replay order.

    Each verdict of a scope gets an equal share of the limit and is thinned evenly to it, so a few refused messages
    among many accepted ones all stay. `messages` counts those of the scope, `scopes` those of the session.
    """
    alike = [*PICTURE, "verdict"]
    refused = ~pl.col("accepted").fill_null(value=False) & (pl.col("verdict") != Verdict.DUPLICATE.value)
    kinds = verdicts.group_by(alike).agg(count().alias("of"), count_if(refused).alias("refused"))
    pictures = (
        kinds.group_by(PICTURE)
        .agg(
            pl.col("refused").sum().alias("bad"),
            pl.col("of").sum().alias("messages"),
            (-(-limit // count())).alias("share"),
        )
        .sort("session_id", "bad", "messages", "scope_key", descending=[False, True, True, False])
        .with_columns(
            pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("session_id").alias("place"),
            count().over("session_id").alias("scopes"),
        )
        .filter(pl.col("place") <= scopes)
        .drop("bad")
    )
    needed = verdicts.select(*PICTURE, "replay_order", *_POINT, "fate")
    worst = needed.join(kinds.drop("refused").join(pictures, on=PICTURE), on=alike)
    return (
        _thinned(worst, alike, ["replay_order"])
        .sort("session_id", "place", "replay_order")
        .select(*PICTURE, "place", "scopes", "messages", *_POINT, "fate")
    )


def _thinned(rows: pl.DataFrame, within: list[str], order: list[str]) -> pl.DataFrame:
    """Returns every k-th row and the last one of each group, about `share` of its `of` rows: columns of theirs."""
    rank = pl.int_range(pl.len(), dtype=pl.Int64).over(within)
    every = -(-pl.col("of") // pl.col("share").clip(1))
    return rows.sort(order).filter((rank % every == 0) | (rank == pl.col("of") - 1)).drop("of", "share")


def _thinned_to(limit: int, rows: pl.DataFrame, within: list[str], order: list[str]) -> pl.DataFrame:
    """Returns every k-th row and the last one, about `limit` rows of each group."""
    counted = rows.with_columns(count().over(within).alias("of"), pl.lit(limit, pl.Int64).alias("share"))
    return _thinned(counted, within, order)


def pictures(points: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Returns PICTURE, `source_queue_manager` and `receiver` of the drawn scopes, a session's worst first.

    `sessions` has `session_id` and `receiver`.
    """
    drawn = points.select("session_id", "place", "scope_key", "source_queue_manager").unique()
    return (
        drawn.join(sessions.select("session_id", "receiver"), on="session_id")
        .sort("session_id", "place", "scope_key", "source_queue_manager")
        .select(*PICTURE, "source_queue_manager", "receiver")
    )


def asked(pictures: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns `pictures` once for each of their sequences, with its `tx_sequence_id`."""
    return pictures.join(sequences.select(SEQUENCE), on="scope_key")


@derives(("tx_sequence_id",), ("ends", "asked"))
def order_acks(acks: pl.DataFrame, ends: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Returns the OrderAcks for the scopes of pictures: PICTURE, `ns`, `number`.

    `ends` have no copies. Of `acks`, those for the sequences that are `asked` for suffice. One without an addressee is
    for the senders that are drawn of its session.
    """
    sequences = asked.with_columns(signed(pl.col("tx_sequence_id")).alias("sequence"))
    pairs = select_order_acks(pair_acks(acks, ends, asked, sequences))
    found = pairs.join(sequences, on=[*ACK_PAIR, "sequence"])
    return found.select(*PICTURE, "ns", "number").unique()


@derives(PICTURE)
def stairs(acks: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns about `limit` of the `order_acks` of each picture, at most, in order of time."""
    return _thinned_to(limit, acks.unique(), PICTURE, ["ns", "number"]).sort(*PICTURE, "ns", "number")


def carriers(ends: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `session_id` and `end_ns`, the end of the stream, of all streams; `ends` have no copies."""
    last = streams.select("stream_id", nanoseconds(pl.col("last_captured_at")).alias("end_ns"))
    return ends.select("stream_id", "session_id").join(last, on="stream_id")


def holes(gaps: pl.DataFrame, verdicts: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the missing bytes of the sessions of these verdicts, about `limit` steps of each: `ns`, `missing_bytes`.

    `missing_bytes` is a running sum. A gap has the time of the next message on its stream, else of the stream's end.
    `gaps` are rows of STREAM_GAPS with `carriers`.
    """
    timed = verdicts.select(*PLACE, pl.col("captured_ns").alias("next_ns")).drop_nulls("next_ns")
    missing = (
        gaps.join(verdicts.select("session_id"), on="session_id", how="semi")
        .sort("stream_offset")
        .join_asof(
            timed.sort("stream_offset"),
            on="stream_offset",
            by="stream_id",
            strategy="forward",
            check_sortedness=False,
        )
        .with_columns(pl.coalesce("next_ns", "end_ns").alias("ns"))
        .sort("session_id", "ns", *PLACE)
        .with_columns(pl.col("length").cum_sum().over("session_id").alias("missing_bytes"))
    )
    return (
        _thinned_to(limit, missing, ["session_id"], ["missing_bytes"])
        .select("session_id", "ns", "missing_bytes")
        .sort("session_id", "missing_bytes")
    )
