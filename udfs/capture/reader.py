"""Captured records out of pcap and pcapng files, whatever state the files are in.

A broken record does not stop the reader: it searches for the next header it can trust, reports the bytes between as a
`Fault`, and goes on. What is found depends on the bytes alone, never on how a file was cut into blocks or splits,
so a `Cursor` taken between two blocks is an exact place to start another task from.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

import json
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture.files import Fault, Source

NO_TIME = np.iinfo(np.int64).min
"""Stands for the time of a record that has none (Simple Packet Block) or none that 64-bit ns can hold."""
BLOCK_BYTES = 8 << 20
_RECORD_LIMIT = 1 << 20  # libpcap stops at 262,144; offloaded super-segments are seen up to 512 KiB
_BLOCK_LIMIT = 16 << 20
_MIN_BLOCK = 12
_AFTER_LOSS = 8  # records to go on with after a fault: the way to the next is not walked in vain
_CHAIN = 3  # headers that must follow one another before a searched-for record is believed
_SMALLEST_FRAME = 14
_DAY_S = 86_400
_FIRST_WINDOW, _LAST_WINDOW = 1 << 7, 1 << 16
_BILLION = 1_000_000_000
_RAW_KEPT = 4096
_FAR = 1 << 62
_NO_ROWS = np.empty((6, 0), np.int64)
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
_PCAP_HEADER, _SECTION_HEADER = 24, 28
_SHB, _IDB, _OPB, _SPB, _EPB = 0x0A0D0D0A, 1, 2, 3, 6
_KNOWN_BLOCKS = (_IDB, _OPB, _SPB, 4, 5, _EPB, 9, 10, 0xBAD, 0x40000BAD)
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

    `lost` says that no record can be believed at `end`; else the chain goes on there, or in bytes not read yet.
    """

    rows: NDArray[np.int64]  # one row each for header's index, start, captured, original, time_ns and link_type
    end: int
    lost: bool
    byte_order: str
    interfaces: tuple[Interface, ...]
    unknown: list[Fault]


def open_capture(source: Source) -> Cursor | Fault:
    """The cursor before the first record, or why this is no capture that can be read."""
    head = source.read(_SECTION_HEADER)
    if not head:
        return Fault(CaptureReason.EMPTY_FILE, "The file holds no bytes.", 0, 0)
    if head[:4] in _PCAP_MAGICS:
        if len(head) < _PCAP_HEADER:
            detail = f"The file ends after {len(head)} of the 24 bytes of a pcap file header."
            return Fault(CaptureReason.TRUNCATED_FILE_HEADER, detail, 0, len(head), head)
        pcap_order, unit_ns, header_size = _PCAP_MAGICS[head[:4]]
        snap_length, network = struct.unpack_from(pcap_order + "II", head, 16)
        # Above the low 16 bits lie the length of a frame check sequence and reserved bits.
        interface = Interface(network & 0xFFFF, snap_length, _BILLION // unit_ns, 0)
        return Cursor(CaptureFormat.PCAP, _PCAP_HEADER, 0, pcap_order, header_size, (interface,))
    if head[:4] == _PCAPNG_MAGIC:
        order = _section_order(head, 0)
        if order is None or len(head) < _SECTION_HEADER:
            detail = "The file ends in, or does not continue, a pcapng Section Header Block."
            reason = CaptureReason.TRUNCATED_FILE_HEADER if len(head) < _SECTION_HEADER else CaptureReason.BAD_MAGIC
            return Fault(reason, detail, 0, len(head), head)
        return Cursor(CaptureFormat.PCAPNG, 0, 0, order, 0, ())
    if any(magic.startswith(head) for magic in _FILE_MAGICS):
        return Fault(CaptureReason.TRUNCATED_FILE_HEADER, "The file ends in its magic number.", 0, len(head), head)
    detail = f"The file begins with {head[:4].hex(' ')}, which is no pcap or pcapng magic number."
    return Fault(CaptureReason.BAD_MAGIC, detail, 0, len(head), head)


def read_blocks(
    source: Source, cursor: Cursor, stop: int | None = None, block_bytes: int = BLOCK_BYTES, step: int | None = None
) -> Iterator[Block]:
    """Records whose headers begin at `cursor.offset` or later and before `stop`, and the faults between them.

    `source` stands at `cursor.offset`. The first place at or behind `stop`, and each multiple of `step`, where the
    reader stands (at a record, a block, or what can be read as neither) is the `after` of a block.
    Memory: a few times `block_bytes`, and of a record's length.
    """
    window = _Window(source, block_bytes)
    most = _FAR
    while stop is None or cursor.offset < stop:
        limit = _limit(cursor.offset, stop, step)
        if cursor.format is CaptureFormat.PCAP:
            chain = _pcap_chain(window.data, cursor, window.ended, most, limit)
        else:
            chain = _pcapng_chain(window.data, cursor, window.ended, limit)
        if not chain.end and not chain.lost:
            if window.ended:
                break
            window.extend()
            continue
        for fault in chain.unknown:
            yield Block(_records(window.data, _NO_ROWS, cursor.frame), fault, cursor)
        after = replace(
            cursor,
            offset=cursor.offset + chain.end,
            frame=cursor.frame + chain.rows.shape[1],
            byte_order=chain.byte_order,
            interfaces=chain.interfaces,
        )
        if chain.end:
            yield Block(_records(window.data[: chain.end], chain.rows, cursor.frame), None, after)
        window.drop(chain.end)
        cursor = after
        most = _AFTER_LOSS if chain.lost else 2 * most
        if chain.lost and (stop is None or cursor.offset < stop):
            fault = _search(window, cursor)
            cursor = replace(
                cursor,
                offset=cursor.offset + fault.length,
                interfaces=cursor.interfaces + _lost_interface(fault, cursor),
            )
            yield Block(_records(window.data[:0], _NO_ROWS, cursor.frame), fault, cursor)
    if window.ended and window.fault is not None:
        detail = f"The compressed file breaks off ({window.fault}); {cursor.offset} bytes could be expanded."
        yield Block(
            _records(window.data[:0], _NO_ROWS, cursor.frame), Fault(window.fault, detail, cursor.offset, 0), cursor
        )


def _limit(at: int, stop: int | None, step: int | None) -> int:
    """How far from `at` a chain goes at most: the next of `stop` and the multiples of `step`."""
    ends = [_FAR]
    if stop is not None:
        ends.append(stop)
    if step is not None:
        ends.append(at - at % step + step)
    return min(ends) - at


class _Window:
    """The part of a file that is in memory. Each byte is copied a bounded number of times, whatever is dropped."""

    def __init__(self, source: Source, block_bytes: int) -> None:
        self.data = memoryview(b"")
        self.ended = False
        self._source = source
        self._block_bytes = block_bytes

    @property
    def fault(self) -> CaptureReason | None:
        """Why the source has ended, when that is not its plain end."""
        return self._source.fault

    def extend(self) -> None:
        """Take in at least as much again as there is."""
        chunk = self._source.read(max(self._block_bytes, len(self.data)))
        self.ended = not chunk
        self.data = memoryview(b"".join((self.data, chunk)) if len(self.data) else chunk)

    def drop(self, size: int) -> None:
        """Let go of the first bytes."""
        self.data = self.data[size:]


def _records(data: memoryview, rows: NDArray[np.int64], frame: int) -> Records:
    _, start, captured, original, time_ns, link_type = rows
    return Records(np.frombuffer(data, np.uint8), start, captured, original, time_ns, link_type, frame + 1)


def _search(window: _Window, cursor: Cursor) -> Fault:
    """Look past what is no record, and let it go.

    A second file behind the first (both joined by `cat`) may have another byte order and link type: it is not read.
    """
    while len(window.data) < _RAW_KEPT and not window.ended:
        window.extend()
    head = bytes(window.data[:_RAW_KEPT])
    joined = head[:4] in _FILE_MAGICS and cursor.format is CaptureFormat.PCAP
    length, begin = 0, 1
    while True:
        reached, found = _skip(window, len(window.data) if joined else begin, cursor)
        length += reached
        if found or window.ended:
            break
        window.extend()
        begin = 0
    reason, sentence = _why_lost(head, length, cursor, found=found)
    detail = f"{sentence} at byte {cursor.offset}; {length} bytes are in no record."
    return Fault(reason, detail, cursor.offset, length, head[:length])


def _skip(window: _Window, begin: int, cursor: Cursor) -> tuple[int, bool]:
    """Let go of what is no record from `begin` on; returns how many bytes, and whether a record was found there."""
    find = _find_pcap if cursor.format is CaptureFormat.PCAP else _find_pcapng
    found, reached = find(window.data, begin, cursor, window.ended)
    window.drop(reached)
    return reached, found is not None


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


def _captured(data: bytes | memoryview, at: int, cursor: Cursor) -> int:
    """The length that the record header (or, 12 less, the block header) at `at` announces."""
    length: int = struct.unpack_from(cursor.byte_order + "I", data, at + 8)[0]
    return length


def _pcap_chain(data: memoryview, cursor: Cursor, ended: bool, most: int, limit: int) -> _Chain:
    """Follow the announced lengths, as far as each record is vouched for; at most `most` records, up to `limit`.

    A header vouches for itself when its lengths and its fraction of a second make sense (`_sensible`), and for the one
    before it; two that do not may vouch for each other (`_akin`). A record whose successor is not believed is believed
    only if no record is found inside it. So a decision about a record looks at the next two, and the last two wait:
    it does not depend on where a buffer ends or a task began.
    """
    size, header = len(data), cursor.header_size
    captured_at = struct.Struct(cursor.byte_order + "8xI").unpack_from
    heads: list[int] = []
    at, last = 0, size - header
    while at <= last and len(heads) < most:
        length = header + captured_at(data, at)[0]
        if at + length > size or length > header + _RECORD_LIMIT:
            break
        heads.append(at)
        at += length
    full, visible = len(heads) == most, at <= last
    known = np.array([*heads, at] if visible else heads, np.int64)
    fields = _fields(data, known, cursor)
    lost = visible and not full and int(fields[2, -1]) > _RECORD_LIMIT
    other_files = np.flatnonzero(np.isin(fields[0, : len(heads) + (visible and not full)], _magic_numbers(cursor)))
    joined = len(other_files) > 0  # another capture file begins here
    if joined:
        lost, full, visible = True, False, False
        known, fields = known[: other_files[0]], fields[:, : other_files[0]]
        at = [*heads, at][other_files[0]]
        del heads[other_files[0] :]
    whole = ended and at == size  # the end of the file vouches for the record before it, and so does another's magic
    firm = _sensible(fields, cursor)
    vouched = np.append(firm[:-1] | firm[1:] | _akin(fields, cursor), firm[-1:] | whole | joined)[: len(heads)]
    if not visible and not whole and not joined and not ended:
        vouched[-1:] = True  # its successor is not known yet
    doubtful = np.flatnonzero(~vouched)
    if len(doubtful):
        lost = look_inside = True
        at = heads[doubtful[0]]
        del heads[doubtful[0] :]
    elif not lost and (full or not ended):
        look_inside = False
        at = heads[-2] if len(heads) > 1 else 0
        del heads[-2:]
    else:
        lost = not whole
        look_inside = visible and not firm[-1]
    if look_inside and heads:
        inside, decided = _find_pcap(data, heads[-1] + 1, cursor, ended, at)
        if inside is not None or decided < at:
            at = heads.pop()
            lost = inside is not None  # else the search needs to see more
    within = bisect_left(heads, limit)
    if within < len(heads):
        at, lost = heads[within], False
        del heads[within:]
    rows = _pcap_rows(known[: len(heads)], fields[:, : len(heads)], cursor)
    return _Chain(rows, at, lost, cursor.byte_order, cursor.interfaces, [])


def _magic_numbers(cursor: Cursor) -> NDArray[np.uint32]:
    """What the first four bytes of a capture file are as seconds."""
    return np.frombuffer(b"".join(_FILE_MAGICS), cursor.byte_order + "u4")


def _fields(data: memoryview, heads: NDArray[np.int64], cursor: Cursor) -> NDArray[np.int64]:
    """Seconds, fraction, captured and original length of the record headers: one row for each of the four."""
    layout = np.dtype(cursor.byte_order + "u4")
    everywhere = np.ndarray((max(len(data) - 15, 0), 4), layout, data, strides=(1, 4))  # overlapping
    fields: NDArray[np.int64] = everywhere[heads].astype(np.int64).T
    return fields


def _sensible(fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.bool_]:
    """Whether the headers with these fields make sense, each by itself."""
    seconds, fraction, captured, original = fields
    sensible: NDArray[np.bool_] = (
        (captured <= original)
        & (original <= _RECORD_LIMIT)  # four bytes further on, captured and original length stand for one another
        & (fraction < cursor.interfaces[0].units_per_second)
        & ((seconds | captured) != 0)
    )
    return sensible


def _akin(fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.bool_]:
    """Whether each header and the next make sense together, though their original lengths do not.

    Some writers leave the original length out. Four bytes further on, seconds are fractions, and so too few.
    """
    seconds, fraction, captured, _ = fields
    units = cursor.interfaces[0].units_per_second
    fit = (fraction < units) & (seconds >= units) & (captured > 0) & (captured <= _RECORD_LIMIT)
    akin: NDArray[np.bool_] = fit[:-1] & fit[1:] & (np.abs(np.diff(seconds)) <= _DAY_S)
    return akin


def _pcap_rows(at: NDArray[np.int64], fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.int64]:
    seconds, fraction, captured, original = fields
    interface = cursor.interfaces[0]
    time_ns = seconds * _BILLION + fraction * (_BILLION // interface.units_per_second)
    link_type = np.full(len(at), interface.link_type)
    return np.stack([at, at + cursor.header_size, captured, original, time_ns, link_type])


def _find_pcap(
    data: memoryview, begin: int, cursor: Cursor, ended: bool, until: int | None = None
) -> tuple[int | None, int]:
    """Where, from `begin` on and before `until`, headers follow one another `_CHAIN` times or to the end of the file.

    Returns that place twice, or None and the place before which there is none.
    """
    header, size = cursor.header_size, len(data)
    end = size if until is None else until
    last = min(end, size - header + 1)
    width = _FIRST_WINDOW
    while begin < last:
        starts = np.arange(begin, min(begin + width, last))
        begin, width = int(starts[-1]) + 1, min(2 * width, _LAST_WINDOW)
        fields = _fields(data, starts, cursor)
        # Zeros and small numbers look like empty records: what is searched for holds at least an Ethernet header.
        good = _sensible(fields, cursor) & (fields[2] >= _SMALLEST_FRAME)
        # Four bytes further on, seconds are fractions, and so too few: a clock near 1970 is given up for that.
        good &= fields[0] >= cursor.interfaces[0].units_per_second
        starts, fields = starts[good], fields[:, good]
        links, earliest, latest = starts, fields[0], fields[0]
        unseen = believed = starts[:0]
        for _ in range(_CHAIN - 1):
            links = links + header + fields[2]
            beyond = links + header > size
            if ended:
                believed = np.append(believed, starts[links == size])
            else:
                unseen = np.append(unseen, starts[beyond])
            starts, links, earliest, latest = (x[~beyond] for x in (starts, links, earliest, latest))
            fields = _fields(data, links, cursor)
            earliest, latest = np.minimum(earliest, fields[0]), np.maximum(latest, fields[0])
            good = _sensible(fields, cursor) & (latest - earliest <= _DAY_S)
            starts, links, earliest, latest = (x[good] for x in (starts, links, earliest, latest))
            fields = fields[:, good]
        found = min([*believed.tolist(), *starts[:1].tolist()], default=end)
        unsure = min(unseen.tolist(), default=end)
        if unsure < found:
            return None, unsure
        if found < end:
            return found, found
    return None, end if ended else min(end, max(begin, last))


# --- pcapng: blocks that carry their length at both ends --------------------------------------------------------------


def _section_order(data: bytes | memoryview, at: int) -> str | None:
    magic = bytes(data[at + 8 : at + 12])
    return {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(magic)


def _block_length(data: memoryview, at: int, order: str) -> int | None:
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


def _pcapng_chain(data: memoryview, cursor: Cursor, ended: bool, limit: int) -> _Chain:
    """Follow the blocks up to `limit`; a block that is no record changes the state or is passed over."""
    order, found = cursor.byte_order, list(cursor.interfaces)
    rows: list[tuple[int, int, int, int, int, int]] = []
    unknown: list[Fault] = []
    at = 0
    length: int | None = 0
    while at < limit and (length := _block_length(data, at, order)):
        (kind,) = struct.unpack_from(order + "I", data, at)
        if kind == _SHB:
            order = _section_order(data, at) or order
            found = []
        elif kind == _IDB:
            found.append(_interface(data, at, length, order))
        elif kind in (_EPB, _OPB, _SPB):
            row = _packet_block(data, at, length, order, kind, found)
            if row is not None:
                rows.append(row)
            else:
                detail = (
                    f"The packet block at byte {cursor.offset + at} names no interface of its section, or is too long."
                )
                raw = bytes(data[at : at + min(length, _RAW_KEPT)])
                unknown.append(Fault(CaptureReason.UNKNOWN_INTERFACE, detail, cursor.offset + at, length, raw))
        at += length
    lost = at < limit and (length is None or (ended and at < len(data)))
    return _Chain(np.array(rows, np.int64).reshape(-1, 6).T, at, lost, order, tuple(found), unknown)


def _interface(data: memoryview, at: int, length: int, order: str) -> Interface:
    """The Interface Description Block at `at`: link type, snap length, if_tsresol (9) and if_tsoffset (14)."""
    link_type, snap_length = struct.unpack_from(order + "HxxI", data, at + 8) if length >= 20 else (-1, 0)  # noqa: PLR2004
    units, offset_s = 1_000_000, 0
    option, end = at + 16, at + length - 4
    while option + 4 <= end:
        code, size = struct.unpack_from(order + "HH", data, option)
        value = bytes(data[option + 4 : min(option + 4 + size, end)])
        if code == 0:
            break
        if code == 9 and value:  # noqa: PLR2004 - if_tsresol: a power of 10, or of 2 when the high bit is set
            units = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == 14 and len(value) == 8:  # noqa: PLR2004 - if_tsoffset: seconds, signed
            (offset_s,) = struct.unpack(order + "q", value)
        option += 4 + (size + 3 & ~3)
    return Interface(link_type, snap_length, units, offset_s)


def _lost_interface(fault: Fault, cursor: Cursor) -> tuple[Interface, ...]:
    """A place for the interface whose description is damaged: those behind it keep their numbers."""
    lost = cursor.format is CaptureFormat.PCAPNG and fault.raw[:4] == struct.pack(cursor.byte_order + "I", _IDB)
    return (Interface(-1, 0, _BILLION, 0),) * lost


def _packet_block(
    data: memoryview, at: int, length: int, order: str, kind: int, interfaces: Sequence[Interface]
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


def _find_pcapng(data: memoryview, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
    """Where, from `begin` on, a block of a known type has the same length at both ends; as `_find_pcap` returns it.

    At any byte, for what was inserted or lost need not be a multiple of four. A block that ends where no other begins,
    nor the file ends, gives way to one inside it that does: numbers in a payload may look like the ends of a block.
    """
    size = len(data)
    last = size - _MIN_BLOCK + 1
    width = _FIRST_WINDOW
    alone, alone_end = size, size  # the first block that nothing follows
    while begin < min(last, alone_end):
        starts = np.arange(begin, min(begin + width, last))
        begin, width = int(starts[-1]) + 1, min(2 * width, _LAST_WINDOW)
        words = np.ndarray((last, 2), cursor.byte_order + "u4", data, strides=(1, 4))[starts]
        possible = (words[:, 1] >= _MIN_BLOCK) & (words[:, 1] <= _BLOCK_LIMIT) & (words[:, 1] % 4 == 0)
        possible = (words[:, 0] == _SHB) | (possible & np.isin(words[:, 0], _KNOWN_BLOCKS))
        for at in starts[possible].tolist():
            if at >= alone_end:
                break
            length = _block_length(data, at, cursor.byte_order)
            order = _section_order(data, at) or cursor.byte_order
            follows = _block_length(data, at + length, order) if length else length
            if follows == 0 and not ended:
                return None, min(at, alone)
            if length and (follows or at + length == size):
                return at, at
            if length and alone == size:
                alone, alone_end = at, at + length
    if alone < size and (ended or begin >= alone_end):
        return alone, alone
    return None, size if ended else min(size, alone, max(begin, last))
