"""Finds connections that were captured twice, at both ends of an address translation, and chooses which one counts.

A connection is a copy of another where both have the same initial sequence numbers and the same EstablishConnection
(ClientGuid and TimeStamp, [MS-MQQB] 2.2.3.1). Where one of these was not captured, the addresses must differ and most
packets of both must be the same at a constant difference of stream offsets. Resends on a new connection are the same
packets too, but they go between the same addresses.

A firewall may draw other sequence numbers. Then the same EstablishConnection and the same packets decide, or without
it most packets in both directions (`renumbered_copies`); and both connections were captured at one time, by the clocks
of their captures. A reconnect has another time stamp and, between the same addresses, another port.

Few streams have no known beginning (`vague_streams`). Packets equal to the first or last packet of such a stream
(`number_packets`) lead to the streams that are compared (`likely_streams`), and all packets of these decide
(`same_packets`).
"""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from schemas.ingest import PacketType
from udfs.frames.columns import PLACE, count, count_if, null, number_of
from udfs.frames.derivation import derives

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
_SECOND = 1_000_000_000
_NEAR_S = 1
"""Seconds, rounded down, that are taken for equal if they differ by no more."""
_HANDSHAKE = ("client", "booted_ms")
IDENTITY: dict[str, tuple[str, ...]] = {
    "messages": ("message_id", "sent_at", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
    "acks": (
        *("message_id", "ack_type", "source_queue_manager", "tx_sequence_id", "tx_sequence_number"),
        "acknowledged_message_id",
    ),
}
"""Columns in which equal packets agree. Handshakes are not compared, because they are alike on all connections."""


def known_connections(streams: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per connection whose initiator is known, with what tells it apart from all others.

    These are `seq_forth` and `seq_back`, the initial sequence numbers, and `client` and `booted_ms`, the ClientGuid and
    TimeStamp of its EstablishConnection. They are null where they were not captured. `forth` and `back` are its two
    streams, `addresses` those of its initiator and its acceptor, `endpoints` these with their ports. `offset_forth` and
    `offset_back` are where the two EstablishConnections stand, `begun_ns` is when the first was captured.
    """
    forth = pl.col("from_initiator")
    ends = ("src_ip", "dst_ip")
    initiator, acceptor = (pl.when(forth).then(a).otherwise(b) for a, b in (ends, reversed(ends)))
    offset = pl.col("stream_offset")
    established = (
        handshakes.filter(handshake_type=PacketType.ESTABLISH_CONNECTION.value)
        .join(streams.select("stream_id", "connection_id", "from_initiator"), on="stream_id")
        .group_by("connection_id")
        .agg(
            pl.max("client_guid").alias("client"),
            pl.max("time_stamp_ms").alias("booted_ms"),
            offset.filter(forth).min().alias("offset_forth"),
            offset.filter(~forth).min().alias("offset_back"),
            pl.min("captured_ns").alias("begun_ns"),
        )
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
        .with_columns(endpoints=pl.col("connection_id").str.replace(r"#\d+$", ""))
        .join(established, on="connection_id", how="left")
    )


def with_both(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
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


def same_handshake(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of connections with the same EstablishConnection, but not the same sequence numbers.

    More than MOST_ALIKE are no copies of one another. Between the same addresses, the ports are the same as well.
    """
    known = pl.all_horizontal(pl.col(_HANDSHAKE).is_not_null())
    twice = connections.filter(known & pl.len().over(_HANDSHAKE).is_between(_SEVERAL, MOST_ALIKE))
    x, y = (twice.select(*_HANDSHAKE, pl.col("connection_id").alias(side)) for side in PAIR)
    pairs = x.join(y, on=_HANDSHAKE).filter(pl.col(X) < pl.col(Y)).select(PAIR)
    both = with_both(pairs, connections)
    is_same = pl.all_horizontal(pl.col(f"x_{name}") == pl.col(f"y_{name}") for name in _BEGINNING)
    return both.filter(_passes_once(), ~is_same.fill_null(value=False)).select(PAIR)


def _passes_once() -> pl.Expr:
    """Tells whether a firewall may be between two connections: their addresses differ, or not even their ports do."""
    return (pl.col("x_addresses") != pl.col("y_addresses")) | (pl.col("x_endpoints") == pl.col("y_endpoints"))


def vague_streams(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the connections of which packets are compared to know their copies.

    Their beginning was not captured, and others have other addresses or the same endpoints; or they have the
    `same_handshake` as another one.
    """
    handshakes = same_handshake(connections)
    in_pairs = pl.concat(handshakes.select(connection_id=side) for side in PAIR)
    has_others = (pl.col("addresses").n_unique() > 1) | (pl.len().over("endpoints") > 1)
    unknown = connections.filter(~_IS_KNOWN, has_others).select("connection_id")
    vague = connections.join(pl.concat([unknown, in_pairs]), on="connection_id", how="semi")
    return pl.concat(vague.select(stream_id=way) for way in WAYS).drop_nulls()


@derives(in_parts=True)
def number_packets(packets: pl.DataFrame, *, kind: str) -> pl.DataFrame:
    """Returns the place and time of each packet, and `packet`, a number that only its copies and resends share.

    All are of one kind in IDENTITY. An `is_ack` has the identifier that its receiver gave to it alone.
    """
    number = number_of("kind", *IDENTITY[kind])
    numbered = packets.with_columns(kind=pl.lit(kind)).with_columns(packet=number, is_ack=pl.lit(kind == "acks"))
    return numbered.select(*PLACE, "captured_ns", "message_id", "packet", "is_ack")


@derives(in_parts=True)
def ends_in_part(packets: pl.DataFrame, *, kind: str) -> pl.DataFrame:
    """Returns the first and the last of some packets of each stream, as `number_packets` does."""
    return ends_of_streams(number_packets(packets, kind=kind))


@derives(("stream_id",))
def ends_of_streams(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the first and the last packet of each stream that have a message ID."""
    in_order = packets.drop_nulls("message_id").sort("stream_offset", "packet").group_by("stream_id")
    return pl.concat([in_order.first(), in_order.last()])


@derives(("stream_id",))
def not_too_many(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets of streams without those that are the same as MOST_ALIKE earlier ones of the stream."""
    nth = pl.int_range(pl.len()).over("stream_id", "packet")
    return packets.sort("stream_offset").filter(nth < MOST_ALIKE)


@derives(("packet",), ("vague",))
def alike(packets: pl.DataFrame, vague: pl.DataFrame) -> pl.DataFrame:
    """Returns how many packets, `same`, a vague stream `x` shares with a stream `y` at which difference of offsets.

    That is `ahead`; `late_s` is how much later x has them, in whole seconds, and `acks` how many acknowledge. Packets
    that more than MOST_ALIKE streams hold do not count. Of packets that are sent again and again, each meets each:
    these pairs are counted as they come, and never all held.
    """
    few = packets.filter(pl.col("stream_id").n_unique().over("packet") <= MOST_ALIKE)
    x, y = (
        few.select(
            *("packet", "is_ack"),
            pl.col("stream_id").alias(side),
            pl.col("stream_offset").alias(f"{side}_offset"),
            pl.col("captured_ns").alias(f"{side}_ns"),
        )
        for side in "xy"
    )
    return (
        x.lazy()
        .join(vague.lazy(), left_on="x", right_on="stream_id", how="semi")
        .join(y.drop("is_ack").lazy(), on="packet")
        .filter(pl.col("x") != pl.col("y"))
        .group_by(
            *("x", "y"),
            ahead=pl.col("x_offset") - pl.col("y_offset"),
            late_s=(pl.col("x_ns") - pl.col("y_ns")) // _SECOND,
        )
        .agg(same=count(), acks=count_if("is_ack"))
        .collect(engine="streaming")
    )


def likely_streams(alike: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the connections that may be copies of each other, as few of their packets say."""
    pairs = _of_connections(alike, connections)
    pairs = pl.concat([_compatible(pairs), _may_be_renumbered(pairs)]).select(PAIR).unique()
    both = with_both(pl.concat([pairs, same_handshake(connections)]).unique(), connections)
    ways = (both.select(stream_id=f"{side}_{way}") for side in "xy" for way in WAYS)
    return pl.concat(ways).drop_nulls().unique()


def _of_connections(alike: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns what is `alike`, with both connections."""
    x, y = (_streams(connections).rename({"stream_id": side[0], "connection_id": side}) for side in PAIR)
    return with_both(alike.join(x, on="x").join(y, on=["y", "way"]), connections)


def _agree(names: Sequence[str]) -> Iterator[pl.Expr]:
    """Yields whether both connections have the same in these columns, as far as that is known."""
    return ((pl.col(f"x_{name}") == pl.col(f"y_{name}")).fill_null(value=True) for name in names)


def _compatible(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs with other addresses and, as far as known, one beginning, which the first does not know."""
    is_other = pl.col("x_addresses") != pl.col("y_addresses")
    return pairs.filter(_x_is_vague(), *_agree(_BEGINNING), is_other, ~_goes_on())


def _goes_on() -> pl.Expr:
    """Tells whether one connection goes on from where the other one ends: a router sends the messages on."""
    x, y = (pl.col(f"{side}_addresses").struct for side in "xy")
    to_y, to_x = (a.field("acceptor") == b.field("initiator") for a, b in ((x, y), (y, x)))
    return (to_y | to_x).fill_null(value=False)


def _x_is_vague() -> pl.Expr:
    return pl.any_horizontal(pl.col(f"x_{name}").is_null() for name in _BEGINNING)


def _may_be_renumbered(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs of which one has no known handshake, and between which a firewall may be."""
    one_lacks = pl.any_horizontal(pl.col(f"{side}_booted_ms").is_null() for side in "xy")
    return pairs.filter(_x_is_vague(), *_agree(_HANDSHAKE), _passes_once(), one_lacks, ~_goes_on())


def _streams(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams of connections, and which `way` each goes."""
    ways = (connections.select("connection_id", stream_id=way, way=pl.lit(way)) for way in WAYS)
    return pl.concat(ways).drop_nulls()


def same_packets(alike: pl.DataFrame, counted: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns for each vague connection the one that shares most packets with it, if more than half.

    `alike` are all packets of both, at one difference of offsets for each way; `counted` says how many a stream has.
    These are pairs with other addresses and one beginning, and those that a firewall renumbered (`renumbered_copies`).
    A difference that packets do not tell is that of the handshakes.
    """
    pairs = _of_connections(alike, connections)
    translated = _with_share(_compatible(pairs), counted, connections).filter(pl.col("share") > _HALF)
    renumbered = renumbered_copies(pairs, counted, connections)
    found = pl.concat([_best(translated).select(renumbered.columns), renumbered])
    return found.group_by(PAIR, maintain_order=True).agg(pl.col(AHEAD).drop_nulls().first())


def _best(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns of the pairs of each connection the one with the greatest share, and of several the nearest in time.

    A sender that connects again and sends all once more has the same packets later.
    """
    return pairs.sort("share", -pl.col("apart_s"), Y).group_by(X, maintain_order=True).last()


def _with_share(pairs: pl.DataFrame, counted: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns per PAIR how many packets are the `same`, by the likeliest AHEAD; of all of x and y, that is `share`.

    They are `apart_s` or more.
    """
    x, y = _totals(counted, connections)
    return (
        pairs.group_by(*PAIR, "way", "ahead")
        .agg(pl.sum("same"), pl.col("late_s").abs().min())
        .sort("same", -pl.col("ahead").abs(), "ahead")
        .group_by(*PAIR, "way")
        .agg(pl.last("same", "ahead", "late_s"))
        .group_by(PAIR)
        .agg(
            pl.sum("same"),
            pl.min("late_s").fill_null(0).alias("apart_s"),
            *(pl.col("ahead").filter(way=way).max().alias(name) for way, name in zip(WAYS, AHEAD, strict=True)),
        )
        .join(x, on=X)
        .join(y, on=Y)
        .with_columns(share=pl.col("same") / pl.max_horizontal("x", "y"))
    )


def _totals(counted: pl.DataFrame, connections: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields how many packets the first and the second connection of a pair have, as columns x and y."""
    totals = _streams(connections).join(counted, on="stream_id").group_by("connection_id").agg(pl.sum("count"))
    return (totals.select(pl.col("connection_id").alias(side), pl.col("count").alias(side[0])) for side in PAIR)


def renumbered_copies(pairs: pl.DataFrame, counted: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs of connections of which a firewall renumbered one; `pairs` say what they share.

    They have the `same_handshake`, and more than half of the packets of the one that has fewer are the same; or one
    lacks its handshake, and more than half of all are. Both were captured at one time: most packets come as much later,
    and that is within a second, or as in a pair that shares an acknowledgment, which has a number of its own.
    """
    known = with_both(same_handshake(connections), connections)
    begun = pl.all_horizontal(pl.col(f"{side}_{seq}").is_not_null() for side in "xy" for seq in _BEGINNING[:2])
    placed = {
        name: pl.coalesce(pl.col(f"x_offset_{way}") - pl.col(f"y_offset_{way}"), pl.when(begun).then(0))
        for way, name in zip(WAYS, AHEAD, strict=True)
    }
    begun_s = (pl.col("x_begun_ns") - pl.col("y_begun_ns")) // _SECOND
    x, y = _totals(counted, connections)
    found = _with_share(pairs.join(known, on=PAIR, how="semi"), counted, connections).drop("x", "y")
    found = (
        known.select(*PAIR, **placed, begun_s=begun_s)
        .join(found, on=PAIR, how="left", suffix="_found")
        .join(x, on=X, how="left")
        .join(y, on=Y, how="left")
        .with_columns(pl.coalesce(name, f"{name}_found").alias(name) for name in AHEAD)
    )
    vague = _with_share(_may_be_renumbered(pairs), counted, connections).filter(pl.col("share") > _HALF)
    vague = _best(vague)
    columns = (*PAIR, *AHEAD, "x", "y", "begun_s")
    either = pl.concat([found.select(columns), vague.with_columns(begun_s=null(pl.Int64)).select(columns)])
    ahead = pl.when(way=FORTH).then(AHEAD[0]).otherwise(AHEAD[1])
    there = pairs.select(*PAIR, "way", "ahead", "late_s", "same", "acks").rename({"ahead": "at"})
    at_one_time = (
        either.join(there, on=PAIR)
        .filter(pl.col("at") == ahead)
        .group_by(*PAIR, "late_s")
        .agg(pl.sum("same", "acks"))
        .sort("same", "late_s")
        .group_by(PAIR)
        .agg(
            pl.last("late_s"),
            pl.sum("same", "acks"),
            pl.col("same")
            .filter((pl.col("late_s") - pl.col("late_s").last()).abs() <= _NEAR_S)
            .sum()
            .alias("together"),
        )
    )
    few = pl.min_horizontal(pl.col("x", "y").fill_null(0))
    same = pl.col("same").fill_null(0)
    likely = either.join(at_one_time, on=PAIR, how="left").filter(
        (same == 0) & (few == 0) | ((same > few * _HALF) & (pl.col("together") > same * _HALF))
    )
    likely = likely.with_columns(late_s=pl.coalesce("late_s", "begun_s"))
    trusted = likely.filter(pl.col("acks") > 0)["late_s"].drop_nulls().unique()
    known_s = sorted({0, -1, *trusted, *(-1 - one for one in trusted)})
    near = pl.any_horizontal((pl.col("late_s") - one).abs() <= _NEAR_S for one in known_s)
    return likely.filter(near).select(*PAIR, *AHEAD)


def find_taps(pairs: pl.DataFrame, connections: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """Returns `connection_id` and `tap`, where it was captured, of the pairs with the same endpoints on both sides.

    Captures that show the same connection are of one tap, which has the name of the first. `shown` are the `stream_id`
    and `capture_id` of packets.
    """
    alike = with_both(pairs.select(PAIR), connections).filter(pl.col("x_endpoints") == pl.col("y_endpoints"))
    ids = pl.concat(alike.select(connection_id=side) for side in PAIR).unique()
    captures = ids.join(_streams(connections), on="connection_id").join(shown, on="stream_id")
    of_connections = captures.drop_nulls("capture_id").group_by("connection_id").agg(pl.col("capture_id").unique())
    taps = first_of_linked(of_connections["capture_id"].to_list())
    named = pl.DataFrame(list(taps.items()), {"capture_id": pl.String, "tap": pl.String}, orient="row")
    shows = of_connections.select("connection_id", pl.col("capture_id").list.first())
    return shows.join(named, on="capture_id").select("connection_id", "tap")


def first_of_linked(links: Iterable[Iterable[str]]) -> dict[str, str]:
    """Returns for each member of some groups the first of all members that groups link it to, in order of text."""
    leads: dict[str, str] = {}

    def first(one: str) -> str:
        while (other := leads.setdefault(one, one)) != one:
            one = other
        return one

    for link in links:
        lead, *others = sorted({first(one) for one in link})
        leads.update(dict.fromkeys(others, lead))
    return {one: first(one) for one in list(leads)}


def stream_copies(pairs: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `copy_of`, the stream that counts, and `ahead`: its offset minus that in `copy_of`.

    `ahead` is null where no packet tells it. `pairs` are connections that are copies of each other. The one that counts
    is on the pair of addresses, and at the `tap`, of which fewer connections begin in mid-stream, then fewer bytes are
    missing: so the streams of a session count on one side, by one clock.
    """
    swapped = pairs.select(pl.col(Y).alias(X), pl.col(X).alias(Y), *(-pl.col(name) for name in AHEAD))
    pairs = pl.concat([pairs.select(*PAIR, *AHEAD), swapped]).group_by(PAIR).agg(pl.max(*AHEAD))
    best = (
        with_both(pairs, _ranked(connections.join(pairs, left_on="connection_id", right_on=X, how="semi")))
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
    both = with_both(chosen, connections)
    ways = (both.select(stream_id=f"x_{way}", copy_of=f"y_{way}", ahead=f"ahead_{way}") for way in WAYS)
    return pl.concat(ways).drop_nulls(["stream_id", "copy_of"])


def _ranked(connections: pl.DataFrame) -> pl.DataFrame:
    """Returns `connection_id` and `rank` of connections of which there are copies, the best first."""
    faults = (pl.col("mid_stream").cast(pl.Int64), pl.col("missing"), -pl.col("recovered"))
    ends = pl.col("addresses").struct.field("initiator", "acceptor")
    order = [*(fault.sum().over("addresses", "tap") for fault in faults), ends, "tap", *faults, "connection_id"]
    return connections.sort(order).with_row_index("rank").select("connection_id", "rank")
