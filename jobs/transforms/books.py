"""Checks the conservation laws: the input of each step equals its output, quarantine included."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.transforms.expressions import each, null
from schemas.ingest import BOOKS, Law, Stage

_Part = tuple[DataFrame, str]
"""Rows of one side of a law, and in SQL how much each of them is."""
_SIDES = ("left_side", "right_side")


def balance_records(captures: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: records read = MSMQ segments + other traffic + quarantined records, per capture."""
    read, used = (captures, "packet_count"), (captures, "segment_count + other_count")
    return _compare(Law.RECORDS, "capture_id", [read], [used, _count(_of_stage(quarantine, Stage.FRAME))])


def balance_bytes(streams: DataFrame, packets: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: bytes recovered = bytes in packets + bytes quarantined by framing, per stream."""
    framed = [(packets, "size"), (_of_stage(quarantine, Stage.FRAMING), "length")]
    return _compare(Law.BYTES, "stream_id", [(streams, "recovered_bytes")], framed)


def balance_packets(packets: DataFrame, decoded: list[DataFrame], quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: packets = rows of the decoded tables + packets quarantined by decode, per stream."""
    ends = [*decoded, _of_stage(quarantine, Stage.DECODE)]
    return _compare(Law.PACKETS, "stream_id", [_count(packets)], list(map(_count, ends)))


def balance_arrivals(verdicts: DataFrame, outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns BOOKS rows: verdicts = arrivals of the messages in `outcomes` and of delivered messages, per scope.

    Under the literal reading, which has no outcomes: verdicts = messages of the sequences.
    """
    arrived = [(outcomes, "arrivals"), (sequences, "coalesce(delivered_arrivals, messages)")]
    return _compare(Law.ARRIVALS, "scope_key", [_count(verdicts)], arrived)


def balance_slots(outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns BOOKS rows: slots up to the state = slots seen + numbers of outcomes without a message, per scope."""
    due = sequences.where("first_due is not null").select(
        "scope_key", "tx_sequence_id", "first_due", "slots_seen", "slots"
    )
    unseen = (
        outcomes.where("message_id is null")
        .join(due, ["scope_key", "tx_sequence_id"])
        .where("tx_sequence_number >= first_due and tx_sequence_number < first_due + slots")
    )
    return _compare(Law.SLOTS, "scope_key", [(due, "slots")], [(due, "slots_seen"), (unseen, "numbers")])


def _of_stage(quarantine: DataFrame, stage: Stage) -> DataFrame:
    return quarantine.where(F.col("stage") == stage.value)


def _count(rows: DataFrame) -> _Part:
    return rows, "1"


def _compare(law: Law, key: str, left: Sequence[_Part], right: Sequence[_Part]) -> DataFrame:
    """Returns BOOKS rows with the sums of both sides by `key`; a key on only one side is unbalanced too."""
    amounts = (
        rows.select(key, *(F.expr(amount if name == side else "0").cast("long").alias(name) for name in _SIDES))
        for side, parts in zip(_SIDES, (left, right), strict=True)
        for rows, amount in parts
    )
    sums = reduce(DataFrame.unionAll, amounts).groupBy(key).agg(*each(F.sum, *_SIDES))
    others = (F.col(name) if name == key else null("string").alias(name) for name in BOOKS.key[1:])
    balanced = F.col(_SIDES[0]) == F.col(_SIDES[1])
    return sums.select(F.lit(law.value).alias("law"), *others, *_SIDES, balanced.alias("balanced"))
