"""Makes rows of `schemas.staging.EXTRACTED` from the segments and fragments of a block."""

from typing import Any

import numpy as np
import pyarrow as pa

from schemas.ingest import FrameReason
from schemas.staging import EXTRACTED
from udfs.arrow.buffers import Bytes, Ints, fixed_binary, record_batch, slices, struct_array
from udfs.capture.records import NO_TIME
from udfs.network.dissect import Fragments, Pings, Segments, connection_keys

FRAME_DETAILS = {
    FrameReason.UNSUPPORTED_LINK_TYPE: "Record {frame} has link type {link_type}, which is not supported: convert "
    "the file, or capture on another interface.",
    FrameReason.BAD_IP_HEADER: "The IP header of record {frame} is cut or damaged.",
    FrameReason.BAD_TCP_HEADER: "The TCP header of record {frame} is cut or damaged.",
    FrameReason.IP_FRAGMENT: "Record {frame} is a fragment of an IP datagram that could not be reassembled.",
}
"""The sentence for each reason why a frame could not be read."""


def segment_rows(buffer: Bytes, segments: Segments, capture: int | Ints, **others: pa.Array) -> pa.RecordBatch:
    """Returns one row per segment; payloads are indices in `buffer`. `others`: columns that are no field of it."""
    connection, from_b = connection_keys(segments.endpoints)
    columns = {
        "connection": fixed_binary(connection),
        "frame": pa.array(segments.frame),
        "time_ns": pa.array(segments.time_ns, mask=segments.time_ns == NO_TIME),
        "from_b": pa.array(from_b),
        "seq": pa.array(segments.seq),
        "ack": pa.array(segments.ack),
        "flags": pa.array(segments.flags.astype(np.int32)),
        "length": pa.array(segments.length),
        "payload": slices(buffer, segments.payload, segments.captured),
        "header_sum": pa.array(segments.header_sum.astype(np.int32)),
    }
    return _rows("segment", columns | others, capture)


def fragment_rows(buffer: Bytes, fragments: Fragments, capture: int, **others: pa.Array) -> pa.RecordBatch:
    """Returns one row per fragment; payloads are indices in `buffer`. `others`: as for `segment_rows`."""
    columns = {
        "key": fixed_binary(fragments.key),
        "frame": pa.array(fragments.frame),
        "time_ns": pa.array(fragments.time_ns, mask=fragments.time_ns == NO_TIME),
        "offset": pa.array(fragments.offset),
        "more": pa.array(fragments.more),
        "length": pa.array(fragments.length),
        "payload": slices(buffer, fragments.payload, fragments.captured),
    }
    return _rows("fragment", columns | others, capture)


def ping_rows(pings: Pings, capture: int) -> pa.RecordBatch:
    """Returns one row per ping."""
    columns = {
        "time_ns": pa.array(pings.time_ns, mask=pings.time_ns == NO_TIME),
        "endpoints": fixed_binary(pings.endpoints),
        "cookie": pa.array(pings.cookie),
    }
    return _rows("ping", columns, capture)


def _rows(kind: str, columns: dict[str, Any], capture: int | Ints) -> pa.RecordBatch:
    rows = struct_array(columns, EXTRACTED.field(kind).type)
    ranks = pa.array(np.broadcast_to(capture, len(rows)))
    return record_batch({"capture": ranks, kind: rows}, len(rows), EXTRACTED)
