"""The timeline of each scope: its initial state and its messages in replay order, and how much is unread before each.

Scopes, their streams and pairs of queue managers go by numbers, as windows over text cost several times as much.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import BEFORE, SO_FAR, signed
from jobs.transforms.replay.scopes import FLOW_KEY
from schemas.replay import Scope

STREAM = ["scope_no", "stream_no"]
_STREAM_END = (1 << 63) - 1


def number_streams(flows: DataFrame, unread: DataFrame, peers: DataFrame) -> DataFrame:
    """Adds `scope_no`, `stream_no` (1, 2, … in a scope), `pair_no` (receiver and original sender) and `has_messages`.

    A stream with unread ranges counts for each scope of its session, even if it carried no message of the scope: then
    it has a row that is not in `flows`, with `has_messages` false. Fails if two scopes or pairs have the same hash.
    """
    scopes = flows.where(F.col("replay_scope") != Scope.CONNECTION.value).select("session_id", "scope_key").distinct()
    silent = (
        peers.join(unread.select("stream_id").distinct(), "stream_id", "left_semi")
        .select("stream_id", "session_id", "first_ns")
        .join(scopes, "session_id")
    )
    by_scope, by_pair = Window.partitionBy("scope_no"), Window.partitionBy("pair_no")
    pair = F.struct("receiver", "source_queue_manager")
    collision = F.raise_error(F.concat(F.lit("Two scopes or pairs have the same hash; one is "), "scope_key"))
    return (
        flows.withColumn("has_messages", F.lit(True))
        .unionByName(silent.withColumn("has_messages", F.lit(False)), allowMissingColumns=True)
        .withColumn("scope_no", _scope_no())
        .withColumn("pair_no", F.xxhash64("receiver", "source_queue_manager"))
        .withColumn("one_scope", F.min("scope_key").over(by_scope) == F.max("scope_key").over(by_scope))
        .withColumn("stream_no", F.dense_rank().over(by_scope.orderBy("first_ns", "stream_id")))
        .withColumn("one_pair", F.min(pair).over(by_pair) == F.max(pair).over(by_pair))
        .withColumn(
            "scope_no",
            F.when(F.col("one_scope") & F.col("one_pair"), F.col("scope_no")).otherwise(collision.cast("long")),
        )
        .drop("one_scope", "one_pair")
    )


def _scope_no() -> Column:
    return F.xxhash64("scope_key")


def with_stream_number(messages: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns messages at their final destination with `scope_no`, `stream_no`, `first_ns` and `mid_stream`."""
    key = [F.col(name).alias(f"flow_{name}") for name in FLOW_KEY]
    flows = streams.where("has_messages").select(*STREAM, "first_ns", "mid_stream", *key)
    return messages.join(flows, [F.col(name).eqNullSafe(F.col(f"flow_{name}")) for name in FLOW_KEY])


def in_scope() -> WindowSpec:
    """A scope in replay order: its streams merged by the running maximum of the clock along each."""
    return Window.partitionBy("scope_no").orderBy("clock", "stream_no", "stream_offset")


def build_timeline(
    messages: DataFrame, unread: DataFrame, streams: DataFrame, initial: DataFrame, legs: DataFrame | None = None
) -> DataFrame:
    """Returns initial states (`replay_order` 0) and messages (1, 2, …), and the unread ranges so far, `missing`.

    Order on a stream is its offset; the running maximum of the clock merges streams, so that no clock moves a message
    on its stream. Unread ranges count from the next message of their stream on. A stream that was captured from
    mid-stream counts as one more, unless it is the scope's first, and so does each message on the unknown `legs` that
    may have reached the scope's receiver.
    """
    on_stream = Window.partitionBy(*STREAM).orderBy("stream_offset")
    so_far = in_scope().rowsBetween(*SO_FAR)
    is_message = F.col("previous").isNotNull()
    counted = F.max(F.when(is_message, F.col("missing_here"))).over(on_stream.rowsBetween(*BEFORE))
    first = F.count_if(is_message).over(on_stream.rowsBetween(*BEFORE)) == 0
    rows = _message_rows(messages, streams)
    if legs is not None:
        rows = rows.unionByName(_leg_rows(messages, legs, streams), allowMissingColumns=True)
    return (
        rows.unionByName(_unread_rows(unread, streams), allowMissingColumns=True)
        .unionByName(_stream_end_rows(unread, streams), allowMissingColumns=True)
        .unionByName(_initial_rows(initial), allowMissingColumns=True)
        .repartition("scope_no")  # once for all windows of a scope
        .select(
            "*",
            F.max("at_ns").over(on_stream.rowsBetween(*SO_FAR)).alias("clock"),
            F.sum("missing").over(on_stream.rowsBetween(*SO_FAR)).alias("missing_here"),
        )
        .select(
            "*",
            (F.col("missing_here") - F.coalesce(counted, F.lit(0))).alias("added"),
            (first & F.col("mid_stream")).cast("int").alias("cut_off"),
        )
        .where(F.col("sequence").isNotNull() | (F.col("stream_offset") == _STREAM_END))
        .select(
            "*",
            F.count_if(is_message).over(so_far).alias("replay_order"),
            F.sum("added").over(so_far).alias("added_so_far"),
            (F.sum("cut_off").over(so_far) - F.first("cut_off", ignorenulls=True).over(so_far)).alias("cut_off_later"),
        )
        .where(F.col("sequence").isNotNull())
        .select(
            *STREAM,
            "clock",
            "stream_offset",
            "captured_ns",
            "sequence",
            "number",
            "previous",
            (F.col("added_so_far") + F.coalesce("cut_off_later", F.lit(0))).alias("missing"),
            "replay_order",
            "assumed_until",
        )
    )


def _message_rows(messages: DataFrame, streams: DataFrame) -> DataFrame:
    return with_stream_number(messages, streams).select(
        *STREAM,
        "stream_offset",
        "captured_ns",
        F.coalesce("captured_ns", "first_ns").alias("at_ns"),
        "mid_stream",
        signed(F.col("tx_sequence_id")).alias("sequence"),
        F.col("tx_sequence_number").alias("number"),
        F.col("previous_tx_sequence_number").alias("previous"),
        F.lit(0).cast("long").alias("missing"),
    )


def _unread_rows(unread: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns a row for each unread range and scope whose messages it may have held."""
    with_messages = streams.where("has_messages").select(*STREAM, "stream_id").distinct()
    return unread.join(with_messages, "stream_id").select(
        *STREAM, "stream_offset", F.lit(1).cast("long").alias("missing")
    )


def _stream_end_rows(unread: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns a row at the end of each stream with unread ranges, for those after the scope's last message there.

    On a stream without a message of the scope that is all of them, at the time when the stream began. On others the
    row directly follows the last message, whatever the time.
    """
    counted = unread.groupBy("stream_id").agg(F.count(F.lit(1)).alias("all"))
    return (
        streams.groupBy(*STREAM, "stream_id", "first_ns")
        .agg(F.max("has_messages").alias("has_messages"))
        .join(counted, "stream_id")
        .select(
            *STREAM,
            F.lit(_STREAM_END).alias("stream_offset"),
            F.when(~F.col("has_messages"), F.col("first_ns")).alias("at_ns"),
            F.when(F.col("has_messages"), 0).otherwise(F.col("all")).alias("missing"),
        )
    )


def _leg_rows(messages: DataFrame, legs: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns a row for each message on unknown `legs`, in each scope that it may belong to.

    That is a scope of the same sender and destination queue, or of a whole session with the queue manager that the
    message names. Each row is a stream of its own, with a negative number.
    """
    names = ("source_queue_manager", "queue_manager_address", "destination_queue")
    scopes = streams.where(F.col("has_messages") & (F.col("replay_scope") != Scope.CONNECTION.value)).select(
        "scope_no", "replay_scope", *(F.col(name).alias(f"of_{name}") for name in names)
    )
    source, address, queue = (F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in names)
    same = source & address & (queue | (F.col("replay_scope") == Scope.SESSION.value))
    perhaps = legs.select(*FLOW_KEY).join(scopes, same).select(*FLOW_KEY, "scope_no").distinct().alias("f")
    of_flow = [F.col(f"m.{name}").eqNullSafe(F.col(f"f.{name}")) for name in FLOW_KEY]
    place = F.hash("m.stream_id", "m.stream_offset")
    return (
        messages.alias("m")
        .join(F.broadcast(perhaps), of_flow)
        .select(
            "f.scope_no",
            F.when(place < 0, place).otherwise(-1 - place).alias("stream_no"),
            F.lit(_STREAM_END).alias("stream_offset"),
            F.col("m.captured_ns").alias("at_ns"),
            F.lit(1).cast("long").alias("missing"),
        )
    )


def _initial_rows(initial: DataFrame) -> DataFrame:
    """Returns a row before all messages of each scope with an initial state, on stream number 0.

    Where a previous warehouse left it, that is the scope's first stream, so the next one is a further one.
    """
    zero = F.lit(0).cast("long")
    return initial.select(
        _scope_no().alias("scope_no"),
        F.lit(0).alias("stream_no"),
        zero.alias("stream_offset"),
        F.col("ns").alias("captured_ns"),
        F.col("ns").alias("at_ns"),
        F.when(F.col("resumed"), F.lit(False)).alias("mid_stream"),
        "sequence",
        "number",
        zero.alias("missing"),
        "assumed_until",
    )
