"""The first pass of ingest: what each capture file is, and where tasks can begin to read it.

Each file is read once, from its first byte to its last: this gives its identity, its record count and a cursor for each
split. A compressed file is read a second time, expanded, and has one split.
"""

import hashlib
from functools import partial
from typing import Any

import pyarrow as pa

from schemas.ingest import CaptureReason, CaptureStatus, Compression
from schemas.staging import INDEX
from udfs.capture.clocks import Clocks
from udfs.capture.files import Fault, HashedSource, Source, detect_compression, open_source
from udfs.capture.reader import BLOCK_BYTES, open_capture, read_blocks
from udfs.capture.records import Cursor
from udfs.frames.rows import Batches, Pass
from udfs.ingest.options import IngestOptions

Row = dict[str, Any]


def index_files(options: IngestOptions) -> Pass:
    """Turns rows (uri) into rows of INDEX, one per file. The pass can be pickled."""
    return partial(_index_all, options=options)


def _index_all(batches: Batches, options: IngestOptions) -> Batches:
    for batch in batches:
        for uri in batch.column("uri").to_pylist():
            yield pa.RecordBatch.from_pylist([_index(uri, options)], INDEX)


_ETL_HINT = " A trace of pktmon or netsh must be converted first: pktmon etl2pcap FILE.etl --out FILE.pcapng."


def _index(uri: str, options: IngestOptions) -> Row:
    """Returns the row of one file; a file that cannot be read is identified by the SHA-256 of its URI."""
    row: Row = {"uri": uri, "size_bytes": 0, "content_bytes": 0, "packet_count": 0, "cursors": [], "by_time": False}
    row["compression"] = Compression.NONE
    try:
        compression, size = detect_compression(uri)
        row |= {"size_bytes": size, "content_bytes": size, "compression": compression}
        head = open_source(uri, compression)
        start = open_capture(head)
        hashed = HashedSource(open_source(uri, Compression.NONE), size)
        if isinstance(start, Fault):
            hint = _ETL_HINT if uri.lower().endswith(".etl") else ""
            content: Row = {"status": CaptureStatus.UNREADABLE, "detail": start.detail + hint, "raw": start.raw}
            content["reason"] = start.reason
            if compression is not Compression.NONE and start.reason is CaptureReason.EMPTY_FILE:
                content["detail"] = "The compressed file expands to no bytes."
        elif compression is Compression.NONE:
            hashed.read(start.offset)
            content = _read_records(hashed, start, options, size)
        else:
            content = _read_records(open_source(uri, compression, start.offset), start, options, None)
        return row | content | {"capture_id": hashed.capture_id()}
    except OSError as error:
        return row | {
            "capture_id": hashlib.sha256(uri.encode()).hexdigest(),
            "status": CaptureStatus.UNREADABLE,
            "reason": CaptureReason.NOT_READABLE,
            "detail": f"The file cannot be read: {error}",
        }


def _read_records(source: Source, start: Cursor, options: IngestOptions, split_size: int | None) -> Row:
    """Reads all records and returns the columns of INDEX that they give; `source` stands at `start`.

    `cursors` has `start` and, in a file of `split_size` bytes, the first place at or behind each multiple of
    `split_bytes`; None when it is compressed, and so is one split.
    """
    step = max(options.split_bytes, 1)
    cursors = [start]
    after = start
    fault: Fault | None = None
    clocks = Clocks()
    for block in read_blocks(source, start, None, min(BLOCK_BYTES, step), step if split_size else None):
        for later in block.faults:
            if fault is None or _is_cause(later, fault):
                fault = later
        clocks.take(block.records)
        if split_size and after.offset // step < block.after.offset // step and block.after.offset < split_size:
            cursors.append(block.after)
        after = block.after
    clocks.end()
    first_ns, last_ns = clocks.span_ns or (None, None)
    return {
        "format": start.format,
        "status": CaptureStatus.PARTIAL if fault else CaptureStatus.OK,
        "reason": fault and fault.reason,
        "detail": fault and fault.detail,
        "content_bytes": after.offset,
        "packet_count": after.frame,
        "first_ns": first_ns,
        "last_ns": last_ns,
        "begins_ns": clocks.begins_ns,
        "clock_steps": clocks.steps,
        "by_time": clocks.by_time,
        "cursors": [cursor.to_json() for cursor in cursors],
    }


def _is_cause(later: Fault, fault: Fault) -> bool:
    """Tells whether the later fault is why a compressed file breaks off in the record that `fault` concerns.

    The expansion limit goes before any other fault: it says what to do.
    """
    broken = (CaptureReason.TRUNCATED_COMPRESSION, CaptureReason.CORRUPT_COMPRESSION)
    ends_there = fault.offset + fault.length == later.offset
    return later.reason is CaptureReason.EXPANSION_LIMIT or (later.reason in broken and ends_there)
