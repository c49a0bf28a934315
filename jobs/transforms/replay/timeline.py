"""Builds the timeline of each scope: its initial state and its chains in replay order, with the unread ranges before.

Scopes, streams and pairs of queue managers have numbers here, because windows over text cost several times as much.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, BEFORE, SO_FAR
from jobs.transforms.replay import chains
from jobs.transforms.replay.scopes import FLOW_KEY, with_flow
from schemas.replay import Scope

STREAM = ["scope_no", "stream_no"]
_ADDRESSED = ("source_queue_manager", "queue_manager_address")
_STREAM_END = (1 << 63) - 1
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


def in_scope() -> WindowSpec:
    """Returns the window of a scope in replay order; the running maximum of each clock merges its streams."""
    return Window.partitionBy("scope_no").orderBy("clock", "stream_no", "stream_offset")


def build_timeline(
    messages: DataFrame,
    unread: DataFrame,
    streams: DataFrame,
    initial: DataFrame,
    legs: DataFrame | None,
    disputed: DataFrame | None,
    *,
    chained: bool,
) -> DataFrame:
    """Returns initial states and chains of messages, in replay order, and the unread ranges so far, `missing`.

    `replay_order` is that of the chain's first message, 1 for the scope's first; 0 for the initial state. Order on a
    stream is its offset; the running maximum of the clock merges streams, so that no clock moves a message on its
    stream. Unread ranges count from the next message of their stream on. A stream that was captured from mid-stream
    counts as one more, unless it is the scope's first, and so does each message on the unknown `legs` that may have
    reached the scope's receiver, and each of the `disputed` messages, and of `doubtful` scopes, just before itself.
    Unless `chained`, each message is a chain of its own.
    """
    on_stream = Window.partitionBy(*STREAM).orderBy("stream_offset")
    so_far = in_scope().rowsBetween(*SO_FAR)
    is_message = F.col("previous").isNotNull()
    counted = F.max(F.when(is_message, F.col("missing_here"))).over(on_stream.rowsBetween(*BEFORE))
    first = F.count_if(is_message).over(on_stream.rowsBetween(*BEFORE)) == 0
    messages_so_far = F.coalesce(F.sum(F.when(is_message, F.size("offsets"))).over(so_far), F.lit(0))
    arrived = with_stream_number(messages, streams)
    found = chains.find_chains(arrived) if chained else chains.find_single_chains(arrived)
    rows = found.withColumn("at_ns", F.col("first_ns")).withColumn("missing", F.lit(0).cast("long"))
    if legs is not None:
        rows = rows.unionByName(_leg_rows(messages, legs, streams), allowMissingColumns=True)
    if disputed is not None:
        rows = rows.unionByName(_disputed_rows(messages, disputed, streams), allowMissingColumns=True)
    rows = (
        rows.unionByName(_rows_before(arrived.where("doubtful")), allowMissingColumns=True)
        .unionByName(_unread_rows(arrived, unread), allowMissingColumns=True)
        .unionByName(_stream_end_rows(unread, streams), allowMissingColumns=True)
        .unionByName(_initial_rows(initial), allowMissingColumns=True)
        .repartition("scope_no")  # once for all windows of a scope
    )
    return (
        _with_clock(_cut_where_interrupted(rows) if chained else rows)
        .withColumn("missing_here", F.sum("missing").over(on_stream.rowsBetween(*SO_FAR)))
        .select(
            "*",
            (F.col("missing_here") - F.coalesce(counted, F.lit(0))).alias("added"),
            (first & F.col("mid_stream")).cast("int").alias("cut_off"),
        )
        .where(F.col("sequence").isNotNull() | (F.col("stream_offset") == _STREAM_END))
        .select(
            "*",
            F.when(is_message, messages_so_far - F.size("offsets") + 1)
            .otherwise(messages_so_far)
            .alias("replay_order"),
            F.sum("added").over(so_far).alias("added_so_far"),
            (F.sum("cut_off").over(so_far) - F.first("cut_off", ignorenulls=True).over(so_far)).alias("cut_off_later"),
        )
        .where(F.col("sequence").isNotNull())
        .select(
            *STREAM,
            "pair_no",
            "clock",
            "stream_offset",
            *("sequence", "first_number", "number", "previous", "offsets", "times"),
            (F.col("added_so_far") + F.coalesce("cut_off_later", F.lit(0))).alias("missing"),
            "replay_order",
            "assumed_until",
        )
    )


def _with_clock(rows: DataFrame) -> DataFrame:
    """Adds the places of a chain's first and last message: `stream_offset` and `clock`, `last_offset`, `last_clock`."""
    on_stream = Window.partitionBy(*STREAM).orderBy("stream_offset")
    first_ns, last_ns = (F.coalesce(F.element_at("times", at), "at_ns") for at in (1, -1))
    return (
        rows.withColumn("stream_offset", F.coalesce(F.element_at("offsets", 1), "stream_offset"))
        .withColumn("last_offset", F.coalesce(F.element_at("offsets", -1), "stream_offset"))
        .withColumn("last_clock", F.max(last_ns).over(on_stream.rowsBetween(*SO_FAR)))
        .withColumn("clock", F.greatest(first_ns, F.max(last_ns).over(on_stream.rowsBetween(*BEFORE))))
    )


def _cut_where_interrupted(rows: DataFrame) -> DataFrame:
    """Cuts the chains into messages where another row of the stream or scope lies between them."""
    on_stream = Window.partitionBy(*STREAM).orderBy("stream_offset")
    place = F.struct("clock", "stream_no", "stream_offset")
    last_place = F.struct("last_clock", "stream_no", "last_offset")

    def overlaps(order: WindowSpec, first: Column, last: Column) -> Column:
        following, before = F.lead(first).over(order), F.max(last).over(order.rowsBetween(*BEFORE))
        return F.coalesce(following <= last, F.lit(False)) | F.coalesce(before >= first, F.lit(False))

    on_its_stream = overlaps(on_stream, F.col("stream_offset"), F.col("last_offset"))
    marked = _with_clock(rows).withColumn("interrupted", on_its_stream | overlaps(in_scope(), place, last_place))
    ends = F.when(F.col("interrupted"), chains.each_message()).otherwise(chains.whole())
    return chains.cut(marked, ends)


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
            F.lit(_STREAM_END).alias("stream_offset"),
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
        F.array("ns").alias("times"),
        F.col("ns").alias("at_ns"),
        F.when(F.col("resumed"), F.lit(False)).alias("mid_stream"),
        *("sequence", F.col("number").alias("first_number"), "number"),
        zero.alias("missing"),
        "assumed_until",
    )
