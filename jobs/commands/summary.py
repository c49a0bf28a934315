"""Counts what a run found, from the tables, and says what became of the messages."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import polars as pl

from jobs.cli.names import Names
from jobs.commands.headline import NOT_TOLD, headline
from jobs.commands.headline_figures import TO_CONFIRM, Facts, certainties, headline_figures, second
from schemas.incidents import INCIDENTS, Cause
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE
from schemas.messages import ACKS, MESSAGES
from schemas.outcomes import OUTCOMES, Outcome, count_column
from schemas.replay import FINDINGS, VERDICTS, FindingKind, Severity
from schemas.table import Table
from udfs.frames.derivation import ONE
from udfs.frames.engine import Engine, T
from udfs.replay.fitness.amiss import cut_short
from udfs.replay.fitness.counts import with_amiss
from udfs.replay.fitness.nothing import why_nothing
from udfs.replay.incidents.advice import certainty_of, certainty_of_cause
from udfs.replay.outcomes.counts import NOT_READ, SINCE
from udfs.replay.words import one_or_many
from udfs.report.findings import SENTENCES, errors_alone, found_alone, sentences_by_incident, unheard
from udfs.report.flow import COPIES, SUMMARIZED, accepted_since, queues_with_harm, read_few, why_nothing_judged
from udfs.report.incidents import (
    causes_of_silence,
    causes_untold,
    machines_to_blame,
    unrepaired_incidents,
    ways_of_harm,
)
from udfs.report.labels import OF_EARLIER, OF_LABELS, earlier_of, first_labels, labels_of
from udfs.report.lacks import lacks_of_sessions
from udfs.report.messages import OF_HARM, accepted_by_sender, places
from udfs.report.period import not_read_again, of_last_run
from udfs.report.proof import missing_messages, prove
from udfs.report.rows import SEVERITIES, Row, Rows
from udfs.report.summary import (
    kinds_by_severity,
    lost_by,
    newest_captures,
    shown_by,
    sums_of_sessions,
    unread_frames,
)

_NAMED = 20
"""Captures with something amiss that are named; all are counted."""
_FITNESS = (
    *("uri", "status", "reason", "segment_count", "to_port_count", "cut_count", "damaged_count", "one_way_count"),
    *("missing_bytes", "clock_steps", "packet_count", "size_bytes"),
    *("first_captured_at", "last_captured_at", "ingested_at", "not_judged"),
)
_BOOKS = (BOOKS, "balanced")
_INGESTED = ((CAPTURES, "status"), (PACKETS, "packet_type"), (QUARANTINE, "reason"), _BOOKS)
_DECODED = ((MESSAGES, "transactional"), (ACKS, "ack_type"), (QUARANTINE, "reason"), _BOOKS)
_REPLAYED = ((VERDICTS, "verdict"), (FINDINGS, "kind"), (INCIDENTS, "outcome"), _BOOKS)


def ingest_summary(engine: Engine[T], place: str) -> dict[str, Any]:
    """Returns the place of the tables, captures by status, packets by type, quarantine by reason, and the books."""
    return {"tables": place} | _counts(engine, _INGESTED)


def decode_summary(engine: Engine[T]) -> dict[str, Any]:
    """Returns counts of messages and acks, quarantine by reason, and the books."""
    return _counts(engine, _DECODED)


def replay_summary(engine: Engine[T], names: Names | None = None) -> dict[str, Any]:
    """Returns verdicts, findings by kind, incidents by outcome, what became of the messages, and the books."""
    return _counts(engine, _REPLAYED) | outcome_summary(engine, names)


def summary(engine: Engine[T], place: str, names: Names | None = None) -> dict[str, Any]:
    """Returns all of these, but for packets by type."""
    counted = dict.fromkeys((_INGESTED[0], *_DECODED, *_REPLAYED))
    return {"tables": place} | _counts(engine, counted) | outcome_summary(engine, names)


def outcome_summary(engine: Engine[T], names: Names | None = None) -> dict[str, Any]:
    """Returns messages by outcome (`outcomes`), the `lost` and `stuck` ones, `severities` of findings, `headline`.

    `unconfirmed` counts the messages that were accepted, wait or are in doubt and that no acknowledgment confirms.
    `certainty` says of how many messages it is sure what became of them, and how sure, as of `certainties`.
    `accepted_not_read_messages` is None where that is not reported. `period`, `senders` and `queues` are those that the
    captures show; `newest_captures` says what those of the last run that brought any hold and lack, and `no_data` is a
    sentence where they hold no message. `lost_by` names the senders and queues with most lost messages,
    `worst_incidents` tells what happened, where to go and what to do, the worst first, and `findings_by_severity`
    counts the kinds of each severity.

    Under the literal reading, which tells none of this, the headline says so, and `lost` and `stuck` are None.
    """
    few = read_few(engine, *SUMMARIZED, CAPTURES)
    sums, incidents = sums_of_sessions(few["sessions"]), few["incidents"]
    newest = _newest(few["captures"])
    if not sums["is_told"]:
        untold: dict[str, Any] = {
            "headline": NOT_TOLD,
            "outcomes": {},
            "lost": None,
            "lost_by": [],
            "stuck": None,
            "severities": {},
        }
        return untold | newest
    shown = shown_by(few["captures"], few["stream_ends"], sums)
    queues = queues_with_harm(engine, engine.read(OUTCOMES, *OF_HARM), shown.first_ns, shown.last_ns)
    where = places(queues)
    by_severity: dict[str, dict[str, int]] = {severity: {} for severity in SEVERITIES}
    for one in kinds_by_severity(few["findings"]):
        by_severity[one["severity"]][one["kind"]] = one["count"]
    severities = {severity: sum(kinds.values()) for severity, kinds in by_severity.items()}
    outcomes = {outcome.value: sums[count_column(outcome)] for outcome in Outcome}
    is_judged, captures = any(outcomes.values()), few["captures"].to_dicts()
    failed = found_alone(few["findings"], FindingKind.CANNOT_CONNECT)
    worst, following = unrepaired_incidents(incidents)
    apart, in_vain = errors_alone(few["findings"]), unheard(few["findings"], incidents)
    facts = Facts(
        outcomes,
        where,
        machines_to_blame(incidents),
        ways_of_harm(incidents),
        unread_frames(few["captures"]),
        shown,
        confirmed=sums["confirmed"],
        not_read=sums[NOT_READ],
        not_read_since_ns=sums[f"{SINCE}_ns"],
        missing_bytes=int(few["stream_ends"]["missing_bytes"].sum()),
        unjudged=sums["unjudged"],
        passing_through=sums["passing_through"],
        errors=severities[Severity.ERROR.value],
        apart=len(apart),
        unfit="" if is_judged else cut_short(captures),
        why="" if is_judged else why_nothing_judged(engine, captures, has_failed=bool(failed)),
        silences=causes_of_silence(incidents),
        failed=failed,
        unheard=len(in_vain),
    )
    figures = headline_figures(facts, names or Names())
    found = sentences_by_incident(few["findings"], incidents)
    told = [one["incident_id"] for one in worst]
    labels, proof, missing = _labels(engine, incidents, told), {}, {}
    earlier = _earlier(engine, incidents, shown.first_ns) if where["early"] else {}
    if told:
        few_told = incidents.filter(pl.col("incident_id").is_in(told))
        proof, missing = prove(engine, few_told, few["findings"]), missing_messages(engine, few_told)
    lacks = lacks_of_sessions(few["stream_ends"], few["captures"])

    def in_doubt(incident: Row) -> Row:
        """Returns what messages without an acknowledgment are called, and what the captures lack of its session."""
        return {"silence": figures.silence, "captures_lack": lacks.get(incident["session_id"], "")}

    taken = accepted_by_sender(incidents, accepted_since(engine, incidents, few[COPIES]))
    return {
        "headline": headline(figures),
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "lost": figures.lost,
        "lost_by": lost_by(queues),
        "stuck": where["stuck"],
        "unacknowledged": where["unacknowledged"],
        "confirmed": sums["confirmed"],
        "certainty": certainties(outcomes, sums["confirmed"], where["by_clocks"]),
        "unconfirmed": sum(outcomes[outcome] for outcome in TO_CONFIRM) - sums["confirmed"],
        "unjudged": sums["unjudged"],
        NOT_READ: sums[NOT_READ],
        SINCE: _second(sums[f"{SINCE}_ns"]),
        "period": {"first": _second(shown.first_ns), "last": _second(shown.last_ns)},
        "senders": shown.senders,
        "queues": shown.queues,
        "severities": {name: count for name, count in severities.items() if count},
        "findings_by_severity": {name: counts for name, counts in by_severity.items() if counts},
        "worst_incidents": [
            _told(one, taken, proof.get(one["incident_id"], []))
            | {"findings": found.get(one["incident_id"], []), "labels": labels.get(one["incident_id"], [])}
            | {"missing": missing.get(one["incident_id"]), "sent_before": earlier.get(one["incident_id"], 0)}
            | in_doubt(one)
            for one in worst
        ],
        "next_incidents": [_named(one) | in_doubt(one) for one in following],
        "causes_untold": causes_untold(incidents, [*worst, *following]),
        "failed_connections": failed[:SENTENCES],
        "errors_alone": apart[:SENTENCES],
        "acknowledged_in_vain": in_vain[:SENTENCES],
        "unanswered_pings": found_alone(few["findings"], FindingKind.UNANSWERED_PINGS, notes=True)[:SENTENCES],
    } | newest


def _labels(engine: Engine[T], incidents: pl.DataFrame, told: list[str]) -> dict[str, list[str]]:
    """Returns the first labels of these incidents; one more than LABELS where there are others."""
    scopes = incidents.filter(pl.col("incident_id").is_in(told)).select("scope_key").unique()
    if scopes.is_empty():
        return {}
    outcomes = engine.join(engine.read(OUTCOMES, *OF_LABELS), scopes, ["scope_key"], "semi")
    near = incidents.select("scope_key", "tx_sequence_id", "incident_id").join(scopes, on="scope_key", how="semi")
    found = engine.gather(labels_of, outcomes=outcomes, incidents=near)[ONE]
    return dict(first_labels(found).group_by("incident_id", maintain_order=True).agg("label").iter_rows())


def _earlier(engine: Engine[T], incidents: pl.DataFrame, begun_ns: int | None) -> dict[str, int]:
    """Returns how many lost messages of each incident may have been accepted before the captures begin."""
    named = incidents.select("scope_key", "tx_sequence_id", "incident_id")
    earlier = partial(earlier_of, begun_ns=begun_ns)
    found = engine.gather(earlier, outcomes=engine.read(OUTCOMES, *OF_EARLIER), incidents=named)[ONE]
    return dict(found.group_by("incident_id").len().iter_rows())


def _newest(captures: pl.DataFrame) -> dict[str, Any]:
    """Returns `newest_captures` and, where they hold no message, `no_data`: what they hold instead."""
    found = newest_captures(captures)
    if found["messages"]:
        return {"newest_captures": found}
    many = one_or_many(found["captures"], "The newest capture holds", f"The newest {found['captures']:,} captures hold")
    return {
        "newest_captures": found,
        "no_data": f"{many} no message. {why_nothing(of_last_run(captures).to_dicts())}",
    }


def _told(incident: Row, accepted: Mapping[str, Row], proof: Rows) -> Row:
    """Returns what a summary says of an incident: what happened, where, since when, from which machines, what to do.

    `proof` are the packets that show it, as `prove` returns them. Where numbers were used again, also what was
    `accepted_since`, of `accepted_by_sender`.
    """
    addresses = [
        {name: sender[name] for name in ("address", "messages", "accepted", "lost", "suspected")}
        | {f"{name}_seen_at": _second(sender[f"{name}_ns"]) for name in ("first", "last")}
        for sender in incident["senders"]
    ]
    kept = ("advice", "source_queue_manager", "explanation")
    told = (
        _named(incident)
        | {name: incident[name] for name in kept}
        | {
            "addresses": addresses,
            "certainty": certainty_of(incident).name.lower(),
            "cause_certainty": certainty_of_cause(incident).name.lower(),
            "proof": [
                {name: packet[name] for name in ("role", "label", "uri", "frame_number", "stream_id")}
                | {"captured_at": packet["captured_at"] and packet["captured_at"].isoformat()}
                for packet in proof
            ],
        }
    )
    if incident["cause"] != Cause.NUMBER_REUSED:
        return told
    taken = accepted[incident["source_queue_manager"]]
    each = [{"address": address, "messages": messages} for address, messages in taken["messages"].items()]
    return told | {"accepted_since": _second(taken["since_ns"]), "accepted_from": each}


def _named(incident: Row) -> Row:
    """Returns what names an incident in one line: its cause and outcome, how many messages, whose, and where to go."""
    kept = (
        *("incident_id", "cause", "outcome", "lost_messages", "pending", "stuck_messages", "unacknowledged", "unknown"),
        *("destination_queues", "receivers", "session_id", "ongoing"),
    )
    return {name: incident[name] for name in kept} | {
        "addresses": [{"address": sender["address"]} for sender in incident["senders"]],
        "began_at": _second(incident["began_ns"]),
        "ended_at": _second(incident["ended_ns"]),
        "go_to": [{"address": one} for one in incident["go_to"]],
    }


def _unfit(captures: pl.DataFrame) -> dict[str, Any]:
    """Returns how `many` captures have something amiss, and of the last ones what and from when to when they are."""
    unfit = with_amiss(captures).filter(pl.col("amiss").list.len() > 0)
    unfit = unfit.sort("ingested_at", "uri", descending=[True, False])
    times = (pl.col(name).dt.strftime("%Y-%m-%d %H:%M:%S UTC") for name in ("first_captured_at", "last_captured_at"))
    return {"many": unfit.height, "last": unfit.head(_NAMED).select("uri", *times, "amiss").to_dicts()}


def _second(ns: int | None) -> str | None:
    return None if ns is None else second(ns)


def _counts(engine: Engine[T], columns: Iterable[tuple[Table, str]]) -> dict[str, Any]:
    """Counts the rows of each table by the values of one column, the most frequent value first.

    Where CAPTURES is among them, it names those with something amiss, and those of which frames were not read.
    """
    columns = list(columns)
    sums = {table.name: engine.sum_up(engine.read(table, column), [column]) for table, column in columns}
    if CAPTURES.name in sums:
        sums["read"] = engine.read(CAPTURES, *_FITNESS)
    found = engine.collect(**sums)
    counts: dict[str, Any] = {}
    for table, column in columns:
        rows = dict(found[table.name].select(pl.col(column).cast(pl.String), "count").iter_rows())
        counts[table.name] = dict(sorted(rows.items(), key=lambda one: (-one[1], one[0] is not None, one[0])))
    if MESSAGES.name in counts:
        messages = counts[MESSAGES.name]
        counts |= {"messages": sum(messages.values()), "transactional_messages": messages.get("true", 0)}
    if "read" in found:
        captures = not_read_again(found["read"])
        counts["unfit_captures"] = _unfit(captures)
        counts["unread_frames"] = unread_frames(captures)
    books = counts[BOOKS.name]
    return counts | {"books": {"balanced": books.get("true", 0), "unbalanced": books.get("false", 0)}}


def with_names(summary: dict[str, Any], names: Names) -> dict[str, Any]:
    """Returns the summary with the names of queue managers and queues beside the originals."""
    for row in summary.get("lost_by", ()):
        row |= {
            "sender_name": names.queue_manager(row["source_queue_manager"]),
            "queue_name": names.queue(row["destination_queue"]),
        }
    for row in summary.get("worst_incidents", ()):
        row |= {"session_names": names.session(row["session_id"])}
    for row in (*summary.get("worst_incidents", ()), *summary.get("next_incidents", ())):
        for one in (*row.get("addresses", ()), *row["go_to"], *row.get("accepted_from", ())):
            one |= {"name": names.queue_manager(one["address"])}
    return summary
