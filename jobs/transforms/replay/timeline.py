"""Lists what stands on the streams of each scope: messages, its initial state, unread ranges (`udfs.replay.timeline`).

Scopes, streams and pairs of queue managers have numbers here, because windows over text cost several times as much.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, SO_FAR, null, signed
from jobs.transforms.replay.scopes import FLOW_KEY, with_flow
from schemas.judging import MARK
from schemas.replay import Scope
from schemas.table import sql_type
from udfs.replay.timeline import STREAM_END

STREAM = ["scope_no", "stream_no"]
_ADDRESSED = ("source_queue_manager", "queue_manager_address")
_MOST_PAIRS = 1 << 18
"""Pairs of what may hold messages of a scope, and scopes, that get a row each."""


def doubtful_scopes(flows: DataFrame, unread: DataFrame, peers: DataFrame, legs: DataFrame) -> DataFrame:
    """Returns `scope_key` of the scopes with which too much would be paired.

    That is streams with unread ranges, of one session, with all of its scopes; or messages on unknown `legs` with the
    sessions that they may belong to. Such scopes are judged as if a range lay before each of their messages.
    """
    of_session = flows.where(F.col("replay_scope") == Scope.SESSION.value).select("scope_key", *_ADDRESSED).distinct()
    broken = _broken_streams(unread, peers).withColumn("rows", F.lit(1))
    of_legs = legs.select(*_ADDRESSED, F.col("arrived").alias("rows"))
    by_streams = _of_too_many(broken, _shared_scopes(flows), "session_id")
    return by_streams.unionByName(_of_too_many(of_legs, of_session, *_ADDRESSED)).distinct()


def _of_too_many(pieces: DataFrame, scopes: DataFrame, *key: str) -> DataFrame:
    """Returns `scope_key` of the scopes that share a key with too many pieces, for all scopes that do."""
    rows, count = F.sum("rows").alias("rows"), F.count(F.lit(1)).alias("scopes")
    pairs = pieces.groupBy(*key).agg(rows).join(scopes.groupBy(*key).agg(count), list(key))
    too_many = pairs.where(F.col("rows") * F.col("scopes") > _MOST_PAIRS).select(*key)
    return scopes.join(too_many, list(key), "left_semi").select("scope_key")


def _broken_streams(unread: DataFrame, peers: DataFrame) -> DataFrame:
    there = unread.select("stream_id").distinct()
    return peers.join(there, "stream_id", "left_semi").select("stream_id", "session_id", "first_ns")


def _shared_scopes(flows: DataFrame) -> DataFrame:
    """Returns the scopes of each session to which a stream without their messages matters."""
    return flows.select("session_id", "scope_key").distinct()


def number_streams(flows: DataFrame, unread: DataFrame, peers: DataFrame) -> DataFrame:
    """Adds `scope_no`, `stream_no` (1, 2, … in a scope), `pair_no` (receiver and original sender) and `has_messages`.

    A stream with unread ranges counts for each scope of its session that is not `doubtful`, even if it carried no
    message of the scope: then it has a row that is not in `flows`, with `has_messages` false. Fails if two scopes or
    pairs have the same hash.
    """
    scopes = _shared_scopes(flows.where("doubtful is null"))
    silent = _broken_streams(unread, peers).join(scopes, "session_id")
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
    """Returns messages at their final destination with `scope_no`, `stream_no`, `pair_no`, and facts of their stream.

    Those are `first_ns`, `mid_stream`, `session_id`, `scope_key` and `doubtful`.
    """
    facts = ("pair_no", "first_ns", "mid_stream", "session_id", "scope_key", "doubtful")
    return with_flow(messages, streams.where("has_messages"), *STREAM, *facts)


def marks(
    messages: DataFrame,
    unread: DataFrame,
    streams: DataFrame,
    initial: DataFrame,
    legs: DataFrame | None,
    disputed: DataFrame | None,
) -> DataFrame:
    """Returns rows of MARK: what stands on the streams of each scope, and counts where a message may be missing.

    That is each range of unread bytes; and just before each of the `disputed` messages, each message of a `doubtful`
    scope, and, at its time, each message on unknown `legs` that may have reached the scope's receiver.
    """
    arrived = with_stream_number(messages, streams)
    rows = arrived.select(
        *("scope_no", "stream_no", "pair_no", "stream_offset", "captured_ns", "mid_stream"),
        F.coalesce("captured_ns", "first_ns").alias("at_ns"),
        signed(F.col("tx_sequence_id")).alias("sequence"),
        F.col("tx_sequence_number").cast("long").alias("number"),
        F.col("previous_tx_sequence_number").cast("long").alias("previous"),
        F.xxhash64("message_id").alias("message_no"),
        F.lit(0).cast("long").alias("missing"),
        null("long").alias("assumed_until"),
    )
    others = [_rows_before(arrived.where("doubtful")), _unread_rows(arrived, unread), _stream_end_rows(unread, streams)]
    if legs is not None:
        others.append(_leg_rows(messages, legs, streams))
    if disputed is not None:
        others.append(_disputed_rows(messages, disputed, streams))
    for more in (*others, _initial_rows(initial)):
        rows = rows.unionByName(more, allowMissingColumns=True)
    return rows.select(*(F.col(field.name).cast(sql_type(field.type)) for field in MARK))


def _unread_rows(arrived: DataFrame, unread: DataFrame) -> DataFrame:
    """Returns the unread ranges of each stream for each scope that has messages there; those between two are one row.

    That row has the place of the last of them, and counts them. A stream may have thousands of ranges, and messages of
    thousands of scopes, so a row for each range and scope would be too many.
    """
    ranges = unread.select("stream_id", "stream_offset", F.col("stream_offset").alias("range"))
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset")
    of_scope = Window.partitionBy(*STREAM).orderBy("stream_offset")
    so_far, whole = on_stream.rowsBetween(*SO_FAR), on_stream.rowsBetween(*ALL)
    before = F.col("count") - F.lag("count", 1, 0).over(of_scope)
    behind = F.when(F.lead("count").over(of_scope).isNull(), F.col("all") - F.col("count"))
    return (
        arrived.select("stream_id", *STREAM, "stream_offset")
        .join(ranges.select("stream_id").distinct(), "stream_id", "left_semi")
        .unionByName(ranges, allowMissingColumns=True)
        .select(
            *(*STREAM, "stream_offset"),
            *(
                of("range").over(rows).alias(name)
                for name, of, rows in (
                    ("count", F.count, so_far),
                    ("last", F.max, so_far),
                    ("all", F.count, whole),
                    ("very_last", F.max, whole),
                )
            ),
        )
        .where(F.col("scope_no").isNotNull())
        .withColumns({"before": before, "behind": behind})
        .select(
            *STREAM,
            F.inline(
                F.array(
                    F.struct(F.col("last").alias("stream_offset"), F.col("before").alias("missing")),
                    F.struct(F.col("very_last").alias("stream_offset"), F.col("behind").alias("missing")),
                )
            ),
        )
        .where("missing > 0")
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
            F.lit(STREAM_END).alias("stream_offset"),
            F.when(~F.col("has_messages"), F.col("first_ns")).alias("at_ns"),
            F.when(F.col("has_messages"), 0).otherwise(F.col("all")).alias("missing"),
        )
    )


def _leg_rows(messages: DataFrame, legs: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns a row for each message on unknown `legs`, in each scope that it may belong to.

    That is a scope of the same sender and destination queue, or of a whole session with the queue manager that the
    message names. Each row is a stream of its own, with a negative number.
    """
    names, by_session = (*_ADDRESSED, "destination_queue"), F.col("replay_scope") == Scope.SESSION.value
    named = {name: F.col(name) for name in _ADDRESSED} | {names[-1]: F.when(~by_session, F.col(names[-1]))}
    scopes = (
        streams.where(F.col("has_messages") & F.col("doubtful").isNull())
        .select("scope_no", "replay_scope", *(column.alias(f"of_{name}") for name, column in named.items()))
        .distinct()
    )
    source, address, queue = (F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in names)
    same = source & address & (queue | by_session)
    perhaps = legs.select(*FLOW_KEY).join(scopes, same).select(*FLOW_KEY, "scope_no").distinct().alias("f")
    of_flow = [F.col(f"m.{name}").eqNullSafe(F.col(f"f.{name}")) for name in FLOW_KEY]
    place = F.hash("m.stream_id", "m.stream_offset")
    return (
        messages.alias("m")
        .join(F.broadcast(perhaps), of_flow)
        .select(
            "f.scope_no",
            F.when(place < 0, place).otherwise(-1 - place).alias("stream_no"),
            F.lit(STREAM_END).alias("stream_offset"),
            F.col("m.captured_ns").alias("at_ns"),
            F.lit(1).cast("long").alias("missing"),
        )
    )


def _disputed_rows(messages: DataFrame, disputed: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns a row just before each of the `disputed` messages: another message may have come before it."""
    there = messages.join(F.broadcast(disputed), disputed.columns, "left_semi")
    return _rows_before(with_stream_number(there, streams))


def _rows_before(arrived: DataFrame) -> DataFrame:
    return arrived.select(
        *STREAM, (F.col("stream_offset") - 1).alias("stream_offset"), F.lit(1).cast("long").alias("missing")
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
        F.col("ns").alias("at_ns"),
        F.when(F.col("resumed"), F.lit(False)).alias("mid_stream"),
        *("sequence", "number"),
        zero.alias("missing"),
        "assumed_until",
    )
