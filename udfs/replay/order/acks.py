"""Pairs OrderAcks and FinalAcks with the receiver that sent them and the original sender that they are for."""

import polars as pl

from schemas.ingest import PacketType
from schemas.judging import ACK, ACKNOWLEDGED
from udfs.frames.columns import ACK_PAIR, are_in, number_of, row_key, signed
from udfs.frames.derivation import derives
from udfs.replay.order.ends import known_guid
from udfs.replay.order.scopes import SENDER_THERE

OF_ACKS = (
    *("stream_id", "stream_offset", "captured_ns", "ack_type", "source_queue_manager", "source_guid"),
    *("queue_manager_address", "tx_sequence_id", "tx_sequence_number", "message_class", "acknowledged_message_id"),
)
"""Columns of ACKS that pairing needs."""
MOST_SENDERS = 16
"""Senders of a session that an OrderAck without an addressee may be for.

Behind a router a session has thousands. There OrderAcks have addressees, since nothing that is routed has the direct
form.
"""


@derives(columns={"ends": ("receiver", "receiver_by_address")}, in_parts=True)
def find_addresses(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns each `address` that stands for a receiver on some of the streams, with the GUID that it has elsewhere."""
    return ends.select(address="receiver", guid="receiver_by_address").drop_nulls().unique()


@derives(("stream_id",), ("senders", "addresses"), {"acks": OF_ACKS})
def pair_acks(acks: pl.DataFrame, ends: pl.DataFrame, senders: pl.DataFrame, addresses: pl.DataFrame) -> pl.DataFrame:
    """Returns acknowledgments with `receiver` and `source_queue_manager`, which are a pair, and what they acknowledge.

    One row per ACKS row and pair: `ack_type`, `sequence` (`signed`), `number`, `ns`, `key` and, of a FinalAck, its
    `message_class` and the `message_number` of the message ID that it names.
    Messages may know the acknowledging queue manager by its GUID, by its stream's name for it, or by one of the
    `addresses` (rows of `find_addresses`) that it has where no handshake was captured, so each name makes a pair. A
    FinalAck names the original sender. An OrderAck in the direct form names no addressee: it is for all of the
    `senders` whose messages went the other way on its session, unless these are more than MOST_SENDERS. One that names
    its addressee is for that, unless it went to a machine that is known to be another one, and from which no message of
    the addressee came: then the addressee does not get it, and it is for nobody.
    """
    rows = (
        acks.filter(pl.col("captured_ns").is_not_null())
        .join(ends.select("stream_id", "sender", pl.col("receiver").alias("back_to"), "receiver_guid"), on="stream_id")
        .select(
            "ack_type",
            "sender",
            "receiver_guid",
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
    for_all = rows.filter(names_none).drop("source_queue_manager").join(_few_senders(senders), on="session_id")
    named = rows.filter(~names_none)
    goes_elsewhere = (pl.col("receiver_guid") != pl.col("source_queue_manager")).fill_null(value=False)
    is_passed_on = are_in(named, senders.select(SENDER_THERE))
    reaches = ~goes_elsewhere | is_passed_on | pl.col("message_class").is_not_null()
    paired = pl.concat([named.filter(reaches), for_all], how="diagonal")
    is_other = pl.col("named_sender").ne_missing(pl.col("sender"))
    by_both = [paired.with_columns(receiver="sender"), paired.filter(is_other).with_columns(receiver="named_sender")]
    by_name = pl.concat(by_both)
    others = by_name.join(addresses, left_on="receiver", right_on="guid").filter(pl.col("address") != pl.col("sender"))
    by_address = others.with_columns(receiver="address").drop("address").unique()
    return pl.concat([by_name, by_address]).drop("sender", "named_sender", "session_id", "receiver_guid")


def addressee() -> pl.Expr:
    """Returns the original sender that an acknowledgment names; null if it names none."""
    return pl.when(_is_final()).then(known_guid("source_guid")).otherwise(known_guid("queue_manager_address"))


def message_number(name: str) -> pl.Expr:
    """Returns the number that stands for a message ID where messages and FinalAcks are compared; null for null."""
    return pl.when(pl.col(name).is_not_null()).then(number_of(name))


def _is_final() -> pl.Expr:
    return pl.col("ack_type") == PacketType.FINAL_ACK.value


def _few_senders(senders: pl.DataFrame) -> pl.DataFrame:
    """Returns each SENDER_THERE of the sessions that have at most MOST_SENDERS."""
    named = senders.select(SENDER_THERE).drop_nulls("source_queue_manager").unique()
    return named.filter(pl.len().over("session_id") <= MOST_SENDERS)


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
