"""What a sender's messages show, whatever their verdicts: clocks, message IDs, addresses."""

from typing import Any

import polars as pl
import pytest
from fact_rows import Row, after, after_ns, told
from frames_of import frame_of as frame

from schemas.messages import MESSAGES
from schemas.replay import ENDS, SEQUENCES, VERDICTS, Reason
from schemas.wire import UNLIMITED
from udfs.derive.facts.senders import (
    expired_by_stream,
    expired_on_arrival,
    facts_of_senders,
    find_conflicts,
    ordinal_regressed,
    outlived_messages,
    sending_seconds,
    sent_by_several,
    streams_of_several,
    two_addresses,
)
from udfs.replay.findings.senders import ExpiredOnArrival, OrdinalRegressed, TwoAddresses

S = (1 << 63) + 5  # a TxSequenceID that no signed number holds
ENDS_OF_STREAMS = frame(ENDS, *({"stream_id": f"{name}>", "session_id": f"{name}->r"} for name in "abc"))
DAYS = 300_000


def message(arrived: float, sent: float | None, ordinal: int = 1, **columns: Any) -> Row:
    """Returns a message of sender `s` on stream `a>`; times are s after the start."""
    row: Row = {"source_queue_manager": "s", "stream_id": "a>", "stream_offset": ordinal, "message_id_ordinal": ordinal}
    row |= {
        "captured_ns": after_ns(arrived),
        "captured_at": after(arrived),
        "sent_at": None if sent is None else after(sent),
    }
    row |= {"destination_queue": "q", "time_to_reach_queue": UNLIMITED, "time_to_be_received": UNLIMITED} | columns
    return row | {"message_id": f"{row['source_queue_manager']}\\{ordinal}"}


def expired(*messages: Row, accepted: tuple[str, ...] = ()) -> list[Row]:
    verdicts = frame(VERDICTS, *({"message_id": name, "accepted": True} for name in accepted))
    found = facts_of_senders(frame(MESSAGES, *messages), verdicts)["expired"]
    return told(ExpiredOnArrival, expired_on_arrival(found, ENDS_OF_STREAMS))


def regressed(*messages: Row, sequences: tuple[Row, ...] = ()) -> list[Row]:
    around = facts_of_senders(frame(MESSAGES, *messages), frame(VERDICTS))["around_falls"]
    return told(OrdinalRegressed, ordinal_regressed(around, ENDS_OF_STREAMS, frame(SEQUENCES, *sequences)))


@pytest.mark.parametrize(
    ("columns", "is_late"),
    [
        ({"time_to_reach_queue": 60}, True),
        ({"time_to_be_received": 60}, True),
        ({"time_to_reach_queue": 61}, False),
        ({"time_to_reach_queue": None, "time_to_be_received": None}, False),
        ({}, False),
    ],
)
def test_a_message_is_late_by_its_age_less_the_least_of_its_sender(columns: Row, is_late: bool) -> None:
    found = expired(message(100, 0), message(162, 1, 2, **columns))  # the clocks differ by 100 s
    assert bool(found) is is_late
    if is_late:
        assert "1 message arrived after it had expired" in found[0]["explanation"]
        assert "at least 61 s old" in found[0]["explanation"]
        assert (found[0]["found_at"], found[0]["witness"]) == (after(162), ["a>@2"])
        assert (found[0]["session_id"], found[0]["destination_queue"]) == ("a->r", "q")


def test_late_messages_of_a_session_and_queue_are_one_finding_and_accepted_ones_are_left_out() -> None:
    late = {"time_to_reach_queue": 1}
    rows = [message(0, 0), *(message(at, 1, at, **late) for at in (30, 20, 40))]
    rows += [message(25, 1, 25, stream_id="b>", **late), message(26, 1, 26, destination_queue="p", **late)]
    rows += [message(27, 1, 27, stream_id="unknown", **late)]
    found = expired(*rows, accepted=("s\\40",))
    assert [(row["session_id"], row["destination_queue"], row["messages"], row["witness"]) for row in found] == [
        ("b->r", "q", 1, ["b>@25"]),
        ("a->r", "p", 1, ["a>@26"]),
        ("a->r", "q", 2, ["a>@20"]),
    ]


def test_the_age_of_each_sender_is_by_its_own_clock() -> None:
    late = {"time_to_reach_queue": 60}
    rows = (message(100, 0, 1, **late), message(100, 0, 2, source_queue_manager="t"))
    assert not expired(*rows, message(150, 0, 3, source_queue_manager="t", **late))
    assert expired(*rows, message(170, 0, 3, source_queue_manager="t", **late))


@pytest.mark.parametrize(("before", "below", "falls"), [(9, 4, True), (4, 9, False), (9, 9, False), (2**32 - 1, 1, 0)])
def test_an_ordinal_falls_from_one_second_to_the_next_with_messages(before: int, below: int, falls: bool) -> None:
    found = regressed(message(1, 1, before), message(5, 4, below))
    assert len(found) == falls
    if falls:
        assert "fell 1 time while its clock went on, the first time from 9 to 4" in found[0]["explanation"]
        assert (found[0]["found_at"], found[0]["witness"]) == (after(5), ["a>@9", "a>@4"])
        assert (found[0]["scope_key"], found[0]["tx_sequence_id"]) == (None, None)


def test_the_first_fall_is_shown_by_the_first_messages_with_these_ordinals_on_a_known_stream() -> None:
    rows = [message(6, 1, 9), message(3, 1, 9, stream_id="b>"), message(2, 1, 9, stream_id="unknown")]
    rows += [message(7, 2, 4, stream_id="c>", tx_sequence_id=S), message(8, 2, 5), message(9, 3, 1)]
    sequences = ({"source_queue_manager": "s", "tx_sequence_id": S, "scope_key": key} for key in ("q 1", "x", "z"))
    other = {"source_queue_manager": "t", "tx_sequence_id": S, "scope_key": "q z"}
    (found,) = regressed(*rows, sequences=(*sequences, other))
    assert found["witness"] == ["b>@9", "c>@4"]
    assert "fell 2 times" in found["explanation"]
    assert (found["session_id"], found["scope_key"], int(found["tx_sequence_id"])) == ("c->r", "q 1", S)


def test_a_fall_without_a_message_on_a_known_stream_is_none() -> None:
    assert not regressed(message(1, 1, 9, stream_id="unknown"), message(2, 2, 4, stream_id="unknown"))
    (found,) = regressed(message(1, 1, 9), message(2, 2, 4, stream_id="unknown"))
    assert (found["session_id"], found["found_at"], found["witness"]) == (None, None, ["a>@9"])


def end(stream: str, guid: str | None, address: str, began: float, **columns: Any) -> Row:
    row = {"stream_id": stream, "sender_guid": guid, "address": address, "session_id": f"{guid}->{stream}"}
    return row | {"first_ns": after_ns(began)} | columns


TWO = (end("a>", "g", "ip.2", 1), end("b>", "g", "ip.1", 3), end("c>", "g", "ip.1", 2), end("d>", "h", "ip.2", 0))


def sent(stream: str, number: int, sequence: int = S, **columns: Any) -> Row:
    row: Row = {"stream_id": stream, "stream_offset": number, "tx_sequence_id": sequence, "tx_sequence_number": number}
    return row | {"scope_key": "scope", "accepted": True, "content_hash": 1} | columns


def addresses(ends: tuple[Row, ...], *verdicts: Row) -> list[Row]:
    of_several = sent_by_several(frame(VERDICTS, *verdicts), streams_of_several(frame(ENDS, *ends)))
    return told(TwoAddresses, two_addresses(frame(ENDS, *ends), find_conflicts(of_several)))


def test_copies_and_streams_without_a_guid_are_no_further_addresses() -> None:
    assert not addresses((end("a>", "g", "ip.1", 1), end("b>", "g", "ip.2", 1, copy_of="a>")))
    assert not addresses((end("a>", None, "ip.1", 1), end("b>", None, "ip.2", 1)))


@pytest.mark.parametrize(
    "other",
    [
        sent("c>", 7),
        sent("c>", 7, content_hash=None),
        sent("a>", 7, content_hash=2),
        sent("c>", 8, content_hash=2),
        sent("c>", 7, S + 1, content_hash=2),
        sent("c>", 7, content_hash=2, scope_key="other"),
        sent("d>", 7, content_hash=2),
    ],
)
def test_no_conflict(other: Row) -> None:
    (found,) = addresses(TWO, sent("a>", 7), other)
    assert found["severity"] == "info"


def test_a_message_refused_for_the_greater_sequence_of_another_address_conflicts() -> None:
    stale = sent("a>", 4, accepted=False, reason=Reason.STALE_SEQUENCE.value)
    (found,) = addresses(TWO, stale, sent("c>", 1, S + 1), sent("c>", 2, S + 1), sent("a>", 3, S + 9))
    assert (found["witness"], int(found["tx_sequence_id"])) == (["c>@2", "a>@4"], S)
    (found,) = addresses(TWO, stale, sent("a>", 1, S + 1), sent("c>", 1))
    assert found["severity"] == "info"


def test_conflicts_of_several_senders_are_found_at_once() -> None:
    others = (end("x>", "k", "ip.5", 1), end("y>", "k", "ip.6", 3))
    rows = (sent("a>", 7), sent("b>", 7, content_hash=2), sent("x>", 7, content_hash=3))
    found = addresses((*TWO, *others), *rows, sent("y>", 7, content_hash=4))
    assert {tuple(row["witness"]) for row in found} == {("b>@7", "a>@7"), ("x>@7", "y>@7")}


def test_nothing_gives_nothing() -> None:
    late = outlived_messages(frame(MESSAGES), sending_seconds(frame(MESSAGES)))
    assert late.is_empty()
    assert expired_by_stream(late, frame(VERDICTS)).schema["messages"] == pl.Int64
    assert not expired()
    assert not regressed()
    assert not addresses(())
