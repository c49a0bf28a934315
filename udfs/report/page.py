"""Chooses the rows that the page of a report shows, from tables with few rows and from sums over large ones.

`choose` comes first, then `of_scope` over large tables, then what is `listed`; of that, what is drawn and the rows with
the keys of witnesses.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl

from schemas.ingest import PACKETS, STREAM_GAPS
from schemas.messages import ACKS, MESSAGES
from schemas.outcomes import Outcome, count_column
from schemas.replay import VERDICTS
from schemas.table import Table
from udfs.frames.columns import PLACE, count, nanoseconds
from udfs.frames.derivation import Frames
from udfs.replay.fitness.counts import with_amiss
from udfs.replay.outcomes.counts import NOT_READ, SINCE, sum_if_any
from udfs.replay.witness import with_keys
from udfs.report.findings import LISTED_INCIDENTS, findings_by_kind, shown_findings, worst_findings
from udfs.report.incidents import causes_of_silence, machines_to_blame, ways_of_harm, worst_incidents
from udfs.report.lacks import lacks_of_sessions
from udfs.report.messages import (
    LISTED_MESSAGES,
    accepted_by_sender,
    accepted_messages,
    listed_messages,
    places,
)
from udfs.report.period import Steps, begin_of_last_run, steps
from udfs.report.rows import in_period, with_nanoseconds
from udfs.report.sessions import caveats, coverage, damages, ranked_sessions
from udfs.report.summary import shown_by, sums_of_sessions

Tables = Mapping[str, pl.DataFrame]
"""Rows of gold tables, by the names of the tables."""
LISTED_CAPTURES = 100
_WITH_WITNESS = ("incidents", "earlier", "evidence", "findings", "listed_messages")
"""Rows of `listed` whose witnesses are looked up."""
WITNESSES = (VERDICTS, MESSAGES, ACKS, PACKETS, STREAM_GAPS)
"""Tables that may hold the row of a witness, in the order in which one is looked for."""
_SHOWN = (
    *("stream_id", "capture_id", "stream_offset", "captured_ns", "first_frame", "last_frame", "message_id", "label"),
    *("verdict", "reason", "tx_sequence_id", "incoming_tx_sequence_id", "tx_sequence_number", "ack_latency_ms"),
    *("previous_tx_sequence_number", "incoming_tx_sequence_number", "ack_type", "acknowledged_message_id"),
    *("packet_type", "message_class", "length"),
)
"""What the page shows of the row of a witness."""


class Chosen(NamedTuple):
    """Holds the rows that a report is of, from the tables that have few, and its period."""

    since: datetime | None
    """None for all that the tables hold."""
    first_ns: int | None
    last_ns: int | None
    steps: Steps
    captures: pl.DataFrame
    streams: pl.DataFrame
    sessions: pl.DataFrame
    sequences: pl.DataFrame
    incidents: pl.DataFrame
    findings: pl.DataFrame


def of_sessions(tables: Tables, sessions: pl.DataFrame, scopes: pl.DataFrame) -> Frames:
    """Returns the rows that tell of these sessions, and of the scopes (`scope_key`) in which they have a message.

    A sequence is chosen whole or not at all, so that the choice changes no outcome.
    """
    ends = tables["stream_ends"].join(sessions, on="session_id", how="semi")
    theirs = {name: tables[name].join(sessions, on="session_id", how="semi") for name in _OF_SESSION}
    return {
        **tables,
        **theirs,
        "sequences": tables["sequences"].join(scopes, on="scope_key", how="semi"),
        "streams": tables["streams"].join(ends, on="stream_id", how="semi"),
    }


_OF_SESSION = ("sessions", "incidents", "findings")


def choose(tables: Tables, since: datetime | None) -> Chosen:
    """Returns the rows of a report from `since` on."""
    began = tables["sessions"]["first_captured_at"]
    if since is not None and not (began < since.astimezone(UTC)).any():
        since = None
    recent = in_period(since, "last_captured_at")
    captures, sessions = tables["captures"].filter(recent), tables["sessions"].filter(recent)
    first = pl.max_horizontal(pl.col("first_captured_at").min(), pl.lit(since, began.dtype))
    first_ns, last_ns = sessions.select(nanoseconds(first), nanoseconds(pl.col("last_captured_at").max())).row(0)
    return Chosen(
        since,
        first_ns,
        last_ns,
        steps(captures, first_ns or 0, last_ns or 0),
        captures,
        tables["streams"].filter(recent),
        sessions,
        tables["sequences"].filter(recent),
        tables["incidents"].filter(recent),
        shown_findings(tables["findings"], tables["sequences"], since),
    )


def listed(tables: Tables, chosen: Chosen, sums: Frames, accepted: pl.DataFrame) -> Frames:
    """Returns the rows that need no further look at the tables: counts, and what is listed.

    In `tables`, `quarantine` has rows of `unusable`; `sums` are as of `merged`, and `accepted` as of `merge_accepted`.
    """
    incidents = worst_incidents(chosen.incidents, LISTED_INCIDENTS)
    earlier = worst_incidents(_going_on_from_before(tables["incidents"], chosen), LISTED_INCIDENTS)
    lists = (listed_messages(sums["messages"], tables["copies"]), accepted_messages(accepted, chosen.incidents))
    saved = pl.concat(lists, how="diagonal")
    covered = coverage(tables["streams"], tables["stream_ends"], tables["quarantine"])
    findings = chosen.findings
    evidence = (
        findings.join(incidents, on="incident_id", how="semi"),
        shown_findings(tables["findings"], tables["sequences"], None).join(earlier, on="incident_id", how="semi"),
    )
    return {
        "incident_counts": chosen.incidents.group_by("outcome").agg(count().alias("incidents")),
        "incidents": incidents,
        "earlier": earlier,
        "arrivals": sums["arrivals"],
        "saved_messages": saved,
        "listed_messages": saved.filter(pl.int_range(pl.len()).over("list") < LISTED_MESSAGES),
        "kinds": findings_by_kind(findings),
        "findings": worst_findings(findings.filter(pl.col("incident_id").is_null()), "severity", "kind"),
        "evidence": worst_findings(pl.concat(evidence), "incident_id"),
        "sessions": ranked_sessions(chosen.sessions, sums["figures"], findings, covered),
        "fitness": _unfit_first(chosen.captures),
        "damages": damages(chosen.captures, tables["quarantine"], chosen.sessions),
    }


def _going_on_from_before(incidents: pl.DataFrame, chosen: Chosen) -> pl.DataFrame:
    """Returns the incidents that go on although no message of their sequences was captured in the period."""
    return incidents.filter("ongoing").join(chosen.incidents, on="incident_id", how="anti")


def _unfit_first(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the captures that a report lists, with what is `amiss`: those with most of it first, then the last."""
    order = (pl.col("amiss").list.len(), "last_captured_at", "uri")
    return with_nanoseconds(
        with_amiss(captures).sort(order, descending=[True, True, False], nulls_last=True).head(LISTED_CAPTURES),
        first_ns="first_captured_at",
        last_ns="last_captured_at",
    )


def figures(tables: Tables, chosen: Chosen, queues: pl.DataFrame, accepted: pl.DataFrame) -> dict[str, Any]:
    """Returns single values beside what is `listed`: counts, times, and where an operator has to go.

    `queues` are rows of `harm_by_queue`, `accepted` those of `flow.accepted_since`. `shown` is what the captures show,
    and `lacks` what they lack of each session, in words.
    """
    ends, of_sessions = tables["stream_ends"], sums_of_sessions(chosen.sessions)
    counts = chosen.sequences.select(pl.col(*map(count_column, Outcome)).sum())
    return {
        "since": chosen.since,
        "first_ns": chosen.first_ns,
        "last_ns": chosen.last_ns,
        "steps": chosen.steps,
        "last_run": begin_of_last_run(tables["captures"]),
        "captures": chosen.captures.height,
        "of_sessions": of_sessions,
        "session_count": chosen.sessions.height,
        "outcomes": counts.row(0, named=True),
        "confirmed": chosen.sequences["confirmed"].sum(),
        **chosen.sequences.select(sum_if_any(NOT_READ), nanoseconds(pl.col(SINCE).min())).row(0, named=True),
        "shown": shown_by(chosen.captures, ends, of_sessions, chosen.since),
        "lacks": lacks_of_sessions(ends, chosen.captures),
        "told": not chosen.sequences[Outcome.DELIVERED.value].has_nulls(),
        "places": places(queues),
        "accepted": accepted_by_sender(chosen.incidents, accepted),
        "machines": machines_to_blame(chosen.incidents),
        "silences": causes_of_silence(chosen.incidents),
        "ways": ways_of_harm(chosen.incidents),
        "caveats": caveats(chosen.streams, tables["books"]),
    }


def witness_keys(tops: Frames) -> pl.DataFrame:
    """Returns the distinct keys (PLACE) of the packets in the witnesses of what is `listed`."""
    packets = pl.concat(tops[name].select(pl.col("witness").explode()) for name in _WITH_WITNESS)
    return packets.select(pl.col("witness").struct[name] for name in PLACE).drop_nulls().unique()


def witness_columns(table: Table) -> list[str]:
    """Returns which columns of a table a witness shows."""
    return [name for name in table.names if name in _SHOWN]


def proofs(found: Tables, captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of witnesses that were `found` in WITNESSES, of each the first, with their `uri`.

    Columns that a table lacks are null.
    """
    rows = pl.concat((found[table.name] for table in WITNESSES), how="diagonal_relaxed")
    first = rows.unique(PLACE, keep="first", maintain_order=True)
    return first.join(captures.select("capture_id", "uri"), on="capture_id", how="left")


def rows_of(frames: Frames) -> dict[str, Any]:
    """Returns all rows as plain values; a witness lists keys as texts."""
    return {name: (with_keys(rows) if "witness" in rows.columns else rows).to_dicts() for name, rows in frames.items()}
