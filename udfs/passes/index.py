"""The first pass of ingest: what a capture file is, and where tasks may begin to read it.

A large file is walked in ranges, side by side. The walk of a range goes on to the first place at or behind its end
where the reader stands; the next range begins with a record that was searched for. Only if both are the same place, in
the same state, do the walks fit, and together they are the walk over the whole file. A range that does not fit is
walked again from where the one before it came to: what is found does not depend on how a file is cut into ranges.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.ingest import CaptureReason, CaptureStatus, Compression
from udfs.capture import files
from udfs.capture.files import Fault, Hashed, detect_compression, open_source
from udfs.capture.reader import BLOCK_BYTES, NO_TIME, Block, Cursor, open_capture, read_blocks, search_blocks
from udfs.passes.options import Batches, IngestOptions, Pass

_HEAD_BYTES = 1 << 16
"""Where a pcapng file describes its interfaces, as a rule: a range in the middle of the file believes it."""
Row = dict[str, Any]


def ranges(options: IngestOptions, schema: pa.Schema) -> Pass:
    """From rows (uri) to rows of `schemas.staging.RANGES`; a file of one range is surveyed at once.

    Of a file of several ranges, one row each: to be walked.
    """

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for uri in batch.column("uri").to_pylist():
                rows = _ranges(uri, options)
                if len(rows) == 1:
                    rows = [rows[0] | {"survey": _stitched([_walked(rows[0], options)], options)}]
                yield pa.RecordBatch.from_pylist(rows, schema)

    return run


def walk_ranges(options: IngestOptions, schema: pa.Schema) -> Pass:
    """From rows of `schemas.staging.RANGES` to the same rows, walked. Each reads its range, and a little behind it."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([_walked(row, options)], schema)

    return run


def stitch(options: IngestOptions, schema: pa.Schema) -> Pass:
    """From walked rows of `schemas.staging.RANGES`, those of a file together and in order, to rows of INDEX."""

    def run(batches: Batches) -> Batches:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, of_file in groupby(rows, key=lambda row: row["uri"]):
            yield pa.RecordBatch.from_pylist([_stitched(list(of_file), options)], schema)

    return run


def index_files(uris: Iterable[str], options: IngestOptions, between: pa.Schema, schema: pa.Schema) -> pa.Table:
    """All passes in this process: rows of INDEX (`schema`), in the order of the files; `between` is that of RANGES."""
    names = pa.RecordBatch.from_pylist([{"uri": uri} for uri in uris], pa.schema([("uri", pa.string())]))
    rows = []
    for batch in ranges(options, between)([names]):
        finished = [row["survey"] for row in batch.to_pylist() if row["survey"] is not None]
        walked = () if finished else walk_ranges(options, between)([batch])
        rows += finished + [row for out in stitch(options, schema)(walked) for row in out.to_pylist()]
    return pa.Table.from_pylist(rows, schema)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What the walk over a range came to. Frames count from the range's first record.

    `cursors` are the first places at or behind each multiple of `split_bytes` above `first`, and up to `after`.
    """

    first: Cursor
    after: Cursor
    cursors: tuple[Cursor, ...] = ()
    fault: tuple[str, str] | None = None
    first_ns: int | None = None
    last_ns: int | None = None

    def to_row(self) -> Row:
        """The walk in the columns of RANGES."""
        return {
            "first": self.first.to_json(),
            "after": self.after.to_json(),
            "cursors": [cursor.to_json() for cursor in self.cursors],
            "reason": self.fault and self.fault[0],
            "detail": self.fault and self.fault[1],
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
        }

    @classmethod
    def from_row(cls, row: Row) -> "_Walk | None":
        """The walk that `to_row` wrote; None when nothing in the range was taken for a record."""
        if row["first"] is None:
            return None
        return cls(
            Cursor.from_json(row["first"]),
            Cursor.from_json(row["after"]),
            tuple(map(Cursor.from_json, row["cursors"])),
            (row["reason"], row["detail"]) if row["reason"] is not None else None,
            row["first_ns"],
            row["last_ns"],
        )

    def goes_on_from(self, place: Cursor) -> bool:
        """Whether the walk began where another one ended, and knew what that one knew."""
        return self.first == replace(place, frame=self.first.frame)

    def then(self, following: "_Walk") -> "_Walk":
        """Both walks as one."""
        frames = self.after.frame
        after, *cursors = (replace(c, frame=c.frame + frames) for c in (following.after, *following.cursors))
        return _Walk(
            self.first,
            after,
            self.cursors + tuple(cursors),
            self.fault or following.fault,
            min((t for t in (self.first_ns, following.first_ns) if t is not None), default=None),
            max((t for t in (self.last_ns, following.last_ns) if t is not None), default=None),
        )


def _ranges(uri: str, options: IngestOptions) -> list[Row]:
    """The byte ranges of a file; each with the state of the reader at its begin, as far as the file's head tells."""
    try:
        compression, size = detect_compression(uri)
        pieces = -(-max(options.survey_bytes, 1) // files.HASH_BYTES)
        width = pieces * files.HASH_BYTES
        row: Row = {"uri": uri, "size_bytes": size, "compression": compression}
        head = open_source(uri, compression)
        start = open_capture(head)
        if isinstance(start, Fault):
            row |= {"reason": head.fault or start.reason, "detail": start.detail, "raw": start.raw}
        if compression is not Compression.NONE or size <= width:
            return [row | {"begin": 0, "end": size, "state": _json(start)}]
        states = [_json(start), _json(start if isinstance(start, Fault) else _after_head(uri, start))]
        return [
            row | {"begin": begin, "end": min(begin + width, size), "state": states[begin > 0]}
            for begin in range(0, size, width)
        ]
    except OSError as error:
        return [_not_readable({"uri": uri, "size_bytes": 0, "compression": Compression.NONE, "begin": 0}, error)]


def _not_readable(row: Row, error: OSError) -> Row:
    return row | {"error": f"The file cannot be read: {error}"}


def _json(start: Cursor | Fault) -> str | None:
    return None if isinstance(start, Fault) else start.to_json()


def _after_head(uri: str, start: Cursor) -> Cursor:
    head = Hashed(open_source(uri, Compression.NONE, start.offset), _HEAD_BYTES, 0)
    state = start
    for block in read_blocks(head, start, _HEAD_BYTES, _HEAD_BYTES):
        if block.fault is not None:
            break
        state = block.after
    return state


def _walked(row: Row, options: IngestOptions) -> Row:
    """The row with its range walked and hashed."""
    if row.get("error") is not None:
        return row
    try:
        state = Cursor.from_json(row["state"]) if row["state"] is not None else None
        if row["compression"] != Compression.NONE:
            packed = Hashed(open_source(row["uri"], Compression.NONE), row["size_bytes"], row["size_bytes"])
            digests = packed.digests()
            walk = state and _walk_packed(row, state, options)
        else:
            begin, end, size = row["begin"], row["end"], row["size_bytes"]
            source = Hashed(open_source(row["uri"], Compression.NONE, begin), size - begin, end - begin)
            walk = state and _walk_range(source, state, begin, end, options)
            digests = source.digests()
        return row | {"digests": digests} | (walk.to_row() if walk else {})
    except OSError as error:
        return _not_readable(row, error)


def _walk_packed(row: Row, start: Cursor, options: IngestOptions) -> _Walk:
    """The walk over a compressed file: only its begin is a place to read from."""
    source = open_source(row["uri"], Compression(row["compression"]), start.offset)
    return _walk(read_blocks(source, start, None, _block_bytes(options)), start, None)


def _walk_range(source: Hashed, state: Cursor, begin: int, end: int, options: IngestOptions) -> _Walk | None:
    """The walk over a range, of which `source` stands at the first byte; None when no record begins there."""
    step = _step(options)
    if not begin:
        source.read(state.offset)
        return _walk(read_blocks(source, state, end, _block_bytes(options), step), state, step)
    found = search_blocks(source, replace(state, offset=begin, frame=0), end, _block_bytes(options), step)
    return found and _walk(found[1], found[0], step)


def _walk(blocks: Iterator[Block], first: Cursor, step: int | None) -> _Walk:
    cursors: list[Cursor] = []
    fault: Fault | None = None
    after = first
    earliest, latest = np.iinfo(np.int64).max, NO_TIME
    for block in blocks:
        fault = fault or block.fault
        times = block.records.time_ns[block.records.time_ns != NO_TIME]
        if len(times):
            earliest, latest = min(earliest, int(times.min())), max(latest, int(times.max()))
        if step is not None and block.after.offset // step > after.offset // step:
            cursors.append(block.after)
        after = block.after
    return _Walk(
        first,
        after,
        tuple(cursors),
        (fault.reason, fault.detail) if fault else None,
        earliest if latest != NO_TIME else None,
        latest if latest != NO_TIME else None,
    )


def _step(options: IngestOptions) -> int:
    return max(options.split_bytes, 1)


def _block_bytes(options: IngestOptions) -> int:
    return min(BLOCK_BYTES, _step(options))


def _stitched(rows: Sequence[Row], options: IngestOptions) -> Row:
    """The row of INDEX of a file, from the walked rows of its ranges."""
    head = rows[0]
    row = {name: head[name] for name in ("uri", "size_bytes", "compression")} | {"packet_count": 0, "cursors": []}
    unreadable = {"status": CaptureStatus.UNREADABLE}
    try:
        error = next((row["error"] for row in rows if row.get("error") is not None), None)
        if error is not None:
            return row | unreadable | _nameless(head["uri"], error)
        row["capture_id"] = files.sha256(b"".join(row["digests"] for row in rows))
        if head["state"] is None:
            return row | unreadable | {name: head[name] for name in ("reason", "detail", "raw")}
        walk, again = _joined(rows, options)
        return row | _of_walk(walk, head) | {"seams": _seams(again, len(rows))}
    except OSError as error:
        return row | unreadable | _nameless(head["uri"], _not_readable({}, error)["error"])


def _nameless(uri: str, error: str) -> Row:
    """Identity and fault of a file whose content is not known."""
    return {
        "capture_id": hashlib.sha256(uri.encode()).hexdigest(),
        "reason": CaptureReason.NOT_READABLE,
        "detail": error,
    }


def _joined(rows: Sequence[Row], options: IngestOptions) -> tuple[_Walk, list[int]]:
    """The walk over the whole file, and the begins of the ranges that had to be walked again for it."""
    start = Cursor.from_json(rows[0]["state"])
    whole = _Walk(start, start)
    again: list[int] = []
    for row in rows:
        packed = row["compression"] != Compression.NONE
        if not packed and whole.after.offset >= row["end"]:
            continue  # all of the range lies inside a record, or a fault, that began before it
        walk = _Walk.from_row(row)
        if walk is None or not walk.goes_on_from(whole.after):
            again.append(row["begin"])
            walk = _walk_again(row, whole.after, options)
        whole = whole.then(walk)
    return whole, again


def _walk_again(row: Row, place: Cursor, options: IngestOptions) -> _Walk:
    """The walk from a place that is certain to the end of a range."""
    source = Hashed(open_source(row["uri"], Compression.NONE, place.offset), row["size_bytes"] - place.offset, 0)
    first, step = replace(place, frame=0), _step(options)
    return _walk(read_blocks(source, first, row["end"], _block_bytes(options), step), first, step)


def _seams(again: Sequence[int], count: int) -> str | None:
    if not again:
        return None
    return (
        f"{len(again)} of {count} ranges did not begin where the range before ended, and were walked again one after "
        f"another; the first of them begins at byte {again[0]}."
    )


def _of_walk(walk: _Walk, head: Row) -> Row:
    """The columns of INDEX that the walk over a file gives."""
    cursors = [cursor for cursor in walk.cursors if cursor.offset < head["size_bytes"]]
    return {
        "format": walk.first.format,
        "status": CaptureStatus.PARTIAL if walk.fault else CaptureStatus.OK,
        "reason": walk.fault and walk.fault[0],
        "detail": walk.fault and walk.fault[1],
        "packet_count": walk.after.frame,
        "first_ns": walk.first_ns,
        "last_ns": walk.last_ns,
        "cursors": [cursor.to_json() for cursor in (walk.first, *cursors)],
    }
