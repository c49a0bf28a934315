"""Packets in streams: compared with a slow second implementation of the rules, and the table of faults."""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import oracle
import pytest
from pace import bounded
from tiers import merge_needs
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


# --- against the oracle -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("seed", merge_needs(range(4), range(8)))
@pytest.mark.parametrize("windowed", [False, True])
def test_framer_equals_second_implementation(seed: int, windowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames thousands of small streams, also with packets of at most 80 bytes and a window of 100, cut anywhere."""
    if windowed:
        monkeypatch.setattr(stream_window, "LARGEST_PACKET", 80)
        monkeypatch.setattr(stream_window, "LOOKAHEAD", 2 * (80 + 16) + 16)
        monkeypatch.setattr(framing, "_WINDOW", 100)
        monkeypatch.setattr(oracle, "LARGEST_PACKET", 80)
    rng = random.Random(seed)
    for number in range(600):
        runs = with_gaps(rng, hostile_stream(rng) + (hostile_stream(rng) if windowed else b""))
        mid_stream = rng.random() < 0.2

        def cut(data: bytes) -> list[bytes]:
            size = rng.randrange(1, 70)
            return [data[at : at + size] for at in range(0, len(data), size)]

        packets, unframed = frame(runs, mid_stream=mid_stream, cut=cut)
        expected = [(at, len(data)) for at, data in oracle.framed(runs, in_step=not mid_stream)]
        what = f"stream {number}, mid_stream={mid_stream}: {runs}"
        assert packets == expected, what
        assert [(u.offset, u.length) for u in unframed] == between(runs, expected), what
        stream = dict(runs)
        for u in unframed:
            start = max(low for low in stream if low <= u.offset)
            assert u.raw == stream[start][u.offset - start :][: min(u.length, 64)]


def between(runs: Sequence[Run], packets: Places) -> Places:
    """Returns the bytes of each run that are in no packet."""
    found = []
    for start, data in runs:
        end = start + len(data)
        own = [(at, at + size) for at, size in packets if start <= at < end]
        found += [(low, high - low) for (_, low), (high, _) in pairwise([(0, start), *own, (end, 0)]) if low < high]
    return found


# --- rows of the table of faults --------------------------------------------------------------------------------------

A, B, C, D = msmq(40), msmq(64), msmq(48), msmq(80)
ABC = A + B + C
DECOY_BEFORE_ITS_END = msmq(60, bytes(8) + base_header(17) + bytes(20))
DECOY_OVER_OTHERS = msmq(200, bytes(100) + base_header(16 + 100) + bytes(68))
BIG = msmq(4 << 20)


def bad(size: int = 64, **fields: Any) -> bytes:
    """Returns 64 bytes that begin with a header."""
    return base_header(size, **fields) + bytes(48)


STREAMS: dict[str, tuple[list[Run], Places, list[tuple[int, int, Why]]]] = {
    "40: a gap inside a packet, whose end says where the next begins": (
        [(0, ABC[:60]), (90, ABC[90:])],
        [(0, 40), (104, 48)],
        [(40, 20, Why.INCOMPLETE_FRAME), (90, 14, Why.INCOMPLETE_FRAME)],
    ),
    "40: a gap in which a packet begins": (
        [(0, ABC[:60]), (110, (ABC + D)[110:])],
        [(0, 40), (152, 80)],
        [(40, 20, Why.INCOMPLETE_FRAME), (110, 42, Why.AFTER_GAP)],
    ),
    "40: a gap between two packets": ([(0, A), (104, C)], [(0, 40), (104, 48)], []),
    "40: the header where the incomplete packet ends goes before the decoy in its body": (
        [(0, A[:30]), (40, DECOY_BEFORE_ITS_END + b"garbage" + C)],
        [(40, 60), (107, 48)],
        [(0, 30, Why.INCOMPLETE_FRAME), (100, 7, Why.BAD_SIGNATURE)],
    ),
    "41: no packet begins where the decoy behind a gap ends": (
        [(0, DECOY_OVER_OTHERS[:50]), (90, (DECOY_OVER_OTHERS + ABC)[90:])],
        [(200, 40), (240, 64), (304, 48)],
        [(0, 50, Why.INCOMPLETE_FRAME), (90, 110, Why.INCOMPLETE_FRAME)],
    ),
    **{
        f"56: {signature!r}": (
            [(0, A + bad(signature=signature) + C)],
            [(0, 40), (104, 48)],
            [(40, 64, Why.BAD_SIGNATURE)],
        )
        for signature in (b"LIOX", b"ROIL")
    },
    **{
        f"57, 59: PacketSize {size}": ([(0, A + bad(size) + C)], [(0, 40), (104, 48)], [(40, 64, Why.BAD_PACKET_SIZE)])
        for size in (0, 1, 15, 0x400001, 2**31 - 16, 2**31, 2**32 - 1)
    },
    "58: PacketSize 16": ([(0, A + base_header(16) + C)], [(0, 40), (40, 16), (56, 48)], []),
    "60: PacketSize a little too big": (
        [(0, A + bad(68) + C + D)],
        [(0, 40), (40, 68), (152, 80)],
        [(108, 44, Why.BAD_SIGNATURE)],
    ),
    "60: PacketSize a little too small": (
        [(0, A + bad(60) + C + D)],
        [(0, 40), (40, 60), (104, 48), (152, 80)],
        [(100, 4, Why.BAD_SIGNATURE)],
    ),
    **{
        f"61: {kept} bytes of the last packet": ([(0, A + B[:kept])], [(0, 40)], [(40, kept, Why.INCOMPLETE_FRAME)])
        for kept in (1, 4, 15, 16, 17, 63)
    },
    **{
        f"62: version {version}": (
            [(0, A + bad(version=version) + C)],
            [(0, 40), (104, 48)],
            [(40, 64, Why.BAD_VERSION)],
        )
        for version in (0, 0x0F, 0x11, 0xFF)
    },
    "63: all flags but those that change the length, and Reserved": (
        [(0, msmq(64, flags=0xFFE7, reserved=0xFF) + C)],
        [(0, 64), (64, 48)],
        [],
    ),
    "63: all flags: an internal packet counts its SessionHeader": (
        [(0, msmq(64, flags=0xFFFF, reserved=0x5A) + C)],
        [(0, 64), (64, 48)],
        [],
    ),
    "65: packets in a body, and a header that leads beyond it": (
        [(0, msmq(96, msmq(40) + msmq(40)) + msmq(96, bytes(30) + base_header(4000) + bytes(34)) + C)],
        [(0, 96), (96, 96), (192, 48)],
        [],
    ),
    "67: headers only": ([(0, base_header(16) * 6000)], [(16 * i, 16) for i in range(6000)], []),
    "67: the largest packet": ([(0, BIG + C)], [(0, 4 << 20), (4 << 20, 48)], []),
}


@pytest.mark.parametrize("what", STREAMS)
def test_packets_of_a_stream(what: str) -> None:
    """Each name begins with its row in the table of faults."""
    runs, packets, unframed = STREAMS[what]
    assert faults(runs) == (packets, unframed)


@pytest.mark.parametrize(
    ("inside", "packets", "before"),
    [
        (b"", [(0, 64), (64, 48)], []),
        (A[25:], [(15, 64), (79, 48)], [(0, 15, Why.MID_STREAM)]),
        (bytes(20) + base_header(70) + bytes(40), [(76, 64), (140, 48)], [(0, 76, Why.MID_STREAM)]),  # a decoy
    ],
)
def test_fault_42_mid_stream(inside: bytes, packets: Places, before: list[tuple[int, int, Why]]) -> None:
    assert faults([(0, inside + B + C)], mid_stream=True) == (packets, before)


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
