"""Finds what one replayed sequence state belongs to ([MS-MQQB] 3.1.1.3.1, 3.1.1.5)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import signed
from jobs.transforms.replay.peers import passes_through, receiver_is_unknown
from schemas.replay import Scope

FLOW_KEY = ("stream_id", "source_queue_manager", "queue_manager_address", "destination_queue")


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
    """Returns `session_id` and the `replay_scope` that `auto` means, for sessions in which a sender has several queues.

    That is `session` or `queue`: the scope under which more messages find their predecessor. One is found where any
    message of the scope has its number, at any time, on any session. In all other sessions both find as many.
    """
    several = (
        flows.groupBy("session_id", "source_queue_manager")
        .agg(F.min("destination_queue").alias("least"), F.max("destination_queue").alias("most"))
        .where("least < most")
    )
    senders = flows.join(several, "session_id", "left_semi").select("source_queue_manager").distinct()
    session = ("session_id", "source_queue_manager", "tx_sequence_id", "number")
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
        .select("session_id", "source_queue_manager", "destination_queue", "tx_sequence_id", "asked.*")
        .where("number > 0")
        .groupBy("session_id", *queue)
        .agg(F.sum("times").alias("times"), F.min("times").alias("unseen"))
    )

    def found(scope: tuple[str, ...]) -> Column:
        return F.when(F.min("unseen").over(Window.partitionBy(*scope)) == 0, F.col("times")).otherwise(0)

    return (
        numbers.select("session_id", found(session).alias("in_session"), found(queue).alias("in_queue"))
        .groupBy("session_id")
        .agg((F.sum("in_session") > F.sum("in_queue")).alias("by_session"))
        .select(
            "session_id",
            F.when(F.col("by_session"), Scope.SESSION.value).otherwise(Scope.QUEUE.value).alias("replay_scope"),
        )
    )


def with_scope(flows: DataFrame, scope: Scope, chosen: DataFrame | None) -> DataFrame:
    """Adds `replay_scope` and `scope_key`; for `auto`, `chosen` is what `choose_scopes` returns.

    A `scope_key` is readable text. Sequences are end to end, so each key names the original sender.
    """
    if chosen is None:
        scoped = flows.withColumn("replay_scope", F.lit(scope.value))
    else:
        scoped = flows.join(chosen, "session_id", "left").fillna(Scope.QUEUE.value, ["replay_scope"])
    kind, source = F.col("replay_scope"), F.col("source_queue_manager")
    return scoped.withColumn(
        "scope_key",
        F.when(kind == Scope.SESSION.value, F.concat_ws(" ", kind, "session_id", source))
        .when(kind == Scope.QUEUE.value, F.concat_ws(" ", kind, source, "destination_queue"))
        .when(kind == Scope.CONNECTION.value, F.concat_ws(" ", kind, "stream_id", source)),
    )


def resumable_states(states: DataFrame) -> DataFrame:
    """Returns the STATES that a later warehouse can resume: not those of connections, whose names are used again."""
    return states.where(~F.col("scope_key").startswith(f"{Scope.CONNECTION.value} "))
