"""Finds the receiver's state before each chain of messages, by the rule of [MS-MQQB] 3.1.5.8.6.

A message, or a chain of them, is accepted exactly when the state S lies in `lo <= S < hi`, with `hi = (ID, number)` and
`lo = (ID, previous)`, or no lower bound where previous is 0. S then becomes `hi`; it never falls. Let M be the highest
`hi` before a message. A message with `hi > M` is a *new high*. While no new high was refused, S is M. A *sequence
break* is a new high with `lo > M`: it is refused, and S stays below M until a *reset*, which is a new high that every
state accepts. So windows find the states of all messages but those from a sequence break to the next reset; those are
*folded*, one after another. Across unread bytes the state moves to a new high even if the rule would refuse it.
"""

from contextlib import nullcontext

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app.spark_session import settings_for_few_rows
from jobs.engine.in_process import InProcess
from jobs.engine.on_spark import OnSpark
from jobs.replaying.judging import Accept
from jobs.transforms.expressions import BEFORE
from jobs.warehouse.local_tables import collect, to_spark
from schemas.replay import Reading
from schemas.table import row_type
from udfs.derive.frames import row_type_of
from udfs.replay.acceptance import STATE, fold
from udfs.replay.verdicts import LITERAL

_NUMBERS = ["scope_no", "replay_order", "sequence", "number", "previous", "missing"]
"""The columns of CHAIN that the windows need."""
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

    `sequence_break`: the chain is one. `after_break`: the last sequence break came after the last reset. `stretch`: the
    `replay_order` of that reset.
    """
    before = _in_replay_order().rowsBetween(*BEFORE)
    # Of equal numbers the first set the state: the one with the fewest unread ranges before it.
    highest = F.max(F.struct("sequence", "number", (-F.col("missing")).alias("fewest"))).over(before)
    new_high = F.col("state_number").isNull() | _is_above_state()
    sequence_break = (
        new_high & (F.col("previous") != 0) & _is_above_state("previous") & (F.col("missing") == F.col("state_missing"))
    )
    reset = new_high & ((F.col("previous") == 0) | (F.col("missing") > F.col("missing_before")))
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
        .withColumn("after_break", F.coalesce(F.col("last_break") > F.coalesce("stretch", F.lit(-1)), F.lit(False)))
        .drop("highest", "missing_before", "last_break")
    )


def stretches(marked: DataFrame) -> DataFrame:
    """Returns the rows from each sequence break to the next reset, for `fold`; a `stretch` of a scope by itself."""
    return marked.where(_is_folded()).select(*_timeline(marked), _begins().alias("begins"), "stretch")


def with_conformant_state(marked: DataFrame, folded: DataFrame) -> DataFrame:
    """Returns the timeline with the state before each row, where only an accepted message or unread bytes move it."""
    timeline = _timeline(marked)
    return marked.where(~_is_folded()).select(timeline).unionByName(folded.select(timeline))


def _is_folded() -> Column:
    return F.col("sequence_break") | F.col("after_break")


def _begins() -> Column:
    return F.col("sequence_break") & ~F.col("after_break")


def _timeline(marked: DataFrame) -> list[str]:
    return [column for column in marked.columns if column not in {"sequence_break", "after_break", "stretch"}]


def with_literal_state(states: DataFrame) -> DataFrame:
    """Adds the state before each row under the literal reading, where every message sets it, accepted or not."""
    named = zip(LITERAL, ("sequence", "number", "missing"), strict=True)
    return states.select("*", *(F.lag(of).over(_in_replay_order()).alias(name) for name, of in named))


def accept_on_spark(engine: OnSpark, reading: Reading) -> Accept[DataFrame]:
    """Returns what adds the receiver's state before each chain, by windows and, between breaks and resets, the fold."""

    def accept(chains: DataFrame) -> DataFrame:
        broken = engine.keep(mark_sequence_breaks(chains))
        to_fold = stretches(broken)
        # By stretch, too: that splits a large scope.
        folded = engine.run(to_fold, fold, row_type(to_fold.schema), ("scope_no", "stretch"), ("replay_order",))
        states = with_conformant_state(broken, folded)
        return with_literal_state(states) if reading is Reading.LITERAL else states

    return accept


def accept_in_memory(spark: SparkSession, reading: Reading) -> Accept[pl.DataFrame]:
    """Returns the same over frames: Spark gets the numbers that the windows need, in one query."""
    engine = InProcess()

    def accept(chains: pl.DataFrame) -> pl.DataFrame:
        with settings_for_few_rows(spark) if chains.height < _FEW_CHAINS else nullcontext():
            marked = mark_sequence_breaks(to_spark(spark, chains.select(_NUMBERS)))
            marked = with_literal_state(marked) if reading is Reading.LITERAL else marked
            found = collect(marked.withColumns({"is_folded": _is_folded(), "begins": _begins()}))
        folded = found.filter("is_folded")
        folded = engine.run(folded, fold, row_type_of(folded), ("scope_no", "stretch"), ("replay_order",))
        states = pl.concat([found.filter(~pl.col("is_folded")), folded])
        columns = ["scope_no", "replay_order", *STATE, *(name for name in LITERAL if name in states.columns)]
        return chains.join(states.select(columns), on=["scope_no", "replay_order"])

    return accept
