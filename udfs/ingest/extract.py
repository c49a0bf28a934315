"""The second pass of ingest: extracts TCP segments from one byte range of a capture file, and frames those in order."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import Compression, Stage
from schemas.staging import EXTRACTED, Counted
from udfs.arrow.buffers import fixed_binary
from udfs.capture.clocks import behind_at
from udfs.capture.files import Fault, open_source
from udfs.capture.reader import read_blocks
from udfs.capture.records import Cursor, Records
from udfs.frames.rows import Batches, Pass
from udfs.ingest.options import IngestOptions
from udfs.ingest.preframe import preframe
from udfs.network.dissect import (
    DAMAGED,
    Fragments,
    Rejected,
    Segments,
    connection_keys,
    find_segments,
    target_ports,
)
from udfs.network.segment_rows import FRAME_DETAILS, fragment_rows, ping_rows, segment_rows

_BLOCK_BYTES = 24 << 20
"""Bytes that are read together. From 32 MiB on, malloc maps new pages for every copy of them."""


def extract_splits(options: IngestOptions) -> Pass:
    """Turns rows of `schemas.staging.SPLIT`, and `only`, into rows of `schemas.staging.EXTRACTED`.

    `capture` is the capture's rank; the split is read from `cursor` on, up to byte `stop` of the file. `only` lists
    connections (36 bytes): every segment of theirs is a row, and nothing else is; null: all connections, with framed
    runs for data in order, except in a capture that is read `by_time`. The pass can be pickled.
    """
    return partial(_extract_all, options=options)


def _extract_all(batches: Batches, options: IngestOptions) -> Batches:
    for batch in batches:
        for split in batch.to_pylist():
            yield from _extract(split, options)


def _extract(split: dict[str, Any], options: IngestOptions) -> Batches:
    """Yields the rows of a split; holds one block of about 24 MiB and its rows in memory."""
    capture, kept = split["capture"], options.raw_kept
    cursor = Cursor.from_json(split["cursor"])
    compression = Compression(split["compression"])
    source = open_source(split["uri"], compression, cursor.offset)
    counts: Counter[str] = Counter()
    size = min(_BLOCK_BYTES, options.split_bytes)
    for records, base, faults, _ in read_blocks(source, cursor, split["stop"], size):
        segments, rejected, fragments = find_segments(records, options.ports)
        if (only := split.get("only")) is not None:
            segments = _select(segments, pa.array(only, pa.binary()))
            yield segment_rows(records.buffer, segments, capture, **_order(segments, split))
            continue
        others = len(records.start) - len(segments.frame) - len(rejected.frame) - len(fragments.frame)
        counts.update({Counted.SEGMENT: len(segments.frame), Counted.OTHER: others})
        counts[Counted.TO_PORT] += int(np.isin(target_ports(segments.endpoints), options.ports).sum())
        counts[Counted.CUT] += int((segments.captured < segments.length).sum())
        counts[Counted.DAMAGED] += int((segments.flags & DAMAGED != 0).sum())
        counts.update(rejected.not_judged)
        counts.update(rejected.tunnels)
        if len(segments.frame) and split["by_time"]:
            yield segment_rows(records.buffer, segments, capture, **_order(segments, split))
        elif len(segments.frame):
            file_base = base if compression is Compression.NONE else None
            yield from preframe(records.buffer, segments, capture, file_base, options)
        if rejected.pings is not None:
            yield ping_rows(rejected.pings, capture)
        if len(fragments.frame):
            yield fragment_rows(records.buffer, fragments, capture, **_order(fragments, split))
        yield from _batch(capture, "fault", (_fault_row(fault, kept) for fault in faults))
        yield from _batch(capture, "fault", _rejected_rows(records, rejected, kept))
    yield from _batch(capture, "count", ({"what": what, "records": n} for what, n in counts.items() if n))


def _batch(capture: int, kind: str, rows: Iterable[dict[str, Any]]) -> Batches:
    if extracted := [{"capture": capture, kind: row} for row in rows]:
        yield pa.RecordBatch.from_pylist(extracted, EXTRACTED)


def _order(records: Segments | Fragments, split: dict[str, Any]) -> dict[str, pa.Array]:
    """Returns the column `order` of a capture that is read `by_time`: the times, by clocks without steps."""
    if not split["by_time"]:
        return {}
    return {"order": pa.array(records.time_ns + behind_at(records.frame, split["clock_steps"] or ()))}


def _select(segments: Segments, only: pa.Array) -> Segments:
    """Returns the segments of the connections in `only`."""
    connection, _ = connection_keys(segments.endpoints)
    index = np.flatnonzero(pc.is_in(fixed_binary(connection), only).to_numpy(zero_copy_only=False))
    return segments.take(index)


def _fault_row(fault: Fault, raw_kept: int) -> dict[str, Any]:
    """Returns the row of a fault, with at most `raw_kept` of its bytes."""
    row = {"stage": Stage.CAPTURE, "stream_offset": fault.offset, "raw": fault.raw[:raw_kept]}
    return row | {name: getattr(fault, name) for name in ("reason", "detail", "length")}


def _rejected_rows(records: Records, rejected: Rejected, raw_kept: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each rejected frame, with at most `raw_kept` of its bytes."""
    link_types = records.link_type[rejected.frame - records.first_frame]
    columns = (rejected.frame, rejected.start, rejected.captured, link_types)
    for (frame, start, captured, link_type), reason in zip(
        np.stack(columns, axis=1).tolist(), rejected.reason, strict=True
    ):
        yield {
            "frame_number": frame,
            "stage": Stage.FRAME,
            "reason": reason,
            "detail": FRAME_DETAILS[reason].format(frame=frame, link_type=link_type),
            "length": captured,
            "raw": records.buffer[start : start + min(captured, raw_kept)].tobytes(),
        }
