"""Reads the records of pcap files (draft-ietf-opsawg-pcap), which follow one another with no mark where one begins."""

import struct
from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.arrow.buffers import read_at
from udfs.capture.files import Fault
from udfs.capture.records import BILLION, NO_TIME, PCAPNG_MAGIC, Chain, Cursor, Interface, search_windows

_MAGICS = {  # first four bytes: byte order, ns for one unit of the fraction, bytes of a record header
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
FILE_MAGICS = (*_MAGICS, PCAPNG_MAGIC)
_FILE_HEADER = 24
_RECORD_LIMIT = 1 << 20  # libpcap stops at 262,144; offloaded super-segments are seen up to 512 KiB
_CHAIN = 3  # headers that must follow one another before a searched-for record is trusted
_SMALLEST_FRAME = 14
_DAY_S = 86_400


def open_file(head: bytes) -> Cursor | Fault:
    """Returns the cursor before the first record; `head` are the first bytes of a file with a pcap magic number."""
    if len(head) < _FILE_HEADER:
        detail = f"The file ends after {len(head)} of the 24 bytes of a pcap file header."
        return Fault(CaptureReason.TRUNCATED_FILE_HEADER, detail, 0, len(head), head)
    order, unit_ns, header_size = _MAGICS[head[:4]]
    snap_length, network = struct.unpack_from(order + "II", head, 16)
    # Above the low 16 bits lie the length of a frame check sequence and reserved bits.
    interface = Interface(network & 0xFFFF, snap_length, BILLION // unit_ns, 0)
    return Cursor(CaptureFormat.PCAP, _FILE_HEADER, 0, order, header_size, (interface,))


def follow_chain(data: memoryview, cursor: Cursor, ended: bool, most: int, limit: int) -> Chain:
    """Follows the announced lengths for at most `most` records, up to `limit`, as long as each can be trusted.

    A record is trusted when its own header or the next one is plausible, or when the two agree with each other. When
    the next header is not plausible, the record is trusted only if no record is found inside it. So a decision looks at
    the next two records, and the last two of a buffer wait for more: the result depends neither on where the buffer
    ends nor on where a task began.
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
    fields = _header_fields(data, known, cursor)
    broken = visible and not full and int(fields[2, -1]) > _RECORD_LIMIT
    other_files = np.flatnonzero(np.isin(fields[0, : len(heads) + (visible and not full)], _magic_numbers(cursor)))
    joined = len(other_files) > 0  # another capture file begins here
    if joined:
        broken, full, visible = True, False, False
        known, fields = known[: other_files[0]], fields[:, : other_files[0]]
        at = [*heads, at][other_files[0]]
        del heads[other_files[0] :]
    whole = ended and at == size  # the end of the file confirms the record before it, and so does another file's magic
    plausible = _plausible(fields, cursor)
    confirmed = plausible[:-1] | plausible[1:] | _agreeing(fields, cursor)
    trusted = np.append(confirmed, plausible[-1:] | whole | joined)[: len(heads)]
    if not visible and not whole and not joined and not ended:
        trusted[-1:] = True  # the next header is not read yet
    doubtful = np.flatnonzero(~trusted)
    if len(doubtful):
        broken = look_inside = True
        at = heads[doubtful[0]]
        del heads[doubtful[0] :]
    elif not broken and (full or not ended):
        look_inside = False
        at = heads[-2] if len(heads) > 1 else 0
        del heads[-2:]
    else:
        broken = not whole
        look_inside = visible and not plausible[-1]
    if look_inside and heads:
        inside, decided = _find(data, heads[-1] + 1, cursor, ended, at)
        if inside is not None or decided < at:
            at = heads.pop()
            broken = inside is not None  # otherwise the search needs more bytes
    within = bisect_left(heads, limit)
    if within < len(heads):
        at, broken = heads[within], False
        del heads[within:]
    rows = _rows(known[: len(heads)], fields[:, : len(heads)], cursor)
    return Chain(rows, replace(cursor, offset=cursor.offset + at, frame=cursor.frame + len(heads)), broken)


def find_record(data: memoryview, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
    """Searches for headers that follow one another `_CHAIN` times or up to the end of the file; see `Format`."""
    return _find(data, begin, cursor, ended, len(data))


def explain_loss(head: bytes, length: int, cursor: Cursor, followed: bool) -> tuple[CaptureReason, str]:
    """Names the reason why bytes are in no record; see `Format`."""
    if head[:4] in FILE_MAGICS:
        return CaptureReason.CONCATENATED_FILE, "Another capture file begins"
    if followed:
        return CaptureReason.BAD_RECORD_HEADER, "No record can be read"
    if length < cursor.header_size:
        return CaptureReason.TRUNCATED_RECORD_HEADER, "The file ends in the header of the record"
    (captured,) = struct.unpack_from(cursor.byte_order + "I", head, 8)
    if captured <= _RECORD_LIMIT and cursor.header_size + captured > length:
        return CaptureReason.TRUNCATED_RECORD_BODY, "The file ends in the body of the record"
    return CaptureReason.BAD_RECORD_HEADER, "No record can be read, to the end of the file,"


def _magic_numbers(cursor: Cursor) -> NDArray[np.uint32]:
    """Returns what the first four bytes of a capture file are when they are read as seconds."""
    return np.frombuffer(b"".join(FILE_MAGICS), cursor.byte_order + "u4")


def _header_fields(data: memoryview, heads: NDArray[np.int64], cursor: Cursor) -> NDArray[np.int64]:
    """Returns one row each for seconds, fraction, captured and original length of the record headers at `heads`."""
    words = read_at(data, "V16", heads).view(cursor.byte_order + "u4").reshape(-1, 4)
    fields: NDArray[np.int64] = words.astype(np.int64).T
    return fields


def _plausible(fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.bool_]:
    """Returns whether each header makes sense by itself."""
    seconds, fraction, captured, original = fields
    plausible: NDArray[np.bool_] = (
        (captured <= original)
        & (original <= _RECORD_LIMIT)  # when read four bytes too early, the captured length stands here
        & (fraction < cursor.interfaces[0].units_per_second)
        & ((seconds | captured) != 0)
    )
    return plausible


def _agreeing(fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.bool_]:
    """Returns whether each header and the next make sense together, without their original lengths.

    Some writers leave the original length out. Read four bytes too late, the seconds would be fractions, and too small.
    """
    seconds, fraction, captured, _ = fields
    units = cursor.interfaces[0].units_per_second
    fit = (fraction < units) & (seconds >= units) & (captured > 0) & (captured <= _RECORD_LIMIT)
    agreeing: NDArray[np.bool_] = fit[:-1] & fit[1:] & (np.abs(np.diff(seconds)) <= _DAY_S)
    return agreeing


def _rows(heads: NDArray[np.int64], fields: NDArray[np.int64], cursor: Cursor) -> NDArray[np.int64]:
    seconds, fraction, captured, _ = fields
    interface = cursor.interfaces[0]
    time_ns = seconds * BILLION + fraction * (BILLION // interface.units_per_second)
    time_ns[time_ns == 0] = NO_TIME  # as text2pcap and others write it that know none
    link_type = np.full(len(heads), interface.link_type)
    return np.stack([heads + cursor.header_size, captured, time_ns, link_type, np.zeros_like(heads)])


def _find(data: memoryview, begin: int, cursor: Cursor, ended: bool, end: int) -> tuple[int | None, int]:
    """Searches from `begin` on and before `end`; returns as `find_record`."""
    header, size = cursor.header_size, len(data)
    last = min(end, size - header + 1)
    for places in search_windows(begin, last):
        starts, fields = places, _header_fields(data, places, cursor)
        # Zeros and small numbers look like empty records: a searched-for record holds at least an Ethernet header.
        good = _plausible(fields, cursor) & (fields[2] >= _SMALLEST_FRAME)
        # Read four bytes too late, the seconds would be fractions, and too small: this gives up clocks near 1970.
        good &= fields[0] >= cursor.interfaces[0].units_per_second
        starts, fields = starts[good], fields[:, good]
        links, earliest, latest = starts, fields[0], fields[0]
        unseen = trusted = starts[:0]
        for _ in range(_CHAIN - 1):
            links = links + header + fields[2]
            beyond = links + header > size
            if ended:
                trusted = np.append(trusted, starts[links == size])
            else:
                unseen = np.append(unseen, starts[beyond])
            starts, links, earliest, latest = (x[~beyond] for x in (starts, links, earliest, latest))
            fields = _header_fields(data, links, cursor)
            earliest, latest = np.minimum(earliest, fields[0]), np.maximum(latest, fields[0])
            good = _plausible(fields, cursor) & (latest - earliest <= _DAY_S)
            starts, links, earliest, latest = (x[good] for x in (starts, links, earliest, latest))
            fields = fields[:, good]
        found = min([*trusted.tolist(), *starts[:1].tolist()], default=end)
        unsure = min(unseen.tolist(), default=end)
        if unsure < found:
            return None, unsure
        if found < end:
            return found, found
    return None, end if ended else min(end, max(begin, last))
