"""Reads the blocks of pcapng files (draft-ietf-opsawg-pcapng), which carry their length at both ends."""

import struct
from dataclasses import replace

import numpy as np

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.arrow.buffers import read_at
from udfs.capture.files import Fault
from udfs.capture.records import (
    BILLION,
    EARLIEST_NS,
    FAULTS_AT_ONCE,
    LATEST_NS,
    NO_TIME,
    RAW_KEPT,
    Chain,
    Cursor,
    Interface,
    search_windows,
)

_BLOCK_LIMIT = 16 << 20
_MIN_BLOCK = 12
_SHB, _IDB, _OPB, _SPB, _EPB = 0x0A0D0D0A, 1, 2, 3, 6
_KNOWN_BLOCKS = (_IDB, _OPB, _SPB, 4, 5, _EPB, 9, 10, 0xBAD, 0x40000BAD)
_SECTION_HEADER = 28
_IDB_BYTES = 20
_FINEST_UNITS = 10**29
"""Units of a second that are small enough: 2^64 of them, the most a block can count, are less than a nanosecond."""
_MOST_INTERFACES = 1 << 14
"""Interfaces of a section, at most: each cursor holds them all, and one more copies them."""
_END_OF_OPTIONS, _IF_TSRESOL, _IF_TSOFFSET = 0, 9, 14
_Row = tuple[int, int, int, int, int]
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}


def open_file(head: bytes) -> Cursor | Fault:
    """Returns the cursor at the first block; `head` are the first bytes of a file with the pcapng magic number."""
    order = _section_order(head, 0)
    if order is None or len(head) < _SECTION_HEADER:
        detail = "The file ends in, or does not continue, a pcapng Section Header Block."
        reason = CaptureReason.TRUNCATED_FILE_HEADER if len(head) < _SECTION_HEADER else CaptureReason.BAD_MAGIC
        return Fault(reason, detail, 0, len(head), head)
    return Cursor(CaptureFormat.PCAPNG, 0, 0, order, 0, ())


def follow_chain(data: memoryview, cursor: Cursor, ended: bool, most: int, limit: int) -> Chain:  # noqa: ARG001 - of a Format
    """Follows the blocks up to `limit`. Section and interface blocks change the state, unknown ones are passed over."""
    order, interfaces, section = cursor.byte_order, cursor.interfaces, cursor.section
    rows: list[_Row] = []
    unknown: list[Fault] = []
    at = 0
    length: int | None = 0
    while at < limit and len(unknown) < FAULTS_AT_ONCE and (length := _block_length(data, at, order)):
        (kind,) = struct.unpack_from(order + "I", data, at)
        if kind == _SHB:
            order = _section_order(data, at) or order
            interfaces, section = (), section + 1
        elif kind == _IDB:
            interfaces = _with_interface(interfaces, _interface(data, at, length, order))
        elif kind in (_EPB, _OPB, _SPB):
            row = _packet_row(data, at, length, order, kind, interfaces, section)
            if row is not None:
                rows.append(row)
            else:
                offset = cursor.offset + at
                detail = f"The packet block at byte {offset} names no interface of its section, or is too long."
                raw = bytes(data[at : at + min(length, RAW_KEPT)])
                unknown.append(Fault(CaptureReason.UNKNOWN_INTERFACE, detail, offset, length, raw))
        at += length
    broken = at < limit and not length and (length is None or (ended and at < len(data)))
    frame = cursor.frame + len(rows)
    after = replace(cursor, offset=cursor.offset + at, frame=frame, byte_order=order)
    after = replace(after, interfaces=interfaces, section=section)
    return Chain(np.array(rows, np.int64).reshape(-1, 5).T, after, broken, unknown)


def find_record(data: memoryview, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
    """Searches for a block of a known type with the same length at both ends; see `Format`.

    At any byte: the bytes that were inserted or lost need not be a multiple of four. Numbers in a payload may look like
    the ends of a block. So a block that is followed neither by another nor by the end of the file is passed over when
    there is one inside it that is.
    """
    size = len(data)
    last = size - _MIN_BLOCK + 1
    alone, alone_end = size, size  # the first block that nothing follows
    searched = begin
    for places in search_windows(begin, last):
        if searched >= alone_end:
            break
        searched = int(places[-1]) + 1
        words = read_at(data, "V8", places).view(cursor.byte_order + "u4").reshape(-1, 2)
        possible = (words[:, 1] >= _MIN_BLOCK) & (words[:, 1] <= _BLOCK_LIMIT) & (words[:, 1] % 4 == 0)
        possible = (words[:, 0] == _SHB) | (possible & np.isin(words[:, 0], _KNOWN_BLOCKS))
        for at in places[possible].tolist():
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
    if alone < size and (ended or searched >= alone_end):
        return alone, alone
    return None, size if ended else min(size, alone, max(searched, last))


def explain_loss(head: bytes, length: int, cursor: Cursor, followed: bool) -> tuple[CaptureReason, str]:
    """Names the reason why bytes are in no block; see `Format`."""
    if not followed and (
        length < _MIN_BLOCK or length < struct.unpack_from(cursor.byte_order + "I", head, 4)[0] <= _BLOCK_LIMIT
    ):
        return CaptureReason.TRUNCATED_BLOCK, "The file ends in the block"
    return CaptureReason.BAD_BLOCK, "No block can be read"


def interfaces_behind(fault: Fault, cursor: Cursor) -> tuple[Interface, ...]:
    """Returns the interfaces behind a fault: a damaged description counts as one, so later ones keep their numbers."""
    damaged = fault.raw[:4] == struct.pack(cursor.byte_order + "I", _IDB)
    return _with_interface(cursor.interfaces, Interface(-1, 0, BILLION, 0)) if damaged else cursor.interfaces


def _with_interface(interfaces: tuple[Interface, ...], one: Interface) -> tuple[Interface, ...]:
    return (*interfaces, one) if len(interfaces) < _MOST_INTERFACES else interfaces


def _section_order(data: bytes | memoryview, at: int) -> str | None:
    return _BYTE_ORDERS.get(bytes(data[at + 8 : at + 12]))


def _block_length(data: memoryview, at: int, order: str) -> int | None:
    """Returns the length of the block at `at` when both ends agree on it.

    0: the block goes on behind the buffer; None: it is broken.
    """
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


def _interface(data: memoryview, at: int, length: int, order: str) -> Interface:
    """Reads the Interface Description Block at `at`."""
    link_type, snap_length = struct.unpack_from(order + "HxxI", data, at + 8) if length >= _IDB_BYTES else (-1, 0)
    units, offset_s = 1_000_000, 0
    option, end = at + 16, at + length - 4
    while option + 4 <= end:
        code, size = struct.unpack_from(order + "HH", data, option)
        value = bytes(data[option + 4 : min(option + 4 + size, end)])
        if code == _END_OF_OPTIONS:
            break
        if code == _IF_TSRESOL and value:  # a power of 10, or of 2 when the high bit is set
            units = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == _IF_TSOFFSET and len(value) == 8:  # noqa: PLR2004 - signed seconds
            (offset_s,) = struct.unpack(order + "q", value)
        option += 4 + (size + 3 & ~3)
    return Interface(link_type, snap_length, min(units, _FINEST_UNITS), offset_s)


def _packet_row(
    data: memoryview, at: int, length: int, order: str, kind: int, interfaces: tuple[Interface, ...], section: int
) -> _Row | None:
    """Reads an Enhanced, Simple or obsolete Packet Block; None when its interface or length is not known."""
    room = length - (16 if kind == _SPB else 32)
    number = 0
    if kind == _EPB and room >= 0:
        (number,) = struct.unpack_from(order + "I", data, at + 8)
    elif kind == _OPB and room >= 0:
        (number,) = struct.unpack_from(order + "H", data, at + 8)
    if room < 0 or number >= len(interfaces):
        return None
    interface, clock = interfaces[number], section * _MOST_INTERFACES + number
    if kind == _SPB:
        (original,) = struct.unpack_from(order + "I", data, at + 8)
        captured = min(original, interface.snap_length or original, room)
        return at + 12, captured, NO_TIME, interface.link_type, clock
    high, low, captured = struct.unpack_from(order + "III", data, at + 12)
    if captured > room:
        return None
    time_ns = interface.offset_s * BILLION + (high << 32 | low) * BILLION // interface.units_per_second
    if not (high or low) or not EARLIEST_NS < time_ns < LATEST_NS:
        time_ns = NO_TIME
    return at + 28, captured, time_ns, interface.link_type, clock
