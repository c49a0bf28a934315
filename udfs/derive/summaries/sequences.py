"""Sums per sequence, and the state of each scope after its last message."""

import polars as pl

from schemas.replay import SEQUENCES, STATES, Verdict
from udfs.derive.columns import SEQUENCE, tx_sequence, unsigned
from udfs.derive.outcomes.counts import sum_outcomes
from udfs.derive.tables import with_columns_of


def summarize_sequences(tallies: pl.DataFrame, counts: pl.DataFrame | None, slots: pl.DataFrame | None) -> pl.DataFrame:
    """Returns one row of SEQUENCES per scope and TxSequenceID; without `counts` and `slots`, what they tell is null.

    `tallies` have a row per sequence and stream, `counts` the count of each outcome per sequence and session, and
    `slots` a row for the last sequence of each scope.
    """
    rows = (
        tallies.group_by(*SEQUENCE, "source_queue_manager")
        .agg(
            pl.col("messages", *(verdict.value for verdict in Verdict), "expired").sum(),
            pl.col("first_number", "first_captured_at").min(),
            pl.col("last_number", "last_accepted_number", "last_captured_at").max(),
        )
        .with_columns(tx_sequence=tx_sequence(pl.col("tx_sequence_id")))
    )
    if counts is not None:
        rows = rows.join(sum_outcomes(counts, *SEQUENCE), on=SEQUENCE)
    if slots is not None:
        rows = rows.join(slots, on=SEQUENCE, how="left")
    return with_columns_of(SEQUENCES, rows)


def summarize_states(states: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of STATES per scope, and the rows of `earlier` STATES whose scopes had no message since.

    `states` say per scope where its receiver stood after the last arrival, `state_…` (the sequence is `signed`).
    """
    rows = with_columns_of(
        STATES,
        states.with_columns(
            tx_sequence_id=unsigned(pl.col("state_sequence")),
            tx_sequence_number="state_number",
            assumed="state_assumed",
        ),
    )
    idle = earlier.join(rows, on="scope_key", how="anti").with_columns(
        pl.col("assumed").fill_null(value=False),  # not in tables of older releases
        messages=pl.lit(0, pl.Int64),
    )
    return pl.concat([rows, with_columns_of(STATES, idle)]).with_columns(
        tx_sequence=tx_sequence(pl.col("tx_sequence_id"))
    )
