"""The replay: the documents' trace, a reviewed sequence, and ends of streams.

tests/test_agreement.py compares it with a second replayer.
"""

from random import Random
from typing import Any

import pytest
from random_troubles import troubled
from replay_tables import T0, Replayed, Row, Tables, attributes_of, fates, replay
from table_frames import sorted_rows
from tiers import merge_needs

from schemas.replay import Reading, Scope
from udfs.frames import groups

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
    return {(row.stream_id, row.stream_offset): row for row in attributes_of(replayed.verdicts)}


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", merge_needs([3], [3, 10]))
def test_nothing_depends_on_where_batches_and_pieces_of_rows_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = troubled(Random(1), 60).sources()
    whole = replay(sources).tables
    monkeypatch.setattr(groups, "FRAME_ROWS", size)
    cut = replay(sources, batch_rows=size).tables
    assert {"verdicts", "outcomes", "findings", "incidents"} < whole.keys()
    for name, table in whole.items():
        assert table.height > 0
        assert sorted_rows(cut[name]) == sorted_rows(table), name


def test_nothing_is_made_of_nothing() -> None:
    assert {table.height for table in replay(Tables().sources()).tables.values()} == {0}


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
            tables.message((stream, at), T0 + at, tx, message_id=f"{sender}\\{at}", **named)
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


# --- the ends of streams, by handshakes here and on other connections -------------------------------------------------

A, B_, C = (f"{digit * 8}-1234-5678-9abc-def012345678" for digit in "abc")


def ends_of(tables: Tables) -> dict[str, Row]:
    """Returns ENDS by stream."""
    return {row.stream_id: row for row in attributes_of(replay(tables.sources()).stream_ends)}


def test_without_knowing_who_opened_a_connection_guids_have_no_side() -> None:
    tables = Tables()
    tables.connection("x", "1", "2", from_initiator=None)
    tables.handshake("x", A, B_)
    assert {row.session_id for row in ends_of(tables).values()} == {"1->2", "2->1"}


def test_an_address_has_the_guid_that_a_handshake_elsewhere_gives_it() -> None:
    tables = Tables()
    tables.connection("x", "9", "1")
    tables.connection("y", "1", "8")
    assert ends_of(tables)["x>"].receiver_by_address is None
    tables.handshake("y", A, B_)
    assert ends_of(tables)["x>"].receiver_by_address == A
    tables.connection("z", "1", "8")
    tables.handshake("z", C, B_)
    assert ends_of(tables)["x>"].receiver_by_address is None
