"""Finds the queue managers that talk on each stream: the rows of ENDS."""

import polars as pl

from udfs.frames.columns import nanoseconds, null

NULL_GUID = "00000000-0000-0000-0000-000000000000"


def known_guid(name: str) -> pl.Expr:
    """Returns the GUID in a column; null for the NULL GUID."""
    return pl.when(pl.col(name) != NULL_GUID).then(pl.col(name))


def passes_through() -> pl.Expr:
    """Returns whether a message on a stream with ends is for another queue manager than the receiver (3.1.5.8.6)."""
    return (known_guid("queue_manager_address") != _receiver()).fill_null(False)


def receiver_is_unknown() -> pl.Expr:
    """Returns whether a message names its queue manager, and nothing tells if that is the receiver."""
    return known_guid("queue_manager_address").is_not_null() & _receiver().is_null()


def _receiver() -> pl.Expr:
    return pl.coalesce("receiver_guid", "receiver_by_address")


def find_ends(streams: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of ENDS per stream that counts. `sender` and `receiver` are GUIDs, or addresses without one.

    The GUIDs of client and server come from the connection's EstablishConnection packets. A request may leave the
    server NULL ([MS-MQQB] 2.2.3.1), so the acceptor's response goes first. A stream without a captured segment begins
    when its connection does.
    """
    named = handshakes.group_by("stream_id").agg(
        known_guid("client_guid").max().alias("client"), known_guid("server_guid").max().alias("server")
    )
    named = _for_both_directions(streams.join(named, on="stream_id", how="left"))
    ends = named.select(
        "stream_id",
        "connection_id",
        null(pl.String).alias("copy_of"),
        "mid_stream",
        "recovered_bytes",
        "missing_bytes",
        "first_ns",
        nanoseconds(pl.col("last_captured_at")).alias("last_ns"),
        nanoseconds(pl.col("receiver_last_at")).alias("receiver_last_ns"),
        pl.col("src_ip").alias("address"),
        "dst_ip",
        "sender_guid",
        "receiver_guid",
        pl.coalesce("sender_guid", "src_ip").alias("sender"),
        pl.coalesce("receiver_guid", "dst_ip").alias("receiver"),
    ).with_columns(pl.concat_str("sender", "receiver", separator="->", ignore_nulls=True).alias("session_id"))
    return _with_receiver_by_address(ends)


def _for_both_directions(streams: pl.DataFrame) -> pl.DataFrame:
    """Adds the GUIDs of sender and receiver, and `first_ns`, from what either direction says of the connection."""
    initiator, client, server = pl.col("from_initiator"), pl.col("client"), pl.col("server")
    response, first_ns = pl.when(~initiator).then(server), nanoseconds(pl.col("first_captured_at"))
    return streams.with_columns(
        client.max().over("connection_id"),
        pl.coalesce(response.max().over("connection_id"), server.max().over("connection_id")).alias("server"),
        pl.coalesce(first_ns, first_ns.min().over("connection_id")).alias("first_ns"),
    ).with_columns(
        pl.when(initiator).then(client).when(~initiator).then(server).alias("sender_guid"),
        pl.when(initiator).then(server).when(~initiator).then(client).alias("receiver_guid"),
    )


def _with_receiver_by_address(ends: pl.DataFrame) -> pl.DataFrame:
    """Adds `receiver_by_address`: the only GUID that handshakes on other connections give to the receiver's address.

    Ports do not count. Null where the connection's own handshake names the receiver.
    """
    guid = pl.col("sender_guid")
    named = ends.group_by(dst_ip="address").agg(least=guid.min(), most=guid.max())
    only = named.filter(pl.col("least") == pl.col("most")).drop("most")
    by_address = pl.when(pl.col("receiver_guid").is_null()).then(pl.col("least"))
    return (
        ends.join(only, on="dst_ip", how="left")
        .with_columns(by_address.alias("receiver_by_address"))
        .drop("dst_ip", "least")
    )
