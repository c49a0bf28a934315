"""Sums all verdicts and outcomes for a report, by whole scopes."""

from datetime import datetime

import polars as pl

from udfs.frames.columns import are_in, count
from udfs.frames.derivation import Frames, derives
from udfs.report.messages import with_fate, worst_messages
from udfs.report.period import Steps
from udfs.report.rows import in_period
from udfs.report.sessions import session_figures

_ARRIVAL = ("step", "verdict", "reason", "fate")
JUDGED = (
    *("session_id", "scope_key", "replay_order", "captured_at", "captured_ns", "capture_id", "last_frame"),
    *("source_queue_manager", "destination_queue", "message_id", "content_hash", "tx_sequence_id"),
    *("tx_sequence_number", "previous_tx_sequence_number", "accepted", "verdict", "reason", "ack_latency_ms"),
)
"""Columns of VERDICTS that a report takes from all rows."""


@derives(("scope_key",), ("sequences",))
def of_scope(
    verdicts: pl.DataFrame, outcomes: pl.DataFrame, sequences: pl.DataFrame, *, since: datetime | None, steps: Steps
) -> Frames:
    """Returns the `verdicts` from `since` on with their `fate`, and sums over whole scopes, which `merged` adds.

    Of the outcomes, those of these `sequences` count.

    * `arrivals` per `step`, `verdict`, `reason` and `fate`.
    * `figures` are `session_figures`.
    * `messages` are `worst_messages`.
    """
    chosen = outcomes.filter(are_in(outcomes, sequences))
    judged = with_fate(verdicts.filter(in_period(since)), chosen)
    step = ((pl.col("captured_ns") - steps.first_ns) // steps.step_ns).alias("step")
    return {
        "verdicts": judged,
        "arrivals": judged.group_by(step, *_ARRIVAL[1:]).agg(count().alias("arrivals")),
        "figures": session_figures(judged, chosen),
        "messages": worst_messages(chosen),
    }


def merged(sums: Frames) -> Frames:
    """Returns the sums of all scopes, of rows that `of_scope` returned for some of them each."""
    return {
        "arrivals": sums["arrivals"].group_by(_ARRIVAL).agg(pl.col("arrivals").sum()),
        "figures": sums["figures"].group_by("session_id").sum(),
        "messages": worst_messages(sums["messages"]),
    }
