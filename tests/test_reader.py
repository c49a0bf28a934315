"""The capture reader: each format, then any damage, with any block size and any splits."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
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
)

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture.files import Fault
from udfs.capture.reader import open_capture, read_blocks
from udfs.capture.records import EARLIEST_NS, LATEST_NS, NO_TIME, Cursor, Records

SIZES = (5_000, 1 << 16, 8 << 20)
DAY = NEW_YEAR * BILLION


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


def rows_of(found: Records, base: int) -> list[Read]:
    """The records in a buffer that begins at byte `base` of the file."""
    columns = (found.start, found.captured, found.time_ns, found.link_type)
    return [
        Read(base + at, found.buffer[at : at + captured].tobytes(), time_ns, link, found.first_frame + i)
        for i, (at, captured, time_ns, link) in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]


def steps(
    data: bytes, *, cursor: Cursor | None = None, stop: int | None = None, size: int = SIZES[-1]
) -> Iterator[tuple[list[Read], Fault | None, Cursor]]:
    cursor = cursor or start(data)
    for part in read_blocks(Bytes(data, cursor.offset), cursor, stop, size):
        yield rows_of(part.records, part.after.offset - len(part.records.buffer)), part.fault, part.after


def read(
    data: bytes, *, cursor: Cursor | None = None, stop: int | None = None, size: int = SIZES[-1]
) -> tuple[list[Read], list[Fault]]:
    """Returns all records and all faults."""
    records: list[Read] = []
    found: list[Fault] = []
    for rows, fault, _ in steps(data, cursor=cursor, stop=stop, size=size):
        records += rows
        found += [fault] if fault else []
    return records, sorted(found, key=lambda fault: fault.offset)


def places(found: list[Fault]) -> list[tuple[CaptureReason, int, int]]:
    return [(fault.reason, fault.offset, fault.length) for fault in found]


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


def check(data: bytes, *, every_split: bool = False) -> tuple[list[Read], list[Fault]]:
    """Returns records and faults: the same for any block size and any splits, and every byte is in one of them."""
    records, found = read(data)
    first = start(data)
    for size in SIZES[:-1]:
        cursors = [first]
        other: tuple[list[Read], list[Fault]] = [], []
        for rows, fault, after in steps(data, size=size):
            other[0].extend(rows)
            other[1].extend([fault] if fault else [])
            cursors.append(after)
        assert other[0] == records, f"records at blocks of {size}"
        assert sorted(other[1], key=lambda fault: fault.offset) == found, f"faults at blocks of {size}"
        places_to_cut = sorted({cursor.offset: cursor for cursor in cursors}.values(), key=lambda c: c.offset)
        if not every_split:
            places_to_cut = places_to_cut[:1] + places_to_cut[1:-1:3]
        parts: tuple[list[Read], list[Fault]] = [], []
        for low, high in pairwise([*places_to_cut, None]):
            assert low is not None
            restored = Cursor.from_json(low.to_json())
            assert restored == low
            part = read(data, cursor=restored, stop=high.offset if high else None)
            parts[0].extend(part[0])
            parts[1].extend(part[1])
        assert parts[0] == records, f"records of splits at blocks of {size}"
        assert parts[1] == found, f"faults of splits at blocks of {size}"
    assert [record.frame for record in records] == list(range(1, len(records) + 1))
    covered = [(fault.offset, fault.offset + fault.length) for fault in found]
    if first.format is CaptureFormat.PCAP:
        covered += [(record.at - first.header_size, record.at + len(record.data)) for record in records]
        covered.sort()
        edges = [first.offset, *(edge for pair in covered for edge in pair), len(data)]
        assert edges[::2] == edges[1::2], "each byte is in one record or fault"
    else:
        covered += [(record.at, record.at + len(record.data)) for record in records]
        covered.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(covered))
        blocks = sorted((fault.offset, fault.offset + fault.length) for fault in found)
        edges = [0, *(edge for pair in blocks for edge in pair), len(data)]
        assert all(passed_over(data, low, high) for low, high in zip(edges[::2], edges[1::2], strict=True))
    for fault in found:
        assert fault.raw == data[fault.offset :][: min(fault.length, 4096)]
        assert str(fault.offset) in fault.detail
    return records, found


def frames(rng: random.Random, count: int, *, smallest: int = 54, largest: int = 1514) -> list[Record]:
    return wiretap.records(rng.randbytes(rng.randint(smallest, largest)) for _ in range(count))


SOME = frames(random.Random(1), 12)
BODIES = [record.data for record in SOME]


# --- rows of the table of faults: pcap --------------------------------------------------------------------------------


def cut_off(whole: bytes, last: bytes, *kept: int) -> list[tuple[bytes, int, int]]:
    """The file without its last record, with so many bytes of it: data, where that record begins, and bytes kept."""
    at = len(whole) - len(last)
    return [(whole[: at + size], at, size) for size in kept]


LAST = 16 + len(BODIES[-1])
CUT = {
    CaptureReason.TRUNCATED_RECORD_BODY: cut_off(pcap(SOME), pcap_record(SOME[-1]), LAST - 1, LAST - 20, 16),
    CaptureReason.TRUNCATED_RECORD_HEADER: cut_off(pcap(SOME), pcap_record(SOME[-1]), 1, 8, 15),
    CaptureReason.TRUNCATED_BLOCK: cut_off(pcapng(SOME), enhanced(BODIES[-1]), 1, 4, 11, 12, 31, 40),
    CaptureReason.BAD_RECORD_HEADER: [(pcap(SOME[:-1]) + bytes(9_999), len(pcap(SOME[:-1])), 9_999)],
}


@pytest.mark.parametrize("reason", CUT)
def test_faults_01_02_13_last_record_cut(reason: CaptureReason) -> None:
    """Also where the file system allocated more bytes than were written: these are zeros."""
    for data, at, size in CUT[reason]:
        records, found = check(data)
        assert [r.data for r in records] == BODIES[:-1]
        assert places(found) == [(reason, at, size)]


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


@pytest.mark.parametrize("head", [pcap_header(), section(), section() + interface()])
def test_fault_05_header_only(head: bytes) -> None:
    assert check(head) == ([], [])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("ns", "modified"), [(False, False), (True, False), (False, True)])
def test_faults_07_08_09_26_every_magic_and_any_clock(order: str, ns: bool, modified: bool) -> None:
    """The clock steps back, stands still and passes 2^31 s: records stay in file order."""
    seconds = [NEW_YEAR, 5, 4, 4, 2**31, 2**31 + 1, 2**32 - 1, 0, 7]
    content = [Record(body, second * BILLION + 1_234_567) for body, second in zip(BODIES, seconds, strict=False)]
    records, found = check(pcap(content, order=order, ns=ns, modified=modified))
    assert found == []
    assert [r.data for r in records] == BODIES[: len(seconds)]
    assert [r.time_ns for r in records] == [r.time_ns if ns else r.time_ns // 1000 * 1000 for r in content]


def test_fault_10_snaplen_cut() -> None:
    content = [Record(record.data[:96], record.time_ns, len(record.data)) for record in SOME]
    records, found = check(pcap(content, snap=96))
    assert found == []
    assert [r.data for r in records] == [body[:96] for body in BODIES]


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 1 << 21, (1 << 20) + 1])
def test_fault_29_absurd_length(length: int) -> None:
    parts = [pcap_record(record) for record in SOME]
    parts[5] = parts[5][:8] + struct.pack("<I", length) + parts[5][12:]
    records, found = check(pcap_header() + b"".join(parts))
    assert [r.data for r in records] == BODIES[:5] + BODIES[6:]
    before = 24 + sum(map(len, parts[:5]))
    assert places(found) == [(CaptureReason.BAD_RECORD_HEADER, before, len(parts[5]))]


@pytest.mark.parametrize("which", [[4], [4, 5, 6], list(range(12))])
@pytest.mark.parametrize("original", [0, 40])
def test_fault_29_captured_more_than_there_was(which: list[int], original: int) -> None:
    content = [r._replace(original=original) if i in which else r for i, r in enumerate(SOME)]
    records, found = check(pcap(content))
    assert [r.data for r in records] == BODIES
    assert found == []


@pytest.mark.parametrize("second", [pcap(SOME[6:]), pcap(SOME[6:], order=">"), pcapng(SOME[6:])])
def test_fault_30_files_joined(second: bytes) -> None:
    first = pcap(SOME[:6])
    records, found = check(first + second)
    assert [r.data for r in records] == BODIES[:6]
    assert places(found) == [(CaptureReason.CONCATENATED_FILE, len(first), len(second))]


def test_empty_records() -> None:
    content = wiretap.records([b"", *BODIES, b"", b"", b"x"])
    records, found = check(pcap(content))
    assert ([r.data for r in records], found) == ([b"", *BODIES, b"", b"", b"x"], [])


def test_capture_inside_a_capture() -> None:
    """A capture holds the transfer of another capture, whose records are not records of this file."""
    inner = pcap(SOME[:4])
    outer = wiretap.records(
        [BODIES[0], inner, *(inner[at : at + 1000] for at in range(0, len(inner), 1000)), BODIES[1]]
    )
    records, found = check(pcap(outer))
    assert ([r.data for r in records], found) == ([record.data for record in outer], [])


# --- rows of the table of faults: pcapng ------------------------------------------------------------------------------


def test_fault_11_interfaces() -> None:
    data = (
        section()
        + interface(resolution=9)
        + interface(link=wiretap.SLL, resolution=0x80 | 20, offset=3600)
        + enhanced(BODIES[0], DAY + 1)
        + enhanced(BODIES[1], (NEW_YEAR << 20) + 1, number=1)
        + interface(link=wiretap.RAW, resolution=3, offset=-5)
        + enhanced(BODIES[2], NEW_YEAR * 1000 + 1, number=2)
        + interface(link=wiretap.NULL, resolution=12)
        + enhanced(BODIES[3], 10**18 + 1999, number=3)
        + enhanced(BODIES[4], 2, number=0)
        + interface(resolution=0)
        + enhanced(BODIES[5], 77, number=4)
    )
    records, found = check(data, every_split=True)
    assert found == []
    assert [(r.data, r.time_ns, r.link) for r in records] == [
        (BODIES[0], DAY + 1, wiretap.ETHERNET),
        (BODIES[1], DAY + 3600 * BILLION + 953, wiretap.SLL),  # 2^-20 s, rounded down to ns
        (BODIES[2], DAY - 5 * BILLION + 1_000_000, wiretap.RAW),
        (BODIES[3], 10**15 + 1, wiretap.NULL),
        (BODIES[4], 2, wiretap.ETHERNET),
        (BODIES[5], 77 * BILLION, wiretap.ETHERNET),
    ]


def test_fault_11_times_beyond_what_nanoseconds_can_hold() -> None:
    data = section() + interface(resolution=0) + enhanced(b"x" * 60, 2**60) + interface(resolution=255)
    data += interface(resolution=127) + enhanced(b"y" * 60, 2**63, number=1) + enhanced(b"z" * 60, 5, number=2)
    records, found = check(data)
    assert found == []
    assert [r.time_ns for r in records] == [NO_TIME, 0, 0]


def test_fault_11_damaged_times_are_none() -> None:
    """Else differences of times, and what the replay adds to them, would not fit 64 bits."""
    offset = EARLIEST_NS // BILLION
    data = section() + interface(resolution=9) + interface(resolution=9, offset=offset)
    data += b"".join(enhanced(b"x" * 60, stamp) for stamp in (LATEST_NS - 1, LATEST_NS, (1 << 64) - 1))
    data += b"".join(enhanced(b"x" * 60, stamp, number=1) for stamp in (0, BILLION))
    records, _ = check(data)
    assert [r.time_ns for r in records] == [LATEST_NS - 1, NO_TIME, NO_TIME, NO_TIME, (offset + 1) * BILLION]


def test_fault_12_sections_of_both_byte_orders() -> None:
    data = b"".join(pcapng(SOME[i : i + 3], order="<>"[i % 2]) for i in range(0, 12, 3))
    records, found = check(data, every_split=True)
    assert ([r.data for r in records], found) == (BODIES, [])


BLOCK = enhanced(BODIES[5])


@pytest.mark.parametrize(
    "bad",
    [
        *(
            BLOCK[:4] + struct.pack("<I", length) + BLOCK[8:]
            for length in (0, 4, 11, 13, 2**32 - 4, 2**32 - 1, (16 << 20) + 4, 12, 32, 100_000)
        ),
        BLOCK[:-4] + struct.pack("<I", 64),
    ],
)
def test_faults_14_15_wrong_lengths_of_a_block(bad: bytes) -> None:
    data = pcapng(SOME[:5])
    records, found = check(data + bad + b"".join(enhanced(body) for body in BODIES[6:]))
    assert [r.data for r in records] == BODIES[:5] + BODIES[6:]
    assert places(found) == [(CaptureReason.BAD_BLOCK, len(data), len(bad))]


def test_fault_15_unknown_interface() -> None:
    head = section() + enhanced(BODIES[0]) + interface()
    data = head + enhanced(BODIES[1]) + enhanced(BODIES[2], number=1) + wiretap.simple(BODIES[3])
    records, found = check(data, every_split=True)
    assert [r.data for r in records] == [BODIES[1], BODIES[3]]
    first, second = len(enhanced(BODIES[0])), len(enhanced(BODIES[2]))
    assert places(found) == [
        (CaptureReason.UNKNOWN_INTERFACE, len(section()), first),
        (CaptureReason.UNKNOWN_INTERFACE, len(head) + len(enhanced(BODIES[1])), second),
    ]


def test_fault_15_damaged_interface_keeps_its_number() -> None:
    """Records keep their interface when the description of an earlier interface is damaged."""
    bad = interface(link=wiretap.SLL)[:-4] + bytes(4)
    data = section() + bad + interface() + enhanced(BODIES[0]) + enhanced(BODIES[1], number=1)
    records, found = check(data, every_split=True)
    assert [(r.data, r.link) for r in records] == [(BODIES[0], -1), (BODIES[1], wiretap.ETHERNET)]
    assert places(found) == [(CaptureReason.BAD_BLOCK, len(section()), len(bad))]


def test_fault_15_captured_length_beyond_its_block() -> None:
    data = section() + interface() + enhanced(b"x" * 60, captured=64) + enhanced(b"y" * 60)
    records, found = check(data)
    assert [r.data for r in records] == [b"y" * 60]
    assert places(found) == [(CaptureReason.UNKNOWN_INTERFACE, 48, 92)]


def test_fault_15_numbers_like_the_ends_of_a_block() -> None:
    """Two payloads behind a damaged block hold the ends of a false block: the records between them are still read."""
    between = enhanced(BODIES[1]) + enhanced(BODIES[2])
    length = 8 + 20 + 4 + len(between) + 28 + 40
    first = enhanced(bytes(12) + struct.pack("<II", 4, length) + bytes(20))
    last = enhanced(bytes(36) + struct.pack("<I", length) + bytes(24))
    head, bad = section() + interface(), first[:-4] + bytes(4)
    at = len(head) + bad.index(struct.pack("<II", 4, length))
    data = head + bad + between + last + enhanced(BODIES[3])
    assert struct.unpack_from("<I", data, at + length - 4) == (length,)
    records, found = check(data, every_split=True)
    assert [r.data for r in records] == [BODIES[1], BODIES[2], last[28:92], BODIES[3]]
    assert places(found) == [(CaptureReason.BAD_BLOCK, len(head), len(bad))]


def test_fault_16_other_blocks_options_simple_packets() -> None:
    comment = wiretap.option(1, b"a comment") + wiretap.option(0, b"")
    others = [block(kind, bytes(20)) for kind in (4, 5, 9, 10, 0xBAD, 0x40000BAD, 0x80000001, 7, 0)]
    data = section(options=comment) + others[0] + interface(snap=100) + b"".join(others)
    data += enhanced(BODIES[0][:61], 1, options=comment) + wiretap.simple(b"s" * 61) + others[3]
    data += wiretap.simple(b"t" * 100, original=1500) + wiretap.obsolete(b"o" * 63, 5) + block(0x0A0D0D0B, b"")
    records, found = check(data, every_split=True)
    assert found == []
    assert [(r.data, r.time_ns) for r in records] == [
        (BODIES[0][:61], 1000),
        (b"s" * 61, NO_TIME),
        (b"t" * 100, NO_TIME),
        (b"o" * 63, 5000),
    ]


def test_fault_17_check_sequence_in_the_link_type() -> None:
    records, _ = check(pcap(SOME, link=1 | 0x2400_0000))
    assert {r.link for r in records} == {1}


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


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("style", ["plain", "modified", "pcapng"])
def test_fault_69_damage_loses_nothing_else(style: str, seed: int) -> None:
    """Only damaged records are lost, and every byte is in a record or a fault."""
    rng = random.Random(seed)
    content = frames(rng, 60, smallest=rng.choice([14, 54]), largest=rng.choice([100, 1514, 9000]))
    data, hurt = damaged_file(rng, style, content)
    if rng.random() < 0.3:
        data = data[: -rng.randrange(1, 60)]
        hurt.add(len(content) - 1)
    records, _ = check(data, every_split=True)
    found = {r.data for r in records}
    assert [i for i, record in enumerate(content) if i not in hurt and record.data not in found] == []


@pytest.mark.parametrize("seed", range(30))
def test_fault_69_random_bytes_wrong(seed: int) -> None:
    """Wrong bytes at any density cause no exception, and every byte is in a record or a fault."""
    rng = random.Random(seed)
    content = frames(rng, 150, smallest=14, largest=rng.choice([60, 400, 1514]))
    data = bytearray(rng.choice([pcap(content), pcap(content, modified=True, order=">"), pcapng(content)]))
    for _ in range(int(len(data) * rng.choice([0.0005, 0.005, 0.05, 0.3])) + 1):
        data[rng.randrange(24, len(data))] = rng.choice([0, 0xFF, rng.randrange(256)])
    check(bytes(data), every_split=True)


WORD = struct.Struct("<I").pack
GOOD = pcap_record(Record(b"g" * 20))
LIE = struct.pack("<IIII", NEW_YEAR, 0, 20, 2**31)  # a header that does not vouch for itself
BEFORE = {"pcap": pcap(SOME) + b"\xff" * 16, "pcapng": pcapng(SOME)}
HOSTILE = {
    "zeros": ("pcap pcapng", bytes(4 << 20)),
    "noise": ("pcap pcapng", random.Random(0).randbytes(4 << 20)),
    "every word a length that leads astray": ("pcap", WORD(101) * (1 << 20)),
    "every word a length that leads on": ("pcap", WORD(100) * (1 << 20)),
    "long lengths": ("pcap", WORD(900_000) * (1 << 20)),
    "three good records and a lie": ("pcap", (3 * GOOD + LIE) * ((1 << 20) // 124)),
    "four good records and two lies": ("pcap", (4 * GOOD + 2 * (LIE + bytes(20))) * ((4 << 20) // 216)),
    "empty records": ("pcap", struct.pack("<IIII", NEW_YEAR, 0, 0, 0) * (1 << 18)),
    "only lies": ("pcap", (LIE + bytes(20)) * ((4 << 20) // 36)),
    "a long record and a lie": ("pcap", (pcap_record(Record(bytes(1 << 20))) + LIE * 9) * 4),
    "headers of long records": ("pcap", struct.pack("<IIII", NEW_YEAR, 0, 1 << 20, 1 << 20) * (1 << 18)),
    "types": ("pcapng", WORD(6) * (1 << 20)),
    "long blocks": ("pcapng", (WORD(6) + WORD(15 << 20)) * (1 << 19)),
    "nested blocks": ("pcapng", b"".join(WORD(6) + WORD((4 << 20) - 16 * i) for i in range(1 << 18))),
    "sections": ("pcapng", section() * ((4 << 20) // 28)),
    "interfaces": ("pcapng", interface() * ((4 << 20) // 20)),
    "small blocks": ("pcapng", block(5, b"") * ((4 << 20) // 12)),
    "packets of no interface": ("pcapng", enhanced(b"", number=9**9) * ((1 << 20) // 32)),
    "small blocks and a lie": ("pcapng", (block(5, b"") * 3 + WORD(6) * 3) * ((1 << 20) // 48)),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("size", merge_needs([1 << 16], [1 << 16, 8 << 20]))
def test_time_is_linear(what: str, size: int) -> None:
    styles, hostile = HOSTILE[what]
    for style in styles.split():
        data = BEFORE[style] + hostile
        with bounded(100):
            records, found = read(data, size=size)
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
    for part in read_blocks(Endless(100 << 20), first, block_bytes=1 << 20):
        last = part.after
        count += len(part.records.start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert last.offset == (5 << 30) + (100 << 20)
    assert last.frame == count > 90_000
    assert peak < 24 << 20
