"""Captured records out of pcap and pcapng files, whatever state the files are in.

A broken record does not stop the reader: it searches for the next header it can trust, reports the bytes between as a
`Fault`, and goes on. What is found depends on the bytes alone, never on how a file was cut into blocks or splits,
so a `Cursor` taken between two blocks is an exact place to start another task from.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.storage import Fault, Source

NO_TIME = np.iinfo(np.int64).min
"""Stands for the time of a record that has none (Simple Packet Block) or none that 64-bit ns can hold."""
BLOCK_BYTES = 8 << 20
_RECORD_LIMIT = 1 << 20  # libpcap stops at 262,144; offloaded super-segments are seen up to 512 KiB
_BLOCK_LIMIT = 16 << 20
_MIN_BLOCK = 12
_CHAIN = 3  # headers that must follow one another before a searched-for record is believed
_LOOKAHEAD = (_CHAIN + 1) * _RECORD_LIMIT
_SMALLEST_FRAME = 14
_DAY_S = 86_400
_WINDOW = 1 << 16
_BILLION = 1_000_000_000
_RAW_KEPT = 4096
_PCAP_MAGICS = {  # first four bytes: byte order, ns for one unit of the fraction, bytes of a record header
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
_PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
_FILE_MAGICS = (*_PCAP_MAGICS, _PCAPNG_MAGIC)
_PCAP_HEADER = 24
_SHB, _IDB, _OPB, _SPB, _EPB = 0x0A0D0D0A, 1, 2, 3, 6
_KNOWN_BLOCKS = {_SHB, _IDB, _OPB, _SPB, 4, 5, _EPB, 9, 10, 0xBAD, 0x40000BAD}
_BYTE_ORDER_MAGIC = 0x1A2B3C4D


@dataclass(frozen=True, slots=True)
class Interface:
    """What a capture says of the interface a record came from."""

    link_type: int
    snap_length: int
    units_per_second: int
    offset_s: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two records, with all that is needed to read on from there."""

    format: CaptureFormat
    offset: int
    frame: int
    byte_order: str
    header_size: int
    interfaces: tuple[Interface, ...]

    def to_json(self) -> str:
        """The cursor as text, to travel in a column."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Cursor":
        """The cursor that `to_json` wrote."""
        fields = json.loads(text)
        return cls(
            **fields
            | {
                "format": CaptureFormat(fields["format"]),
                "interfaces": tuple(Interface(**interface) for interface in fields["interfaces"]),
            }
        )


class Records(NamedTuple):
    """Captured records that lie whole in one buffer; arrays are one element per record.

    `start` is an index in `buffer`; `frame` counts a file's records from 1; lengths are bytes, times ns.
    """

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    captured: NDArray[np.int64]
    original: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    link_type: NDArray[np.int64]
    first_frame: int


class Block(NamedTuple):
    """One step of the reader: records, or a fault, and where the next step begins."""

    records: Records
    fault: Fault | None
    after: Cursor


class _Chain(NamedTuple):
    """Records that follow one another from the start of a buffer, up to `end`.

    `lost` says that no record can be believed at `end`; else the chain goes on in bytes not read yet.
    """

    rows: list[tuple[int, int, int, int, int, int]]  # header's index, start, captured, original, time_ns, link_type
    end: int
    lost: bool
    byte_order: str
    interfaces: tuple[Interface, ...]
    unknown: list[Fault]


def open_capture(source: Source) -> Cursor | Fault:
    """The cursor before the first record, or why this is no capture that can be read."""
    head = source.read(_PCAP_HEADER)
    if not head:
        return Fault(CaptureReason.EMPTY_FILE, "The file holds no bytes.", 0, 0)
    if head[:4] in _PCAP_MAGICS:
        if len(head) < _PCAP_HEADER:
            detail = f"The file ends after {len(head)} of the 24 bytes of a pcap file header."
            return Fault(CaptureReason.TRUNCATED_FILE_HEADER, detail, 0, len(head), head)
        pcap_order, unit_ns, header_size = _PCAP_MAGICS[head[:4]]
        snap_length, network = struct.unpack(pcap_order + "II", head[16:])
        # Above the low 16 bits lie the length of a frame check sequence and reserved bits.
        interface = Interface(network & 0xFFFF, snap_length, _BILLION // unit_ns, 0)
        return Cursor(CaptureFormat.PCAP, _PCAP_HEADER, 0, pcap_order, header_size, (interface,))
    if head[:4] == _PCAPNG_MAGIC:
        order = _section_order(head, 0)
        if order is None:
            detail = "The file ends in, or does not continue, a pcapng Section Header Block."
            reason = CaptureReason.TRUNCATED_FILE_HEADER if len(head) < _PCAP_HEADER else CaptureReason.BAD_MAGIC
            return Fault(reason, detail, 0, len(head), head)
        return Cursor(CaptureFormat.PCAPNG, 0, 0, order, 0, ())
    if any(magic.startswith(head) for magic in _FILE_MAGICS):
        return Fault(CaptureReason.TRUNCATED_FILE_HEADER, "The file ends in its magic number.", 0, len(head), head)
    detail = f"The file begins with {head[:4].hex(' ')}, which is no pcap or pcapng magic number."
    return Fault(CaptureReason.BAD_MAGIC, detail, 0, len(head), head)


def read_blocks(
    source: Source, cursor: Cursor, stop: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Records whose headers begin at `cursor.offset` or later and before `stop`, and the faults between them.

    `source` stands at `cursor.offset`. Memory: a few times `block_bytes`, and of a record's length.
    """
    chain_of = _pcap_chain if cursor.format is CaptureFormat.PCAP else _pcapng_chain
    data = b""
    wanted = block_bytes
    ended = False
    while stop is None or cursor.offset < stop:
        if not ended:
            chunk = source.read(wanted)
            ended = not chunk
            data += chunk
        chain = chain_of(data, cursor, ended)
        rows = [row for row in chain.rows if stop is None or cursor.offset + row[0] < stop]
        lost_at = cursor.offset + chain.end
        after = replace(
            cursor,
            offset=lost_at,
            frame=cursor.frame + len(rows),
            byte_order=chain.byte_order,
            interfaces=chain.interfaces,
        )
        for fault in chain.unknown:
            yield Block(_records(data, [], cursor.frame), fault, cursor)
        if rows:
            yield Block(_records(data, rows, cursor.frame), None, after)
        # A record longer than a block needs to see more.
        wanted = block_bytes if chain.end else 2 * wanted
        data = data[chain.end :]
        cursor = after
        if ended and not data:
            break
        if chain.lost and (stop is None or lost_at < stop):
            fault, data, ended = _search(source, data, cursor, block_bytes, ended)
            cursor = replace(cursor, offset=lost_at + fault.length)
            yield Block(_records(b"", [], cursor.frame), fault, cursor)
    if ended and source.fault is not None:
        detail = f"The compressed file breaks off ({source.fault}); {cursor.offset} bytes could be expanded."
        yield Block(_records(b"", [], cursor.frame), Fault(source.fault, detail, cursor.offset, 0), cursor)


def _records(data: bytes, rows: list[tuple[int, int, int, int, int, int]], frame: int) -> Records:
    _, start, captured, original, time_ns, link_type = np.array(rows, np.int64).reshape(-1, 6).T
    return Records(np.frombuffer(data, np.uint8), start, captured, original, time_ns, link_type, frame + 1)


def _search(source: Source, data: bytes, cursor: Cursor, block_bytes: int, ended: bool) -> tuple[Fault, bytes, bool]:
    """Look past what is no record; returns the fault, the bytes from the next record on, and whether they are the last.

    A second file behind the first (both joined by `cat`) may have another byte order and link type: it is not read.
    """
    find = _find_pcap if cursor.format is CaptureFormat.PCAP else _find_pcapng
    head = data[:_RAW_KEPT]
    joined = head[:4] in _FILE_MAGICS and cursor.format is CaptureFormat.PCAP
    at = cursor
    begin = 1
    while True:
        found, reached = (None, len(data)) if joined else find(data, begin, at, ended)
        at = replace(at, offset=at.offset + reached)
        data = data[reached:]
        if found is not None or (ended and not data):
            break
        chunk = source.read(block_bytes)
        ended = not chunk
        data += chunk
        begin = 0
    length = at.offset - cursor.offset
    reason, sentence = _why_lost(head, length, cursor, found=found is not None)
    detail = f"{sentence} at byte {cursor.offset}; {length} bytes are in no record."
    return Fault(reason, detail, cursor.offset, length, head[:length]), data, ended


def _why_lost(head: bytes, length: int, cursor: Cursor, *, found: bool) -> tuple[CaptureReason, str]:
    if cursor.format is CaptureFormat.PCAP:
        if head[:4] in _FILE_MAGICS:
            return CaptureReason.CONCATENATED_FILE, "Another capture file begins"
        if found:
            return CaptureReason.BAD_RECORD_HEADER, "No record can be read"
        if length < cursor.header_size:
            return CaptureReason.TRUNCATED_RECORD_HEADER, "The file ends in the header of the record"
        captured = _captured(head, 0, cursor)
        if captured <= _RECORD_LIMIT and cursor.header_size + captured > length:
            return CaptureReason.TRUNCATED_RECORD_BODY, "The file ends in the body of the record"
        return CaptureReason.BAD_RECORD_HEADER, "No record can be read, to the end of the file,"
    if not found and (length < _MIN_BLOCK or length < _captured(head, -4, cursor) <= _BLOCK_LIMIT):
        return CaptureReason.TRUNCATED_BLOCK, "The file ends in the block"
    return CaptureReason.BAD_BLOCK, "No block can be read"


# --- pcap: records follow one another with nothing to mark where one begins -------------------------------------------


def _captured(data: bytes, at: int, cursor: Cursor) -> int:
    """The length that the record header (or, 12 less, the block header) at `at` announces."""
    length: int = struct.unpack_from(cursor.byte_order + "I", data, at + 8)[0]
    return length


def _pcap_chain(data: bytes, cursor: Cursor, ended: bool) -> _Chain:
    """Follow the announced lengths, as far as each record is vouched for by its own header or its successor's.

    A header vouches for itself when its lengths and its fraction of a second make sense (`_sensible`). A record whose
    successor cannot be one is believed only if no record is found inside it. So a decision about a record needs the
    next two; the last two wait, and what is decided does not depend on where a buffer ends.
    """
    size, header = len(data), cursor.header_size
    length_at = struct.Struct(cursor.byte_order + "I").unpack_from
    heads: list[int] = []
    at = 0
    while at + header <= size:
        captured = length_at(data, at + 8)[0]
        end = at + header + captured
        if captured > _RECORD_LIMIT or end > size:
            break
        heads.append(at)
        at = end
    joined = next((i for i, head in enumerate(heads) if data[head : head + 4] in _FILE_MAGICS), None)
    if joined is not None:
        return _Chain(
            _pcap_rows(data, heads[:joined], cursor), heads[joined], True, cursor.byte_order, cursor.interfaces, []
        )
    visible = at + header <= size
    lost = visible and _captured(data, at, cursor) > _RECORD_LIMIT
    known = np.array([*heads, at] if visible else heads, np.int64)
    firm = _sensible(data, known, cursor)
    if ended and at == size and len(firm):
        firm[-1] = True  # the end of the file vouches for the record before it
    doubtful = np.flatnonzero(~(firm[:-1] | firm[1:])) if len(firm) > 1 else known[:0]
    if len(doubtful):
        lost = True
        at = heads[doubtful[0]]
        del heads[doubtful[0] :]
    if not lost and not ended:
        at = heads[-2] if len(heads) > 1 else 0
        del heads[-2:]
    elif lost and heads:
        before = heads[-1]
        inside, reached = _find_pcap(
            data[: at + _LOOKAHEAD], before + header, cursor, ended or len(data) > at + _LOOKAHEAD
        )
        if inside is None and reached < at:  # the search needs more bytes to decide
            at = before
            lost = False
            heads.pop()
        elif inside is not None and inside < at:
            at = before
            heads.pop()
    lost = lost or (ended and at < size)
    return _Chain(_pcap_rows(data, heads, cursor), at, lost, cursor.byte_order, cursor.interfaces, [])


def _fields(data: bytes, heads: NDArray[np.int64], cursor: Cursor) -> NDArray[np.int64]:
    """Seconds, fraction, captured and original length of the record headers: one row for each of the four."""
    words = np.frombuffer(data, np.uint8)[heads[:, None] + np.arange(16)].view(cursor.byte_order + "u4")
    fields: NDArray[np.int64] = words.astype(np.int64).T
    return fields


def _sensible(data: bytes, heads: NDArray[np.int64], cursor: Cursor) -> NDArray[np.bool_]:
    seconds, fraction, captured, original = _fields(data, heads, cursor)
    sensible: NDArray[np.bool_] = (
        (captured <= original)
        & (original <= _RECORD_LIMIT)  # four bytes further on, captured and original length stand for one another
        & (fraction < cursor.interfaces[0].units_per_second)
        & ((seconds | captured) != 0)
    )
    return sensible


def _pcap_rows(data: bytes, heads: list[int], cursor: Cursor) -> list[tuple[int, int, int, int, int, int]]:
    at = np.array(heads, np.int64)
    seconds, fraction, captured, original = _fields(data, at, cursor)
    interface = cursor.interfaces[0]
    time_ns = seconds * _BILLION + fraction * (_BILLION // interface.units_per_second)
    columns = (
        at,
        at + cursor.header_size,
        captured,
        original,
        time_ns,
        np.full(len(at), interface.link_type),
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _find_pcap(data: bytes, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
    """Where, from `begin` on, sensible headers follow one another `_CHAIN` times or to the end of the file.

    Returns that place twice, or None and the place before which there is none.
    """
    header, size = cursor.header_size, len(data)
    for window in range(begin, max(size - header + 1, begin), _WINDOW):
        heads = np.arange(window, min(window + _WINDOW, size - header + 1))
        # Zeros and small numbers look like empty records: what is searched for holds at least an Ethernet header.
        solid = _sensible(data, heads, cursor) & (_fields(data, heads, cursor)[2] >= _SMALLEST_FRAME)
        for at in heads[solid].tolist():
            link, seconds = at, list[int]()
            while len(seconds) < _CHAIN and link + header <= size:
                if not _sensible(data, np.array([link]), cursor)[0]:
                    break
                seconds.append(int(_fields(data, np.array([link]), cursor)[0, 0]))
                link += header + _captured(data, link, cursor)
            whole = len(seconds) == _CHAIN or (ended and link == size)
            if whole and max(seconds) - min(seconds) <= _DAY_S:
                return at, at
            if not ended and link + header > size and len(seconds) < _CHAIN:
                return None, at
    return None, size if ended else max(begin, size - header + 1)


# --- pcapng: blocks that carry their length at both ends --------------------------------------------------------------


def _section_order(data: bytes, at: int) -> str | None:
    magic = data[at + 8 : at + 12]
    return {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(magic)


def _block_length(data: bytes, at: int, order: str) -> int | None:
    """Length of the block at `at` when both ends of it agree; 0 when it goes on past the buffer; None when broken."""
    if at + _MIN_BLOCK > len(data):
        return 0
    kind, length = struct.unpack_from(order + "II", data, at)
    if kind == _SHB:
        section = _section_order(data, at)
        if section is None:
            return None
        order = section
        length = struct.unpack_from(order + "I", data, at + 4)[0]
    if length < _MIN_BLOCK or length % 4 or length > _BLOCK_LIMIT:
        return None
    if at + length > len(data):
        return 0
    trailer: int = struct.unpack_from(order + "I", data, at + length - 4)[0]
    return length if trailer == length else None


def _pcapng_chain(data: bytes, cursor: Cursor, ended: bool) -> _Chain:
    """Follow the blocks; a block that is no record changes the state or is passed over."""
    order, interfaces = cursor.byte_order, cursor.interfaces
    rows: list[tuple[int, int, int, int, int, int]] = []
    unknown: list[Fault] = []
    at = 0
    while length := _block_length(data, at, order):
        (kind,) = struct.unpack_from(order + "I", data, at)
        if kind == _SHB:
            order = _section_order(data, at) or order
            interfaces = ()
        elif kind == _IDB:
            interfaces = (*interfaces, _interface(data, at, length, order))
        elif kind in (_EPB, _OPB, _SPB):
            row = _packet_block(data, at, length, order, kind, interfaces)
            if row is not None:
                rows.append(row)
            else:
                detail = (
                    f"The packet block at byte {cursor.offset + at} names no interface of its section, or is too long."
                )
                raw = data[at : at + min(length, _RAW_KEPT)]
                unknown.append(Fault(CaptureReason.UNKNOWN_INTERFACE, detail, cursor.offset + at, length, raw))
        at += length
    lost = length is None or (ended and at < len(data))
    return _Chain(rows, at, lost, order, interfaces, unknown)


def _interface(data: bytes, at: int, length: int, order: str) -> Interface:
    """The Interface Description Block at `at`: link type, snap length, if_tsresol (9) and if_tsoffset (14)."""
    link_type, snap_length = struct.unpack_from(order + "HxxI", data, at + 8) if length >= 20 else (-1, 0)  # noqa: PLR2004
    units, offset_s = 1_000_000, 0
    option, end = at + 16, at + length - 4
    while option + 4 <= end:
        code, size = struct.unpack_from(order + "HH", data, option)
        value = data[option + 4 : min(option + 4 + size, end)]
        if code == 0:
            break
        if code == 9 and value:  # noqa: PLR2004 - if_tsresol: a power of 10, or of 2 when the high bit is set
            units = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == 14 and len(value) == 8:  # noqa: PLR2004 - if_tsoffset: seconds, signed
            (offset_s,) = struct.unpack(order + "q", value)
        option += 4 + (size + 3 & ~3)
    return Interface(link_type, snap_length, units, offset_s)


def _packet_block(
    data: bytes, at: int, length: int, order: str, kind: int, interfaces: tuple[Interface, ...]
) -> tuple[int, int, int, int, int, int] | None:
    """The record in an Enhanced, Simple or obsolete Packet Block; None when its interface or length is not known."""
    room = length - (16 if kind == _SPB else 32)
    number = 0
    if kind == _EPB and room >= 0:
        (number,) = struct.unpack_from(order + "I", data, at + 8)
    elif kind == _OPB and room >= 0:
        (number,) = struct.unpack_from(order + "H", data, at + 8)
    if room < 0 or number >= len(interfaces):
        return None
    interface = interfaces[number]
    if kind == _SPB:
        (original,) = struct.unpack_from(order + "I", data, at + 8)
        captured = min(original, interface.snap_length or original, room)
        return at, at + 12, captured, original, NO_TIME, interface.link_type
    high, low, captured, original = struct.unpack_from(order + "IIII", data, at + 12)
    if captured > room:
        return None
    time_ns = interface.offset_s * _BILLION + (high << 32 | low) * _BILLION // interface.units_per_second
    if not abs(time_ns) < -NO_TIME:
        time_ns = NO_TIME
    return at, at + 28, captured, original, time_ns, interface.link_type


def _find_pcapng(data: bytes, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
    """Where, from `begin` on, a block of a known type has the same length at both ends; as `_find_pcap` returns it."""
    begin += -(cursor.offset + begin) % 4
    size = len(data)
    words = np.frombuffer(data, cursor.byte_order + "u4", max(size - begin, 0) // 4, min(begin, size))
    for index in np.flatnonzero(np.isin(words, list(_KNOWN_BLOCKS))).tolist():
        at = begin + 4 * index
        length = _block_length(data, at, cursor.byte_order)
        if length:
            return at, at
        if length == 0 and not ended:
            return None, at
    return None, size if ended else min(size, max(begin, begin + 4 * len(words)))
