"""TCP connections and their streams: what was sent comes back, whatever the capture did to it."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from tiers import merge_needs
from wiretap import ACK, FIN, PSH, RST, SYN, URG, Sent, conversation, fast_open, handshake

from schemas.ingest import TcpReason
from udfs.tcp.connections import Connections
from udfs.tcp.delivery import Overlap, deliver, missing_at_end
from udfs.tcp.direction import Segment


class Rebuilt(NamedTuple):
    """One direction of a connection."""

    data: bytes
    gaps: list[tuple[int, int]]
    conflict: bool
    rejected: list[tuple[int, TcpReason]]
    isn: int | None


def segment(sent: Sent, *, captured: int | None = None) -> Segment:
    payload = sent.payload if captured is None else sent.payload[:captured]
    return Segment(sent.by_server, sent.seq % 2**32, sent.ack % 2**32, sent.flags, len(sent.payload), payload)


def rebuild(
    sent: Sequence[Sent | Segment], overlap: Overlap = Overlap.FIRST
) -> tuple[list[tuple[Rebuilt, Rebuilt]], list[int]]:
    """Client's and server's direction of every connection, and the segments in none."""
    tracker = Connections()
    for index, one in enumerate(sent):
        tracker.take((segment(one) if isinstance(one, Sent) else one)._replace(frame=index))
    tracker.finish()
    result = []
    for connection in tracker.all:
        sides = []
        for side in connection.sides:
            data, at = b"", 0
            holes = []
            for piece in deliver(side, overlap):
                assert piece.start >= at, "pieces are in order and do not overlap"
                assert piece.end > piece.start
                if piece.start > at:
                    holes.append((at, piece.start - at))
                part = piece.segment.payload[piece.skip : piece.skip + piece.end - piece.start]
                assert len(part) == piece.end - piece.start
                data += bytes(part)
                at = piece.end
            assert side.gaps == holes
            end = [(at, missing)] if (missing := missing_at_end(side)) else []
            isn = None if side.isn is None else side.isn % 2**32
            rejected = [(one.frame, reason) for one, reason in side.rejected]
            sides.append(Rebuilt(data, holes + end, side.conflict, rejected, isn))
        result.append((sides[0], sides[1]))
    return result, [one.frame for one in tracker.outside]


def one(sent: Sequence[Sent | Segment], overlap: Overlap = Overlap.FIRST) -> tuple[Rebuilt, Rebuilt]:
    """The directions of the only connection; no segment is left over."""
    found, outside = rebuild(sent, overlap)
    assert (len(found), outside) == (1, [])
    return found[0]


def whole(data: bytes, isn: int | None) -> Rebuilt:
    return Rebuilt(data, [], False, [], None if isn is None else isn % 2**32)


def data(seq: int, payload: bytes, *, ack: int = 5001, flags: int = ACK) -> Sent:
    return Sent(False, seq, ack, flags, payload)


def at_s(seconds: int, sent: Sent) -> Segment:
    return segment(sent)._replace(time_ns=seconds * 10**9)


def in_second(sent: Sent | Segment) -> Segment:
    """A segment of the second of two captures, of which the first is taken before."""
    return (segment(sent) if isinstance(sent, Sent) else sent)._replace(capture=1)


OPEN = handshake(1000, 5000)
TEXT = bytes(range(256)) * 40
ISNS = [0, 1000, 2**31 - 5, 2**31, 2**32 - 1, 2**32 - 5000]


def shuffled(rng: random.Random, sent: list[Sent], distance: int) -> list[Sent]:
    """Reordered, none by more than about so many places."""
    order = sorted(range(len(sent)), key=lambda i: i + rng.random() * distance)
    return [sent[i] for i in order]


def repacketised(rng: random.Random, sent: list[Sent], request: bytes, response: bytes, isns: tuple[int, int]) -> None:
    """Put retransmissions into the conversation, cut elsewhere than the first time, none before its first sending."""
    for _ in range(rng.randrange(1, 8)):
        by_server = rng.random() < 0.5
        text, isn = (response, isns[1]) if by_server else (request, isns[0])
        if text:
            low = rng.randrange(len(text))
            high = min(len(text), low + rng.randrange(1, 3000))
            sent.insert(rng.randrange(4, len(sent)), Sent(by_server, isn + 1 + low, 0, 0, text[low:high]))


@pytest.mark.parametrize("seed", merge_needs(range(6), range(40)))
def test_what_was_sent_comes_back(seed: int) -> None:
    """Reordered, repeated, repacketised, near the wrap; in every overlap policy, for nothing conflicts."""
    rng = random.Random(seed)
    for _ in range(8):
        isns = rng.choice(ISNS), rng.choice([*ISNS, rng.randrange(2**32)])
        request, response = rng.randbytes(rng.randrange(9000)), rng.randbytes(rng.randrange(9000))
        largest = rng.choice([1, 2, 50, 1460, 9000])
        if largest < 50:
            request, response = request[:300], response[:300]
        sent = conversation(rng, request, response, client_isn=isns[0], server_isn=isns[1], largest=largest)
        repacketised(rng, sent, request, response, isns)
        sent = shuffled(rng, sent, rng.choice([0, 2, 8, 50]))
        for _ in range(rng.choice([0, 3])):
            sent.insert(rng.randrange(len(sent)), rng.choice(sent))
        expected = whole(request, isns[0]), whole(response, isns[1])
        for overlap in Overlap:
            assert one(sent, overlap) == expected


# --- rows of the table of faults --------------------------------------------------------------------------------------


ANSWER = Sent(True, 5001, 1007, ACK)
CLIENT_SENDS: dict[str, tuple[list[Sent | Segment], Rebuilt]] = {
    "10: the snap length cut each segment": (
        [segment(data(at, b"abcd"), captured=3) for at in (1001, 1005)],
        Rebuilt(b"abcabc", [(3, 1), (7, 1)], False, [], 1000),
    ),
    "10: it left no payload": (
        [segment(data(at, b"abcd"), captured=0) for at in (1001, 1005)],
        Rebuilt(b"", [(0, 8)], False, [], 1000),
    ),
    "34: the same again": (
        [data(1001, b"abc"), data(1001, b"abc"), data(1004, b"def"), data(1004, b"def"), data(1001, b"abc")],
        whole(b"abcdef", 1000),
    ),
    "35: the same again, cut elsewhere": (
        [data(1001, b"abc"), data(1004, b"def"), data(1002, b"bcdefg"), data(1001, b"a")],
        whole(b"abcdefg", 1000),
    ),
    "38: acknowledged before it is seen": (
        [Sent(True, 5001, 1007, ACK), data(1004, b"def"), data(1001, b"abc")],
        whole(b"abcdef", 1000),
    ),
    "45: reset": ([data(1001, b"abc"), Sent(True, 5001, 1004, RST | ACK)], whole(b"abc", 1000)),
    "47: keep-alive without a byte": (
        [data(1001, b"abcdef"), ANSWER, data(1006, b""), ANSWER, data(1007, b"ghi")],
        whole(b"abcdefghi", 1000),
    ),
    "47: keep-alive with garbage": (
        [data(1001, b"abcdef"), ANSWER, data(1006, b"x"), ANSWER, data(1006, b"x"), ANSWER, data(1007, b"ghi")],
        whole(b"abcdefghi", 1000),
    ),
    "47: keep-alive before any data": ([data(1000, b"x"), data(1001, b"abc")], whole(b"abc", 1000)),
    "47: the last byte, alone, after an empty segment behind it": (
        [data(1001, b"abc"), data(1005, b""), data(1004, b"d")],
        whole(b"abcd", 1000),
    ),
    "47: the last byte, alone, after the FIN": (
        [data(1001, b"abc"), data(1005, b"", flags=FIN | ACK), data(1004, b"d")],
        whole(b"abcd", 1000),
    ),
    "47: keep-alive with garbage, whose segment nobody has": (
        [data(1001, b"abc"), at_s(0, ANSWER), at_s(1, data(1006, b"x")), ANSWER, data(1007, b"ghi")],
        Rebuilt(b"abcghi", [(3, 3)], False, [], 1000),
    ),
    "47: a last segment of one byte, captured after its acknowledgment": (
        [data(1001, b"abcde"), at_s(1, ANSWER), at_s(1, data(1006, b"f"))],
        whole(b"abcdef", 1000),
    ),
    "47: keep-alive with garbage, whose segment another capture has": (
        [data(1001, b"abc"), ANSWER, data(1006, b"x"), ANSWER, in_second(data(1004, b"def")), in_second(ANSWER)],
        whole(b"abcdef", 1000),
    ),
    "47: the same, where the acknowledgment was missed, too": (
        [data(1001, b"abc"), data(1006, b"x"), in_second(data(1004, b"def")), in_second(data(1006, b"x"))],
        whole(b"abcdef", 1000),
    ),
    "47: keep-alive of the next capture in time, whose segment nobody has": (
        [data(1001, b"abc"), at_s(0, ANSWER), in_second(at_s(11, data(1006, b"x"))), in_second(data(1007, b"ghi"))],
        Rebuilt(b"abcghi", [(3, 3)], False, [], 1000),
    ),
    "47: a segment of one byte that only the second of two captures has": (
        [data(1001, b"abcde"), at_s(1, ANSWER), in_second(at_s(8, data(1006, b"f")))],
        whole(b"abcdef", 1000),
    ),
    "47: a segment of one byte, and its keep-alive in a capture that missed it": (
        [data(1001, b"abcde"), at_s(0, ANSWER), at_s(2, data(1006, b"x")), in_second(at_s(0, data(1006, b"f")))],
        whole(b"abcdef", 1000),
    ),
    "49: only acknowledgments": ([Sent(True, 5001, 1010, ACK)], Rebuilt(b"", [(0, 9)], False, [], 1000)),
    "49: acknowledged beyond what is seen": (
        [data(1001, b"abc"), Sent(True, 5001, 1010, ACK)],
        Rebuilt(b"abc", [(3, 6)], False, [], 1000),
    ),
    "49: the FIN is no byte, and what is acknowledged beyond it proves nothing": (
        [data(1001, b"abc", flags=FIN | ACK), Sent(True, 5001, 1005, ACK), Sent(True, 5001, 1999, ACK)],
        whole(b"abc", 1000),
    ),
    "49: a segment is lost": (
        [data(1001, b"abc"), data(1007, b"ghi"), Sent(True, 5001, 1010, ACK)],
        Rebuilt(b"abcghi", [(3, 3)], False, [], 1000),
    ),
    "50: FIN with data, and data behind it": (
        [data(1001, b"abc"), data(1004, b"def", flags=FIN | ACK), data(1007, b"late"), data(1009, b"later")],
        Rebuilt(b"abcdef", [], False, [(5, TcpReason.AFTER_FIN), (6, TcpReason.AFTER_FIN)], 1000),
    ),
    "50: data before the SYN": (
        [data(901, b"x" * 50), data(1001, b"abc")],
        Rebuilt(b"abc", [], False, [(3, TcpReason.BEFORE_START)], 1000),
    ),
    "50: SYN and SYN/ACK again": (
        [OPEN[0], OPEN[1], data(1001, b"abc"), OPEN[0], OPEN[1], data(1004, b"def")],
        whole(b"abcdef", 1000),
    ),
    "52: window probe with the next byte": (
        [data(1001, b"abc"), data(1004, b"d"), data(1004, b"d"), data(1004, b"defg"), data(1008, b"h")],
        whole(b"abcdefgh", 1000),
    ),
    "55: urgent data is inline": (
        [data(1001, b"abc"), data(1004, b"!", flags=ACK | URG | PSH), data(1005, b"def")],
        whole(b"abc!def", 1000),
    ),
}


@pytest.mark.parametrize("what", CLIENT_SENDS)
def test_what_a_client_sends_after_the_handshake(what: str) -> None:
    """Each name begins with its row in the table of faults."""
    sent, expected = CLIENT_SENDS[what]
    assert one([*OPEN, *sent])[0] == expected


OVERLAPS = {  # segments of which two hold other bytes; the stream by the policies first, windows, linux and last
    "36: inside": ([data(1003, b"aaaa"), data(1004, b"bb")], [b"aaaa", b"aaaa", b"aaaa", b"abba"]),
    "36: around": ([data(1003, b"aaaa"), data(1001, b"b" * 8)], [b"bbaaaabb", b"b" * 8, b"b" * 8, b"b" * 8]),
    "36: before": ([data(1003, b"aaaa"), data(1001, b"bbbb")], [b"bbaaaa", b"bbaaaa", b"bbbbaa", b"bbbbaa"]),
    "36: behind": ([data(1003, b"aaaa"), data(1005, b"bbbb")], [b"aaaabb", b"aaaabb", b"aaaabb", b"aabbbb"]),
    "36: longer": ([data(1003, b"aaaa"), data(1003, b"b" * 6)], [b"aaaabb", b"aaaabb", b"b" * 6, b"b" * 6]),
    "37: acknowledged": (
        [data(1001, b"aaaa"), Sent(True, 5001, 1005, ACK), data(1001, b"b" * 6)],
        [b"aaaabb"] * 4,
    ),
    "37: partly acknowledged": (
        [data(1001, b"aaaa"), Sent(True, 5001, 1003, ACK), data(1001, b"b" * 6)],
        [b"aaaabb", b"aaaabb", b"aabbbb", b"aabbbb"],
    ),
}


@pytest.mark.parametrize("what", OVERLAPS)
def test_the_policy_decides_where_bytes_differ(what: str) -> None:
    sent, expected = OVERLAPS[what]
    sides = [one([*OPEN, *sent], overlap)[0] for overlap in Overlap]
    assert [side.data for side in sides] == expected
    assert all(side.conflict for side in sides)


def test_fault_32_the_copy_with_a_right_checksum_counts() -> None:
    """Whichever came first."""
    right = segment(data(1001, b"abcd"))._replace(header_sum=0xFFFF - int.from_bytes(b"abcd", "big") % 0xFFFF)
    wrong = right._replace(payload=b"abXd")
    for copies in ([right, wrong], [wrong, right]):
        assert one([*OPEN, *copies])[0] == Rebuilt(b"abcd", [], True, [], 1000)


@pytest.mark.parametrize("largest", [1, 2, 700])
@pytest.mark.parametrize("seed", range(6))
def test_fault_39_whole_file_backwards(largest: int, seed: int) -> None:
    rng = random.Random(seed)
    request, response = TEXT[: 300 * largest], TEXT[: 200 * largest]
    isn = rng.choice(ISNS)
    sent = conversation(rng, request, response, client_isn=isn, largest=largest)
    assert one(sent[::-1]) == (whole(request, isn), whole(response, 5000))


def test_fault_43_more_than_four_gib() -> None:
    """Positions go on growing: the sequence numbers come round and each round is its own."""
    step = 50 << 20
    jumps = [
        Segment(False, (1001 + i * step) % 2**32, 0, ACK, 4, b"%4d" % i) for i in range(120)
    ]  # 6 GB, of which 4 bytes in every 50 MiB are held
    found, outside = rebuild([*map(segment, OPEN), *jumps])
    assert outside == []
    client = found[0][0]
    assert client.data == b"".join(b"%4d" % i for i in range(120))
    assert client.gaps == [(i * step + 4, step - 4) for i in range(119)]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("second", [900, 1000 + 300, 1001, 3_000_000_000, 10**6])
def test_fault_44_port_reuse(second: int, closed: bool) -> None:
    """After FIN and without; a lower ISN, one inside the old range, one far off."""
    rng = random.Random(second)
    first = conversation(rng, TEXT[:600], TEXT[:500], largest=100, closed=closed)
    again = conversation(rng, TEXT[600:], TEXT[500:], client_isn=second, server_isn=7_000, largest=100)
    found, outside = rebuild(first + again)
    assert outside == []
    assert found == [
        (whole(TEXT[:600], 1000), whole(TEXT[:500], 5000)),
        (whole(TEXT[600:], second), whole(TEXT[500:], 7000)),
    ]


def test_fault_44_port_reuse_with_the_same_server_isn() -> None:
    """What the server's SYN answers tells whose it is."""
    first = conversation(random.Random(1), TEXT[:600], TEXT[:500], largest=100)
    again = conversation(random.Random(2), TEXT[600:], TEXT[500:], client_isn=900, largest=100)
    assert rebuild(first + again + first) == (
        [
            (whole(TEXT[:600], 1000), whole(TEXT[:500], 5000)),
            (whole(TEXT[600:], 900), whole(TEXT[500:], 5000)),
        ],
        [],
    )


def test_fault_44_second_vantage_point_that_saw_other_segments() -> None:
    """The next initial sequence number lies ahead, as stacks choose it: what comes before it is the first one's."""
    first = conversation(random.Random(1), TEXT[:3000], TEXT[3000:], largest=100, client_isn=1000)
    again = conversation(random.Random(2), TEXT[:600], TEXT[600:900], client_isn=90_000, server_isn=80_000, largest=100)
    one_saw = [s for i, s in enumerate(first) if not s.payload or i % 3]
    other_saw = [s for i, s in enumerate(first[4:]) if not s.payload or i % 2]
    both = set(one_saw) | set(other_saw)
    lost = sum(len(s.payload) for s in first if s not in both)
    found, outside = rebuild(one_saw + again + other_saw)
    assert (len(found), outside) == (2, [])
    assert found[1] == (whole(TEXT[:600], 90_000), whole(TEXT[600:900], 80_000))
    assert sum(len(side.data) for side in found[0]) == len(TEXT) - lost
    assert not any(side.rejected or side.conflict for side in found[0])


@pytest.mark.parametrize("answers_first", [True, False])
@pytest.mark.parametrize("missed", [(), (0,), (1,)])
@pytest.mark.parametrize("second", [5_900, 2_000_000, 3_000_000_000])
def test_fault_44_port_reuse_in_a_capture_of_each_direction(
    second: int, missed: Sequence[int], answers_first: bool
) -> None:
    """Also where the SYN of the first connection was missed, or what answers it."""
    first = conversation(random.Random(1), TEXT[:600], TEXT[:500], largest=100)
    again = conversation(random.Random(2), TEXT[600:], TEXT[500:], client_isn=90_000, server_isn=second, largest=100)
    sent = [*(one for at, one in enumerate(first) if at not in missed), *again]
    in_turn: list[Sent] = sorted(sent, key=lambda sending: sending.by_server is not answers_first)
    found, outside = rebuild(in_turn)
    assert outside == []
    assert [tuple(side.data for side in sides) for sides in found] == [
        (TEXT[:600], TEXT[:500]),
        (TEXT[600:], TEXT[500:]),
    ]
    assert not any(side.gaps or side.rejected or side.conflict for sides in found for side in sides)


@pytest.mark.parametrize(("later_s", "connections"), [(239, 1), (241, 2)])
def test_fault_44_the_same_initial_numbers_again(later_s: int, connections: int) -> None:
    """After four quiet minutes a port is used again; before, another vantage point saw the same connection."""
    sent = conversation(random.Random(1), TEXT[:900], TEXT[900:], largest=90)
    seen = [segment(one)._replace(time_ns=s * 10**9 + at) for s in (0, later_s) for at, one in enumerate(sent)]
    assert rebuild(seen) == ([(whole(TEXT[:900], 1000), whole(TEXT[900:], 5000))] * connections, [])


def test_syn_from_nowhere_does_not_split_a_connection() -> None:
    """A SYN that nothing follows: the data of both directions stay where they were."""
    sent = conversation(random.Random(2), TEXT, TEXT, largest=200)
    for isns in ([2**31 + 12345], [100_000], [2**31 + i * 2**28 for i in range(6)]):
        strays = [Sent(by_server, isn, 0, SYN) for by_server in (False, True) for isn in isns]
        found, outside = rebuild([*sent[:20], *strays, *sent[20:]])
        assert outside == []
        assert found[0] == (whole(TEXT, 1000), whole(TEXT, 5000))
        assert {side.data for pair in found[1:] for side in pair} == {b""}


@pytest.mark.parametrize("seq", [5001 + 2**31, 5001 + 2**20, 5001 - 2**20, 0])
def test_fault_46_spoofed_reset(seq: int) -> None:
    sent = conversation(random.Random(3), TEXT, TEXT, largest=300)
    sent.insert(12, Sent(True, seq, 0, RST))
    assert one(sent) == (whole(TEXT, 1000), whole(TEXT, 5000))


@pytest.mark.parametrize("distance", [2**27, 2**30, -(2**30)])
def test_fault_48_lone_far_segment_behind_a_wrong_reset_bit(distance: int) -> None:
    """The connection is taken for closed, and yet one segment far from it begins no other."""
    sent = conversation(random.Random(5), TEXT, TEXT, largest=300, closed=False)
    place = next(i for i, one in enumerate(sent) if one.payload and i > 6)
    reset = sent[place]._replace(flags=sent[place].flags | RST)
    found, outside = rebuild([*sent[:place], reset, data(1001 + distance, b"stray"), *sent[place:]])
    assert found == [(whole(TEXT, 1000), whole(TEXT, 5000))]
    assert outside == [place + 1]


@pytest.mark.parametrize("again", [1, 2, 3, 40])
def test_fault_44_reuse_without_any_syn(again: int) -> None:
    first = conversation(random.Random(1), TEXT, largest=90)
    second = [data(2**31 + 10 * i, b"0123456789") for i in range(again)]
    found, outside = rebuild([*first, *second])
    assert outside == []
    assert [client.data for client, _ in found] == [TEXT, b"0123456789" * again]


@pytest.mark.parametrize("distance", [-184_000_000, -(2**21), 2**25])
def test_fault_44_reuse_without_any_syn_near_the_first_numbers_of_one_direction(distance: int) -> None:
    """Segments whose acknowledgment does not fit are another connection's: no bytes are missing between the two."""
    first = conversation(random.Random(1), TEXT, TEXT, largest=90, closed=False)
    second = [data(1001 + distance + 10 * i, b"0123456789", ack=5001 + 2**31) for i in range(3)]
    found, outside = rebuild([*first, *second])
    assert outside == []
    assert [client for client, _ in found] == [whole(TEXT, 1000), whole(b"0123456789" * 3, None)]


@pytest.mark.parametrize("distance", [2**30, -(2**30), 2**31, 2**29])
def test_fault_48_far_off_the_window(distance: int) -> None:
    sent = conversation(random.Random(5), TEXT, TEXT, largest=300)
    stray = data(1001 + distance, b"stray")
    for at in (6, 20, len(sent) - 4):
        found, outside = rebuild([*sent[:at], stray, *sent[at:]])
        assert found == [(whole(TEXT, 1000), whole(TEXT, 5000))]
        assert outside == [at]


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize(
    ("size", "acknowledged"), [(300, 300), (300, 0), (300, 1), (300, 299), (300, 120), (1, 1), (1, 0), (600, 600)]
)
def test_fault_50_fast_open(size: int, acknowledged: int, overlap: Overlap) -> None:
    """None, some or all of the SYN's data is acknowledged, and the rest is sent again: each byte counts once."""
    sent = fast_open(TEXT[:600], b"answer", size, acknowledged)
    expected = whole(TEXT[:600], 1000), whole(b"answer", 5000)
    assert one(sent, overlap) == expected
    assert one(sent + sent, overlap) == expected, "seen at two places"
    assert one([sent[1], sent[0], *sent[2:]], overlap) == expected, "the SYN/ACK was captured first"
    assert one([*sent[:2], *sent[:2], *sent[2:]], overlap) == expected, "both were sent again"
    assert one([sent[0], Sent(False, 1000, 0, SYN), *sent[1:]], overlap) == expected, "the SYN without data"
    assert one([s for s in sent if not s.by_server], overlap)[0] == expected[0], "one direction only (49)"


@pytest.mark.parametrize("ack", [1000, 1005])
def test_fault_50_answer_to_no_byte_of_the_syn(ack: int) -> None:
    """It acknowledges less than the SYN, or more than its data: it opens another connection ([RFC 9293] 3.10.7.3)."""
    found, _ = rebuild([Sent(False, 1000, 0, SYN, b"abc"), Sent(True, 5000, ack, SYN | ACK)])
    assert [(client.isn, server.isn) for client, server in found] == [(1000, None), (None, 5000)]
