"""The rules of findings on messages, on arrivals that are written down: no Spark, no capture."""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pytest

from schemas.replay import FINDINGS, Severity
from schemas.replay import FindingKind as K
from schemas.wire import MessageClass
from udfs.replay.findings.finding import Arrival, Message
from udfs.replay.findings.on_messages import (
    CHOSEN,
    FINDING,
    NUMBERED_SEQUENCE,
    RULES,
    Chosen,
    choose_messages,
    choose_of_sequence,
    tell_finding,
    tell_messages,
)
from udfs.replay.rows import read_rows, write_rows

INFO, WARNING, ERROR = Severity
SECOND = 1_000_000_000
SEQUENCE = 7_319_000_863_706_447_873
NAME = "sequence 2024-01-01T05:41:22Z#1"
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
DUPLICATE = {"accepted": False, "verdict": "duplicate", "original": 1, "original_hash": 1}
UNKNOWN = {"accepted": None, "verdict": "unknown", "reason": "capture_gap", "acknowledged": False}
WATCHED = {"answers_whole": True, "watched_ns": 20 * SECOND, "captured_ns": 0}
DENIED, PURGED = MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED, MessageClass.MQMSG_CLASS_NACK_Q_PURGED
AGAIN = {"previous_arrival": 2, "arrivals": 2}


def arrival(order: int, number: int, *parts: dict[str, Any], **columns: Any) -> Arrival:
    """An arrival: accepted in order, unless told otherwise."""
    given = PLAIN | {"replay_order": order, "number": number, "captured_ns": order * SECOND, "setter": order - 1}
    for part in (*parts, columns):
        given |= part
    return Arrival(**given)


SHOWN: dict[K, tuple[Severity, Arrival]] = {
    K.DUPLICATES: (INFO, arrival(2, 1, DUPLICATE)),
    K.DUPLICATES_DIFFER: (ERROR, arrival(2, 1, DUPLICATE, content_hash=2)),
    K.RESEND_SCHEDULE: (INFO, arrival(2, 1, interval_s=30.0)),
    K.OUT_OF_ORDER: (WARNING, arrival(2, 3, REFUSED, fate="pending")),
    K.STUCK_SEQUENCE: (WARNING, arrival(3, 3, REFUSED, AGAIN, fate="pending")),
    K.GAP_EXPIRED: (WARNING, arrival(2, 3, verdict="gap_expired")),
    K.CAPTURE_GAP: (WARNING, arrival(2, 3, UNKNOWN)),
    K.MISSED_BY_CAPTURE: (INFO, arrival(2, 3, UNKNOWN, acknowledged=True)),
    K.CLOCKS_DIFFER: (WARNING, arrival(2, 3, UNKNOWN, reason="clocks_differ")),
    K.CONTRADICTED: (ERROR, arrival(2, 3, REFUSED, evidence="contradicted")),
    K.STATE_FELL: (ERROR, arrival(2, 1, state_number=2, next_ack_agrees_with="literal")),
    K.REFUSED_FOR_CAUSE: (ERROR, arrival(1, 1, final_ack_class=DENIED)),
    K.NOT_RECEIVED_BY_APPLICATION: (WARNING, arrival(1, 1, final_ack_class=PURGED)),
    K.UNACKNOWLEDGED: (WARNING, arrival(1, 1, WATCHED, acknowledged=False)),
    K.SLOW_ACKNOWLEDGMENT: (WARNING, arrival(1, 1, WATCHED, ack_latency_ms=10_501.0)),
}
"""An arrival that one kind concerns, and no other kind."""
NOT_SHOWN: dict[str, Arrival] = {
    "in order": arrival(1, 1),
    "a resend with another previous number": arrival(2, 1, DUPLICATE, AGAIN, accepted=True, verdict="in_order"),
    "acknowledged just in time": arrival(1, 1, WATCHED, ack_latency_ms=10_500.0),
    "late, where an answer may be in missing bytes": arrival(1, 1, WATCHED, answers_whole=False, ack_latency_ms=1e5),
    "no answer yet": arrival(1, 1, WATCHED, acknowledged=False, watched_ns=10_500_000_000),
    "no answer, where answers take another path": arrival(1, 1, acknowledged=False),
    "clocks differ, but it was acknowledged": arrival(2, 3, UNKNOWN, reason="clocks_differ", acknowledged=True),
    "the state before it is lower": arrival(2, 3, state_number=2, next_ack_agrees_with="literal"),
    "read from its queue": arrival(1, 1, final_ack_class=MessageClass.MQMSG_CLASS_ACK_RECEIVE),
    "refused for a cause before": arrival(3, 1, AGAIN, final_ack_class=DENIED),
    "refused again, then accepted": arrival(3, 3, REFUSED, AGAIN, fate="delivered"),
}


def kinds(*arrivals: Arrival) -> dict[K, Severity]:
    """The findings on a sequence."""
    return {K(chosen.kind): Severity(chosen.severity) for chosen in choose_of_sequence(arrivals)}


@pytest.mark.parametrize("kind", SHOWN)
def test_an_arrival_shows_one_kind(kind: K) -> None:
    severity, shown = SHOWN[kind]
    assert kinds(shown) == {kind: severity}


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_an_arrival_shows_nothing(name: str) -> None:
    assert kinds(NOT_SHOWN[name]) == {}


def test_every_rule_has_an_arrival() -> None:
    assert {rule.kind for rule in RULES} == {*SHOWN, K.SEQUENCE_REGRESSED}
    assert len({rule.kind for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    ("columns", "is_shown"),
    [
        ({"reason": "stale_sequence", "is_below_accepted": True}, True),
        ({"reason": "late", "is_below_accepted": True, "is_sent_after_all_accepted": True}, True),
        ({"reason": "late", "is_below_accepted": True}, False),
        ({"reason": "stale_sequence", "is_below_accepted": False}, False),
        ({"reason": "stale_sequence", "is_below_accepted": True, "previous_arrival": 1}, False),
    ],
)
def test_a_sender_goes_back(columns: dict[str, Any], is_shown: bool) -> None:
    assert (K.SEQUENCE_REGRESSED in kinds(arrival(2, 1, REFUSED, columns))) is is_shown


def chosen(*arrivals: Arrival, kind: K) -> list[Chosen]:
    """What is shown of a kind."""
    return [one for one in choose_of_sequence(arrivals) if one.kind == kind]


def test_the_gravest_message_gives_the_severity_and_the_first_one_the_place() -> None:
    fates = ("delivered", "pending", "lost", "lost", "unknown")
    arrivals = [arrival(at, at + 1, REFUSED, fate=fate) for at, fate in enumerate(fates, 2)]
    rows = chosen(*arrivals, kind=K.OUT_OF_ORDER)
    assert {(row.severity, row.messages, row.delivered, row.lost, row.pending) for row in rows} == {
        ("error", 5, 1, 2, 1)
    }
    assert [(row.role, row.replay_order) for row in rows] == [("setter", 1), ("first", 2)]


def test_only_the_message_that_was_resent_first_tells_intervals() -> None:
    arrivals = [
        arrival(at, at % 2, content_hash=at % 2, interval_s=float(at), arrivals=1 + at // 2) for at in range(2, 40)
    ]
    row = chosen(*arrivals, kind=K.RESEND_SCHEDULE)[-1]
    assert row.messages == 19
    assert row.intervals == [float(at) for at in range(2, 26, 2)], "no more than twelve"


def test_a_sequence_has_a_finding_for_each_cause() -> None:
    arrivals = [arrival(at, at, final_ack_class=DENIED, cause=at // 2) for at in range(1, 6)]
    assert [(row.cause, row.messages) for row in chosen(*arrivals, kind=K.REFUSED_FOR_CAUSE)] == [
        (0, 1),
        (1, 2),
        (2, 2),
    ]


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


def explanation(*arrivals: Arrival, **columns: Any) -> object:
    """The sentence of the only finding on a sequence; `columns` are of its first message."""
    shown = (
        (row, message(row.replay_order, **columns if row.role == "first" else {}))
        for row in choose_of_sequence(arrivals)
    )
    return dict(zip(FINDINGS.names, tell_finding(shown), strict=True))["explanation"]


REFUSALS = (arrival(3, 3, REFUSED, fate="lost"), arrival(4, 4, REFUSED, fate="delivered"))
SENTENCES = [
    (
        REFUSALS,
        {"state_number": None},
        (
            f"2 messages of {NAME} arrived out of order and were refused; 1 was accepted later, 1 was never accepted "
            "and is lost. The first is number 3, which needs number 2; the receiver stood at: not known."
        ),
    ),
    (
        (arrival(3, 3, REFUSED, fate="pending"), arrival(4, 4, REFUSED, fate="pending")),
        {"state_id": Decimal(SEQUENCE - 1)},
        (
            f"2 messages of {NAME} arrived out of order and were refused; all are still to be accepted. The first is "
            "number 3, which needs number 2; the receiver stood at: number 1 of sequence 2024-01-01T05:41:22Z#0."
        ),
    ),
    (
        (arrival(3, 3, REFUSED, fate="pending"), *(arrival(at, at, REFUSED, fate="unknown") for at in (4, 5))),
        {},
        (
            f"3 messages of {NAME} arrived out of order and were refused; 1 is still to be accepted, 2 have an unknown "
            "outcome. The first is number 3, which needs number 2; the receiver stood at: number 1."
        ),
    ),
    (
        (arrival(1, 1, final_ack_class=0x8FFF),),
        {"final_ack_class": 0x8FFF},
        (
            f"The receiver refused 1 message of {NAME}, as a FinalAck says: for a reason that the documents do not "
            "name (class 36863). The first is number 1. Look for the class in [MC-MQAC] 2.2.2.9."
        ),
    ),
    (
        (arrival(1, 1, interval_s=30.04), arrival(2, 1, interval_s=-0.04)),
        {},
        (
            f"No OrderAck came in time for {NAME}, so the sender sent number 1 again on the same connection, after "
            "30.0, 0.0 s: not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry "
            "settings set them."
        ),
    ),
]


@pytest.mark.parametrize(("arrivals", "columns", "sentence"), SENTENCES)
def test_a_finding_is_plain_sentences(arrivals: tuple[Arrival, ...], columns: dict[str, Any], sentence: str) -> None:
    assert explanation(*arrivals, **columns) == sentence


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
