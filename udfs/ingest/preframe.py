"""Frames in-order data inside its split, which avoids the shuffle.

In a block of captured segments, the bytes that one side of a connection sent are put in order as far as the block goes.
Packets that follow one another without a gap become rows at once, and one *framed run* stands for their bytes among the
segments. The assembler confirms the run or asks for its bytes (`udfs.tcp.connections.NeedsPayload`); only the assembler
decides which bytes a stream has.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.staging import EXTRACTED, FRAMED_PACKETS, PACKET
from udfs.arrow.buffers import Ints, fixed_binary, struct_array
from udfs.capture.records import NO_TIME
from udfs.frames.rows import Batches, Pass
from udfs.ingest.options import IngestOptions
from udfs.msmq.packet_rows import StreamPieces, packet_columns
from udfs.msmq.stream_window import HEADER_SIZE, frame_chain
from udfs.network.dissect import ACK, DAMAGED, FIN, RST, SYN, WINDOW_CLOSED, Segments, connection_keys
from udfs.network.segment_rows import segment_rows
from udfs.tcp.delivery import FILE_OFFSETS, PART_SUM, Overlap, Piece, merge
from udfs.tcp.direction import Segment

RUN_BYTES = 8 << 10
"""Fewest stream bytes of a framed run: fewer are not worth one."""
TAIL_BYTES = 2 << 10
"""Last bytes of a stretch that stay segments, because the next split may repeat them."""
HEAD_BYTES = 2 * HEADER_SIZE
_PACKING = pa.ipc.IpcWriteOptions(compression="lz4")
"""Headers of neighbouring packets are much alike: compression leaves a sixth of what Spark stores and sends."""
_MASK, _HALF = (1 << 32) - 1, 1 << 31


class _Cuts(NamedTuple):
    """Parts of segments that stay segments: index of the segment, first byte in its payload, number of bytes."""

    segment: Ints
    skip: Ints
    length: Ints

    @classmethod
    def whole(cls, segments: Segments, index: Ints) -> "_Cuts":
        """Returns these segments from their first byte to their last."""
        return cls(index, np.zeros_like(index), segments.captured[index])


class _Run(NamedTuple):
    """Packets that follow one another on one side of a connection, from byte `begin` of `data` on; `sizes` in bytes.

    The data from each `start` on is the payload of `segment` (an index) from its byte `skip` on. `seq`: sequence number
    of the first packet.
    """

    data: bytes
    begin: int
    sizes: list[int]
    segment: Ints
    start: Ints
    skip: Ints
    seq: int


class _Preframed(NamedTuple):
    """The framed runs of a block, and the parts of its segments that are in none.

    `acks`: index of a segment, sequence number, acknowledgment number, latest time of the segments for which it stands;
    one at each end of a stretch keeps the information of its headers.
    """

    cuts: list[_Cuts]
    acks: list[tuple[int, int, int, int]]
    runs: list[_Run]

    def latest_times(self) -> pa.Array:
        """Returns the column `last_ns` of the rows of `rest`."""
        times = np.array([time for *_, time in self.acks], np.int64)
        cuts = sum(len(cut.segment) for cut in self.cuts)
        return pa.concat_arrays([pa.nulls(cuts, pa.int64()), pa.array(times, mask=times == NO_TIME)])

    def rest(self, segments: Segments) -> Segments:
        """Returns the segments, or parts of them, that are in no framed run, and the acknowledgments of the runs."""
        index, skip, length = (np.concatenate(columns) for columns in zip(*self.cuts, strict=True))
        cut = length != segments.captured[index]
        ack_index, ack_seq, ack, _ = np.array(self.acks, np.int64).reshape(-1, 4).T
        rows = np.concatenate([index, ack_index])
        acks = len(ack_index)
        zeros = np.zeros(acks, np.int64)
        return Segments(
            frame=segments.frame[rows],
            time_ns=segments.time_ns[rows],
            endpoints=segments.endpoints[rows],
            seq=np.concatenate([(segments.seq[index] + skip) & _MASK, ack_seq]),
            ack=np.concatenate([segments.ack[index], ack]),
            flags=np.concatenate([segments.flags[index], np.full(acks, ACK)]),
            payload=segments.payload[rows] + np.concatenate([skip, zeros]),
            captured=np.concatenate([length, zeros]),
            length=np.concatenate([np.where(cut, length, segments.length[index]), zeros]),
            header_sum=np.concatenate([np.where(cut, PART_SUM, segments.header_sum[index]), zeros]),
        )


def preframe(
    buffer: NDArray[np.uint8], segments: Segments, capture: int, base: int | None, options: IngestOptions
) -> Batches:
    """Yields the segments of a block as rows of EXTRACTED, those in order as framed runs.

    `capture`: rank of the capture. `base`: byte of the file where the block begins; None in a compressed file. Only the
    overlap policy `first` allows framed runs: under the others, a later segment may replace bytes of the run.
    """
    if options.overlap is not Overlap.FIRST:
        yield segment_rows(buffer, segments, capture)
        return
    preframed = _preframe(buffer, segments, options.window_bytes // 2)
    yield segment_rows(buffer, preframed.rest(segments), capture, last_ns=preframed.latest_times())
    if preframed.runs:
        yield _run_rows(segments, preframed.runs, capture, base, options)


def _preframe(buffer: NDArray[np.uint8], segments: Segments, span: int) -> _Preframed:
    """Frames the stretches in order among the segments of a block.

    A stretch spans at most `span` bytes, half the window in which `udfs.tcp.connections` orders segments, so that no
    framed run arrives behind the window.
    """
    connection, from_b = connection_keys(segments.endpoints)
    codes = fixed_binary(connection).dictionary_encode().indices.to_numpy()
    amount = np.bincount(codes, segments.captured)
    large = amount >= RUN_BYTES + TAIL_BYTES
    result = _Preframed([_Cuts.whole(segments, np.flatnonzero(~large[codes]))], [], [])
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(amount) + 1))
    block = _Block(buffer.data, segments, from_b, span)
    for code in np.flatnonzero(large).tolist():
        index = order[bounds[code] : bounds[code + 1]]
        part = block.connection(index)
        if part is None:
            result.cuts.append(_Cuts.whole(segments, index))
        else:
            result.cuts.extend(part.cuts)
            result.acks.extend(part.acks)
            result.runs.extend(part.runs)
    return result


class _Block:
    """The segments of a block."""

    def __init__(self, view: memoryview, segments: Segments, from_b: NDArray[np.bool_], span: int) -> None:
        self._view = view
        self._span = span
        self._segments = segments
        self._from_b = from_b
        self._event = ((segments.flags & (SYN | FIN | RST)) != 0) | ((segments.flags & ACK) == 0)
        marked = (segments.flags & (WINDOW_CLOSED | DAMAGED)) != 0
        self._odd = (segments.captured != segments.length) | (segments.length == 1) | marked

    def connection(self, index: Ints) -> _Preframed | None:
        """Frames the segments of one connection, given in file order; None when there is no framed run.

        A stretch lies between two segments with SYN, FIN or RST, which stay segments; only the largest is framed.
        """
        if self._odd[index].any():
            return None
        edges = np.concatenate([[-1], np.flatnonzero(self._event[index]), [len(index)]])
        bytes_before = np.concatenate([[0], np.cumsum(self._segments.captured[index])])
        widest = int(np.argmax(bytes_before[edges[1:]] - bytes_before[edges[:-1] + 1]))
        begin, end = int(edges[widest]) + 1, int(edges[widest + 1])
        result = _Preframed([_Cuts.whole(self._segments, np.concatenate([index[:begin], index[end:]]))], [], [])
        stretch = index[begin:end]
        for side in (False, True):
            mine = stretch[self._from_b[stretch] == side]
            if len(mine) and not self._side(mine, result):
                return None
        return result if result.runs else None

    def _side(self, mine: Ints, result: _Preframed) -> bool:
        """Frames the bytes that one side sent in a stretch; returns False when they span too much or copies differ."""
        segments = self._segments
        position = _unwrap(segments.seq[mine])
        acked = _unwrap(segments.ack[mine])
        end = position + segments.length[mine]
        if max(end.max() - position.min(), acked.max() - acked.min()) > self._span:
            return False
        data = segments.length[mine] > 0
        pieces = self._pieces(mine[data], position[data])
        if pieces is None:
            return False
        first = int(segments.seq[mine[0]])
        first_ack = int(segments.ack[mine[0]])
        result.acks.append((int(mine[0]), (first + int(position.min())) & _MASK, first_ack, NO_TIME))
        last_ack, last_ns = (first_ack + int(acked.max())) & _MASK, int(segments.time_ns[mine].max())
        result.acks.append((int(mine[-1]), (first + int(end.max())) & _MASK, last_ack, last_ns))
        index, start, stop, skip = pieces
        if not len(index):
            return True
        edges = np.flatnonzero(np.append(True, start[1:] != stop[:-1]))
        for low, high in zip(edges.tolist(), [*edges[1:].tolist(), len(start)], strict=True):
            self._frame(index[low:high], start[low:high], stop[low:high], skip[low:high], first, result)
        return True

    def _pieces(self, index: Ints, position: Ints) -> tuple[Ints, Ints, Ints, Ints] | None:
        """Returns the bytes in order: segment, first and last position, byte in payload; None when copies differ."""
        order = np.argsort(position, kind="stable")
        index, start = index[order], position[order]
        stop = start + self._segments.length[index]
        behind = start[1:] >= np.maximum.accumulate(stop)[:-1]  # it begins after the end of all before it
        alone = np.append(True, behind)[: len(start)] & np.append(behind, True)[: len(start)]
        rows = np.stack([index, start, stop, np.zeros_like(start)])[:, alone]
        if not alone.all():
            overlapping = self._merge_overlapping(index[~alone], start[~alone])
            if overlapping is None:
                return None
            rows = np.concatenate([rows, overlapping], axis=1)
            rows = rows[:, np.argsort(rows[1], kind="stable")]
        return rows[0], rows[1], rows[2], rows[3]

    def _merge_overlapping(self, index: Ints, start: Ints) -> Ints | None:
        """Returns the pieces, one per column, of segments that overlap; None when they hold different bytes."""
        arrived = np.argsort(index, kind="stable")
        parts = [
            Piece(
                at, at + len(payload), Segment(from_b=False, seq=0, ack=0, flags=0, length=0, payload=payload, frame=i)
            )
            for at, i in zip(start[arrived].tolist(), index[arrived].tolist(), strict=True)
            for payload in [self._payload(i)]
        ]
        pieces, conflict = merge(parts, Overlap.FIRST)
        if conflict:
            return None
        return np.array([(p.segment.frame, p.start, p.end, p.skip) for p in pieces], np.int64).reshape(-1, 4).T

    def _payload(self, index: int) -> memoryview:
        at = int(self._segments.payload[index])
        return self._view[at : at + int(self._segments.captured[index])]

    def _frame(self, index: Ints, start: Ints, stop: Ints, skip: Ints, first: int, result: _Preframed) -> None:
        """Frames the packets of bytes without a gap; the bytes before and after the packets stay segments."""
        base, size = int(start[0]), int(stop[-1] - start[0])
        begin = end = 0
        if size >= RUN_BYTES + TAIL_BYTES:
            at = self._segments.payload[index] + skip
            view = self._view
            data = b"".join([view[a : a + n] for a, n in zip(at.tolist(), (stop - start).tolist(), strict=True)])
            begin, sizes = frame_chain(data)
            end = begin + sum(sizes)
            while sizes and end > size - TAIL_BYTES:
                end -= sizes.pop()
            if end - begin >= RUN_BYTES and len(sizes) > 1:
                low = int(np.searchsorted(start, base + begin, "right")) - 1
                high = int(np.searchsorted(start, base + end, "left"))
                begins = np.maximum(start[low:high] - base, begin)
                skipped = skip[low:high] + begins - (start[low:high] - base)
                seq = (first + base + begin) & _MASK
                result.runs.append(_Run(data, begin, sizes, index[low:high], begins, skipped, seq))
            else:
                begin = end = 0
        for low, high in ((base, base + begin), (base + end, base + size)):
            inside = (start < high) & (stop > low)
            cut_start, cut_stop = np.maximum(start[inside], low), np.minimum(stop[inside], high)
            result.cuts.append(_Cuts(index[inside], skip[inside] + cut_start - start[inside], cut_stop - cut_start))


def _unwrap(numbers: Ints) -> Ints:
    """Returns sequence numbers as signed distances from the first of them."""
    distances: Ints = ((numbers - numbers[0] + _HALF) & _MASK) - _HALF
    return distances


def _run_rows(
    segments: Segments, runs: list[_Run], capture: int, base: int | None, options: IngestOptions
) -> pa.RecordBatch:
    """Returns one row per run: the payload of its segment is its first `HEAD_BYTES`, `run_packets` holds all of it."""
    first = np.array([run.segment[0] for run in runs])
    rows = segments.take(first)._replace(
        seq=np.array([run.seq for run in runs]),
        flags=np.full(len(runs), ACK),
        payload=np.arange(len(runs)) * HEAD_BYTES,
        captured=np.full(len(runs), HEAD_BYTES),
        length=np.array([sum(run.sizes) for run in runs]),
        header_sum=np.full(len(runs), PART_SUM),
    )
    heads = b"".join(run.data[run.begin : run.begin + HEAD_BYTES] for run in runs)
    times = [segments.time_ns[run.segment] for run in runs]
    timed = [time[time != NO_TIME] for time in times]
    batch = segment_rows(
        np.frombuffer(heads, np.uint8),
        rows,
        capture,
        time_ns=pa.array([int(time.min()) if len(time) else None for time in timed], pa.int64()),
        last_ns=pa.array([int(time.max()) if len(time) else None for time in timed], pa.int64()),
        file_offsets=pa.array([_file_offsets(segments, run, base) for run in runs], pa.binary()),
        framed_run=pa.repeat(pa.scalar(value=True), len(runs)),
    )
    field, at = EXTRACTED.field("run_packets"), EXTRACTED.get_field_index("run_packets")
    columns = {"frame": pa.array(rows.frame), "packets": pa.array(_packets(segments, runs, options))}
    return batch.set_column(at, field, struct_array(columns, field.type))


def _file_offsets(segments: Segments, run: _Run, base: int | None) -> bytes | None:
    """Returns where the capture holds each piece of a run, as `FILE_OFFSETS`; the block begins at byte `base`."""
    if base is None:
        return None
    rows = np.zeros(len(run.start), FILE_OFFSETS)
    rows["run_offset"] = run.start - run.begin
    rows["file_offset"] = base + segments.payload[run.segment] + run.skip
    return rows.tobytes()


def _packets(segments: Segments, runs: list[_Run], options: IngestOptions) -> list[bytes]:
    """Returns the packets of each run: rows of FRAMED_PACKETS as an Arrow stream."""
    shifts = np.cumsum([0] + [len(run.data) for run in runs[:-1]]).tolist()
    offsets = [np.cumsum([0, *run.sizes[:-1]]) for run in runs]
    start = np.concatenate([o + r.begin + shift for o, r, shift in zip(offsets, runs, shifts, strict=True)])
    size = np.concatenate([np.array(run.sizes) for run in runs])
    segment = np.concatenate([run.segment for run in runs])
    pieces = StreamPieces(
        np.concatenate([run.start + shift for run, shift in zip(runs, shifts, strict=True)]),
        segments.frame[segment],
        segments.time_ns[segment],
        np.zeros_like(segment),  # damaged ones are in no run
    )
    buffer = np.frombuffer(b"".join([run.data for run in runs]), np.uint8)
    columns = {"offset": pa.array(np.concatenate(offsets))} | pieces.packet_records(start, size)
    columns |= packet_columns(buffer, start, size, keep_bodies=options.keep_bodies, hiding_key=options.hiding_key)
    rows = pa.RecordBatch.from_struct_array(struct_array(columns, pa.struct(list(FRAMED_PACKETS))))
    bounds = np.cumsum([0] + [len(run.sizes) for run in runs]).tolist()
    return [_to_stream(rows.slice(low, high - low)) for low, high in pairwise(bounds)]


def _to_stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_PACKING) as stream:
        stream.write_batch(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack() -> Pass:
    """Turns framed runs (stream_id, stream_offset, capture_id, packets) into rows of `schemas.staging.PACKET`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for place in batch.to_pylist():
                rows = pa.ipc.open_stream(pa.py_buffer(place["packets"])).read_next_batch()
                offset = pc.add(rows.column("offset"), place["stream_offset"])
                fixed = {name: pa.repeat(place[name], rows.num_rows) for name in ("stream_id", "capture_id")}
                columns = {"stream_offset": offset} | fixed
                arrays = [columns[f.name] if f.name in columns else rows.column(f.name) for f in PACKET]
                yield pa.RecordBatch.from_arrays(arrays, schema=PACKET)

    return run
