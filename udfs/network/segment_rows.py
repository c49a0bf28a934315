"""Rows of `schemas.staging`, a batch at a time, out of what frames held."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.ingest import FrameReason
from udfs.arrow.buffers import fixed_binary, slices
from udfs.capture.records import NO_TIME
from udfs.network.checksum import NO_SUM
from udfs.network.dissect import Fragments, Segments, connection_keys

FRAME_DETAILS = {
    FrameReason.UNSUPPORTED_LINK_TYPE: "Record {frame} has link type {link_type}, which is not read: convert "
    "the file, or capture on another interface.",
    FrameReason.BAD_IP_HEADER: "The IP header of record {frame} is cut or damaged.",
    FrameReason.BAD_TCP_HEADER: "The TCP header of record {frame} is cut or damaged.",
    FrameReason.IP_FRAGMENT: "Record {frame} is a fragment of an IP datagram and was not put together.",
}
"""What is wrong with a frame, in a sentence for the reader."""


def segment_rows(
    buffer: NDArray[np.uint8], found: Segments, capture: NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of SEGMENTS, one a segment; payloads are indices in `buffer`, `capture` is one rank a segment."""
    connection, from_b = connection_keys(found.endpoints)
    columns = {
        "connection": fixed_binary(connection),
        "capture": pa.array(capture),
        "frame": pa.array(found.frame),
        "time_ns": pa.array(found.time_ns, mask=found.time_ns == NO_TIME),
        "from_b": pa.array(from_b),
        "seq": pa.array(found.seq),
        "ack": pa.array(found.ack),
        "flags": pa.array(found.flags.astype(np.int32)),
        "length": pa.array(found.length),
        "payload": slices(buffer, found.payload, found.captured),
        "header_sum": pa.array(found.header_sum.astype(np.int32), mask=found.header_sum == NO_SUM),
    }
    arrays = [columns.get(f.name, pa.nulls(len(from_b), f.type)) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fragment_rows(
    buffer: NDArray[np.uint8], found: Fragments, capture: NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of FRAGMENTS, one a fragment; payloads are indices in `buffer`, `capture` is one rank a fragment."""
    columns = {
        "key": fixed_binary(found.key),
        "capture": pa.array(capture),
        "frame": pa.array(found.frame),
        "time_ns": pa.array(found.time_ns, mask=found.time_ns == NO_TIME),
        "offset": pa.array(found.offset),
        "more": pa.array(found.more),
        "length": pa.array(found.length),
        "payload": slices(buffer, found.payload, found.captured),
    }
    return pa.RecordBatch.from_arrays([columns[f.name] for f in schema], schema=schema)
