"""Counts what acknowledgments show."""

import polars as pl

from schemas.messages import AckType
from schemas.replay import Verdict
from schemas.wire import NEGATIVE_CLASS
from udfs.derive.columns import quotient, row_key, timestamp, unsigned
from udfs.replay.words import NS

_REPEATED_TIMES, _REPEATED_S = 3, 60  # over two of the shortest resend intervals
_OF_PAIR = ("receiver", "source_queue_manager", "tx_sequence_id")
_OF_VERDICT = ("scope_key", "session_id", "destination_queue", "verdict", "tx_sequence_number", "captured_ns")
_FIGURES = ("number", "messages", "first_ns", "last_ns", "first_key", "last_key")
_ABOUT = ("session_id", "destination_queue", "transactional", "time_to_be_received", "time_to_reach_queue")


def repeated_acks(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the OrderAcks for the highest number of a pair's sequence, if they came often and over a long time.

    One row per `receiver`, `source_queue_manager` and `tx_sequence_id`: the `number`, how many `messages` acknowledge
    it, and time (ns since 1970) and key of the first and of the last of them.
    """
    pair = ("receiver", "source_queue_manager", "sequence")
    is_order_ack = pl.col("ack_type") == AckType.ORDER_ACK.value
    return (
        acks.filter(is_order_ack)
        .filter(pl.col("number").eq_missing(pl.col("number").max().over(pair)))
        .sort("ns", "key")
        .group_by(*pair, "number")
        .agg(
            pl.len().cast(pl.Int64).alias("messages"),
            pl.first("ns").alias("first_ns"),
            pl.last("ns").alias("last_ns"),
            pl.first("key").alias("first_key"),
            pl.last("key").alias("last_key"),
        )
        .filter(pl.col("messages") >= _REPEATED_TIMES, pl.col("last_ns") - pl.col("first_ns") >= _REPEATED_S * NS)
        .with_columns(tx_sequence_id=unsigned(pl.col("sequence")))
        .select(*_OF_PAIR, *_FIGURES)
    )


def refused_meanwhile(repeated: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of RepeatedOrderAck for all sequences of a scope, not only for its last one.

    `repeated` are the `repeated_acks`. `refused` counts messages with higher numbers from the first to the last of
    the OrderAcks.
    """
    refused = (
        (pl.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (pl.col("tx_sequence_number") > pl.col("number"))
        & pl.col("captured_ns").is_between("first_ns", "last_ns")
    )
    return (
        verdicts.select(*_OF_PAIR[1:], *_OF_VERDICT)
        .join(repeated, on=_OF_PAIR[1:], how="semi")
        .with_columns(receiver=pl.col("session_id").str.replace(r"(?s)^.*->", ""))
        .join(repeated, on=_OF_PAIR)
        .group_by("source_queue_manager", "tx_sequence_id", "scope_key", "session_id", *_FIGURES)
        .agg(pl.min("destination_queue"), refused.sum().cast(pl.Int64).alias("refused"))
        .with_columns(
            found_at=timestamp(pl.col("first_ns")),
            seconds=quotient(pl.col("last_ns") - pl.col("first_ns"), NS),
        )
    )


def in_last_sequence(repeated: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of RepeatedOrderAck that are of their scope's last sequence."""
    last = sequences.group_by("scope_key").agg(pl.max("tx_sequence_id"))
    return repeated.join(last, on=["scope_key", "tx_sequence_id"], how="semi")


def negative_acks(messages: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the administration messages that are negative acknowledgments: `ack` is the message, with its `key`."""
    return (
        messages.filter(pl.col("message_class") & NEGATIVE_CLASS != 0)
        .join(ends.select("stream_id", "session_id"), on="stream_id")
        .select(
            "correlation_id",
            "message_class",
            "session_id",
            pl.struct("captured_ns", "captured_at", row_key().alias("key")).alias("ack"),
        )
    )


def returned_messages(messages: pl.DataFrame, negative: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of Returned. `negative` are `negative_acks`; `messages` need only be those that they name.

    CorrelationID names the message, transactional or not ([MS-MQMQ] 2.2.18.1.6). Session and queue are those of the
    message where a capture holds it, else the session is that of the acknowledgment. Times are ns since 1970, `seconds`
    are those from the first message to its acknowledgment.
    """
    place = ("message_class", "session_id", "destination_queue")
    return (
        negative.unnest("ack")
        .join(_named_messages(messages, negative, ends), on="correlation_id", how="left")
        .with_columns(pl.coalesce("about_session_id", "session_id").alias("session_id"))
        .sort("captured_ns", "captured_at", "key")
        .group_by(place)
        .agg(
            pl.col("correlation_id").drop_nulls().n_unique().cast(pl.Int64).alias("messages"),
            pl.col("correlation_id")
            .filter(pl.col("transactional"))
            .drop_nulls()
            .n_unique()
            .cast(pl.Int64)
            .alias("transactional"),
            pl.first("captured_at").alias("found_at"),
            pl.first("key"),
            pl.first("correlation_id").alias("message_id"),
            (pl.first("captured_ns") - pl.first("about_ns")).alias("after_ns"),
            pl.first("about_key", "time_to_be_received", "time_to_reach_queue"),
        )
        .with_columns(seconds=quotient(pl.col("after_ns"), NS))
        .drop("after_ns")
    )


def _named_messages(messages: pl.DataFrame, negative: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns per `correlation_id` the first message that it names."""
    return (
        messages.select("message_id", "stream_id", "stream_offset", "captured_ns", *_ABOUT[1:])
        .join(negative, left_on="message_id", right_on="correlation_id", how="semi")
        .join(ends.select("stream_id", "session_id"), on="stream_id")
        .select("captured_ns", row_key().alias("about_key"), *_ABOUT, correlation_id="message_id")
        .sort("captured_ns", "about_key")
        .unique("correlation_id", keep="first")
        .rename({"captured_ns": "about_ns", "session_id": "about_session_id"})
    )
