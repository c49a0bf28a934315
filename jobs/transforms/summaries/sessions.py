"""Sums per session, with its coverage and the reading that its receiver follows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import each, with_columns_of
from jobs.transforms.outcomes.rows import Outcomes, add_up
from jobs.transforms.outcomes.tallies import ANSWERS, VERDICT_COUNTS, first_and_last_time
from jobs.transforms.replay.coverage import session_coverage
from jobs.transforms.replay.peers import passes_through, receiver_is_unknown
from schemas.replay import BOTH_SCOPES, SESSIONS, UNKNOWN_READING, Explains, Scope


def summarize_sessions(
    messages: DataFrame,
    ends: DataFrame,
    stream_gaps: DataFrame,
    quarantine: DataFrame,
    tallies: DataFrame,
    outcomes: Outcomes | None,
    *,
    scope: Scope = Scope.AUTO,
) -> DataFrame:
    """Returns one row of SESSIONS per pair of queue managers and direction that carried messages.

    Without `outcomes`, the counts of these are null.
    """
    transactional = F.coalesce("transactional", F.lit(False))
    carried = (
        messages.groupBy("stream_id", "queue_manager_address")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if(transactional).alias("transactional"),
            F.count_if("body_encrypted").alias("encrypted"),
            *first_and_last_time(),
        )
        .join(ends, "stream_id")
        .groupBy("session_id", "sender", "receiver")
        .agg(
            F.count_distinct("connection_id").alias("connections"),
            *each(F.sum, "messages", "transactional", "encrypted"),
            F.sum(F.when(passes_through(), F.col("transactional")).otherwise(0)).alias("passing_through"),
            F.sum(F.when(receiver_is_unknown(), F.col("transactional")).otherwise(0)).alias("receiver_unknown"),
            *each(F.min, "first_captured_at"),
            *each(F.max, "last_captured_at"),
        )
    )
    kind = F.substring_index("scope_key", " ", 1)
    judged = tallies.groupBy("session_id").agg(
        F.when(F.min(kind) == F.max(kind), F.min(kind)).otherwise(BOTH_SCOPES).alias("replay_scope"),
        *each(F.sum, *VERDICT_COUNTS, *ANSWERS),
    )
    unjudged = Scope.QUEUE if scope is Scope.AUTO else scope
    rows = carried.join(session_coverage(messages, ends, stream_gaps, quarantine), "session_id").join(
        judged, "session_id", "left"
    )
    counts = [*VERDICT_COUNTS, *ANSWERS]
    if outcomes is not None:
        outcome_counts = add_up(outcomes.counts, "session_id").drop("delivered_arrivals")
        rows = rows.join(outcome_counts, "session_id", "left")
        counts += outcome_counts.columns[1:]
    rows = rows.fillna(unjudged.value, subset=["replay_scope"]).fillna(0, subset=counts)
    return with_columns_of(SESSIONS, rows.withColumn("reading_explained", _reading_explained()))


def _reading_explained() -> Column:
    """The reading that predicts all OrderAcks that distinguish readings."""
    conformant, literal = (F.col(name) == F.col("answers") for name in ("answers_conformant", "answers_literal"))
    return (
        F.when(F.col("answers") == 0, UNKNOWN_READING)
        .when(conformant & literal, Explains.BOTH.value)
        .when(conformant, Explains.CONFORMANT.value)
        .when(literal, Explains.LITERAL.value)
        .otherwise(Explains.NEITHER.value)
    )
