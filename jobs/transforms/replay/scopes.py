"""Who talks to whom, and what one replayed sequence state belongs to ([MS-MQQB] 3.1.1.3.1, 3.1.1.5)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import nanoseconds, row_key, signed
from schemas.messages import AckType
from schemas.replay import Scope

NULL_GUID = "00000000-0000-0000-0000-000000000000"
ROUTE = ("stream_id", "source_queue_manager", "queue_manager_address", "destination_queue")


def _guid(name: str) -> Column:
    return F.nullif(F.col(name), F.lit(NULL_GUID))


def going_on(states: DataFrame) -> DataFrame:
    """STATES that a later warehouse may go on from: not those of connections, whose names are used again."""
    return states.where(~F.col("scope_key").startswith(f"{Scope.CONNECTION.value} "))


def with_ends(streams: DataFrame, handshakes: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """One row of ENDS per stream: `sender` and `receiver` go by their GUIDs, else by their addresses.

    Client and server are of the connection's EstablishConnection; the response alone, on the acceptor's
    stream, is sure to name the server ([MS-MQQB] 2.2.3.1 lets a request leave it NULL). Those of a connection that was
    caught in mid-stream are what the ENDS of an `earlier` warehouse say of the last one between its ports. A stream of
    which nothing was captured, known from what the other side acknowledges, begins with its connection.
    """
    named = handshakes.groupBy("stream_id").agg(
        F.max(_guid("client_guid")).alias("client"), F.max(_guid("server_guid")).alias("server")
    )
    if earlier is not None:
        named = named.unionByName(_named_before(streams.join(named, "stream_id", "left_anti"), earlier))
    both = Window.partitionBy("connection_id").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    initiator = F.col("from_initiator")
    sender_guid = F.when(initiator, F.col("client")).when(~initiator, F.col("server"))
    receiver_guid = F.when(initiator, F.col("server")).when(~initiator, F.col("client"))
    response = F.when(~initiator, F.col("server"))
    return (
        streams.join(named, "stream_id", "left")
        .withColumn("server", F.coalesce(F.max(response).over(both), F.max("server").over(both)))
        .withColumn("client", F.max("client").over(both))
        .withColumn("first_ns", nanoseconds("first_captured_at"))
        .select(
            "stream_id",
            "connection_id",
            "mid_stream",
            "recovered_bytes",
            "missing_bytes",
            F.coalesce("first_ns", F.min("first_ns").over(both)).alias("first_ns"),
            nanoseconds("last_captured_at").alias("last_ns"),
            F.col("src_ip").alias("address"),
            sender_guid.alias("sender_guid"),
            receiver_guid.alias("receiver_guid"),
            F.coalesce(sender_guid, "src_ip").alias("sender"),
            F.coalesce(receiver_guid, "dst_ip").alias("receiver"),
        )
        .withColumn("session_id", F.concat_ws("->", "sender", "receiver"))
    )


def _named_before(streams: DataFrame, earlier: DataFrame) -> DataFrame:
    """`stream_id`, `client` and `server` of streams caught in mid-stream, as the ENDS of an earlier warehouse say."""
    way, initiator = F.substring_index("stream_id", "#", 1).alias("way"), F.col("from_initiator")
    sender, receiver = F.col("last.sender_guid"), F.col("last.receiver_guid")
    last = earlier.groupBy(way).agg(F.max_by(F.struct("sender_guid", "receiver_guid"), "last_ns").alias("last"))
    return (
        streams.where("mid_stream")
        .select("stream_id", "from_initiator", way)
        .join(last, "way")
        .select(
            "stream_id",
            F.when(initiator, sender).otherwise(receiver).alias("client"),
            F.when(initiator, receiver).otherwise(sender).alias("server"),
        )
    )


def passes_through() -> Column:
    """Whether a message on a stream with ends is for another queue manager than the receiver (3.1.5.8.6)."""
    return F.coalesce(_guid("queue_manager_address") != F.col("receiver_guid"), F.lit(False))


def routes(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """One row per ROUTE with judged messages, with the ends of its stream and the first of the messages."""
    return (
        messages.where("transactional")
        .groupBy(*ROUTE)
        .agg(
            F.min("stream_offset").alias("offset"),
            F.min_by("captured_ns", "stream_offset").alias("ns"),
            F.min_by(signed(F.col("tx_sequence_id")), "stream_offset").alias("sequence"),
        )
        .withColumn("first", F.struct("offset", "ns", "sequence"))
        .join(ends, "stream_id")
        .where(~passes_through())
        .drop("offset", "ns", "sequence")
    )


def auto_scopes(messages: DataFrame, ends: DataFrame, routes: DataFrame) -> DataFrame:
    """`session_id`, `replay_scope` of sessions in which a sender has several queues: elsewhere `queue` finds no fewer.

    A predecessor is found where a message of the scope bears its number, whenever it came, on whatever session.
    """
    several = (
        routes.groupBy("session_id", "source_queue_manager")
        .agg(F.min("destination_queue").alias("least"), F.max("destination_queue").alias("most"))
        .where("least < most")
    )
    senders = routes.join(several, "session_id", "left_semi").select("source_queue_manager").distinct()
    session = ("session_id", "source_queue_manager", "tx_sequence_id", "number")
    queue = ("source_queue_manager", "destination_queue", "tx_sequence_id", "number")
    numbers = (
        messages.where("transactional")
        .join(senders, "source_queue_manager", "left_semi")
        .join(ends, "stream_id")
        .where(~passes_through())
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


def with_scope(rows: DataFrame, scope: Scope, chosen: DataFrame | None) -> DataFrame:
    """Rows of a session and a sender with `replay_scope` and `scope_key`; `chosen` is what `auto` means for each."""
    if chosen is None:
        scoped = rows.withColumn("replay_scope", F.lit(scope.value))
    else:
        scoped = rows.join(chosen, "session_id", "left").fillna(Scope.QUEUE.value, ["replay_scope"])
    return scoped.withColumn("scope_key", _scope_key())


def _scope_key() -> Column:
    """Readable key of a message's scope. A sequence is end to end, so that each names the original sender."""
    kind, source = F.col("replay_scope"), F.col("source_queue_manager")
    return (
        F.when(kind == Scope.SESSION.value, F.concat_ws(" ", kind, "session_id", source))
        .when(kind == Scope.QUEUE.value, F.concat_ws(" ", kind, source, "destination_queue"))
        .when(kind == Scope.CONNECTION.value, F.concat_ws(" ", kind, "stream_id", source))
    )


def acknowledgments(acks: DataFrame, ends: DataFrame, routes: DataFrame) -> DataFrame:
    """OrderAcks and FinalAcks by whom they are of and for, with `sequence`, `number`, `ns`, `key` and `final`.

    The acknowledging queue manager goes by its GUID and by what the stream calls it, as messages know it by
    either. A FinalAck names the original sender. An OrderAck in the direct form names no addressee: it is for
    the original senders of the messages that its session's other direction carried.
    """
    pairs = routes.select("session_id", "source_queue_manager").distinct()
    senders = pairs.groupBy("session_id").agg(F.collect_set("source_queue_manager").alias("senders"))
    is_final = F.col("ack_type") == AckType.FINAL_ACK.value
    named = F.when(is_final, _guid("source_guid")).otherwise(_guid("queue_manager_address"))
    return (
        acks.where(F.col("captured_ns").isNotNull())
        .join(ends.select("stream_id", "sender", F.col("receiver").alias("addressee")), "stream_id")
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


def order_acks(acknowledgments: DataFrame) -> DataFrame:
    """The OrderAcks among them."""
    return acknowledgments.where(F.col("ack_type") == AckType.ORDER_ACK.value)


def initial_states(routes: DataFrame, order_acks: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """`scope_key`, `ns`, `sequence`, `number` of the state that a scope's first message met, where something tells it.

    That is the last OrderAck before the message or, where it says more, the scope's row of the STATES of an `earlier`
    warehouse. With the latter, which `goes_on` marks, the first message of the first stream, too, may come behind
    missing ones. In a queue's scope only an OrderAck of the first message's sequence is sure to be that queue's.
    """
    firsts = _first_messages(routes)
    told = _acknowledged_before(firsts, order_acks).withColumn("goes_on", F.lit(False))
    if earlier is not None:
        before = earlier.select(
            "scope_key",
            F.col("last_captured_ns").alias("last_ns"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
        )
        went_on = firsts.select("scope_key", F.col("ns").alias("first_ns")).distinct().join(before, "scope_key")
        told = told.unionByName(
            went_on.where("last_ns < first_ns").select(
                "scope_key", F.col("last_ns").alias("ns"), "sequence", "number", F.lit(True).alias("goes_on")
            )
        )
    return (
        told.groupBy("scope_key")
        .agg(F.max(F.struct("sequence", "number", "ns")).alias("state"), F.max("goes_on").alias("goes_on"))
        .select("scope_key", "state.*", "goes_on")
    )


def _first_messages(routes: DataFrame) -> DataFrame:
    """Each scope's `scope_key` and the time `ns` of its first message, by the names of its receivers and its sender.

    `only`: the sequence of which alone an OrderAck is sure to be the scope's; null for any.
    """
    of_stream = Window.partitionBy("scope_key", "stream_id")
    of_scope = (
        Window.partitionBy("scope_key")
        .orderBy(F.coalesce("first.ns", "first_ns"), "first_ns", "stream_id")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        routes.withColumn("first", F.min("first").over(of_stream))
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
    """`scope_key`, `ns`, `sequence`, `number` of the last OrderAck before a scope's first message, if there is one."""
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
