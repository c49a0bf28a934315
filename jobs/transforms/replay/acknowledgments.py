"""Pairs OrderAcks and FinalAcks with the receiver that sent them and the original sender that they are for."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import row_key, signed
from jobs.transforms.replay.peers import known_guid
from schemas.messages import AckType


def pair_acks(acks: DataFrame, peers: DataFrame, flows: DataFrame) -> DataFrame:
    """Returns acknowledgments with `receiver` and `source_queue_manager`, which are a pair, and what they acknowledge.

    One row per ACKS row and pair: `ack_type`, `sequence` (`signed`), `number`, `ns`, `key` and, of a FinalAck, `final`.
    Messages may know the acknowledging queue manager by its GUID or by its stream's name for it, so each name makes a
    pair. A FinalAck names the original sender. An OrderAck in the direct form names no addressee: it is for every
    sender in `flows` (`session_id`, `source_queue_manager`) whose messages went the other way on its session.
    """
    pairs = flows.select("session_id", "source_queue_manager").distinct()
    senders = pairs.groupBy("session_id").agg(F.collect_set("source_queue_manager").alias("senders"))
    is_final = F.col("ack_type") == AckType.FINAL_ACK.value
    named = F.when(is_final, known_guid("source_guid")).otherwise(known_guid("queue_manager_address"))
    return (
        acks.where(F.col("captured_ns").isNotNull())
        .join(peers.select("stream_id", "sender", F.col("receiver").alias("addressee")), "stream_id")
        .withColumn("session_id", F.concat_ws("->", "addressee", "sender"))
        .join(senders, "session_id", "left")
        .withColumn("addressees", F.when(named.isNotNull(), F.array(named)).otherwise(F.col("senders")))
        .withColumn("receiver", F.explode(F.array_distinct(F.array("sender", "source_queue_manager"))))
        .select(
            "ack_type",
            "receiver",
            F.explode("addressees").alias("source_queue_manager"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            F.col("captured_ns").alias("ns"),
            row_key().alias("key"),
            F.when(is_final, F.struct("captured_ns", "message_class", "acknowledged_message_id")).alias("final"),
        )
    )


def select_order_acks(acknowledgments: DataFrame) -> DataFrame:
    """Returns the OrderAcks among acknowledgments."""
    return acknowledgments.where(F.col("ack_type") == AckType.ORDER_ACK.value)
