"""Pairs OrderAcks and FinalAcks with the receiver that sent them and the original sender that they are for."""

import polars as pl

from schemas.ingest import PacketType
from schemas.judging import ACK, ACKNOWLEDGED
from udfs.derive.columns import ACK_PAIR, number_of, row_key, signed
from udfs.derive.frames import derives
from udfs.derive.replay.ends import known_guid
from udfs.derive.replay.scopes import FLOW_KEY, SENDER_THERE, with_flow

OF_ACKS = (
    *("stream_id", "stream_offset", "captured_ns", "ack_type", "source_queue_manager", "source_guid"),
    *("queue_manager_address", "tx_sequence_id", "tx_sequence_number", "message_class", "acknowledged_message_id"),
)
"""Columns of ACKS that pairing needs."""
MOST_SENDERS = 16
"""Senders of a session that an OrderAck without an addressee may be for. A session behind a router has thousands."""


def crowded(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of the sessions on which more than MOST_SENDERS have messages.

    `flows` need a SENDER_THERE.
    """
    senders = pl.col("source_queue_manager").drop_nulls().n_unique()
    sessions = flows.group_by("session_id").agg(senders.alias("senders")).filter(pl.col("senders") > MOST_SENDERS)
    return flows.join(sessions, on="session_id", how="semi")


@derives(("stream_id",), columns={"messages": (*FLOW_KEY, "tx_sequence_id")})
def sequences_used(messages: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Returns each `session_id`, `source_queue_manager` and `sequence` (`signed`) that messages of these flows have."""
    sequence = signed(pl.col("tx_sequence_id")).alias("sequence")
    return with_flow(messages, flows, "session_id").select(*SENDER_THERE, sequence).unique()


@derives(("stream_id",), ("flows", "used"), {"acks": OF_ACKS})
def pair_acks(acks: pl.DataFrame, ends: pl.DataFrame, flows: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Returns acknowledgments with `receiver` and `source_queue_manager`, which are a pair, and what they acknowledge.

    One row per ACKS row and pair: `ack_type`, `sequence` (`signed`), `number`, `ns`, `key` and, of a FinalAck, its
    `message_class` and the `message_number` of the message ID that it names.
    Messages may know the acknowledging queue manager by its GUID or by its stream's name for it, so each name makes a
    pair. A FinalAck names the original sender. An OrderAck in the direct form names no addressee: it is for every
    sender in `flows` (SENDER_THERE) whose messages went the other way on its session. On a `crowded` one it is for
    those who used its sequence there, unless these are too many: `used` are the rows of such sessions, with `sequence`.
    """
    rows = (
        acks.filter(pl.col("captured_ns").is_not_null())
        .join(ends.select("stream_id", "sender", pl.col("receiver").alias("back_to")), on="stream_id")
        .select(
            "ack_type",
            "sender",
            pl.col("source_queue_manager").alias("named_sender"),
            pl.concat_str("back_to", "sender", separator="->", ignore_nulls=True).alias("session_id"),
            addressee().alias("source_queue_manager"),
            signed(pl.col("tx_sequence_id")).alias("sequence"),
            pl.col("tx_sequence_number").alias("number"),
            pl.col("captured_ns").alias("ns"),
            row_key().alias("key"),
            pl.when(_is_final()).then("message_class").alias("message_class"),
            pl.when(_is_final()).then(message_number("acknowledged_message_id")).alias("message_no"),
        )
    )
    names_none = pl.col("source_queue_manager").is_null()
    paired = pl.concat([rows.filter(~names_none), *_for_senders(rows.filter(names_none), flows, used)], how="diagonal")
    is_other = pl.col("named_sender").ne_missing(pl.col("sender"))
    by_both = [paired.with_columns(receiver="sender"), paired.filter(is_other).with_columns(receiver="named_sender")]
    return pl.concat(by_both).drop("sender", "named_sender", "session_id")


def addressee() -> pl.Expr:
    """Returns the original sender that an acknowledgment names; null if it names none."""
    return pl.when(_is_final()).then(known_guid("source_guid")).otherwise(known_guid("queue_manager_address"))


def message_number(name: str) -> pl.Expr:
    """Returns the number that stands for a message ID where messages and FinalAcks are compared; null for null."""
    return pl.when(pl.col(name).is_not_null()).then(number_of(name))


def _is_final() -> pl.Expr:
    return pl.col("ack_type") == PacketType.FINAL_ACK.value


def _for_senders(acks: pl.DataFrame, flows: pl.DataFrame, used: pl.DataFrame) -> list[pl.DataFrame]:
    """Returns acknowledgments without an addressee, for each of the senders that they may be for."""
    acks = acks.drop("source_queue_manager")
    of_session = _few_senders(flows, "session_id")
    for_all = acks.join(of_session, on="session_id")
    others = acks.join(of_session, on="session_id", how="anti")
    return [for_all, others.join(_few_senders(used, "session_id", "sequence"), on=["session_id", "sequence"])]


def _few_senders(flows: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Returns the senders of each key that has at most MOST_SENDERS."""
    senders = flows.select(*key, "source_queue_manager").drop_nulls("source_queue_manager").unique()
    return senders.filter(pl.len().over(key) <= MOST_SENDERS)


def select_order_acks(acknowledgments: pl.DataFrame) -> pl.DataFrame:
    """Returns the OrderAcks among acknowledgments."""
    return acknowledgments.filter(pl.col("ack_type") == PacketType.ORDER_ACK.value)


@derives(ACK_PAIR, columns={"acks": ("ack_type", *ACK_PAIR)})
def answered(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs, ACK_PAIR, that OrderAcks are of."""
    return select_order_acks(acks).select(ACK_PAIR).unique()


@derives(ACK_PAIR)
def acknowledged(acks: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of ACKNOWLEDGED: the acknowledgments of `pair_acks` whose pair has messages on the streams.

    `streams` are rows of `marks.number_streams`.
    """
    pairs = streams.filter("has_messages").select(*ACK_PAIR, "pair_no").unique()
    turn = pl.lit(ACK, pl.Int64).alias("turn")
    return acks.join(pairs, on=ACK_PAIR).with_columns(turn).select(ACKNOWLEDGED.names)
