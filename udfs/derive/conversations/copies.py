"""Finds connections that were captured twice, at both ends of an address translation, and shows each of them once.

A connection is a copy of another where both have the same initial sequence numbers and the same EstablishConnection
(ClientGuid and TimeStamp, [MS-MQQB] 2.2.3.1). Where one of these was not captured, the addresses must differ and most
packets of both must be the same at a constant difference of stream offsets; one packet suffices where the initial
sequence numbers are known (`packets`). Resends on a new connection are the same packets too, but they go between the
same addresses.
"""

import polars as pl

from schemas.ingest import PacketType

WAYS = FORTH, BACK = "forth", "back"
AHEAD = tuple(f"ahead_{way}" for way in WAYS)
PAIR = X, Y = "x_connection_id", "y_connection_id"
MOST_ALIKE = 64
"""So many connections may begin alike, streams hold one packet, and packets of a stream be the same, to be compared.

Nobody captures at so many places. Who sends the same n times would have them compared n times n times.
"""
BEGINNING = ("seq_forth", "seq_back", "client", "booted_ms")
IS_KNOWN = pl.all_horizontal(pl.col(*BEGINNING).is_not_null())
_SEVERAL = 2


def known_connections(streams: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per connection whose initiator is known, with what tells it apart from all others.

    These are `seq_forth` and `seq_back`, the initial sequence numbers, and `client` and `booted_ms`, the ClientGuid and
    TimeStamp of its EstablishConnection. They are null where they were not captured. `forth` and `back` are its two
    streams, `addresses` those of its initiator and its acceptor.
    """
    established = (
        handshakes.filter(handshake_type=PacketType.ESTABLISH_CONNECTION.value)
        .join(streams.select("stream_id", "connection_id"), on="stream_id")
        .group_by("connection_id")
        .agg(pl.max("client_guid").alias("client"), pl.max("time_stamp_ms").alias("booted_ms"))
    )
    return _connections(streams).join(established, on="connection_id", how="left")


def _connections(streams: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per connection: its two streams, their initial sequence numbers, and the pair of addresses."""
    forth = pl.col("from_initiator")
    ends = ("src_ip", "dst_ip")
    initiator, acceptor = (pl.when(forth).then(a).otherwise(b) for a, b in (ends, reversed(ends)))
    return (
        streams.filter(forth.is_not_null())
        .with_columns(initiator=initiator, acceptor=acceptor)
        .group_by("connection_id")
        .agg(
            pl.col("stream_id").filter(forth).max().alias(FORTH),
            pl.col("stream_id").filter(~forth).max().alias(BACK),
            pl.col("initial_seq").filter(forth).max().alias("seq_forth"),
            pl.col("initial_seq").filter(~forth).max().alias("seq_back"),
            pl.struct("initiator", "acceptor").sort_by("initiator", "acceptor").last().alias("addresses"),
            pl.max("mid_stream"),
            pl.sum("missing_bytes").alias("missing"),
            pl.sum("recovered_bytes").alias("recovered"),
        )
    )


def join_both(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Joins the columns of both connections of each pair, with the prefixes x and y."""
    for prefix, side in zip("xy", PAIR, strict=True):
        pairs = pairs.join(connections.select(pl.all().name.prefix(f"{prefix}_")), on=side)
    return pairs


def same_beginning(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of connections with the same sequence numbers and EstablishConnection; their offsets are equal.

    More than MOST_ALIKE are no copies of one another.
    """
    twice = connections.filter(IS_KNOWN & pl.len().over(BEGINNING).is_between(_SEVERAL, MOST_ALIKE))
    x, y = (twice.select(*BEGINNING, pl.col("connection_id").alias(side)) for side in PAIR)
    level = (pl.lit(0, pl.Int64).alias(name) for name in AHEAD)
    return x.join(y, on=BEGINNING).filter(pl.col(X) != pl.col(Y)).select(*PAIR, *level)


def choose_connections(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs whose second connection counts; the first one is its copy.

    The one that counts is on the pair of addresses of which fewer connections begin in mid-stream, then fewer bytes are
    missing: so the streams of a session count on one side, by one clock.
    """
    swapped = pairs.select(pl.col(Y).alias(X), pl.col(X).alias(Y), *(-pl.col(name) for name in AHEAD))
    pairs = pl.concat([pairs.select(*PAIR, *AHEAD), swapped]).group_by(PAIR).agg(pl.max(*AHEAD))
    ranked = _ranked(connections.join(pairs, left_on="connection_id", right_on=X, how="semi"))
    best = (
        join_both(pairs, ranked)
        .filter(pl.col("y_rank") < pl.col("x_rank"))
        .group_by(X)
        .agg(pl.col(Y, *AHEAD).sort_by("y_rank").first())
    )
    a_copy_of = best.select(pl.col(X).alias(Y), pl.col(Y).alias("further"), pl.col(*AHEAD).name.prefix("further_"))
    further = pl.when(pl.col("further").is_null()).then(0)
    return best.join(a_copy_of, on=Y, how="left").select(
        X,
        pl.coalesce("further", Y).alias(Y),
        *(pl.col(name) + further.otherwise(f"further_{name}") for name in AHEAD),
    )


def _ranked(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `connection_id` and `rank` of connections of which there are copies, the best first."""
    faults = (pl.col("mid_stream").cast(pl.Int64), pl.col("missing"), -pl.col("recovered"))
    ends = pl.col("addresses").struct.field("initiator", "acceptor")
    order = [*(fault.sum().over("addresses") for fault in faults), ends, *faults, "connection_id"]
    return connections.sort(order).with_row_index("rank").select("connection_id", "rank")


def stream_copies(chosen: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `copy_of`, the stream that counts, and `ahead`: its offset minus that in `copy_of`.

    `ahead` is null where no packet tells it. `chosen` are the rows of `choose_connections`.
    """
    both = join_both(chosen, connections)
    ways = (
        both.select(stream_id=pl.col(f"x_{way}"), copy_of=pl.col(f"y_{way}"), ahead=pl.col(f"ahead_{way}"))
        for way in WAYS
    )
    return pl.concat(ways).drop_nulls(["stream_id", "copy_of"])
