"""Pairs OrderAcks and FinalAcks with the receiver that sent them and the original sender that they are for."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import row_key, signed
from jobs.transforms.replay.peers import known_guid
from jobs.transforms.replay.scopes import with_flow
from schemas.judging import ACKNOWLEDGED
from schemas.messages import AckType
from schemas.table import sql_type

_MOST_SENDERS = 16
"""Senders of a session that an OrderAck without an addressee may be for. A session behind a router has thousands."""


def crowded(flows: DataFrame) -> DataFrame:
    """Returns the rows of the sessions on which more than _MOST_SENDERS have messages."""
    senders = F.count_distinct("source_queue_manager").alias("senders")
    sessions = flows.groupBy("session_id").agg(senders).where(F.col("senders") > _MOST_SENDERS).select("session_id")
    return flows.join(sessions, "session_id", "left_semi")


def sequences_used(messages: DataFrame, flows: DataFrame) -> DataFrame:
    """Returns `session_id`, `source_queue_manager` and `sequence` (`signed`) of the messages of these flows."""
    return with_flow(messages, flows, "session_id").select(
        "session_id", "source_queue_manager", signed(F.col("tx_sequence_id")).alias("sequence")
    )


def pair_acks(acks: DataFrame, peers: DataFrame, flows: DataFrame, used: DataFrame | None = None) -> DataFrame:
    """Returns acknowledgments with `receiver` and `source_queue_manager`, which are a pair, and what they acknowledge.

    One row per ACKS row and pair: `ack_type`, `sequence` (`signed`), `number`, `ns`, `key` and, of a FinalAck, its
    `message_class` and the hash `message_no` of the message ID that it names.
    Messages may know the acknowledging queue manager by its GUID or by its stream's name for it, so each name makes a
    pair. A FinalAck names the original sender. An OrderAck in the direct form names no addressee: it is for every
    sender in `flows` (`session_id`, `source_queue_manager`) whose messages went the other way on its session. On a
    `crowded` one it is for those who used its sequence there, unless these are too many: `used` are the rows of such
    sessions, with `sequence`.
    """
    named = F.when(_is_final(), known_guid("source_guid")).otherwise(known_guid("queue_manager_address"))
    rows = (
        acks.where(F.col("captured_ns").isNotNull())
        .join(peers.select("stream_id", "sender", F.col("receiver").alias("addressee")), "stream_id")
        .withColumn("session_id", F.concat_ws("->", "addressee", "sender"))
        .withColumn("sequence", signed(F.col("tx_sequence_id")))
        .join(_few_senders(flows, "session_id"), "session_id", "left")
    )
    if used is not None:
        of_sequence = _few_senders(used, "session_id", "sequence").withColumnRenamed("senders", "users")
        rows = rows.join(of_sequence, ["session_id", "sequence"], "left").withColumn(
            "senders", F.coalesce("senders", "users")
        )
    return (
        rows.withColumn("addressees", F.when(named.isNotNull(), F.array(named)).otherwise(F.col("senders")))
        .withColumn("receiver", F.explode(F.array_distinct(F.array("sender", "source_queue_manager"))))
        .select(
            "ack_type",
            "receiver",
            F.explode("addressees").alias("source_queue_manager"),
            "sequence",
            F.col("tx_sequence_number").alias("number"),
            F.col("captured_ns").alias("ns"),
            row_key().alias("key"),
            F.when(_is_final(), F.col("message_class")).alias("message_class"),
            F.when(_is_final(), F.xxhash64("acknowledged_message_id")).alias("message_no"),
        )
    )


def _is_final() -> Column:
    return F.col("ack_type") == AckType.FINAL_ACK.value


def _few_senders(flows: DataFrame, *key: str) -> DataFrame:
    """Returns the `senders` of each key that has at most _MOST_SENDERS."""
    senders = F.collect_set("source_queue_manager").alias("senders")
    return flows.groupBy(*key).agg(senders).where(F.size("senders") <= _MOST_SENDERS)


def select_order_acks(acknowledgments: DataFrame) -> DataFrame:
    """Returns the OrderAcks among acknowledgments."""
    return acknowledgments.where(F.col("ack_type") == AckType.ORDER_ACK.value)


def acknowledged(acks: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns rows of ACKNOWLEDGED: the acknowledgments of `pair_acks` whose pair has messages on the streams."""
    pairs = streams.where("has_messages").select("receiver", "source_queue_manager", "pair_no").distinct()
    rows = acks.join(pairs, ["receiver", "source_queue_manager"]).withColumnRenamed("ns", "ack_ns")
    return rows.select(*(F.col(field.name).cast(sql_type(field.type)) for field in ACKNOWLEDGED))
