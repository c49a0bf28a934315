"""Finds what one replayed sequence state belongs to ([MS-MQQB] 3.1.1.3.1, 3.1.1.5)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import signed
from jobs.transforms.replay.peers import passes_through, receiver_is_unknown
from schemas.replay import Scope

FLOW_KEY = ("stream_id", "source_queue_manager", "queue_manager_address", "destination_queue")
SENDER_THERE = ("session_id", "source_queue_manager")
"""An original sender on a session: what one choice of `auto` is for."""


def find_flows(messages: DataFrame, peers: DataFrame) -> DataFrame:
    """Returns one row per FLOW_KEY of transactional messages at their final destination.

    Each has the peers of its stream, the count of its messages `arrived`, and `first`: offset, time and sequence
    (`signed`) of its first message.
    `leg_unknown`: the messages may be passing through a router, because nothing names the receiver.
    """
    return (
        messages.groupBy(*FLOW_KEY)
        .agg(
            F.count(F.lit(1)).alias("arrived"),
            F.min("stream_offset").alias("offset"),
            F.min_by("captured_ns", "stream_offset").alias("ns"),
            F.min_by(signed(F.col("tx_sequence_id")), "stream_offset").alias("sequence"),
        )
        .withColumn("first", F.struct("offset", "ns", "sequence"))
        .join(peers, "stream_id")
        .where(~passes_through())
        .withColumn("leg_unknown", receiver_is_unknown())
        .drop("offset", "ns", "sequence")
    )


def with_flow(messages: DataFrame, flows: DataFrame, *columns: str) -> DataFrame:
    """Adds columns of the flow of each message, and leaves out messages without one; in a FLOW_KEY, nulls are equal."""
    named = flows.select(*columns, *(F.col(name).alias(f"flow_{name}") for name in FLOW_KEY))
    return messages.join(named, [F.col(name).eqNullSafe(F.col(f"flow_{name}")) for name in FLOW_KEY])


def choose_scopes(messages: DataFrame, peers: DataFrame, flows: DataFrame) -> DataFrame:
    """Returns the `replay_scope` that `auto` means for each SENDER_THERE that sent to several queues.

    That is `session` or `queue`: the scope under which more of the messages find their predecessor. One is found where
    any message of the scope has its number, at any time, on any session. Where the sender sent to one queue, `queue`
    finds whatever `session` does.
    """
    several = (
        flows.groupBy(*SENDER_THERE)
        .agg(F.min("destination_queue").alias("least"), F.max("destination_queue").alias("most"))
        .where("least < most")
    )
    senders = several.select("source_queue_manager").distinct()
    session = (*SENDER_THERE, "tx_sequence_id", "number")
    queue = ("source_queue_manager", "destination_queue", "tx_sequence_id", "number")
    numbers = (
        messages.join(senders, "source_queue_manager", "left_semi")
        .join(peers, "stream_id")
        .where(~passes_through() & ~receiver_is_unknown())
        .withColumn(
            "asked",
            F.explode(
                F.array(
                    F.struct(F.col("tx_sequence_number").alias("number"), F.lit(0).alias("times")),
                    F.struct(F.col("previous_tx_sequence_number").alias("number"), F.lit(1).alias("times")),
                )
            ),
        )
        .select(*SENDER_THERE, "destination_queue", "tx_sequence_id", "asked.*")
        .where("number > 0")
        .groupBy("session_id", *queue)
        .agg(F.sum("times").alias("times"), F.min("times").alias("unseen"))
    )

    def found(scope: tuple[str, ...]) -> Column:
        return F.when(F.min("unseen").over(Window.partitionBy(*scope)) == 0, F.col("times")).otherwise(0)

    more_in_session = F.sum("in_session") > F.sum("in_queue")
    return (
        numbers.select(*SENDER_THERE, found(session).alias("in_session"), found(queue).alias("in_queue"))
        .groupBy(*SENDER_THERE)
        .agg(F.when(more_in_session, Scope.SESSION.value).otherwise(Scope.QUEUE.value).alias("replay_scope"))
    )


def with_scope(flows: DataFrame, scope: Scope, chosen: DataFrame | None) -> DataFrame:
    """Adds `replay_scope` and `scope_key`; for `auto`, `chosen` is what `choose_scopes` returns.

    A `scope_key` is readable text. Sequences are end to end, so each key names the original sender.
    """
    if chosen is None:
        scoped = flows.withColumn("replay_scope", F.lit(scope.value))
    else:
        scoped = flows.join(chosen, list(SENDER_THERE), "left").fillna(Scope.QUEUE.value, ["replay_scope"])
    kind, source = F.col("replay_scope"), F.col("source_queue_manager")
    return scoped.withColumn(
        "scope_key",
        F.when(kind == Scope.SESSION.value, F.concat_ws(" ", kind, "session_id", source)).otherwise(
            F.concat_ws(" ", kind, source, "destination_queue")
        ),
    )
