"""Balances the books: the input of each step equals its output, quarantine included.

Where rows are counted, frames have sums over them: how many there are (`count`) per key and, in quarantine, `stage`.
"""

from collections.abc import Sequence

import polars as pl

from schemas.ingest import BOOKS, Book, Stage
from udfs.frames.derivation import derives
from udfs.frames.tables import with_columns_of


def balance_records(captures: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: records read = MSMQ segments + other traffic + quarantined records, per capture."""
    both = captures.select(
        "capture_id", left_side="packet_count", right_side=pl.col("segment_count") + pl.col("other_count")
    )
    return _compare(Book.RECORDS, both, _of_stage(quarantine, Stage.FRAME).select("capture_id", right_side="count"))


def balance_bytes(streams: pl.DataFrame, packets: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: bytes recovered = bytes in packets + bytes quarantined by framing, per stream."""
    recovered = streams.select("stream_id", left_side="recovered_bytes")
    unusable = _of_stage(quarantine, Stage.FRAMING).select("stream_id", right_side="length")
    return _compare(Book.BYTES, recovered, packets.select("stream_id", right_side="size"), unusable)


def balance_packets(packets: pl.DataFrame, decoded: Sequence[pl.DataFrame], quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: packets = rows of the decoded tables + packets quarantined by decode, per stream."""
    ends = (of.select("stream_id", right_side="count") for of in (*decoded, _of_stage(quarantine, Stage.DECODE)))
    return _compare(Book.PACKETS, packets.select("stream_id", left_side="count"), *ends)


def balance_arrivals(verdicts: pl.DataFrame, outcomes: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: verdicts = arrivals of the messages in `outcomes` and of delivered messages, per scope.

    Under the literal reading, which has no outcomes: verdicts = messages of the sequences.
    """
    unusual = outcomes.select("scope_key", right_side="arrivals")
    delivered = sequences.select("scope_key", right_side=pl.coalesce("delivered_arrivals", "messages"))
    return _compare(Book.ARRIVALS, verdicts.select("scope_key", left_side="count"), unusual, delivered)


@derives(
    ("scope_key",),
    columns={
        "outcomes": ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "numbers"),
        "sequences": ("scope_key", "tx_sequence_id", "first_number_due", "numbers_seen", "numbers_due"),
    },
)
def balance_numbers(outcomes: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows: numbers due = numbers seen + numbers of outcomes without a message, per scope."""
    first, number = pl.col("first_number_due"), pl.col("tx_sequence_number")
    due = sequences.filter(first.is_not_null())
    unseen = (
        outcomes.filter(pl.col("message_id").is_null())
        .join(due, on=["scope_key", "tx_sequence_id"])
        .filter(number >= first, number < first + pl.col("numbers_due"))
    )
    both = due.select("scope_key", left_side="numbers_due", right_side="numbers_seen")
    return _compare(Book.NUMBERS, both, unseen.select("scope_key", right_side="numbers"))


def _of_stage(quarantine: pl.DataFrame, stage: Stage) -> pl.DataFrame:
    return quarantine.filter(pl.col("stage") == stage.value)


def _compare(book: Book, *parts: pl.DataFrame) -> pl.DataFrame:
    """Returns BOOKS rows with the sums of both sides by the first column; a key on only one side is unbalanced too."""
    sums = pl.concat(parts, how="diagonal_relaxed").group_by(parts[0].columns[0]).agg(pl.all().sum().cast(pl.Int64))
    balanced = pl.col("left_side") == pl.col("right_side")
    return with_columns_of(BOOKS, sums.with_columns(book=pl.lit(book.value), balanced=balanced))
