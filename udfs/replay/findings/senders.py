"""Counts what a sender's messages show, whatever their verdicts: clocks, message IDs, addresses and transactions."""

import polars as pl

from schemas.replay import Reason
from udfs.frames.columns import PLACE, count, key_at, row_key, timestamp
from udfs.frames.derivation import Frames, derives
from udfs.replay.words import NS

_LIMITS = ("time_to_reach_queue", "time_to_be_received")
HAS_LIMIT = " OR ".join(f"{name} IS NOT NULL" for name in _LIMITS)
"""Whether a message can expire, in SQL."""
_CAPTURED_S, _SENT_S = pl.col("captured_ns") // NS, pl.col("sent_at").dt.timestamp("us") // 1_000_000
_SENDER = "source_queue_manager"
_OF_EXPIRED = ("captured_ns", "captured_at", "key", "age_s", *_LIMITS)
SENT = (*PLACE, "scope_key", "tx_sequence_id", "tx_sequence_number", "accepted", "reason", "content_hash")
"""Columns of VERDICTS that `find_conflicts` reads."""
_SLOT = ("sender_guid", "scope_key", "tx_sequence_id", "tx_sequence_number")
_CONFLICT = ("key", "other_key", "scope_key", "tx_sequence_id")


@derives(columns={"messages": (_SENDER, "sent_at", "captured_ns")}, in_parts=True)
def least_ages(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the least age of some messages of each sender: `least_s`, in s between two clocks."""
    return messages.group_by(_SENDER).agg((_CAPTURED_S - _SENT_S).min().alias("least_s"))


@derives((_SENDER,))
def merge_ages(ages: pl.DataFrame) -> pl.DataFrame:
    """Returns the least age of all messages of each sender, from the rows of `least_ages`."""
    return ages.group_by(_SENDER).agg(pl.col("least_s").min())


@derives(
    shared=("ages",),
    columns={
        "messages": (
            *(_SENDER, "stream_id", "stream_offset", "message_id", "sent_at", "captured_ns", "captured_at"),
            *("destination_queue", *_LIMITS),
        ),
    },
    in_parts=True,
)
def find_expired(messages: pl.DataFrame, ages: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages that outlived TimeToReachQueue or TimeToBeReceived, with their `age_s` and `key`.

    The age of a message is by two clocks; the least age of a sender's messages, which is their difference at most, is
    subtracted. `ages` are the rows of `merge_ages`.
    """
    aged = messages.join(ages, on=_SENDER).with_columns(age_s=_CAPTURED_S - _SENT_S - pl.col("least_s"))
    outlived = ((pl.col("age_s") > pl.col(name)).fill_null(value=False) for name in _LIMITS)
    late = aged.filter(pl.any_horizontal(outlived)).with_columns(row_key().alias("key"))
    return late.select("message_id", "stream_id", "destination_queue", *_OF_EXPIRED)


@derives(in_parts=True)
def expired_by_stream(expired: pl.DataFrame) -> pl.DataFrame:
    """Returns per stream and queue how many of some messages that `find_expired` found there are, and the first."""
    in_time = expired.sort("captured_ns", "key")
    return in_time.group_by("stream_id", "destination_queue").agg(
        count().alias("messages"), pl.col(_OF_EXPIRED).first()
    )


def expired_on_arrival(expired: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `expired_on_arrival`, per session and queue; `expired` are those of `expired_by_stream`."""
    return (
        expired.join(ends.select("stream_id", "session_id"), on="stream_id")
        .sort("captured_ns", "key")
        .group_by("session_id", "destination_queue")
        .agg(
            pl.col("messages").sum(),
            pl.col("captured_at").first().alias("found_at"),
            pl.col("key", "age_s", *_LIMITS).first(),
        )
    )


def two_addresses(ends: pl.DataFrame, conflicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `two_addresses`, a row per queue manager with several, by its GUID.

    A host may have several networks. Two machines with one identity send different messages under one number, or one
    machine's messages are refused because the other's sequence is greater: `conflicts` are those of `find_conflicts`.
    """
    return _places(ends).join(conflicts, on="sender_guid", how="left")


def streams_of_several(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `sender_guid` and `address` of the streams from queue managers with several addresses."""
    counting = ends.filter(pl.col("copy_of").is_null())
    return counting.select("stream_id", "sender_guid", "address").join(_places(ends), on="sender_guid", how="semi")


@derives(("sender_guid",))
def find_conflicts(sent: pl.DataFrame) -> pl.DataFrame:
    """Returns `conflict`, the keys of two messages that cannot be of one machine, for each `sender_guid` that has such.

    Beside it are `scope_key` and `tx_sequence_id` of the message that suffers. `sent` are SENT of all verdicts on
    messages on `streams_of_several`, with the columns of these.
    """
    return (
        pl.concat(of.select("sender_guid", *_CONFLICT) for of in (_under_one_number(sent), _behind_another(sent)))
        .sort(_CONFLICT)
        .unique("sender_guid", keep="first", maintain_order=True)
        .select("sender_guid", pl.concat_list("key", "other_key").alias("conflict"), "scope_key", "tx_sequence_id")
    )


def _under_one_number(sent: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs of different messages with one number, from two addresses."""
    of_message = ("address", "content_hash", "key")
    address = pl.col("address")
    return (
        sent.filter(address.min().over(_SLOT) < address.max().over(_SLOT))
        .with_columns(row_key().alias("key"))
        .sort(of_message)
        .group_by(_SLOT)
        .agg(pl.col(of_message).first(), pl.col(of_message).last().name.prefix("other_"))
        .filter(pl.col("content_hash") != pl.col("other_content_hash"))
    )


def _behind_another(sent: pl.DataFrame) -> pl.DataFrame:
    """Returns accepted messages, with those of lower sequences that came from another address and are refused."""
    sequence, of_scope = pl.col("tx_sequence_id"), ("sender_guid", "scope_key")
    two = (  # of two addresses one is another than that of a message, whichever this is
        sent.filter("accepted")
        .filter(sequence == sequence.max().over(*of_scope, "address"))
        .group_by(*of_scope, elsewhere="address")
        .agg(sequence.first().alias("highest"), row_key().max().alias("key"))
        .sort("highest", "key", descending=True)
        .group_by(of_scope, maintain_order=True)
        .head(2)
    )
    return (
        sent.filter(pl.col("reason") == Reason.STALE_SEQUENCE.value)
        .with_columns(row_key().alias("other_key"))
        .join(two, on=of_scope)
        .filter((pl.col("elsewhere") != pl.col("address")) & (pl.col("highest") > sequence))
    )


def _places(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the queue managers with several addresses: lists of these and of their first streams, the earliest first.

    Beside them is the number of addresses, and time and session of the second one.
    """
    return (
        ends.filter(pl.col("copy_of").is_null() & pl.col("sender_guid").is_not_null())
        .sort("first_ns", "stream_id", nulls_last=True)
        .unique(("sender_guid", "address"), keep="first", maintain_order=True)
        .filter(pl.len().over("sender_guid") > 1)
        .sort("first_ns", "address")
        .group_by("sender_guid")
        .agg(
            pl.col("address").alias("addresses"),
            key_at("stream_id", pl.lit(0)).alias("beginnings"),
            timestamp(pl.col("first_ns").get(1)).alias("found_at"),
            count().alias("messages"),
            pl.col("session_id").get(1),
        )
    )


@derives(("scope_key",))
def broken_transactions(transactions: pl.DataFrame) -> Frames:
    """Returns rows for `broken_transactions` that are torn or delivered in part."""
    return {
        "torn": _broken(transactions.filter("torn_by_sender").with_columns(has_lost=pl.lit(value=True))),
        "partly": _broken(transactions.filter("partly_delivered").with_columns(has_lost=pl.col("lost_messages") > 0)),
    }


def _broken(transactions: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per sequence and value of `has_lost`; its figures are those of the first transaction."""
    first = ("session_id", "destination_queue", "witness_keys", "tx_transaction_id", "lost_messages", "pending")
    return (
        transactions.sort("first_captured_at", "tx_transaction_id", "instance")
        .group_by("scope_key", "tx_sequence_id", "has_lost")
        .agg(
            pl.first(*first),
            pl.first("first_captured_at").alias("found_at"),
            pl.first("messages").alias("size"),
            count().alias("messages"),
        )
    )
