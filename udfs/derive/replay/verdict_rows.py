"""The rows of VERDICTS: messages, each with what the passes found of its run."""

import polars as pl

from schemas.replay import VERDICTS, Reason
from udfs.derive.columns import PLACE, quotient, timestamp, tx_sequence, unsigned
from udfs.derive.replay.marks import BEFORE, STREAM
from udfs.derive.replay.scopes import CONTENT, FLOW_KEY, with_flow
from udfs.derive.spark_hash import xxhash64

_MS = 1_000_000  # ns


def verdict_rows(proven: pl.DataFrame, messages: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of VERDICTS: MESSAGES, each with what its row of PROVEN says.

    `proven` are rows of ENDED, no two of which hold the same offset of a stream and scope. `streams` are rows of
    `marks.number_streams`. Right for all rows of any piece of a stream, and the streams.
    """
    rows = messages.select(*FLOW_KEY, "stream_offset").with_row_index("row")
    places = with_flow(rows, streams.filter("has_messages"), *STREAM, "session_id", "scope_key", *BEFORE)
    runs = proven.with_columns(tx_sequence(unsigned(pl.col("sequence"))).alias("tx_sequence")).drop("sequence")
    ranges = runs.select(*STREAM, "first_offset", "last_offset", pl.int_range(pl.len()).alias("run"))
    found = (
        places.select("row", *STREAM, "session_id", "scope_key", *BEFORE, "stream_offset")
        .sort("stream_offset")
        .join_asof(
            ranges.sort("first_offset"),
            left_on="stream_offset",
            right_on="first_offset",
            by=STREAM,
            check_sortedness=False,
        )
        .filter(pl.col("stream_offset") <= pl.col("last_offset"))
        .sort("row")
    )
    of_messages = messages[found["row"]]
    rows = pl.concat(
        [
            of_messages.with_columns(xxhash64(of_messages.select(CONTENT)).alias("content_hash")),
            found.select("session_id", "scope_key", *BEFORE),
            runs.drop(*STREAM, "stream_id", "piece", strict=False)[found["run"]],
        ],
        how="horizontal",
    )
    return rows.with_columns(**_values()).select(VERDICTS.names)


def _values() -> dict[str, pl.Expr]:
    """Returns the columns of VERDICTS that follow from a message and its run."""
    captured, acknowledged, final = (pl.col(f"{name}_ns") for name in ("captured", "acknowledged", "final"))
    nth = pl.col("tx_sequence_number") - pl.col("first_number")
    never_moved = pl.col("reject_count") == pl.col("replay_order")
    return {
        "replay_order": pl.col("replay_order") + nth + pl.col("arrivals_before"),
        "missing_runs": pl.col("missing_runs") + pl.col("missing_before"),
        "reject_count": pl.col("reject_count") + pl.when(never_moved).then("refused_before").otherwise(0),
        "incoming_tx_sequence_id": unsigned(pl.col("state_sequence")),
        "incoming_tx_sequence_number": pl.col("state_number") + nth,
        "acknowledged_at": timestamp(acknowledged),
        "ack_latency_ms": quotient(acknowledged - captured, _MS),
        "covered_at": timestamp(pl.col("covered_ns")),
        "final_ack_latency_ms": quotient(final - captured, _MS),
        "assumed": pl.col("in_doubt") & ~(pl.col("doubt_ended_ns") < captured).fill_null(False),
    }


def with_disputes(verdicts: pl.DataFrame, disputed: pl.DataFrame) -> pl.DataFrame:
    """Returns VERDICTS in which the `disputed` messages that cannot be judged say that clocks are why.

    Right for all rows of any `stream_id`.
    """
    is_gap = pl.col("reason") == Reason.CAPTURE_GAP.value
    named = disputed.select(*PLACE, pl.lit(True).alias("in_doubt")).unique()
    found = verdicts.select(PLACE).join(named, on=PLACE, how="left", maintain_order="left")
    reason = pl.when(is_gap & found["in_doubt"]).then(pl.lit(Reason.CLOCKS_DIFFER.value)).otherwise("reason")
    return verdicts.with_columns(reason.alias("reason"))
