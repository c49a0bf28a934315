"""The rows of VERDICTS: messages, each with what the passes found of its run."""

import polars as pl

from schemas.replay import VERDICTS, Evidence, Reason, Verdict
from udfs.frames.columns import PLACE, are_in, quotient, timestamp, tx_sequence, unsigned
from udfs.frames.derivation import derives
from udfs.replay.content import content_hashes
from udfs.replay.order.clocks import with_recorded
from udfs.replay.order.marks import BEFORE, STREAM
from udfs.replay.order.scopes import ASKS_FOR_FINAL_ACK, FLOW_KEY, with_flow

_MS = 1_000_000  # ns


@derives(("stream_id", "piece"), ("steps",))
def verdict_rows(
    proven: pl.DataFrame,
    messages: pl.DataFrame,
    streams: pl.DataFrame,
    disputed: pl.DataFrame,
    undecided: pl.DataFrame,
    only_in_copies: pl.DataFrame,
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Returns rows of VERDICTS: MESSAGES, each with what its row of PROVEN says.

    `proven` are rows of PROVEN, no two of which hold the same offset of a stream and scope. `streams` are rows of
    `marks.number_streams`. A `disputed` message that cannot be judged says that clocks are why.
    Of the `undecided` ones, those that are contested and by the clocks accepted cannot be judged; those that are
    refused say that this rests on clocks, and nothing contradicts them.
    Keys and times are those that were recorded: `only_in_copies` and `steps` are for `clocks.with_recorded`.
    """
    streams = streams.drop("piece").unique()
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
            of_messages.with_columns(content_hash=content_hashes(of_messages)),
            found.select("session_id", "scope_key", *BEFORE),
            runs.drop(*STREAM, "stream_id", "piece", strict=False)[found["run"]],
        ],
        how="horizontal",
    )
    by_clocks = (pl.col("reason") == Reason.CAPTURE_GAP.value) & are_in(rows, disputed.select(PLACE))
    is_undecided, is_contested = (
        pl.lit(are_in(rows, of.select(PLACE))) for of in (undecided, undecided.filter("contested"))
    )
    accepted = pl.col("accepted").fill_null(value=False)
    unsure, is_repeat = is_contested & accepted, pl.col("verdict") == Verdict.DUPLICATE.value
    is_late = is_undecided & (pl.col("verdict") == Verdict.OUT_OF_ORDER.value)
    by_clocks = by_clocks | unsure | is_late | (is_contested & (is_repeat | pl.col("accepted").is_null()))
    is_contradicted = is_undecided & (pl.col("evidence") == Evidence.CONTRADICTED.value)
    verdicts = rows.with_columns(
        accepted=pl.when(~unsure).then("accepted"),
        verdict=pl.when(unsure).then(pl.lit(Verdict.UNKNOWN.value)).otherwise("verdict"),
        gap_size=pl.when(unsure).then(0).otherwise("gap_size"),
        reason=pl.when(by_clocks).then(pl.lit(Reason.CLOCKS_DIFFER.value)).otherwise("reason"),
        evidence=pl.when(is_contradicted).then(pl.lit(Evidence.NONE.value)).otherwise("evidence"),
        **_values(),
    ).select(VERDICTS.names)
    return with_recorded(verdicts, only_in_copies.drop("piece", strict=False), steps)


def _values() -> dict[str, pl.Expr]:
    """Returns the columns of VERDICTS that follow from a message and its run."""
    captured, acknowledged = pl.col("captured_ns"), pl.col("acknowledged_ns")
    nth = pl.col("tx_sequence_number") - pl.col("first_number")
    return {
        "message_key": pl.col("content_hash").cast(pl.String),
        "replay_order": pl.col("replay_order") + nth + pl.col("arrivals_before"),
        "missing_runs": pl.col("missing_runs") + pl.col("missing_before"),
        "incoming_tx_sequence_id": unsigned(pl.col("state_sequence")),
        "incoming_tx_sequence_number": pl.col("state_number") + nth,
        "acknowledged_at": timestamp(acknowledged),
        "ack_latency_ms": quotient(acknowledged - captured, _MS),
        "final_ack_requested": pl.any_horizontal(ASKS_FOR_FINAL_ACK).fill_null(value=False),
        "covered_at": timestamp(pl.col("covered_ns")),
        "denied_at": timestamp(pl.col("denied_ns")),
        "assumed": pl.col("in_doubt") & ~(pl.col("doubt_ended_ns") < captured).fill_null(False),
    }
