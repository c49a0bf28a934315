"""The first pass of ingest: what a capture file is, and where tasks may begin to read it."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.ingest import CaptureReason, CaptureStatus, Compression
from udfs.options import Batches, IngestOptions, Pass
from udfs.records import NO_TIME, Cursor, open_capture, read_blocks
from udfs.storage import Fault, compression_of, open_source, sha256


def survey(options: IngestOptions, schema: pa.Schema) -> Pass:
    """From rows (uri) to rows of `schemas.staging.SURVEY`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for uri in batch.column("uri").to_pylist():
                yield pa.RecordBatch.from_pylist([_survey_file(uri, options)], schema)

    return run


def _survey_file(uri: str, options: IngestOptions) -> dict[str, Any]:
    row: dict[str, Any] = {
        "uri": uri,
        "size_bytes": 0,
        "packet_count": 0,
        "cursors": [],
        "compression": Compression.NONE,
    }
    try:
        row["capture_id"], row["size_bytes"] = sha256(uri)
        row["compression"] = compression_of(uri)
        source = open_source(uri, row["compression"])
        start = open_capture(source)
        if isinstance(start, Fault):
            reason = source.fault or start.reason
            return row | {
                "status": CaptureStatus.UNREADABLE,
                "reason": reason,
                "detail": start.detail,
                "raw": start.raw,
            }
        return row | {"format": start.format} | _survey_records(uri, start, row["compression"], options)
    except OSError as error:
        return row | {
            "capture_id": hashlib.sha256(uri.encode()).hexdigest(),
            "status": CaptureStatus.UNREADABLE,
            "reason": CaptureReason.NOT_READABLE,
            "detail": f"The file cannot be read: {error}",
        }


def _survey_records(uri: str, start: Cursor, compression: Compression, options: IngestOptions) -> dict[str, Any]:
    cursors = [start]
    fault: Fault | None = None
    after = start
    first, last = np.iinfo(np.int64).max, NO_TIME
    for block in read_blocks(open_source(uri, compression, start.offset), start):
        fault = fault or block.fault
        times = block.records.time_ns[block.records.time_ns != NO_TIME]
        if len(times):
            first, last = min(first, int(times.min())), max(last, int(times.max()))
        after = block.after
        if compression is Compression.NONE and after.offset - cursors[-1].offset >= options.split_bytes:
            cursors.append(after)
    return {
        "status": CaptureStatus.PARTIAL if fault else CaptureStatus.OK,
        "reason": fault.reason if fault else None,
        "detail": fault.detail if fault else None,
        "packet_count": after.frame,
        "first_ns": first if last != NO_TIME else None,
        "last_ns": last if last != NO_TIME else None,
        "cursors": [cursor.to_json() for cursor in cursors],
    }
