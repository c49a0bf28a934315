"""Sums per sequence, and the state of each scope after its last message."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import columns_of, each, tx_sequence, unsigned, with_columns_of
from jobs.transforms.outcomes.rows import Outcomes, add_up
from jobs.transforms.outcomes.tallies import VERDICT_COUNTS, scope_states
from schemas.replay import SEQUENCES, STATES


def summarize_sequences(tallies: DataFrame, outcomes: Outcomes | None) -> DataFrame:
    """Returns one row of SEQUENCES per scope and TxSequenceID; without `outcomes`, what counts these is null."""
    key = ["scope_key", "tx_sequence_id"]
    rows = (
        tallies.groupBy(*key, "source_queue_manager")
        .agg(
            *each(F.sum, "messages", *VERDICT_COUNTS, "expired"),
            *each(F.min, "first_number", "first_captured_at"),
            *each(F.max, "last_number", "last_accepted_number", "last_captured_at"),
        )
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
    )
    if outcomes is not None:
        rows = rows.join(add_up(outcomes.counts, *key), key).join(outcomes.slots, key, "left")
    return with_columns_of(SEQUENCES, rows)


def summarize_states(tallies: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Returns one row of STATES per scope, and the rows of `earlier` STATES whose scopes had no message since."""
    renamed = {"state_number": "tx_sequence_number", "state_assumed": "assumed"}
    rows = (
        scope_states(tallies)
        .withColumn("tx_sequence_id", unsigned(F.col("state_sequence")))
        .withColumnsRenamed(renamed)
        .drop("state_sequence", "opening_sequence", "opening_number", "several_receivers")
    )
    if earlier is not None:
        idle = earlier.drop("tx_sequence").join(rows.select("scope_key"), "scope_key", "left_anti")
        if "assumed" not in idle.columns:  # not in tables of older releases
            idle = idle.withColumn("assumed", F.lit(False))
        rows = rows.unionByName(idle.withColumn("messages", F.lit(0).cast("long")))
    return rows.withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id"))).select(columns_of(STATES))
