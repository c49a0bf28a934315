"""TCP segments in frames of every kind, cut and damaged anywhere."""

import random
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

import numpy as np
import pytest
import wiretap
from wiretap import cooked, cooked2, ethernet, ipv4, ipv6, loopback, option_header, tcp

from schemas.ingest import FrameReason
from udfs.frames import segments
from udfs.records import Records


class Seen(NamedTuple):
    """A segment as it was found."""

    frame: int
    source: tuple[str, int]
    target: tuple[str, int]
    seq: int
    ack: int
    flags: int
    payload: bytes
    length: int


def records(frames: Sequence[bytes], links: Sequence[int], *, before: bytes = b"\x45" * 16) -> Records:
    """The frames in one buffer, with bytes between them that are no one's."""
    buffer = b"".join(before + frame for frame in frames)
    sizes = np.array([len(frame) for frame in frames], np.int64)
    starts = np.cumsum(sizes + len(before)) - sizes
    zeros = np.zeros(len(frames), np.int64)
    return Records(np.frombuffer(buffer, np.uint8), starts, sizes, sizes, zeros, np.array(links, np.int64), 1)


def look(
    frames: Sequence[bytes], link: int = wiretap.ETHERNET, *, ports: Sequence[int] = (1801,)
) -> tuple[list[Seen], list[tuple[int, FrameReason]]]:
    """The segments, and the frames that cannot be read."""
    held = records(frames, [link] * len(frames))
    found, rejected = segments(held, ports)
    seen = []
    for i in range(len(found.frame)):
        ends = found.endpoints[i].tobytes()
        source, target = (
            (
                str(IPv6Address(ends[at : at + 16]).ipv4_mapped or IPv6Address(ends[at : at + 16])),
                ends[at + 16] << 8 | ends[at + 17],
            )
            for at in (0, 18)
        )
        payload, captured = int(found.payload[i]), int(found.captured[i])
        data = held.buffer[payload : payload + captured].tobytes()
        assert len(data) == captured
        seq, ack, flags = (int(column[i]) for column in (found.seq, found.ack, found.flags))
        seen.append(Seen(int(found.frame[i]), source, target, seq, ack, flags, data, int(found.length[i])))
    assert len(rejected.frame) == len(rejected.reason)
    return seen, list(zip(rejected.frame.tolist(), rejected.reason, strict=True))


def one(frame: bytes, link: int = wiretap.ETHERNET) -> Seen:
    """The segment in a frame, wherever the frame lies among others."""
    seen, rejected = look([frame], link)
    assert (len(seen), rejected) == (1, [])
    among, _ = look([b"", frame, b"\xff" * 7], link)
    assert among == [seen[0]._replace(frame=2)]
    return seen[0]


def nothing(frame: bytes, link: int = wiretap.ETHERNET) -> None:
    """Other traffic: no segment and no fault."""
    assert look([frame], link) == ([], [])


def bad(frame: bytes, reason: FrameReason, link: int = wiretap.ETHERNET) -> None:
    """A frame that is quarantined."""
    assert look([frame], link) == ([], [(1, reason)])


SEGMENT = tcp(b"payload", seq=2**32 - 3, ack=2**31, flags=0x18, ports=(50_000, 1801))
V4 = Seen(1, ("10.0.0.1", 50_000), ("10.0.0.2", 1801), 2**32 - 3, 2**31, 0x18, b"payload", 7)
V6 = V4._replace(source=("fd00::1", 50_000), target=("fd00::2", 1801))


@pytest.mark.parametrize("ip", [ipv4, ipv6])
def test_fault_17_link_layers(ip: type) -> None:
    packet, expected = (ip(SEGMENT), V4 if ip is ipv4 else V6)
    assert one(ethernet(packet)) == expected
    assert one(cooked(packet), wiretap.SLL) == expected
    assert one(cooked2(packet), wiretap.SLL2) == expected
    for link in (12, 14, 101, 228 if ip is ipv4 else 229):
        assert one(packet, link) == expected
    for order in "<>":
        for family in (2, 10, 23, 24, 28, 30):
            for link in (wiretap.NULL, wiretap.LOOP):
                assert one(loopback(packet, order=order, family=family), link) == expected


def test_fault_17_link_types_in_one_block() -> None:
    packet = ipv4(SEGMENT)
    frames = [ethernet(packet), cooked(packet), cooked2(packet), packet, loopback(packet)]
    held = records(frames, [1, 113, 276, 101, 0])
    found, rejected = segments(held, (1801,))
    assert found.frame.tolist() == [1, 2, 3, 4, 5]
    assert [held.buffer[at : at + 7].tobytes() for at in found.payload.tolist()] == [b"payload"] * 5
    assert rejected.reason == []


@pytest.mark.parametrize("link", [105, 127, 147, 195, 65_535, -1])
def test_fault_18_link_type_not_read(link: int) -> None:
    for frame in (ethernet(ipv4(SEGMENT)), b"", b"x"):
        bad(frame, FrameReason.UNSUPPORTED_LINK_TYPE, link)


@pytest.mark.parametrize("tags", [[0x8100], [0x88A8, 0x8100], [0x9100, 0x8100], [0x8100] * 4])
def test_fault_19_vlan(tags: list[int]) -> None:
    assert one(ethernet(ipv4(SEGMENT), tags=tags)) == V4
    assert one(ethernet(ipv6(SEGMENT), tags=tags)) == V6


EXTENSIONS = [
    [(0, option_header())],
    [(43, option_header(2)), (60, option_header(1))],
    [(0, option_header()), (43, option_header()), (60, option_header(255))],
    [(51, bytes([4]) + bytes(22))],  # authentication counts in fours
]


@pytest.mark.parametrize("extensions", EXTENSIONS)
def test_fault_20_extension_headers(extensions: list[tuple[int, bytes]]) -> None:
    assert one(ethernet(ipv6(SEGMENT, extensions=extensions))) == V6


@pytest.mark.parametrize("extensions", EXTENSIONS)
def test_fault_20_extension_headers_cut(extensions: list[tuple[int, bytes]]) -> None:
    """At every byte, as the last frame of a block and before others: never an exception, never another's bytes."""
    whole = ethernet(ipv6(SEGMENT, extensions=extensions))
    for size in range(len(whole)):
        alone = look([whole[:size]])
        assert look([whole[:size], whole, b"\x06" * 40])[0][: len(alone[0])] == alone[0]
        for seen in alone[0]:
            assert seen._replace(payload=b"payload") == V6
            assert size >= len(whole) - 7 - 12


def test_fault_20_extension_header_longer_than_its_packet() -> None:
    frame = ethernet(ipv6(bytes(20), extensions=[(60, bytes([255]) + bytes(6))]))
    assert look([frame])[0] == []


def test_fault_22_options() -> None:
    for size in range(0, 44, 4):
        assert one(ethernet(ipv4(tcp(b"payload", seq=9, options=bytes(min(size, 40))), options=bytes(size % 44)))) == (
            V4._replace(seq=9, ack=0, flags=0x10)
        )


@pytest.mark.parametrize("trailer", [b"\0" * 6, b"GARBAGE", b"\xde\xad\xbe\xef"])
def test_fault_23_padding_and_check_sequence(trailer: bytes) -> None:
    assert one(ethernet(ipv4(SEGMENT), trailer=trailer)) == V4
    assert one(ethernet(ipv6(SEGMENT), trailer=trailer)) == V6
    empty = one(ethernet(ipv4(tcp(b"")), trailer=trailer))
    assert (empty.payload, empty.length) == (b"", 0)


def test_fault_10_snaplen() -> None:
    """The length is what IP says; the bytes are those that were captured."""
    whole = ethernet(ipv4(tcp(bytes(1000), options=bytes(12))))
    for size in (14 + 20 + 20, 14 + 20 + 31, 14 + 20 + 32, 14 + 20 + 33, 500):
        seen = one(whole[:size])
        assert (len(seen.payload), seen.length) == (max(size - 66, 0), 1000)


def test_fault_33_offload() -> None:
    big = bytes(60_000)
    assert one(ethernet(ipv4(tcp(big)))).length == 60_000
    assert one(ethernet(ipv4(tcp(bytes(200_000)), total=0))).length == 200_000
    assert one(ethernet(ipv6(tcp(bytes(200_000)), length=0))).length == 200_000


def test_fault_31_noise() -> None:
    nothing(ethernet(bytes(28), kind=0x0806))  # ARP
    nothing(ethernet(bytes(46), kind=0x88CC))  # LLDP
    nothing(ethernet(bytes(46), kind=60))  # 802.3 length
    nothing(ethernet(ipv4(bytes(8), protocol=1)))
    nothing(ethernet(ipv4(bytes([0xC3, 0x50, 7, 9, 0, 8, 0, 0]), protocol=17)))  # UDP from 50000 to 1801
    nothing(ethernet(ipv6(bytes(8), protocol=58)))
    nothing(ethernet(ipv6(bytes(8), protocol=59)))
    nothing(ethernet(ipv4(tcp(b"x", ports=(443, 50_000)))))
    nothing(ethernet(b"\0" * 50, tags=[0x8100] * 9, kind=0))
    for size in range(14):
        nothing(ethernet(ipv4(SEGMENT))[:size])
    for link in (wiretap.NULL, wiretap.RAW, wiretap.SLL, wiretap.SLL2):
        nothing(b"", link)
        nothing(b"\0", link)


def test_other_ports() -> None:
    seen, _ = look([ethernet(ipv4(tcp(b"x", ports=(1, 2)))), ethernet(ipv4(tcp(b"y", ports=(3, 1))))], ports=(2, 3))
    assert [s.payload for s in seen] == [b"x", b"y"]


def test_headers_that_lie() -> None:
    bad(ethernet(ipv4(SEGMENT, version=6), kind=0x0800), FrameReason.BAD_IP_HEADER)
    bad(ethernet(ipv4(SEGMENT, header=16)), FrameReason.BAD_IP_HEADER)
    bad(ethernet(ipv4(SEGMENT, total=19)), FrameReason.BAD_IP_HEADER)
    bad(ethernet(ipv4(SEGMENT)[:19]), FrameReason.BAD_IP_HEADER)
    bad(ethernet(ipv6(SEGMENT)[:39]), FrameReason.BAD_IP_HEADER)
    bad(ethernet(ipv4(SEGMENT)[:39]), FrameReason.BAD_TCP_HEADER)
    bad(ethernet(ipv4(tcp(b"payload", header=16))), FrameReason.BAD_TCP_HEADER)
    bad(ethernet(ipv4(tcp(b"", header=40))), FrameReason.BAD_TCP_HEADER)


@pytest.mark.parametrize("seed", range(20))
def test_fault_69_any_damage_to_frames(seed: int) -> None:
    """No exception; each frame is a segment, or rejected, or other traffic, whatever lies around it."""
    rng = random.Random(seed)
    frames: list[bytes] = []
    links: list[int] = []
    for _ in range(300):
        extensions = rng.choice([[], *EXTENSIONS])
        segment = tcp(rng.randbytes(rng.randrange(60)), options=bytes(4 * rng.randrange(11)))
        packet = rng.choice([ipv4(segment, options=bytes(4 * rng.randrange(11))), ipv6(segment, extensions=extensions)])
        wrapped = {1: ethernet(packet), 113: cooked(packet), 276: cooked2(packet), 101: packet, 0: loopback(packet)}
        link = rng.choice([*wrapped, 108, 7])
        damaged = bytearray(wrapped.get(link, loopback(packet)))
        for _ in range(rng.choice([0, 1, 1, 5])):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 255, 6, 51, 60, rng.randrange(256)])
        frames.append(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged) + 1)])]))
        links.append(link)
    held = records(frames, links)
    found, rejected = segments(held, (1801,))
    assert not set(found.frame.tolist()) & set(rejected.frame.tolist())
    ends = (held.start + held.captured)[found.frame - 1]
    assert (found.captured <= np.maximum(ends - found.payload, 0)).all()
    assert ((found.captured >= 0) & (found.captured <= found.length)).all()
    by_frame = {int(frame): i for i, frame in enumerate(found.frame)}
    why = dict(zip(rejected.frame.tolist(), rejected.reason, strict=True))
    for number, (frame, link) in enumerate(zip(frames, links, strict=True), 1):
        alone, alone_bad = segments(records([frame], [link], before=b""), (1801,))
        assert len(alone.frame) == (number in by_frame)
        assert alone_bad.reason == ([why[number]] if number in why else [])
        if number in by_frame:
            i = by_frame[number]
            assert alone.captured[0] == found.captured[i]
            assert (alone.endpoints[0] == found.endpoints[i]).all()
            assert alone.seq[0] == found.seq[i]


def test_empty_block() -> None:
    found, rejected = segments(records([], []), (1801,))
    assert (len(found.frame), found.endpoints.shape, rejected.reason) == (0, (0, 36), [])


def test_addresses() -> None:
    hosts = ("::ffff:1.2.3.4", "2001:db8::1")
    assert one(ethernet(ipv6(SEGMENT, hosts=hosts)))[1:3] == (("1.2.3.4", 50_000), ("2001:db8::1", 1801))
