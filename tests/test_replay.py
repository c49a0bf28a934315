"""The replay: the documents' trace, captured sequences, and reviewed sessions.

tests/test_agreement.py compares it with a second replayer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from replay_tables import NULL, T0, Replayed, Row, Tables, arrow, fates, replay, rows_of

from schemas.replay import ENDS, STATES, VERDICTS, Reading, Scope


@dataclass
class Stream:
    """One direction of a TCP connection: (ns, ID, number, previous) for a message, None for an unread range."""

    items: list[tuple[int | None, int, int, int] | None]
    first_ns: int = T0
    mid_stream: bool = False


@dataclass
class History:
    """The streams that one scope's receiver saw, and the OrderAcks (ns, ID, number) that it sent."""

    streams: list[Stream]
    acks: list[tuple[int, int, int]] = field(default_factory=list)


def tables_of(histories: Iterable[History]) -> Tables:
    """Returns tables with one session per history, named by addresses."""
    tables = Tables()
    for k, history in enumerate(histories):
        sender, receiver = f"s{k}", f"r{k}"
        for s, stream in enumerate(history.streams):
            stream_id = f"{k}-{s}>"
            tables.stream(
                stream_id,
                sender,
                receiver,
                mid_stream=stream.mid_stream,
                first_captured_at=stream.first_ns // 1000,
            )
            for i, item in enumerate(stream.items):
                if item:
                    tables.message((stream_id, i), item[0], item[1:], source_queue_manager=sender)
                elif i % 2:
                    tables.rows["stream_gaps"].append({"stream_id": stream_id, "stream_offset": i, "length": 1})
                else:
                    stage = "decode" if i % 4 else "framing"
                    tables.rows["quarantine"].append({"stage": stage, "stream_id": stream_id, "stream_offset": i})
        if history.acks:
            tables.stream(f"{k}-0<", receiver, sender)
        for a, (ns, identity, number) in enumerate(history.acks):
            addressed = sender if a % 2 else NULL
            tables.ack(f"{k}-0<", ns, (identity, number), queue_manager_address=addressed)
    return tables


# --- the documents' trace and captured sequences --------------------------------------------------------------------

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


B = 7539503806078255102
CAPTURED = (  # id, number, previous, verdict, reason, gap_size, reject_count: from a capture of real TCP
    (B, 1, 0, "new_sequence", None, 0, 0),
    (B, 2, 1, "in_order", None, 0, 0),
    (B + 1, 1, 0, "new_sequence", None, 0, 0),
    (B + 1, 2, 1, "in_order", None, 0, 0),
    (B + 1, 3, 2, "in_order", None, 0, 0),
    (B + 3, 1, 0, "new_sequence", None, 0, 0),
    (B + 3, 1, 0, "duplicate", None, 0, 1),
    (B + 3, 2, 1, "in_order", None, 0, 0),
    (B + 3, 3, 2, "in_order", None, 0, 0),
    (B + 3, 4, 3, "in_order", None, 0, 0),
    (B + 3, 5, 4, "in_order", None, 0, 0),
    (B + 3, 6, 5, "in_order", None, 0, 0),
    (B + 3, 7, 6, "in_order", None, 0, 0),
    (B + 3, 10, 8, "out_of_order", "predecessor_missing", 0, 1),
    (B + 3, 8, 7, "in_order", None, 0, 0),
    (B + 3, 11, 10, "out_of_order", "predecessor_missing", 0, 1),
    (B + 3, 12, 11, "out_of_order", "predecessor_missing", 0, 2),
    (B + 3, 10, 8, "gap_expired", None, 1, 0),
    (B + 3, 8, 7, "duplicate", None, 0, 1),
    (B + 3, 11, 10, "in_order", None, 0, 0),
    (B + 3, 12, 11, "in_order", None, 0, 0),
    (B + 3, 13, 12, "in_order", None, 0, 0),
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
MID_STREAM = (
    (B, 4294967280, 4294967279, "unknown", "no_prior_state", 0, 0),
    (B, 4294967281, 4294967280, "in_order", None, 0, 0),
    (B, 4294967279, 4294967278, "duplicate", None, 0, 1),  # the first message says that it had been sent
    (B, 4294967283, 4294967282, "out_of_order", "predecessor_missing", 0, 2),
    (B, 4294967282, 4294967281, "in_order", None, 0, 0),
)


COUNTED = ((S1, 1, 0), (S1, 1, 0), (S1, 3, 2), (S1, 4, 3), (S2, 2, 0))
HISTORIES: tuple[tuple[tuple[Any, ...], ...], ...] = (
    tuple(message for message, *_ in TRACE),
    CAPTURED,
    RESENT,
    MID_STREAM,
    COUNTED,
)
"""Messages of one sender each, which are to be replayed at once."""
ALICE, BOB, ROUTER, CAROL = (f"{n}0000000-0000-0000-0000-000000000000" for n in "1234")
ACKNOWLEDGED = (
    ((S1, 1, 0), "confirmed"),
    ((S1, 1, 0), "confirmed"),  # a duplicate that the next OrderAck covers
    ((S1, 3, 2), "confirmed"),  # out of order, and the OrderAck after it still names 1
    ((S1, 2, 1), "confirmed"),
    ((S1, 3, 2), "confirmed"),
    ((S1, 5, 4), "contradicted"),  # out of order by the rule, yet acknowledged
    ((S2, 1, 0), "none"),  # nothing tells
)


def several_senders() -> Tables:
    """Returns histories, and senders that are routed, number per queue or session, or are acknowledged."""
    tables = tables_of(History([Stream([(T0 + i, *row[:3]) for i, row in enumerate(rows)])]) for rows in HISTORIES)
    for connection, client, server in (("to-router", ALICE, ROUTER), ("from-router", ROUTER, BOB)):
        tables.stream(f"{connection}>", client, server)
        tables.stream(f"{connection}<", server, client)
        tables.handshake(connection, client, server)
        key = (f"{connection}>", 1)
        tables.message(key, T0, (S1, 1, 0), source_queue_manager=ALICE, queue_manager_address=BOB)
    tables.stream("routed>", "router", "b")
    for at, source in enumerate(("by-queue", "by-session", "routed-by-queue", "routed-by-session")):
        stream, per_queue = "routed>" if at > 1 else f"{source}>", at % 2 == 0
        if at < 2:
            tables.stream(stream, source, "b")
        for i in range(8):
            number = i // 2 + 1 if per_queue else i + 1
            tables.message(
                (stream, 10 * i + at),
                T0 + i,
                (S1 + (i % 2) * per_queue, number, number - 1),
                source_queue_manager=source,
                destination_queue=f"queue{i % 2}",
            )
    tables.stream("stood>", "stood", "b", mid_stream=True)
    tables.stream("stood<", "b", "stood", mid_stream=True)
    tables.ack("stood<", T0, (S1, 5))
    for i, number in enumerate((5, 6, 8)):
        tables.message(("stood>", i), T0 + 1 + i, (S1, number, number - 1), source_queue_manager="stood")
    for connection in ("acked-0", "acked-1"):  # OrderAcks may come on another connection, in either role
        tables.stream(f"{connection}>", "acked", "c")
        tables.stream(f"{connection}<", "c", "acked")
    for i, (message, _) in enumerate(ACKNOWLEDGED):
        tables.message(("acked-0>", i), T0 + 1_000_000 * i, message, source_queue_manager="acked")
    tables.ack("acked-1<", T0 + 2_500_000, (S1, 1))
    tables.ack("acked-1<", T0 + 3_500_000, (S1, 2), queue_manager_address="acked")
    tables.ack("acked-1<", T0 + 5_500_000, (S1, 5))
    return tables


Fates = dict[tuple[str, int], tuple[Any, ...]]
Rows = dict[tuple[str, int], Row]


class Night(NamedTuple):
    """Holds what one replay of `several_senders` says."""

    fates: Fates
    verdicts: Rows
    sessions: dict[str, Row]
    sequences: list[Row]


@pytest.fixture(scope="module")
def night() -> Night:
    replayed = replay(several_senders().sources())
    assert replayed.verdicts.schema.remove_metadata().equals(nullable(VERDICTS.arrow))
    sessions = {row.session_id: row for row in rows_of(replayed.sessions)}
    return Night(fates(replayed.verdicts), verdict_of(replayed), sessions, rows_of(replayed.sequences))


def nullable(schema: pa.Schema) -> pa.Schema:
    """Returns the schema without what the tables promise and comment."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def test_the_recommended_reading_of_the_trace(night: Night) -> None:
    assert [night.fates["0-0>", i][3] for i in range(len(TRACE))] == [row[1] for row in TRACE]


def test_the_literal_reading_of_the_trace() -> None:
    tables = tables_of([History([Stream([(T0 + i, *message) for i, (message, *_) in enumerate(TRACE)])])])
    found = fates(replay(tables.sources(), reading=Reading.LITERAL).verdicts)
    assert [found["0-0>", i][3] for i in range(len(TRACE))] == [row[2] for row in TRACE]


@pytest.mark.parametrize("rows", [CAPTURED, RESENT, MID_STREAM])
def test_sequences_with_reviewed_fates(night: Night, rows: tuple[tuple[Any, ...], ...]) -> None:
    stream = f"{HISTORIES.index(rows)}-0>"
    assert [night.fates[stream, i][4:] for i in range(len(rows))] == [row[3:] for row in rows]


def test_sequences_count_and_bound(night: Night) -> None:
    sender = f"s{HISTORIES.index(COUNTED)}"
    rows = [row for row in night.sequences if row.source_queue_manager == sender]
    first, second = sorted(rows, key=lambda row: row.tx_sequence_id)
    assert (first.messages, first.duplicate, first.out_of_order, first.last_accepted_number) == (4, 1, 2, 1)
    assert (second.gap_expired, second.expired, second.first_number) == (1, 1, 2)


# --- scopes ---------------------------------------------------------------------------------------------------------


def verdict_of(replayed: Replayed) -> Rows:
    """Returns VERDICTS by their key."""
    return {(row.stream_id, row.stream_offset): row for row in rows_of(replayed.verdicts)}


def several_addresses(tables: Tables) -> None:
    """Adds a queue manager behind two addresses, and two queue managers behind one."""
    for i, address in enumerate(("10.0.0.1", "192.0.2.9")):
        tables.stream(f"{i}>", address, "10.0.0.2")
        tables.stream(f"{i}<", "10.0.0.2", address)
        tables.handshake(str(i), ALICE, BOB)
        tables.message((f"{i}>", 100), T0 + i, (S1, i + 1, i), source_queue_manager=ALICE)
    for i, sender in enumerate((CAROL, ROUTER)):
        tables.stream(f"same-{i}>", "10.0.1.1", "10.0.0.2")
        tables.stream(f"same-{i}<", "10.0.0.2", "10.0.1.1")
        tables.handshake(f"same-{i}", sender, BOB)
        tables.message((f"same-{i}>", 100), T0 + i, (S1, 1, 0), source_queue_manager=sender)


def test_scopes_of_sessions(by_session: Rows) -> None:
    assert by_session["1>", 100].verdict == "in_order"
    assert by_session["1>", 100].session_id == f"{ALICE}->{BOB}"
    assert {by_session[f"same-{i}>", 100].verdict for i in range(2)} == {"new_sequence"}


def test_passing_through_has_no_verdict_and_is_counted(night: Night) -> None:
    assert ("from-router>", 1) in night.verdicts
    assert ("to-router>", 1) not in night.verdicts
    assert [
        (night.sessions[name].passing_through, night.sessions[name].new_sequence)
        for name in (f"{ALICE}->{ROUTER}", f"{ROUTER}->{BOB}")
    ] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(("scope", "in_order"), [("queue", 6), ("session", 7)])
def test_auto_takes_the_scope_under_which_predecessors_are_found(night: Night, scope: str, in_order: int) -> None:
    verdicts = {row.verdict for (stream, _), row in night.verdicts.items() if stream == f"by-{scope}>"}
    assert verdicts == {"new_sequence", "in_order"}
    row = night.sessions[f"by-{scope}->b"]
    assert (row.replay_scope, row.in_order, row.transactional) == (scope, in_order, 8)


@pytest.mark.parametrize("scope", ["queue", "session"])
def test_auto_takes_a_scope_for_each_original_sender_behind_a_router(night: Night, scope: str) -> None:
    own = [row for row in night.verdicts.values() if row.source_queue_manager == f"routed-by-{scope}"]
    assert {row.scope_key.partition(" ")[0] for row in own} == {scope}
    assert {row.verdict for row in own} == {"new_sequence", "in_order"}
    row = night.sessions["router->b"]
    assert (row.replay_scope, row.new_sequence, row.in_order) == ("session and queue", 3, 13)


# --- OrderAcks ------------------------------------------------------------------------------------------------------


def test_an_order_ack_fixes_the_initial_state(night: Night) -> None:
    found = [night.verdicts["stood>", i] for i in range(3)]
    assert [row.verdict for row in found] == ["duplicate", "in_order", "out_of_order"]
    assert found[0].incoming_tx_sequence_number == 5
    assert found[2].reason == "predecessor_missing"


def test_of_two_receivers_of_a_scope_the_last_order_ack_fixes_the_initial_state() -> None:
    tables = Tables()
    for receiver, ns, number in (("b", T0 - 20, 9), ("c", T0 - 10, 3)):
        tables.stream(f"{receiver}>", "a", receiver)
        tables.stream(f"{receiver}<", receiver, "a")
        tables.message((f"{receiver}>", 1), T0 + number, (S1, 4, 3), source_queue_manager="a")
        tables.ack(f"{receiver}<", ns, (S1, number), source_queue_manager=receiver)
    found = verdict_of(replay(tables.sources(), scope=Scope.QUEUE))
    assert [found[f"{receiver}>", 1].verdict for receiver in "cb"] == ["in_order", "duplicate"]


def test_order_acks_confirm_and_contradict(night: Night) -> None:
    found = [night.verdicts["acked-0>", i] for i in range(len(ACKNOWLEDGED))]
    assert [row.evidence for row in found] == [evidence for _, evidence in ACKNOWLEDGED]
    assert found[0].ack_latency_ms == pytest.approx(2.5)
    assert found[3].ack_latency_ms == pytest.approx(0.5)
    assert found[6].acknowledged_at is None


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


@pytest.fixture(scope="module")
def by_session() -> Rows:
    """Returns what one replay of scopes of sessions says, of which one is resumed by its name."""
    tables = Tables()
    later_night(tables, [5, 6, 8])
    several_addresses(tables)
    left = arrow(STATES, [stood(f"session {A}->{B_} {SOURCE}", 5)])
    replayed = replay(tables.sources(states_before=left, ends_before=known()), scope=Scope.SESSION)
    ends = rows_of(replayed.inputs.ends)
    assert {(row.stream_id, row.session_id) for row in ends if row.connection_id == SOURCE} == {
        (f"{WAY}#0", f"{A}->{B_}"),
        (f"{BACK}#0", f"{B_}->{A}"),
    }
    return verdict_of(replayed)


def test_a_session_resumes_by_its_name_over_a_connection_in_mid_stream(by_session: Rows) -> None:
    names = ("incoming_tx_sequence_id", "incoming_tx_sequence_number", "accepted", "verdict", "reason")
    assert [tuple(getattr(by_session[f"{WAY}#0", i], name) for name in names) for i in range(3)] == [
        (S1, 5, False, "duplicate", None),
        (S1, 5, True, "in_order", None),
        (S1, 6, False, "out_of_order", "predecessor_missing"),
    ]


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
