"""What captures, connections and addresses show: who could not connect, stopped, or answers at an address."""

from datetime import datetime
from typing import Any

import polars as pl
import pytest
from fact_rows import SECOND, Row, after, after_ns, told
from frames_of import frame_of as frame

from schemas.ingest import CAPTURES, QUARANTINE, STREAMS, FramingReason
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.pings import PINGS
from schemas.replay import ENDS
from udfs.derive.facts.captures import cannot_connect, captured_twice, clock_steps
from udfs.derive.facts.receivers import (
    acknowledged_elsewhere,
    count_acks,
    find_stalls,
    find_ways,
    several_receivers,
    window_stalled,
)
from udfs.replay.findings.captures import CannotConnect, CapturedTwice, ClockStepped
from udfs.replay.findings.receivers import AcknowledgedElsewhere, SeveralReceivers, WindowStalled

FLOW = pl.Schema(
    [
        *((name, pl.String) for name in ("stream_id", "session_id", "receiver_guid", "receiver", "address")),
        ("source_queue_manager", pl.String),
        ("first", pl.Struct({"offset": pl.Int64, "ns": pl.Int64})),
    ]
)
TALLY = pl.Schema(
    {
        **dict.fromkeys(("stream_id", "source_queue_manager"), pl.String),
        **dict.fromkeys(("sequence", "first_ns", "first_offset"), pl.Int64),
    }
)
LATER = after(1000)
PAIRED = pl.Schema({"receiver": pl.String, "source_queue_manager": pl.String, "ns": pl.Int64, "key": pl.String})


# Who was captured twice, and by which clock


def test_copies_are_counted_by_session_and_connection() -> None:
    copies = [("b", 2), ("c", 1), ("c", 1), ("d", None)]
    rows: list[Row] = [
        {"stream_id": f"{name}{at}", "connection_id": name, "copy_of": "a", "first_ns": began and after_ns(began)}
        for at, (name, began) in enumerate(copies)
    ]
    rows = [row | {"session_id": "other" if row["connection_id"] == "d" else "s->r"} for row in rows]
    rows.append({"stream_id": "a", "connection_id": "a", "session_id": "s->r", "first_ns": after_ns(0)})
    found = told(CapturedTwice, captured_twice(frame(ENDS, *rows)))
    assert [(row["session_id"], row["messages"], row["found_at"], row["witness"]) for row in found] == [
        ("other", 1, None, ["a@0", "d3@0"]),
        ("s->r", 2, after(1), ["a@0", "c1@0"]),
    ]


def test_the_messages_next_to_the_first_step_of_a_clock_are_shown() -> None:
    steps = [{"frame": 5, "step_ns": -SECOND}, {"frame": 9, "step_ns": -SECOND}]
    captures = [{"capture_id": "c", "uri": "c.pcap", "clock_steps": steps, "first_captured_at": after(0)}]
    captures += [{"capture_id": "d", "uri": "d.pcap"}, captures[0] | {"capture_id": "e", "uri": "e.pcap"}]
    places = [("c", 4, 0), ("c", 5, 400), ("c", 5, 0), ("c", 4, 9), ("c", 3, 1), ("c", None, 7), ("d", 5, 1)]
    for order in (places, places[::-1]):
        messages = (
            {"capture_id": of, "last_frame": at, "stream_id": "s", "stream_offset": offset} for of, at, offset in order
        )
        one, other = told(ClockStepped, clock_steps(frame(CAPTURES, *captures), frame(MESSAGES, *messages)))
        assert (one["messages"], one["found_at"], one["witness"]) == (2, after(0), ["s@9", "s@0"])
        assert "first by 1.0 s at record 5" in one["explanation"]
        assert ("e.pcap" in other["explanation"], other["witness"]) == (True, [])


# Who could not connect


def stream(client: str, at: float, failure: str | None = None, *, initiator: bool = True, **columns: Any) -> Row:
    name = f"{client}{at}"
    row: Row = {"connection_id": name, "stream_id": name + "<>"[initiator], "from_initiator": initiator}
    row |= {"src_ip": client, "dst_ip": "hub", "attempt": failure, "closed": False, "mid_stream": False}
    return row | {"first_captured_at": after(at), "last_captured_at": after(at + 1)} | columns


def ping(client: str, at: float, cookie: int | None = 1, *, refused: bool | None = None) -> Row:
    """Returns a ping of the client, or with `refused` the answer to it."""
    row = {"captured_at": after(at), "cookie": cookie, "refused": bool(refused), "is_response": refused is not None}
    return row | dict(zip(("src_ip", "dst_ip"), (client, "hub") if refused is None else ("hub", client), strict=True))


def failures(
    *streams: Row,
    handshakes: tuple[Row, ...] = (),
    quarantine: tuple[Row, ...] = (),
    pings: tuple[Row, ...] = (),
    ended_at: datetime | None = LATER,
) -> list[Row]:
    tables = frame(STREAMS, *streams), frame(HANDSHAKES, *handshakes), frame(QUARANTINE, *quarantine)
    captures = frame(CAPTURES, {"capture_id": "c", "last_captured_at": ended_at}, {"capture_id": "d"})
    return told(CannotConnect, cannot_connect(*tables, captures, frame(PINGS, *pings)))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"failure": "no_answer"}, "1 connection had no answer"),
        ({"failure": "refused"}, "1 was refused by a reset"),
        ({"failure": "silent"}, "1 opened and carried nothing"),
        ({"closed": True, "acked_bytes": 5}, "1 was closed without an answer to the handshake"),
        ({"closed": True, "acked_bytes": None}, None),
        ({"closed": True, "acked_bytes": 5, "mid_stream": True}, None),
        ({}, None),
    ],
)
def test_a_connection_fails_or_works(columns: Row, words: str | None) -> None:
    found = failures(stream("a", 1, **columns))
    assert bool(found) is bool(words)
    if words:
        (row,) = found
        assert f"a could not connect to hub: {words}, from" in row["explanation"]
        assert "The captures show no connection that worked." in row["explanation"]
        assert (row["session_id"], row["witness"]) == ("a->hub", ["a1>@0"])


def test_a_connection_that_was_answered_was_not_closed_without_an_answer() -> None:
    closed = stream("a", 1, closed=True, acked_bytes=5)
    assert not failures(closed, closed | {"stream_id": "a1<", "from_initiator": False})


@pytest.mark.parametrize("side", ["a1>", "a1<"])
def test_a_handshake_or_its_answer_refuses(side: str) -> None:
    both = stream("a", 1), stream("a", 1, initiator=False)
    (found,) = failures(*both, handshakes=({"stream_id": side, "connection_refused": True},))
    assert "1 was refused in the handshake" in found["explanation"]
    assert not failures(*both, handshakes=({"stream_id": side, "connection_refused": False},))


@pytest.mark.parametrize(
    ("reason", "offset", "mid_stream", "counts"),
    [
        (FramingReason.BAD_VERSION.value, 0, False, True),
        (FramingReason.BAD_VERSION.value, 8, False, False),
        (FramingReason.BAD_VERSION.value, 0, True, False),
        (None, 0, False, False),
    ],
)
def test_a_stream_begins_with_another_version(reason: str | None, offset: int, mid_stream: bool, counts: bool) -> None:
    begun = {"stream_id": "a1>", "stream_offset": offset, "reason": reason}
    found = failures(stream("a", 1, mid_stream=mid_stream), quarantine=(begun,))
    assert bool(found) is counts
    assert not counts or "1 began with another version of the protocol" in found[0]["explanation"]


def test_failures_before_and_after_what_worked() -> None:
    early, late = stream("a", 1, "refused"), stream("a", 9, "no_answer")
    (found,) = failures(early, stream("a", 5), late, stream("b", 7))
    assert (found["severity"], found["messages"], found["found_at"]) == ("warning", 2, after(1))
    assert "1 connection had no answer, 1 was refused by a reset" in found["explanation"]
    assert "The last connection that worked ended at 2026-03-02 08:00:06 UTC." in found["explanation"]
    (found,) = failures(early, stream("a", 5))
    assert (found["severity"], found["witness"]) == ("info", ["a1>@0"])


@pytest.mark.parametrize(("failure", "counts"), [("no_answer", False), ("silent", False), ("refused", True)])
def test_the_last_attempts_may_still_have_been_answered(failure: str, counts: bool) -> None:
    assert bool(failures(stream("a", 9, failure), ended_at=after(30))) is counts
    assert failures(stream("a", 9, failure), ended_at=after(31))
    assert failures(stream("a", 9, failure), ended_at=None)


def test_a_ping_counts_without_an_answer_where_nothing_connects_afterwards() -> None:
    (found,) = failures(pings=(ping("a", 1), ping("a", 3), ping("a", 2, 7), ping("b", 1, refused=False)))
    assert "2 pings had no answer, from 2026-03-02 08:00:01 UTC to 2026-03-02 08:00:03 UTC" in found["explanation"]
    assert (found["witness"], found["found_at"]) == ([], after(1))
    assert not failures(stream("a", 5), pings=(ping("a", 1),))
    assert failures(stream("a", 5), pings=(ping("a", 7),))


@pytest.mark.parametrize("cookie", [1, None])
def test_pings_are_answered_with_their_cookie(cookie: int | None) -> None:
    asked = ping("a", 1, cookie)
    assert not failures(pings=(asked, ping("a", 2, cookie, refused=False), ping("a", 2, cookie, refused=True)))
    (found,) = failures(pings=(asked, ping("a", 2, cookie, refused=True)))
    assert "1 ping was answered with a refusal" in found["explanation"]
    (found,) = failures(pings=(asked, ping("a", 2, 8, refused=False)))
    assert "1 ping had no answer" in found["explanation"]


# Who stopped taking packets


class Watched:
    """A connection on which SessionAcks come back; times are s after the start."""

    def __init__(self, until: float, name: str = "c", **columns: Any) -> None:
        self.name, self.until = name, until
        self.streams: list[Row] = []
        self.ends: list[Row] = []
        self.packets: list[Row] = []
        self.session_acks: list[Row] = []
        self.handshakes: list[Row] = [{"stream_id": f"{name}>", "ack_timeout_ms": 120_000}]
        back = {"missing_bytes": columns.pop("back_missing_bytes", 0)}
        for side, own in ((">", columns), ("<", back)):
            stream_id = {"stream_id": name + side}
            self.streams.append(stream_id | {"connection_last_at": after(until)} | own)
            end = {"connection_id": name, "missing_bytes": 0, "address": f"ip{side}", "session_id": f"s{side}r"}
            self.ends.append(stream_id | end | {"last_ns": after_ns(0)} | back)

    def message(self, at: float) -> None:
        """Sends a message."""
        self.packets.append(self._row(">", at))

    def session_ack(self, at: float | None, window_size: int | None = 64) -> None:
        """Answers with a SessionAck."""
        self.session_acks.append(self._row("<", at) | {"window_size": window_size})

    def _row(self, side: str, at: float | None) -> Row:
        place = 0 if at is None else round(at * 10)
        return {
            "stream_id": self.name + side,
            "stream_offset": place,
            "captured_ns": None if at is None else after_ns(at),
        }

    def stalls(self) -> dict[str, pl.DataFrame]:
        """Returns what is found on this connection alone."""
        ways = find_ways(frame(STREAMS, *self.streams), frame(ENDS, *self.ends), frame(HANDSHAKES, *self.handshakes))
        return find_stalls(ways, frame(MESSAGES, *self.packets), frame(ACKS), frame(SESSION_ACKS, *self.session_acks))


def stalled(*connections: Watched) -> list[Row]:
    parts = [one.stalls() for one in connections]
    whole = {name: pl.concat([part[name] for part in parts]) for name in ("stalls", "answering")}
    return told(WindowStalled, window_stalled(**whole))


@pytest.mark.parametrize(("until", "is_found"), [(101, True), (100, False)])
def test_a_session_ack_is_overdue(until: float, is_found: bool) -> None:
    one = Watched(until)
    one.message(1)
    one.session_ack(1.5)
    one.message(10)
    one.message(9.5)
    found = stalled(one)
    assert bool(found) is is_found
    if is_found:
        assert (
            "on 1 connection: for up to 91 s no SessionAck came for packets that were sent" in found[0]["explanation"]
        )
        assert (found[0]["severity"], found[0]["witness"], found[0]["found_at"]) == ("warning", ["c>@100"], after(10))


@pytest.mark.parametrize(
    ("headers", "severity"),
    [
        (((0.5, 1), (10, 1), (31, 0)), "warning"),
        (((0.5, 1), (31, 2), (32, 64)), "info"),
        (((0.5, 1), (30, 2), (60, 64), (61, 1), (62, 64)), None),
        (((0.5, 1), (None, 2), (31, 1)), "warning"),
        (((0.5, 2), (31, 64)), None),
    ],
)
def test_a_window_of_one_packet(headers: tuple[tuple[float | None, int], ...], severity: str | None) -> None:
    one = Watched(90)
    for header in reversed(headers):
        one.session_ack(*header)
    found = stalled(one)
    assert [row["severity"] for row in found] == ([severity] if severity else [])
    assert all("it announced a window of one packet" in row["explanation"] for row in found)
    assert all(row["witness"] == ["c>@0"] for row in found)


@pytest.mark.parametrize(
    ("shut_ms", "until", "severity"), [(10_000, 31, "warning"), (10_000, 32, "info"), (9_999, 9, 0)]
)
def test_no_tcp_window(shut_ms: int, until: float, severity: str | None) -> None:
    found = stalled(Watched(until, window_shut_at=after(20), window_shut_ms=shut_ms))
    assert [row["severity"] for row in found] == ([severity] if severity else [])
    assert all("for up to 10 s its TCP announced a window of 0" in row["explanation"] for row in found)


def test_patience_is_three_quarters_of_the_longer_timeout_of_the_two_sides() -> None:
    one = Watched(300)
    one.handshakes = [{"stream_id": f"c{side}", "ack_timeout_ms": ms} for side, ms in ((">", 20_000), ("<", 40_000))]
    one.message(1)
    one.session_ack(32)
    assert stalled(one)
    one.handshakes[1]["ack_timeout_ms"] = 60_000
    assert not stalled(one)


def test_an_address_that_answers_on_another_connection_is_expected_to_answer() -> None:
    silent, other = Watched(300), Watched(300, "d")
    silent.message(1)
    assert not stalled(silent, other)
    other.session_ack(None)
    (found,) = stalled(silent, other)
    assert found["witness"] == ["c>@10"]


def test_a_copy_and_a_direction_alone_say_nothing() -> None:
    one = Watched(300, window_shut_at=after(1), window_shut_ms=20_000)
    assert stalled(one)
    one.ends[1]["copy_of"] = "d<"
    assert not stalled(one)


def test_a_session_has_one_finding_on_all_its_connections() -> None:
    shut: Row = {"window_shut_at": after(2), "window_shut_ms": 30_000}
    one, other = Watched(300, **shut), Watched(40, "d", window_shut_at=after(1), window_shut_ms=10_000)
    one.message(5)
    one.session_ack(100, window_size=0)
    one.session_ack(140, window_size=0)
    (found,) = stalled(one, other)
    assert (found["messages"], found["witness"], found["found_at"]) == (2, ["d>@0"], after(1))
    assert "for up to 95 s no SessionAck" in found["explanation"]
    assert "for up to 40 s it announced" in found["explanation"]
    assert "for up to 30 s its TCP" in found["explanation"]


# Who answers at an address


def pair_of_ends(name: str, client: str, server: str, **columns: Any) -> list[Row]:
    sides = ((">", client, server), ("<", server, client))
    return [
        {"stream_id": name + side, "connection_id": name, "address": f"ip.{own[0]}", "sender": own}
        | columns
        | {"receiver_guid": other}
        for side, own, other in sides
    ]


def flow(name: str, receiver: str, at: float, source: str = "s", address: str = "ip.s") -> Row:
    row = {"stream_id": f"{name}>", "session_id": f"{source}->{receiver}", "receiver_guid": receiver}
    row |= {"receiver": receiver, "source_queue_manager": source, "address": address}
    return row | {"first": {"offset": 7, "ns": after_ns(at)}}


def tally(name: str, sequence: int, at: float) -> Row:
    row: Row = {"stream_id": f"{name}>", "source_queue_manager": "s", "sequence": sequence}
    return row | {"first_ns": after_ns(at), "first_offset": 9}


SERVED = (*pair_of_ends("a", "s", "r1"), *pair_of_ends("b", "s", "r2"), *pair_of_ends("c", "s", "other"))


def receivers(flows: list[Row], *tallies: Row, ends: tuple[Row, ...] = SERVED) -> list[Row]:
    tables = pl.DataFrame(flows, FLOW), frame(ENDS, *ends), pl.DataFrame(list(tallies), TALLY)
    return told(SeveralReceivers, several_receivers(*tables))


def test_the_first_sequence_that_went_to_two_receivers() -> None:
    flows = [flow("b", "r2", 3), flow("a", "r1", 5)]
    split = [tally("a", 1, 5), tally("b", 1, 6), tally("b", 2, 3), tally("a", 2, 7), tally("a", 2, 6), tally("a", 3, 1)]
    (found,) = receivers(flows, *split)
    assert (found["severity"], found["witness"]) == ("warning", ["b>@9", "a>@9"])
    assert "2 sequences of messages went to several of them" in found["explanation"]


def elsewhere(flows: list[Row], *acks: tuple[str, str], ends: tuple[Row, ...] = SERVED) -> list[Row]:
    rows = [
        {"receiver": receiver, "source_queue_manager": "s", "ns": after_ns(len(key)), "key": key}
        for receiver, key in acks
    ]
    counted = count_acks(pl.DataFrame(rows, PAIRED))
    return told(AcknowledgedElsewhere, acknowledged_elsewhere(pl.DataFrame(flows, FLOW), frame(ENDS, *ends), counted))


def test_acknowledgments_go_to_an_address_that_no_message_came_from() -> None:
    flows = [flow("a", "r1", 1, address=f"ip.{i:02}") for i in range(21)]
    (found,) = elsewhere(flows, ("r1", "a<@30"), ("r1", "a<@5"), ("r1", "a<@5"), ("r2", "a<@7"), ("r1", "b<@8"))
    assert (found["messages"], found["witness"], found["found_at"]) == (2, ["a<@5"], after(4))
    assert "2 acknowledgments went to ip.s, although the messages of sender s come from ip.00" in found["explanation"]
    assert "ip.19 and 1 other: it has several networks" in found["explanation"]
    assert found["session_id"] == "s->r1"
