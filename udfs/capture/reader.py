"""Reads the records of pcap and pcapng files, in whatever state the files are.

A broken record does not stop the reader: it searches for the next record that it can trust, reports the bytes between
as a `Fault` and goes on. The result depends on the file's bytes alone, not on how they are divided into blocks or
splits. So the `Cursor` behind any block is an exact place for another task to start from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture import pcap, pcapng
from udfs.capture.files import EXPANSION_LIMIT, Fault, Source
from udfs.capture.records import FAULTS_AT_ONCE, PCAPNG_MAGIC, RAW_KEPT, Chain, Cursor, Format, Records

BLOCK_BYTES = 8 << 20
_HEAD_BYTES = 28  # the longer of the two file headers
_AFTER_LOSS = 8  # records to read next after a fault: more of them may be broken
_FAR = 1 << 62
_NO_ROWS = np.empty((5, 0), np.int64)
_FORMATS: Mapping[CaptureFormat, Format] = {CaptureFormat.PCAP: pcap, CaptureFormat.PCAPNG: pcapng}
_BREAKS_OFF = {
    CaptureReason.TRUNCATED_COMPRESSION: "The compressed file is cut off; {} bytes could be expanded.",
    CaptureReason.CORRUPT_COMPRESSION: "The compressed file is damaged; {} bytes before the damage could be expanded.",
    CaptureReason.EXPANSION_LIMIT: f"The file expands to more than {EXPANSION_LIMIT} times its size, of which {{}} "
    "bytes were read. If it is no bomb, expand it: a plain file is read whole.",
}


class Block(NamedTuple):
    """Records in one buffer, which begins at byte `base` of the file, the faults there, and where to read on."""

    records: Records
    base: int
    faults: list[Fault]
    after: Cursor


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
    form = _FORMATS[cursor.format]
    window = _Window(source, block_bytes)
    pending = _Pending(window, cursor)
    broken, most = False, _FAR
    while stop is None or cursor.offset < stop:
        if pending.is_complete(window, cursor, step):
            yield from pending.block(cursor)
            pending = _Pending(window, cursor)
        if broken:
            fault = _skip_broken(window, cursor, form)
            is_pcapng = cursor.format is CaptureFormat.PCAPNG
            interfaces = pcapng.interfaces_behind(fault, cursor) if is_pcapng else cursor.interfaces
            cursor = replace(cursor, offset=cursor.offset + fault.length, interfaces=interfaces)
            pending.faults.append(fault)
            broken = False
            continue
        chain = form.follow_chain(window.data, cursor, window.ended, most, _limit(cursor.offset, stop, step))
        if chain.after.offset == cursor.offset and not chain.broken:
            if window.ended:
                break
            window.extend()
            continue
        pending.add(chain, cursor)
        window.drop(chain.after.offset - cursor.offset)
        cursor, broken, most = chain.after, chain.broken, _AFTER_LOSS if chain.broken else 2 * most
    if window.ended and source.fault is not None:
        pending.faults.append(_break_off(source.fault, cursor.offset))
    yield from pending.block(cursor)


def _break_off(reason: CaptureReason, expanded: int, head: bytes = b"") -> Fault:
    """Returns why no more than `expanded` bytes came out of a compressed file; `head` are those that are no capture."""
    return Fault(reason, _BREAKS_OFF[reason].format(expanded), expanded - len(head), len(head), head)


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
        self.extensions = 0
        self._source = source
        self._block_bytes = block_bytes

    def extend(self) -> None:
        """Reads on: at least as many bytes as there are. All come into another buffer, unless the file has ended."""
        chunk = self._source.read(max(self._block_bytes, len(self.data)))
        self.ended = not chunk
        if chunk:
            self.data = memoryview(b"".join((self.data, chunk)) if len(self.data) else chunk)
            self.extensions += 1

    def drop(self, size: int) -> None:
        """Drops the first `size` bytes."""
        self.data = self.data[size:]


class _Pending:
    """The records and faults of the next block: what is done for a block takes as long as for a hundred records."""

    def __init__(self, window: _Window, begin: Cursor) -> None:
        self.faults: list[Fault] = []
        self._data, self._extensions = window.data, window.extensions
        self._begin = begin
        self._rows = [_NO_ROWS]

    def add(self, chain: Chain, at: Cursor) -> None:
        """Adds the records and faults of a chain that begins at `at`."""
        chain.rows[0] += at.offset - self._begin.offset
        self._rows.append(chain.rows)
        self.faults += chain.unknown

    def is_complete(self, window: _Window, at: Cursor, step: int | None) -> bool:
        """Tells whether what follows `at` is in another buffer or split, or the faults are many."""
        another_step = step is not None and self._begin.offset // step < at.offset // step
        return another_step or self._extensions < window.extensions or len(self.faults) >= FAULTS_AT_ONCE

    def block(self, after: Cursor) -> Iterator[Block]:
        """Yields the block up to `after`, if it is not empty."""
        base = self._begin.offset
        if self.faults or after.offset > base:
            buffer = np.frombuffer(self._data[: after.offset - base], np.uint8)
            start, captured, time_ns, link_type, clock = np.concatenate(self._rows, axis=1)
            records = Records(buffer, start, captured, time_ns, link_type, self._begin.frame + 1, clock)
            yield Block(records, base, self.faults, after)


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
