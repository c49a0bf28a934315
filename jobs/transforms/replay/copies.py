"""Finds connections that were captured twice, at both ends of an address translation, and shows each of them once.

A connection is a copy of another where both have the same initial sequence numbers and the same EstablishConnection
(ClientGuid and TimeStamp, [MS-MQQB] 2.2.3.1). Where one of these was not captured, the addresses must differ and most
packets of both must be the same at a constant difference of stream offsets; one packet suffices where the initial
sequence numbers are known. Resends on a new connection are the same packets too, but they go between the same
addresses.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import each, optional
from schemas.messages import HandshakeType

_KEY = ("stream_id", "stream_offset")
_PACKETS: dict[str, tuple[str, ...]] = {
    "messages": ("message_id", "sent_at", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
    "acks": ("ack_type", "source_queue_manager", "tx_sequence_id", "tx_sequence_number", "acknowledged_message_id"),
}
"""What makes two packets the same. EstablishConnection is the same on all connections of two queue managers."""
_WAYS = _FORTH, _BACK = "forth", "back"
_AHEAD = tuple(f"ahead_{way}" for way in _WAYS)
_MOST_ALIKE = 64
"""So many connections may begin alike, streams hold one packet, and packets of a stream be the same, to be compared.

Nobody captures at so many places. Who sends the same n times would have them compared n times n times.
"""
_BEGINNING = ("seq_forth", "seq_back", "client", "booted_ms")


def known_connections(streams: DataFrame, handshakes: DataFrame) -> DataFrame:
    """Returns one row per connection whose initiator is known, with what tells it apart from all others.

    These are `seq_forth` and `seq_back`, the initial sequence numbers, and `client` and `booted_ms`, the ClientGuid and
    TimeStamp of its EstablishConnection. They are null where they were not captured.
    """
    established = (
        handshakes.where(F.col("handshake_type") == HandshakeType.ESTABLISH_CONNECTION.value)
        .join(streams.select("stream_id", "connection_id"), "stream_id")
        .groupBy("connection_id")
        .agg(
            F.max("client_guid").alias("client"),
            F.max("time_stamp_ms").alias("booted_ms"),
            F.max(optional(handshakes, "connection_refused", "boolean")).alias("refused"),
        )
    )
    failing = F.coalesce("refused", F.lit(False)) | (F.col(_BACK).isNull() & F.col("closed"))
    connections = _connections(streams).join(established, "connection_id", "left")
    return connections.withColumn("failing", failing).drop("refused", "closed")


def suspect_copies(connections: DataFrame) -> DataFrame:
    """Returns one row that says whether anything may have been captured twice.

    `same_beginning`: two connections begin alike. `vague`: a beginning was not captured. If both are false, there is no
    copy, and no other query about copies runs. `failing`: a connection was refused in its handshake, or closed without
    an answer.
    """
    known = reduce(Column.__and__, (F.col(name).isNotNull() for name in _BEGINNING))
    return (
        connections.groupBy(*_BEGINNING)
        .agg(
            F.count(F.lit(1)).alias("connections"),
            F.min("addresses").alias("least"),
            F.max("addresses").alias("most"),
            F.max("failing").alias("failing"),
        )
        .agg(
            F.coalesce(F.max("failing"), F.lit(False)).alias("failing"),
            F.max(known & (F.col("connections") > 1)).alias("same_beginning"),
            (F.max(~known) & (F.min("least") < F.max("most"))).alias("vague"),
        )
    )


def _connections(streams: DataFrame) -> DataFrame:
    """Returns one row per connection: its two streams, their initial sequence numbers, and the pair of addresses."""
    forth = F.col("from_initiator")
    client, server = F.when(forth, F.col("src_ip")).otherwise(F.col("dst_ip")), F.when(forth, F.col("dst_ip"))
    return (
        streams.where("from_initiator is not null")
        .groupBy("connection_id")
        .agg(
            F.max(F.when(forth, F.col("stream_id"))).alias(_FORTH),
            F.max(F.when(~forth, F.col("stream_id"))).alias(_BACK),
            F.max(F.when(forth, F.col("initial_seq"))).alias("seq_forth"),
            F.max(F.when(~forth, F.col("initial_seq"))).alias("seq_back"),
            F.max(F.struct(client, F.coalesce(server, "src_ip"))).alias("addresses"),
            F.max("mid_stream").alias("mid_stream"),
            F.sum("missing_bytes").alias("missing"),
            F.sum("recovered_bytes").alias("recovered"),
            F.max(F.col("closed") if "closed" in streams.columns else F.lit(False)).alias("closed"),
        )
    )


def _with_prefix(connections: DataFrame, prefix: str) -> DataFrame:
    return connections.select([F.col(name).alias(f"{prefix}_{name}") for name in connections.columns])


def _join_both(pairs: DataFrame, connections: DataFrame) -> DataFrame:
    """Joins the columns of both connections of each pair, with the prefixes x and y."""
    for side in ("x", "y"):
        pairs = pairs.join(_with_prefix(connections, side), f"{side}_connection_id")
    return pairs


def same_beginning(connections: DataFrame) -> DataFrame:
    """Returns pairs of connections with the same sequence numbers and EstablishConnection; their offsets are equal.

    More than _MOST_ALIKE are no copies of one another.
    """
    several = F.count(F.lit(1)).over(Window.partitionBy(*_BEGINNING)).between(2, _MOST_ALIKE)
    twice = connections.dropna(subset=list(_BEGINNING)).withColumn("several", several).where("several")
    same = reduce(Column.__and__, (F.col(f"x_{name}") == F.col(f"y_{name}") for name in _BEGINNING))
    zero = F.lit(0).cast("long")
    return (
        _with_prefix(twice, "x")
        .join(_with_prefix(twice, "y"), same & (F.col("x_connection_id") != F.col("y_connection_id")))
        .select("x_connection_id", "y_connection_id", zero.alias("ahead_forth"), zero.alias("ahead_back"))
    )


def identify_packets(messages: DataFrame, acks: DataFrame) -> DataFrame:
    """Returns `stream_id`, `stream_offset` and `packet`, a hash that only copies and resends of a packet share."""
    tables = {"messages": messages, "acks": acks}
    return reduce(
        DataFrame.unionByName,
        (
            tables[name].select(*_KEY, F.xxhash64(F.lit(name), *columns).alias("packet"))
            for name, columns in _PACKETS.items()
        ),
    )


def same_packets(ways: DataFrame, packets: DataFrame) -> DataFrame:
    """Returns for each connection of `compared_ways` the one that shares most packets with it, if more than half.

    Where both initial sequence numbers are the same, one packet suffices. Of a stream's packets that are the same, the
    first _MOST_ALIKE count.
    """
    compared = ways.select(F.explode(F.array("x_stream", "y_stream")).alias("stream_id")).distinct()
    alike = Window.partitionBy("stream_id", "packet").orderBy("stream_offset")
    packets = (
        packets.join(F.broadcast(compared), "stream_id", "left_semi")
        .withColumn("nth", F.row_number().over(alike))
        .where(F.col("nth") <= _MOST_ALIKE)
        .drop("nth")
    )
    x, y = (packets.toDF(f"{side}_stream", f"{side}_offset", "packet") for side in ("x", "y"))
    names = ("x_connection_id", "y_connection_id")
    ahead = F.col("x_offset") - F.col("y_offset")
    same = (
        x.join(F.broadcast(ways), "x_stream")
        .join(y.join(F.broadcast(ways.select("y_stream").distinct()), "y_stream", "left_semi"), ["y_stream", "packet"])
        .groupBy(*names, "way", ahead.alias("ahead"))
        .agg(F.count_distinct("x_offset").alias("packets"))
        .groupBy(*names, "way")
        .agg(F.max(F.struct("packets", -F.abs("ahead"), "ahead")).alias("most"))
    )
    counted = packets.groupBy("stream_id").agg(F.count(F.lit(1)).alias("packets"))
    totals = ways
    for side in ("x", "y"):
        totals = totals.join(counted.toDF(f"{side}_stream", f"{side}_packets"), f"{side}_stream", "left")
    return (
        totals.join(same, [*names, "way"], "left")
        .groupBy(*names)
        .agg(
            *(F.sum(F.coalesce(f"{side}_packets", F.lit(0))).alias(side) for side in ("x", "y")),
            F.sum(F.coalesce("most.packets", F.lit(0))).alias("same"),
            (F.count("ahead") == len(_WAYS)).alias("same_numbers"),
            *(
                F.max(F.when(F.col("way") == way, F.coalesce("ahead", "most.ahead"))).alias(f"ahead_{way}")
                for way in _WAYS
            ),
        )
        .withColumn("share", F.col("same") / F.greatest("x", "y"))
        .where("share > 0.5 or (same_numbers and same > 0)")
        .groupBy(names[0])
        .agg(F.max(F.struct("share", names[1], *_AHEAD)).alias("likest"))
        .select(names[0], *(F.col(f"likest.{name}").alias(name) for name in (names[1], *_AHEAD)))
    )


def compared_ways(connections: DataFrame, packets: DataFrame) -> DataFrame:
    """Returns the pairs that `same_packets` compares, a row per direction: they may be copies of each other.

    The beginning of the first connection was not captured. The other one has other addresses and its first or last
    packet, which no more than _MOST_ALIKE streams hold, and whatever is known of both is the same. `ahead` is 0 where
    both SYNs were captured.
    """
    vague = connections.where(reduce(Column.__or__, (F.col(name).isNull() for name in _BEGINNING)))
    streams = vague.select(F.explode(F.array(*_WAYS)).alias("stream_id")).where("stream_id is not null")
    place = F.struct("stream_offset", "packet")
    probes = (
        packets.join(F.broadcast(streams), "stream_id", "left_semi")
        .groupBy("stream_id")
        .agg(F.min(place)["packet"].alias("first"), F.max(place)["packet"].alias("last"))
        .select(F.col("stream_id").alias("x_stream"), F.explode(F.array("first", "last")).alias("packet"))
    )
    streams_with_it = F.count(F.lit(1)).over(Window.partitionBy("packet"))
    holders = (
        packets.join(F.broadcast(probes.select("packet").distinct()), "packet", "left_semi")
        .select("packet", "stream_id")
        .distinct()
        .withColumn("streams", streams_with_it)
        .where(F.col("streams") <= _MOST_ALIKE)
    )
    found = (
        holders.join(F.broadcast(probes), "packet")
        .select("x_stream", F.col("stream_id").alias("y_stream"))
        .where("x_stream <> y_stream")
        .distinct()
    )
    of_stream = F.explode(F.array(*_WAYS))
    for side in ("x", "y"):
        of_connection = connections.select(
            of_stream.alias(f"{side}_stream"), F.col("connection_id").alias(f"{side}_connection_id")
        )
        found = found.join(of_connection, f"{side}_stream")
    compatible = reduce(
        Column.__and__, (F.coalesce(F.col(f"x_{name}") == F.col(f"y_{name}"), F.lit(True)) for name in _BEGINNING)
    )
    ways = (
        F.struct(
            F.lit(way).alias("way"),
            F.col(f"x_{way}").alias("x_stream"),
            F.col(f"y_{way}").alias("y_stream"),
            F.when(F.col(f"x_seq_{way}") == F.col(f"y_seq_{way}"), F.lit(0).cast("long")).alias("ahead"),
        )
        for way in _WAYS
    )
    return (
        found.select("x_connection_id", "y_connection_id")
        .distinct()
        .transform(_join_both, connections)
        .where(compatible & (F.col("x_addresses") != F.col("y_addresses")))
        .select("x_connection_id", "y_connection_id", F.explode(F.array(*ways)).alias("on"))
        .select("x_connection_id", "y_connection_id", "on.*")
    )


def choose_connections(pairs: DataFrame, connections: DataFrame) -> DataFrame:
    """Returns the pairs whose second connection counts; the first one is its copy.

    The one that counts is on the pair of addresses of which fewer connections begin in mid-stream, then fewer bytes are
    missing: so the streams of a session count on one side, by one clock.
    """
    names = ("x_connection_id", "y_connection_id")
    swapped = pairs.select(
        F.col(names[1]).alias(names[0]), F.col(names[0]).alias(names[1]), *(-F.col(c) for c in _AHEAD)
    ).toDF(*names, *_AHEAD)
    pairs = pairs.unionByName(swapped).groupBy(*names).agg(*each(F.max, *_AHEAD))
    involved = connections.join(pairs.select(F.col(names[0]).alias("connection_id")), "connection_id", "left_semi")
    side = Window.partitionBy("addresses")
    figures = (F.col("mid_stream").cast("int"), F.col("missing"), -F.col("recovered"))
    rank = F.struct(
        *(F.sum(figure).over(side).alias(f"all_{at}") for at, figure in enumerate(figures)),
        "addresses",
        *(figure.alias(f"own_{at}") for at, figure in enumerate(figures)),
        "connection_id",
    )
    ranked = involved.select("connection_id", rank.alias("rank"))
    best = (
        pairs.join(ranked.toDF(names[0], "x_rank"), names[0])
        .join(ranked.toDF(names[1], "y_rank"), names[1])
        .where("y_rank < x_rank")
        .groupBy(names[0])
        .agg(F.min(F.struct("y_rank", names[1], *_AHEAD)).alias("best"))
        .select(names[0], *(F.col(f"best.{name}").alias(name) for name in (names[1], *_AHEAD)))
    )
    further = best.toDF(names[1], "further", *(f"further_{name}" for name in _AHEAD))  # a copy of a copy
    return best.join(further, names[1], "left").select(
        names[0],
        F.coalesce("further", names[1]).alias(names[1]),
        *(
            F.when(F.col("further").isNull(), F.col(name)).otherwise(F.col(name) + F.col(f"further_{name}")).alias(name)
            for name in _AHEAD
        ),
    )


def stream_copies(chosen: DataFrame, connections: DataFrame) -> DataFrame:
    """Returns `stream_id`, `copy_of`, the stream that counts, and `ahead`: its offset minus that in `copy_of`.

    `ahead` is null where no packet tells it. `chosen` are the rows of `choose_connections`.
    """
    ways = (
        F.struct(
            F.col(f"x_{way}").alias("stream_id"),
            F.col(f"y_{way}").alias("copy_of"),
            F.col(f"ahead_{way}").alias("ahead"),
        )
        for way in _WAYS
    )
    return (
        _join_both(chosen, connections)
        .select(F.explode(F.array(*ways)).alias("copy"))
        .select("copy.*")
        .where("stream_id is not null and copy_of is not null")
    )
