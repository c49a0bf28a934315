"""Finds the receiver's state before the first message of a scope, from an OrderAck or the previous warehouse."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, null, signed
from schemas.replay import Scope

_NEVER = (1 << 63) - 1


def find_initial_states(flows: DataFrame, order_acks: DataFrame, previous: DataFrame | None) -> DataFrame:
    """Returns `scope_key`, `ns`, `sequence`, `number`, `resumed` and `assumed_until` for scopes with a known beginning.

    The state is what the last OrderAck before the scope's first message names, or the scope's row in the STATES of the
    `previous` warehouse, whichever is higher. `resumed`: there is such a row, so bytes may be missing before the
    first message even on the scope's first stream, if that was captured from mid-stream. `assumed_until`: the previous
    warehouse only assumed the state; the time in ns of the first OrderAck that covers it. Null for a known state.
    """
    firsts = _first_messages(flows)
    found = _acknowledged_before(firsts, order_acks).withColumn("resumed", F.lit(False))
    found = found.withColumn("known", F.lit(True))
    if previous is not None:
        stood = previous.select(
            "scope_key",
            F.col("last_captured_ns").alias("last_ns"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            (~F.col("assumed") if "assumed" in previous.columns else F.lit(True)).alias("known"),
        )
        resumed = firsts.select("scope_key", F.col("ns").alias("first_ns")).distinct().join(stood, "scope_key")
        found = found.unionByName(
            resumed.where("last_ns < first_ns").select(
                "scope_key", F.col("last_ns").alias("ns"), "sequence", "number", F.lit(True).alias("resumed"), "known"
            )
        )
    states = (
        found.groupBy("scope_key")
        .agg(F.max(F.struct("sequence", "number", "known", "ns")).alias("state"), F.max("resumed").alias("resumed"))
        .select("scope_key", "state.*", "resumed")
    )
    if previous is None:
        return states.drop("known").withColumn("assumed_until", null("long"))
    pair = ("receiver", "source_queue_manager", "sequence")
    assumed = states.where(~F.col("known")).drop("ns").join(firsts.drop("ns"), "scope_key")
    at_or_above = Window.partitionBy(*pair).orderBy(F.desc("number")).rangeBetween(*SO_FAR)
    covered = (
        assumed.select("scope_key", *pair, "number")
        .unionByName(order_acks.select(*pair, "number", "ns"), allowMissingColumns=True)
        .withColumn("covered_ns", F.min("ns").over(at_or_above))
        .where(F.col("scope_key").isNotNull())
        .groupBy("scope_key")
        .agg(F.min("covered_ns").alias("covered_ns"))
    )
    until = F.when(~F.col("known"), F.coalesce("covered_ns", F.lit(_NEVER)))
    return states.join(covered, "scope_key", "left").withColumn("assumed_until", until).drop("known", "covered_ns")


def _first_messages(flows: DataFrame) -> DataFrame:
    """Returns `scope_key` and the time `ns` of the scope's first message, for each of its pairs.

    `only` is the one sequence of which an OrderAck is sure to be the scope's; null for any. Queues share a pair but
    not their numbers, so in a queue's scope that is the first message's sequence.
    """
    of_stream = Window.partitionBy("scope_key", "stream_id")
    of_scope = (
        Window.partitionBy("scope_key")
        .orderBy(F.coalesce("first.ns", "first_ns"), "first_ns", "stream_id")
        .rowsBetween(*SO_FAR)
    )
    return (
        flows.withColumn("first", F.min("first").over(of_stream))
        .withColumn("first", F.first("first").over(of_scope))
        .select(
            "scope_key",
            "receiver",
            "source_queue_manager",
            F.when(F.col("replay_scope") == Scope.QUEUE.value, F.col("first.sequence")).alias("only"),
            F.col("first.ns").alias("ns"),
        )
        .distinct()
    )


def _acknowledged_before(firsts: DataFrame, order_acks: DataFrame) -> DataFrame:
    """Returns `scope_key`, `ns`, `sequence` and `number` of the last OrderAck before each scope's first message."""
    either = order_acks.select(
        "receiver",
        "source_queue_manager",
        F.explode(F.array("sequence", F.lit(None).cast("long"))).alias("only"),
        "ns",
        F.struct("ns", "sequence", "number").alias("ack"),
    )
    before = (
        Window.partitionBy("receiver", "source_queue_manager", "only")
        .orderBy(F.col("ns").asc_nulls_first(), F.col("ack").asc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        firsts.unionByName(either, allowMissingColumns=True)
        .withColumn("ack", F.last("ack", ignorenulls=True).over(before))
        .where(F.col("scope_key").isNotNull() & F.col("ack").isNotNull())
        .groupBy("scope_key")
        .agg(F.max("ack").alias("ack"))
        .select("scope_key", "ack.*")
    )
