"""The second pass of ingest: extracts TCP segments from one byte range of a capture file, and frames those in order."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import Compression, Stage
from udfs.arrow.buffers import fixed_binary, record_batch
from udfs.capture.files import open_source
from udfs.capture.reader import Block, read_blocks
from udfs.capture.records import Cursor
from udfs.msmq.ping import find_pings
from udfs.network.dissect import Fragments, Rejected, Segments, connection_keys, find_segments
from udfs.network.segment_rows import FRAME_DETAILS, fragment_rows, segment_rows
from udfs.passes.options import Batches, IngestOptions, Pass
from udfs.passes.preframe import preframe

_BLOCK_BYTES = 24 << 20
"""Bytes that are read together. From 32 MiB on, malloc maps new pages for every copy of them."""


def extract_splits(options: IngestOptions, schema: pa.Schema, packets: pa.Schema) -> Pass:
    """Turns rows (capture, uri, compression, cursor, stop, only) into rows of `schemas.staging.EXTRACTED`.

    `capture` is the capture's rank; the split is read from `cursor` on, up to byte `stop` of the file. `only` lists
    connections (36 bytes): every segment of theirs is a row, and nothing else is; null: all connections, with framed
    runs for data in order. `packets` is the schema of FRAMED_PACKETS.
    """

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for split in batch.to_pylist():
                yield from _Split(split, options, schema, packets).rows()

    return run


class _Split:
    """One byte range of a capture."""

    def __init__(self, split: dict[str, Any], options: IngestOptions, schema: pa.Schema, packets: pa.Schema) -> None:
        self._capture = split["capture"]
        self._cursor = Cursor.from_json(split["cursor"])
        self._stop = split["stop"]
        self._unpacked = split["compression"] == Compression.NONE
        self._source = open_source(split["uri"], Compression(split["compression"]), self._cursor.offset)
        self._only = (
            None if split.get("only") is None else fixed_binary(np.array([list(c) for c in split["only"]], np.uint8))
        )
        self._options = options
        self._schema = schema
        self._packets = packets

    def rows(self) -> Batches:
        """Yields the split's rows; holds one block of about 24 MiB and its rows in memory."""
        counts = {"segments": 0, "others": 0}
        aside: Counter[str] = Counter()
        for block in read_blocks(self._source, self._cursor, self._stop, min(_BLOCK_BYTES, self._options.split_bytes)):
            found, rejected, fragments = find_segments(block.records, self._options.ports)
            if self._only is not None:
                found = _selected(found, self._only)
                ranks = np.full(len(found.frame), self._capture)
                yield segment_rows(block.records.buffer, found, ranks, self._schema)
                continue
            counts["segments"] += len(found.frame)
            frames = len(block.records.start)
            counts["others"] += frames - len(found.frame) - len(rejected.frame) - len(fragments.frame)
            aside.update(rejected.not_judged)
            base = block.after.offset - len(block.records.buffer) if self._unpacked else None
            yield from preframe(
                block.records.buffer, found, self._capture, base, self._options, self._schema, self._packets
            )
            yield from self._fragments(block, fragments)
            yield from self._batch({"ping": ping} for ping in find_pings(block.records))
            yield from self._batch(_fault_rows(block, rejected, self._options.quarantine_raw_bytes))
        if self._only is None:
            yield from self._batch([{"frame": 0} | counts])
            yield from self._batch({"aside": {"what": what, "records": n}} for what, n in aside.items() if n)

    def _fragments(self, block: Block, found: Fragments) -> Batches:
        count = len(found.frame)
        if count:
            ranks = np.full(count, self._capture)
            kind = pa.schema(self._schema.field("fragment").type)
            rows = fragment_rows(block.records.buffer, found, ranks, kind).to_struct_array()
            yield record_batch({"fragment": rows}, count, self._schema)

    def _batch(self, rows: Iterable[dict[str, Any]]) -> Batches:
        if of_capture := [{"capture": self._capture} | row for row in rows]:
            yield pa.RecordBatch.from_pylist(of_capture, self._schema)


def _selected(found: Segments, only: pa.Array) -> Segments:
    """Returns the segments of the connections in `only`."""
    connection, _ = connection_keys(found.endpoints)
    index = np.flatnonzero(pc.is_in(fixed_binary(connection), only).to_numpy(zero_copy_only=False))
    return found.take(index)


def _fault_rows(block: Block, rejected: Rejected, raw_kept: int) -> Iterator[dict[str, Any]]:
    """Yields the block's fault and its rejected frames, each with at most `raw_kept` of its bytes."""
    if (fault := block.fault) is not None:
        yield {"stage": Stage.CAPTURE, "payload": fault.raw[:raw_kept]} | {
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
            "detail": FRAME_DETAILS[reason].format(frame=frame, link_type=link_type),
            "length": captured,
            "payload": block.records.buffer[start : start + min(captured, raw_kept)].tobytes(),
        }
