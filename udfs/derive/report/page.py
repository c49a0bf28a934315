"""Chooses the rows that the page of a report shows, from tables with few rows and from sums over large ones.

`choose` comes first, then steps over large tables (`with_fates`, `session_sums`), then what is `listed`; of that, what
is drawn and the rows with the keys of witnesses.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import polars as pl

from schemas.ingest import PACKETS, STREAM_GAPS
from schemas.messages import ACKS, MESSAGES
from schemas.replay import VERDICTS
from schemas.table import Table
from udfs.derive.columns import PLACE, nanoseconds, null
from udfs.derive.frames import Frames
from udfs.derive.report.findings import (
    findings_by_kind,
    findings_of_incidents,
    incident_counts,
    shown_findings,
    worst_findings,
    worst_incidents,
)
from udfs.derive.report.messages import (
    accepted_counts,
    accepted_messages,
    conflicts,
    final_acks,
    listed_messages,
    outcome_counts,
    places,
    take_turns,
    unjudged_messages,
)
from udfs.derive.report.of_session import Period
from udfs.derive.report.period import busy_hours, chosen_sequences, extent, findings_of_period, last_run, steps
from udfs.derive.report.rows import Row, Rows, in_period, in_sessions, with_nanoseconds
from udfs.derive.report.sessions import caveats, coverage, ranked_sessions
from udfs.derive.witness import with_keys

Tables = Mapping[str, pl.DataFrame]
"""Rows of gold tables, by the names of the tables."""
_WITH_WITNESS = ("incidents", "evidence", "findings", "listed_messages")
"""Rows of `listed` whose witnesses are looked up."""
WITNESSES = (VERDICTS, MESSAGES, ACKS, PACKETS, STREAM_GAPS)
"""Tables that may hold the row of a witness, in the order in which one is looked for."""
_SHOWN = pl.Schema(
    {
        **dict.fromkeys(("stream_id", "capture_id"), pl.String),
        **dict.fromkeys(("stream_offset", "captured_ns", "first_frame", "last_frame"), pl.Int64),
        **dict.fromkeys(("message_id", "destination_queue", "label", "verdict", "reason"), pl.String),
        **dict.fromkeys(("tx_sequence_id", "incoming_tx_sequence_id"), pl.UInt64),
        **dict.fromkeys(("tx_sequence_number", "previous_tx_sequence_number", "incoming_tx_sequence_number"), pl.Int64),
        "ack_latency_ms": pl.Float64,
        **dict.fromkeys(("ack_type", "acknowledged_message_id", "packet_type"), pl.String),
        **dict.fromkeys(("message_class", "length"), pl.Int64),
    }
)
"""What the page shows of the row of a witness."""


class Options(NamedTuple):
    """Holds what a report is asked for: names and meanings of the options of the command `report`."""

    since: datetime | None
    """None for all that the tables hold; `period.begin_of_last_run` for the last run."""
    session: tuple[str, ...]
    listed_messages: int
    saved_messages: int
    """Messages of each outcome that a list can be saved with."""
    listed_incidents: int
    listed_findings: int
    listed_sessions: int
    drawn_sessions: int
    drawn_pictures: int
    drawn_points: int


class Chosen(NamedTuple):
    """Holds the rows that a report is of, from the tables that have few, and where its picture begins."""

    period: Period
    extent: Row
    captures: pl.DataFrame
    streams: pl.DataFrame
    sessions: pl.DataFrame
    sequences: pl.DataFrame
    incidents: pl.DataFrame
    findings: pl.DataFrame
    all_findings: int
    """Findings that it would list if its period began with the tables."""


def choose(tables: Tables, scopes: pl.DataFrame | None, options: Options) -> Chosen:
    """Returns the rows that a report is of: of CAPTURES, STREAMS, SESSIONS, SEQUENCES, FINDINGS and INCIDENTS.

    `scopes` are those (`scope_key`) in which the sessions of the report have a message; None for all sessions.
    """
    ours = in_sessions(options.session)
    all_sessions = tables["sessions"].filter(ours)
    findings = shown_findings(tables["findings"].filter(ours))
    whole = extent(all_sessions, options.since)
    since = options.since if whole["cut"] else None
    first_ns, step_ns = steps(whole, busy_hours(tables["captures"]))
    recent = in_period(since, "last_captured_at")
    return Chosen(
        Period(since, options.session, first_ns, step_ns, options.saved_messages),
        whole,
        tables["captures"].filter(recent),
        tables["streams"].filter(recent),
        all_sessions.filter(recent),
        chosen_sequences(tables["sequences"], scopes, since),
        tables["incidents"].filter(ours, recent),
        findings_of_period(findings, tables["sequences"], since),
        findings.height,
    )


def listed(chosen: Chosen, sums: Frames, accepted: Frames, options: Options) -> Frames:
    """Returns the rows that need no further look at the tables: counts, and what is listed.

    `sums` are as of `merged`, and `accepted` as of `accepted_since`.
    """
    incidents = worst_incidents(chosen.incidents, options.listed_incidents)
    in_lists = listed_messages(sums["messages"], options.saved_messages)
    stories = incidents["incident_id"].to_list()
    in_conflict = accepted_messages(accepted["accepted"], chosen.incidents, options.saved_messages)
    return {
        "incident_counts": incident_counts(chosen.incidents),
        "incidents": incidents,
        "arrivals": sums["arrivals"].filter("within").drop("within"),
        "accepted_counts": accepted_counts(accepted["counts"]),
        "conflicts": with_nanoseconds(conflicts(chosen.incidents), since_ns="since"),
        "outcome_counts": outcome_counts(chosen.sequences),
        "places": places(sums["queues"].filter("chosen")),
        "saved_messages": pl.concat([take_turns(in_lists, options.saved_messages), in_conflict], how="diagonal"),
        "unjudged": unjudged_messages(chosen.sessions),
        "kinds": findings_by_kind(chosen.findings),
        "findings": worst_findings(chosen.findings, options.listed_findings),
        "sessions": ranked_sessions(chosen.sessions, sums["figures"], chosen.findings, options.listed_sessions),
        "listed_messages": pl.concat(
            [take_turns(in_lists, options.listed_messages), in_conflict.head(options.listed_messages)], how="diagonal"
        ),
        "evidence": findings_of_incidents(chosen.findings, stories, options.listed_findings),
    }


def witness_keys(tops: Frames) -> pl.DataFrame:
    """Returns the distinct keys (PLACE) of the packets in the witnesses of what is `listed`."""
    packets = pl.concat(tops[name].select(pl.col("witness").explode()) for name in _WITH_WITNESS)
    return packets.select(pl.col("witness").struct[name] for name in PLACE).drop_nulls().unique()


def witness_columns(table: Table) -> list[str]:
    """Returns which columns of a table a witness shows."""
    return [name for name in table.names if name in _SHOWN]


def proofs(tables: Tables, keys: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with these distinct keys (PLACE) and their `uri`, each from the first of WITNESSES that has it.

    Columns that a table lacks are null. Of the tables, the rows with these keys suffice.
    """
    best = pl.DataFrame(schema=_SHOWN)
    for table in WITNESSES:
        rows = tables[table.name]
        found = rows.join(keys, on=PLACE, how="semi").join(best, on=PLACE, how="anti")
        columns = (pl.col(name) if name in rows.columns else null(of).alias(name) for name, of in _SHOWN.items())
        best = pl.concat([best, found.select(columns).cast(_SHOWN)])
    return best.join(tables["captures"].select("capture_id", "uri"), on="capture_id", how="left")


def limits(tables: Tables, chosen: Chosen, tops: Frames) -> Frames:
    """Returns what the captures show and what they cannot show, beside `last_run` and whether there are FinalAcks.

    In `tables`, `quarantine` has rows of `unusable`.
    """
    sessions = tops["sessions"]["session_id"].to_list()
    return {
        "last_run": last_run(tables["captures"]).select(nanoseconds(pl.col("since")).alias("ns")),
        "final_acks": final_acks(tables["acks"]),
        "caveats": caveats(chosen.captures, chosen.streams, tables["quarantine"], tables["books"], chosen.sessions),
        "coverage": coverage(tables["streams"], tables["stream_ends"], tables["quarantine"], sessions),
    }


def rows_of(chosen: Chosen, frames: Frames) -> dict[str, Rows]:
    """Returns all rows as plain values; a witness lists keys as texts."""
    named = {name: (with_keys(rows) if "witness" in rows.columns else rows).to_dicts() for name, rows in frames.items()}
    every = [] if chosen.period.since is None else [{"count": chosen.all_findings}]
    drawn = {"steps_from_ns": chosen.period.first_ns, "step_ns": chosen.period.step_ns}
    return {"extent": [chosen.extent | drawn], "every_finding": every} | named
