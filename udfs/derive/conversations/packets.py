"""Finds copies of connections whose beginning was not captured, by the packets that both have.

Few streams are concerned. An engine numbers all packets in parts (`identify_packets`), and brings together: those of
`vague_streams`, for `probes`; those whose number a probe has, for `holders`; those of the streams of
`ways_to_compare`, for `same_packets`.
"""

import polars as pl

from udfs.derive.columns import PLACE, count, number_of
from udfs.derive.conversations.copies import AHEAD, BEGINNING, IS_KNOWN, MOST_ALIKE, PAIR, WAYS, X, Y, join_both
from udfs.derive.frames import Frames, derives

_HALF = 0.5
IDENTITY: dict[str, tuple[str, ...]] = {
    "messages": ("message_id", "sent_at", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
    "acks": ("ack_type", "source_queue_manager", "tx_sequence_id", "tx_sequence_number", "acknowledged_message_id"),
}
"""What makes two packets the same. EstablishConnection is the same on all connections of two queue managers."""


def identify_packets(messages: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `stream_offset` and `packet`, a number that only copies and resends of a packet share.

    It is a hash of 64 bits, in which nulls are equal. Each row stands for itself, so any parts of the tables will do.
    """
    tables = {"messages": messages, "acks": acks}
    return pl.concat(
        tables[name].select(*PLACE, *columns, kind=pl.lit(name)).select(*PLACE, packet=number_of("kind", *columns))
        for name, columns in IDENTITY.items()
    )


@derives(("stream_id",), ("vague",), {name: (*PLACE, *columns) for name, columns in IDENTITY.items()})
def number_packets(messages: pl.DataFrame, acks: pl.DataFrame, vague: pl.DataFrame) -> Frames:
    """Returns all `packets` identified, and the `probes` of the `vague_streams`, which are `asked` for."""
    packets = identify_packets(messages, acks)
    return {"packets": packets, "asked": probes(packets.join(vague, on="stream_id", how="semi"))}


def vague_streams(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the connections whose beginning was not captured; none where all have the same addresses.

    Packets are compared for these.
    """
    vague = connections.filter(~IS_KNOWN, pl.lit(connections["addresses"].n_unique() > 1))
    return pl.concat(vague.select(stream_id=way) for way in WAYS).drop_nulls()


def probes(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` and `packet` of the first and the last packet of each stream."""
    place = ("stream_offset", "packet")
    ends = packets.group_by("stream_id").agg(
        first=pl.col("packet").sort_by(place).first(), last=pl.col("packet").sort_by(place).last()
    )
    return pl.concat(ends.select("stream_id", packet=end) for end in ("first", "last"))


@derives(("packet",), columns={"packets": ("stream_id", "packet")})
def holders(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns `packet` and `stream_id` of packets that no more than MOST_ALIKE streams hold, each once."""
    return packets.select("packet", "stream_id").unique().filter(pl.len().over("packet") <= MOST_ALIKE)


def ways_to_compare(connections: pl.DataFrame, asked: pl.DataFrame, holding: pl.DataFrame) -> Frames:
    """Returns as `ways` the pairs that `same_packets` compares, a row per direction: they may be copies of each other.

    The beginning of the first connection was not captured. The other one has other addresses and its first or last
    packet, as `probes` and `holders` tell, and whatever is known of both is the same. `ahead` is 0 where both SYNs were
    captured. `compared` are the streams, `stream_id`, that are compared for each first connection.
    """
    of_stream = pl.concat(connections.select("connection_id", stream_id=way) for way in WAYS)
    x, y = (of_stream.select(stream_id="stream_id", **{side: "connection_id"}) for side in PAIR)
    pairs = asked.join(x, on="stream_id").join(holding.join(y, on="stream_id"), on="packet").select(PAIR).unique()
    compatible = ((pl.col(f"x_{name}") == pl.col(f"y_{name}")).fill_null(value=True) for name in BEGINNING)
    both = join_both(pairs, connections).filter(*compatible, pl.col("x_addresses") != pl.col("y_addresses"))
    ways = pl.concat(
        both.select(
            *PAIR,
            way=pl.lit(way),
            x_stream=f"x_{way}",
            y_stream=f"y_{way}",
            ahead=pl.when(pl.col(f"x_seq_{way}") == pl.col(f"y_seq_{way}")).then(pl.lit(0, pl.Int64)),
        )
        for way in WAYS
    )
    compared = pl.concat(ways.select(X, stream_id=side) for side in ("x_stream", "y_stream"))
    return {"ways": ways, "compared": compared.drop_nulls().unique()}


@derives((X,))
def same_packets(ways: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """Returns for each connection of `ways_to_compare` the one that shares most packets with it, if more than half.

    Where both initial sequence numbers are the same, one packet suffices. Of a stream's packets that are the same, the
    first MOST_ALIKE count. `packets` are those of the `compared` streams, once for each first connection.
    """
    packets = packets.sort("stream_offset").filter(pl.int_range(pl.len()).over(X, "stream_id", "packet") < MOST_ALIKE)
    counted = packets.group_by(X, "stream_id").agg(packets=count())
    totals = ways.join(_most_alike(ways, packets), on=[*PAIR, "way"], how="left")
    for side in "xy":
        of_side = counted.select(X, pl.col("stream_id").alias(f"{side}_stream"), pl.col("packets").alias(side))
        totals = totals.join(of_side, on=[X, f"{side}_stream"], how="left")
    ahead = pl.coalesce("ahead", "likest_ahead")
    return (
        totals.group_by(PAIR)
        .agg(
            pl.sum("x", "y", "same"),
            (pl.count("ahead") == len(WAYS)).alias("same_numbers"),
            *(ahead.filter(way=way).max().alias(name) for way, name in zip(WAYS, AHEAD, strict=True)),
        )
        .filter(pl.col("same") > 0)
        .with_columns(share=pl.col("same") / pl.max_horizontal("x", "y"))
        .filter((pl.col("share") > _HALF) | pl.col("same_numbers"))
        .sort("share", Y)
        .group_by(X)
        .agg(pl.last(Y, *AHEAD))
    )


def _most_alike(ways: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """Returns per pair and `way` at which difference of offsets, `likest_ahead`, most packets are the `same`.

    Of packets that are sent again and again, each meets each: these pairs are counted as they come, and never all held.
    """
    x, y = (
        packets.lazy().select(
            X, "packet", pl.col("stream_id").alias(f"{side}_stream"), pl.col("stream_offset").alias(side)
        )
        for side in "xy"
    )
    way = (*PAIR, "way")
    return (
        ways.lazy()
        .select(*way, "x_stream", "y_stream")
        .join(x, on=[X, "x_stream"])
        .join(y, on=[X, "y_stream", "packet"])
        .group_by(*way, likest_ahead=pl.col("x") - pl.col("y"))
        .agg(same=count())
        .collect(engine="streaming")
        .sort("same", -pl.col("likest_ahead").abs(), "likest_ahead")
        .group_by(way)
        .agg(pl.last("same", "likest_ahead"))
    )
