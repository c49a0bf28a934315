"""Finds accepted messages that their receiver never acknowledged, or acknowledged in vain."""

import polars as pl

from schemas.replay import Evidence
from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.frames.columns import ACK_PAIR, PLACE, unsigned
from udfs.frames.derivation import derives
from udfs.replay.content import MESSAGE
from udfs.replay.order.acks import select_order_acks
from udfs.replay.order.scopes import SENDER_THERE
from udfs.replay.order.watched import is_overdue
from udfs.replay.outcomes.plain import SLOT, with_receiver

LOOKED_AT = (
    *(*SLOT, *MESSAGE, "session_id", "destination_queue", *PLACE, "captured_ns", "sent_at", "replay_order"),
    *("accepted", "verdict", "reason", "gap_size", "incoming_tx_sequence_id", "incoming_tx_sequence_number"),
    *("acknowledged_at", "ack_latency_ms", "evidence", "final_ack_class"),
)
"""The columns of VERDICTS that rules on messages look at."""
OF_PAIR = ("receiver", "source_queue_manager", "tx_sequence_id")
_OF_LATE = (*SLOT, *PLACE, "source_queue_manager", "session_id", "captured_ns", "acknowledged_at", "evidence")
_OF_VERDICT = (*SLOT, *PLACE, "source_queue_manager", "session_id", "captured_ns", "accepted")


@derives(shared=("watched",), columns={"late": LOOKED_AT}, in_parts=True)
def late_arrivals(late: pl.DataFrame, watched: pl.DataFrame) -> pl.DataFrame:
    """Returns some accepted messages whose acknowledgment was late, or is missing and would have been seen.

    `late` are some accepted messages for which IS_LATE holds, `watched` the rows of `watched_sessions`.
    """
    acknowledged = pl.col("acknowledged_at").is_not_null()
    is_due = acknowledged | is_overdue()
    return late.join(watched, on=SENDER_THERE).filter(pl.col("answers_whole") & is_due).select(LOOKED_AT)


@derives(ACK_PAIR)
def acknowledged_pairs(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs that OrderAcks are of, and when the first came, `began_ns`."""
    return select_order_acks(acks).group_by(ACK_PAIR).agg(pl.min("ns").alias("began_ns"))


@derives(shared=("pairs",), columns={"late": _OF_LATE}, in_parts=True)
def acknowledged_no_more(late: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns SLOT and PLACE of late arrivals without an acknowledgment whose pair was acknowledged by then.

    `pairs` are rows of `acknowledged_pairs`.
    """
    contradicted = pl.col("evidence") == Evidence.CONTRADICTED.value
    silent = late.filter(pl.col("acknowledged_at").is_null(), ~contradicted)
    return with_receiver(silent).join(pairs, on=ACK_PAIR).filter(has_begun()).select(*SLOT, *PLACE)


def has_begun(sent_ns: str = "captured_ns") -> pl.Expr:
    """Returns whether the first OrderAck of a pair (`acknowledged_pairs`) came before that of a message was due."""
    return pl.col("began_ns") < pl.col(sent_ns) + LATEST_ORDER_ACK_NS


@derives(ACK_PAIR)
def fallen_acks(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the sequences of pairs whose OrderAcks fell for good, by the last one that names a lower number.

    `number` is the highest that was named since, `high` the highest before; `high_key` and `low_key` are of the first
    OrderAck that named `high` and of the one that fell, `high_ns` and `low_ns` their times. A lower number that comes
    before the timers' bound, or is made good later, is an OrderAck on a longer way.
    """
    pair = ("receiver", "source_queue_manager", "sequence")
    orders = (
        select_order_acks(acks)
        .drop_nulls("number")
        .select(*pair, "number", "ns", "key")
        .sort(*pair, "ns", "number", "key")
    )
    highest = orders.with_columns(high=pl.col("number").cum_max().over(pair))
    early = highest.select(*pair, "high", at="ns").sort("at")
    asked = orders.with_columns(at=pl.col("ns") - LATEST_ORDER_ACK_NS).sort("at")
    fell = asked.join_asof(early, on="at", by=list(pair), check_sortedness=False).filter(
        pl.col("number") < pl.col("high")
    )
    last = (
        fell.sort("ns", "number")
        .group_by(pair)
        .agg(pl.last("high"), pl.last("ns").alias("low_ns"), pl.last("key").alias("low_key"))
    )
    since = (
        orders.join(last, on=pair)
        .group_by(*pair, "high", "low_ns", "low_key")
        .agg(
            pl.col("number").filter(pl.col("ns") >= pl.col("low_ns")).max().alias("number"),
            pl.col("ns").filter(pl.col("number") == pl.col("high")).min().alias("high_ns"),
            pl.col("key").filter(pl.col("number") == pl.col("high")).first().alias("high_key"),
        )
    )
    fallen = since.filter(pl.col("number") < pl.col("high"))
    return fallen.with_columns(tx_sequence_id=unsigned(pl.col("sequence"))).drop("sequence")


@derives(shared=("fallen",), columns={"verdicts": _OF_VERDICT}, in_parts=True)
def acknowledged_in_vain(verdicts: pl.DataFrame, fallen: pl.DataFrame) -> pl.DataFrame:
    """Returns SLOT and PLACE of the messages between the two numbers of OrderAcks that fell: rows of `fallen_acks`."""
    between = (pl.col("tx_sequence_number") > pl.col("number")) & (pl.col("tx_sequence_number") <= pl.col("high"))
    was_accepted = pl.col("accepted").fill_null(value=True) & (pl.col("captured_ns") < pl.col("low_ns"))
    return with_receiver(verdicts).join(fallen, on=OF_PAIR).filter(between, was_accepted).select(*SLOT, *PLACE)
