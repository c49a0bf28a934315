"""Compares the framer with a second implementation of its rules, which is written to be obvious and not fast."""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest
from pace import bounded
from wiretap import base_header, msmq

from schemas.ingest import FramingReason as Why
from udfs.msmq import framing, stream_window
from udfs.msmq.framing import FramedPackets, Framer, Unframed

Run = tuple[int, bytes]
Places = list[tuple[int, int]]


def frame(
    runs: Sequence[Run], *, mid_stream: bool = False, cut: Callable[[bytes], list[bytes]] = lambda data: [data]
) -> tuple[Places, list[Unframed]]:
    """Returns offset and size of every packet, and the unframed runs."""
    framer = Framer(mid_stream=mid_stream, raw_kept=64)
    packets: Places = []
    unframed: list[Unframed] = []

    def collect(parts: Iterable[FramedPackets]) -> None:
        for part in parts:
            packets.extend((part.base + at, size) for at, size in zip(part.starts, part.sizes, strict=True))
            unframed.extend(part.unframed)

    for start, data in runs:
        if start > framer.end:
            collect(framer.gap(start - framer.end))
        for part in cut(data):
            collect(framer.feed(part))
    collect(framer.frame_rest())
    return packets, unframed


def faults(runs: Sequence[Run], *, mid_stream: bool = False) -> tuple[Places, list[tuple[int, int, Why]]]:
    packets, unframed = frame(runs, mid_stream=mid_stream)
    return packets, [(u.offset, u.length, u.reason) for u in unframed]


# --- the second implementation ----------------------------------------------------------------------------------------


class Naive:
    """One run of recovered bytes; offsets are stream offsets."""

    def __init__(self, start: int, data: bytes) -> None:
        """Holds the bytes of the run."""
        self.start, self.data, self.end = start, data, start + len(data)

    def good(self, at: int) -> bool:
        """Returns whether a complete header with a possible PacketSize begins there."""
        head = self.data[at - self.start : at - self.start + 16]
        size = int.from_bytes(head[8:12], "little")
        return (
            len(head) == 16 and head[0] == 0x10 and head[4:8] == b"LIOR" and 16 <= size <= stream_window.LARGEST_PACKET
        )

    def size(self, at: int) -> int:
        """Returns PacketSize, plus 16 if a SessionHeader follows the packet."""
        index = at - self.start
        size = int.from_bytes(self.data[index + 8 : index + 12], "little")
        internal, session = self.data[index + 2] & 0x08, self.data[index + 2] & 0x10
        if not session:
            return size
        expected, other = (size, size + 16) if internal and size != 20 else (size + 16, size)
        if at + expected + 16 <= self.end and not self.like(at + expected) and self.like(at + other):
            return other
        return expected

    def like(self, at: int) -> bool:
        """Returns whether version and signature are there."""
        head = self.data[at - self.start : at - self.start + 8]
        return head[:1] == b"\x10" and head[4:8] == b"LIOR"

    def plausible(self, at: int) -> bool:
        """Returns whether a valid header is there and its packet ends inside the run."""
        return self.good(at) and at + self.size(at) <= self.end

    def trustworthy(self, at: int, *, chained: bool) -> bool:
        """Returns whether a plausible header is believed; with `chained`, only another header after it is evidence."""
        end = at + self.size(at)
        if end == self.end or self.plausible(end):
            return True
        return not chained and not any(self.plausible(inside) for inside in range(at + 1, end))


def naive(runs: Sequence[Run], *, mid_stream: bool) -> tuple[Places, Places]:
    """Returns the packets and the byte ranges between them, by the contract's paragraph on framing."""
    packets: Places = []
    between: Places = []
    due: int | None = None
    for start, data in runs:
        run = Naive(start, data)
        at = start
        lost: int | None = start if start > 0 or mid_stream else None
        if due is not None and due < start:
            due = None
        while at < run.end:
            if lost is None:
                if run.plausible(at):
                    packets.append((at, run.size(at)))
                    at += run.size(at)
                    continue
                lost = at
                if run.good(at):
                    due = at + run.size(at)
                at += 1
                continue
            if due is not None and at == start and due < run.end and run.plausible(due):
                found: int | None = due
            else:
                found = next(
                    (
                        header
                        for header in range(at, run.end)
                        if run.plausible(header) and run.trustworthy(header, chained=due is not None and header < due)
                    ),
                    None,
                )
            if found is None:
                break
            if found > lost:
                between.append((lost, found - lost))
            due = lost = None
            at = found
        if lost is not None and lost < run.end:
            between.append((lost, run.end - lost))
    return packets, between


def hostile_stream(rng: random.Random) -> bytes:
    """Returns packets, decoys in their bodies, garbage, headers with wrong sizes and truncated headers."""
    parts: list[bytes] = []
    for _ in range(rng.randrange(1, 9)):
        kind = rng.random()
        flags = rng.choice([3, 3, 3, 0x10, 0x18, 0x08])
        size = rng.choice([16, 16, 17, 20, 32, 36, 40, rng.randrange(16, 90)])
        if kind < 0.5:
            body = bytearray(rng.choice([b"\0", b"\xcd", b"\x10"]) * (size - 16))
            if size >= 32 and rng.random() < 0.5:
                where = rng.randrange(size - 31)
                decoy = base_header(
                    rng.choice([16, size - 16 - where, 20, 500, rng.randrange(16, 60)]), flags=flags & 3
                )
                body[where : where + 16] = decoy
            parts.append(msmq(size, bytes(body), flags=flags))
            if rng.random() < {0x10: 0.8, 0x18: 0.3}.get(flags, 0):
                parts.append(bytes(16))
        elif kind < 0.65:
            parts.append(rng.choice([b"\0", b"x", b"LIOR", b"\x10"]) * rng.randrange(1, 30))
        elif kind < 0.8:
            parts.append(base_header(rng.choice([0, 15, 16, 30, 99, 2**32 - 1, 2**31 - 16]), flags=flags))
        elif kind < 0.9:
            parts.append(base_header(size)[: rng.randrange(1, 16)])
        else:
            parts.append(base_header(size, version=rng.choice([0, 0x11]), signature=rng.choice([b"ROIL", b"LIOR"])))
    return b"".join(parts)


def with_gaps(rng: random.Random, data: bytes) -> list[Run]:
    """Returns the stream without some of its bytes; gaps often begin and end at headers."""
    headers = [match.start() - 4 for match in re.finditer(b"LIOR", data) if match.start() >= 4]
    cuts = {0, len(data)}
    for _ in range(2 * rng.choice([0, 0, 1, 1, 2, 3])):
        cuts.add(rng.choice(headers) if headers and rng.random() < 0.4 else rng.randrange(len(data)))
    runs, kept = [], True
    for low, high in pairwise(sorted(cuts)):
        if kept:
            runs.append((low, data[low:high]))
        kept = not kept or rng.random() < 0.2
    # Neighbours are one run.
    joined: list[Run] = []
    for low, part in runs:
        if joined and joined[-1][0] + len(joined[-1][1]) == low:
            joined[-1] = (joined[-1][0], joined[-1][1] + part)
        else:
            joined.append((low, part))
    return joined


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("windowed", [False, True])
def test_framer_equals_second_implementation(seed: int, windowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames thousands of small streams, also with packets of at most 80 bytes and a window of 100, cut anywhere."""
    if windowed:
        monkeypatch.setattr(stream_window, "LARGEST_PACKET", 80)
        monkeypatch.setattr(stream_window, "LOOKAHEAD", 2 * (80 + 16) + 16)
        monkeypatch.setattr(framing, "_WINDOW", 100)
    rng = random.Random(seed)
    for number in range(600):
        runs = with_gaps(rng, hostile_stream(rng) + (hostile_stream(rng) if windowed else b""))
        mid_stream = rng.random() < 0.2

        def cut(data: bytes) -> list[bytes]:
            size = rng.randrange(1, 70)
            return [data[at : at + size] for at in range(0, len(data), size)]

        packets, unframed = frame(runs, mid_stream=mid_stream, cut=cut)
        expected, between = naive(runs, mid_stream=mid_stream)
        what = f"stream {number}, mid_stream={mid_stream}: {runs}"
        assert packets == expected, what
        assert [(u.offset, u.length) for u in unframed] == between, what
        stream = dict(runs)
        for u in unframed:
            start = max(low for low in stream if low <= u.offset)
            assert u.raw == stream[start][u.offset - start :][: min(u.length, 64)]


# --- rows of the table of faults --------------------------------------------------------------------------------------

A, B, C, D = msmq(40), msmq(64), msmq(48), msmq(80)


def test_fault_40_gap_inside_a_packet_keeps_synchronization() -> None:
    stream = A + B + C
    runs = [(0, stream[:60]), (90, stream[90:])]  # 14 bytes of B's end are there
    assert faults(runs) == ([(0, 40), (104, 48)], [(40, 20, Why.INCOMPLETE_FRAME), (90, 14, Why.INCOMPLETE_FRAME)])


def test_fault_40_gap_over_a_packet_start() -> None:
    stream = A + B + C + D
    runs = [(0, stream[:60]), (110, stream[110:])]  # C begins in the gap
    packets, unframed = faults(runs)
    assert packets == [(0, 40), (152, 80)]
    assert [(at, size) for at, size, _ in unframed] == [(40, 20), (110, 42)]


def test_fault_40_gap_between_two_packets() -> None:
    stream = A + B + C
    assert faults([(0, stream[:40]), (104, stream[104:])]) == ([(0, 40), (104, 48)], [])


def test_fault_40_gap_that_ends_where_the_incomplete_packet_ends() -> None:
    """Takes the header that begins where the incomplete packet ends, in spite of the decoy in its body."""
    decoy = msmq(60, bytes(8) + base_header(17) + bytes(20))
    stream = A + decoy + b"garbage" + C
    runs = [(0, stream[:30]), (40, stream[40:])]
    packets, unframed = faults(runs)
    assert packets == [(40, 60), (107, 48)]
    assert unframed == [(0, 30, Why.INCOMPLETE_FRAME), (100, 7, Why.BAD_SIGNATURE)]


def test_fault_41_gap_then_decoy() -> None:
    """Skips a decoy that is long enough to cover true packets: no packet begins where it ends."""
    decoy = base_header(16 + 100)
    stream = msmq(200, bytes(100) + decoy + bytes(68)) + A + B + C
    runs = [(0, stream[:50]), (90, stream[90:])]
    assert faults(runs)[0] == [(200, 40), (240, 64), (304, 48)]


def test_fault_42_mid_stream_at_a_packet() -> None:
    assert faults([(0, A + B)], mid_stream=True) == ([(0, 40), (40, 64)], [])


def test_fault_42_mid_stream_inside_a_packet() -> None:
    assert faults([(0, A[25:] + B + C)], mid_stream=True) == ([(15, 64), (79, 48)], [(0, 15, Why.MID_STREAM)])


def test_fault_42_mid_stream_inside_a_packet_with_a_decoy() -> None:
    rest = bytes(20) + base_header(70) + bytes(40)
    assert faults([(0, rest + B + C)], mid_stream=True)[0] == [(76, 64), (140, 48)]


@pytest.mark.parametrize("cut", range(1, 16))
def test_fault_51_header_split(cut: int) -> None:
    stream = A + B + C
    parts = [stream[: 40 + cut], stream[40 + cut :]]
    packets, unframed = frame([(0, stream)], cut=lambda _: parts)
    assert (packets, unframed) == ([(0, 40), (40, 64), (104, 48)], [])


def test_fault_51_one_byte_parts() -> None:
    stream = A + B + C
    packets, unframed = frame([(0, stream)], cut=lambda data: [data[i : i + 1] for i in range(len(data))])
    assert (packets, unframed) == ([(0, 40), (40, 64), (104, 48)], [])


@pytest.mark.parametrize("signature", [b"LIOX", b"ROIL"])
def test_fault_56_bad_signature(signature: bytes) -> None:
    bad = base_header(64, signature=signature) + bytes(48)
    assert faults([(0, A + bad + C)]) == ([(0, 40), (104, 48)], [(40, 64, Why.BAD_SIGNATURE)])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01", Why.LOOKS_ENCRYPTED),  # the ClientHello of TLS
        (b"\x17\x03\x03\x48\x00", Why.LOOKS_ENCRYPTED),
        (b"\x17\x03\x03\x48\x01", Why.BAD_SIGNATURE),  # longer than a record may be
        (b"\x17\x03\x03\x00\x00", Why.BAD_SIGNATURE),
        (b"\x18\x03\x03\x00\x10", Why.BAD_SIGNATURE),
        (b"\x16\x04\x01\x02\x00", Why.BAD_SIGNATURE),
        (b"\x16\x03\x05\x02\x00", Why.BAD_SIGNATURE),
    ],
)
def test_a_stream_of_tls_looks_encrypted(record: bytes, reason: Why) -> None:
    encrypted = record + bytes(100)
    assert faults([(0, encrypted)]) == ([], [(0, len(encrypted), reason)])
    assert faults([(0, encrypted[:15])]) == ([], [(0, 15, Why.INCOMPLETE_FRAME)])


@pytest.mark.parametrize("size", [0, 1, 15])
def test_fault_57_packet_size_too_small(size: int) -> None:
    bad = base_header(size) + bytes(20)
    assert faults([(0, A + bad + C)]) == ([(0, 40), (76, 48)], [(40, 36, Why.BAD_PACKET_SIZE)])


def test_fault_58_packet_size_16() -> None:
    assert faults([(0, A + base_header(16) + C)]) == ([(0, 40), (40, 16), (56, 48)], [])


@pytest.mark.parametrize("size", [2**32 - 1, 2**31 - 16, 2**31, 0x400001])
def test_fault_59_packet_size_huge(size: int) -> None:
    bad = base_header(size) + bytes(48)
    assert faults([(0, A + bad + C)]) == ([(0, 40), (104, 48)], [(40, 64, Why.BAD_PACKET_SIZE)])


def test_fault_60_packet_size_a_little_too_big() -> None:
    bad = base_header(64 + 4) + bytes(48)
    assert faults([(0, A + bad + C + D)]) == ([(0, 40), (40, 68), (152, 80)], [(108, 44, Why.BAD_SIGNATURE)])


def test_fault_60_packet_size_a_little_too_small() -> None:
    bad = base_header(64 - 4) + bytes(48)
    assert faults([(0, A + bad + C + D)]) == ([(0, 40), (40, 60), (104, 48), (152, 80)], [(100, 4, Why.BAD_SIGNATURE)])


@pytest.mark.parametrize("kept", [1, 4, 15, 16, 17, 63])
def test_fault_61_stream_ends_inside_a_packet(kept: int) -> None:
    assert faults([(0, A + B[:kept])]) == ([(0, 40)], [(40, kept, Why.INCOMPLETE_FRAME)])


@pytest.mark.parametrize("version", [0, 0x0F, 0x11, 0xFF])
def test_fault_62_version(version: int) -> None:
    bad = base_header(64, version=version) + bytes(48)
    assert faults([(0, A + bad + C)]) == ([(0, 40), (104, 48)], [(40, 64, Why.BAD_VERSION)])


def test_fault_63_reserved_and_flags_do_not_matter() -> None:
    odd = msmq(64, flags=0xFFE7, reserved=0xFF)  # all flags but those that change its length
    every = msmq(64, flags=0xFFFF, reserved=0x5A)  # an internal packet counts its SessionHeader
    assert faults([(0, odd + every + C)]) == ([(0, 64), (64, 64), (128, 48)], [])


@pytest.mark.parametrize("garbage", [b"\0" * 50, b"GET / HTTP/1.1\r\n\r\n", b"\x10", b"LIOR", b"\x10\0\0\0LIO"])
def test_fault_64_garbage_is_quarantined_to_the_byte(garbage: bytes) -> None:
    n = len(garbage)
    assert faults([(0, garbage + A + B)]) == ([(n, 40), (n + 40, 64)], [(0, n, Why.BAD_SIGNATURE)])
    assert faults([(0, A + garbage + B)]) == ([(0, 40), (40 + n, 64)], [(40, n, Why.BAD_SIGNATURE)])
    packets, unframed = faults([(0, A + B + garbage)])
    assert packets == [(0, 40), (40, 64)]
    assert [(at, size) for at, size, _ in unframed] == [(104, n)]
    packets, unframed = faults([(0, garbage)])
    assert (packets, [(at, size) for at, size, _ in unframed]) == ([], [(0, n)])


def test_fault_65_decoys_in_bodies() -> None:
    whole = msmq(96, msmq(40) + msmq(40))
    cut = msmq(96, bytes(30) + base_header(4000) + bytes(34))
    assert faults([(0, whole + cut + C)]) == ([(0, 96), (96, 96), (192, 48)], [])


def test_fault_66_fake_headers_in_linear_time() -> None:
    """Frames headers every 16 bytes, each of which covers all later ones, and every 17 bytes, each complete."""
    with bounded(300):
        over = b"X" + b"".join(base_header(16 * (1500 - i) + 1000) for i in range(1500)) + bytes(500) + A + B
        packets, unframed = faults([(0, over)])
        assert packets == [(24_501, 40), (24_541, 64)]
        assert unframed == [(0, 24_501, Why.BAD_SIGNATURE)]
        many = (base_header(4000) + b"\0") * 250_000  # 4 MiB
        packets, unframed = faults([(0, b"X" + many)])
        assert sum(size for _, size in packets) + sum(size for _, size, _ in unframed) == 1 + len(many)
        holes = [(i * 100, many[i * 17 : i * 17 + 99]) for i in range(10_000)]
        packets, unframed = faults(holes)
        assert sum(size for _, size in packets) + sum(size for _, size, _ in unframed) == 990_000


def test_fault_67_header_only_packets() -> None:
    assert faults([(0, base_header(16) * 6000)]) == ([(16 * i, 16) for i in range(6000)], [])


def test_fault_67_largest_packet() -> None:
    big = msmq(4 << 20)
    assert faults([(0, A + big + C)]) == ([(0, 40), (40, 4 << 20), (40 + (4 << 20), 48)], [])
    with_session = msmq(4 << 20, flags=0x10) + bytes(16)
    assert faults([(0, with_session + C)]) == ([(0, (4 << 20) + 16), ((4 << 20) + 16, 48)], [])


def test_packets_on_both_sides_of_a_window() -> None:
    """Searches across the end of the window without skipping a packet that continues after it."""
    lead = framing._WINDOW - 1_000_000
    stream = bytes(lead) + msmq(3 << 20) + msmq(2 << 20) + C
    parts = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]
    packets, unframed = frame([(0, stream)], cut=lambda _: parts)
    assert packets == [(lead, 3 << 20), (lead + (3 << 20), 2 << 20), (lead + (5 << 20), 48)]
    assert [(u.offset, u.length) for u in unframed] == [(0, lead)]


# --- where a packet ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "size", "behind", "consumed"),
    [
        (0x10, 64, 16, 80),  # PacketSize of a UserMessage does not count its SessionHeader
        (0x10, 64, 0, 64),  # unless a packet begins in its place
        (0x18, 36, 0, 36),  # PacketSize of a SessionAck counts it
        (0x18, 20, 16, 36),  # read literally, the text says 20 and 16 more
        (0x18, 20, 0, 20),
        (0x18, 36, 16, 52),
        (0x08, 32, 0, 32),
    ],
)
def test_session_header(flags: int, size: int, behind: int, consumed: int) -> None:
    stream = msmq(size, flags=flags) + b"\x01" * behind + C + D
    assert faults([(0, stream)]) == ([(0, consumed), (consumed, 48), (consumed + 48, 80)], [])
