"""Puts outcomes and findings together as incidents: one row for one story.

An incident is what happened to one sequence of a scope. Two sequences are one incident when the earlier one was not
over: its troubles reach into the time of the later one, or its sender gave up its last messages and the later one is in
trouble from its first message on. Sequences whose numbers were used again are one incident as well, if no other trouble
lies between them: a cloned sender spoils one sequence after the other.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, columns_of, each, has_outcome, null, tx_sequence
from jobs.transforms.findings.model import choose, counted, sentence
from schemas.incidents import INCIDENTS, Cause, IncidentOutcome
from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome
from schemas.replay import FINDINGS, FindingKind, Severity

_SEQUENCE = ("scope_key", "tx_sequence_id")
_REPAIRED = (Outcome.DELIVERED_AFTER_REFUSAL,)
_PENDING = (Outcome.PENDING, Outcome.AWAITED)
_RANKED = (
    *(*LOST, *_PENDING, *LOSS_UNKNOWN, *_REPAIRED),
    *(Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.EXPIRED_UNSEEN),
)
"""The outcomes that are part of a story, the worst first."""
_RANK_OF = {cause: place for place, cause in enumerate(Cause)}
_CAUSES_BY_OUTCOME: Mapping[Cause, tuple[Outcome, ...]] = {
    Cause.REFUSED_FOR_CAUSE: (Outcome.REFUSED_FOR_CAUSE,),
    Cause.NUMBER_REUSED: (Outcome.DISPLACED,),
    Cause.MESSAGE_MISSING: (Outcome.GIVEN_UP, Outcome.PASSED_BY, Outcome.NEVER_SEEN, *_PENDING, *_REPAIRED),
    Cause.CONTRADICTED: (Outcome.CONTRADICTED,),
    Cause.CAPTURE_INCOMPLETE: (Outcome.UNKNOWN,),
    Cause.DELIVERED_TWICE: (Outcome.DELIVERED_TWICE,),
    Cause.NOT_READ: (Outcome.NOT_READ,),
    Cause.EXPIRED: (Outcome.EXPIRED_UNSEEN,),
}
_CAUSES_BY_KIND: Mapping[Cause, tuple[FindingKind, ...]] = {
    Cause.REFUSED_FOR_CAUSE: (FindingKind.REFUSED_FOR_CAUSE,),
    Cause.NUMBER_REUSED: (FindingKind.DUPLICATES_DIFFER,),
    Cause.SEQUENCE_REGRESSED: (FindingKind.SEQUENCE_REGRESSED, FindingKind.ORDINAL_REGRESSED),
    Cause.MESSAGE_MISSING: (FindingKind.OUT_OF_ORDER, FindingKind.STUCK_SEQUENCE),
    Cause.CONTRADICTED: (FindingKind.CONTRADICTED, FindingKind.STATE_FELL),
    Cause.CAPTURE_INCOMPLETE: (FindingKind.CAPTURE_GAP, FindingKind.MISSED_BY_CAPTURE, FindingKind.CLOCKS_DIFFER),
    Cause.EXPIRED: (FindingKind.GAP_EXPIRED, FindingKind.EXPIRED_ON_ARRIVAL),
    Cause.TRANSACTION: (
        FindingKind.TORN_TRANSACTION,
        FindingKind.INTERLEAVED_TRANSACTION,
        FindingKind.TRANSACTION_PARTLY_DELIVERED,
    ),
    Cause.ACKNOWLEDGMENT: (FindingKind.UNACKNOWLEDGED, FindingKind.SLOW_ACKNOWLEDGMENT, FindingKind.REPEATED_ORDER_ACK),
    Cause.RESENT: (FindingKind.DUPLICATES, FindingKind.RESEND_SCHEDULE),
}
_EXPLAINING = (FindingKind.TWO_ADDRESSES, FindingKind.ORDINAL_REGRESSED)
"""Kinds that are part of a story, but make none of a sequence to which nothing else happened."""
_SENTENCES: Mapping[Cause, str] = {
    Cause.REFUSED_FOR_CAUSE: "The receiver refused messages of {} for a cause that its FinalAck names",
    Cause.NUMBER_REUSED: "Numbers of {} were used again for different messages, so that the receiver accepted only one "
    "message of each number",
    Cause.SEQUENCE_REGRESSED: "The sender of {} went back to numbers or to a sequence that the receiver had passed, as "
    "after a restore from a backup",
    Cause.MESSAGE_MISSING: "A message of {} did not arrive in its turn, so the receiver refused those after it",
    Cause.CONTRADICTED: "The receiver's acknowledgments of {} contradict the replay",
    Cause.CAPTURE_INCOMPLETE: "The captures do not hold all of {}, or not in a sure order",
    Cause.DELIVERED_TWICE: "Messages of {} were accepted more than once",
    Cause.NOT_READ: "Messages of {} left their queue unread",
    Cause.EXPIRED: "The sender of {} skipped numbers, as it does when messages expire before they are sent",
    Cause.TRANSACTION: "Transactions of {} are torn or mixed with others",
    Cause.ACKNOWLEDGMENT: "Acknowledgments of {} were late, missing or repeated",
    Cause.RESENT: "Messages of {} were sent again although the receiver had them",
    Cause.OTHER: "Something unusual happened to {}",
}
_COUNTS: Mapping[str, tuple[Outcome, ...]] = {
    "lost": LOST,
    "pending": _PENDING,
    "unknown": LOSS_UNKNOWN,
    "repaired": _REPAIRED,
    "expired": (Outcome.EXPIRED_UNSEEN,),
}


def sequence_incidents(findings: DataFrame, outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns one row per sequence of which there is something to tell: its `incident_id`, and what INCIDENTS needs.

    `findings` are those of FINDINGS, of which `incident_id` is not read; `outcomes` are rows of OUTCOMES.
    """
    eventful = (
        _events(findings, outcomes)
        .groupBy(*_SEQUENCE)
        .agg(
            *each(F.min, "began_at", "cause_rank"),
            *each(F.max, "ended_at", "undelivered", "is_story"),
            *each(F.sum, *_COUNTS, "stuck", "findings"),
            F.max(F.col("cause_rank") == _RANK_OF[Cause.NUMBER_REUSED]).alias("reused"),
            F.min(F.struct("rank", F.coalesce("began_at", "ended_at").alias("at"), "witness")).alias("worst"),
            F.min_by(F.struct("session_id", "destination_queue"), F.struct("began_at", "rank")).alias("place"),
        )
        .where("is_story")
    )
    span = ("source_queue_manager", "first_captured_at", "last_captured_at", "last_accepted_number")
    in_scope = Window.partitionBy("scope_key").orderBy("tx_sequence_id")
    before = F.lag(
        F.struct(
            F.col("findings").isNotNull().alias("eventful"),
            F.col("ended_at"),
            (F.col("undelivered") > F.coalesce("last_accepted_number", F.lit(0))).alias("given_up"),
        )
    ).over(in_scope)
    reaches_in = F.col("before.ended_at") >= F.col("first_captured_at")
    from_the_first = F.coalesce(F.col("began_at") <= F.col("first_captured_at"), F.lit(True))
    goes_on = F.col("before.eventful") & (reaches_in | (F.col("before.given_up") & from_the_first))
    reused_before = F.last("reused", ignorenulls=True).over(in_scope.rowsBetween(Window.unboundedPreceding, -1))
    story = F.sum(F.when(F.col("goes_on"), 0).otherwise(1)).over(in_scope.rowsBetween(*SO_FAR))
    first = F.min("tx_sequence_id").over(Window.partitionBy("scope_key", "story"))
    return (
        sequences.select(*_SEQUENCE, *span)
        .join(eventful, list(_SEQUENCE), "left")
        .withColumn(
            "began_at", F.coalesce("began_at", F.when(F.col("findings").isNotNull(), F.col("first_captured_at")))
        )
        .withColumn(
            "ended_at", F.coalesce("ended_at", F.when(F.col("findings").isNotNull(), F.col("last_captured_at")))
        )
        .withColumn("before", before)
        .withColumn("reused_again", F.col("reused") & reused_before)
        .where(F.col("findings").isNotNull())
        .withColumn("goes_on", F.coalesce(goes_on | F.col("reused_again"), F.lit(False)))
        .withColumn("story", story)
        .withColumn("incident_id", F.substring(F.sha2(F.concat_ws(" ", "scope_key", first.cast("string")), 256), 1, 16))
        .drop("before", "reused", "reused_again", "goes_on", "story")
    )


def _events(findings: DataFrame, outcomes: DataFrame) -> DataFrame:
    """Returns findings and outcomes that are part of a story, in the same columns."""
    ranks = F.array(*(F.lit(one.value) for one in _RANKED))
    severities = F.array(*(F.lit(one.value) for one in reversed(Severity)))
    nothing = F.lit(0).cast("long")
    last_number = F.col("tx_sequence_number") + F.col("numbers") - 1
    by_outcome = outcomes.where(has_outcome(_RANKED)).select(
        *(*_SEQUENCE, "session_id", "destination_queue"),
        F.col("first_seen_at").alias("began_at"),
        F.coalesce("accepted_at", "last_seen_at").alias("ended_at"),
        *(F.when(has_outcome(shown), F.col("numbers")).otherwise(0).alias(name) for name, shown in _COUNTS.items()),
        F.col("stuck").cast("long").alias("stuck"),
        nothing.alias("findings"),
        F.when(has_outcome((*LOST, *_PENDING)), last_number).alias("undelivered"),
        _cause_rank("outcome", _CAUSES_BY_OUTCOME).alias("cause_rank"),
        F.array_position(ranks, F.col("outcome")).alias("rank"),
        "witness",
        F.lit(True).alias("is_story"),
    )
    of_sequence = F.col("scope_key").isNotNull() & F.col("tx_sequence_id").isNotNull()
    by_finding = findings.where(of_sequence).select(
        *(*_SEQUENCE, "session_id", "destination_queue"),
        F.col("found_at").alias("began_at"),
        F.col("found_at").alias("ended_at"),
        *(nothing.alias(name) for name in (*_COUNTS, "stuck")),
        F.lit(1).cast("long").alias("findings"),
        null("long").alias("undelivered"),
        _cause_rank("kind", _CAUSES_BY_KIND).alias("cause_rank"),
        (F.array_position(severities, F.col("severity")) + len(_RANKED)).alias("rank"),
        "witness",
        (~F.col("kind").isin(*(kind.value for kind in _EXPLAINING))).alias("is_story"),
    )
    return by_outcome.unionByName(by_finding)


def _cause_rank(column: str, causes: Mapping[Cause, tuple[str, ...]]) -> Column:
    """Returns the place in `Cause` of the cause that an outcome or a kind of finding shows."""
    chosen = choose((F.col(column).isin(*map(str, shown)), F.lit(_RANK_OF[cause])) for cause, shown in causes.items())
    return F.coalesce(chosen, F.lit(_RANK_OF[Cause.OTHER]))


def derive_incidents(stories: DataFrame) -> DataFrame:
    """Returns one row of INCIDENTS per `incident_id` of `sequence_incidents`."""
    causes = F.array(*(F.lit(cause.value) for cause in Cause))
    summed = stories.groupBy("incident_id").agg(
        *(F.min_by(name, "tx_sequence_id").alias(name) for name in ("scope_key", "source_queue_manager")),
        F.min_by("place", F.struct("began_at", "tx_sequence_id")).alias("place"),
        F.count(F.lit(1)).alias("sequences"),
        *each(F.min, "tx_sequence_id", "began_at", "worst"),
        *each(F.max, "ended_at", "last_captured_at"),
        *each(F.sum, *_COUNTS, "stuck", "findings"),
        F.element_at(causes, (F.min("cause_rank") + 1).cast("int")).alias("cause"),
    )
    outcome = (
        F.when(F.col("lost") > 0, IncidentOutcome.LOST.value)
        .when(F.col("pending") > 0, IncidentOutcome.PENDING.value)
        .when(F.col("unknown") > 0, IncidentOutcome.UNKNOWN.value)
        .otherwise(IncidentOutcome.REPAIRED.value)
    )
    severity = (
        F.when(F.col("outcome") == IncidentOutcome.LOST.value, Severity.ERROR.value)
        .when(F.col("outcome") == IncidentOutcome.REPAIRED.value, Severity.INFO.value)
        .otherwise(Severity.WARNING.value)
    )
    return (
        summed.withColumn("outcome", outcome)
        .withColumn("severity", severity)
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .select("*", "place.*", _explanation().alias("explanation"), F.array_compact("worst.witness").alias("witness"))
        .select(columns_of(INCIDENTS))
    )


def _explanation() -> Column:
    """Returns cause and outcome in one sentence."""
    more = F.col("sequences") - 1
    name = F.concat(
        sentence("sequence {}", "tx_sequence"),
        F.when(more > 0, F.concat(F.lit(" and "), counted(more, "sequence after it", "sequences after it"))).otherwise(
            ""
        ),
    )
    cause = choose((F.col("cause") == one.value, sentence(words, name)) for one, words in _SENTENCES.items())
    stuck = F.when(F.col("stuck") > 0, sentence(" ({} resent and refused again)", "stuck")).otherwise("")
    figures = (
        ("lost", counted("lost", "message was lost", "messages were lost")),
        ("pending", F.concat(counted("pending", "message is pending", "messages are pending"), stuck)),
        ("unknown", counted("unknown", "message has an unknown outcome", "messages have an unknown outcome")),
        (
            "repaired",
            counted("repaired", "message was delivered after a refusal", "messages were delivered after a refusal"),
        ),
        ("expired", counted("expired", "number expired unseen", "numbers expired unseen")),
    )
    said = F.concat_ws(", ", *(F.when(F.col(name) > 0, words) for name, words in figures))
    nothing = F.lit("no message was lost")
    return F.concat(cause, F.lit(": "), F.when(said == "", nothing).otherwise(said), F.lit("."))


def with_incident(findings: DataFrame, stories: DataFrame) -> DataFrame:
    """Returns rows of FINDINGS with the `incident_id` of their sequence; null where a finding belongs to none."""
    ids = stories.select(*_SEQUENCE, "incident_id")
    return (
        findings.drop("incident_id")
        .join(ids, list(_SEQUENCE), "left")
        .withColumn("witness", F.array_compact("witness"))
        .select(columns_of(FINDINGS))
    )
