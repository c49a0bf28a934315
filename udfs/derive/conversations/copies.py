"""Finds connections that were captured twice, at both ends of an address translation, and chooses which one counts.

A connection is a copy of another where both have the same initial sequence numbers and the same EstablishConnection
(ClientGuid and TimeStamp, [MS-MQQB] 2.2.3.1). Where one of these was not captured, the addresses must differ and most
packets of both must be the same at a constant difference of stream offsets. Resends on a new connection are the same
packets too, but they go between the same addresses.

Few streams have no known beginning (`vague_streams`). An engine numbers all packets in parts (`number_packets`). Those
equal to the first or last packet of such a stream lead to the streams that are compared (`likely_streams`), and all
packets of these decide (`same_packets`).
"""

import polars as pl

from schemas.ingest import PacketType
from udfs.derive.columns import PLACE, count, number_of
from udfs.derive.frames import Frames, derives

WAYS = FORTH, BACK = "forth", "back"
AHEAD = tuple(f"ahead_{way}" for way in WAYS)
PAIR = X, Y = "x_connection_id", "y_connection_id"
MOST_ALIKE = 64
"""So many connections may begin alike, streams hold one packet, and packets of a stream be the same, to be compared.

Nobody captures at so many places. Who sends the same n times would have them compared n times n times.
"""
_BEGINNING = ("seq_forth", "seq_back", "client", "booted_ms")
_IS_KNOWN = pl.all_horizontal(pl.col(*_BEGINNING).is_not_null())
_SEVERAL = 2
_HALF = 0.5
_IDENTITY: dict[str, tuple[str, ...]] = {
    "messages": ("message_id", "sent_at", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
    "acks": ("ack_type", "source_queue_manager", "tx_sequence_id", "tx_sequence_number", "acknowledged_message_id"),
}
"""Columns in which equal packets agree. Handshakes are not compared, because they are alike on all connections."""


def known_connections(streams: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per connection whose initiator is known, with what tells it apart from all others.

    These are `seq_forth` and `seq_back`, the initial sequence numbers, and `client` and `booted_ms`, the ClientGuid and
    TimeStamp of its EstablishConnection. They are null where they were not captured. `forth` and `back` are its two
    streams, `addresses` those of its initiator and its acceptor.
    """
    forth = pl.col("from_initiator")
    ends = ("src_ip", "dst_ip")
    initiator, acceptor = (pl.when(forth).then(a).otherwise(b) for a, b in (ends, reversed(ends)))
    established = (
        handshakes.filter(handshake_type=PacketType.ESTABLISH_CONNECTION.value)
        .join(streams.select("stream_id", "connection_id"), on="stream_id")
        .group_by("connection_id")
        .agg(pl.max("client_guid").alias("client"), pl.max("time_stamp_ms").alias("booted_ms"))
    )
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
        .join(established, on="connection_id", how="left")
    )


def _with_both(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Joins the columns of both connections of each pair, with the prefixes x and y."""
    for prefix, side in zip("xy", PAIR, strict=True):
        pairs = pairs.join(connections.select(pl.all().name.prefix(f"{prefix}_")), on=side)
    return pairs


def same_beginning(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of connections with the same sequence numbers and EstablishConnection; their offsets are equal.

    More than MOST_ALIKE are no copies of one another.
    """
    twice = connections.filter(_IS_KNOWN & pl.len().over(_BEGINNING).is_between(_SEVERAL, MOST_ALIKE))
    x, y = (twice.select(*_BEGINNING, pl.col("connection_id").alias(side)) for side in PAIR)
    level = (pl.lit(0, pl.Int64).alias(name) for name in AHEAD)
    return x.join(y, on=_BEGINNING).filter(pl.col(X) != pl.col(Y)).select(*PAIR, *level)


def vague_streams(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the connections whose beginning was not captured; none where all have the same addresses.

    Packets are compared for these.
    """
    vague = connections.filter(~_IS_KNOWN, pl.lit(connections["addresses"].n_unique() > 1))
    return pl.concat(vague.select(stream_id=way) for way in WAYS).drop_nulls()


@derives(("stream_id",), ("vague",), {name: (*PLACE, *columns) for name, columns in _IDENTITY.items()})
def number_packets(messages: pl.DataFrame, acks: pl.DataFrame, vague: pl.DataFrame) -> Frames:
    """Returns all `packets`: the place of each, and `packet`, a number that only its copies and resends share.

    `probes` are such numbers: those of the first and the last packet of each of the `vague_streams`.
    """
    tables = {"messages": messages, "acks": acks}
    packets = pl.concat(
        tables[name].select(*PLACE, *columns, kind=pl.lit(name)).select(*PLACE, packet=number_of("kind", *columns))
        for name, columns in _IDENTITY.items()
    )
    ends = packets.join(vague, on="stream_id", how="semi").sort("stream_offset", "packet").group_by("stream_id")
    return {
        "packets": packets,
        "probes": pl.concat(ends.agg(end("packet")) for end in (pl.first, pl.last)).select("packet").unique(),
    }


@derives(("stream_id",))
def not_too_many(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets of streams without those that are the same as MOST_ALIKE earlier ones of the stream."""
    nth = pl.int_range(pl.len()).over("stream_id", "packet")
    return packets.sort("stream_offset").filter(nth < MOST_ALIKE)


@derives(("packet",), ("vague",))
def alike(packets: pl.DataFrame, vague: pl.DataFrame) -> pl.DataFrame:
    """Returns how many packets, `same`, a vague stream `x` shares with a stream `y` at which difference of offsets.

    That is `ahead`. Packets that more than MOST_ALIKE streams hold do not count. Of packets that are sent again and
    again, each meets each: these pairs are counted as they come, and never all held.
    """
    few = packets.filter(pl.col("stream_id").n_unique().over("packet") <= MOST_ALIKE)
    x, y = (
        few.select("packet", pl.col("stream_id").alias(side), pl.col("stream_offset").alias(f"{side}_offset"))
        for side in "xy"
    )
    return (
        x.lazy()
        .join(vague.lazy(), left_on="x", right_on="stream_id", how="semi")
        .join(y.lazy(), on="packet")
        .filter(pl.col("x") != pl.col("y"))
        .group_by("x", "y", ahead=pl.col("x_offset") - pl.col("y_offset"))
        .agg(same=count())
        .collect(engine="streaming")
    )


def likely_streams(alike: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the connections that may be copies of each other, as few of their packets say."""
    pairs = _compatible(alike, connections)
    ways = (pairs.select(stream_id=f"{side}_{way}") for side in "xy" for way in WAYS)
    return pl.concat(ways).drop_nulls().unique()


def _compatible(alike: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns what is `alike` with both connections, which have other addresses and, as far as known, one beginning."""
    x, y = (_streams(connections).rename({"stream_id": side[0], "connection_id": side}) for side in PAIR)
    is_same = ((pl.col(f"x_{name}") == pl.col(f"y_{name}")).fill_null(value=True) for name in _BEGINNING)
    both = _with_both(alike.join(x, on="x").join(y, on=["y", "way"]), connections)
    return both.filter(*is_same, pl.col("x_addresses") != pl.col("y_addresses"))


def _streams(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams of connections, and which `way` each goes."""
    ways = (connections.select("connection_id", stream_id=way, way=pl.lit(way)) for way in WAYS)
    return pl.concat(ways).drop_nulls()


def same_packets(alike: pl.DataFrame, counted: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns for each vague connection the one that shares most packets with it, if more than half.

    `alike` are all packets of both, at one difference of offsets for each way; `counted` says how many a stream has.
    """
    totals = _streams(connections).join(counted, on="stream_id").group_by("connection_id").agg(pl.sum("count"))
    x, y = (totals.select(pl.col("connection_id").alias(side), pl.col("count").alias(side[0])) for side in PAIR)
    return (
        _compatible(alike, connections)
        .group_by(*PAIR, "way", "ahead")
        .agg(pl.sum("same"))
        .sort("same", -pl.col("ahead").abs(), "ahead")
        .group_by(*PAIR, "way")
        .agg(pl.last("same", "ahead"))
        .group_by(PAIR)
        .agg(
            pl.sum("same"),
            *(pl.col("ahead").filter(way=way).max().alias(name) for way, name in zip(WAYS, AHEAD, strict=True)),
        )
        .join(x, on=X)
        .join(y, on=Y)
        .with_columns(share=pl.col("same") / pl.max_horizontal("x", "y"))
        .filter(pl.col("share") > _HALF)
        .sort("share", Y)
        .group_by(X)
        .agg(pl.last(Y, *AHEAD))
    )


def stream_copies(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `copy_of`, the stream that counts, and `ahead`: its offset minus that in `copy_of`.

    `ahead` is null where no packet tells it. `pairs` are connections that are copies of each other. The one that counts
    is on the pair of addresses of which fewer connections begin in mid-stream, then fewer bytes are missing: so the
    streams of a session count on one side, by one clock.
    """
    swapped = pairs.select(pl.col(Y).alias(X), pl.col(X).alias(Y), *(-pl.col(name) for name in AHEAD))
    pairs = pl.concat([pairs.select(*PAIR, *AHEAD), swapped]).group_by(PAIR).agg(pl.max(*AHEAD))
    best = (
        _with_both(pairs, _ranked(connections.join(pairs, left_on="connection_id", right_on=X, how="semi")))
        .filter(pl.col("y_rank") < pl.col("x_rank"))
        .group_by(X)
        .agg(pl.col(Y, *AHEAD).sort_by("y_rank").first())
    )
    a_copy_of = best.select(pl.col(X).alias(Y), pl.col(Y).alias("further"), pl.col(*AHEAD).name.prefix("further_"))
    further = pl.when(pl.col("further").is_null()).then(0)
    chosen = best.join(a_copy_of, on=Y, how="left").select(
        X,
        pl.coalesce("further", Y).alias(Y),
        *(pl.col(name) + further.otherwise(f"further_{name}") for name in AHEAD),
    )
    both = _with_both(chosen, connections)
    ways = (both.select(stream_id=f"x_{way}", copy_of=f"y_{way}", ahead=f"ahead_{way}") for way in WAYS)
    return pl.concat(ways).drop_nulls(["stream_id", "copy_of"])


def _ranked(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `connection_id` and `rank` of connections of which there are copies, the best first."""
    faults = (pl.col("mid_stream").cast(pl.Int64), pl.col("missing"), -pl.col("recovered"))
    ends = pl.col("addresses").struct.field("initiator", "acceptor")
    order = [*(fault.sum().over("addresses") for fault in faults), ends, *faults, "connection_id"]
    return connections.sort(order).with_row_index("rank").select("connection_id", "rank")
