"""Lists what stands on the streams of each scope: messages, its initial state, and unread ranges.

Scopes, streams and pairs of queue managers have numbers here, because the passes that judge compute with numbers alone.
"""

import polars as pl

from schemas.judging import MARK, PLACED
from schemas.replay import Scope
from udfs.frames.columns import ACK_PAIR, are_in, count, number_of, signed
from udfs.frames.derivation import Frames, derives, to_frame
from udfs.frames.groups import NONE
from udfs.replay.order.acks import message_number, select_order_acks
from udfs.replay.order.scopes import FLOW_KEY, NUMBERS, numbered, with_flow

BEFORE_ALL = NONE
"""The clock of what has no time, at the beginning of a stream."""
STREAM_END = (1 << 63) - 1
"""Stream offset of what comes after all messages."""
STREAM = ("scope_no", "stream_no")
BEFORE = ("arrivals_before", "missing_before")
"""Arrivals of a scope, and unread ranges, before those that are judged."""
_ADDRESSED = ("source_queue_manager", "queue_manager_address")
_PLACE = ("stream_id", *STREAM, "stream_offset")
_PAIR = ("state_of", "source_queue_manager")
"""A receiver, by one name for all its connections, and an original sender."""
_QUEUE = (*_ADDRESSED, "destination_queue")
MOST_PAIRS = 1 << 18
"""Pairs of what may hold messages of a scope, and scopes, that get a row each."""
_NO_MARKS = to_frame(MARK.empty_table())


def doubtful_scopes(flows: pl.DataFrame, unread: pl.DataFrame, ends: pl.DataFrame, legs: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key` of the scopes with which too much would be paired.

    That is streams with unread ranges, of one session, with all of its scopes; or messages on unknown `legs` with the
    sessions that they may belong to. Such scopes are judged as if a range lay before each of their messages.
    `flows` and `legs` are rows of `scopes.find_flows`, the former with their scopes; `ends` are ENDS.
    """
    by_session = flows.filter(pl.col("replay_scope") == Scope.SESSION.value).select("scope_key", *_ADDRESSED).unique()
    broken = _broken_streams(unread, ends).with_columns(pl.lit(1, pl.Int64).alias("rows"))
    of_legs = legs.select(*_ADDRESSED, pl.col("arrived").alias("rows"))
    by_streams = _of_too_many(broken, _shared_scopes(flows), "session_id")
    return pl.concat([by_streams, _of_too_many(of_legs, by_session, *_ADDRESSED)]).unique()


def _of_too_many(pieces: pl.DataFrame, scopes: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Returns `scope_key` of the scopes that share a key with too many pieces, for all scopes that do."""
    pairs = pieces.group_by(key).agg(pl.col("rows").sum()).join(scopes.group_by(key).len("scopes"), on=key)
    too_many = pairs.filter(pl.col("rows") * pl.col("scopes") > MOST_PAIRS)
    return scopes.join(too_many, on=key, how="semi").select("scope_key")


def _broken_streams(unread: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    return ends.join(unread, on="stream_id", how="semi").select("stream_id", "session_id", "first_ns")


def _shared_scopes(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns the scopes of each session to which a stream without their messages matters."""
    return flows.select("session_id", "scope_key").unique()


def number_streams(
    flows: pl.DataFrame,
    unread: pl.DataFrame,
    ends: pl.DataFrame,
    legs: pl.DataFrame,
    resumed: pl.DataFrame,
    every_flow: pl.DataFrame,
) -> Frames:
    """Adds `scope_no`, `stream_no` (1, 2, … in a scope), `pair_no` (_PAIR) and `has_messages`.

    A stream with unread ranges counts for each scope of its session, even if it carried no message of the scope: then
    it has a row that is not in `flows`, with `has_messages` false. But `doubtful_scopes` are judged as if a range lay
    before each of their messages. Where a scope is `resumed` (`settled.settle`), BEFORE says what its verdicts count
    more than those from there on tell.

    These rows are `streams`; `legs` are the `_scopes_of_legs`.
    """
    doubtful = doubtful_scopes(flows, unread, ends, legs)
    scopes = _shared_scopes(
        every_flow.join(flows, on="scope_key", how="semi").join(doubtful, on="scope_key", how="anti")
    )
    silent = _broken_streams(unread, ends).join(scopes, on="session_id")
    silent = silent.join(every_flow, on=["scope_key", "stream_id"], how="anti")
    both = [of.with_columns(pl.lit(there).alias("has_messages")) for of, there in ((flows, True), (silent, False))]
    rows = numbered(numbered(pl.concat(both, how="diagonal"), ("scope_key",), "scope_no"), _PAIR, "pair_no")
    stream = ["scope_no", "first_ns", "stream_id"]
    nth = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("scope_no")
    in_order = rows.select(stream).unique().sort(stream).with_columns(nth.alias("stream_no"))
    before = resumed.select("scope_key", arrivals_before="last_order", missing_before="missing")
    placed = rows.join(in_order, on=stream, nulls_equal=True).join(before, on="scope_key", how="left")
    is_doubtful = are_in(placed, doubtful).alias("doubtful")
    streams = placed.with_columns(pl.col(BEFORE).fill_null(0), is_doubtful)
    return {"streams": streams, "legs": _scopes_of_legs(legs, streams, every_flow)}


@derives(("stream_id",), columns={"messages": (*FLOW_KEY, *NUMBERS, "stream_offset", "captured_ns", "message_id")})
def marks(
    messages: pl.DataFrame,
    unread: pl.DataFrame,
    streams: pl.DataFrame,
    legs: pl.DataFrame,
    disputed: pl.DataFrame,
    behind: pl.DataFrame,
) -> pl.DataFrame:
    """Returns rows of PLACED: what stands on the streams of each scope, and counts where a message may be missing.

    That is each range of unread bytes; and just before each of the `disputed` messages, each message of a `doubtful`
    scope, and, at its time, each message on unknown legs that may have reached the scope's receiver: `legs` and
    `streams` are those of `number_streams`. States before the first messages are `initial_marks`. `behind` are messages
    of the scopes that are not judged, which stand before all others on their streams.
    """
    places = messages.select(
        *(*FLOW_KEY, "stream_offset", "captured_ns"),
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        pl.col("tx_sequence_number").alias("number"),
        pl.col("previous_tx_sequence_number").alias("previous"),
        message_number("message_id").alias("message_no"),
    )
    flows = streams.filter("has_messages")
    arrived = with_flow(places, flows, *STREAM, "pair_no", "first_ns", "mid_stream", "doubtful").drop(FLOW_KEY[1:])
    of_flows = flows.select("scope_key", "stream_id", *STREAM).unique()
    settled = behind.join(of_flows, on=["scope_key", "stream_id"]).with_columns(
        missing=pl.lit(0, pl.Int64), is_settled=pl.lit(value=True)
    )
    is_doubted = pl.col("doubtful") | are_in(arrived, disputed)
    rows = _marks_of(
        arrived.with_columns(
            pl.coalesce("captured_ns", "first_ns").alias("at_ns"), pl.lit(0, pl.Int64).alias("missing")
        ),
        _rows_before(arrived.filter(is_doubted)),
        settled,
        _unread_rows(pl.concat([arrived.select(_PLACE), settled.select(_PLACE)]), unread),
        _silent_rows(unread, streams),
        _leg_rows(places, legs),
    )
    return _along_streams(rows)


def _along_streams(marks: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of PLACED: the messages to judge, initial states and ends of streams among rows of MARK."""
    rows = marks.sort(*STREAM, "stream_offset", maintain_order=True)
    is_message, missing = pl.col("previous").is_not_null() | pl.col("is_settled"), pl.col("missing").cum_sum()
    before = pl.when(is_message).then(missing).shift(1).forward_fill().fill_null(0)
    is_first = is_message & (is_message.cum_sum() == 1)
    return (
        rows.with_columns(
            pl.col("at_ns").cum_max().forward_fill().over(STREAM).fill_null(BEFORE_ALL).alias("clock"),
            (missing - before).over(STREAM).alias("missing"),
            (is_first.over(STREAM) & pl.col("mid_stream")).fill_null(value=False).alias("cut_off"),
        )
        .filter(pl.col("number").is_not_null() | (pl.col("stream_offset") == STREAM_END))
        .select(PLACED.names)
    )


def _marks_of(*rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows below each other as rows of MARK, null where they have no such column."""
    marks = (of.select(name for name in MARK.names if name in of.columns) for of in rows)
    return pl.concat([_NO_MARKS, *marks], how="diagonal")


def _unread_rows(arrived: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns the unread ranges of each stream for each scope that has messages there; those between two are one row.

    That row has the place of the last of them, and counts them. Those behind the last message are one row at the end,
    whatever the time. A stream may have thousands of ranges, and messages of thousands of scopes, so a row for each
    range and scope would be too many.
    """
    offset = pl.col("stream_offset")
    nth = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("stream_id")
    ranges = unread.select("stream_id", "stream_offset").sort("stream_offset")
    ranges = ranges.with_columns(nth.alias("count"), offset.alias("last"))
    whole = ranges.group_by("stream_id").agg(pl.col("count").max().alias("all"))
    count, is_last = pl.col("count"), offset.shift(-1).over(STREAM).is_null()
    placed = (
        arrived.join(whole, on="stream_id")
        .sort("stream_offset")
        .join_asof(ranges, on="stream_offset", by="stream_id", check_sortedness=False)
        .with_columns(count.fill_null(0))
        .with_columns(
            (count - count.shift(1, fill_value=0).over(STREAM)).alias("before"),
            pl.when(is_last).then(pl.col("all") - count).alias("behind"),
        )
    )
    places = (pl.col("last"), "before"), (pl.lit(STREAM_END, pl.Int64), "behind")
    return pl.concat(
        placed.select(*STREAM, place.alias("stream_offset"), pl.col(missing).alias("missing"))
        for place, missing in places
    ).filter(pl.col("missing") > 0)


def _silent_rows(unread: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns all unread ranges of each stream without a message of the scope, at its end, when the stream began."""
    counted = unread.group_by("stream_id").agg(count().alias("missing"))
    silent = streams.filter(~pl.col("has_messages")).select(*STREAM, "stream_id", at_ns="first_ns").unique()
    return silent.join(counted, on="stream_id").with_columns(stream_offset=pl.lit(STREAM_END, pl.Int64))


def _scopes_of_legs(legs: pl.DataFrame, streams: pl.DataFrame, every_flow: pl.DataFrame) -> pl.DataFrame:
    """Returns each FLOW_KEY of unknown legs with each scope that its messages may belong to.

    That is a scope of the same sender and destination queue, or of a whole session with the queue manager that the
    messages name; nulls are equal. Scopes that are `doubtful` are left out; none of the others is resumed. `legs` are
    rows of `scopes.find_flows`, `streams` of `number_streams`.
    """
    scopes = streams.filter(pl.col("has_messages") & ~pl.col("doubtful"))
    of_scope = scopes.select("scope_key", "scope_no").unique()
    scopes = every_flow.join(of_scope, on="scope_key")
    by_session = pl.col("replay_scope") == Scope.SESSION.value
    return pl.concat(
        legs.select(FLOW_KEY).join(scopes.filter(kind).select(*names, "scope_no").unique(), on=names, nulls_equal=True)
        for kind, names in ((by_session, _ADDRESSED), (~by_session, _QUEUE))
    ).unique()


def _leg_rows(messages: pl.DataFrame, legs: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each message on unknown legs, in each scope that it may belong to.

    Each row is a stream of its own, with a number far above those of others: at equal times, it comes last.
    """
    place = number_of("stream_id", "stream_offset")
    return with_flow(messages, legs, "scope_no").select(
        "scope_no",
        pl.when(place < 0).then(-1 - place).otherwise(place).alias("stream_no"),
        pl.lit(STREAM_END, pl.Int64).alias("stream_offset"),
        pl.col("captured_ns").alias("at_ns"),
        pl.lit(1, pl.Int64).alias("missing"),
    )


def _rows_before(arrived: pl.DataFrame) -> pl.DataFrame:
    """Returns a row just before each of these messages: another one may have come before it."""
    return arrived.select(*STREAM, pl.col("stream_offset") - 1, pl.lit(1, pl.Int64).alias("missing"))


def first_messages(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_no` and the time `first_ns` of the scope's first message, for each of its pairs.

    `flows` are rows of `number_streams` with messages. Queues share a pair but not their numbers, so that in a
    queue's scope (`by_queue`), only an OrderAck of the first message's sequence, `only`, is sure to be the scope's.
    """
    by_queue = pl.col("replay_scope") == Scope.QUEUE.value
    began = pl.coalesce("ns", "first_ns")
    firsts = (
        flows.select("scope_no", "stream_id", "first_ns", pl.col("first").struct.unnest())
        .sort("offset", "ns", "sequence")
        .unique(["scope_no", "stream_id"], keep="first", maintain_order=True)
        .sort(began, "first_ns", "stream_id")
        .unique("scope_no", keep="first", maintain_order=True)
        .select("scope_no", first_ns="ns", only="sequence")
    )
    pairs = flows.select("scope_no", *ACK_PAIR, by_queue=by_queue).unique()
    return pairs.join(firsts, on="scope_no").with_columns(pl.when("by_queue").then("only").otherwise(0))


@derives(ACK_PAIR, columns={"acks": ("ack_type", *ACK_PAIR, "ns", "sequence", "number")})
def with_order_acks(firsts: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Adds time, sequence and number of the last OrderAck before each of `first_messages`: `ns`, `sequence`, `number`.

    Null for none. `acks` are rows of `pair_acks`.
    """
    named = select_order_acks(acks).select(*ACK_PAIR, "ns", "sequence", "number").sort("ns", "sequence", "number")
    of_any = named.with_columns(by_queue=pl.lit(value=False), only=pl.lit(0, pl.Int64))
    of_sequence = named.with_columns(by_queue=pl.lit(value=True), only="sequence")
    return firsts.sort("first_ns").join_asof(
        pl.concat([of_any, of_sequence]).sort("ns", maintain_order=True),
        left_on="first_ns",
        right_on="ns",
        by=[*ACK_PAIR, "by_queue", "only"],
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )


def initial_marks(firsts: pl.DataFrame, resumed: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns a row of PLACED before all messages of each scope with an initial state, on stream number 0.

    That is what the last OrderAck before the scope's first message names. Where a scope is `resumed`, the state stands
    for its first stream, so that the next one is a further one. `firsts` are rows of `with_order_acks`,
    `resumed` those of `settled.settle`, `streams` those of `number_streams`.
    """
    zero = pl.lit(0, pl.Int64)
    place = (pl.col("scope_no"), *(zero.alias(name) for name in ("stream_no", "stream_offset", "missing")))
    last = firsts.drop_nulls("ns").sort("ns", "sequence", "number").unique("scope_no", keep="last", maintain_order=True)
    rows = _marks_of(
        last.select(*place, "sequence", "number", at_ns="ns"),
        resumed.join(streams.select("scope_key", "scope_no").unique(), on="scope_key").select(
            *place,
            at_ns="began_ns",
            mid_stream=pl.lit(value=False),
            sequence="state_sequence",
            number="state_number",
        ),
    )
    return _along_streams(rows)
