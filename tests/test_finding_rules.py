"""Findings on messages where their rules meet limits: rows of any number, and in batches that cut sequences.

Which finding an arrival shows is in scenes (tests/scenes_of_verdicts.py) and in tests/test_all_findings.py.
"""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa

from schemas.replay import FindingKind as K
from udfs.replay.findings.finding import Arrival, Message
from udfs.replay.findings.on_messages import (
    CHOSEN,
    FINDING,
    NUMBERED_SEQUENCE,
    Chosen,
    choose_messages,
    choose_of_sequence,
    tell_messages,
)
from udfs.replay.rows import read_rows, write_rows

SECOND = 1_000_000_000
SEQUENCE = 7_319_000_863_706_447_873
PLAIN: dict[str, Any] = dict.fromkeys(Arrival._fields) | {
    "scope_no": 1,
    "sequence": SEQUENCE - (1 << 63),
    "accepted": True,
    "verdict": "in_order",
    "acknowledged": True,
    "evidence": "none",
    "content_hash": 1,
    "fate": "delivered",
    "is_sent_after_all_accepted": False,
    "arrivals": 1,
}
REFUSED = {"accepted": False, "verdict": "out_of_order", "reason": "predecessor_missing", "acknowledged": False}


def arrival(order: int, number: int, *parts: dict[str, Any], **columns: Any) -> Arrival:
    """An arrival: accepted in order, unless told otherwise."""
    given = PLAIN | {"replay_order": order, "number": number, "captured_ns": order * SECOND, "setter": order - 1}
    for part in (*parts, columns):
        given |= part
    return Arrival(**given)


def chosen(*arrivals: Arrival, kind: K) -> list[Chosen]:
    """What is shown of a kind."""
    return [one for one in choose_of_sequence(arrivals) if one.kind == kind]


def test_only_the_message_that_was_resent_first_tells_intervals() -> None:
    arrivals = [
        arrival(at, at % 2, content_hash=at % 2, interval_s=float(at), arrivals=1 + at // 2) for at in range(2, 40)
    ]
    row = chosen(*arrivals, kind=K.RESEND_SCHEDULE)[-1]
    assert row.messages == 19
    assert row.intervals == [float(at) for at in range(2, 26, 2)], "no more than twelve"


def test_a_gap_shows_what_was_refused_before() -> None:
    gap = {"gap_order": 9, "gap_number": 30, "gap_size": 25}
    arrivals = [
        arrival(2, 9, REFUSED, gap),  # more than twenty numbers below
        arrival(3, 10, REFUSED, gap),
        arrival(4, 29, REFUSED, gap),
        arrival(5, 31, REFUSED, gap),
        arrival(9, 30, gap, verdict="gap_expired"),
        arrival(10, 28, REFUSED, gap),
    ]
    rows = chosen(*arrivals, kind=K.GAP_EXPIRED)
    assert [(row.role, row.replay_order) for row in rows] == [
        ("setter", 8), ("first", 9), ("attempt", 3), ("attempt", 4)
    ]  # fmt: skip


def message(number: int, **columns: Any) -> Message:
    """A message as a sentence shows it."""
    given: dict[str, Any] = dict.fromkeys(Message._fields) | {
        "key": f"s@{number}",
        "found_at": datetime(2026, 3, 2, tzinfo=UTC),
        "session_id": "a->b",
        "scope_key": "session a->b a",
        "message_id": f"a\\{number}",
        "tx_sequence_id": Decimal(SEQUENCE),
        "number": number,
        "previous": number - 1,
        "state_id": Decimal(SEQUENCE),
        "state_number": 1,
        "gap_size": 0,
    }
    return Message(**given | columns)


def test_the_passes_hold_one_sequence_at_a_time() -> None:
    """Arrivals and messages shown come in batches, which cut sequences anywhere."""
    arrivals = [arrival(order, order, REFUSED, sequence=order // 3 - (1 << 63), fate="lost") for order in range(1, 31)]
    table = pa.Table.from_pylist([one._asdict() for one in arrivals])
    whole = table.sort_by([(name, "ascending") for name in (*NUMBERED_SEQUENCE, "replay_order")])
    cut = [choose(whole, rows) for rows in (100, 4, 1)]
    assert all(some == others for some, others in pairwise(cut))
    rows = list(read_rows(cut[0], Chosen))
    assert len({(row.sequence, row.kind) for row in rows}) == 11
    shown = [
        row._asdict() | message(row.replay_order, tx_sequence_id=row.sequence + (1 << 63))._asdict() for row in rows
    ]
    batches = pa.Table.from_pylist(shown).sort_by([(name, "ascending") for name in FINDING]).to_batches(3)
    found = [row for batch in tell_messages(batches) for row in batch.to_pylist()]
    assert [(row["tx_sequence_id"], row["messages"]) for row in found] == [
        (Decimal(of), len(list(some))) for of, some in groupby(range(1, 31), lambda order: order // 3)
    ]


def choose(rows: pa.Table, size: int) -> list[pa.RecordBatch]:
    """Chooses from batches of so many rows."""
    return list(choose_messages(rows.to_batches(size)))


def test_no_rows_give_no_batches() -> None:
    assert list(write_rows([], CHOSEN)) == []
    assert list(tell_messages([])) == []
