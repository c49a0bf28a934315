"""Tells how long, and how completely, the acknowledgments of a session could be seen."""

import polars as pl

from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.frames.columns import ACK_PAIR, way_back
from udfs.replay.order.scopes import SENDER_THERE


def watched_sessions(
    ends: pl.DataFrame, unread: pl.DataFrame, answered: pl.DataFrame, senders: pl.DataFrame
) -> pl.DataFrame:
    """Returns per session and original sender how long, and how completely, its OrderAcks could be seen.

    `watched_ns` is the time of the last segment of either direction, in ns since 1970; `answers_whole` says that no
    byte from the receiver is unread. Only `senders`, whose messages came on the session, have a row, and only where the
    captures hold an OrderAck for them: elsewhere acknowledgments may take another path. `unread` are the streams with
    unread bytes, `answered` the pairs of `receiver` and `source_queue_manager` that OrderAcks name; both may repeat.
    """
    ways = (
        ends.filter(pl.col("copy_of").is_null())
        .with_columns(pl.col("stream_id").is_in(unread["stream_id"].implode()).alias("unread"))
        .group_by("session_id", "sender", "receiver")
        .agg(pl.col("last_ns").max(), ~pl.col("unread").any().alias("whole"))
    )
    back = ways.select(
        way_back(),
        pl.col("last_ns").alias("back_ns"),
        pl.col("whole").alias("answers_whole"),
    )
    # Without the sessions' own senders, each session of a receiver would meet all senders of that receiver.
    return (
        ways.join(back, on="session_id")
        .join(senders.select(SENDER_THERE).unique(), on="session_id")
        .join(answered, on=ACK_PAIR, how="semi")
        .select(*SENDER_THERE, pl.max_horizontal("last_ns", "back_ns").alias("watched_ns"), "answers_whole")
    )


def is_overdue(sent_ns: str = "captured_ns") -> pl.Expr:
    """Returns whether a session was watched for longer after a message than the timers of an OrderAck allow."""
    return pl.col("watched_ns") - pl.col(sent_ns) > LATEST_ORDER_ACK_NS
