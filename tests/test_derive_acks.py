"""Messages that came back to their sender, and broken transactions."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from schemas.messages import MESSAGES
from schemas.replay import ENDS, TRANSACTIONS
from schemas.table import Table
from udfs.derive.facts.receivers import negative_acks, returned_messages
from udfs.derive.facts.senders import broken_transactions
from udfs.derive.tables import schema_of
from udfs.replay.findings.receivers import Returned
from udfs.replay.findings.senders import PartlyDelivered

Row = Mapping[str, Any]
S = 1_000_000_000
BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
SEQUENCE = 1772474400 << 32 | 1
Q_EXCEED_QUOTA, RECEIVE_TIMEOUT = 0x8004, 0xC002


def frame(table: Table, rows: Sequence[Row] = ()) -> pl.DataFrame:
    """Returns rows of a table; columns that they lack are null."""
    return pl.DataFrame(list(rows), schema_of(table.arrow))


ON = frame(ENDS, [{"stream_id": stream, "session_id": f"session {stream}"} for stream in "ab"])


def message(stream: str, at: int | None, message_id: str, **others: Any) -> Row:
    time = {} if at is None else {"captured_ns": at * S, "captured_at": BEGAN + timedelta(seconds=at)}
    place = {"stream_id": stream, "stream_offset": at or 0, "message_id": message_id, "message_class": 0}
    return {**place, **time, "destination_queue": "orders", "transactional": False, **others}


def negative(stream: str, at: int | None, named: str | None, message_class: int = Q_EXCEED_QUOTA) -> Row:
    queue = {"destination_queue": "admin", "correlation_id": named, "message_class": message_class}
    return message(stream, at, f"ack {at}", **queue)


def returned(*rows: Row) -> list[Returned]:
    messages = frame(MESSAGES, rows)
    found = returned_messages(messages, negative_acks(messages, ON), ON)
    named = [Returned(**{name: row[name] for name in Returned._fields}) for row in found.to_dicts()]
    return sorted(named, key=lambda one: (one.message_class, one.session_id, one.destination_queue or ""))


def test_messages_that_came_back_by_class_session_and_queue() -> None:
    limits = {"time_to_be_received": 30, "time_to_reach_queue": 4}
    found = returned(
        message("a", 1, "m1", transactional=True, **limits),
        message("a", 3, "m1", transactional=True, destination_queue="resent"),
        message("a", 2, "m2"),
        message("a", 2, "m3", destination_queue="other"),
        negative("b", 9, "m1"),
        negative("b", 8, "m1"),
        negative("b", 10, "m2"),
        negative("b", 11, "m3"),
        negative("b", 12, "m1", RECEIVE_TIMEOUT),
        negative("b", 13, "never captured"),
    )
    of_orders = Returned(
        session_id="session a",
        destination_queue="orders",
        found_at=BEGAN + timedelta(seconds=8),
        messages=2,
        message_class=Q_EXCEED_QUOTA,
        transactional=1,
        key="b@8",
        message_id="m1",
        about_key="a@1",
        seconds=7.0,
        time_to_reach_queue=4,
        time_to_be_received=30,
    )
    assert found[0] == of_orders
    assert [(one.session_id, one.destination_queue, one.messages, one.about_key, one.seconds) for one in found[1:]] == [
        ("session a", "other", 1, "a@2", 9.0),
        ("session b", None, 1, None, None),
        ("session a", "orders", 1, "a@1", 11.0),
    ]


def test_a_message_without_a_time_is_the_first() -> None:
    (one,) = returned(message("a", 1, "m1"), message("b", None, "m1"), negative("b", 3, "m1"), negative("b", 2, "m1"))
    assert (one.about_key, one.seconds, one.key) == ("b@0", None, "b@2")
    (one,) = returned(message("a", 1, "m1"), negative("b", 3, "m1"), negative("b", None, "m1"))
    assert (one.found_at, one.key, one.seconds, one.messages) == (None, "b@0", None, 1)


def test_an_acknowledgment_that_names_nothing_is_told_and_counts_no_message() -> None:
    (one,) = returned(negative("b", 3, None))
    assert (one.messages, one.message_id, one.session_id) == (0, None, "session b")
    assert returned() == []


def test_of_broken_transactions_the_first_is_shown() -> None:
    def one(identity: int, at: int | None, **others: Any) -> Row:
        began = None if at is None else BEGAN + timedelta(seconds=at)
        place = {"scope_key": "a", "tx_sequence_id": SEQUENCE, "instance": 1, "tx_transaction_id": identity}
        figures = {"messages": identity, "lost": 0, "pending": 1, "witness": [str(identity)], "session_id": "s"}
        return {**place, **figures, "first_captured_at": began, "partly_delivered": True, **others}

    transactions = frame(
        TRANSACTIONS,
        [
            one(2, 5, lost=1),
            one(3, 4, lost=2),
            one(1, 4, lost=7, partly_delivered=False),
            one(5, 6),
            one(4, None),
            one(7, 1, scope_key="b", partly_delivered=None),
        ],
    )
    rows = broken_transactions(transactions, "partly_delivered", pl.col("lost") > 0)
    assert set(PartlyDelivered._fields) <= set(rows.columns)
    shown = ("has_lost", "messages", "tx_transaction_id", "size", "lost", "found_at", "witness")
    assert sorted(rows.select(shown).rows()) == [
        (False, 2, 4, 4, 0, None, ["4"]),
        (True, 2, 3, 3, 2, BEGAN + timedelta(seconds=4), ["3"]),
    ]
    together = broken_transactions(transactions, "partly_delivered")
    assert together.select("has_lost", "messages", "tx_transaction_id").rows() == [(True, 4, 4)]
    assert broken_transactions(transactions, "interleaved").schema == together.schema
