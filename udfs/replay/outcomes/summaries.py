"""Adds verdicts up by sequence, session and scope; of a session, also coverage."""

import polars as pl

from schemas.outcomes import OUTCOME_COUNTS
from schemas.replay import ACCEPTING, BOTH_SCOPES, SEQUENCES, SESSIONS, Scope, Verdict
from udfs.frames.columns import SEQUENCE, UTC, count, count_distinct, count_if, null, tx_sequence
from udfs.frames.derivation import derives
from udfs.frames.tables import with_columns_of
from udfs.replay.order.coverage import session_coverage
from udfs.replay.order.ends import passes_through, receiver_is_unknown
from udfs.replay.outcomes.counts import NOT_READ, SINCE, sum_if_any, sum_outcomes

_JUDGED = tuple(verdict.value for verdict in Verdict)
_OUTCOMES = tuple(column.name for column in OUTCOME_COUNTS if column.name != NOT_READ)
OF_FLOWS = ("session_id", "source_queue_manager", "destination_queue")


def summarize_sequences(
    tallies: pl.DataFrame, counts: pl.DataFrame | None, slot_counts: pl.DataFrame | None
) -> pl.DataFrame:
    """Returns one row of SEQUENCES per scope and TxSequenceID; without the counts, what they tell is null.

    `tallies` have a row per sequence and stream, `counts` the count of each outcome per sequence and session, and
    `slot_counts` a row for the last sequence of each scope.
    """
    rows = (
        tallies.group_by(*SEQUENCE, "source_queue_manager")
        .agg(
            pl.col("messages", *(verdict.value for verdict in Verdict), "expired").sum(),
            pl.col("first_number", "first_captured_at").min(),
            pl.col("last_number", "last_accepted_number", "last_captured_at").max(),
        )
        .with_columns(_accepted(), tx_sequence=tx_sequence(pl.col("tx_sequence_id")))
    )
    if counts is not None:
        rows = rows.join(sum_outcomes(counts, *SEQUENCE), on=SEQUENCE)
    if slot_counts is not None:
        rows = rows.join(slot_counts, on=SEQUENCE, how="left")
    return with_columns_of(SEQUENCES, rows)


@derives(
    columns={"messages": ("stream_id", "queue_manager_address", "transactional", "body_encrypted", "captured_at")},
    in_parts=True,
)
def carried_by_stream(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns some messages of each `stream_id` and `queue_manager_address`: counts, and times of first and last.

    The counts are `messages`, and those that are `transactional` or `encrypted` among them.
    """
    return messages.group_by("stream_id", "queue_manager_address").agg(
        count().alias("messages"),
        count_if("transactional"),
        count_if("body_encrypted").alias("encrypted"),
        pl.col("captured_at").min().alias("first_captured_at"),
        pl.col("captured_at").max().alias("last_captured_at"),
    )


def summarize_sessions(
    carried: pl.DataFrame,
    ends: pl.DataFrame,
    unread: pl.DataFrame,
    tallies: pl.DataFrame,
    flows: pl.DataFrame,
    outcome_counts: pl.DataFrame | None,
    *,
    scope: Scope,
) -> pl.DataFrame:
    """Returns one row of SESSIONS per pair of queue managers and direction that carried messages.

    `carried` are rows of `carried_by_stream`, `ends` those of ENDS without copies, `unread` those of
    `coverage.unread_ranges`, `flows` the distinct OF_FLOWS of judged messages. Without `outcome_counts`, the counts of
    these are null.
    """
    rows = (
        _carried_by_session(carried, ends)
        .join(session_coverage(ends, unread), on="session_id")
        .join(_judged_by_session(tallies), on="session_id", how="left")
        .join(_flows_by_session(flows), on="session_id", how="left")
    )
    if outcome_counts is None:
        rows = rows.with_columns(null(pl.Int64).alias(name) for name in (*_OUTCOMES, NOT_READ))
        rows = rows.with_columns(null(UTC).alias(SINCE))
    else:
        of_session = outcome_counts.group_by("session_id")
        sums = of_session.agg(pl.col(_OUTCOMES).sum(), sum_if_any(NOT_READ), pl.min(SINCE))
        rows = rows.join(sums, on="session_id", how="left").with_columns(pl.col(_OUTCOMES).fill_null(0))
    unjudged = Scope.QUEUE if scope is Scope.AUTO else scope
    rows = rows.with_columns(
        pl.col("replay_scope").fill_null(unjudged.value),
        pl.col(_JUDGED).fill_null(0),
        pl.col("source_queue_managers", "destination_queues").fill_null([]),
    )
    return rows.with_columns(_accepted()).select(SESSIONS.names)


def _accepted() -> pl.Expr:
    """Returns how many arrivals the rule accepts."""
    return pl.sum_horizontal(verdict.value for verdict in ACCEPTING).alias("accepted_arrivals")


def _carried_by_session(carried: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Returns what each session carried, and how much of it is not judged."""
    transactional = pl.col("transactional")
    return (
        carried.join(ends, on="stream_id")
        .group_by("session_id", "sender", "receiver")
        .agg(
            count_distinct("connection_id").alias("connections"),
            pl.col("messages", "encrypted").sum(),
            transactional.sum().alias("transactional_messages"),
            transactional.filter(passes_through()).sum().alias("passing_through"),
            transactional.filter(receiver_is_unknown()).sum().alias("receiver_unknown"),
            pl.col("first_captured_at").min(),
            pl.col("last_captured_at").max(),
        )
    )


def _flows_by_session(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns the original senders of each session and the queues that they named."""
    names = {f"{name}s": pl.col(name).drop_nulls().unique().sort() for name in OF_FLOWS[1:]}
    return flows.group_by("session_id").agg(**names)


def _judged_by_session(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns the sums of each session's tallies, and the `replay_scope` of its states."""
    kind = pl.col("scope_key").str.splitn(" ", 2).struct[0]
    replay_scope = pl.when(kind.min() == kind.max()).then(kind.min()).otherwise(pl.lit(BOTH_SCOPES))
    return tallies.group_by("session_id").agg(replay_scope.alias("replay_scope"), pl.col(_JUDGED).sum())
