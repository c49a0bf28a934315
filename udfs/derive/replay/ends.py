"""Finds the queue managers that talk on each stream: the rows of ENDS."""

import polars as pl

from udfs.derive.columns import nanoseconds, null

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


def find_ends(streams: pl.DataFrame, handshakes: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of ENDS per stream that counts. `sender` and `receiver` are GUIDs, or addresses without one.

    The GUIDs of client and server come from the connection's EstablishConnection packets. A request may leave the
    server NULL ([MS-MQQB] 2.2.3.1), so the acceptor's response goes first. For a connection that was captured from
    mid-stream and has no handshake, `previous`, the ENDS of the previous warehouse (no rows without one), names the
    peers of the last connection between the same ports. A stream without a captured segment begins when its connection
    does.
    """
    named = handshakes.group_by("stream_id").agg(
        known_guid("client_guid").max().alias("client"), known_guid("server_guid").max().alias("server")
    )
    before = _named_before(streams.join(named, on="stream_id", how="anti"), previous)
    named = _for_both_directions(streams.join(pl.concat([named, before]), on="stream_id", how="left"))
    ends = named.select(
        "stream_id",
        "connection_id",
        null(pl.String).alias("copy_of"),
        "mid_stream",
        "recovered_bytes",
        "missing_bytes",
        "first_ns",
        nanoseconds(pl.col("last_captured_at")).alias("last_ns"),
        pl.col("src_ip").alias("address"),
        "dst_ip",
        "sender_guid",
        "receiver_guid",
        pl.coalesce("sender_guid", "src_ip").alias("sender"),
        pl.coalesce("receiver_guid", "dst_ip").alias("receiver"),
    ).with_columns(pl.concat_str("sender", "receiver", separator="->", ignore_nulls=True).alias("session_id"))
    return _with_receiver_by_address(ends, previous)


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


def _with_receiver_by_address(ends: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Adds `receiver_by_address`: the only GUID that handshakes on other connections give to the receiver's address.

    Ports do not count. An address that has no GUID here has that of `previous`, the ENDS of the previous warehouse.
    Null where the connection's own handshake names the receiver.
    """
    here = _named_addresses(ends)
    named = pl.concat([here, _named_addresses(previous).join(here, on="address", how="anti")])
    only = named.filter(pl.col("least") == pl.col("most")).select(pl.col("address").alias("dst_ip"), "least")
    by_address = pl.when(pl.col("receiver_guid").is_null()).then(pl.col("least"))
    return (
        ends.join(only, on="dst_ip", how="left")
        .with_columns(by_address.alias("receiver_by_address"))
        .drop("dst_ip", "least")
    )


def _named_addresses(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns `address`, and the `least` and `most` of the GUIDs that handshakes give to it."""
    guid = pl.col("sender_guid")
    named = ends.filter(guid.is_not_null()).group_by("address")
    return named.agg(guid.min().alias("least"), guid.max().alias("most"))


def _named_before(streams: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `client` and `server` of mid-stream connections whose ports are in the `previous` ENDS."""
    ports = pl.col("stream_id").str.splitn("#", 2).struct[0].alias("ports")
    initiator, sender, receiver = (pl.col(name) for name in ("from_initiator", "sender_guid", "receiver_guid"))
    last = (
        previous.filter(pl.col("last_ns").is_not_null())
        .select(ports, sender, receiver, "last_ns", "stream_id")
        .sort("last_ns", "stream_id")
        .unique("ports", keep="last")
        .drop("last_ns", "stream_id")
    )
    return (
        streams.filter("mid_stream")
        .select("stream_id", "from_initiator", ports)
        .join(last, on="ports")
        .select(
            "stream_id",
            pl.when(initiator).then(sender).otherwise(receiver).alias("client"),
            pl.when(initiator).then(receiver).otherwise(sender).alias("server"),
        )
    )
