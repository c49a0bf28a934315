"""The replay: the documents' trace, a reviewed sequence, ends of streams, and what an earlier warehouse left.

tests/test_agreement.py compares it with a second replayer.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import polars as pl
import pytest
from random_troubles import troubled
from replay_tables import NULL, T0, Replayed, Row, Tables, fates, frame, replay, rows_of

from schemas.replay import ENDS, STATES, Reading, Scope
from udfs.derive.replay import marks
from udfs.replay import groups

# --- the documents' trace and a reviewed sequence ---------------------------------------------------------------------

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
Rows = dict[tuple[str, int], Row]


def sent_in_order(*messages: tuple[int, int, int], reading: Reading = Reading.CONFORMANT) -> Replayed:
    tables = Tables()
    tables.stream("s>", "s", "r")
    for i, message in enumerate(messages):
        tables.message(("s>", i), T0 + i, message)
    return replay(tables.sources(), reading=reading)


def fates_in_order(replayed: Replayed) -> list[tuple[Any, ...]]:
    return [fate for _, fate in sorted(fates(replayed.verdicts).items())]


@pytest.mark.parametrize(("reading", "column"), [(Reading.CONFORMANT, 1), (Reading.LITERAL, 2)])
def test_the_trace_under_each_reading(reading: Reading, column: int) -> None:
    found = sent_in_order(*(row[0] for row in TRACE), reading=reading)
    assert [fate[3] for fate in fates_in_order(found)] == [row[column] for row in TRACE]


def test_every_reason_in_a_sequence_with_reviewed_fates() -> None:
    found = sent_in_order(*(row[:3] for row in RESENT))
    assert [fate[4:] for fate in fates_in_order(found)] == [row[3:] for row in RESENT]


def test_messages_in_order_are_few_rows_on_the_way_to_their_verdicts() -> None:
    replayed = sent_in_order(*((S1, number, number - 1) for number in range(1, 1_001)))
    assert replayed.verdicts.height == 1_000
    assert replayed.chains.height <= 5


def verdict_of(replayed: Replayed) -> Rows:
    return {(row.stream_id, row.stream_offset): row for row in rows_of(replayed.verdicts)}


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 10])
def test_nothing_depends_on_where_batches_and_pieces_of_rows_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = troubled(Random(1), 60).sources()
    whole = replay(sources).tables
    monkeypatch.setattr(groups, "_MANY", size)
    cut = replay(sources, batch_rows=size).tables
    assert {"verdicts", "outcomes", "findings", "incidents"} < whole.keys()
    for name, table in whole.items():
        assert table.height > 0
        assert Counter(map(repr, cut[name].to_dicts())) == Counter(map(repr, table.to_dicts())), name


def test_nothing_is_made_of_nothing() -> None:
    assert {table.height for table in replay(Tables().sources()).tables.values()} == {0}


@pytest.mark.parametrize(("receiver", "queue"), [("r", "other"), ("other", "queue")])
def test_two_scopes_or_pairs_with_one_hash_are_not_mixed(
    receiver: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables()
    for at, (to, named) in enumerate((("r", "queue"), (receiver, queue))):
        tables.stream(f"{at}>", "s", to)
        tables.message((f"{at}>", 1), T0 + at, (S1, 1, 0), destination_queue=named)
    assert replay(tables.sources(), scope=Scope.QUEUE).verdicts.height == 2
    monkeypatch.setattr(marks, "number_of", lambda *_: pl.lit(1, pl.Int64))
    with pytest.raises(ValueError, match=r"^Two scopes or pairs have the same hash"):
        replay(tables.sources(), scope=Scope.QUEUE)


# --- OrderAcks --------------------------------------------------------------------------------------------------------


def test_of_two_receivers_of_a_scope_the_last_order_ack_fixes_the_initial_state() -> None:
    tables = Tables()
    for receiver, ns, number in (("b", T0 - 20, 9), ("c", T0 - 10, 3)):
        tables.connection(receiver, "a", receiver)
        tables.message((f"{receiver}>", 1), T0 + number, (S1, 4, 3), source_queue_manager="a")
        tables.ack(f"{receiver}<", ns, (S1, number), source_queue_manager=receiver)
    found = verdict_of(replay(tables.sources(), scope=Scope.QUEUE))
    assert [found[f"{receiver}>", 1].verdict for receiver in "cb"] == ["in_order", "duplicate"]


# --- unread bytes -----------------------------------------------------------------------------------------------------


def test_unread_ranges_count_for_each_scope_of_their_stream() -> None:
    tables = Tables()
    for stream, sender, gaps in (("x>", "a", (2, 4, 14, 22)), ("y>", "b", (1, 5))):
        tables.stream(stream, sender, "c")
        for at in gaps:
            tables.unread(stream, at)
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


# --- scopes resumed from the previous warehouse -----------------------------------------------------------------------

A, B_, C, D, SOURCE = (f"{digit * 8}-1234-5678-9abc-def012345678" for digit in "abcde")
WAY, BACK = "10.0.0.1:50000>10.0.0.2:1801", "10.0.0.2:1801>10.0.0.1:50000"


ASSUMED = {"assumed": [True] * 4, "acknowledged": [True, True, False, False], "set": [True, True, True, False]}
"""By sender, whose state the previous warehouse assumed: whether that before each message is, and the last one."""


def stood(source: str) -> dict[str, Any]:
    """Returns a row of STATES: number 5, which is assumed."""
    row = {"scope_key": f"queue {source} queue", "source_queue_manager": source, "session_id": f"{A}->{B_}"}
    row |= {"tx_sequence": "2038-01-19T03:14:07Z#4294967295"}
    figures = {"tx_sequence_id": S1, "tx_sequence_number": 5, "messages": 5, "reject_count": 0}
    return row | figures | {"assumed": True, "last_captured_ns": T0 - 10}


def later_night(tables: Tables, numbers: Iterable[int], source: str = SOURCE) -> None:
    """Adds a connection in mid-stream with messages of these numbers, and nothing that names its peers.

    That of another source has its name, as its addresses have.
    """
    way, back, client = (WAY, BACK, "10.0.0.1") if source == SOURCE else (f"{source}>", f"{source}<", f"ip-{source}")
    tables.stream(f"{way}#0", client, "10.0.0.2", connection_id=source, mid_stream=True)
    tables.stream(f"{back}#0", "10.0.0.2", client, connection_id=source, from_initiator=False, mid_stream=True)
    for i, number in enumerate(numbers):
        tables.message((f"{way}#0", i), T0 + i, (S1, number, number - 1), source_queue_manager=source)


def known() -> pl.DataFrame:
    """Returns the row of ENDS of an earlier stream between these ports."""
    guids = {"sender_guid": A, "receiver_guid": B_}
    return frame(ENDS, [guids | {"stream_id": f"{WAY}#3", "address": "10.0.0.1", "last_ns": T0 - 10}])


@pytest.fixture(scope="module")
def resumed() -> Replayed:
    """What one replay says of scopes that a previous warehouse left."""
    tables = Tables()
    later_night(tables, [5, 6])  # of a router
    for row, destination in zip(tables.rows["messages"], (A, B_), strict=True):
        row["queue_manager_address"] = destination
    for source in ASSUMED:
        later_night(tables, [6, 7, 8], source)
    for row, later_ns in zip(tables.rows["messages"][2:], (0, 2_000, 4_000) * 3, strict=True):
        row["captured_ns"] = T0 + later_ns
    new = {"tx_sequence_id": S1 + 1, "tx_sequence_number": 1, "previous_tx_sequence_number": 0}
    tables.rows["messages"][-1] |= new  # with it the state of `set` is sure
    tables.ack("acknowledged<#0", T0 + 3_000, (S1, 6))
    return replay(tables.sources(states_before=frame(STATES, map(stood, ASSUMED)), ends_before=known()))


def test_a_router_is_known_over_a_connection_in_mid_stream(resumed: Replayed) -> None:
    assert [key for key in verdict_of(resumed) if key[0] == f"{WAY}#0"] == [(f"{WAY}#0", 1)]


@pytest.mark.parametrize("source", ASSUMED)
def test_a_state_that_was_assumed_stays_so_until_an_order_ack_covers_it(resumed: Replayed, source: str) -> None:
    found = verdict_of(resumed)
    assert [found[f"{source}>#0", i].assumed for i in range(3)] == ASSUMED[source][:3]
    assert [row.assumed for row in rows_of(resumed.states) if row.source_queue_manager == source] == ASSUMED[source][3:]


def test_messages_on_an_assumed_state_have_an_unknown_outcome(resumed: Replayed) -> None:
    assert {row.outcome for row in rows_of(resumed.outcomes) if row.source_queue_manager == "assumed"} == {"unknown"}


# --- the ends of streams, by handshakes here, on other connections, and in the previous warehouse ---------------------


def ends_of(tables: Tables, *before: dict[str, Any]) -> dict[str, Row]:
    """Returns ENDS by stream; `before` are rows of the previous warehouse."""
    found = replay(tables.sources(ends_before=frame(ENDS, before))).stream_ends
    return {row.stream_id: row for row in rows_of(found)}


def in_mid_stream(**columns: Any) -> Tables:
    """Returns a stream between the ports of EARLIER."""
    tables = Tables()
    tables.stream(f"{WAY}#7", "1", "2", **{"mid_stream": True} | columns)
    return tables


LAST: dict[str, Any] = {"stream_id": f"{WAY}#3", "sender_guid": A, "receiver_guid": B_, "address": "1", "last_ns": 20}
EARLIER = LAST | {"stream_id": f"{WAY}#2", "sender_guid": D, "last_ns": 10}


def test_without_knowing_who_opened_a_connection_guids_have_no_side() -> None:
    tables = Tables()
    tables.connection("x", "1", "2", from_initiator=None)
    tables.handshake("x", A, B_)
    assert {row.session_id for row in ends_of(tables).values()} == {"1->2", "2->1"}


@pytest.mark.parametrize(
    ("columns", "before", "session"),
    [
        ({}, [LAST, EARLIER], f"{A}->{B_}"),
        ({"mid_stream": False}, [LAST, EARLIER], "1->2"),
        ({}, [LAST | {"sender_guid": None, "receiver_guid": None}, EARLIER], "1->2"),
        ({}, [LAST | {"stream_id": "10.0.0.1:50001>10.0.0.2:1801#3"}], "1->2"),  # other ports
        ({}, [LAST | {"last_ns": None}, EARLIER], f"{D}->{B_}"),
        ({}, [LAST | {"last_ns": None}], "1->2"),
        ({"from_initiator": False}, [LAST, EARLIER], f"{A}->{B_}"),
    ],
)
def test_only_the_last_connection_between_the_same_ports_names_one_in_mid_stream(
    columns: dict[str, Any], before: list[dict[str, Any]], session: str
) -> None:
    assert ends_of(in_mid_stream(**columns), *before)[f"{WAY}#7"].session_id == session


def test_a_handshake_of_its_own_goes_before_the_earlier_night() -> None:
    tables = in_mid_stream()
    tables.rows["handshakes"].append({"stream_id": f"{WAY}#7", "client_guid": C, "server_guid": NULL})
    assert ends_of(tables, LAST)[f"{WAY}#7"].session_id == f"{C}->2"


def test_an_address_named_here_does_not_have_the_guid_of_the_earlier_night() -> None:
    tables = Tables()
    tables.connection("x", "9", "1")
    tables.connection("y", "1", "8")
    before = {"stream_id": "old#0", "sender_guid": D, "address": "1", "last_ns": 1}
    assert ends_of(tables, before)["x>"].receiver_by_address == D
    tables.handshake("y", A, B_)
    assert ends_of(tables, before)["x>"].receiver_by_address == A
