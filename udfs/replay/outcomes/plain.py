"""Tells what an arrival says by itself, and over all scopes: whether it is plain, came twice, or need not have come.

A *slot* is (scope, sequence, number). Most arrivals are *plain*: accepted in order, once, with the predecessor that the
state names.
"""

import polars as pl

from schemas.replay import Evidence, Verdict
from schemas.wire import LATEST_ORDER_ACK_MS, NEGATIVE_CLASS, QUEUED_CLASS
from udfs.frames.columns import PLACE, SEQUENCE, address_reached
from udfs.frames.derivation import derives
from udfs.replay.content import MESSAGE

SLOT = (*SEQUENCE, "tx_sequence_number")
TALLIED = (
    *(*SLOT, *PLACE, "source_queue_manager", "message_id", "session_id", "captured_at", "captured_ns"),
    *("previous_tx_sequence_number", "replay_order", "accepted", "verdict", "gap_size", "sent_at"),
    *("incoming_tx_sequence_id", "incoming_tx_sequence_number", "assumed", "missing_runs", "behind_gap"),
    *("evidence", "covered_at", "final_ack_class", "acknowledged_at", "ack_latency_ms"),
)
"""The columns of VERDICTS that add up, and that tell whether an arrival is plain."""
JUDGED_AS = (*TALLIED, "content_hash", "destination_queue", "label", "reason", "final_ack_requested", "denied_at")
"""The columns of VERDICTS from which outcomes are derived."""
_OF_ACCEPTED = (*SLOT, *MESSAGE, "stream_id", "session_id", "accepted", "assumed", "previous_tx_sequence_number")
_SEGMENTS_OF = (("sender", "last_ns"), ("receiver", "receiver_last_ns"))
"""Columns of ENDS: a queue manager, and when its last packet or segment was captured on that stream."""
_CONTESTED = NEGATIVE_CLASS | QUEUED_CLASS
IS_LATE = f"(acknowledged_at IS NULL OR ack_latency_ms > {LATEST_ORDER_ACK_MS})"
"""Whether an arrival was acknowledged later than the timers allow, or never, in SQL."""


def rests_on_assumption() -> pl.Expr:
    """Tells whether the verdict is unknown, or rests on an assumed state.

    An accepted message with a previous number of 0 does not: such a message is accepted from any state below it.
    """
    from_zero = pl.col("accepted").fill_null(value=False) & (pl.col("previous_tx_sequence_number") == 0)
    return pl.col("accepted").is_null() | (pl.col("assumed") & ~from_zero)


def is_plain() -> pl.Expr:
    """Returns whether an arrival is plain, as far as its own row tells: it may still have come twice."""
    number, previous = pl.col("tx_sequence_number"), pl.col("previous_tx_sequence_number")
    final = pl.col("final_ack_class").fill_null(QUEUED_CLASS)
    return (
        (pl.col("verdict") == Verdict.IN_ORDER.value)
        & (pl.col("replay_order") > 1)
        & (previous > 0)
        & (previous == number - 1)
        & ~pl.col("assumed")
        & (pl.col("evidence") != Evidence.CONTRADICTED.value)
        & (final & _CONTESTED == QUEUED_CLASS)
    )


@derives(in_parts=True)
def cut_streams(streams: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAMS with bytes that TCP never acknowledged."""
    return streams.filter(pl.col("acked_bytes") < pl.col("recovered_bytes") + pl.col("missing_bytes"))


@derives(("stream_id",), columns={"packets": (*PLACE, "size")})
def cut_packets(streams: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the place of each packet with bytes that TCP never acknowledged, and whether its connection is `closed`.

    They were captured on their way, and need not have arrived. Where no acknowledgment was captured, nothing is known.
    """
    cut = cut_streams(streams).select("stream_id", "acked_bytes", "closed")
    ends = pl.col("stream_offset") + pl.col("size")
    return packets.join(cut, on="stream_id").filter(ends > pl.col("acked_bytes")).select(*PLACE, "closed")


def last_seen(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns per `stream_id` when its sender's last packet was captured, and any segment of its receiver.

    That is on any stream, `until_ns` and `receiver_until_ns`, in ns since 1970; null where nothing was captured. An ACK
    without data shows as well as a packet that the capture holds what the receiver sends.
    """
    last = ends.group_by("sender").agg(pl.max("last_ns"))
    sent = (ends.select(receiver=who, receiver_until_ns=ns) for who, ns in _SEGMENTS_OF)
    heard = pl.concat(sent).group_by("receiver").agg(pl.max("receiver_until_ns"))
    return (
        ends.select("stream_id", "sender", "receiver")
        .join(last.select("sender", until_ns="last_ns"), on="sender", how="left")
        .join(heard, on="receiver", how="left")
        .select("stream_id", "until_ns", "receiver_until_ns")
    )


@derives(MESSAGE, columns={"verdicts": _OF_ACCEPTED})
def accepted_twice(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns slot and MESSAGE of what was accepted more than once, over all scopes that accepted it.

    Verdicts on an assumed state aside. And, with `elsewhere`, of what a scope refused and another one accepted, or may
    have accepted. `verdicts` are those at least on messages that arrived more than once.
    """
    firm = verdicts.filter("accepted", ~rests_on_assumption())
    twice = _by_two_receivers(firm.filter(pl.struct(MESSAGE).is_duplicated())).select(*SLOT, *MESSAGE)
    refused = verdicts.filter(pl.col("accepted").not_()).select(*SLOT, *MESSAGE).unique()
    others = verdicts.filter(pl.col("accepted").fill_null(value=True)).select(*MESSAGE, other="scope_key").unique()
    elsewhere = refused.join(others, on=MESSAGE).filter(pl.col("other") != pl.col("scope_key"))
    parts = {False: twice, True: elsewhere.select(*SLOT, *MESSAGE).unique()}
    return pl.concat([part.with_columns(elsewhere=pl.lit(is_elsewhere)) for is_elsewhere, part in parts.items()])


def _by_two_receivers(accepted: pl.DataFrame) -> pl.DataFrame:
    """Returns the arrivals of messages that were accepted more than once, for all that the captures tell.

    Where the captures lack the handshake of one connection, its receiver may be the one that another connection to the
    same address names: these are not two.
    """
    reached = with_receiver(accepted).with_columns(reached=address_reached())
    is_unnamed = pl.col("receiver") == pl.col("reached")
    may_be_named = is_unnamed & (~is_unnamed).any().over(*MESSAGE, "reached")
    return reached.filter(pl.struct(*MESSAGE, may_be_named.alias("may_be_named")).is_duplicated())


def with_receiver(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the `receiver` of each row's session."""
    return rows.with_columns(receiver=pl.col("session_id").str.replace(r"(?s)^.*->", ""))
