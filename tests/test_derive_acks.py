"""Facts about acknowledgments and transactions, from frames."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from schemas.messages import MESSAGES
from schemas.replay import ENDS, SEQUENCES, TRANSACTIONS, VERDICTS
from schemas.table import Table
from udfs.derive.facts.receivers import (
    in_last_sequence,
    negative_acks,
    refused_meanwhile,
    repeated_acks,
    returned_messages,
)
from udfs.derive.facts.senders import broken_transactions
from udfs.derive.tables import schema_of
from udfs.replay.findings.receivers import RepeatedOrderAck, Returned
from udfs.replay.findings.senders import PartlyDelivered

Row = Mapping[str, Any]
S = 1_000_000_000
BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
SEQUENCE = 1772474400 << 32 | 1
PAIRED = {
    **dict.fromkeys(("ack_type", "receiver", "source_queue_manager", "key"), pl.String),
    **dict.fromkeys(("sequence", "number", "ns"), pl.Int64),
}
Q_EXCEED_QUOTA, RECEIVE_TIMEOUT, ACK_RECEIVE = 0x8004, 0xC002, 0x4000


def frame(table: Table, rows: Sequence[Row] = ()) -> pl.DataFrame:
    """Returns rows of a table; columns that they lack are null."""
    return pl.DataFrame(list(rows), schema_of(table.arrow))


def order_acks(*answers: tuple[int, int], receiver: str = "hub", kind: str = "order_ack") -> pl.DataFrame:
    """Returns acknowledgments of these numbers, after so many seconds, in the opposite order."""
    rows = [
        {"ack_type": kind, "receiver": receiver, "source_queue_manager": "guid", "key": f"{receiver}@{at}"}
        | {"sequence": SEQUENCE - (1 << 63), "number": number, "ns": at * S}
        for number, at in reversed(answers)
    ]
    return pl.DataFrame(rows, PAIRED)


def arrival(number: int, at: int | None, verdict: str, **others: Any) -> Row:
    place = {"scope_key": "scope", "tx_sequence_id": SEQUENCE, "tx_sequence_number": number, "verdict": verdict}
    names = {"source_queue_manager": "guid", "session_id": "branch->hub", "destination_queue": "queue"}
    return {**place, **names, "captured_ns": None if at is None else at * S, **others}


def repeated_order_acks(acks: pl.DataFrame, verdicts: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    return in_last_sequence(refused_meanwhile(repeated_acks(acks), verdicts), sequences)


LAST = frame(SEQUENCES, [{"scope_key": "scope", "tx_sequence_id": sequence} for sequence in (SEQUENCE - 1, SEQUENCE)])


def test_order_acks_that_repeat_the_highest_number() -> None:
    verdicts = [
        arrival(3, 5, "in_order", destination_queue="r"),
        arrival(5, 10, "out_of_order"),
        arrival(6, 70, "out_of_order"),
        arrival(7, 71, "out_of_order"),  # later
        arrival(8, None, "out_of_order"),  # nobody knows when
        arrival(9, 30, "duplicate"),
        arrival(3, 30, "out_of_order"),  # not higher
        arrival(9, 30, "out_of_order", session_id="branch->other"),
    ]
    acks = order_acks((2, 1), (3, 10), (3, 40), (3, 70))
    (row,) = repeated_order_acks(acks, frame(VERDICTS, verdicts), LAST).to_dicts()
    assert row["source_queue_manager"] == "guid"
    assert RepeatedOrderAck(**{name: row[name] for name in RepeatedOrderAck._fields}) == RepeatedOrderAck(
        session_id="branch->hub",
        scope_key="scope",
        destination_queue="queue",
        tx_sequence_id=SEQUENCE,
        found_at=datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
        messages=3,
        number=3,
        seconds=60.0,
        refused=2,
        first_key="hub@10",
        last_key="hub@70",
    )


@pytest.mark.parametrize(
    "acks",
    [
        order_acks((3, 0), (3, 60)),
        order_acks((3, 0), (3, 30), (3, 59)),
        order_acks((3, 0), (3, 30), (3, 60), (4, 61)),
        order_acks((3, 0), (3, 30), (3, 60), kind="final_ack"),
        order_acks((3, 0), (3, 30), (3, 60), receiver="other"),
        pl.concat([order_acks((3, 0), (3, 30)), order_acks((3, 60), receiver="other")]),
        order_acks(),
    ],
    ids=["twice", "not for long", "a higher one", "of another kind", "of another receiver", "of two receivers", "none"],
)
def test_order_acks_that_are_nothing_unusual(acks: pl.DataFrame) -> None:
    rows = repeated_order_acks(acks, frame(VERDICTS, [arrival(3, 0, "in_order")]), LAST)
    assert (rows.height, set(RepeatedOrderAck._fields) - set(rows.columns)) == (0, set())


def test_only_the_last_sequence_of_a_scope_is_stuck() -> None:
    acks, verdicts = order_acks((3, 0), (3, 30), (3, 60)), frame(VERDICTS, [arrival(3, 0, "in_order")])
    assert repeated_order_acks(acks, verdicts, LAST).height == 1
    later = frame(SEQUENCES, [{"scope_key": "scope", "tx_sequence_id": SEQUENCE + 1}])
    assert repeated_order_acks(acks, verdicts, pl.concat([LAST, later])).height == 0
    elsewhere = later.with_columns(scope_key=pl.lit("another"))
    assert repeated_order_acks(acks, verdicts, pl.concat([LAST, elsewhere])).height == 1


def test_each_pair_and_session_has_a_row_of_its_own() -> None:
    acks = pl.concat([order_acks((3, 0), (3, 30), (3, 60)), order_acks((4, 0), (4, 1), (4, 99), receiver="other")])
    verdicts = [arrival(3, 0, "in_order"), arrival(4, 0, "in_order", session_id="branch->other")]
    rows = repeated_order_acks(acks, frame(VERDICTS, verdicts), LAST)
    assert sorted(rows.select("session_id", "number", "seconds").rows()) == [
        ("branch->hub", 3, 60.0),
        ("branch->other", 4, 99.0),
    ]
    assert rows["refused"].to_list() == [0, 0]


def test_at_the_same_time_the_lower_key_is_the_first() -> None:
    acks = order_acks((3, 0), (3, 0), (3, 60), (3, 60)).with_columns(key=pl.Series(["b", "a", "d", "c"]))
    assert repeated_acks(acks).select("first_key", "last_key").rows() == [("c", "b")]


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


def test_negative_acknowledgments_are_told_by_their_class() -> None:
    messages = [
        negative("b", 5, "m1"),
        negative("b", 6, "m1", RECEIVE_TIMEOUT),
        negative("b", 7, "m1", ACK_RECEIVE),
        negative("unknown", 8, "m1"),
        message("a", 1, "m1"),
    ]
    rows = negative_acks(frame(MESSAGES, messages), ON)
    assert sorted(rows.unnest("ack").rows()) == [
        ("m1", Q_EXCEED_QUOTA, "session b", 5 * S, BEGAN + timedelta(seconds=5), "b@5"),
        ("m1", RECEIVE_TIMEOUT, "session b", 6 * S, BEGAN + timedelta(seconds=6), "b@6"),
    ]
    assert negative_acks(frame(MESSAGES), ON).schema == rows.schema


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
