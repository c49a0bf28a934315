"""The replay: the documents' trace, a reviewed sequence, and scopes that an earlier warehouse left.

tests/test_agreement.py compares it with a second replayer.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from replay_tables import T0, Replayed, Row, Tables, arrow, fates, replay, rows_of

from schemas.replay import ENDS, STATES, Reading, Scope

# --- the documents' trace and a reviewed sequence -------------------------------------------------------------------

S1, S2, S3 = (1 << 63) - 1, 1 << 63, (1 << 64) - 1
TRACE = (  # message, accepted as recommended, accepted by the letter
    ((S1, 1, 0), True, True),
    ((S1, 2, 1), True, True),
    ((S1, 2, 1), False, False),  # resend
    ((S1, 1, 0), False, False),  # resend; by the letter the state falls back to 1
    ((S1, 2, 1), False, True),  # resend; by the letter delivered twice
    ((S1, 5, 4), False, False),  # 3 and 4 not seen; by the letter the state jumps to 5
    ((S1, 3, 2), True, False),  # by the letter lost
    ((S1, 5, 3), True, True),  # 4 expired, bridged
    ((S2, 2, 1), False, False),  # start missed; by the letter the state moves to S2
    ((S2, 1, 0), True, False),
    ((S1, 6, 5), False, False),  # old sequence; by the letter the state moves back
    ((S3, 3, 0), True, True),  # 1 and 2 expired
)


TOP = (1 << 63) - 2  # the next sequence but one no signed number holds
RESENT = (  # every reason, the ID set to where signed and unsigned differ
    (TOP, 3, 2, "unknown", "no_prior_state", 0, 0),
    (TOP + 1, 1, 0, "new_sequence", None, 0, 0),
    (TOP, 5, 4, "out_of_order", "stale_sequence", 0, 1),
    (TOP + 1, 2, 1, "in_order", None, 0, 0),
    (TOP + 1, 4, 3, "out_of_order", "predecessor_missing", 0, 1),
    (TOP + 1, 3, 2, "in_order", None, 0, 0),
    (TOP + 1, 6, 3, "gap_expired", None, 2, 0),
    (TOP + 1, 5, 3, "out_of_order", "late", 0, 1),
    (TOP + 2, 5, 3, "out_of_order", "predecessor_missing", 0, 2),
    (TOP + 2, 1, 0, "new_sequence", None, 0, 0),
    (TOP + 1, 6, 3, "duplicate", None, 0, 1),
)
Fates = dict[tuple[str, int], tuple[Any, ...]]
Rows = dict[tuple[str, int], Row]


def sent_in_order(*messages: tuple[int, int, int], reading: Reading = Reading.CONFORMANT) -> list[tuple[Any, ...]]:
    """Returns the fates of messages of one sender."""
    tables = Tables()
    tables.stream("s>", "s", "r")
    for i, message in enumerate(messages):
        tables.message(("s>", i), T0 + i, message)
    found = fates(replay(tables.sources(), reading=reading).verdicts)
    return [found["s>", i] for i in range(len(messages))]


@pytest.mark.parametrize(("reading", "column"), [(Reading.CONFORMANT, 1), (Reading.LITERAL, 2)])
def test_the_trace_under_each_reading(reading: Reading, column: int) -> None:
    found = sent_in_order(*(row[0] for row in TRACE), reading=reading)
    assert [fate[3] for fate in found] == [row[column] for row in TRACE]


def test_every_reason_in_a_sequence_with_reviewed_fates() -> None:
    assert [fate[4:] for fate in sent_in_order(*(row[:3] for row in RESENT))] == [row[3:] for row in RESENT]


def verdict_of(replayed: Replayed) -> Rows:
    """Returns VERDICTS by their key."""
    return {(row.stream_id, row.stream_offset): row for row in rows_of(replayed.verdicts)}


# --- OrderAcks ------------------------------------------------------------------------------------------------------


def test_of_two_receivers_of_a_scope_the_last_order_ack_fixes_the_initial_state() -> None:
    tables = Tables()
    for receiver, ns, number in (("b", T0 - 20, 9), ("c", T0 - 10, 3)):
        tables.stream(f"{receiver}>", "a", receiver)
        tables.stream(f"{receiver}<", receiver, "a")
        tables.message((f"{receiver}>", 1), T0 + number, (S1, 4, 3), source_queue_manager="a")
        tables.ack(f"{receiver}<", ns, (S1, number), source_queue_manager=receiver)
    found = verdict_of(replay(tables.sources(), scope=Scope.QUEUE))
    assert [found[f"{receiver}>", 1].verdict for receiver in "cb"] == ["in_order", "duplicate"]


# --- unread bytes ---------------------------------------------------------------------------------------------------


def test_unread_ranges_count_for_each_scope_of_their_stream() -> None:
    tables = Tables()
    for stream, sender, gaps in (("x>", "a", (2, 4, 14, 22)), ("y>", "b", (1, 5))):
        tables.stream(stream, sender, "c")
        for at in gaps:
            tables.rows["stream_gaps"].append({"stream_id": stream, "stream_offset": at, "length": 1})
        for at, number, queue in ((10, 1, "q"), (20, 2, "q"), (21, 1, "r"), (30, 3, "q")):
            tx, named = (S1, number, number - 1), {"source_queue_manager": sender, "destination_queue": queue}
            tables.message((stream, at), T0 + at, tx, **named)
    found = verdict_of(replay(tables.sources(), scope=Scope.QUEUE))
    assert {key: (row.missing_runs, row.behind_gap) for key, row in found.items()} == {
        ("x>", 10): (2, False),
        ("x>", 20): (3, True),
        ("x>", 21): (3, False),
        ("x>", 30): (4, True),
        ("y>", 10): (2, False),
        ("y>", 20): (2, False),
        ("y>", 21): (2, False),
        ("y>", 30): (2, False),
    }


# --- scopes resumed from the previous warehouse ----------------------------------------------------------------------

A, B_, SOURCE = (f"{digit * 8}-1234-5678-9abc-def012345678" for digit in "abc")
WAY, BACK = "10.0.0.1:50000>10.0.0.2:1801", "10.0.0.2:1801>10.0.0.1:50000"


def stood(scope_key: str, number: int, **columns: Any) -> dict[str, Any]:
    """Returns a row of STATES."""
    row = {"scope_key": scope_key, "source_queue_manager": SOURCE, "session_id": f"{A}->{B_}", "messages": number}
    row |= {"tx_sequence_id": S1, "tx_sequence": "2038-01-19T03:14:07Z#4294967295"}
    row |= {"tx_sequence_number": number, "reject_count": 0, "assumed": False, "last_captured_ns": T0 - 10}
    return row | columns


def later_night(tables: Tables, numbers: Iterable[int], source: str = SOURCE, **columns: Any) -> None:
    """Adds a connection in mid-stream with messages of these numbers, and nothing that names its peers.

    That of another source has its name, as its addresses have.
    """
    way, back, client = (WAY, BACK, "10.0.0.1") if source == SOURCE else (f"{source}>", f"{source}<", f"ip-{source}")
    tables.stream(f"{way}#0", client, "10.0.0.2", **{"connection_id": source, "mid_stream": True} | columns)
    tables.stream(f"{back}#0", "10.0.0.2", client, connection_id=source, from_initiator=False, mid_stream=True)
    for i, number in enumerate(numbers):
        tables.message((f"{way}#0", i), T0 + i, (S1, number, number - 1), source_queue_manager=source)


def known(**columns: Any) -> pa.Table:
    """Returns the row of ENDS of the last stream between these ports, and of one before it."""
    row: dict[str, Any] = {
        "stream_id": f"{WAY}#3",
        "connection_id": "3",
        "session_id": f"{A}->{B_}",
        "sender": A,
        "receiver": B_,
    }
    row |= {"sender_guid": A, "receiver_guid": B_, "address": "10.0.0.1", "mid_stream": False, "last_ns": T0 - 10}
    row |= {"recovered_bytes": 1, "missing_bytes": 0} | columns
    before = row | {"stream_id": f"{row['stream_id'][:-1]}2", "sender_guid": "other", "last_ns": T0 - 20}
    return arrow(ENDS, [row, before])


class Resumed(NamedTuple):
    """Holds what one replay says of scopes that a previous warehouse left."""

    fates: Fates
    verdicts: Rows
    states: dict[str, Row]
    outcomes: list[Row]


OLDER = {T0 - 1: "in_order", T0: "unknown", None: "unknown"}
"""Verdict of a message at T0 by the time of the state's latest message."""


@pytest.fixture(scope="module")
def resumed() -> Resumed:
    tables, states = Tables(), []
    later_night(tables, [5, 6])  # of a router
    for row, destination in zip(tables.rows["messages"], (A, B_), strict=True):
        row["queue_manager_address"] = destination
    for source, numbers in {"skips": [7, 8], "assumed": [6, 7, 8], "acknowledged": [6, 7, 8]}.items():
        later_night(tables, numbers, source)
        of_source = {"source_queue_manager": source, "assumed": source != "skips"}
        states.append(stood(f"queue {source} queue", 5, **of_source))
    for row, later_ns in zip(tables.rows["messages"][-3:], (0, 2_000, 4_000), strict=True):
        row["captured_ns"] = T0 + later_ns
    tables.ack("acknowledged<#0", T0 + 3_000, (S1, 6))
    for i, ns in enumerate(OLDER):
        later_night(tables, [6], f"older-{i}")
        of_source = {"source_queue_manager": f"older-{i}", "last_captured_ns": ns}
        states.append(stood(f"queue older-{i} queue", 5, **of_source))
    left = arrow(STATES, states)
    replayed = replay(tables.sources(states_before=left, ends_before=known()))
    found = {row.source_queue_manager: row for row in rows_of(replayed.states)}
    outcomes = rows_of(replayed.fates.rows)
    return Resumed(fates(replayed.verdicts), verdict_of(replayed), found, outcomes)


def test_a_router_is_known_over_a_connection_in_mid_stream(resumed: Resumed) -> None:
    assert [key for key in resumed.verdicts if key[0] == f"{WAY}#0"] == [(f"{WAY}#0", 1)]


def test_a_message_that_skips_numbers_after_the_change_of_warehouses_is_unknown(resumed: Resumed) -> None:
    assert [resumed.fates["skips>#0", i][1:6] for i in range(2)] == [
        (S1, 5, None, "unknown", "capture_gap"),
        (S1, 7, True, "in_order", None),
    ]


def test_only_a_state_older_than_the_first_message_counts(resumed: Resumed) -> None:
    assert [resumed.fates[f"older-{i}>#0", 0][4] for i in range(len(OLDER))] == list(OLDER.values())


@pytest.mark.parametrize(
    ("source", "marked", "left"), [("assumed", [True, True, True], True), ("acknowledged", [True, True, False], False)]
)
def test_a_state_that_was_assumed_stays_so_until_an_order_ack_covers_it(
    resumed: Resumed, source: str, marked: list[bool], left: bool
) -> None:
    assert [resumed.verdicts[f"{source}>#0", i].assumed for i in range(3)] == marked
    assert resumed.states[source].assumed is left


def test_messages_on_an_assumed_state_have_an_unknown_outcome(resumed: Resumed) -> None:
    assert {row.outcome for row in resumed.outcomes if row.source_queue_manager == "assumed"} == {"unknown"}
