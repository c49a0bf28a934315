"""TCP segments and IP fragments in frames of every kind, whole, cut and damaged."""

import random
import struct
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

import numpy as np
import pytest
import wiretap
from pipeline import block_of
from tiers import merge_needs
from wiretap import (
    CLIENT,
    SERVER,
    cooked,
    cooked2,
    ethernet,
    fragments4,
    fragments6,
    ipv4,
    ipv6,
    loopback,
    option_header,
    tcp,
    udp,
)

from schemas.ingest import FrameReason
from udfs.capture.records import Records
from udfs.network.checksums import intact
from udfs.network.dissect import DAMAGED, find_segments


class Seen(NamedTuple):
    """A segment that was found."""

    frame: int
    source: tuple[str, int]
    target: tuple[str, int]
    seq: int
    ack: int
    flags: int
    payload: bytes
    length: int


BETWEEN = b"\x45" * 16


def look(
    frames: Sequence[bytes], link: int = wiretap.ETHERNET, *, ports: Sequence[int] = (1801,)
) -> tuple[list[Seen], list[tuple[int, FrameReason]]]:
    """Returns the segments, and the frames that cannot be read."""
    held = block_of(frames, link, before=BETWEEN)
    found, rejected, _ = find_segments(held, ports)
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


def holds(expected: Seen | FrameReason | None, *frames: bytes, link: int = wiretap.ETHERNET) -> None:
    """Asserts that each frame is this segment, is quarantined for this reason, or is other traffic."""
    seen, rejected = look(frames, link)
    numbers = range(1, len(frames) + 1)
    assert seen == ([expected._replace(frame=number) for number in numbers] if isinstance(expected, Seen) else [])
    assert rejected == ([(number, expected) for number in numbers] if isinstance(expected, FrameReason) else [])


SEGMENT = tcp(b"payload", seq=2**32 - 3, ack=2**31, flags=0x18, ports=(50_000, 1801))
V4 = Seen(1, ("10.0.0.1", 50_000), ("10.0.0.2", 1801), 2**32 - 3, 2**31, 0x18, b"payload", 7)
V6 = V4._replace(source=("fd00::1", 50_000), target=("fd00::2", 1801))


@pytest.mark.parametrize(("packet", "expected"), [(ipv4(SEGMENT), V4), (ipv6(SEGMENT), V6)])
def test_faults_17_19_23_link_layers_tags_and_padding(packet: bytes, expected: Seen) -> None:
    for tags in ((), (0x8100,), (0x88A8, 0x8100), (0x9100, 0x8100), (0x8100,) * 4):
        holds(expected, ethernet(packet, tags=tags))
    holds(expected, *(ethernet(packet, trailer=trailer) for trailer in (b"\0" * 6, b"GARBAGE", b"\xde\xad\xbe\xef")))
    holds(expected, cooked(packet), link=wiretap.SLL)
    holds(expected, cooked2(packet), link=wiretap.SLL2)
    for link in (12, 14, 101, 228 if expected is V4 else 229):
        holds(expected, packet, link=link)
    families = [loopback(packet, order=order, family=family) for order in "<>" for family in (2, 10, 23, 24, 28, 30)]
    for link in (wiretap.NULL, wiretap.LOOP):
        holds(expected, *families, link=link)


def test_fault_18_link_type_not_supported() -> None:
    for link in (105, 127, 147, 195, 65_535, -1):
        holds(FrameReason.UNSUPPORTED_LINK_TYPE, ethernet(ipv4(SEGMENT)), b"", b"x", link=link)


EXTENSIONS = [
    [(0, option_header())],
    [(43, option_header(2)), (60, option_header(1))],
    [(0, option_header()), (43, option_header()), (60, option_header(9))],
    [(51, bytes([4]) + bytes(22))],  # authentication counts in fours
]
ATOMIC = 44, struct.pack(">BHI", 0xFF, 6, 0x01020304)  # a fragment that is the whole; the reserved bits do not matter


def test_faults_20_21_extension_headers() -> None:
    whole = [[*before, ATOMIC, *after] for before in ([], EXTENSIONS[0]) for after in ([], [(60, option_header(1))])]
    holds(V6, *(ethernet(ipv6(SEGMENT, extensions=headers)) for headers in (*EXTENSIONS, *whole)))
    holds(None, ethernet(ipv6(SEGMENT, extensions=[ATOMIC], protocol=17)))


def test_fault_22_options() -> None:
    for size in range(0, 44, 4):
        segment = tcp(b"payload", options=bytes(size))
        holds(V4._replace(seq=1000, ack=0, flags=0x10), ethernet(ipv4(segment, options=bytes(40 - size))))


FRAGMENT = 44, struct.pack(">BHI", 0, 0x10 | 1, 0x01020304)


def test_fault_21_fragments_of_other_protocols_are_other_traffic() -> None:
    """Those that may be of TCP are put together by `test_fragments.py`."""
    other = fragments4(bytes(32), [16], protocol=1) + fragments6(bytes(32), [16], protocol=58)
    options_first = fragments6(b"\x06" + option_header() + SEGMENT, [8, 16], protocol=60)
    found, rejected, parts = find_segments(block_of([ethernet(part) for part in other + options_first]), (1801,))
    assert (len(found.frame), rejected.reason, parts.frame.tolist()) == (0, [], [5, 6, 7])


@pytest.mark.parametrize("seed", range(5))
def test_fault_32_checksums_against_a_plain_loop(seed: int) -> None:
    """Both IP versions, all header lengths, VLAN tags, extension headers, payloads of odd and even length."""
    rng = random.Random(seed)
    frames, expected = [], []
    for _ in range(200):
        size = rng.choice([0, 1, 2, 3, rng.randrange(1500), rng.randrange(60_000)])
        options, hosts = rng.randbytes(4 * rng.randrange(11)), rng.choice(HOSTS)
        segment = tcp(rng.randbytes(size), seq=rng.randrange(2**32), ack=rng.randrange(2**32), options=options)
        if ":" in hosts[0]:
            packet = ipv6(segment, hosts=hosts, extensions=rng.choice([[], *EXTENSIONS]), sums=True)
        else:
            packet = ipv4(segment, hosts=hosts, options=bytes(4 * rng.randrange(11)), sums=True)
        expected.append(rng.random() < 0.5)
        if not expected[-1]:
            at = rng.randrange(len(packet) - len(segment) + 4, len(packet) - size)  # its numbers, flags and options
            packet = packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1 :]
        frames.append(ethernet(packet, tags=[0x8100] * rng.randrange(3), trailer=rng.randbytes(rng.randrange(5))))
    held = block_of(frames, before=BETWEEN)
    found, *_ = find_segments(held, (1801,))
    ends = zip(found.payload.tolist(), found.length.tolist(), found.header_sum.tolist(), strict=True)
    right = [number - 1 for number in found.frame.tolist()]
    sums = [intact(header_sum, held.buffer.data[at : at + length]) for at, length, header_sum in ends]
    assert sums == [expected[number] for number in right]
    assert len(right) > 150
    flags = zip(found.length.tolist(), sums, found.flags.tolist(), strict=True)
    assert all((flag & DAMAGED > 0) == (length > 0 and not is_right) for length, is_right, flag in flags)


def of_pseudo_header(size: int) -> bytes:
    """The sum of a pseudo header, which stands in for a checksum that is not there yet."""
    packed = b"".join(ip_address(host).packed for host in (CLIENT, SERVER)) + struct.pack(">HH", 6, size)
    return struct.pack(">H", sum(struct.unpack(f">{len(packed) // 2}H", packed)) % 0xFFFF)


def damaged(*packets: bytes) -> int:
    found, *_ = find_segments(block_of([ethernet(packet) for packet in packets], before=BETWEEN), (1801,))
    return int(np.count_nonzero(found.flags & DAMAGED))


def sent(number: int, checksum: bytes | None = None, flip: int | None = None, **others: Any) -> bytes:
    """A segment of 201 bytes with a right checksum or this one, and with a bit turned in a byte of its payload."""
    segment = tcp(bytes([number]) * 201, seq=number * 201, **others)
    packet = bytearray(ipv4(segment, sums=True))
    if checksum is not None:
        packet[36:38] = checksum
    if flip is not None:
        packet[40 + flip] ^= 4
    return bytes(packet)


@pytest.mark.parametrize("flip", [0, 1, 199, 200])
def test_a_segment_with_a_wrong_checksum_is_damaged_whatever_is_beside_it(flip: int) -> None:
    right = [sent(number) for number in range(4)]
    assert damaged(*right) == 0
    assert damaged(*right, sent(5, flip=flip)) == 1
    assert damaged(*right, sent(5, flip=flip), sent(6, flip=flip)) == 2


@pytest.mark.parametrize(
    ("checksum", "found"), [(of_pseudo_header(221), 0), (of_pseudo_header(0), 0), (b"\0\0", 0), (b"\1\2", 1)]
)
def test_a_checksum_that_is_filled_in_later_is_no_damage(checksum: bytes, found: int) -> None:
    assert damaged(*(sent(number) for number in range(4)), sent(5, checksum)) == found


HOSTS = [("10.0.0.1", "10.0.0.2"), ("255.255.255.255", "0.0.0.1"), ("fd00::1", "fd00::2"), ("::ffff:1.2.3.4", "::")]


def test_fault_10_snaplen() -> None:
    """`length` is the length in the IP header, `captured` the bytes in the file."""
    whole = ethernet(ipv4(tcp(bytes(1000), options=bytes(12))))
    for size in (14 + 20 + 20, 14 + 20 + 31, 14 + 20 + 32, 14 + 20 + 33, 500):
        ((seen,), _) = look([whole[:size]])
        assert (len(seen.payload), seen.length) == (max(size - 66, 0), 1000)


def test_faults_23_33_the_ip_header_says_where_data_ends() -> None:
    """Unless segmentation offload left its length out."""
    packets = (ipv4(tcp(bytes(60_000))), ipv4(tcp(bytes(200_000)), total=0), ipv6(tcp(bytes(200_000)), length=0))
    seen, _ = look([*map(ethernet, packets), ethernet(ipv4(tcp(b"")), trailer=b"GARBAGE")])
    assert [one.length for one in seen] == [60_000, 200_000, 200_000, 0]


def test_fault_31_noise() -> None:
    holds(
        None,
        ethernet(bytes(28), kind=0x0806),  # ARP
        ethernet(bytes(46), kind=0x88CC),  # LLDP
        ethernet(bytes(46), kind=60),  # 802.3 length
        ethernet(ipv4(bytes(8), protocol=1)),
        ethernet(ipv4(udp(b"", ports=(50_000, 1801)), protocol=17)),
        ethernet(ipv6(bytes(8), protocol=58)),
        ethernet(ipv6(bytes(8), protocol=59)),
        ethernet(ipv4(tcp(b"x", ports=(443, 50_000)))),
        ethernet(b"\0" * 50, tags=[0x8100] * 9, kind=0),
        *(ethernet(ipv4(SEGMENT))[:size] for size in range(14)),
    )
    for link in (wiretap.NULL, wiretap.RAW, wiretap.SLL, wiretap.SLL2):
        holds(None, b"", b"\0", link=link)


def test_other_ports() -> None:
    seen, _ = look([ethernet(ipv4(tcp(b"x", ports=(1, 2)))), ethernet(ipv4(tcp(b"y", ports=(3, 1))))], ports=(2, 3))
    assert [s.payload for s in seen] == [b"x", b"y"]


def test_headers_that_lie() -> None:
    holds(
        FrameReason.BAD_IP_HEADER,
        ethernet(ipv4(SEGMENT, version=6), kind=0x0800),
        ethernet(ipv4(SEGMENT, header=16)),
        ethernet(ipv4(SEGMENT, total=19)),
        ethernet(ipv4(SEGMENT)[:19]),
        ethernet(ipv6(SEGMENT)[:39]),
        ethernet(ipv6(SEGMENT, extensions=[FRAGMENT]))[: 14 + 47],
        ethernet(ipv6(SEGMENT, extensions=[FRAGMENT], length=7)),
    )
    cut, short = ethernet(ipv4(SEGMENT)[:39]), ethernet(ipv4(tcp(b"payload", header=16)))
    holds(FrameReason.BAD_TCP_HEADER, cut, short, ethernet(ipv4(tcp(b"", header=40))))
    assert look([ethernet(ipv6(bytes(20), extensions=[(60, bytes([255]) + bytes(6))]))])[0] == []


@pytest.mark.parametrize("seed", merge_needs(range(4), range(20)))
def test_fault_69_any_damage_to_frames(seed: int) -> None:
    """There is no exception; each frame is a segment, rejected or other traffic, independent of its neighbours."""
    rng = random.Random(seed)
    frames: list[bytes] = []
    links: list[int] = []
    for _ in range(300):
        extensions = rng.choice([[], *EXTENSIONS, [FRAGMENT], [EXTENSIONS[0][0], FRAGMENT]])
        segment = tcp(rng.randbytes(rng.randrange(60)), options=bytes(4 * rng.randrange(11)))
        options, fragment = bytes(4 * rng.randrange(11)), rng.choice([0, 0, 0x2000])
        packet = rng.choice([ipv4(segment, options=options, fragment=fragment), ipv6(segment, extensions=extensions)])
        wrapped = {1: ethernet(packet), 113: cooked(packet), 276: cooked2(packet), 101: packet, 0: loopback(packet)}
        link = rng.choice([*wrapped, 108, 7])
        damaged = bytearray(wrapped.get(link, loopback(packet)))
        for _ in range(rng.choice([0, 1, 1, 5])):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 255, 6, 44, 51, 60, rng.randrange(256)])
        frames.append(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged) + 1)])]))
        links.append(link)
    held = block_of(frames, links, before=BETWEEN)
    found, _, parts = find_segments(held, (1801,))
    for part, limit in ((found, found.length), (parts, parts.length)):
        assert ((part.captured >= 0) & (part.captured <= limit)).all()
    ends = (held.start + held.captured)[found.frame - 1]
    assert (found.captured <= np.maximum(ends - found.payload, 0)).all()
    together = facts(held)
    for number, (frame, link) in enumerate(zip(frames, links, strict=True), 1):
        alone = facts(block_of([frame], link))
        assert alone == ({1: together[number]} if number in together else {})


def facts(held: Records) -> dict[int, tuple[object, ...]]:
    """Returns what is found of each frame that is no other traffic, without places in the buffer."""
    found, rejected, parts = find_segments(held, (1801,))
    columns = [
        [part.frame, *(column for name, column in part._asdict().items() if name not in ("frame", "payload"))]
        for part in (found, parts)
    ]
    rows = [row for kind in columns for row in zip(*(column.tolist() for column in kind), strict=True)]
    rows += zip(rejected.frame.tolist(), rejected.reason, strict=True)
    by_frame = {number: rest for number, *rest in rows}
    assert len(by_frame) == len(rows), "a frame is one of these"
    return {number: tuple(rest) for number, rest in by_frame.items()}


def test_empty_block() -> None:
    found, rejected, parts = find_segments(block_of([]), (1801,))
    assert (len(found.frame), found.endpoints.shape, rejected.reason) == (0, (0, 36), [])
    assert (len(parts.frame), parts.key.shape) == (0, (0, 37))


POST = b"POST /msmq/private$/orders HTTP/1.1"


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (ethernet(ipv4(tcp(POST, ports=(50_000, 80)))), "http"),
        (ethernet(ipv6(tcp(POST.replace(b"msmq", b"MSMQ"), ports=(50_000, 80)))), "http"),
        (ethernet(ipv4(tcp(POST[:10], ports=(50_000, 80)))), "http"),
        (ethernet(ipv4(tcp(POST[:9], ports=(50_000, 80)))), None),
        (ethernet(ipv4(tcp(b"GET /msmq/private$/orders", ports=(50_000, 80)))), None),
        (ethernet(ipv4(tcp(POST, ports=(50_000, 8080)))), None),
        (ethernet(ipv4(tcp(POST))), None),  # to port 1801
        (ethernet(ipv4(bytes(40), protocol=113)), "multicast"),
        (ethernet(ipv4(bytes(40), protocol=2)), None),
        (ethernet(ipv4(bytes(40), protocol=50)), "ipsec"),
        (ethernet(ipv6(bytes(40), protocol=50)), "ipsec"),
        (ethernet(ipv4(tcp(b"x", ports=(50_000, 2103)))), "rpc"),
        (ethernet(ipv4(tcp(b"x", ports=(2105, 50_000)))), "rpc"),
        (ethernet(ipv4(tcp(b"x", ports=(2105, 1801)))), None),
        (ethernet(ipv4(udp(b"x", ports=(50_000, 2103)), protocol=17)), None),
    ],
)
def test_other_traffic_of_msmq_is_counted(frame: bytes, what: str | None) -> None:
    held = block_of([frame, ethernet(ipv4(tcp())), frame])
    _, rejected, *_ = find_segments(held, (1801,))
    assert {name: count for name, count in rejected.not_judged.items() if count} == ({what: 2} if what else {})
