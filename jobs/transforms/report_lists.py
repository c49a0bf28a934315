"""Chooses the messages and incidents that the report lists. Every DataFrame to be collected is bounded by a limit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import nanoseconds, optional, tx_sequence, with_nanoseconds
from schemas.incidents import IncidentOutcome
from schemas.messages import AckType
from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome, count_column
from schemas.replay import FINDINGS, Severity, Verdict

SEQUENCE = ["scope_key", "tx_sequence_id"]
SEVERITIES = tuple(reversed([severity.value for severity in Severity]))
"""The gravest first."""
LISTS: Mapping[str, tuple[Outcome, ...]] = {
    "lost": LOST,
    "pending": (Outcome.AWAITED, Outcome.PENDING),
    "unknown": LOSS_UNKNOWN,
    "not_read": (Outcome.NOT_READ,),
    "expired_unseen": (Outcome.EXPIRED_UNSEEN,),
    "delivered_after_refusal": (Outcome.DELIVERED_AFTER_REFUSAL,),
}
"""The lists of messages in the report, and the outcomes that each shows, in this order."""
_SENDERS = (
    "array<struct<address:string,first_seen_at:timestamp,last_seen_at:timestamp,messages:bigint,accepted:bigint,"
    "lost:bigint,suspected:boolean>>"
)


def of_period(rows: DataFrame, since: datetime | None, column: str = "captured_at") -> DataFrame:
    """Returns the rows from `since` on, and the rows without a time, which may be as late."""
    return rows if since is None else rows.where(F.coalesce(F.col(column) >= F.lit(since), F.lit(True)))


def is_muted(known: Sequence[tuple[str, str]]) -> Column:
    """Returns whether a finding is one of these kinds and queues; an empty queue matches all."""
    conditions = (
        (F.col("kind") == kind)
        & (F.lit(not queue) | F.coalesce(F.lower("destination_queue") == queue.lower(), F.lit(False)))
        for kind, queue in known
    )
    return reduce(Column.__or__, conditions, F.lit(False))


def first_of(rows: DataFrame, within: WindowSpec, limit: int) -> DataFrame:
    """Returns the first `limit` rows of each partition of an ordered window, with their `place` in it: 1, 2, …."""
    return rows.withColumn("place", F.row_number().over(within)).where(F.col("place") <= limit)


def of_sessions(rows: DataFrame, sessions: Sequence[str]) -> DataFrame:
    """Returns the rows of these sessions; all rows when none is named."""
    return rows.where(F.col("session_id").isin(*sessions)) if sessions else rows


def chosen_sequences(
    sequences: DataFrame, verdicts: DataFrame, sessions: Sequence[str], since: datetime | None
) -> DataFrame:
    """Returns the sequences with a message from `since` on, of all scopes in which these sessions have a message.

    A sequence is chosen whole or not at all, so that the choice changes no outcome.
    """
    if sessions:
        scopes = of_sessions(verdicts, sessions).select("scope_key").distinct()
        sequences = sequences.join(scopes, "scope_key", "left_semi")
    return of_period(sequences, since, "last_captured_at")


def outcomes_of(outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns the outcomes of these sequences."""
    return outcomes.join(sequences.select(*SEQUENCE), SEQUENCE, "left_semi")


def outcome_counts(sequences: DataFrame) -> DataFrame:
    """Returns one row with the number of messages of each outcome, and `told`: not under the literal reading."""
    return sequences.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in map(count_column, Outcome)),
        (F.count_if(F.col(Outcome.DELIVERED.value).isNull()) == 0).alias("told"),
    )


def places(outcomes: DataFrame) -> DataFrame:
    """Returns one row: since when messages are lost (`lost_since_ns`) and to which queue the most (`lost_queue`).

    `lost` is their number, `lost_queues` the number of queues. The same of the messages that are `stuck`.
    """
    numbers = {"lost": F.when(F.col("lost"), F.col("numbers")), "stuck": F.when(F.col("stuck"), F.lit(1))}
    of_queue = outcomes.groupBy("destination_queue").agg(
        *(F.coalesce(F.sum(number), F.lit(0)).alias(name) for name, number in numbers.items()),
        *(F.min(F.when(F.col(name), F.col("first_seen_at"))).alias(f"{name}_since") for name in numbers),
    )
    return of_queue.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in numbers),
        *(nanoseconds(F.min(f"{name}_since")).alias(f"{name}_since_ns") for name in numbers),
        *(
            F.max_by("destination_queue", F.struct(name, "destination_queue")).alias(f"{name}_queue")
            for name in numbers
        ),
        *(F.count_if(F.col(name) > 0).alias(f"{name}_queues") for name in numbers),
    )


def final_acks(acks: DataFrame) -> DataFrame:
    """Returns one row, whether `any` FinalAck was captured: without one, no capture tells what was read."""
    return acks.agg((F.count_if(F.col("ack_type") == AckType.FINAL_ACK.value) > 0).alias("any"))


def unjudged_messages(sessions: DataFrame) -> DataFrame:
    """Returns one row: transactional messages that were `passing_through`, and the others that have no verdict."""
    judged = sum((F.col(verdict.value) for verdict in Verdict), F.lit(0))
    return sessions.agg(
        F.coalesce(F.sum("passing_through"), F.lit(0)).alias("passing_through"),
        F.coalesce(F.sum(F.col("transactional") - F.col("passing_through") - judged), F.lit(0)).alias("unjudged"),
    )


def listed_messages(outcomes: DataFrame, limit: int) -> DataFrame:
    """Returns the `limit` worst messages of each outcome in the LISTS, stuck ones first.

    `list` names the list, `place` is 1, 2, … within the outcome; `first_ns` and `last_ns` are the times of arrivals.
    """
    named = F.create_map(*(F.lit(word) for name, shown in LISTS.items() for one in shown for word in (one.value, name)))
    order = F.array(*(F.lit(one.value) for shown in LISTS.values() for one in shown))
    listed = outcomes.withColumn("list", named[F.col("outcome")]).where("list is not null")
    of_outcome = Window.partitionBy("outcome").orderBy(
        *(F.desc("stuck"), "first_seen_at"),
        *("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "content_hash"),
    )
    chosen = with_nanoseconds(first_of(listed, of_outcome, limit), first_ns="first_seen_at", last_ns="last_seen_at")
    return (
        chosen.withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .drop("accepted_at")
        .orderBy("list", "place", F.array_position(order, F.col("outcome")))
    )


def incident_counts(incidents: DataFrame) -> DataFrame:
    """Returns the number of `incidents` by `outcome`."""
    return incidents.groupBy("outcome").agg(F.count(F.lit(1)).alias("incidents"))


def with_whole_story(incidents: DataFrame) -> DataFrame:
    """Adds columns that a table of an earlier release lacks, and gives the `senders` their times in nanoseconds.

    There, an incident has its one queue, goes on as long as a message is pending, and has neither senders nor advice.
    """

    def timed(sender: Column) -> Column:
        kept = (sender[name].alias(name) for name in ("address", "messages", "accepted", "lost", "suspected"))
        first, last = (nanoseconds(sender[f"{name}_seen_at"]).alias(f"{name}_ns") for name in ("first", "last"))
        return F.struct(*kept, first, last)

    own_queue = F.array_compact(F.array("destination_queue"))
    going_on = F.when(F.col("pending") > 0, F.expr("true"))
    senders = optional(incidents, "senders", _SENDERS)
    return incidents.withColumns(
        {
            "destination_queues": F.coalesce(optional(incidents, "destination_queues", "array<string>"), own_queue),
            "ongoing": F.coalesce(optional(incidents, "ongoing", "boolean"), going_on),
            "senders": F.transform(senders, timed),
            "advice": optional(incidents, "advice", "string"),
        }
    )


def worst_incidents(incidents: DataFrame, limit: int) -> DataFrame:
    """Returns the `limit` worst incidents: lost, stuck, otherwise pending, unknown, repaired; ongoing before over.

    `place` is 1, 2, …; `began_ns` and `ended_ns` replace the times. Other columns are those of `with_whole_story`.
    """
    incidents = with_whole_story(incidents)
    order = F.array(*(F.lit(outcome.value) for outcome in IncidentOutcome))
    worst = [
        F.array_position(order, F.col("outcome")),
        F.desc(F.col("stuck") > 0),
        F.desc(F.coalesce("ongoing", F.expr("false"))),
        *(F.desc(name) for name in ("lost", "pending", "unknown", "repaired", "findings")),
        *(F.asc(name) for name in ("began_at", "incident_id")),
    ]
    chosen = incidents.orderBy(*worst).limit(limit).withColumn("place", F.row_number().over(Window.orderBy(*worst)))
    return with_nanoseconds(chosen, began_ns="began_at", ended_ns="ended_at").drop("last_captured_at")


def findings_of_incidents(findings: DataFrame, incidents: Sequence[str], limit: int) -> DataFrame:
    """Returns the `limit` gravest findings of each of these incidents; columns as in `worst_findings`."""
    gravity = F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col("severity"))
    of_incident = Window.partitionBy("incident_id").orderBy(gravity, F.desc("messages"), "found_at", *FINDINGS.key)
    chosen = first_of(findings.where(F.col("incident_id").isin(*incidents)), of_incident, limit)
    return with_nanoseconds(chosen, found_ns="found_at")
