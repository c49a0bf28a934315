"""The second pass of ingest: the TCP segments of one byte range of a capture file."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.ingest import Compression, FrameReason, Stage
from udfs.arrow import fixed_binary, slices
from udfs.frames import Rejected, Segments, segments
from udfs.options import Batches, IngestOptions, Pass
from udfs.records import BLOCK_BYTES, NO_TIME, Block, Cursor, read_blocks
from udfs.storage import open_source


def scan(options: IngestOptions, schema: pa.Schema) -> Pass:
    """From rows (capture, uri, compression, cursor, stop) to rows of `schemas.staging.SEGMENTS`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for split in batch.to_pylist():
                yield from _scan_split(split, options, schema)

    return run


def _scan_split(split: dict[str, Any], options: IngestOptions, schema: pa.Schema) -> Batches:
    cursor = Cursor.from_json(split["cursor"])
    source = open_source(split["uri"], Compression(split["compression"]), cursor.offset)
    key = {"connection": f"{split['capture']}:{cursor.offset}".encode(), "capture": split["capture"]}
    others = 0
    for block in read_blocks(source, cursor, split["stop"], min(BLOCK_BYTES, options.split_bytes)):
        found, rejected, _ = segments(block.records, options.ports)
        others += len(block.records.start) - len(found.frame) - len(rejected.frame)
        yield _segment_rows(block, found, split["capture"], schema)
        faults = [key | row for row in _faults(block, rejected, options.quarantine_raw_bytes)]
        if faults:
            yield pa.RecordBatch.from_pylist(faults, schema)
    yield pa.RecordBatch.from_pylist([key | {"frame": 0, "others": others}], schema)


def _segment_rows(block: Block, found: Segments, capture: int, schema: pa.Schema) -> pa.RecordBatch:
    low, high = found.endpoints[:, :18], found.endpoints[:, 18:]
    differ = (low != high).argmax(axis=1)
    rows = np.arange(len(differ))
    from_b = low[rows, differ] > high[rows, differ]
    connection = np.where(from_b[:, None], np.concatenate([high, low], axis=1), found.endpoints)
    columns = {
        "connection": fixed_binary(connection),
        "capture": pa.repeat(pa.scalar(capture, pa.int64()), len(rows)),
        "frame": pa.array(found.frame),
        "time_ns": pa.array(found.time_ns, mask=found.time_ns == NO_TIME),
        "from_b": pa.array(from_b),
        "seq": pa.array(found.seq),
        "ack": pa.array(found.ack),
        "flags": pa.array(found.flags.astype(np.int32)),
        "length": pa.array(found.length),
        "payload": slices(block.records.buffer, found.payload, found.captured),
    }
    arrays = [columns.get(f.name, pa.nulls(len(rows), f.type)) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _faults(block: Block, rejected: Rejected, raw_kept: int) -> Iterator[dict[str, Any]]:
    if (fault := block.fault) is not None:
        yield {"frame": 0, "stage": Stage.CAPTURE, "payload": fault.raw[:raw_kept]} | {
            name: getattr(fault, name) for name in ("reason", "detail", "offset", "length")
        }
    link_types = block.records.link_type[rejected.frame - block.records.first_frame]
    columns = (rejected.frame, rejected.start, rejected.captured, link_types)
    for (frame, start, captured, link_type), reason in zip(
        np.stack(columns, axis=1).tolist(), rejected.reason, strict=True
    ):
        yield {
            "frame": frame,
            "stage": Stage.FRAME,
            "reason": reason,
            "detail": _DETAILS[reason].format(frame=frame, link_type=link_type),
            "length": captured,
            "payload": block.records.buffer[start : start + min(captured, raw_kept)].tobytes(),
        }


_DETAILS = {
    FrameReason.UNSUPPORTED_LINK_TYPE: "Record {frame} has link type {link_type}, which is not read: convert "
    "the file, or capture on another interface.",
    FrameReason.BAD_IP_HEADER: "The IP header of record {frame} is cut or damaged.",
    FrameReason.BAD_TCP_HEADER: "The TCP header of record {frame} is cut or damaged.",
    FrameReason.IP_FRAGMENT: "Record {frame} is a fragment of an IP datagram and was not put together.",
}
