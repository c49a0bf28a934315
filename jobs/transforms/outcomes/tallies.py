"""Adds verdicts up once, for everything that is summed up per sequence, session or scope.

A tally is of one sequence on one stream. Each value has an aggregate of its own, of a number, because Spark sorts all
rows to aggregate structs and text.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import each, signed
from schemas.replay import Explains, Reading, Verdict

_GUID = "________-____-____-____-____________"
_KEY = ("scope_key", "source_queue_manager", "tx_sequence_id", "session_id", "stream_id")


def first_and_last_time() -> list[Column]:
    """Returns the times of the first and the last message."""
    return [F.min("captured_at").alias("first_captured_at"), F.max("captured_at").alias("last_captured_at")]


def tally(verdicts: DataFrame, *, reading: Reading = Reading.CONFORMANT) -> DataFrame:
    """Returns a row per sequence and stream with `messages`, counts of verdicts and answers, and the ends of the run.

    `first_order` and `last_order` are the places of its first and last arrival; `opening_sequence` and
    `opening_number` the state before the first, `state_sequence` and `state_number` that after the last (sequences are
    `signed`). `last_from_zero`, `last_unknown` and `left` are for `state_assumed`.
    """
    order, number, explained = F.col("replay_order"), F.col("tx_sequence_number"), F.col("explained_by")
    number_before, sequence_before = F.col("incoming_tx_sequence_number"), signed(F.col("incoming_tx_sequence_id"))
    moves = F.coalesce("accepted", F.lit(True)) | F.lit(reading is Reading.LITERAL)
    is_covered, counted = F.col("covered_at").isNotNull(), number_before.isNotNull() & ~F.col("assumed")
    return (
        verdicts.groupBy(*_KEY)
        .agg(
            F.count(F.lit(1)).alias("messages"),
            *(F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict),
            F.count(explained).alias("answers"),
            F.count_if(explained.isin(Explains.CONFORMANT.value, Explains.BOTH.value)).alias("answers_conformant"),
            F.count_if(explained.isin(Explains.LITERAL.value, Explains.BOTH.value)).alias("answers_literal"),
            F.sum(F.when(counted, F.col("gap_size")).otherwise(0)).alias("expired"),
            F.min(number).alias("first_number"),
            F.max(number).alias("last_number"),
            F.max(F.when(F.col("accepted"), number)).alias("last_accepted_number"),
            *first_and_last_time(),
            F.max("captured_ns").alias("last_captured_ns"),
            F.min("stream_offset").alias("first_offset"),
            F.min_by("captured_ns", "stream_offset").alias("first_ns"),
            F.min(order).alias("first_order"),
            F.max(order).alias("last_order"),
            F.min_by(sequence_before, order).alias("opening_sequence"),
            F.min_by(number_before, order).alias("opening_number"),
            F.max_by(moves, order).alias("moved"),
            F.max_by(F.when(~moves, sequence_before), order).alias("kept_sequence"),
            F.max_by(F.when(moves, number).otherwise(number_before), order).alias("state_number"),
            F.max_by("reject_count", order).alias("reject_count"),
            F.max_by("stream_offset", order).alias("last_offset"),
            F.max(F.when(F.col("accepted") & (F.col("previous_tx_sequence_number") == 0), order)).alias(
                "last_from_zero"
            ),
            F.max(F.when(F.col("accepted").isNull(), order * 2 + is_covered.cast("int"))).alias("last_unknown"),
            F.max_by(F.col("assumed") & ~is_covered, order).alias("left"),
        )
        .withColumn("sequence", signed(F.col("tx_sequence_id")))
        .withColumn("state_sequence", F.when(F.col("moved"), F.col("sequence")).otherwise(F.col("kept_sequence")))
        .drop("moved", "kept_sequence")
    )


def scope_states(tallies: DataFrame) -> DataFrame:
    """Returns per `scope_key` where its receiver stood: before the first arrival, `opening_…`, and after the last.

    `state_…` is that after the last arrival; `state_assumed`: it is assumed. It rests on the last unknown arrival, or
    on the state that the previous warehouse left, unless a message with a previous number of 0 set it since. An
    OrderAck that covers what it rests on ends the doubt: the arrival, or of a state that was left, any message since.
    `several_receivers`: the messages went to queue managers with different GUIDs, of which each has a state of its own.
    Besides, the sums of STATES, and `session_id`, `stream_id` and `stream_offset` of the last arrival.
    """
    unknown, from_zero = F.col("last_unknown"), F.col("last_from_zero")
    of_unknown = (F.shiftright(unknown, 1) > F.coalesce(from_zero, F.lit(0))) & (unknown.bitwiseAND(F.lit(1)) == 0)
    of_left = from_zero.isNull() & F.coalesce("left", F.lit(False))
    last = ("state_sequence", "state_number", "reject_count", "left", "session_id", "stream_id", "last_offset")
    receiver = F.substring_index("session_id", "->", -1)
    guid = F.when(receiver.like(_GUID), receiver)
    return (
        tallies.groupBy("scope_key", "source_queue_manager")
        .agg(
            *(F.max_by(name, "last_order").alias(name) for name in last),
            *(F.min_by(name, "first_order").alias(name) for name in ("opening_sequence", "opening_number")),
            *each(F.max, "last_from_zero", "last_unknown", "last_captured_at", "last_captured_ns"),
            *each(F.sum, "messages"),
            F.coalesce(F.min(guid) < F.max(guid), F.lit(False)).alias("several_receivers"),
        )
        .withColumn("state_assumed", F.when(unknown.isNotNull(), of_unknown).otherwise(of_left))
        .withColumnRenamed("last_offset", "stream_offset")
        .drop("last_from_zero", "last_unknown", "left")
    )


VERDICT_COUNTS = tuple(verdict.value for verdict in Verdict)
ANSWERS = ("answers", "answers_conformant", "answers_literal")
