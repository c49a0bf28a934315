"""Finds the receiver's state before each chain of messages, by the rule of [MS-MQQB] 3.1.5.8.6.

A message, or a chain of them, is accepted exactly when the state S lies in `lo <= S < hi`, with `hi = (ID, number)` and
`lo = (ID, previous)`, or no lower bound where previous is 0. S then becomes `hi`; it never falls. Let M be the highest
`hi` before a message. A message with `hi > M` is a *new high*. While no new high was refused, S is M. A *sequence
break* is a new high with `lo > M`: it is refused, unless bytes are unread before it, and S stays below M until a
*reset*, which is a new high with previous 0: every state accepts it. So windows find the states of all messages but
those after a sequence break up to the next reset, whose states the pass that judges finds one after another.
"""

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.cli.spark_session import FOR_FEW_ROWS, session_settings
from jobs.tables.spark_rows import collect, to_spark
from udfs.replay.verdicts.acceptance import STATE
from udfs.replay.verdicts.flow import AddStates
from udfs.replay.verdicts.judge import AFTER_BREAK

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


def with_states(chains: DataFrame) -> DataFrame:
    """Adds the columns STATE, the state before each chain as if no new high was refused, null where it is unknown.

    AFTER_BREAK marks the chains with another state: a sequence break came before them, and no reset since.
    """
    before = _in_replay_order().rowsBetween(Window.unboundedPreceding, -1)
    # Of equal numbers the first set the state: the one with the fewest unread ranges before it.
    highest = F.max(F.struct("sequence", "number", (-F.col("missing")).alias("fewest"))).over(before)
    new_high = F.col("state_number").isNull() | _is_above_state()
    sequence_break = new_high & (F.col("previous") != 0) & _is_above_state("previous")
    reset = new_high & (F.col("previous") == 0)
    return (
        chains.select("*", highest.alias("highest"))
        .select(
            "*",
            F.col("highest.sequence").alias("state_sequence"),
            F.col("highest.number").alias("state_number"),
            (-F.col("highest.fewest")).alias("state_missing"),
        )
        .select(
            "*",
            F.max(F.when(sequence_break, F.col("replay_order"))).over(before).alias("last_break"),
            F.max(F.when(reset, F.col("replay_order"))).over(before).alias("last_reset"),
        )
        .withColumn(AFTER_BREAK, F.coalesce(F.col("last_break") > F.coalesce("last_reset", F.lit(-1)), F.lit(False)))
        .drop("highest", "last_break", "last_reset")
    )


def add_states_in_memory(spark: SparkSession) -> AddStates[pl.DataFrame]:
    """Returns what does the same to frames: Spark gets the numbers that the windows need, in one query."""

    def add_states(chains: pl.DataFrame) -> pl.DataFrame:
        with session_settings(spark, FOR_FEW_ROWS if chains.height < _FEW_CHAINS else {}):
            found = collect(with_states(to_spark(spark, chains.select(_NUMBERS))))
        states = found.select("scope_no", "replay_order", *STATE, AFTER_BREAK)
        return chains.join(states, on=["scope_no", "replay_order"])

    return add_states
