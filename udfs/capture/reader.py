"""Reads the records of pcap and pcapng files, in whatever state the files are.

A broken record does not stop the reader: it searches for the next record that it can trust, reports the bytes between
as a `Fault` and goes on. The result depends on the file's bytes alone, not on how they are divided into blocks or
splits. So the `Cursor` behind any block is an exact place for another task to start from.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture import pcap, pcapng
from udfs.capture.files import EXPANSION_LIMIT, Fault, Source
from udfs.capture.records import PCAPNG_MAGIC, RAW_KEPT, Cursor, Format, Records

BLOCK_BYTES = 8 << 20
_HEAD_BYTES = 28  # the longer of the two file headers
_AFTER_LOSS = 8  # records to read next after a fault: more of them may be broken
_FAR = 1 << 62
_SMALL_BYTES, _MANY_FAULTS = 1 << 20, 1_000
_NO_ROWS = np.empty((4, 0), np.int64)
_FORMATS: Mapping[CaptureFormat, Format] = {CaptureFormat.PCAP: pcap, CaptureFormat.PCAPNG: pcapng}
_BREAKS_OFF = {
    CaptureReason.TRUNCATED_COMPRESSION: "The compressed file is cut off; {} bytes could be expanded.",
    CaptureReason.CORRUPT_COMPRESSION: "The compressed file is damaged; {} bytes before the damage could be expanded.",
    CaptureReason.EXPANSION_LIMIT: f"The file expands to more than {EXPANSION_LIMIT} times its size, of which {{}} "
    "bytes were read. If it is no bomb, expand it: a plain file is read whole.",
}


class Block(NamedTuple):
    """One step of the reader: records or a fault, and the place where the next step begins."""

    records: Records
    fault: Fault | None
    after: Cursor


class Stretch(NamedTuple):
    """Records of neighbouring blocks in one buffer, which begins at byte `base` of the file, and the faults there."""

    records: Records
    base: int
    faults: list[Fault]


def open_capture(source: Source) -> Cursor | Fault:
    """Returns the cursor before the first record, or the reason why this is no readable capture.

    `source` stands at the first byte of the file.
    """
    head = source.read(_HEAD_BYTES)
    found = _open(head)
    if isinstance(found, Fault) and source.fault is not None:
        return _break_off(source.fault, len(head), head)
    return found


def _open(head: bytes) -> Cursor | Fault:
    if not head:
        return Fault(CaptureReason.EMPTY_FILE, "The file holds no bytes.", 0, 0)
    if head[:4] == PCAPNG_MAGIC:
        return pcapng.open_file(head)
    if head[:4] in pcap.FILE_MAGICS:
        return pcap.open_file(head)
    if any(magic.startswith(head) for magic in pcap.FILE_MAGICS):
        return Fault(CaptureReason.TRUNCATED_FILE_HEADER, "The file ends in its magic number.", 0, len(head), head)
    detail = f"The file begins with {head[:4].hex(' ')}, which is no pcap or pcapng magic number."
    return Fault(CaptureReason.BAD_MAGIC, detail, 0, len(head), head)


def read_blocks(
    source: Source, cursor: Cursor, stop: int | None = None, block_bytes: int = BLOCK_BYTES, step: int | None = None
) -> Iterator[Block]:
    """Yields the records that begin at `cursor.offset` or later and before `stop`, and the faults between them.

    `source` stands at `cursor.offset`. The first place at or behind `stop`, and at or behind each multiple of `step`,
    where a record, a block or a fault begins is the `after` of one of the blocks.
    Memory: a few times `block_bytes`, and a few times the longest record.
    """
    window = _Window(source, block_bytes)
    form = _FORMATS[cursor.format]
    most = _FAR
    while stop is None or cursor.offset < stop:
        limit = _limit(cursor.offset, stop, step)
        chain = form.follow_chain(window.data, cursor, window.ended, most, limit)
        if not chain.end and not chain.broken:
            if window.ended:
                break
            window.extend()
            continue
        for fault in chain.unknown:
            yield _fault_block(fault, cursor)
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
        most = _AFTER_LOSS if chain.broken else 2 * most
        if chain.broken and (stop is None or cursor.offset < stop):
            fault = _skip_broken(window, cursor, form)
            is_pcapng = cursor.format is CaptureFormat.PCAPNG
            interfaces = pcapng.interfaces_behind(fault, cursor) if is_pcapng else cursor.interfaces
            cursor = replace(cursor, offset=cursor.offset + fault.length, interfaces=interfaces)
            yield _fault_block(fault, cursor)
    if window.ended and window.fault is not None:
        yield _fault_block(_break_off(window.fault, cursor.offset), cursor)


def _break_off(reason: CaptureReason, expanded: int, head: bytes = b"") -> Fault:
    """Returns why no more than `expanded` bytes came out of a compressed file; `head` are those that are no capture."""
    return Fault(reason, _BREAKS_OFF[reason].format(expanded), expanded - len(head), len(head), head)


def join_small(blocks: Iterable[Block]) -> Iterator[Stretch]:
    """Joins small blocks, as they are between faults: what is done for a block takes as long as for a hundred records.

    Bytes between joined blocks, which are in no record, become zeros.
    """
    parts: list[tuple[int, Records]] = []
    faults: list[Fault] = []
    for records, fault, after in blocks:
        if fault is not None:
            faults.append(fault)
        if len(records.start):
            if parts and after.offset - parts[0][0] > _SMALL_BYTES:
                yield _join(parts, faults)
                parts, faults = [], []
            parts.append((after.offset - len(records.buffer), records))
        if len(faults) >= _MANY_FAULTS or (parts and after.offset - parts[0][0] >= _SMALL_BYTES):
            yield _join(parts, faults)
            parts, faults = [], []
    if parts or faults:
        yield _join(parts, faults)


def _join(parts: list[tuple[int, Records]], faults: list[Fault]) -> Stretch:
    if not parts:
        return Stretch(_records(memoryview(b""), _NO_ROWS, 0), 0, faults)
    (base, first), (last, end) = parts[0], parts[-1]
    if len(parts) == 1:
        return Stretch(first, base, faults)
    joined = bytearray(last - base + len(end.buffer))
    for at, one in parts:
        joined[at - base : at - base + len(one.buffer)] = one.buffer.tobytes()
    rows = np.concatenate([np.stack((one.start + (at - base), *one[2:5])) for at, one in parts], axis=1)
    return Stretch(_records(memoryview(joined), rows, first.first_frame - 1), base, faults)


def _limit(at: int, stop: int | None, step: int | None) -> int:
    """Returns how far from `at` the nearest of `stop` and the next multiple of `step` is."""
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
        """Why the source ended early."""
        return self._source.fault

    def extend(self) -> None:
        """Reads on: at least as many bytes as there are."""
        chunk = self._source.read(max(self._block_bytes, len(self.data)))
        self.ended = not chunk
        self.data = memoryview(b"".join((self.data, chunk)) if len(self.data) else chunk)

    def drop(self, size: int) -> None:
        """Drops the first `size` bytes."""
        self.data = self.data[size:]


def _records(data: memoryview, rows: NDArray[np.int64], frame: int) -> Records:
    start, captured, time_ns, link_type = rows
    return Records(np.frombuffer(data, np.uint8), start, captured, time_ns, link_type, frame + 1)


def _fault_block(fault: Fault, after: Cursor) -> Block:
    return Block(_records(memoryview(b""), _NO_ROWS, after.frame), fault, after)


def _skip_broken(window: _Window, cursor: Cursor, form: Format) -> Fault:
    """Drops the bytes before the next record that can be trusted, and returns them as a fault.

    A second file behind the first (both joined by `cat`) may have another byte order and link type: it is not read.
    """
    while len(window.data) < RAW_KEPT and not window.ended:
        window.extend()
    head = bytes(window.data[:RAW_KEPT])
    joined = cursor.format is CaptureFormat.PCAP and head[:4] in pcap.FILE_MAGICS
    length, begin = 0, len(window.data) if joined else 1
    while True:
        found, reached = form.find_record(window.data, begin, cursor, window.ended)
        window.drop(reached)
        length += reached
        if found is not None or window.ended:
            break
        window.extend()
        begin = len(window.data) if joined else 0
    reason, sentence = form.explain_loss(head, length, cursor, found is not None)
    detail = f"{sentence} at byte {cursor.offset}; {length} bytes are in no record."
    return Fault(reason, detail, cursor.offset, length, head[:length])
