"""Ranks sessions, and tells how much of them the captures hold."""

import polars as pl

from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.frames.columns import count, count_if
from udfs.frames.derivation import derives
from udfs.replay.order.coverage import select_unreadable
from udfs.replay.outcomes.counts import has_outcome
from udfs.report.messages import LISTS
from udfs.report.rows import SEVERITIES, Row, total, with_nanoseconds

LISTED_SESSIONS = 200
VERDICT_COUNTS = tuple(verdict.value for verdict in Verdict)
MESSAGE_COUNTS = (*(f"messages_{name}" for name in LISTS), "messages_stuck")
_WORST = (
    *("messages_lost", "messages_stuck", "messages_unknown", *SEVERITIES[:-1]),
    *("messages_pending", "missing_bytes", "messages_delivered_after_refusal", "messages"),
)


def session_figures(verdicts: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns per session its arrivals by verdict, and MESSAGE_COUNTS: the messages of each of the LISTS, and stuck."""
    judged = verdicts.group_by("session_id").agg(
        *(count_if(pl.col("verdict") == verdict).alias(verdict) for verdict in VERDICT_COUNTS)
    )
    became = outcomes.group_by("session_id").agg(
        *(
            pl.col("numbers").filter(has_outcome(shown)).sum().alias(f"messages_{name}")
            for name, shown in LISTS.items()
        ),
        count_if("stuck").alias("messages_stuck"),
    )
    return judged.join(became, on="session_id", how="full", coalesce=True)


def ranked_sessions(
    sessions: pl.DataFrame, figures: pl.DataFrame, findings: pl.DataFrame, covered: pl.DataFrame
) -> pl.DataFrame:
    """Returns the worst sessions of a period, with their `session_figures`, findings by severity, and `coverage`."""
    found = findings.group_by("session_id").agg(
        *(count_if(pl.col("severity") == severity).alias(severity) for severity in SEVERITIES)
    )
    of_table = (*VERDICT_COUNTS, *map(count_column, Outcome))
    chosen = (
        sessions.drop(*of_table)
        .join(figures, on="session_id", how="left")
        .join(found, on="session_id", how="left")
        .join(covered, on="session_id", how="left")
        .with_columns(
            pl.col(*VERDICT_COUNTS, *MESSAGE_COUNTS, *SEVERITIES, "unreadable_bytes").fill_null(0),
            pl.col("src_ip", "dst_ip").fill_null(""),
        )
        .sort(
            *(*_WORST, "session_id"),
            descending=[*(True for _ in _WORST), False],
            nulls_last=[*(True for _ in _WORST), False],
        )
        .head(LISTED_SESSIONS)
    )
    return with_nanoseconds(chosen, first_ns="first_captured_at", last_ns="last_captured_at")


@derives(("stream_id",))
def unusable(quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns how `many` runs of bytes are in quarantine and their `bytes`, per stage, reason and stream."""
    return quarantine.group_by("stage", "reason", "stream_id").agg(
        count().alias("many"), pl.col("length").sum().alias("bytes")
    )


def coverage(streams: pl.DataFrame, ends: pl.DataFrame, quarantined: pl.DataFrame) -> pl.DataFrame:
    """Returns per session its `unreadable_bytes` (in quarantine), and its addresses in `src_ip` and `dst_ip`.

    `ends` have no copies, `quarantined` are rows of `unusable`.
    """
    unreadable = (
        select_unreadable(quarantined).group_by("stream_id").agg(pl.col("bytes").sum().alias("unreadable_bytes"))
    )
    return (
        ends.select("stream_id", "session_id")
        .join(streams.select("stream_id", "src_ip", "dst_ip"), on="stream_id")
        .join(unreadable, on="stream_id", how="left")
        .group_by("session_id")
        .agg(
            pl.col("unreadable_bytes").sum(),
            pl.col("src_ip", "dst_ip").drop_nulls().unique().sort().str.join(", "),
        )
    )


def caveats(streams: pl.DataFrame, books: pl.DataFrame) -> Row:
    """Returns counts of what the captures cannot show, and `missing_bytes`; null without a stream."""
    of_streams = streams.select(
        total("missing_bytes"),
        count_if(pl.col("missing_bytes") > 0).alias("missing"),
        count_if("mid_stream"),
        count_if("conflict"),
    )
    return of_streams.row(0, named=True) | {"unbalanced": books.filter(~pl.col("balanced")).height}


def damages(captures: pl.DataFrame, quarantined: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Returns `what` could not be read or judged, and why (`reason`), how `many`, and `bytes` where they are counted.

    `quarantined` are rows of `unusable`.
    """
    capture = pl.concat_str(pl.lit("capture "), "status").alias("what")
    aside = captures.select(pl.col("not_judged").explode().struct.unnest()).drop_nulls("what")
    parts = (
        captures.drop_nulls("reason")
        .group_by(capture, "reason")
        .agg(count().alias("many"), pl.col("size_bytes").sum().alias("bytes")),
        quarantined.group_by(pl.col("stage").alias("what"), "reason").agg(pl.col("many", "bytes").sum()),
        aside.group_by(pl.lit("other traffic").alias("what"), pl.col("what").alias("reason")).agg(
            pl.col("records").sum().alias("many")
        ),
        sessions.select(pl.col("encrypted").sum().alias("many"))
        .filter(pl.col("many") > 0)
        .with_columns(pl.lit("message").alias("what"), pl.lit("encrypted_body").alias("reason")),
    )
    return pl.concat(parts, how="diagonal").sort("what", "reason")
