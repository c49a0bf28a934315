"""A warehouse made directly, without captures: as many sessions and nights as wanted, with every kind of fate.

A sender has another receiver each night. Nine of ten sessions are clean. Of the others one is stuck, one repeats, one
skips expired numbers, one misses bytes, in turn.
"""

import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from schemas.outcomes import Outcome, count_column
from schemas.table import STRING, Table, array
from schemas.tables import TABLES

BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
FATES = ("stuck", "repeated", "expired", "holed")
CLEAN_PER_FATE = 9
Row = dict[str, Any]
Rows = dict[str, list[Row]]
COUNTS = ("in_order", "new_sequence", "gap_expired", "duplicate", "out_of_order", "unknown")


def make(warehouse: Path, sessions: int, *, messages: int = 30, nights: int = 1) -> None:
    """Write the tables."""
    rows: Rows = {table.name: [] for table in TABLES}
    for night in range(nights):
        _night(rows, sessions, messages, night)
    for table in TABLES:
        write(warehouse, table, rows[table.name])


def write(warehouse: Path, table: Table, rows: list[Row]) -> None:
    """Write the rows as a Delta table."""
    write_deltalake(str(warehouse / table.name), fill(table, rows))


def keyed(table: Table) -> Table:
    """Returns the table as the passes know it: a witness lists keys."""
    columns = (replace(one, type=array(STRING)) if one.name == "witness" else one for one in table.columns)
    return replace(table, columns=tuple(columns))


def fill(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Return the rows as Arrow; columns that they lack are null, or else 0, false or an empty text or list.

    Rows name the packets of a witness by their keys.
    """
    empty = {pa.int64(): 0, pa.int32(): 0, pa.bool_(): False, pa.string(): ""}

    def value(of: pa.Field, row: Row) -> Any:
        found = row.get(of.name, None if of.nullable else [] if pa.types.is_list(of.type) else empty.get(of.type))
        if of.name != "witness" or of.type == pa.list_(pa.string()):
            return found
        return [packet(key) for key in found]

    return pa.Table.from_pylist([{of.name: value(of, row) for of in table.arrow} for row in rows], schema=table.arrow)


def packet(key: str) -> Row:
    """Return the packet of a witness with this key, of which no frame is known."""
    stream_id, _, offset = key.rpartition("@")
    return {"role": "refused", "stream_id": stream_id, "stream_offset": int(offset)}


def _night(rows: Rows, sessions: int, messages: int, night: int) -> None:
    began = BEGAN + timedelta(days=night)
    capture = f"{night:064x}"
    rows["captures"].append(
        {
            "capture_id": capture,
            "uri": f"/data/pcap/night{night}.pcap",
            "size_bytes": sessions * messages * 1000,
            "compression": "none",
            "status": "ok",
            "packet_count": sessions * messages,
            "first_captured_at": began,
            "last_captured_at": began + timedelta(hours=12),
            "ingested_at": began + timedelta(hours=13),
        }
    )
    for number in range(sessions):
        chance = random.Random(f"{night} {number}")
        fate = (
            FATES[(number // (CLEAN_PER_FATE + 1) + night) % len(FATES)]
            if number % (CLEAN_PER_FATE + 1) == 0
            else "clean"
        )
        _session(rows, number, night, fate, messages, began + timedelta(seconds=chance.uniform(0, 36_000)))


def _session(rows: Rows, number: int, night: int, fate: str, messages: int, began: datetime) -> None:
    chance = random.Random(f"{night} {number} {fate}")
    sender, receiver = _queue_manager(f"sender {number}"), _queue_manager(f"receiver {night} {number}")
    there, here = f"10.{number >> 8 & 255}.{number & 255}.1", "10.200.0.1"
    stream, back = f"{there}:50000>{here}:1801#{night}", f"{here}:1801>{there}:50000#{night}"
    session, queue = f"{sender}->{receiver}", f"DIRECT=TCP:{here}\\private$\\orders"
    scope, sequence = f"queue {sender} {queue}", int(began.timestamp()) << 32 | 1
    common = {
        "session_id": session,
        "scope_key": scope,
        "source_queue_manager": sender,
        "destination_queue": queue,
        "tx_sequence_id": sequence,
        "capture_id": f"{night:064x}",
        "stream_id": stream,
    }
    verdicts: list[Row] = []
    for place, (sent, previous, state, verdict, reason, gap) in enumerate(_fates(fate, messages), 1):
        at = began + timedelta(milliseconds=40 * place + chance.uniform(0, 30) + 9_000 * (place // 12))
        accepted = {"duplicate": False, "out_of_order": False, "unknown": None}.get(verdict, True)
        verdicts.append(
            common
            | {
                "stream_offset": 1000 * place,
                "captured_at": at,
                "captured_ns": int(at.timestamp() * 1e6) * 1000,
                "first_frame": number * messages + place,
                "last_frame": number * messages + place,
                "message_id": f"{sender}\\{place}",
                "label": f"order {place}",
                "tx_sequence_number": sent,
                "previous_tx_sequence_number": previous,
                "replay_order": place,
                "incoming_tx_sequence_id": None if state is None else sequence,
                "incoming_tx_sequence_number": state,
                "accepted": accepted,
                "content_hash": 1,
                "verdict": verdict,
                "reason": reason,
                "gap_size": gap,
                "acknowledged_at": at + timedelta(milliseconds=500) if accepted else None,
                "ack_latency_ms": chance.uniform(5, 800) if accepted else None,
                "evidence": "confirmed" if accepted else "none",
            }
        )
    rows["verdicts"] += verdicts
    for row in verdicts[::8]:
        if row["accepted"]:
            at = row["captured_at"] + timedelta(milliseconds=500)
            rows["acks"].append(
                {
                    "stream_id": back,
                    "stream_offset": row["stream_offset"],
                    "capture_id": common["capture_id"],
                    "captured_at": at,
                    "captured_ns": int(at.timestamp() * 1e6) * 1000,
                    "ack_type": "order_ack",
                    "source_queue_manager": receiver,
                    "queue_manager_address": sender,
                    "violations": [],
                    "tx_sequence_id": sequence,
                    "tx_sequence_number": row["tx_sequence_number"],
                }
            )
    _sums(rows, common, verdicts, receiver=receiver, back=back, missing=5_000 if fate == "holed" else 0)


def _queue_manager(name: str) -> str:
    return str(uuid.UUID(int=random.Random(name).getrandbits(128)))


def _fates(fate: str, messages: int) -> Iterator[tuple[int, int, int | None, str, str | None, int]]:
    """Number, previous number, state before, verdict, reason, gap of each message that arrives."""
    yield 1, 0, None, "new_sequence", None, 0
    half = messages // 2
    for sent in range(2, messages + 1):
        if fate == "stuck" and sent >= half:
            if sent > half:
                yield sent, sent - 1, half - 1, "out_of_order", "predecessor_missing", 0
        elif fate == "expired" and sent == half:
            continue
        elif fate == "expired" and sent == half + 1:
            yield sent, half, half - 1, "out_of_order", "predecessor_missing", 0
        elif fate == "expired" and sent == half + 2:
            yield sent, half - 1, half - 1, "gap_expired", None, 2
        elif fate == "holed" and sent == half:
            yield sent, sent - 1, sent - 3, "unknown", "capture_gap", 0
        else:
            yield sent, sent - 1, sent - 1, "in_order", None, 0
        if fate == "repeated" and sent % 7 == 0:
            yield sent, sent - 1, sent, "duplicate", None, 0


def _sums(rows: Rows, common: Row, verdicts: list[Row], *, receiver: str, back: str, missing: int) -> None:
    """What the verdicts add up to, in the other tables."""
    counts = {verdict: sum(row["verdict"] == verdict for row in verdicts) for verdict in COUNTS}
    span = {"first_captured_at": verdicts[0]["captured_at"], "last_captured_at": verdicts[-1]["captured_at"]}
    sender, stream = common["source_queue_manager"], common["stream_id"]
    address, _, peer = stream.partition("#")[0].partition(">")
    for stream_id, ends in ((stream, (address, peer)), (back, (peer, address))):
        src, dst = (end.partition(":") for end in ends)
        rows["streams"].append(
            {
                "stream_id": stream_id,
                "connection_id": stream,
                "from_initiator": stream_id == stream,
                "src_ip": src[0],
                "src_port": int(src[2]),
                "dst_ip": dst[0],
                "dst_port": int(dst[2]),
                "recovered_bytes": 1000 * len(verdicts),
                "missing_bytes": missing if stream_id == stream else 0,
                **span,
            }
        )
        names = (sender, receiver) if stream_id == stream else (receiver, sender)
        rows["stream_ends"].append(
            {
                **rows["streams"][-1],
                **dict(zip(("sender", "receiver"), names, strict=True)),
                **dict(zip(("sender_guid", "receiver_guid"), names, strict=True)),
                "session_id": "->".join(names),
                "address": src[0],
                **{f"{end}_ns": int(span[f"{end}_captured_at"].timestamp() * 1e6) * 1000 for end in ("first", "last")},
            }
        )
        rows["handshakes"].append(
            {
                "stream_id": stream_id,
                "handshake_type": "establish_connection",
                "violations": [],
                "client_guid": sender,
                "server_guid": receiver,
                "capture_id": common["capture_id"],
            }
        )
    if missing:
        rows["stream_gaps"].append(
            {"stream_id": stream, "stream_offset": 500 + 1000 * (len(verdicts) // 2), "length": missing}
        )
    outcomes = list(_outcomes(common, verdicts))
    rows["outcomes"] += outcomes
    became = {count_column(one): sum(row["outcome"] == one for row in outcomes) for one in Outcome}
    became["delivered"] = sum(row["accepted"] is True for row in verdicts)
    rows["sequences"].append(
        common | counts | span | became | {"messages": len(verdicts), "first_number": 1, "last_number": len(verdicts)}
    )
    rows["sessions"].append(
        {
            "session_id": common["session_id"],
            "sender": sender,
            "receiver": receiver,
            "replay_scope": "queue",
            "acks_agree_with": "unknown",
            "connections": 1,
            "messages": len(verdicts),
            "transactional": len(verdicts),
            "missing_bytes": missing,
            **counts,
            **became,
            **span,
        }
    )
    _findings(rows, common, verdicts, counts)
    _incident(rows, common, span, became)


def _incident(rows: Rows, common: Row, span: Row, became: Row) -> None:
    """One incident, if anything was found of the sequence."""
    findings = [row for row in rows["findings"] if row["scope_key"] == common["scope_key"] and "incident_id" not in row]
    if not findings:
        return
    figures = {
        "lost": became["given_up"],
        "pending": became["pending"] + became["awaited"],
        "unknown": became["unknown_outcome"],
        "expired": became["expired_unseen"],
    }
    outcome = next((name for name in ("lost", "pending", "unknown") if figures[name]), "repaired")
    severity = {"lost": "error", "repaired": "info"}.get(outcome, "warning")
    identity = f"{common['session_id']} {common['scope_key']}"
    for row in findings:
        row["incident_id"] = f"{random.Random(identity).getrandbits(64):016x}"
    rows["incidents"].append(
        common
        | figures
        | {
            "incident_id": findings[0]["incident_id"],
            "destination_queues": [common["destination_queue"]],
            "ongoing": outcome == "pending",
            "advice": "Look for it.",
            "cause": "message_missing",
            "outcome": outcome,
            "severity": severity,
            "tx_sequence": "2026-03-02T18:00:00Z#1",
            "sequences": 1,
            "began_at": findings[0]["found_at"],
            "ended_at": findings[-1]["found_at"],
            "last_captured_at": span["last_captured_at"],
            "findings": len(findings),
            "explanation": f"Something of {common['destination_queue']} is {outcome}.",
            "witness": findings[0]["witness"],
        }
    )


def _outcomes(common: Row, verdicts: list[Row]) -> Iterator[Row]:
    """What became of the messages that were not plainly delivered, and of numbers never seen."""
    last = next(row for row in reversed(verdicts) if row["accepted"] is not False)
    for number in range(1, verdicts[-1]["tx_sequence_number"] + 1):
        seen = [row for row in verdicts if row["tx_sequence_number"] == number]
        if any(row["accepted"] for row in seen):
            continue
        skipped = number < last["tx_sequence_number"]
        if not seen:
            outcome = Outcome.EXPIRED_UNSEEN if skipped else Outcome.AWAITED
            yield common | {
                "tx_sequence_number": number,
                "numbers": 1,
                "outcome": outcome,
                "lost": False,
                "witness": [],
            }
            continue
        first = seen[0]
        refused = Outcome.GIVEN_UP if skipped else Outcome.PENDING
        outcome = Outcome.UNKNOWN if first["accepted"] is None else refused
        behind = (row for row in verdicts if row["accepted"] and row["tx_sequence_number"] > number)
        places = [first, next(behind)] if outcome is Outcome.GIVEN_UP else [first]
        yield {
            **{name: first[name] for name in (*common, "tx_sequence_number", "message_id", "label")},
            "numbers": 1,
            "outcome": outcome,
            "content_hash": 1,
            "arrivals": len(seen),
            "refusals": len(seen),
            "lost": None if outcome is Outcome.UNKNOWN else outcome is Outcome.GIVEN_UP,
            "first_seen_at": first["captured_at"],
            "last_seen_at": seen[-1]["captured_at"],
            "witness": [f"{row['stream_id']}@{row['stream_offset']}" for row in places],
            "explanation": f"It is {outcome} in {first['destination_queue']}.",
        }


def _findings(rows: Rows, common: Row, verdicts: list[Row], counts: Row) -> None:
    kinds = (
        ("out_of_order", "stuck_sequence", "error", "were refused, and nothing of the sequence was accepted since"),
        ("out_of_order", "out_of_order", "warning", "were refused, and had not been accepted before"),
        ("gap_expired", "gap_expired", "warning", "were accepted over numbers that expired before they were sent"),
        ("unknown", "capture_gap", "warning", "cannot be judged, as the capture is missing bytes before them"),
        ("duplicate", "duplicates", "info", "arrived again after the receiver had them"),
    )
    for verdict, kind, severity, what in kinds:
        if not counts[verdict] or (kind == "stuck_sequence" and verdicts[-1]["accepted"]):
            continue
        place = next(i for i, row in enumerate(verdicts) if row["verdict"] == verdict)
        rows["findings"].append(
            common
            | {
                "kind": kind,
                "severity": severity,
                "found_at": verdicts[place]["captured_at"],
                "messages": counts[verdict],
                "explanation": f"{counts[verdict]} of queue {common['destination_queue']} {what}.",
                "witness": [f"{common['stream_id']}@{row['stream_offset']}" for row in verdicts[place - 1 : place + 1]],
            }
        )
