"""Finds the queue managers that talk on each stream: the rows of ENDS."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import nanoseconds, null

NULL_GUID = "00000000-0000-0000-0000-000000000000"


def known_guid(name: str) -> Column:
    """Returns the GUID in a column; null for the NULL GUID."""
    return F.nullif(F.col(name), F.lit(NULL_GUID))


def passes_through() -> Column:
    """Returns whether a message on a stream with peers is for another queue manager than the receiver (3.1.5.8.6)."""
    return F.coalesce(known_guid("queue_manager_address") != _receiver(), F.lit(False))


def receiver_is_unknown() -> Column:
    """Returns whether a message names its queue manager, and nothing tells if that is the receiver."""
    return known_guid("queue_manager_address").isNotNull() & _receiver().isNull()


def _receiver() -> Column:
    return F.coalesce("receiver_guid", "receiver_by_address")


def with_other_direction(ends: DataFrame, **columns: Column) -> DataFrame:
    """Returns the streams of which the other direction was captured, with its stream, `back`, and columns of it.

    `ends` are rows of ENDS without copies.
    """
    named = (column.alias(name) for name, column in columns.items())
    other = ends.select("connection_id", F.col("stream_id").alias("back"), *named)
    return ends.join(other, "connection_id").where("stream_id <> back")


def with_peers(streams: DataFrame, handshakes: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Returns one row of ENDS per stream that counts. `sender` and `receiver` are GUIDs, or addresses without one.

    The GUIDs of client and server come from the connection's EstablishConnection packets. A request may leave the
    server NULL ([MS-MQQB] 2.2.3.1), so the acceptor's response goes first. For a connection that was captured from
    mid-stream and has no handshake, `previous`, the ENDS of the previous warehouse, names the peers of the last
    connection between the same ports. A stream without a captured segment begins when its connection does.
    """
    named = handshakes.groupBy("stream_id").agg(
        F.max(known_guid("client_guid")).alias("client"), F.max(known_guid("server_guid")).alias("server")
    )
    if previous is not None:
        named = named.unionByName(_named_before(streams.join(named, "stream_id", "left_anti"), previous))
    both = Window.partitionBy("connection_id").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    initiator = F.col("from_initiator")
    sender_guid = F.when(initiator, F.col("client")).when(~initiator, F.col("server"))
    receiver_guid = F.when(initiator, F.col("server")).when(~initiator, F.col("client"))
    response = F.when(~initiator, F.col("server"))
    peers = (
        streams.join(named, "stream_id", "left")
        .withColumn("server", F.coalesce(F.max(response).over(both), F.max("server").over(both)))
        .withColumn("client", F.max("client").over(both))
        .withColumn("first_ns", nanoseconds("first_captured_at"))
        .select(
            "stream_id",
            "connection_id",
            null("string").alias("copy_of"),
            "mid_stream",
            "recovered_bytes",
            "missing_bytes",
            F.coalesce("first_ns", F.min("first_ns").over(both)).alias("first_ns"),
            nanoseconds("last_captured_at").alias("last_ns"),
            F.col("src_ip").alias("address"),
            "dst_ip",
            sender_guid.alias("sender_guid"),
            receiver_guid.alias("receiver_guid"),
            F.coalesce(sender_guid, "src_ip").alias("sender"),
            F.coalesce(receiver_guid, "dst_ip").alias("receiver"),
        )
        .withColumn("session_id", F.concat_ws("->", "sender", "receiver"))
    )
    return _with_receiver_by_address(peers, previous)


def _with_receiver_by_address(peers: DataFrame, previous: DataFrame | None) -> DataFrame:
    """Adds `receiver_by_address`: the only GUID that handshakes on other connections give to the receiver's address.

    Ports do not count. An address that has no GUID here has that of `previous`, the ENDS of the previous warehouse.
    Null where the connection's own handshake names the receiver.
    """
    named = peers.select("address", "sender_guid", F.lit(False).alias("before"))
    if previous is not None:
        named = named.unionByName(previous.select("address", "sender_guid", F.lit(True).alias("before")))
    only = (
        named.where("sender_guid is not null")
        .groupBy("address", "before")
        .agg(F.min("sender_guid").alias("least"), F.max("sender_guid").alias("most"))
        .groupBy("address")
        .agg(F.min(F.struct("before", "least", "most")).alias("of"))
        .where("of.least = of.most")
        .select(F.col("address").alias("dst_ip"), F.col("of.least").alias("by_address"))
    )
    by_address = F.when(F.col("receiver_guid").isNull(), F.col("by_address"))
    return (
        peers.join(F.broadcast(only), "dst_ip", "left")
        .withColumn("receiver_by_address", by_address)
        .drop("dst_ip", "by_address")
    )


def _named_before(streams: DataFrame, previous: DataFrame) -> DataFrame:
    """Returns `stream_id`, `client` and `server` of mid-stream connections whose ports are in the `previous` ENDS."""
    ports, initiator = F.substring_index("stream_id", "#", 1).alias("ports"), F.col("from_initiator")
    sender, receiver = F.col("last.sender_guid"), F.col("last.receiver_guid")
    last = previous.groupBy(ports).agg(F.max_by(F.struct("sender_guid", "receiver_guid"), "last_ns").alias("last"))
    return (
        streams.where("mid_stream")
        .select("stream_id", "from_initiator", ports)
        .join(last, "ports")
        .select(
            "stream_id",
            F.when(initiator, sender).otherwise(receiver).alias("client"),
            F.when(initiator, receiver).otherwise(sender).alias("server"),
        )
    )
