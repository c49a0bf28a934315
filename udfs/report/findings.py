"""Chooses the findings and incidents that a report lists, and counts them."""

from datetime import datetime

import polars as pl

from schemas.incidents import Cause
from schemas.replay import FINDINGS, FindingKind, Severity
from udfs.frames.columns import SEQUENCE, count, count_distinct, count_if
from udfs.replay.incidents.advice import CAUSE_OF
from udfs.report.rows import SEVERITIES, Row, first_of, in_period, place_in, with_nanoseconds

LISTED_INCIDENTS = 100
LISTED_FINDINGS = 25
"""Of each incident, and of each severity and kind of those without one."""
SENTENCES = 4
"""Of each incident, and of connections that failed, that a summary tells."""
_IN_OTHERS = [FindingKind.DUPLICATES.value, FindingKind.RESEND_SCHEDULE.value]
"""Kinds that say no more than their incident does."""
_CAUSE = pl.col("kind").replace_strict(
    {kind.value: CAUSE_OF[kind].value for kind in FindingKind if kind in CAUSE_OF}
    | {FindingKind.TWO_ADDRESSES.value: Cause.NUMBER_REUSED.value},
    default=None,
)
"""The cause that a finding shows; null for one that shows none."""
_HIDDEN = FindingKind.RESEND_SCHEDULE.value
"""The kind that the report leaves out: registry settings choose the intervals."""


def shown_findings(findings: pl.DataFrame, sequences: pl.DataFrame, since: datetime | None) -> pl.DataFrame:
    """Returns the findings of a report: those of sequences with a message from `since` on, however early they began."""
    heard = sequences.select(*SEQUENCE, pl.col("last_captured_at").alias("heard"))
    shown = findings.filter(pl.col("kind") != _HIDDEN).join(heard, on=SEQUENCE, how="left")
    return shown.with_columns(pl.coalesce("heard", "found_at").alias("heard")).filter(in_period(since, "heard"))


def findings_by_kind(findings: pl.DataFrame) -> pl.DataFrame:
    """Returns `findings`, those of them `alone` (in no incident), `sessions` and `messages` per severity and kind."""
    return findings.group_by("severity", "kind").agg(
        count().alias("findings"),
        count_if(pl.col("incident_id").is_null()).alias("alone"),
        count_distinct("session_id").alias("sessions"),
        pl.col("messages").sum(),
    )


def worst_findings(findings: pl.DataFrame, *within: str) -> pl.DataFrame:
    """Returns the listed findings of each group: the gravest, of these the ones that concern the most messages.

    `found_ns` replaces `found_at`.
    """
    order = (place_in(SEVERITIES, "severity"), *map(pl.col, ("messages", "found_at", *FINDINGS.key)))
    descending = [place == 1 for place in range(len(order))]
    return with_nanoseconds(first_of(findings, within, order, descending, LISTED_FINDINGS), found_ns="found_at")


def sentences_by_incident(findings: pl.DataFrame, incidents: pl.DataFrame) -> dict[str, list[str]]:
    """Returns for each incident what says why it happened, then what its other findings say, the gravest first.

    Why, that is said by the findings that show its cause, or else by the incident itself. Of transactions nothing is
    said before the end: they suffer from what happened to their messages. Findings that only repeat an incident are
    left out.
    """
    causes = incidents.select("incident_id", "cause")
    told = findings.join(causes, on="incident_id").filter(~pl.col("kind").is_in(_IN_OTHERS))
    shows_cause = (pl.col("cause") == _CAUSE).fill_null(value=False)
    by_itself = incidents.join(told.filter(shows_cause), on="incident_id", how="anti")
    is_harm = pl.col("kind").is_in([FindingKind.TORN_TRANSACTION.value, FindingKind.TRANSACTION_PARTLY_DELIVERED.value])
    order = (is_harm, ~shows_cause, place_in(SEVERITIES, "severity"), pl.col("found_at"), pl.col("kind"))
    sentences = [rows.select("incident_id", "explanation") for rows in (by_itself, told.sort(order))]
    by_incident = pl.concat(sentences).group_by("incident_id", maintain_order=True)
    return dict(by_incident.agg(pl.col("explanation").head(SENTENCES)).iter_rows())


def found_alone(findings: pl.DataFrame, kind: FindingKind, *, notes: bool = False) -> list[str]:
    """Returns what findings of a kind say that are part of no incident, the gravest first; `notes` if wanted."""
    is_told = pl.lit(notes) | (pl.col("severity") != Severity.INFO.value)
    return _alone(findings.filter(pl.col("kind") == kind.value, is_told))


def unheard(findings: pl.DataFrame, incidents: pl.DataFrame) -> list[str]:
    """Says which sequences are sent again and again although their receiver acknowledges them each time.

    Of a stuck sequence, the receiver repeats its OrderAck, too; that finding is a warning.
    """
    is_note = pl.col("severity") == Severity.INFO.value
    rows = findings.filter(pl.col("kind") == FindingKind.REPEATED_ORDER_ACK.value, is_note).sort("found_at")
    machines = incidents.select("incident_id", "senders", "receivers")
    told = rows.join(machines, on="incident_id", how="left", maintain_order="left")
    return [f"{row['explanation']} {_where_to_look(row)}" for row in told.to_dicts()]


def _where_to_look(row: Row) -> str:
    senders = " and ".join(one["address"] for one in row["senders"] or () if one["address"])
    receivers = " and ".join(row["receivers"] or ())
    way = f"from {senders} to {receivers}" if senders and receivers else f"of session {row['session_id']}"
    return f"The messages are {way}, to {row['destination_queue']}: look to which machine the receiver connects."


def errors_alone(findings: pl.DataFrame) -> list[str]:
    """Returns what findings say that are errors and part of no incident; those of `found_alone` are left out."""
    is_error = pl.col("severity") == Severity.ERROR.value
    return _alone(findings.filter(is_error, pl.col("kind") != FindingKind.CANNOT_CONNECT.value))


def _alone(findings: pl.DataFrame) -> list[str]:
    order = (place_in(SEVERITIES, "severity"), pl.col("found_at"))
    alone = findings.filter(pl.col("incident_id").is_null()).sort(order, descending=[False, True])
    return alone["explanation"].to_list()
