"""Counts what shows load balancers and address translation between senders and receivers."""

import polars as pl

from udfs.derive.columns import key_at, timestamp
from udfs.derive.facts.directions import with_other_direction

_ADDRESSES_SHOWN = 20
"""Else each of n acknowledgments that went elsewhere would name n addresses."""
_PAIR = ("receiver", "source_queue_manager")


def several_receivers(flows: pl.DataFrame, ends: pl.DataFrame, tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of SeveralReceivers, which their GUIDs tell apart; a row per address.

    `flows` have a row per scope, stream and queue, with its `first` message; `tallies` one per scope, sequence and
    stream. Of the tallies, those on the streams of `streams_to_several` are enough.
    """
    receivers = _receivers(flows, ends)
    split = _split(tallies, streams_to_several(flows, ends))
    return receivers.join(split, on="far", how="left").select(
        pl.col("far").alias("address"),
        pl.col("receiver_guid").alias("receivers"),
        pl.col("key").alias("beginnings"),
        timestamp(pl.col("ns").list.get(1)).alias("found_at"),
        pl.col("key").list.len().cast(pl.Int64).alias("messages"),
        pl.col("session_id").list.get(1),
        "split",
        "parts",
    )


def streams_to_several(flows: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `far` and `receiver_guid` of the streams to addresses at which several receivers are."""
    named = ends.filter(pl.col("receiver_guid").is_not_null()).select("stream_id", "receiver_guid")
    return (
        far_addresses(ends)
        .drop("sender")
        .join(named, on="stream_id")
        .join(_receivers(flows, ends), on="far", how="semi")
    )


def _receivers(flows: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the addresses, `far`, of several receivers, with lists of these: the earliest first, and its message."""
    first = pl.col("first").struct
    began = ("ns", "key", "session_id")
    return (
        flows.filter(pl.col("receiver_guid").is_not_null())
        .join(far_addresses(ends).select("stream_id", "far"), on="stream_id")
        .select(
            *("far", "receiver_guid", "session_id"),
            first.field("ns"),
            key_at("stream_id", first.field("offset")).alias("key"),
        )
        .sort(*began)
        .group_by("far", "receiver_guid")
        .agg(pl.col(began).first())
        .sort(*began, "receiver_guid")
        .group_by("far")
        .agg(pl.col(*began, "receiver_guid"))
        .filter(pl.col("receiver_guid").list.len() > 1)
    )


def _split(tallies: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns per address how many sequences went to several receivers, `split`, and the `parts` of the first."""
    sequence = ("far", "source_queue_manager", "sequence")
    place = ("ns", "key")
    places = [pl.col(name).get(i).alias(f"{name}_{i}") for i in (0, 1) for name in place]
    return (
        tallies.join(streams, on="stream_id")
        .select(
            *sequence,
            "receiver_guid",
            pl.col("first_ns").alias("ns"),
            key_at("stream_id", "first_offset").alias("key"),
        )
        .sort(*place)
        .group_by(*sequence, "receiver_guid", maintain_order=True)
        .agg(pl.col(place).first())
        .filter(pl.len().over(sequence) > 1)
        .sort(*place)
        .group_by(*sequence)
        .agg(*places)
        .sort("ns_0", "key_0", "ns_1", "key_1")
        .group_by("far")
        .agg(pl.len().cast(pl.Int64).alias("split"), pl.concat_list("key_0", "key_1").first().alias("parts"))
    )


def count_acks(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns how many acknowledgments, `acks`, a receiver sent for a sender on a stream; `ns` and `key` of the first.

    `acks` have a row per acknowledgment and each sender that it may be for. Rows of whole pairs of receiver and
    sender, or of whole streams.
    """
    return (
        acks.select(*_PAIR, "ns", "key", pl.col("key").str.split_exact("@", 1).struct[0].alias("stream_id"))
        .sort("ns", "key")
        .group_by(*_PAIR, "stream_id")
        .agg(pl.col("key").n_unique().cast(pl.Int64).alias("acks"), pl.col("ns").first(), pl.first("key"))
    )


def acknowledged_elsewhere(flows: pl.DataFrame, ends: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of AcknowledgedElsewhere; `counted` are those of `count_acks`.

    Only what the receiver sends itself counts, not what a router passes on.
    """
    known = flows.select(*_PAIR, pl.col("address").alias("far")).unique()
    addresses = pl.col("far").sort()
    came_from = known.group_by(_PAIR).agg(
        addresses.head(_ADDRESSES_SHOWN).alias("came_from"),
        (pl.len().cast(pl.Int64) - _ADDRESSES_SHOWN).clip(0).alias("more_addresses"),
    )
    sessions = flows.group_by(_PAIR).agg(pl.col("session_id").min())
    return (
        counted.join(far_addresses(ends), on="stream_id")
        .filter(pl.col("receiver") == pl.col("sender"))
        .join(known, on=(*_PAIR, "far"), how="anti")
        .join(came_from, on=_PAIR)
        .join(sessions, on=_PAIR)
        .sort("ns", "key")
        .group_by("session_id", "source_queue_manager", "came_from", "more_addresses", pl.col("far").alias("address"))
        .agg(pl.col("acks").sum().alias("messages"), timestamp(pl.col("ns").first()).alias("found_at"), pl.first("key"))
    )


def far_addresses(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the address that each stream goes to, `far`, and its `sender`, where the other direction was captured."""
    return with_other_direction(ends, far=pl.col("address")).select("stream_id", "sender", "far")
