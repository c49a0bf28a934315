"""Counts what shows load balancers and address translation between senders and receivers."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, timestamp
from jobs.transforms.replay.peers import with_other_direction

_ADDRESSES_SHOWN = 20
"""Else each of n acknowledgments that went elsewhere would name n addresses."""


def several_receivers(flows: DataFrame, ends: DataFrame, tallies: DataFrame) -> DataFrame:
    """Returns rows of SeveralReceivers, which their GUIDs tell apart.

    `flows` are rows of `scopes.find_flows`, `tallies` those of `tallies.tally`.
    """
    key = key_at("stream_id", "first.offset").alias("key")
    served = (
        flows.where("receiver_guid is not null")
        .join(_far_addresses(ends).drop("sender"), "stream_id")
        .select("far", "receiver_guid", "source_queue_manager", "session_id", "first", key)
    )
    receivers = (
        served.groupBy("far", "receiver_guid")
        .agg(F.min(F.struct("first.ns", "key", "session_id")).alias("began"))
        .groupBy("far")
        .agg(F.sort_array(F.collect_list(F.struct("began", "receiver_guid"))).alias("receivers"))
        .where(F.size("receivers") > 1)
    )
    far = _far_addresses(ends).drop("sender").join(ends.select("stream_id", "receiver_guid"), "stream_id")
    place = F.struct(F.col("first_ns").alias("ns"), key_at("stream_id", "first_offset").alias("key"))
    split = (
        tallies.join(far.where("receiver_guid is not null"), "stream_id")
        .groupBy("far", "source_queue_manager", "sequence", "receiver_guid")
        .agg(F.min(place).alias("place"))
        .groupBy("far", "source_queue_manager", "sequence")
        .agg(F.sort_array(F.collect_list("place")).alias("places"))
        .where(F.size("places") > 1)
        .groupBy("far")
        .agg(F.count(F.lit(1)).alias("split"), F.min(F.slice("places", 1, 2)).alias("places"))
    )
    second = F.col("receivers")[1]["began"]
    return receivers.join(split, "far", "left").select(
        F.col("far").alias("address"),
        F.col("receivers.receiver_guid").alias("receivers"),
        F.col("receivers.began.key").alias("beginnings"),
        timestamp(second["ns"]).alias("found_at"),
        F.size("receivers").alias("messages"),
        second["session_id"].alias("session_id"),
        "split",
        F.col("places.key").alias("parts"),
    )


def acknowledged_elsewhere(flows: DataFrame, ends: DataFrame, acks: DataFrame) -> DataFrame:
    """Returns rows of AcknowledgedElsewhere.

    `flows` are rows of `scopes.find_flows`, `acks` those of `acknowledgments.pair_acks`. Only what the receiver sends
    itself counts, not what a router passes on.
    """
    pair = ("receiver", "source_queue_manager")
    known = flows.select(*pair, F.col("address").alias("far")).distinct()
    came_from = (
        known.withColumn("place", F.row_number().over(Window.partitionBy(*pair).orderBy("far")))
        .groupBy(*pair)
        .agg(
            F.sort_array(F.collect_list(F.when(F.col("place") <= _ADDRESSES_SHOWN, F.col("far")))).alias("addresses"),
            F.greatest(F.count(F.lit(1)) - _ADDRESSES_SHOWN, F.lit(0)).alias("others"),
        )
        .join(flows.groupBy(*pair).agg(F.min("session_id").alias("session_id")), list(pair))
    )
    return (
        acks.groupBy(*pair, F.substring_index("key", "@", 1).alias("stream_id"))
        .agg(F.count_distinct("key").alias("acks"), F.min(F.struct("ns", "key")).alias("first"))
        .join(_far_addresses(ends), "stream_id")
        .where(F.col("receiver") == F.col("sender"))
        .join(known, [*pair, "far"], "left_anti")
        .join(came_from, list(pair))
        .groupBy("session_id", "source_queue_manager", "addresses", "others", "far")
        .agg(F.sum("acks").alias("messages"), F.min("first").alias("first"))
        .withColumnsRenamed({"addresses": "came_from", "others": "more_addresses", "far": "address"})
        .select("*", timestamp(F.col("first.ns")).alias("found_at"), "first.key")
    )


def _far_addresses(ends: DataFrame) -> DataFrame:
    """Returns the address that each stream goes to, `far`, and its `sender`, where the other direction was captured."""
    counting = ends.where("copy_of is null")
    return with_other_direction(counting, far=F.col("address")).select("stream_id", "sender", "far")
