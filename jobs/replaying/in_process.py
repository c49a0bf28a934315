"""Replays over Arrow tables in this process."""

import polars as pl


def with_literal_state(states: pl.DataFrame) -> pl.DataFrame:
    """Adds the state before each row under the literal reading, where every message sets it, accepted or not."""
    before = {f"literal_{name}": pl.col(name).shift(1).over("scope_no") for name in ("sequence", "number", "missing")}
    return states.sort("scope_no", "replay_order").with_columns(**before)
