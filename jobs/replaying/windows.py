"""Finds the receiver's state before each chain of messages, by the rule of [MS-MQQB] 3.1.5.8.6.

A message, or a chain of them, is accepted exactly when the state S lies in `lo <= S < hi`, with `hi = (ID, number)` and
`lo = (ID, previous)`, or no lower bound where previous is 0. S then becomes `hi`; it never falls. Let M be the highest
`hi` before a message. A message with `hi > M` is a *new high*. While no new high was refused, S is M. A *sequence
break* is a new high with `lo > M`: it is refused, and S stays below M until a *reset*, which is a new high that every
state accepts. So windows find the states of all messages but those from a sequence break to the next reset; those are
*folded*, one after another. Across unread bytes the state moves to a new high even if the rule would refuse it.
"""

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app.spark_session import FOR_FEW_ROWS, session_settings
from jobs.engine.in_process import InProcess
from jobs.engine.on_spark import OnSpark
from jobs.replaying.judging import Accept
from jobs.warehouse.spark_rows import collect, to_spark
from schemas.replay import Reading
from schemas.table import row_type
from udfs.derive.frames import row_type_of
from udfs.replay.acceptance import STATE, fold
from udfs.replay.verdicts import LITERAL

_NUMBERS = ["scope_no", "replay_order", "sequence", "number", "previous", "missing"]
"""The columns of CHAIN that the windows need."""
_MARKS = ("begins", "is_folded", "stretch")
_FEW_CHAINS = 100_000
"""Of fewer, the windows take less time than compiling them."""


def _in_replay_order() -> WindowSpec:
    return Window.partitionBy("scope_no").orderBy("replay_order")


def _is_above_state(number: str = "number") -> Column:
    """Returns whether (sequence, number) is above the state; null where the state is unknown."""
    return (F.col("sequence") > F.col("state_sequence")) | (
        (F.col("sequence") == F.col("state_sequence")) & (F.col(number) > F.col("state_number"))
    )


def mark_sequence_breaks(timeline: DataFrame) -> DataFrame:
    """Adds the state before each chain as if no new high was refused, and marks the chains that have another state.

    `is_folded`: the chain is a sequence break, or one came since the last reset. `stretch`: the `replay_order` of that
    reset. `begins`: the chain is the first that is folded of its stretch, so the state before it is right.
    """
    before = _in_replay_order().rowsBetween(Window.unboundedPreceding, -1)
    # Of equal numbers the first set the state: the one with the fewest unread ranges before it.
    highest = F.max(F.struct("sequence", "number", (-F.col("missing")).alias("fewest"))).over(before)
    new_high = F.col("state_number").isNull() | _is_above_state()
    sequence_break = (
        new_high & (F.col("previous") != 0) & _is_above_state("previous") & (F.col("missing") == F.col("state_missing"))
    )
    reset = new_high & ((F.col("previous") == 0) | (F.col("missing") > F.col("missing_before")))
    after_break = F.coalesce(F.col("last_break") > F.coalesce("stretch", F.lit(-1)), F.lit(False))
    return (
        timeline.select(
            "*", highest.alias("highest"), F.lag("missing").over(_in_replay_order()).alias("missing_before")
        )
        .select(
            "*",
            F.col("highest.sequence").alias("state_sequence"),
            F.col("highest.number").alias("state_number"),
            (-F.col("highest.fewest")).alias("state_missing"),
        )
        .withColumn("sequence_break", F.coalesce(sequence_break, F.lit(False)))
        .select(
            "*",
            F.max(F.when(reset, F.col("replay_order"))).over(before).alias("stretch"),
            F.max(F.when(F.col("sequence_break"), F.col("replay_order"))).over(before).alias("last_break"),
        )
        .withColumn("begins", F.col("sequence_break") & ~after_break)
        .withColumn("is_folded", F.col("sequence_break") | after_break)
        .drop("highest", "missing_before", "last_break", "sequence_break")
    )


def with_literal_state(states: DataFrame) -> DataFrame:
    """Adds the state before each row under the literal reading, where every message sets it, accepted or not."""
    named = zip(LITERAL, ("sequence", "number", "missing"), strict=True)
    return states.select("*", *(F.lag(of).over(_in_replay_order()).alias(name) for name, of in named))


def accept_on_spark(engine: OnSpark, reading: Reading) -> Accept[DataFrame]:
    """Returns what adds the receiver's state before each chain, by windows and, between breaks and resets, the fold."""

    def accept(chains: DataFrame) -> DataFrame:
        marked = engine.keep(mark_sequence_breaks(chains))
        # By stretch, too: that splits a large scope.
        folded = engine.run(
            marked.where("is_folded"), fold, row_type(marked.schema), ("scope_no", "stretch"), ("replay_order",)
        )
        states = marked.where("NOT is_folded").unionByName(folded).drop(*_MARKS)
        return with_literal_state(states) if reading is Reading.LITERAL else states

    return accept


def accept_in_memory(spark: SparkSession, reading: Reading) -> Accept[pl.DataFrame]:
    """Returns the same over frames: Spark gets the numbers that the windows need, in one query."""
    engine = InProcess()

    def accept(chains: pl.DataFrame) -> pl.DataFrame:
        with session_settings(spark, FOR_FEW_ROWS if chains.height < _FEW_CHAINS else {}):
            marked = mark_sequence_breaks(to_spark(spark, chains.select(_NUMBERS)))
            marked = with_literal_state(marked) if reading is Reading.LITERAL else marked
            found = collect(marked)
        folded = found.filter("is_folded")
        folded = engine.run(folded, fold, row_type_of(folded), ("scope_no", "stretch"), ("replay_order",))
        states = pl.concat([found.filter(~pl.col("is_folded")), folded])
        columns = ["scope_no", "replay_order", *STATE, *(name for name in LITERAL if name in states.columns)]
        return chains.join(states.select(columns), on=["scope_no", "replay_order"])

    return accept
