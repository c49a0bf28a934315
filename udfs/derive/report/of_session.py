"""Sums all verdicts and outcomes for a report and a summary: by whole scopes first, then by whole sessions."""

from datetime import datetime
from typing import NamedTuple

import polars as pl

from udfs.derive.columns import are_in, count
from udfs.derive.frames import Frames, derives
from udfs.derive.report.messages import (
    QUEUE,
    harm_by_queue,
    step_of,
    summed_harm,
    with_fate,
    worst_messages,
)
from udfs.derive.report.rows import in_period, in_sessions
from udfs.derive.report.sessions import session_figures

_ARRIVAL = ("within", "step", "verdict", "reason", "fate")
_QUEUE = ("chosen", *QUEUE)
JUDGED = (
    *("stream_id", "stream_offset", "session_id", "scope_key", "replay_order", "captured_at", "captured_ns"),
    *("capture_id", "last_frame", "source_queue_manager", "destination_queue", "message_id", "content_hash"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "accepted", "verdict", "reason"),
    "ack_latency_ms",
)
"""Columns of VERDICTS that a report takes from all rows."""


class Period(NamedTuple):
    """Says of which messages the sums are, and how many rows of a list are wanted."""

    since: datetime | None
    """None for all that the tables hold."""
    sessions: tuple[str, ...]
    """Empty for all."""
    first_ns: int
    step_ns: int
    saved_messages: int


@derives(("scope_key",), ("sequences",))
def of_scope(verdicts: pl.DataFrame, outcomes: pl.DataFrame, sequences: pl.DataFrame) -> Frames:
    """Returns `verdicts` of whole scopes with their `fate`, and `outcomes` with `chosen`: of these sequences."""
    told = outcomes.with_columns(chosen=are_in(outcomes, sequences))
    return {"verdicts": with_fate(verdicts, told.filter("chosen")), "outcomes": told}


@derives(
    ("session_id",), columns={"verdicts": ("session_id", "captured_at", "captured_ns", "verdict", "reason", "fate")}
)
def of_session(verdicts: pl.DataFrame, outcomes: pl.DataFrame, *, period: Period) -> Frames:
    """Returns sums over whole sessions, few rows each; `merged` adds those of several calls.

    `verdicts` have their `fate`, and `outcomes` say whether they are `chosen`, which does not depend on the session.

    * `arrivals` per `within` (of the period and its sessions), `step`, `verdict`, `reason` and `fate`; step and fate
      are null where they are not within.
    * `figures` are `session_figures` of the period.
    * `queues` are `harm_by_queue` of the outcomes that are `chosen`, and of the others.
    * `messages` are the `worst_messages` of those chosen.
    """
    within = in_sessions(period.sessions) & in_period(period.since)
    chosen = outcomes.filter("chosen")
    return {
        "arrivals": _arrivals(verdicts.with_columns(within.alias("within")), period),
        "figures": session_figures(verdicts.filter(within), chosen),
        "queues": harm_by_queue(outcomes, "chosen"),
        "messages": worst_messages(chosen, period.saved_messages).drop("chosen", "place"),
    }


def _arrivals(verdicts: pl.DataFrame, period: Period) -> pl.DataFrame:
    step, fate = (pl.when("within").then(of) for of in (step_of(period.first_ns, period.step_ns), pl.col("fate")))
    return verdicts.group_by("within", step.alias("step"), "verdict", "reason", fate.alias("fate")).agg(
        count().alias("arrivals")
    )


def merged(sums: Frames, period: Period) -> Frames:
    """Returns the sums of all sessions, of rows that `of_session` returned for some of them each."""
    return sums | {
        "arrivals": sums["arrivals"].group_by(_ARRIVAL).agg(pl.col("arrivals").sum()),
        "queues": summed_harm(sums["queues"], *_QUEUE),
        "messages": worst_messages(sums["messages"], period.saved_messages).drop("place"),
    }
