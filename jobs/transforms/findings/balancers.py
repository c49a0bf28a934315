"""The kinds of findings that tell of load balancers and address translation between senders and receivers."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, timestamp
from jobs.transforms.findings.model import counted, one_or_many, sentence
from jobs.transforms.replay.peers import with_other_direction
from schemas.replay import FindingKind, Severity

_ADDRESSES_SHOWN = 20
"""Else each of n acknowledgments that went elsewhere would name n addresses."""


def several_receivers(flows: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the findings on addresses at which several queue managers take messages, by their GUIDs.

    `flows` are rows of `scopes.find_flows`. It is a warning where one sequence went to several of them: each keeps a
    state of its own, so that the numbers of the others are missing to it.
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
    place = F.struct("first.ns", "key").alias("place")
    split = (
        served.groupBy("far", "source_queue_manager", "first.sequence")
        .agg(
            F.min(F.struct("receiver_guid", place)).alias("one"), F.max(F.struct("receiver_guid", place)).alias("other")
        )
        .where("one.receiver_guid < other.receiver_guid")
        .groupBy("far")
        .agg(F.count(F.lit(1)).alias("split"), F.min(F.sort_array(F.array("one.place", "other.place"))).alias("places"))
    )
    second = F.col("receivers")[1]["began"]
    return receivers.join(split, "far", "left").select(
        F.lit(FindingKind.SEVERAL_RECEIVERS.value).alias("kind"),
        F.when(F.col("split") > 0, Severity.WARNING.value).otherwise(Severity.INFO.value).alias("severity"),
        timestamp(second["ns"]).alias("found_at"),
        second["session_id"].alias("session_id"),
        F.size("receivers").alias("messages"),
        sentence(
            "{} queue managers take messages at the address {} ({}): a load balancer or a cluster is in front of them, "
            "or Message Queuing was installed again.{} Let a sender reach the same one each time: transactional "
            "messages need one receiver.",
            F.size("receivers"),
            "far",
            F.array_join("receivers.receiver_guid", ", "),
            F.when(
                F.col("split") > 0,
                sentence(
                    " {} to several of them.",
                    counted("split", "sequence of messages went", "sequences of messages went"),
                ),
            ).otherwise(""),
        ).alias("explanation"),
        F.coalesce("places.key", F.transform(F.slice("receivers", 1, 2), lambda one: one["began"]["key"])).alias(
            "witness"
        ),
    )


def acknowledged_elsewhere(flows: DataFrame, ends: DataFrame, acks: DataFrame) -> DataFrame:
    """Returns the findings on senders whose acknowledgments go to an address that no message of theirs came from.

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
        .select(
            F.lit(FindingKind.ACKNOWLEDGED_ELSEWHERE.value).alias("kind"),
            F.lit(Severity.INFO.value).alias("severity"),
            timestamp(F.col("first.ns")).alias("found_at"),
            "session_id",
            "messages",
            sentence(
                "{} to {}, although the messages of sender {} come from {}: it has several networks, or its address is "
                "translated on the way. Look whether {} there: a sender repeats what is not acknowledged.",
                counted("messages", "acknowledgment went", "acknowledgments went"),
                "far",
                "source_queue_manager",
                F.concat(
                    F.array_join("addresses", ", "),
                    F.when(F.col("others") > 0, sentence(" and {}", counted("others", "other", "others"))).otherwise(
                        ""
                    ),
                ),
                one_or_many("messages", "it arrives", "they arrive"),
            ).alias("explanation"),
            F.array("first.key").alias("witness"),
        )
    )


def _far_addresses(ends: DataFrame) -> DataFrame:
    """Returns the address that each stream goes to, `far`, and its `sender`, where the other direction was captured."""
    counting = ends.where("copy_of is null")
    return with_other_direction(counting, far=F.col("address")).select("stream_id", "sender", "far")
