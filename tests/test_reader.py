"""The capture reader: each format, then any damage, with any block size and any splits."""

import random
import struct
import tracemalloc
from dataclasses import replace
from itertools import pairwise, product
from typing import Literal, NamedTuple

import pytest
import wiretap
from pace import bounded
from tiers import merge_needs
from wiretap import (
    BILLION,
    NEW_YEAR,
    Record,
    block,
    enhanced,
    interface,
    pcap,
    pcap_header,
    pcap_record,
    pcapng,
    section,
    simple,
)

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture.files import Fault
from udfs.capture.reader import Block, open_capture, read_blocks
from udfs.capture.records import EARLIEST_NS, LATEST_NS, NO_TIME, Cursor

SIZES = (5_000, 1 << 16, 8 << 20)


class Bytes:
    """A source of bytes in memory."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        """Stand at the offset."""
        self.fault: CaptureReason | None = None
        self._data, self._at = data, offset

    def read(self, size: int) -> bytes:
        """Up to so many further bytes."""
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


class Read(NamedTuple):
    """A record that was read; `at` is the byte of the file where its data begins."""

    at: int
    data: bytes
    time_ns: int
    link: int
    frame: int


def start(data: bytes) -> Cursor:
    cursor = open_capture(Bytes(data))
    assert isinstance(cursor, Cursor)
    return cursor


def blocks(
    data: bytes, cursor: Cursor | None = None, stop: int | None = None, size: int = SIZES[-1], step: int | None = None
) -> list[Block]:
    cursor = cursor or start(data)
    return list(read_blocks(Bytes(data, cursor.offset), cursor, stop, size, step))


def read(found: list[Block]) -> tuple[list[Read], list[Fault]]:
    """Returns all records and all faults, by their places."""
    records = [
        Read(one.base + at, held.buffer[at : at + captured].tobytes(), time_ns, link, held.first_frame + i)
        for one in found
        for held in [one.records]
        for i, (at, captured, time_ns, link) in enumerate(zip(*(column.tolist() for column in held[1:5]), strict=True))
    ]
    return records, sorted((fault for one in found for fault in one.faults), key=lambda fault: fault.offset)


def passed_over(data: bytes, low: int, high: int) -> bool:
    """Returns whether the bytes are consecutive pcapng blocks, in either byte order."""
    while low < high:
        orders: tuple[Literal["little", "big"], ...] = ("little", "big")
        lengths = {int.from_bytes(data[low + 4 : low + 8], order): order for order in orders}
        fitting = [
            length
            for length, order in lengths.items()
            if 12 <= length <= high - low and int.from_bytes(data[low + length - 4 : low + length], order) == length
        ]
        if not fitting:
            return False
        low += fitting[0]
    return low == high


def check(data: bytes) -> tuple[list[Read], list[Fault]]:
    """Returns records and faults: the same for any block size and any splits, and every byte is in one of them."""
    first = start(data)
    records, found = read(blocks(data))
    for size in SIZES[:-1]:
        assert read(blocks(data, size=size)) == (records, found), f"blocks of {size}"
        cursors = {first.offset: first} | {one.after.offset: one.after for one in blocks(data, size=size, step=1)}
        parts: list[Block] = []
        for low, high in pairwise([*cursors.values(), None]):
            assert low is not None
            restored = Cursor.from_json(low.to_json())
            assert restored == low
            parts += blocks(data, restored, high.offset if high else None)
        assert read(parts) == (records, found), f"splits at blocks of {size}"
    assert [record.frame for record in records] == list(range(1, len(records) + 1))
    covered = [(fault.offset, fault.offset + fault.length) for fault in found]
    if first.format is CaptureFormat.PCAP:
        covered += [(record.at - first.header_size, record.at + len(record.data)) for record in records]
        edges = [first.offset, *(edge for pair in sorted(covered) for edge in pair), len(data)]
        assert edges[::2] == edges[1::2], "each byte is in one record or fault"
    else:
        edges = [0, *(edge for pair in covered for edge in pair), len(data)]
        assert all(passed_over(data, low, high) for low, high in zip(edges[::2], edges[1::2], strict=True))
        covered += [(record.at, record.at + len(record.data)) for record in records]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(covered)))
    for fault in found:
        assert fault.raw == data[fault.offset :][: min(fault.length, 4096)]
        assert str(fault.offset) in fault.detail
    return records, found


def frames(rng: random.Random, count: int, *, smallest: int = 54, largest: int = 1514) -> list[Record]:
    return wiretap.records(rng.randbytes(rng.randint(smallest, largest)) for _ in range(count))


SOME = frames(random.Random(1), 12)
BODIES = [record.data for record in SOME]


# --- rows of the table of faults --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A file, what its records hold, and its faults: reason, offset and length."""

    file: bytes
    bodies: list[bytes]
    faults: list[tuple[CaptureReason, int, int]]
    times: list[int] | None = None
    links: list[int] | None = None


def cut(row: str, reason: CaptureReason, whole: bytes, last: bytes, *kept: int) -> dict[str, Case]:
    """Files of which so many bytes of the last record are left."""
    at = len(whole) - len(last)
    return {
        f"{row}: {size} bytes of the last record": Case(whole[: at + size], BODIES[:-1], [(reason, at, size)])
        for size in kept
    }


def clock(order: str, *, ns: bool, modified: bool) -> Case:
    """The clock steps back, stands still and passes 2^31 s: records stay in file order."""
    seconds = [NEW_YEAR, 5, 4, 4, 2**31, 2**31 + 1, 2**32 - 1, 0, 7]
    content = [Record(body, second * BILLION + 1_234_567) for body, second in zip(BODIES, seconds, strict=False)]
    times = [r.time_ns if ns else r.time_ns // 1000 * 1000 for r in content]
    return Case(pcap(content, order=order, ns=ns, modified=modified), BODIES[: len(seconds)], [], times)


def absurd(length: int) -> Case:
    """The sixth record has a length that no record has."""
    parts = [pcap_record(record) for record in SOME]
    parts[5] = parts[5][:8] + struct.pack("<I", length) + parts[5][12:]
    fault = CaptureReason.BAD_RECORD_HEADER, 24 + sum(map(len, parts[:5])), len(parts[5])
    return Case(pcap_header() + b"".join(parts), BODIES[:5] + BODIES[6:], [fault])


def longer_than_there_was(which: range, original: int) -> Case:
    return Case(pcap([r._replace(original=original) if i in which else r for i, r in enumerate(SOME)]), BODIES, [])


def joined(second: bytes) -> Case:
    first = pcap(SOME[:6])
    return Case(first + second, BODIES[:6], [(CaptureReason.CONCATENATED_FILE, len(first), len(second))])


def of_bodies(bodies: list[bytes]) -> Case:
    return Case(pcap(wiretap.records(bodies)), bodies, [])


def bad_block(bad: bytes) -> Case:
    """A block between others has a wrong length at its beginning or its end."""
    before = pcapng(SOME[:5])
    after = b"".join(enhanced(body) for body in BODIES[6:])
    return Case(before + bad + after, BODIES[:5] + BODIES[6:], [(CaptureReason.BAD_BLOCK, len(before), len(bad))])


def false_block() -> Case:
    """Two payloads behind a damaged block hold the ends of a false block: the records between them are still read."""
    between = enhanced(BODIES[1]) + enhanced(BODIES[2])
    length = 8 + 20 + 4 + len(between) + 28 + 40
    first = enhanced(bytes(12) + struct.pack("<II", 4, length) + bytes(20))
    last = enhanced(bytes(36) + struct.pack("<I", length) + bytes(24))
    head, bad = section() + interface(), first[:-4] + bytes(4)
    data = head + bad + between + last + enhanced(BODIES[3])
    assert struct.unpack_from("<I", data, data.index(struct.pack("<II", 4, length)) + length - 4) == (length,)
    return Case(data, [BODIES[1], BODIES[2], last[28:92], BODIES[3]], [(CaptureReason.BAD_BLOCK, len(head), len(bad))])


def other_blocks() -> Case:
    comment = wiretap.option(1, b"a comment") + wiretap.option(0, b"")
    others = [block(kind, bytes(20)) for kind in (4, 5, 9, 10, 0xBAD, 0x40000BAD, 0x80000001, 7, 0)]
    data = section(options=comment) + others[0] + interface(snap=100) + b"".join(others)
    data += enhanced(BODIES[0][:61], 1, options=comment) + simple(b"s" * 61) + others[3]
    data += simple(b"t" * 100, original=1500) + wiretap.obsolete(b"o" * 63, 5) + block(0x0A0D0D0B, b"")
    times = [1000, NO_TIME, NO_TIME, 5000]
    return Case(data, [BODIES[0][:61], b"s" * 61, b"t" * 100, b"o" * 63], [], times)


INNER, DAY = pcap(SOME[:4]), NEW_YEAR * BILLION
BLOCK = enhanced(BODIES[5])
DAMAGED_INTERFACE = interface(link=wiretap.SLL)[:-4] + bytes(4)
OFFSET = EARLIEST_NS // BILLION
X, Y = b"x" * 60, b"y" * 60
CASES: dict[str, Case] = {
    **cut("01", CaptureReason.TRUNCATED_RECORD_BODY, pcap(SOME), pcap_record(SOME[-1]), 16, 20, len(BODIES[-1]) + 15),
    **cut("02", CaptureReason.TRUNCATED_RECORD_HEADER, pcap(SOME), pcap_record(SOME[-1]), 1, 8, 15),
    **cut("13", CaptureReason.TRUNCATED_BLOCK, pcapng(SOME), enhanced(BODIES[-1]), 1, 4, 11, 12, 31, 40),
    "01: zeros, where the file system allocated more than was written": Case(
        pcap(SOME) + bytes(9_999), BODIES, [(CaptureReason.BAD_RECORD_HEADER, len(pcap(SOME)), 9_999)]
    ),
    "05: header only": Case(pcap_header(), [], []),
    "05: section only": Case(section(), [], []),
    "05: interface only": Case(section() + interface(), [], []),
    **{
        f"07 08 09 26: {order} {kind}": clock(order, ns=kind == "ns", modified=kind == "modified")
        for order in "<>"
        for kind in ("µs", "ns", "modified")
    },
    "10: cut by the snap length": Case(
        pcap([Record(r.data[:96], r.time_ns, len(r.data)) for r in SOME], snap=96), [body[:96] for body in BODIES], []
    ),
    **{f"29: length {length}": absurd(length) for length in (2**32 - 1, 2**31, 1 << 21, (1 << 20) + 1)},
    **{
        f"29: captured more than {original}, {which}": longer_than_there_was(which, original)
        for original in (0, 40)
        for which in (range(4, 5), range(4, 7), range(12))
    },
    "30: pcap behind pcap": joined(pcap(SOME[6:])),
    "30: of the other byte order": joined(pcap(SOME[6:], order=">")),
    "30: pcapng behind pcap": joined(pcapng(SOME[6:])),
    "31: empty records": of_bodies([b"", *BODIES, b"", b"", b"x"]),
    "a capture that holds the transfer of another one": of_bodies(
        [BODIES[0], INNER, *(INNER[at : at + 1000] for at in range(0, len(INNER), 1000)), BODIES[1]]
    ),
    "11: interfaces of other units, offsets and links, some late": Case(
        section()
        + interface(resolution=9)
        + interface(link=wiretap.SLL, resolution=0x80 | 20, offset=3600)
        + enhanced(BODIES[0], DAY + 1)
        + enhanced(BODIES[1], (NEW_YEAR << 20) + 1, number=1)  # 2^-20 s, rounded down to ns
        + interface(link=wiretap.RAW, resolution=3, offset=-5)
        + enhanced(BODIES[2], NEW_YEAR * 1000 + 1, number=2)
        + interface(link=wiretap.NULL, resolution=12)
        + enhanced(BODIES[3], 10**18 + 1999, number=3)
        + enhanced(BODIES[4], 2, number=0)
        + interface(resolution=0)
        + enhanced(BODIES[5], 77, number=4),
        BODIES[:6],
        [],
        [DAY + 1, DAY + 3600 * BILLION + 953, DAY - 5 * BILLION + 1_000_000, 10**15 + 1, 2, 77 * BILLION],
        [wiretap.ETHERNET, wiretap.SLL, wiretap.RAW, wiretap.NULL, wiretap.ETHERNET, wiretap.ETHERNET],
    ),
    "11: times beyond what nanoseconds can hold": Case(
        section()
        + interface(resolution=0)
        + enhanced(X, 2**60)
        + interface(resolution=255)
        + interface(resolution=127)
        + enhanced(X, 2**63, number=1)
        + enhanced(X, 5, number=2),
        [X] * 3,
        [],
        [NO_TIME, 0, 0],
    ),
    "11: damaged times are none: else differences would not fit 64 bits": Case(
        section()
        + interface(resolution=9)
        + interface(resolution=9, offset=OFFSET)
        + b"".join(enhanced(X, stamp) for stamp in (LATEST_NS - 1, LATEST_NS, (1 << 64) - 1))
        + b"".join(enhanced(X, stamp, number=1) for stamp in (0, BILLION)),
        [X] * 5,
        [],
        [LATEST_NS - 1, NO_TIME, NO_TIME, NO_TIME, (OFFSET + 1) * BILLION],
    ),
    "12: sections of both byte orders": Case(
        b"".join(pcapng(SOME[i : i + 3], order="<>"[i % 2]) for i in range(0, 12, 3)), BODIES, []
    ),
    **{
        f"14: block of length {length}": bad_block(BLOCK[:4] + struct.pack("<I", length) + BLOCK[8:])
        for length in (0, 4, 11, 13, 2**32 - 4, 2**32 - 1, (16 << 20) + 4, 12, 32, 100_000)
    },
    "15: another length at its end": bad_block(BLOCK[:-4] + struct.pack("<I", 64)),
    "15: no such interface, or not yet": Case(
        section() + enhanced(X) + interface() + enhanced(Y) + enhanced(X, number=1) + simple(Y),
        [Y, Y],
        [(CaptureReason.UNKNOWN_INTERFACE, 28, 92), (CaptureReason.UNKNOWN_INTERFACE, 28 + 92 + 20 + 92, 92)],
    ),
    "15: records keep their interface where an earlier one is damaged": Case(
        section() + DAMAGED_INTERFACE + interface() + enhanced(X) + enhanced(Y, number=1),
        [X, Y],
        [(CaptureReason.BAD_BLOCK, 28, 20)],
        None,
        [-1, wiretap.ETHERNET],
    ),
    "15: longer than its block": Case(
        section() + interface() + enhanced(X, captured=64) + enhanced(Y),
        [Y],
        [(CaptureReason.UNKNOWN_INTERFACE, 48, 92)],
    ),
    "15: numbers like the ends of a block": false_block(),
    "16: other blocks, options, packets without a time": other_blocks(),
    "17: a check sequence in the link type": Case(pcap(SOME, link=1 | 0x2400_0000), BODIES, [], None, [1] * 12),
}


@pytest.mark.parametrize("what", CASES)
def test_what_a_file_holds(what: str) -> None:
    """Each name begins with its rows in the table of faults."""
    case = CASES[what]
    records, found = check(case.file)
    assert [record.data for record in records] == case.bodies
    assert [(fault.reason, fault.offset, fault.length) for fault in found] == case.faults
    assert case.times in (None, [record.time_ns for record in records])
    assert case.links in (None, [record.link for record in records])


@pytest.mark.parametrize(
    ("reason", "files"),
    [
        (CaptureReason.EMPTY_FILE, [b""]),
        (CaptureReason.TRUNCATED_FILE_HEADER, [h[:size] for h in (pcap_header(), section()) for size in (1, 3, 4, 23)]),
        (CaptureReason.BAD_MAGIC, [b"<!DOCTYPE html>", b"text\n" * 9, bytes(100), b"\x0a\x0d\x0d\x0a" * 9]),
    ],
)
def test_faults_03_04_06_no_capture(reason: CaptureReason, files: list[bytes]) -> None:
    for data in files:
        fault = open_capture(Bytes(data))
        assert isinstance(fault, Fault)
        assert (fault.reason, fault.raw) == (reason, data[:28])


# --- any damage -------------------------------------------------------------------------------------------------------


def damaged(rng: random.Random, parts: list[bytes], *, header: int) -> tuple[bytes, set[int]]:
    """Returns the parts with some of them damaged, far enough apart, and the indices of these."""
    hurt: set[int] = set()
    at = rng.randrange(1, 6)
    while at < len(parts) - 4:
        hurt.add(at)
        at += rng.randrange(5, 25)
    parts = list(parts)
    for i in hurt:
        part = bytearray(parts[i])
        match rng.randrange(6):
            case 0:  # bits of the header
                for _ in range(rng.randrange(1, 9)):
                    part[rng.randrange(header)] ^= 1 << rng.randrange(8)
            case 1:  # its lengths
                part[8 : min(header, 16)] = rng.randbytes(min(header, 16) - 8)
            case 2:  # bytes are missing
                begin = rng.randrange(len(part))
                del part[begin : begin + rng.randrange(1, 700)]
            case 3:  # bytes too many
                begin = rng.randrange(len(part))
                part[begin:begin] = rng.choice([rng.randbytes(rng.randrange(1, 900)), bytes(rng.randrange(1, 900))])
            case 4:  # a run of zeros, as of a lost disk block
                begin = rng.randrange(len(part))
                part[begin : begin + 512] = bytes(len(part[begin : begin + 512]))
            case 5:  # noise
                part = bytearray(rng.randbytes(rng.randrange(1, 3000)))
        parts[i] = bytes(part)
    return b"".join(parts), hurt


def damaged_file(rng: random.Random, style: str, content: list[Record]) -> tuple[bytes, set[int]]:
    """Return a capture of these records with some of them damaged, and which."""
    order = rng.choice("<>")
    if style == "pcapng":
        parts = [enhanced(r.data, r.time_ns // 1000, order=order) for r in content]
        head, header = section(order=order) + interface(order=order), 28
    else:
        modified = style == "modified"
        parts = [pcap_record(r, order=order, modified=modified) for r in content]
        head, header = pcap_header(order=order, modified=modified), 24 if modified else 16
    data, hurt = damaged(rng, parts, header=header)
    return head + data, hurt


@pytest.mark.parametrize("seed", merge_needs(range(5), range(40)))
@pytest.mark.parametrize("style", ["plain", "modified", "pcapng"])
def test_fault_69_damage_loses_nothing_else(style: str, seed: int) -> None:
    """Only damaged records are lost, and every byte is in a record or a fault."""
    rng = random.Random(seed)
    content = frames(rng, 60, smallest=rng.choice([14, 54]), largest=rng.choice([100, 1514, 9000]))
    data, hurt = damaged_file(rng, style, content)
    if rng.random() < 0.3:
        data = data[: -rng.randrange(1, 60)]
        hurt.add(len(content) - 1)
    records, _ = check(data)
    found = {r.data for r in records}
    assert [i for i, record in enumerate(content) if i not in hurt and record.data not in found] == []


WORD = struct.Struct("<I").pack
GOOD = pcap_record(Record(b"g" * 20))
LIE = struct.pack("<IIII", NEW_YEAR, 0, 20, 2**31)  # a header that does not vouch for itself
BEFORE = {"pcap": pcap(SOME) + b"\xff" * 16, "pcapng": pcapng(SOME)}
HOSTILE = {
    "zeros": ("pcap pcapng", bytes(2 << 20)),
    "noise": ("pcap pcapng", random.Random(0).randbytes(2 << 20)),
    "every word a length that leads astray": ("pcap", WORD(101) * (1 << 19)),
    "every word a length that leads on": ("pcap", WORD(100) * (1 << 19)),
    "long lengths": ("pcap", WORD(900_000) * (1 << 19)),
    "three good records and a lie": ("pcap", (3 * GOOD + LIE) * ((1 << 19) // 124)),
    "four good records and two lies": ("pcap", (4 * GOOD + 2 * (LIE + bytes(20))) * ((2 << 20) // 216)),
    "empty records": ("pcap", struct.pack("<IIII", NEW_YEAR, 0, 0, 0) * (1 << 17)),
    "only lies": ("pcap", (LIE + bytes(20)) * ((2 << 20) // 36)),
    "a long record and a lie": ("pcap", (pcap_record(Record(bytes(1 << 20))) + LIE * 9) * 4),
    "headers of long records": ("pcap", struct.pack("<IIII", NEW_YEAR, 0, 1 << 20, 1 << 20) * (1 << 17)),
    "types": ("pcapng", WORD(6) * (1 << 19)),
    "long blocks": ("pcapng", (WORD(6) + WORD(15 << 20)) * (1 << 18)),
    "nested blocks": ("pcapng", b"".join(WORD(6) + WORD((2 << 20) - 16 * i) for i in range(1 << 17))),
    "sections": ("pcapng", section() * ((2 << 20) // 28)),
    "interfaces": ("pcapng", interface() * ((2 << 20) // 20)),
    "small blocks": ("pcapng", block(5, b"") * ((2 << 20) // 12)),
    "packets of no interface": ("pcapng", enhanced(b"", number=9**9) * ((1 << 20) // 32)),
    "small blocks and a lie": ("pcapng", (block(5, b"") * 3 + WORD(6) * 3) * ((1 << 19) // 48)),
}
OF_A_MERGE = ("every word a length that leads on", "only lies", "nested blocks", "small blocks and a lie")


@pytest.mark.parametrize(
    ("what", "size"),
    merge_needs([(what, 1 << 16) for what in OF_A_MERGE], product(HOSTILE, (1 << 16, 8 << 20))),
)
def test_time_is_linear(what: str, size: int) -> None:
    styles, hostile = HOSTILE[what]
    for style in styles.split():
        data = BEFORE[style] + hostile
        with bounded(50):
            records, found = read(blocks(data, size=size))
        assert [r.data for r in records[: len(SOME)]] == BODIES
        if style == "pcap":
            assert sum(16 + len(r.data) for r in records) + sum(fault.length for fault in found) == len(data) - 24


class Endless:
    """A source that makes many records as they are read, some of them damaged."""

    def __init__(self, size: int) -> None:
        """Give so many bytes."""
        self.fault: CaptureReason | None = None
        self._pattern = pcap_record(Record(bytes(1000))) * 1000 + LIE * 3
        self._left = size

    def read(self, size: int) -> bytes:
        """Up to so many further bytes."""
        part = (self._pattern * (size // len(self._pattern) + 2))[: min(size, self._left)]
        self._left -= len(part)
        return part


def test_fault_25_memory_is_bounded() -> None:
    """Memory is bounded far behind 2 GiB, in a file with damage everywhere."""
    first = replace(start(pcap_header()), offset=5 << 30)
    tracemalloc.start()
    last = first
    count = 0
    for part in read_blocks(Endless(40 << 20), first, block_bytes=1 << 20):
        last = part.after
        count += len(part.records.start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert last.offset == (5 << 30) + (40 << 20)
    assert last.frame == count > 36_000
    assert peak < 24 << 20
