"""Counts what acknowledgments, load balancers and closed windows show of receivers, and of the way to them."""

import polars as pl

from schemas.replay import Verdict
from schemas.wire import NEGATIVE_CLASS
from udfs.frames.columns import (
    ACK_PAIR,
    PLACE,
    SEQUENCE,
    address_of_stream,
    address_reached,
    count,
    count_distinct,
    count_if,
    key_at,
    nanoseconds,
    quotient,
    row_key,
    timestamp,
    unsigned,
)
from udfs.frames.derivation import derives
from udfs.replay.order.acks import select_order_acks
from udfs.replay.outcomes.plain import with_receiver
from udfs.replay.words import NS

_REPEATED_TIMES, _REPEATED_S = 3, 60  # over two of the shortest resend intervals
_OF_PAIR = (*ACK_PAIR, "tx_sequence_id")
_OF_VERDICT = ("scope_key", "session_id", "destination_queue", "verdict", "tx_sequence_number", "captured_ns")
_FIGURES = ("number", "messages", "first_ns", "last_ns", "first_key", "last_key")
_ABOUT = ("session_id", "destination_queue", "transactional", "time_to_be_received", "time_to_reach_queue")
_SHUT_MS = 10_000
"""A TCP window of 0 that lasts less is ordinary flow control."""
_PAUSED_NS = 30 * NS
"""After a lack of memory the window doubles this often, [MS-MQQB] 3.1.3.2."""
_LONGEST_TIMEOUT_MS = 120_000  # AckTimeout, [MS-MQQB] 2.2.2.1
_PATIENCE_NS = 750_000
"""Of each ms of AckTimeout: then a SessionAck is overdue, as a receiver waits for half of AckTimeout at most."""
_STEP_NS = 15 * NS
"""Of the packets in a step of time one is looked at; no patience is shorter."""
_UNANSWERED, _PAUSED, _SHUT = "unanswered", "paused", "shut"
_CAUSES = (_UNANSWERED, _PAUSED, _SHUT)
WINDOW = (*PLACE, "captured_ns", "window_size")
"""What `find_stalls` reads of packets."""


@derives(ACK_PAIR)
def repeated_acks(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the OrderAcks for the highest number of a pair's sequence, if they came often and over a long time.

    One row per `receiver`, `source_queue_manager` and `tx_sequence_id`: the `number`, how many `messages` acknowledge
    it, and time (ns since 1970) and key of the first and of the last of them.
    """
    pair = (*ACK_PAIR, "sequence")
    return (
        select_order_acks(acks)
        .filter(pl.col("number").eq_missing(pl.col("number").max().over(pair)))
        .sort("ns", "key")
        .group_by(*pair, "number")
        .agg(
            count().alias("messages"),
            pl.first("ns").alias("first_ns"),
            pl.last("ns").alias("last_ns"),
            pl.first("key").alias("first_key"),
            pl.last("key").alias("last_key"),
        )
        .filter(pl.col("messages") >= _REPEATED_TIMES, pl.col("last_ns") - pl.col("first_ns") >= _REPEATED_S * NS)
        .with_columns(tx_sequence_id=unsigned(pl.col("sequence")))
        .select(*_OF_PAIR, *_FIGURES)
    )


@derives(_OF_PAIR[1:], columns={"verdicts": (*_OF_PAIR[1:], *_OF_VERDICT)})
def refused_meanwhile(repeated: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `repeated_order_ack` for all sequences of a scope, not only for its last one.

    `repeated` are the `repeated_acks`. `refused` counts messages with higher numbers from the first to the last of
    the OrderAcks.
    """
    refused = (
        (pl.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (pl.col("tx_sequence_number") > pl.col("number"))
        & pl.col("captured_ns").is_between("first_ns", "last_ns")
    )
    return (
        verdicts.select(*_OF_PAIR[1:], *_OF_VERDICT)
        .join(repeated, on=_OF_PAIR[1:], how="semi")
        .pipe(with_receiver)
        .join(repeated, on=_OF_PAIR)
        .group_by("source_queue_manager", "tx_sequence_id", "scope_key", "session_id", *_FIGURES)
        .agg(pl.min("destination_queue"), count_if(refused).alias("refused"))
        .with_columns(
            found_at=timestamp(pl.col("first_ns")),
            seconds=quotient(pl.col("last_ns") - pl.col("first_ns"), NS),
        )
    )


def in_last_sequence(repeated: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows for `repeated_order_ack` that are of their scope's last sequence."""
    last = sequences.group_by("scope_key").agg(pl.max("tx_sequence_id"))
    return repeated.join(last, on=SEQUENCE, how="semi")


@derives(
    shared=("ends",),
    columns={"messages": (*PLACE, "message_class", "correlation_id", "captured_ns", "captured_at")},
    in_parts=True,
)
def negative_acks(messages: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the administration messages that are negative acknowledgments.

    Each has its `key`, and the addresses of the machine that is `answering` and of the one that is `told`.
    """
    return (
        messages.filter(pl.col("message_class") & NEGATIVE_CLASS != 0)
        .join(ends.select("stream_id", "session_id"), on="stream_id")
        .select(
            "correlation_id",
            "message_class",
            "session_id",
            "captured_ns",
            "captured_at",
            row_key().alias("key"),
            address_of_stream().alias("answering"),
            address_reached().alias("told"),
        )
    )


def returned_messages(messages: pl.DataFrame, negative: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `returned`. `negative` are `negative_acks`; `messages` need only be those that they name.

    CorrelationID names the message, transactional or not ([MS-MQMQ] 2.2.18.1.6). Session and queue are those of the
    message where a capture holds it, else the session is that of the acknowledgment. Times are ns since 1970, `seconds`
    are those from the first message to its acknowledgment. Acknowledgments that name no message (null) are about one.
    """
    place = ("message_class", "session_id", "destination_queue")
    return (
        negative.join(_named_messages(messages, negative, ends), on="correlation_id", how="left")
        .with_columns(pl.coalesce("about_session_id", "session_id").alias("session_id"))
        .sort("captured_ns", "captured_at", "key")
        .group_by(place)
        .agg(
            pl.col("correlation_id").n_unique().cast(pl.Int64).alias("messages"),
            count_distinct(pl.col("correlation_id").filter(pl.col("transactional"))).alias("transactional"),
            pl.first("captured_at").alias("found_at"),
            pl.first("key"),
            pl.first("correlation_id").alias("message_id"),
            (pl.first("captured_ns") - pl.first("about_ns")).alias("after_ns"),
            pl.first("about_key", "time_to_be_received", "time_to_reach_queue", "answering", "told"),
        )
        .with_columns(seconds=quotient(pl.col("after_ns"), NS))
        .drop("after_ns")
    )


def _named_messages(messages: pl.DataFrame, negative: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns per `correlation_id` the first message that it names."""
    return (
        messages.select("message_id", "stream_id", "stream_offset", "captured_ns", *_ABOUT[1:])
        .join(negative, left_on="message_id", right_on="correlation_id", how="semi")
        .join(ends.select("stream_id", "session_id"), on="stream_id")
        .select("captured_ns", row_key().alias("about_key"), *_ABOUT, correlation_id="message_id")
        .sort("captured_ns", "about_key")
        .unique("correlation_id", keep="first")
        .rename({"captured_ns": "about_ns", "session_id": "about_session_id"})
    )


def several_receivers(flows: pl.DataFrame, ends: pl.DataFrame, tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `several_receivers`, which their GUIDs tell apart; a row per address.

    `flows` have a row per scope, stream and queue, with its `first` message; `tallies` one per scope, sequence and
    stream.
    """
    receivers = _receivers(flows, ends)
    named = ends.filter(pl.col("receiver_guid").is_not_null()).select("stream_id", "receiver_guid")
    streams = far_addresses(ends).drop("sender").join(named, on="stream_id").join(receivers, on="far", how="semi")
    split = _split(tallies, streams)
    return receivers.join(split, on="far", how="left").select(
        pl.col("far").alias("address"),
        pl.col("receiver_guid").alias("receivers"),
        pl.col("key").alias("beginnings"),
        timestamp(pl.col("ns").list.get(1)).alias("found_at"),
        pl.col("key").list.len().cast(pl.Int64).alias("messages"),
        pl.col("session_id").list.get(1),
        "sequences_split",
        "split_keys",
    )


def _receivers(flows: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the addresses, `far`, of several receivers, with lists of these: the earliest first, and its message."""
    first = pl.col("first").struct
    began = ("ns", "key", "session_id")
    return (
        flows.filter(pl.col("receiver_guid").is_not_null())
        .join(far_addresses(ends).select("stream_id", "far"), on="stream_id")
        .select(
            *("far", "receiver_guid", "session_id"),
            first.field("ns"),
            key_at("stream_id", first.field("offset")).alias("key"),
        )
        .sort(*began)
        .group_by("far", "receiver_guid")
        .agg(pl.col(began).first())
        .sort(*began, "receiver_guid")
        .group_by("far")
        .agg(pl.col(*began, "receiver_guid"))
        .filter(pl.col("receiver_guid").list.len() > 1)
    )


def _split(tallies: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns per address how many sequences went to several receivers, `sequences_split`, and the `split_keys`."""
    sequence = ("far", "source_queue_manager", "sequence")
    place = ("ns", "key")
    places = [pl.col(name).get(i).alias(f"{name}_{i}") for i in (0, 1) for name in place]
    return (
        tallies.join(streams, on="stream_id")
        .select(
            *sequence,
            "receiver_guid",
            pl.col("first_ns").alias("ns"),
            key_at("stream_id", "first_offset").alias("key"),
        )
        .sort(*place)
        .group_by(*sequence, "receiver_guid", maintain_order=True)
        .agg(pl.col(place).first())
        .filter(pl.len().over(sequence) > 1)
        .sort(*place)
        .group_by(*sequence)
        .agg(*places)
        .sort("ns_0", "key_0", "ns_1", "key_1")
        .group_by("far")
        .agg(count().alias("sequences_split"), pl.concat_list("key_0", "key_1").first().alias("split_keys"))
    )


def far_addresses(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the address that each stream goes to, `far`, and its `sender`, where the other direction was captured."""
    return with_other_direction(ends, far=pl.col("address")).select("stream_id", "sender", "far")


def with_other_direction(ends: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Returns the streams of which the other direction was captured, with its stream, `back`, and columns of it.

    `ends` are rows of ENDS, of which copies do not count. All streams of a connection have to be there.
    """
    counting = ends.filter(pl.col("copy_of").is_null())
    other = counting.select("connection_id", pl.col("stream_id").alias("back"), **columns)
    return counting.join(other, on="connection_id").filter(pl.col("stream_id") != pl.col("back"))


def find_ways(streams: pl.DataFrame, ends: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams that count and whose other direction, `back`, was captured.

    `until_ns`: when the connection was last seen. `patience_ns`: after this time a SessionAck is overdue. `answering`:
    the address that `back` comes from. `is_whole`: no byte of `back` is missing, so that a SessionAck would be seen.
    The rows are those of whole connections.
    """
    seen = streams.select(
        "stream_id",
        nanoseconds(pl.col("window_shut_at")).alias("shut_ns"),
        nanoseconds(pl.col("connection_last_at")).alias("connection_ns"),
        pl.col("window_shut_ms").alias("shut_ms"),
    )
    timeouts = handshakes.group_by("stream_id").agg(pl.col("ack_timeout_ms").max().alias("timeout_ms"))
    both = with_other_direction(
        ends.join(seen, on="stream_id").join(timeouts, on="stream_id", how="left"),
        answering=pl.col("address"),
        is_whole=pl.col("missing_bytes") == 0,
        back_ns=pl.col("last_ns"),
        back_timeout_ms=pl.col("timeout_ms"),
    )
    timeout_ms = pl.max_horizontal("timeout_ms", "back_timeout_ms").fill_null(_LONGEST_TIMEOUT_MS)
    return both.select(
        *("stream_id", "back", "answering", "is_whole", "session_id", "connection_id", "shut_ns", "shut_ms"),
        pl.max_horizontal("last_ns", "back_ns", "connection_ns").alias("until_ns"),
        (timeout_ms * _PATIENCE_NS).alias("patience_ns"),
    )


@derives(columns={"packets": WINDOW}, in_parts=True)
def thin_out(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns what `find_stalls` looks at of some packets: those with a window and, of each step of time, the last."""
    last = packets.drop_nulls("captured_ns").sort("captured_ns", "stream_offset").group_by("stream_id", _step()).last()
    with_window = packets.filter(pl.col("window_size").is_not_null())
    return pl.concat([with_window, last.select(packets.columns)]).unique()


@derives(("connection_id",), columns={"packets": WINDOW, "session_acks": WINDOW})
def find_stalls(ways: pl.DataFrame, packets: pl.DataFrame, session_acks: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Returns `stalls`, few rows, and the addresses that send SessionAcks, `answering`; all rows of whole connections.

    A row of `stalls` holds those of one `cause` and connection, on the way to one address: `length_ns` of the longest,
    if one `is_last`, and `since_ns` and `key` of the first. `ways` are those of `find_ways`, `packets` messages
    and acknowledgments as `thin_out` leaves them.
    """
    packets = packets.select(WINDOW)
    headers = pl.concat([packets, session_acks.select(WINDOW)]).filter(pl.col("window_size").is_not_null())
    answering = ways.join(headers, left_on="back", right_on="stream_id", how="semi").select("answering").unique()
    timed = pl.col("captured_ns").is_not_null()
    packets, headers = packets.filter(timed), headers.filter(timed)
    found = pl.concat([_unanswered(packets, headers, ways), _paused(headers, ways), _shut(ways)])
    stalls = (
        found.sort("since_ns", "key")
        .group_by("session_id", "connection_id", "cause", "answering")
        .agg(pl.col("length_ns", "is_last").max(), pl.col("since_ns", "key").first())
    )
    return {"stalls": stalls, "answering": answering}


def window_stalled(stalls: pl.DataFrame, answering: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `window_stalled`, a row per session; both frames are those of `find_stalls` of all connections.

    A missing SessionAck says something only of an address that sends some.
    """
    length_ns, cause = pl.col("length_ns"), pl.col("cause")
    is_heard = pl.col("answering").is_in(answering["answering"].implode())
    return (
        stalls.filter((cause != _UNANSWERED) | is_heard)
        .sort("since_ns", "key")
        .group_by("session_id")
        .agg(
            count_distinct("connection_id").alias("messages"),
            pl.col("is_last").max(),
            pl.col("since_ns", "key").first(),
            *(length_ns.filter(cause == one).max().alias(f"{one}_ns") for one in _CAUSES),
        )
        .with_columns(timestamp(pl.col("since_ns")).alias("found_at"))
        .drop("since_ns")
    )


def _unanswered(packets: pl.DataFrame, headers: pl.DataFrame, ways: pl.DataFrame) -> pl.DataFrame:
    """Returns where packets waited too long for a SessionAck, whether or not the address sends any.

    Of the packets in a step of time only the last is looked at, which waited least.
    """
    whole, sent_ns = ways.filter("is_whole"), pl.col("captured_ns")
    last = (
        packets.join(whole, on="stream_id", how="semi")
        .sort("captured_ns", "stream_offset")
        .group_by("stream_id", _step())
        .agg(pl.col("captured_ns", "stream_offset").last())
    )
    answers = headers.select("stream_id", sent_ns.alias("ack_ns")).sort("ack_ns")
    answered = (
        last.join(whole, on="stream_id")
        .sort("captured_ns")
        .join_asof(
            answers,
            left_on="captured_ns",
            right_on="ack_ns",
            by_left="back",
            by_right="stream_id",
            strategy="forward",
            check_sortedness=False,
        )
    )
    waited = pl.coalesce("ack_ns", "until_ns") - sent_ns
    return answered.filter(waited > pl.col("patience_ns")).select(
        *_closed(_UNANSWERED, sent_ns, waited, pl.col("ack_ns").is_null(), pl.col("stream_offset"))
    )


def _step() -> pl.Expr:
    return (pl.col("captured_ns") // _STEP_NS).alias("step")


def _paused(headers: pl.DataFrame, ways: pl.DataFrame) -> pl.DataFrame:
    """Returns where a receiver announced a window of one packet or none, until it announced a larger one."""
    is_small, at = pl.col("window_size") <= 1, pl.col("captured_ns")
    small = headers.filter(is_small).select("stream_id").unique()
    opened = pl.when(~is_small).then(at).backward_fill().over("stream_id")
    length = pl.coalesce("opened_ns", "end_ns") - at
    return (
        headers.join(small, on="stream_id", how="semi")
        .sort("captured_ns", "stream_offset")
        .with_columns(opened.alias("opened_ns"), at.max().over("stream_id").alias("end_ns"))
        .filter(is_small & (length >= _PAUSED_NS))
        .rename({"stream_id": "back"})
        .join(ways, on="back")
        .select(*_closed(_PAUSED, at, length, pl.col("opened_ns").is_null(), pl.lit(0)))
    )


def _shut(ways: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams whose receiver's TCP announced a window of 0 for long."""
    length = pl.col("shut_ms") * (NS // 1000)
    is_last = pl.col("shut_ns") + length + NS >= pl.col("until_ns")
    return ways.filter(pl.col("shut_ms") >= _SHUT_MS).select(
        *_closed(_SHUT, pl.col("shut_ns"), length, is_last, pl.lit(0))
    )


def _closed(
    cause: str, since_ns: pl.Expr, length_ns: pl.Expr, is_last: pl.Expr, stream_offset: pl.Expr
) -> list[pl.Expr]:
    named = {"since_ns": since_ns, "length_ns": length_ns, "is_last": is_last}
    return [
        *(pl.col(name) for name in ("session_id", "connection_id", "answering")),
        pl.lit(cause).alias("cause"),
        *(column.alias(name) for name, column in named.items()),
        key_at("stream_id", stream_offset).alias("key"),
    ]
