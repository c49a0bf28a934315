"""The second pass of ingest: the TCP segments of one byte range of a capture file."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.ingest import Compression, FrameReason, Stage
from udfs.arrow import fixed_binary, slices
from udfs.frames import Rejected, segments
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
    records = taken = 0
    for block in read_blocks(source, cursor, split["stop"], min(BLOCK_BYTES, options.split_bytes)):
        rows, others = _scan_block(block, options, key, schema)
        records += len(block.records.start)
        taken += rows.num_rows
        yield rows
        if others:
            yield pa.RecordBatch.from_pylist(others, schema)
    yield pa.RecordBatch.from_pylist([key | {"frame": 0, "records": records, "segments": taken}], schema)


def _scan_block(
    block: Block, options: IngestOptions, key: dict[str, Any], schema: pa.Schema
) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    buffer = block.records.buffer
    found, rejected = segments(block.records, options.ports)
    low, high = found.endpoints[:, :18], found.endpoints[:, 18:]
    differ = (low != high).argmax(axis=1)
    rows = np.arange(len(differ))
    from_b = low[rows, differ] > high[rows, differ]
    connection = np.where(from_b[:, None], np.concatenate([high, low], axis=1), found.endpoints)
    columns = {
        "connection": fixed_binary(connection),
        "capture": pa.repeat(pa.scalar(key["capture"], pa.int64()), len(rows)),
        "frame": pa.array(found.frame),
        "time_ns": pa.array(found.time_ns, mask=found.time_ns == NO_TIME),
        "from_b": pa.array(from_b),
        "seq": pa.array(found.seq),
        "ack": pa.array(found.ack),
        "flags": pa.array(found.flags.astype(np.int32)),
        "length": pa.array(found.length),
        "payload": slices(buffer, found.payload, found.captured),
    }
    others: list[dict[str, Any]] = []
    if block.fault is not None:
        others.append(
            key
            | {"frame": 0, "stage": Stage.CAPTURE, "payload": block.fault.raw[: options.quarantine_raw_bytes]}
            | {name: getattr(block.fault, name) for name in ("reason", "detail", "offset", "length")}
        )
    others += [key | row for row in _rejected(block, rejected, options.quarantine_raw_bytes)]
    arrays = [columns.get(f.name, pa.nulls(len(rows), f.type)) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), others


def _rejected(block: Block, rejected: Rejected, raw_kept: int) -> Iterator[dict[str, Any]]:
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
