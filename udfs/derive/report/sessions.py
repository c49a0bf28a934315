"""Ranks sessions, and tells how much of them the captures hold."""

from collections.abc import Sequence

import polars as pl

from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.derive.columns import count, count_if, null
from udfs.derive.frames import derives
from udfs.derive.outcomes.counts import has_outcome
from udfs.derive.replay.coverage import select_unreadable
from udfs.derive.report.messages import LISTS
from udfs.derive.report.rows import SEVERITIES, total, with_nanoseconds

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
    return judged.join(became, on="session_id", how="full", coalesce=True).with_columns(
        pl.col(*VERDICT_COUNTS, *MESSAGE_COUNTS).fill_null(0)
    )


def ranked_sessions(sessions: pl.DataFrame, figures: pl.DataFrame, findings: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the `limit` worst sessions of a period, with their `session_figures` and their findings by severity."""
    found = findings.group_by("session_id").agg(
        *(count_if(pl.col("severity") == severity).alias(severity) for severity in SEVERITIES)
    )
    of_table = (*VERDICT_COUNTS, *map(count_column, Outcome))
    chosen = (
        sessions.drop(*of_table)
        .join(figures, on="session_id", how="left")
        .join(found, on="session_id", how="left")
        .with_columns(pl.col(*VERDICT_COUNTS, *MESSAGE_COUNTS, *SEVERITIES).fill_null(0))
        .sort(
            *(*_WORST, "session_id"),
            descending=[*(True for _ in _WORST), False],
            nulls_last=[*(True for _ in _WORST), False],
        )
        .head(limit)
    )
    return with_nanoseconds(chosen, first_ns="first_captured_at", last_ns="last_captured_at")


@derives(("stream_id",))
def unusable(quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns how `many` runs of bytes are in quarantine and their `bytes`, per stage, reason and stream."""
    return quarantine.group_by("stage", "reason", "stream_id").agg(
        count().alias("many"), pl.col("length").sum().alias("bytes")
    )


def coverage(
    streams: pl.DataFrame, ends: pl.DataFrame, quarantined: pl.DataFrame, sessions: Sequence[str]
) -> pl.DataFrame:
    """Returns per session its `unreadable_bytes` (in quarantine), and its addresses in `src_ip` and `dst_ip`.

    `ends` have no copies, `quarantined` are rows of `unusable`.
    """
    unreadable = (
        select_unreadable(quarantined).group_by("stream_id").agg(pl.col("bytes").sum().alias("unreadable_bytes"))
    )
    return (
        ends.filter(pl.col("session_id").is_in(list(sessions)))
        .select("stream_id", "session_id")
        .join(streams.select("stream_id", "src_ip", "dst_ip"), on="stream_id")
        .join(unreadable, on="stream_id", how="left")
        .group_by("session_id")
        .agg(
            pl.col("unreadable_bytes").sum(),
            pl.col("src_ip", "dst_ip").drop_nulls().unique().sort().str.join(", "),
        )
    )


def caveats(
    captures: pl.DataFrame,
    streams: pl.DataFrame,
    quarantined: pl.DataFrame,
    books: pl.DataFrame,
    sessions: pl.DataFrame,
) -> pl.DataFrame:
    """Returns what the captures cannot show: `what`, `reason`, how `many`, and `bytes` where they are counted.

    `quarantined` are rows of `unusable`.
    """
    no_reason, no_bytes = null(pl.String).alias("reason"), null(pl.Int64).alias("bytes")

    def named(what: str) -> pl.Expr:
        return pl.lit(what).alias("what")

    capture = pl.concat_str(pl.lit("capture"), "status", separator=" ", ignore_nulls=True).alias("what")
    aside = captures.select(pl.col("not_judged").explode().struct.unnest()).drop_nulls("what")
    many, conflicts = count_if(pl.col("missing_bytes") > 0), count_if("conflict")
    parts = (
        captures.group_by(capture, "reason").agg(count().alias("many"), total("size_bytes").alias("bytes")),
        quarantined.group_by(pl.col("stage").alias("what"), "reason").agg(pl.col("many", "bytes").sum()),
        aside.group_by(named("other traffic"), pl.col("what").alias("reason")).agg(
            pl.col("records").sum().alias("many"), no_bytes
        ),
        sessions.select(
            named("message"),
            pl.lit("encrypted_body").alias("reason"),
            pl.col("encrypted").sum().alias("many"),
            no_bytes,
        ).filter(pl.col("many") > 0),
        streams.select(named("missing"), no_reason, many.alias("many"), total("missing_bytes").alias("bytes")),
        streams.select(named("mid_stream"), no_reason, count_if("mid_stream").alias("many"), no_bytes),
        streams.select(named("conflict"), no_reason, conflicts.alias("many"), no_bytes),
        books.select(named("unbalanced"), no_reason, count_if(~pl.col("balanced")).alias("many"), no_bytes),
    )
    return pl.concat(parts)
