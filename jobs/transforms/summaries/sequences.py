"""Sums per sequence, and the state of each scope after its last message."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import columns_of, tx_sequence
from jobs.transforms.outcomes.rows import Outcomes, add_up
from jobs.transforms.outcomes.slots import rests_on_assumption
from jobs.transforms.summaries.verdict_counts import first_and_last_time, verdict_counts
from schemas.replay import SEQUENCES, STATES, Reading


def summarize_sequences(verdicts: DataFrame, outcomes: Outcomes) -> DataFrame:
    """Returns one row of SEQUENCES per scope and TxSequenceID."""
    key = ["scope_key", "tx_sequence_id"]
    number = F.col("tx_sequence_number")
    counted = F.col("incoming_tx_sequence_number").isNotNull() & ~F.col("assumed")
    return (
        verdicts.groupBy("scope_key", "tx_sequence_id", "source_queue_manager")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            *verdict_counts(),
            F.sum(F.when(counted, F.col("gap_size")).otherwise(0)).alias("expired"),
            F.min(number).alias("first_number"),
            F.max(number).alias("last_number"),
            F.max(F.when(F.col("accepted"), number)).alias("last_accepted_number"),
            *first_and_last_time(),
        )
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .join(add_up(outcomes.counts, *key), key)
        .join(outcomes.slots, key, "left")
        .select(columns_of(SEQUENCES))
    )


def summarize_states(verdicts: DataFrame, earlier: DataFrame | None = None, *, reading: Reading) -> DataFrame:
    """Returns one row of STATES per scope, and the rows of `earlier` STATES whose scopes had no message since."""
    moved = F.coalesce("accepted", F.lit(True)) | F.lit(reading is Reading.LITERAL)
    after = (
        F.when(moved, F.col("tx_sequence_id")).otherwise(F.col("incoming_tx_sequence_id")).alias("tx_sequence_id"),
        F.when(moved, F.col("tx_sequence_number"))
        .otherwise(F.col("incoming_tx_sequence_number"))
        .alias("tx_sequence_number"),
    )
    last = F.struct("session_id", *after, "reject_count", "stream_id", "stream_offset")
    rows = (
        verdicts.groupBy("scope_key", "source_queue_manager")
        .agg(
            F.max_by(last, "replay_order").alias("last"),
            F.count(F.lit(1)).alias("messages"),
            rests_on_assumption().alias("assumed"),
            F.max("captured_at").alias("last_captured_at"),
            F.max("captured_ns").alias("last_captured_ns"),
        )
        .select("*", "last.*")
    )
    if earlier is not None:
        idle = earlier.drop("tx_sequence").join(rows.select("scope_key"), "scope_key", "left_anti")
        if "assumed" not in idle.columns:  # not in tables of older releases
            idle = idle.withColumn("assumed", F.lit(False))
        rows = rows.drop("last").unionByName(idle.withColumn("messages", F.lit(0).cast("long")))
    return rows.withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id"))).select(columns_of(STATES))
