"""Makes rows of SEGMENTS and FRAGMENTS (`schemas.staging`) from the segments and fragments of a block."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.ingest import FrameReason
from udfs.arrow.buffers import fixed_binary, record_batch, slices
from udfs.capture.records import NO_TIME
from udfs.network.checksum import NO_SUM
from udfs.network.dissect import Fragments, Segments, connection_keys

FRAME_DETAILS = {
    FrameReason.UNSUPPORTED_LINK_TYPE: "Record {frame} has link type {link_type}, which is not supported: convert "
    "the file, or capture on another interface.",
    FrameReason.BAD_IP_HEADER: "The IP header of record {frame} is cut or damaged.",
    FrameReason.BAD_TCP_HEADER: "The TCP header of record {frame} is cut or damaged.",
    FrameReason.IP_FRAGMENT: "Record {frame} is a fragment of an IP datagram that could not be reassembled.",
}
"""The sentence for each reason why a frame could not be read."""


def segment_rows(
    buffer: NDArray[np.uint8], found: Segments, capture: NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Returns one row of SEGMENTS per segment; payloads are indices in `buffer`, `capture` has one rank per segment."""
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
    return record_batch(columns, len(from_b), schema)


def fragment_rows(
    buffer: NDArray[np.uint8], found: Fragments, capture: NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Returns one row of FRAGMENTS per fragment; arguments as for `segment_rows`."""
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
    return record_batch(columns, len(capture), schema)
