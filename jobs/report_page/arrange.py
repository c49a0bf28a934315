"""Arranges the few rows that the report collects as plain values for the template."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobs.cli.code_version import VERSION
from jobs.cli.config import DECLARED, DEFAULTS, Config
from jobs.cli.summary_text import connection_in_words, harm_of, is_confirmed, missing_in_words, roles_of
from jobs.report_page.messages import Machines, is_direct, saved, severity
from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import DELIVERED, LOST, MEANING, Outcome, count_column
from schemas.replay import ACCEPTING, FindingKind, Reason, Severity, Verdict
from udfs.replay.incidents.advice import certainty_of, certainty_of_cause, how_sure
from udfs.replay.outcomes.counts import NOT_READ
from udfs.report.messages import ACCEPTED, FATES
from udfs.report.period import Steps
from udfs.report.rows import SEVERITIES, Row, Rows

Proof = Callable[..., Rows]
"""A function that `witnesses` returns."""
_VERDICTS = [verdict.value for verdict in Verdict]
_REFUSED = (Verdict.DUPLICATE.value, Verdict.OUT_OF_ORDER.value)
_HARMLESS = {"repaired": "delivered after a refusal", "expired": "expired unseen"}
"""Figures of an incident beside its harm, and the words for them."""
_MS = 10**6
_TELLING = ("ingest", "decode", "replay", "report")
"""Sections of the options that decide what a report shows."""
_REUSED = frozenset({Cause.NUMBER_REUSED.value, FindingKind.DUPLICATES_DIFFER.value})
_PROVING = 3
"""Packets of an incident that its card shows at first; the last one is beside them."""
_SLOW_MS = 10_000  # an OrderAck is due within ten seconds, [MS-MQQB] 3.1.2.1
_DELIVERED = (
    *(Outcome.DELIVERED, Outcome.DELIVERED_AFTER_REFUSAL, Outcome.DELIVERED_TWICE, Outcome.NOT_READ),
    *(Outcome.DELIVERED_BY_ACKNOWLEDGMENT, Outcome.DELIVERED_BEFORE_CAPTURE),
)

_ACCEPTED_MEANING = (
    "accepted since numbers were first used for different messages; those from the suspected copy come first"
)
REASONS: Mapping[str, str] = {
    Reason.NO_PRIOR_STATE: "The captures begin too late to show what the receiver had accepted before.",
    Reason.CAPTURE_GAP: "Bytes are missing from the captures before them, and may hold the numbers skipped.",
    Reason.CLOCKS_DIFFER: "The clocks of two captures differ by more than the time between them and messages on other "
    "connections.",
}
"""Why a message cannot be judged."""


def page(rows: Mapping[str, Any], config: Config, place: str) -> Row:
    """Returns the rows and all else that the template uses, but for its first sentence."""
    sessions, proof = _sessions(rows), witnesses(rows)
    kinds = sorted(rows["kinds"], key=lambda row: (SEVERITIES.index(row["severity"]), -row["findings"], row["kind"]))
    alone = _group(rows["findings"], ("severity", "kind"))
    since = rows["since"]
    return {
        **rows,
        "place": place,
        "only": list(config.session),
        "since": None if since is None else f"{since:%Y-%m-%d %H:%M:%S}",
        "messages": _messages(rows, proof),
        "kinds": [row | {"listed": _with_proof(alone[row["severity"], row["kind"]], proof, sessions)} for row in kinds],
        "incidents": _incidents(rows, rows["incidents"], proof, sessions),
        "earlier": _incidents(rows, rows["earlier"], proof, sessions),
        "incident_counts": {row["outcome"]: row["incidents"] for row in rows["incident_counts"]},
        "incident_outcomes": [outcome.value for outcome in IncidentOutcome],
        "severities": SEVERITIES,
        "sessions": list(sessions.values()),
        "unknown": [
            {"reason": reason, "why": REASONS.get(reason, reason), "arrivals": arrivals}
            for (verdict, reason), arrivals in sorted(_counts(rows["arrivals"], "verdict", "reason").items(), key=str)
            if verdict == Verdict.UNKNOWN.value
        ],
        "data": _data(rows) | saved(rows),
        "meaning": {outcome.value: text for outcome, text in MEANING.items()} | {ACCEPTED: _ACCEPTED_MEANING},
        "accepted_in_conflict": sum(sum(one["messages"].values()) for one in rows["accepted"].values()),
        "version": VERSION,
        "options": changed_options(config),
    }


def changed_options(config: Config) -> list[tuple[str, str]]:
    """Returns the options that decide what a report shows and differ from their defaults, as names and texts."""
    changed = (
        (name, getattr(config, name))
        for name, option in DECLARED.items()
        if option.section in _TELLING and getattr(config, name) != getattr(DEFAULTS, name)
    )
    return [(name, ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) for name, value in changed]


def _counts(arrivals: Rows, *keys: str) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in arrivals:
        counts[tuple(row[key] for key in keys)] += row["arrivals"]
    return counts


def numbers(rows: Mapping[str, Any]) -> Row:
    """Returns the figures of the period: messages by outcome, arrivals by verdict, and what is in doubt."""
    counts = _counts(rows["arrivals"], "verdict")
    of = {verdict: counts[(verdict,)] for verdict in _VERDICTS}
    became, of_sessions = rows["outcomes"], rows["of_sessions"]
    return {
        **became,
        "messages": sum(became.values()),
        "delivered_messages": sum(became[count_column(outcome)] for outcome in _DELIVERED),
        "delivered_by_rules": sum(became[count_column(outcome)] for outcome in DELIVERED) - rows["confirmed"],
        "lost": sum(became[count_column(outcome)] for outcome in LOST),
        "stuck": rows["places"]["stuck"],
        "unacknowledged": rows["places"]["unacknowledged"],
        "confirmed": rows["confirmed"],
        NOT_READ: rows[NOT_READ],
        "passing_through": of_sessions["passing_through"],
        "unjudged": of_sessions["unjudged"],
        "errors": sum(row["findings"] for row in rows["kinds"] if row["severity"] == Severity.ERROR.value),
        "arrivals": sum(of.values()),
        "accepted": sum(of[verdict] for verdict in ACCEPTING),
        "duplicate": of[Verdict.DUPLICATE.value],
        "out_of_order": of[Verdict.OUT_OF_ORDER.value],
        "unknown": of[Verdict.UNKNOWN.value],
        "captures": rows["captures"],
        "missing_bytes": rows["caveats"]["missing_bytes"] or 0,
    }


def _messages(rows: Mapping[str, Any], proof: Proof) -> dict[str, Rows]:
    """Returns the listed messages of each list, the worst first, with what each witness shows."""
    known = Machines(rows)
    listed: dict[str, Rows] = defaultdict(list)
    for row in rows["listed_messages"]:
        before = listed[row["list"]]
        before.append(
            row
            | {
                "said_before": row["explanation"] in {other["explanation"] for other in before},
                "sender": _first_part(row["source_queue_manager"]),
                "address": row["address"] if is_direct(row) else None,
                "severity": severity(row).value,
                "machines": known.of(row),
                "witnesses": proof(row["witness"], displaced=row["outcome"] == Outcome.DISPLACED),
            }
        )
    return listed


def witnesses(rows: Mapping[str, Any]) -> Proof:
    """Returns a function from a witness to a list of its `key`, its `row` (None for none), and what the row `shows`.

    They are in the order of their times, those without one last. `displaced` says that the witness is of a message
    whose number another message has.
    """
    seen = {f"{row['stream_id']}@{row['stream_offset']}": row for row in rows["witnesses"]}

    def proof(witness: Sequence[str], *, displaced: bool) -> Rows:
        shown = [seen.get(key) for key in witness]
        users: dict[tuple[Any, ...], set[str]] = defaultdict(set)
        for row in shown:
            if row is not None and row["verdict"]:
                users[row["tx_sequence_id"], row["tx_sequence_number"]].add(row["message_id"])

        def describe(row: Row | None) -> str:
            if row is None:
                return ""
            shared = displaced or len(users[row["tx_sequence_id"], row["tx_sequence_number"]]) > 1
            return shows(row, shared=shared and bool(row["verdict"]))

        found = [{"key": text, "row": row, "shows": describe(row)} for text, row in zip(witness, shown, strict=True)]
        return sorted(found, key=_time)

    return proof


def _time(witness: Row) -> float:
    """Returns when a witness was captured; the end of all times for none."""
    row = witness["row"]
    return math.inf if row is None or row["captured_ns"] is None else row["captured_ns"]


def shows(row: Row, *, shared: bool = False) -> str:
    """Returns what a witness shows: what the receiver expected, what it got, what it acknowledged.

    `shared` says that another witness beside it is a different message with the same number.
    """
    number, previous, state = (
        row[name] for name in ("tx_sequence_number", "previous_tx_sequence_number", "incoming_tx_sequence_number")
    )
    same = row["incoming_tx_sequence_id"] == row["tx_sequence_id"]
    if row["ack_type"] == "order_ack":
        return f"OrderAck: the receiver has everything up to number {number}."
    if row["ack_type"]:
        return f"FinalAck of class 0x{row['message_class'] or 0:04x} for message {row['acknowledged_message_id']}."
    if row["length"] is not None:
        return f"{row['length']:,} bytes missing."
    if not row["verdict"]:
        return f"{(row['packet_type'] or 'message, not judged').replace('_', ' ').capitalize()}."
    latency = row["ack_latency_ms"]
    slow = f" It was acknowledged after {latency / 1000:.1f} s." if latency is not None and latency > _SLOW_MS else ""
    texts = {
        Verdict.IN_ORDER: f"Accepted: number {number} after {previous}.",
        Verdict.NEW_SEQUENCE: f"Accepted: number {number} begins a new sequence.",
        Verdict.GAP_EXPIRED: f"Accepted: number {number} after {previous}; the sender skipped the numbers between.",
        Verdict.DUPLICATE: f"Refused: the receiver had accepted {'another message with ' * shared}number {number}, and "
        f"was at {state}{'' if same else ' of a later sequence'}.",
        Verdict.UNKNOWN: f"Not judged: got number {number}, which needs {previous}; "
        + ("the receiver's state is not known." if state is None else f"the receiver was at {state}."),
    }
    if row["verdict"] != Verdict.OUT_OF_ORDER:
        label = f", {row['label']}," if row["label"] else ""
        user = f" Message {short_id(row['message_id'])}{label} has this number." if shared else ""
        return texts[Verdict(row["verdict"])] + slow + user
    if row["reason"] == Reason.STALE_SEQUENCE:
        return f"Refused: number {number} of an older sequence; the receiver was at {state} of a later one."
    if row["reason"] == Reason.LATE:
        return f"Refused: got number {number}, the receiver was already at {state}."
    if not same:
        return f"Refused: expected number 1 of the new sequence, got {number}, which needs {previous}."
    return f"Refused: expected number {state + 1}, got {number}, which needs {previous}."


def short_id(message_id: str) -> str:
    """Returns a message ID with only the first part of its GUID."""
    guid, _, ordinal = message_id.rpartition("\\")
    first, dash, _ = guid.partition("-")
    return f"{first}{'…' if dash else ''}\\{ordinal}"


def _sessions(rows: Mapping[str, Any]) -> dict[str, Row]:
    """Returns the listed sessions by `session_id`, the worst first, with the numbers of their pictures."""
    drawn: dict[str, Rows] = defaultdict(list)
    points = _group(rows["points"], _PICTURE)
    for place, one in enumerate(rows["pictures"]):
        drawn[one["session_id"]].append(points[one["session_id"], one["scope_key"]][0] | {"number": place})
    return {
        row["session_id"]: row
        | {
            "number": place,
            "short": f"{_first_part(row['sender'])} → {_first_part(row['receiver'])}",
            "accepted": sum(row[verdict] for verdict in ACCEPTING),
            "judged": sum(row[verdict] for verdict in _VERDICTS),
            "pictures": drawn[row["session_id"]],
        }
        | ({} if rows["told"] else {name: None for name in row if name.startswith("messages_")})
        for place, row in enumerate(rows["sessions"], 1)
    }


def _first_part(queue_manager: str) -> str:
    """Returns the first part of a GUID; a whole address."""
    return queue_manager.partition("-")[0]


def _incidents(rows: Mapping[str, Any], listed: Rows, proof: Proof, sessions: Mapping[str, Row]) -> Rows:
    """Returns `listed` incidents, each with its listed `evidence`, which are findings.

    `new`: it began in the time of the captures that the last run read. `proof` are packets that show it, `missing`
    says which message its receiver waits for, and `go_to` are machines to go to.
    """
    evidence = _group(rows["evidence"], ("incident_id",))
    last_run = rows["last_run"]
    since = last_run and last_run.timestamp() * 10**9
    return [
        row
        | {
            "evidence": _with_proof(evidence[(row["incident_id"],)], proof, sessions),
            "proof": _proof_of(row, rows["proof"].get(row["incident_id"], [])),
            "missing": missing_in_words(rows["missing"].get(row["incident_id"])),
            "messages": [
                *harm_of(row),
                *((row[name], word) for name, word in _HARMLESS.items() if row[name]),
            ],
            "how_sure": how_sure(certainty_of(row), certainty_of_cause(row), rows["lacks"].get(row["session_id"], "")),
            "accepted": rows["accepted"].get(row["source_queue_manager"]),
            "new": since is None or row["began_ns"] is None or row["began_ns"] >= since,
        }
        for row in _with_proof(listed, proof, sessions)
    ]


def _proof_of(incident: Row, packets: Rows) -> Rows:
    """Returns the first packets that show an incident, and the last one, each with what it `shows`."""
    shown = {one["key"]: one["shows"] for one in incident["witnesses"]}
    roles = roles_of(incident)
    found = []
    for packet in packets[:_PROVING] + packets[_PROVING:][-1:]:
        key, role = f"{packet['stream_id']}@{packet['stream_offset']}", packet["role"]
        said = shown.get(key) if is_confirmed(incident) else None
        if packet["frame_number"] is None:
            said = connection_in_words(packet["stream_id"])
        said = said or f"{roles.get(role, role.replace('_', ' '))}."
        ns = packet["captured_at"] and round(packet["captured_at"].timestamp() * 10**6) * 1000
        found.append(packet | {"key": key, "shows": said, "ns": ns})
    return found


def _with_proof(found: Iterable[Row], proof: Proof, sessions: Mapping[str, Row]) -> Rows:
    """Returns findings or incidents with the rows of their witnesses and their session."""
    return [
        row
        | {
            "witnesses": proof(row["witness"], displaced=not _REUSED.isdisjoint({row.get("cause"), row.get("kind")})),
            "session": sessions.get(row["session_id"]),
            "short": " → ".join(_first_part(name) for name in (row["session_id"] or "").split("->")),
        }
        for row in found
    ]


def _data(rows: Mapping[str, Any]) -> Row:
    """Returns the data of the pictures. Times are ms since 1970, or ms after a picture's first."""
    uris = sorted({row["uri"] for row in rows["uris"]})
    capture = {row["capture_id"]: uris.index(row["uri"]) for row in rows["uris"]}
    points, stairs = (_group(rows[name], _PICTURE) for name in ("points", "stairs"))
    return {
        "verdicts": _VERDICTS,
        "uris": uris,
        "steps": _over_time(rows["arrivals"], rows["steps"]),
        "pictures": [
            _picture(points[session, scope], stairs[session, scope], capture)
            for session, scope in ((one["session_id"], one["scope_key"]) for one in rows["pictures"])
        ],
    }


def _over_time(arrivals: Rows, steps: Steps) -> Row:
    """Returns accepted, unknown and refused arrivals per step, the latter by fate, for steps with arrivals."""
    counts = _counts(arrivals, "step", "verdict", "fate")
    places = sorted({row["step"] for row in arrivals if row["step"] is not None})
    sums = {
        "accepted": (ACCEPTING, FATES),
        "unknown": ((Verdict.UNKNOWN.value,), FATES),
        **{name: (_REFUSED, (fate,)) for name, fate in zip(("harmless", "pending", "lost"), FATES, strict=True)},
    }
    return {
        "t": [(steps.first_ns + place * steps.step_ns) // _MS for place in places],
        "step": steps.step_ns // _MS,
        **{
            name: [sum(counts[place, verdict, fate] for verdict in verdicts for fate in fates) for place in places]
            for name, (verdicts, fates) in sums.items()
        },
    }


_PICTURE = ("session_id", "scope_key")


def _group(rows: Rows, keys: Sequence[str]) -> dict[tuple[str, ...], Rows]:
    groups: dict[tuple[str, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def _picture(points: Rows, stairs: Rows, capture: Mapping[str, int]) -> Row:
    """Returns one picture: columns of a scope's messages by time, and its OrderAcks."""
    timed = sorted((row for row in points if row["captured_ns"] is not None), key=lambda row: row["captured_ns"])
    start = timed[0]["captured_ns"] if timed else 0
    sequences = sorted({row["tx_sequence_id"] for row in timed})

    def after(ns: int) -> float:
        return round((ns - start) / _MS, 3)

    return {
        "start": start / _MS,
        "sequences": [str(sequence) for sequence in sequences],
        "t": [after(row["captured_ns"]) for row in timed],
        "n": [row["tx_sequence_number"] for row in timed],
        "p": [row["previous_tx_sequence_number"] for row in timed],
        "v": [_VERDICTS.index(row["verdict"]) for row in timed],
        "o": [FATES.index(row["fate"]) for row in timed],
        "s": [sequences.index(row["tx_sequence_id"]) for row in timed],
        "l": [None if row["ack_latency_ms"] is None else round(row["ack_latency_ms"], 3) for row in timed],
        "f": [row["last_frame"] for row in timed],
        "c": [capture.get(row["capture_id"]) for row in timed],
        "acks": {"t": [after(row["ns"]) for row in stairs], "n": [row["number"] for row in stairs]},
    }
