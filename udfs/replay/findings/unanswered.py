"""Finds why receivers never acknowledged messages: what else the wire shows between the two machines."""

import polars as pl

from schemas.outcomes import Outcome
from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.frames.columns import (
    PLACE,
    SEQUENCE,
    address_of_stream,
    address_reached,
    are_in,
    count,
    count_if,
    key_at,
    nanoseconds,
    row_key,
    timestamp,
    way_back,
)
from udfs.frames.derivation import derives
from udfs.replay.order.acks import select_order_acks
from udfs.replay.outcomes.counts import has_outcome
from udfs.replay.outcomes.missing_acks import OF_PAIR
from udfs.replay.outcomes.plain import last_seen, with_receiver

_DOUBTED = [Outcome.UNACKNOWLEDGED, Outcome.CONTRADICTED, Outcome.UNKNOWN]
_CLOSED_TIMES = 3
"""Connections in a row that end right after messages, before one is a habit of the receiver."""
_PLACE_OF_FINDING = (*SEQUENCE, "session_id", "destination_queue")
_MACHINES = ("from_address", "to_address")
OF_ACKS = ("stream_id", "stream_offset", "captured_ns", "ack_type", "tx_sequence_id", "tx_sequence_number")


@derives(SEQUENCE)
def doubted_sequences(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns the sequences with messages of which acknowledgments leave in doubt what became.

    Beside them are session and queue of the first, its time `since_ns` and its first `witness`, how many are
    `unacknowledged` or `contradicted`, and the IDs of sender and receiver by the session, `sender` and `receiver`.
    """
    names = pl.col("session_id").str.split("->").list
    return (
        outcomes.filter(has_outcome(_DOUBTED), pl.col("arrivals") > 0)
        .sort("first_seen_at", "tx_sequence_number", "message_id")
        .group_by(SEQUENCE)
        .agg(
            pl.first("session_id", "destination_queue", "source_queue_manager"),
            pl.first("witness").list.first().alias("key"),
            nanoseconds(pl.min("first_seen_at")).alias("since_ns"),
            *(count_if(has_outcome([one])).alias(one.value) for one in _DOUBTED[:2]),
        )
        .with_columns(sender=names.first(), receiver=names.last())
    )


def _unacknowledged(doubted: pl.DataFrame) -> pl.DataFrame:
    """Returns the sequences with messages that were never acknowledged."""
    return doubted.filter(pl.col("unacknowledged") > 0)


def with_addresses(doubted: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Adds the last addresses of sender and receiver of each session, `from_address` and `to_address`."""
    last = (
        ends.filter(pl.col("copy_of").is_null())
        .sort("first_ns", "stream_id")
        .group_by("session_id")
        .agg(
            address_of_stream().last().alias("from_address"),
            address_reached().last().alias("to_address"),
        )
    )
    return doubted.join(last, on="session_id", how="left")


def explain_failures(failures: pl.DataFrame, doubted: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `cannot_connect`, each for all sequences that it explains: the receiver cannot connect back.

    `doubted` are rows of `with_addresses`. What explains none is one row without a sequence.
    """
    back = _unacknowledged(doubted).select(
        *SEQUENCE, "destination_queue", "since_ns", client="to_address", server="from_address"
    )
    explained = failures.join(back, on=["client", "server"]).filter(
        pl.col("lately") > 0, nanoseconds(pl.col("last_at")) >= pl.col("since_ns")
    )
    explained = explained.with_columns(explains=pl.lit(value=True))
    alone = failures.join(explained, on=["client", "server"], how="anti")
    return pl.concat([alone, explained.drop("since_ns")], how="diagonal")


def order_acks_elsewhere(acks: pl.DataFrame, ends: pl.DataFrame, doubted: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `acknowledged_elsewhere`, one per sequence: OrderAcks of it that went to another GUID.

    `acks` are rows of ACKS, of these sequences at least.
    """
    others = ends.filter(pl.col("receiver_guid").is_not_null()).select(
        "stream_id", other="receiver_guid", other_address=address_reached(), receiver="sender"
    )
    return (
        select_order_acks(acks)
        .select(OF_ACKS)
        .join(others, on="stream_id")
        .join(_unacknowledged(doubted), on=["tx_sequence_id", "receiver"])
        .filter(pl.col("other") != pl.col("source_queue_manager"), pl.col("other") != pl.col("sender"))
        .sort("captured_ns", *PLACE)
        .group_by(*_PLACE_OF_FINDING, *_MACHINES)
        .agg(
            count().alias("messages"),
            pl.first("other", "other_address"),
            timestamp(pl.first("captured_ns")).alias("found_at"),
            row_key().first().alias("ack_key"),
            pl.first("key"),
        )
    )


def closed_connections(
    streams: pl.DataFrame, ends: pl.DataFrame, session_acks: pl.DataFrame, doubted: pl.DataFrame
) -> pl.DataFrame:
    """Returns rows for `closed_by_receiver`, one per sequence: the receiver ended its session's last connections early.

    That is three at least, each within the time that an OrderAck may take after its last packet, without a SessionAck,
    although the receiver's TCP acknowledged bytes. Whoever sends the first FIN or RST ends a connection. One that is
    still open counts once a SessionAck came, or one of its ends was seen that long after its last packet.
    """
    answered = session_acks.select("stream_id").unique().with_columns(is_answered=True)
    back = ends.select("connection_id", "stream_id").join(answered, on="stream_id", how="left")
    heard = back.group_by("connection_id").agg(pl.col("is_answered").any().fill_null(value=False))
    seen = last_seen(ends).select("stream_id", until_ns=pl.max_horizontal("until_ns", "receiver_until_ns"))
    waited = pl.col("until_ns") - nanoseconds(pl.col("last_captured_at"))
    is_over = pl.col("ended_at").is_not_null() | pl.col("is_answered") | (waited >= LATEST_ORDER_ACK_NS)
    lasted = nanoseconds(pl.col("ended_at")) - nanoseconds(pl.col("last_captured_at"))
    is_early = pl.col("ended_by_receiver") & pl.col("acked_bytes").is_not_null() & ~pl.col("is_answered")
    counting = ends.filter(pl.col("copy_of").is_null()).select("stream_id", "session_id", "connection_id", "first_ns")
    ended = (
        streams.select("stream_id", "acked_bytes", "last_captured_at", "ended_by_receiver", "ended_at")
        .join(counting, on="stream_id")
        .join(heard, on="connection_id", how="left")
        .join(seen, on="stream_id", how="left")
        .filter(is_over.fill_null(value=True))
        .with_columns(is_early=(is_early & (lasted < LATEST_ORDER_ACK_NS)).fill_null(value=False))
    )
    last = pl.col("is_early").tail(_CLOSED_TIMES)
    return (
        _unacknowledged(doubted)
        .join(ended, on="session_id")
        .sort("first_ns", "stream_id")
        .group_by(*_PLACE_OF_FINDING, *_MACHINES, "key")
        .agg(
            (last.all() & (pl.len() >= _CLOSED_TIMES)).alias("is_habit"),
            count_if("is_early").alias("messages"),
            timestamp(pl.col("first_ns").filter("is_early").first()).alias("found_at"),
            pl.last("ended_at").alias("last_at"),
            key_at("stream_id", pl.lit(0)).last().alias("last_key"),
        )
        .filter("is_habit")
        .drop("is_habit")
    )


def replaced_receivers(tallies: pl.DataFrame, ends: pl.DataFrame, doubted: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `receiver_replaced`, one per sequence that went on at another queue manager.

    The other one got all that came before, and nothing since; nor did a connection to it begin since, as behind a load
    balancer. Queue managers are told apart by their GUIDs.
    """
    guids = ends.filter(pl.col("receiver_guid").is_not_null()).select(
        "stream_id", guid="receiver_guid", reached=address_reached()
    )
    parts = (
        tallies.join(guids, on="stream_id")
        .sort("first_ns", "stream_id")
        .group_by(*SEQUENCE, "source_queue_manager", "guid")
        .agg(
            pl.min("first_ns"),
            pl.max("last_captured_ns"),
            pl.last("reached"),
            key_at("stream_id", "first_offset").first().alias("part_key"),
            pl.col("messages").sum(),
        )
    )
    there = ends.drop_nulls("receiver_guid").group_by(guid_before="receiver_guid").agg(begun_ns=pl.max("first_ns"))
    before = parts.rename(
        {
            name: f"{name}_before"
            for name in ("scope_key", "guid", "first_ns", "last_captured_ns", "reached", "part_key", "messages")
        }
    )
    found = (
        parts.join(before, on=["source_queue_manager", "tx_sequence_id"])
        .join(there, on="guid_before", how="left")
        .filter(pl.col("guid") != pl.col("guid_before"), pl.col("last_captured_ns_before") < pl.col("first_ns"))
        .filter((pl.col("begun_ns") <= pl.col("first_ns")).fill_null(value=True))
        .sort("last_captured_ns_before", "part_key_before")
        .unique(SEQUENCE, keep="last", maintain_order=True)
    )
    return (
        found.drop("source_queue_manager")
        .join(doubted.drop("key"), on=SEQUENCE)
        .select(
            *_PLACE_OF_FINDING,
            *_MACHINES,
            "guid",
            "guid_before",
            "reached",
            "reached_before",
            "messages_before",
            messages=pl.lit(2, pl.Int64),
            found_at=timestamp(pl.col("first_ns")),
            last_at=timestamp(pl.col("last_captured_ns_before")),
            first_key="part_key_before",
            key="part_key",
        )
    )


def unexplained(
    streams: pl.DataFrame, ends: pl.DataFrame, doubted: pl.DataFrame, *explained: pl.DataFrame
) -> pl.DataFrame:
    """Returns rows for `never_answered`, one per sequence with unacknowledged messages that nothing else explains.

    `untaken_bytes` are those of its session's connections that the receiver's TCP never acknowledged; null where its
    TCP was not captured. No capture holds `unseen_bytes` of the way back.
    """
    unseen = (
        ends.filter(pl.col("copy_of").is_null()).group_by(way_back()).agg(unseen_bytes=pl.col("missing_bytes").sum())
    )
    known = pl.concat(rows.select(SEQUENCE).drop_nulls() for rows in explained)
    waiting = _unacknowledged(doubted)
    counting = ends.filter(pl.col("copy_of").is_null()).select("stream_id", "session_id")
    untaken = (pl.col("recovered_bytes") + pl.col("missing_bytes") - pl.col("acked_bytes")).clip(0)
    taken = (
        streams.select("stream_id", "acked_bytes", "recovered_bytes", "missing_bytes")
        .drop_nulls("acked_bytes")
        .join(counting, on="stream_id")
        .group_by("session_id")
        .agg(untaken.sum().alias("untaken_bytes"))
    )
    return (
        waiting.filter(~are_in(waiting, known))
        .join(taken, on="session_id", how="left")
        .join(unseen, on="session_id", how="left")
        .select(
            *_PLACE_OF_FINDING,
            *_MACHINES,
            "key",
            "untaken_bytes",
            pl.col("unseen_bytes").fill_null(0),
            messages="unacknowledged",
            found_at=timestamp(pl.col("since_ns")),
        )
    )


def fallen_in_scopes(fallen: pl.DataFrame, tallies: pl.DataFrame, doubted: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `acknowledgment_fell`, one for each sequence of a scope with messages between the two numbers.

    `fallen` are rows of `fallen_acks`.
    """
    scopes = with_receiver(tallies).select(*SEQUENCE, *OF_PAIR[:2]).unique()
    found = fallen.join(scopes, on=OF_PAIR).drop("receiver", "source_queue_manager")
    return found.join(doubted.filter(pl.col("contradicted") > 0), on=SEQUENCE).select(
        *(*_PLACE_OF_FINDING, *_MACHINES, "number", "high", "high_key", "low_key"),
        messages=pl.col("contradicted"),
        high_at=timestamp(pl.col("high_ns")),
        found_at=timestamp(pl.col("low_ns")),
    )
