"""Balances the books: the input of each step equals its output, quarantine included.

Where rows are counted, frames have sums over them: how many there are (`count`) per key and, in quarantine, `stage`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from schemas.ingest import BOOKS, Book, Stage
from udfs.derive.frames import derives
from udfs.derive.tables import with_columns_of


class _Part(NamedTuple):
    """Holds rows of one side of a book, and an aggregate that says how much they are."""

    rows: pl.DataFrame
    total: pl.Expr


def balance_records(captures: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: records read = MSMQ segments + other traffic + quarantined records, per capture."""
    read = _Part(captures, pl.sum("packet_count"))
    used = _Part(captures, (pl.col("segment_count") + pl.col("other_count")).sum())
    return _compare(Book.RECORDS, "capture_id", [read], [used, _count(_of_stage(quarantine, Stage.FRAME))])


def balance_bytes(streams: pl.DataFrame, packets: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: bytes recovered = bytes in packets + bytes quarantined by framing, per stream."""
    recovered, framed = _Part(streams, pl.sum("recovered_bytes")), _Part(packets, pl.sum("size"))
    unusable = _Part(_of_stage(quarantine, Stage.FRAMING), pl.sum("length"))
    return _compare(Book.BYTES, "stream_id", [recovered], [framed, unusable])


def balance_packets(packets: pl.DataFrame, decoded: Sequence[pl.DataFrame], quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: packets = rows of the decoded tables + packets quarantined by decode, per stream."""
    ends = [*decoded, _of_stage(quarantine, Stage.DECODE)]
    return _compare(Book.PACKETS, "stream_id", [_count(packets)], list(map(_count, ends)))


def balance_arrivals(verdicts: pl.DataFrame, outcomes: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: verdicts = arrivals of the messages in `outcomes` and of delivered messages, per scope.

    Under the literal reading, which has no outcomes: verdicts = messages of the sequences.
    """
    unusual = _Part(outcomes, pl.sum("arrivals"))
    delivered = _Part(sequences, pl.coalesce("delivered_arrivals", "messages").sum())
    return _compare(Book.ARRIVALS, "scope_key", [_count(verdicts)], [unusual, delivered])


@derives(
    ("scope_key",),
    columns={
        "outcomes": ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "numbers"),
        "sequences": ("scope_key", "tx_sequence_id", "first_number_due", "numbers_seen", "numbers_due"),
    },
)
def balance_numbers(outcomes: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: numbers due = numbers seen + numbers of outcomes without a message, per scope."""
    number = pl.col("tx_sequence_number")
    due = sequences.filter(pl.col("first_number_due").is_not_null()).select(
        "scope_key", "tx_sequence_id", "first_number_due", "numbers_seen", "numbers_due"
    )
    unseen = (
        outcomes.filter(pl.col("message_id").is_null())
        .join(due, on=["scope_key", "tx_sequence_id"])
        .filter(number >= pl.col("first_number_due"), number < pl.col("first_number_due") + pl.col("numbers_due"))
    )
    seen = [_Part(due, pl.sum("numbers_seen")), _Part(unseen, pl.sum("numbers"))]
    return _compare(Book.NUMBERS, "scope_key", [_Part(due, pl.sum("numbers_due"))], seen)


def _of_stage(quarantine: pl.DataFrame, stage: Stage) -> pl.DataFrame:
    return quarantine.filter(pl.col("stage") == stage.value)


def _count(rows: pl.DataFrame) -> _Part:
    return _Part(rows, pl.sum("count"))


def _compare(book: Book, key: str, left: Sequence[_Part], right: Sequence[_Part]) -> pl.DataFrame:
    """Returns BOOKS rows with the sums of both sides by `key`; a key on only one side is unbalanced too."""
    sides = {"left_side": left, "right_side": right}
    sums = [
        rows.group_by(key).agg(total.cast(pl.Int64).alias(side))
        for side, parts in sides.items()
        for rows, total in parts
    ]
    books = pl.concat(sums, how="diagonal").group_by(key).agg(pl.col(*sides).sum())
    balanced = pl.col("left_side") == pl.col("right_side")
    return with_columns_of(BOOKS, books.with_columns(book=pl.lit(book.value), balanced=balanced))
