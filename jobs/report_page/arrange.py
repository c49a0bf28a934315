"""Arranges the few rows that the report collects as plain values for the template."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs.app.config import Config
from schemas.replay import Reason, Severity, Verdict

Row = dict[str, Any]
Rows = list[Row]
_STEPS = 120
"""Most steps of time in the picture of the period, unless that is longer than 120 days."""
_SECOND = 10**9
_STEP_NS = (_SECOND // 100, _SECOND // 10, *(_SECOND * s for s in (1, 5, 15, 60, 300, 900, 3600, 14_400)))
_DAY_NS = 86_400 * _SECOND
_SEVERITIES = [severity.value for severity in reversed(Severity)]
_VERDICTS = [verdict.value for verdict in Verdict]
_ACCEPTED = (Verdict.IN_ORDER.value, Verdict.NEW_SEQUENCE.value, Verdict.GAP_EXPIRED.value)
_MS = 10**6

REASONS: Mapping[str, str] = {
    Reason.NO_PRIOR_STATE: "The captures begin too late to show what the receiver had accepted before.",
    Reason.CAPTURE_GAP: "Bytes are missing from the captures before them, and may hold the numbers skipped.",
}
"""Why a message cannot be judged."""


def steps(extent: Row) -> tuple[int, int]:
    """Returns where the picture of the period begins, and the length of its steps, in ns."""
    first, last = extent["first_ns"] or 0, extent["last_ns"] or 0
    step = next((length for length in _STEP_NS if last - first < length * _STEPS), _DAY_NS)
    return first // step * step, step


def witness_keys(findings: Rows) -> list[tuple[str, int]]:
    """Returns the distinct keys in the findings' witnesses, as (stream_id, stream_offset)."""
    return sorted({key for row in findings for text in row["witness"] if (key := _key(text)) is not None})


def unseen_keys(rows: Mapping[str, Rows]) -> list[tuple[str, int]]:
    """Returns the witnesses' keys that no row of verdicts has."""
    seen = {(row["stream_id"], row["stream_offset"]) for row in rows["witnesses"]}
    return [key for key in witness_keys(rows["findings"]) if key not in seen]


def _key(text: str) -> tuple[str, int] | None:
    stream_id, _, offset = text.rpartition("@")
    return (stream_id, int(offset)) if stream_id and offset.isdecimal() else None


def pictures(rows: Mapping[str, Rows]) -> list[tuple[str, str, str, str]]:
    """Returns the drawn scopes as (session_id, scope_key, source_queue_manager, receiver), a session's worst first."""
    receivers = {row["session_id"]: row["receiver"] for row in rows["sessions"]}
    keys = {(row["session_id"], row["place"], row["scope_key"], row["source_queue_manager"]) for row in rows["points"]}
    return [(session, scope, source, receivers[session]) for session, _, scope, source in sorted(keys)]


def page(rows: Mapping[str, Rows], extent: Row, config: Config, place: str, since: datetime | None) -> Row:
    """Returns all values that the template uses."""
    sessions = _sessions(rows)
    kinds = sorted(rows["kinds"], key=lambda row: (_gravity(row["severity"]), -row["findings"], row["kind"]))
    return {
        "place": place,
        "only": list(config.session),
        "since": None if since is None else f"{since:%Y-%m-%d %H:%M:%S}",
        "first_ns": extent["first_ns"],
        "last_ns": extent["last_ns"],
        "numbers": _numbers(rows, only=bool(config.session)),
        "kinds": [row | {"listed": _listed(rows, row["severity"], row["kind"], sessions)} for row in kinds],
        "earlier": max(sum(row["count"] for row in rows["every_finding"]) - sum(row["findings"] for row in kinds), 0),
        "severities": _SEVERITIES,
        "sessions": list(sessions.values()),
        "session_count": extent["sessions"],
        "limits": {
            name: getattr(config, name)
            for name in ("listed_findings", "listed_sessions", "drawn_sessions", "drawn_pictures", "drawn_points")
        },
        "unknown": [
            {"reason": reason, "why": REASONS.get(reason, reason), "messages": messages}
            for (verdict, reason), messages in sorted(_counts(rows["outcomes"], "verdict", "reason").items(), key=str)
            if verdict == Verdict.UNKNOWN.value
        ],
        "caveats": _caveats(rows["caveats"]),
        "data": _data(rows, *steps(extent)),
    }


def _gravity(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else -1


def _counts(outcomes: Rows, *keys: str) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in outcomes:
        counts[tuple(row[key] for key in keys)] += row["messages"]
    return counts


def _numbers(rows: Mapping[str, Rows], *, only: bool) -> Row:
    """Returns the figures of the period."""
    counts = _counts(rows["outcomes"], "verdict")
    of = {verdict: counts[(verdict,)] for verdict in _VERDICTS}
    files = [row for row in rows["caveats"] if row["what"].startswith("capture ")]
    if only:
        missing = sum(row["missing_bytes"] for row in rows["sessions"])
    else:
        missing = next(row["bytes"] or 0 for row in rows["caveats"] if row["what"] == "missing")
    lost = rows["lost"][0]
    return {
        "messages": sum(of.values()),
        "accepted": sum(of[verdict] for verdict in _ACCEPTED),
        "duplicate": of[Verdict.DUPLICATE.value],
        "out_of_order": of[Verdict.OUT_OF_ORDER.value],
        "unknown": of[Verdict.UNKNOWN.value],
        "lost": lost["numbers"],
        "lost_sessions": lost["sessions"],
        "expired": sum(row["expired"] or 0 for row in rows["outcomes"]),
        "captures": sum(row["many"] for row in files),
        "missing_bytes": missing,
    }


def _sessions(rows: Mapping[str, Rows]) -> dict[str, Row]:
    """Returns the listed sessions by `session_id`, the worst first, with coverage and the numbers of their pictures."""
    covered = {row["session_id"]: row for row in rows["coverage"]}
    drawn: dict[str, Rows] = defaultdict(list)
    points = _grouped(rows["points"], _PICTURE)
    for place, (session_id, scope_key, *_) in enumerate(pictures(rows)):
        drawn[session_id].append(points[session_id, scope_key][0] | {"number": place})
    nothing = {"recovered_bytes": 0, "unreadable_bytes": 0, "mid_stream": 0, "src_ip": "", "dst_ip": ""}
    return {
        row["session_id"]: row
        | {name: covered.get(row["session_id"], nothing)[name] for name in nothing}
        | {
            "number": place,
            "short": f"{_short(row['sender'])} → {_short(row['receiver'])}",
            "accepted": sum(row[verdict] for verdict in _ACCEPTED),
            "covered": _covered(row, covered.get(row["session_id"], nothing)),
            "judged": sum(row[verdict] for verdict in _VERDICTS),
            "pictures": drawn[row["session_id"]],
        }
        for place, row in enumerate(rows["sessions"], 1)
    }


def _covered(session: Row, covered: Row) -> float | None:
    """Returns the share of a session's bytes that became packets: the column, else recovered of all bytes."""
    if session.get("byte_coverage") is not None:
        return float(session["byte_coverage"])
    sent = covered["recovered_bytes"] + session["missing_bytes"]
    return (covered["recovered_bytes"] - covered["unreadable_bytes"]) / sent if sent else None


def _short(queue_manager: str) -> str:
    """Returns the first part of a GUID; a whole address."""
    return queue_manager.partition("-")[0]


def _listed(rows: Mapping[str, Rows], severity: str, kind: str, sessions: Mapping[str, Row]) -> Rows:
    """Returns the listed findings of a severity and kind, the largest first, with the rows that each witness names."""
    held = {(row["stream_id"], row["stream_offset"]): row for row in rows["witnesses"] + rows["others"]}

    def witness(text: str) -> Row:
        key = _key(text)
        return {"key": text, "row": None if key is None else held.get(key)}

    return [
        row
        | {
            "witnesses": [witness(text) for text in row["witness"]],
            "session": sessions.get(row["session_id"]),
            "short": " → ".join(_short(name) for name in (row["session_id"] or "").split("->")),
        }
        for row in sorted(rows["findings"], key=lambda row: row["place"])
        if (row["severity"], row["kind"]) == (severity, kind)
    ]


def _caveats(rows: Rows) -> dict[str, Any]:
    """Returns sums by name, and damaged or unusable input as rows."""
    sums = {row["what"]: row for row in rows if row["reason"] is None and not row["what"].startswith("capture ")}
    damages = sorted((row for row in rows if row["reason"] is not None), key=lambda row: (row["what"], row["reason"]))
    return {"sums": sums, "damages": damages}


def _data(rows: Mapping[str, Rows], first: int, step: int) -> Row:
    """Returns the data of the pictures. Times are ms since 1970, or ms after a picture's first."""
    uris = sorted({row["uri"] for row in rows["uris"]})
    capture = {row["capture_id"]: uris.index(row["uri"]) for row in rows["uris"]}
    points, stairs, holes = (_grouped(rows[name], keys) for name, keys in _GROUPS)
    return {
        "verdicts": _VERDICTS,
        "uris": uris,
        "steps": _over_time(rows["outcomes"], first, step),
        "pictures": [
            _picture(points[session, scope], stairs[session, scope], holes[(session,)], capture)
            for session, scope, *_ in pictures(rows)
        ],
    }


def _over_time(outcomes: Rows, first: int, step: int) -> Row:
    """Returns accepted, refused and unknown messages per step, for steps with messages."""
    counts = _counts(outcomes, "step", "verdict")
    places = sorted({row["step"] for row in outcomes if row["step"] is not None})
    sums = {
        "accepted": _ACCEPTED,
        "refused": (Verdict.DUPLICATE.value, Verdict.OUT_OF_ORDER.value),
        "unknown": (Verdict.UNKNOWN.value,),
    }
    return {
        "t": [(first + place * step) // _MS for place in places],
        "step": step // _MS,
        **{
            name: [sum(counts[place, verdict] for verdict in verdicts) for place in places]
            for name, verdicts in sums.items()
        },
    }


_PICTURE = ("session_id", "scope_key")
_GROUPS = (("points", _PICTURE), ("stairs", _PICTURE), ("holes", ("session_id",)))


def _grouped(rows: Rows, keys: Sequence[str]) -> dict[tuple[str, ...], Rows]:
    groups: dict[tuple[str, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def _picture(points: Rows, stairs: Rows, holes: Rows, capture: Mapping[str, int]) -> Row:
    """Returns one picture: columns of a scope's messages by time, its OrderAcks, and its session's missing bytes."""
    timed = sorted((row for row in points if row["captured_ns"] is not None), key=lambda row: row["captured_ns"])
    start = timed[0]["captured_ns"] if timed else 0
    sequences = sorted({row["tx_sequence_id"] for row in timed})

    timed_holes = [row for row in holes if row["ns"] is not None]

    def after(ns: int) -> float:
        return round((ns - start) / _MS, 3)

    return {
        "start": start / _MS,
        "untimed": len(points) - len(timed),
        "sequences": [str(sequence) for sequence in sequences],
        "t": [after(row["captured_ns"]) for row in timed],
        "n": [row["tx_sequence_number"] for row in timed],
        "p": [row["previous_tx_sequence_number"] for row in timed],
        "v": [_VERDICTS.index(row["verdict"]) for row in timed],
        "s": [sequences.index(row["tx_sequence_id"]) for row in timed],
        "l": [None if row["ack_latency_ms"] is None else round(row["ack_latency_ms"], 3) for row in timed],
        "f": [row["last_frame"] for row in timed],
        "c": [capture.get(row["capture_id"]) for row in timed],
        "acks": {"t": [after(row["ns"]) for row in stairs], "n": [row["number"] for row in stairs]},
        "holes": {"t": [after(row["ns"]) for row in timed_holes], "b": [row["missing_bytes"] for row in timed_holes]},
    }
