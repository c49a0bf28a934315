"""The third pass of ingest: assembles the segments of connections into streams, and frames their packets."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import Compression, Stage, TcpReason
from schemas.staging import ASSEMBLED
from udfs.arrow.buffers import record_batch, struct_array
from udfs.capture.files import open_source
from udfs.capture.records import NO_TIME
from udfs.frames.rows import Batches, Pass
from udfs.ingest.faults import framing_detail, tcp_detail
from udfs.ingest.options import CaptureFile, IngestOptions
from udfs.msmq.framing import FramedPackets, Framer
from udfs.msmq.packet_rows import StreamPieces, arrival_number, capture_and_record, packet_columns
from udfs.network.dissect import DAMAGED
from udfs.network.endpoints import endpoint_text, stream_names, unpack_endpoint
from udfs.tcp import resume
from udfs.tcp.connections import Connection, Connections
from udfs.tcp.delivery import Piece, acked_bytes, deliver, find_attempt, missing_at_end
from udfs.tcp.direction import Direction, NeedsPayload, Segment

_ROWS = 10_000
_NEVER = np.iinfo(np.int64).max


def assemble_connections(options: IngestOptions, captures: Mapping[int, CaptureFile], *, final: bool) -> Pass:
    """Turns segments and rows of STATE_ROW, sorted by connection and ORDER, into rows of ASSEMBLED.

    `captures`: by rank. A connection whose rows lack bytes that are needed is named in `needs_payload`. With `final`,
    no row is a framed run, and segments from before the resumed state are not needed. Memory: the window of each
    direction of one connection, and a batch of packets.
    """

    def run(batches: Batches) -> Batches:
        out = _Out(options, captures)
        pair: _Pair | None = None
        for packed, state, segments in _by_connection(batches):
            if pair is None or pair.packed != packed:
                if pair is not None:
                    yield from pair.finish()
                pair = _Pair(packed, options, out, final=final)
            if state is not None:
                pair.resume(state)
            yield from pair.take(segments)
        if pair is not None:
            yield from pair.finish()
        yield from out.rest()

    return run


def _by_connection(batches: Batches) -> Iterator[tuple[bytes, str | None, list[Segment]]]:
    """Yields each connection, the state from which it resumes, and its next segments; it may span batches."""
    for batch in batches:
        if batch.num_rows:
            connection, state = batch.column("connection"), batch.column("state")
            segments = _segments(batch)
            start = 0
            for end in pc.run_end_encode(connection, pa.int32()).run_ends.to_pylist():
                rows = list(islice(segments, end - start))
                resumes = rows[0].capture < 0
                yield connection[start].as_py(), state[start].as_py() if resumes else None, rows[resumes:]
                start = end


def _segments(rows: pa.RecordBatch) -> Iterator[Segment]:
    """Yields the segments, with payloads as views of the Arrow buffers."""
    payload = rows.column("payload")
    _, offsets, data = payload.buffers()
    at = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + len(payload) + 1].tolist()
    view = memoryview(data or b"").cast("B")
    before = [rows.column(name).to_pylist() for name in ("from_b", "seq", "ack", "flags", "length")]
    places = [rows.column(name).to_pylist() for name in ("capture", "frame")]
    times = [rows.column(name).fill_null(NO_TIME).to_pylist() for name in ("time_ns", "last_ns")]
    framed_run = rows.column("framed_run").is_valid().to_pylist()
    after = [rows.column("header_sum").to_pylist(), framed_run, rows.column("file_offsets").to_pylist()]
    payloads = (view[start:end] for start, end in pairwise(at))
    return map(Segment, *before, payloads, *places, *times, *after)


class _Pair:
    """The connections between one pair of endpoints."""

    def __init__(self, packed: bytes, options: IngestOptions, out: "_Out", *, final: bool) -> None:
        self.packed = packed
        self._options = options
        self._out = out
        self._final = final
        self._connections = Connections(options.window_bytes)
        self._streams: dict[tuple[int, bool], _Stream] = {}
        self._waiting = 0
        self._needs_payload = False
        self._name = "-".join(endpoint_text(*unpack_endpoint(packed[at : at + 18])) for at in (0, 18))

    def resume(self, state: str) -> None:
        """Resumes from the state that an earlier run left."""
        for (instance, from_b), stream in resume.load(state, self._connections).items():
            self._stream(self._connections.at(instance), from_b=from_b).resume(stream)

    def take(self, segments: Iterable[Segment]) -> Batches:
        """Takes the next segments, and delivers the bytes that later segments cannot change."""
        if self._needs_payload:
            return
        try:
            for segment in segments:
                self._connections.take(segment)
                self._waiting += len(segment.payload)
            if self._waiting >= self._options.window_bytes:
                yield from self._deliver(last=False)
                self._waiting = 0
        except NeedsPayload as reason:
            self._give_up(reason)

    def finish(self) -> Batches:
        """Delivers the remaining bytes; yields the state from which the next run resumes."""
        try:
            if not self._needs_payload:
                self._connections.finish()
                yield from self._deliver(last=True)
                yield from self._close()
        except NeedsPayload as reason:
            self._give_up(reason)
        yield from self._out.full()

    def _give_up(self, reason: NeedsPayload) -> None:
        self._needs_payload = True
        self._out.add("needs_payload", self._name, {"packed": self.packed, "rewind": reason.rewind})

    def _stream(self, connection: Connection, *, from_b: bool) -> "_Stream":
        key = connection.instance, from_b
        if key not in self._streams:
            self._streams[key] = _Stream(self.packed, connection, self._options, self._out, from_b=from_b)
        return self._streams[key]

    def _deliver(self, *, last: bool) -> Batches:
        for connection in self._connections.all:
            for from_b, side in zip((False, True), connection.sides, strict=True):
                before = None
                if not last:
                    if side.end is None or not side.pending:
                        continue
                    before = side.end - self._options.window_bytes - side.base
                    if before <= side.done:
                        continue
                pieces = deliver(side, self._options.overlap, before, final=self._final, fetch=self._out.fetch)
                if pieces:
                    yield from self._stream(connection, from_b=from_b).add(pieces)

    def _close(self) -> Batches:
        """Yields the rows of the streams, of segments in no connection, and of the state for the next run."""
        for connection in self._connections.all:
            tried_from_b = connection.opened_by_b if find_attempt(connection) else None
            for from_b, side in zip((False, True), connection.sides, strict=True):
                has_bytes = side.done or side.rejected or missing_at_end(side)
                if has_bytes or from_b is tried_from_b or (connection.instance, from_b) in self._streams:
                    self._stream(connection, from_b=from_b).close()
                    yield from self._out.full()
        for segment in self._connections.outside:
            self._out.reject(self._name, None, segment, TcpReason.OUTSIDE_WINDOW)
        recent = self._connections.recent()
        open_streams = {key: stream for key, stream in self._streams.items() if key[0] >= recent[0].instance}
        tails = [{"stream_id": stream.stream_id, "stream_offset": stream.tail} for stream in open_streams.values()]
        state = resume.dump(self._connections, {key: stream.state() for key, stream in open_streams.items()})
        row = {"packed": self.packed, "first_instance": recent[0].instance, "tails": tails, "state": state}
        self._out.add("state", self._name, row)


class _Stream:
    """One direction of a connection: frames packets from its pieces."""

    def __init__(
        self, packed: bytes, connection: Connection, options: IngestOptions, out: "_Out", *, from_b: bool
    ) -> None:
        self._names = stream_names(packed, from_b=from_b, instance=connection.instance)
        self.stream_id: str = self._names["stream_id"]
        self._endpoints = self._names["connection_id"].rpartition("#")[0]
        self._connection = connection
        self._from_b = from_b
        self._options = options
        self._out = out
        self._framer: Framer | None = None
        self._pieces: list[tuple[int, int, int, int]] = []  # of StreamPieces, those in no packet yet
        self._resumed: list[str] = []  # identifiers of an earlier run's captures, which have negative ranks
        self._gaps = 0
        self._last: tuple[int, int] | None = None
        """Arrival and time of the last byte."""
        self._edges: dict[int, dict[str, Any]] = {}
        """By offset of a gap, in which capture and when the bytes before and after it were captured."""
        self._has_rows = False
        """Whether rows of it are in quarantine, so that it has a row itself although it may have no bytes."""
        self._recovered = 0
        self._first_ns, self._last_ns = int(_NEVER), int(NO_TIME)

    @property
    def tail(self) -> int:
        """Offset from which on the next run may replace rows."""
        return 0 if self._framer is None else self._framer.offset

    def add(self, pieces: Iterable[Piece]) -> Batches:
        """Frames the pieces that follow."""
        framer = self._framer
        if framer is None:
            mid_stream = self._side.isn is None
            framer = self._framer = Framer(mid_stream=mid_stream, raw_kept=self._options.raw_kept)
        for start, end, segment, skip, _ in pieces:
            arrival = arrival_number(segment.capture, segment.frame)
            if start > framer.end:
                self._edges[framer.end] = self._edge(arrival, segment.time_ns)
                self._add_framed(framer.gap(start - framer.end))
            self._pieces.append((start, arrival, segment.time_ns, segment.flags & DAMAGED))
            self._last = arrival, max(segment.time_ns, segment.last_ns)
            self._recovered += end - start
            if segment.time_ns != NO_TIME:
                self._first_ns = min(self._first_ns, segment.time_ns)
                self._last_ns = max(self._last_ns, segment.time_ns, segment.last_ns)
            if segment.framed_run:
                self._add_framed(framer.take_run(end - start, bytes(segment.payload)))
                place = {"capture": segment.capture, "frame": segment.frame, "stream_offset": start}
                self._out.add("framed_run", self._endpoints, place | {"stream_id": self.stream_id})
            else:
                self._add_framed(framer.feed(segment.payload[skip : skip + end - start]))
            self._forget(framer.offset)
            yield from self._out.full()

    @property
    def _side(self) -> Direction:
        return self._connection.sides[self._from_b]

    def close(self) -> None:
        """Adds the rows of the stream as it is now, and of the bytes that are in no packet yet."""
        side = self._side
        if self._framer is not None:
            self._add_framed([self._framer.frame_decided()])
            self._add_framed(self._framer.frame_rest())
        at_end = missing_at_end(side)
        for offset, length in [*side.gaps[self._gaps :], *([(side.done, at_end)] if at_end else [])]:
            row = {"stream_id": self.stream_id, "stream_offset": offset, "length": length}
            self._out.add("gap", self._endpoints, row | (self._edges.pop(offset, None) or self._edge()))
        self._gaps = len(side.gaps)
        for segment, reason in side.rejected:
            self._out.reject(self._endpoints, self.stream_id, segment, reason)
            self._has_rows = True
        first_ns, last_ns = self._first_ns, self._last_ns
        attempt = find_attempt(self._connection)
        if attempt:
            first_ns, last_ns = self._connection.first_ns, self._connection.last_ns
        seen_ns = self._connection.last_ns
        answered_ns = self._connection.sides[not self._from_b].last_ns
        ended_by_b, ended_ns = self._connection.ended_by_b, self._connection.ended_ns
        shut_from_ns, shut_ns = side.longest_shut(seen_ns)
        self._out.add(
            "stream",
            self._endpoints,
            self._names
            | {
                "from_initiator": self._from_initiator(),
                "instance": self._connection.instance,
                "initial_seq": None if side.isn is None else side.isn % (1 << 32),
                "recovered_bytes": self._recovered,
                "missing_bytes": sum(length for _, length in side.gaps) + at_end,
                "acked_bytes": acked_bytes(side),
                "closed": self._connection.closed,
                "conflict": side.conflict,
                "mid_stream": side.isn is None,
                "first_ns": None if last_ns == NO_TIME else first_ns,
                "last_ns": None if last_ns == NO_TIME else last_ns,
                "attempt": attempt,
                "connection_last_ns": None if seen_ns == NO_TIME else seen_ns,
                "receiver_last_ns": None if answered_ns == NO_TIME else answered_ns,
                "ended_by_receiver": None if ended_by_b is None else ended_by_b is not self._from_b,
                "ended_ns": None if ended_ns == NO_TIME else ended_ns,
                "window_shut_from_ns": shut_from_ns,
                "window_shut_ms": None if shut_from_ns is None else shut_ns // 1_000_000,
            },
        )

    def state(self) -> dict[str, Any] | None:
        """Returns the stream's state for the next run, as JSON types and bytes; None if it had neither bytes nor rows.

        An attempt to connect has a row only until the connection carries bytes.
        """
        if self._framer is None and not self._has_rows:
            return None
        self._forget(self.tail)
        places = [(start, *capture_and_record(number), *more) for start, number, *more in self._pieces]
        last = self._last and (*capture_and_record(self._last[0]), self._last[1])
        ranks = sorted({rank for _, rank, *_ in places} | ({last[0]} if last else set()))
        return {
            "framer": self._framer and self._framer.state(keep_bodies=self._options.keep_bodies),
            "captures": [self._capture_id(rank) for rank in ranks],
            "pieces": [(start, ranks.index(rank), frame, *more) for start, rank, frame, *more in places],
            "last": last and (ranks.index(last[0]), *last[1:]),
            "recovered": self._recovered,
            "times": (self._first_ns, self._last_ns),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Resumes from what `state` returned; its captures get negative ranks, in their order."""
        if state["framer"] is not None:
            self._framer = Framer.resume(state["framer"], raw_kept=self._options.raw_kept)
        self._has_rows = True
        self._resumed = state["captures"]
        self._pieces = [
            (start, arrival_number(index - len(self._resumed), frame), time_ns, damaged[0] if damaged else 0)
            for start, index, frame, time_ns, *damaged in state["pieces"]  # a release before 2.0 left four of them
        ]
        if last := state.get("last"):  # which states of a release before 2.0 lack
            self._last = arrival_number(last[0] - len(self._resumed), last[1]), last[2]
        self._recovered = state["recovered"]
        self._first_ns, self._last_ns = state["times"]
        self._gaps = len(self._side.gaps)

    def _edge(self, arrival: int | None = None, time_ns: int = int(NO_TIME)) -> dict[str, Any]:
        """Returns what STREAM_GAPS tells of a gap behind the last byte; `arrival` and time are of the next, if any."""
        before, last_ns = self._last or (None, NO_TIME)
        of = before if arrival is None else arrival
        return {
            "capture_id": None if of is None else self._capture_id(capture_and_record(of)[0]),
            "last_before_ns": None if last_ns == NO_TIME else last_ns,
            "first_after_ns": None if time_ns == NO_TIME else time_ns,
        }

    def _capture_id(self, rank: int) -> str:
        return self._resumed[rank] if rank < 0 else self._out.captures[rank].capture_id

    def _from_initiator(self) -> bool | None:
        if self._connection.opened_by_b is not None:
            return self._connection.opened_by_b is self._from_b
        to_port, from_port = (self._names[name] in self._options.ports for name in ("dst_port", "src_port"))
        return to_port if to_port is not from_port else None

    def _add_framed(self, parts: Iterable[FramedPackets]) -> None:
        for framed in parts:
            if not framed.starts and not framed.unframed:
                continue
            pieces = StreamPieces(*np.array(self._pieces, np.int64).reshape(-1, 4).T)
            for run in framed.unframed:
                rank, frame = capture_and_record(pieces.at(run.offset))
                self._out.add(
                    "quarantine",
                    self._endpoints,
                    {"stage": Stage.FRAMING, "detail": framing_detail(run), "stream_id": self.stream_id}
                    | {"reason": run.reason, "capture_id": self._capture_id(rank), "frame_number": frame}
                    | {"stream_offset": run.offset, "length": run.length, "raw": run.raw},
                )
            if framed.starts:
                start, size = np.array(framed.starts, np.int64), np.array(framed.sizes, np.int64)
                columns = pieces.packet_records(start + framed.base, size)
                ranks = columns.pop("capture").dictionary_encode()
                ids = pa.array([self._capture_id(rank) for rank in ranks.dictionary.to_pylist()], pa.string())
                columns["capture_id"] = pa.DictionaryArray.from_arrays(ranks.indices, ids).cast(pa.string())
                columns["stream_offset"] = pa.array(start + framed.base)
                self._out.add_packets(self._endpoints, self.stream_id, framed, columns)

    def _forget(self, offset: int) -> None:
        """Drops the pieces that end at or before an offset."""
        index = bisect_right(self._pieces, offset, key=lambda piece: piece[0]) - 1
        if index > 0:
            del self._pieces[:index]


class _Out:
    """Collects rows of each kind until there is a batch of them; `captures`: by rank."""

    def __init__(self, options: IngestOptions, captures: Mapping[int, CaptureFile]) -> None:
        self.captures = captures
        self._options = options
        self._rows: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self._packets: list[tuple[str, str, FramedPackets, dict[str, Any]]] = []
        self._bytes = 0

    def fetch(self, capture: int, place: int, length: int) -> bytes:
        """Reads bytes of an uncompressed capture again."""
        return open_source(self.captures[capture].uri, Compression.NONE, place).read(length)

    def add(self, kind: str, endpoints: str, row: Any) -> None:
        """Adds a row of one kind, which is a column of ASSEMBLED."""
        self._rows[kind].append((endpoints, row))

    def add_packets(self, endpoints: str, stream_id: str, framed: FramedPackets, places: dict[str, Any]) -> None:
        """Adds framed packets; `places`: columns of the records that they came from."""
        self._packets.append((endpoints, stream_id, framed, places))
        self._bytes += len(framed.data)

    def reject(self, endpoints: str, stream_id: str | None, segment: Segment, reason: TcpReason) -> None:
        """Adds the quarantine row of a segment that is not part of its stream."""
        length = len(segment.payload)
        self.add(
            "quarantine",
            endpoints,
            {
                "stage": Stage.TCP,
                "reason": reason,
                "detail": tcp_detail(reason, segment.frame, segment.seq, length),
                "capture_id": self.captures[segment.capture].capture_id,
                "stream_id": stream_id,
                "frame_number": segment.frame,
                "length": length,
                "raw": bytes(segment.payload[: self._options.raw_kept]),
            },
        )

    def full(self) -> Batches:
        """Yields all rows when they are enough for a batch."""
        if self._bytes >= self._options.batch_bytes or sum(map(len, self._rows.values())) >= _ROWS:
            yield from self.rest()

    def rest(self) -> Batches:
        """Yields all rows that were added since the last batch."""
        for kind, rows in self._rows.items():
            if rows:
                values = pa.array([row for _, row in rows], ASSEMBLED.field(kind).type)
                yield self._batch(kind, pa.array([endpoints for endpoints, _ in rows]), values)
                rows.clear()
        if self._packets:
            counts = [len(framed.starts) for _, _, framed, _ in self._packets]
            endpoints = pa.array(np.repeat([endpoints for endpoints, *_ in self._packets], counts))
            yield self._batch("packet", endpoints, self._packet_rows(counts))
            self._packets.clear()
        self._bytes = 0

    def _batch(self, kind: str, endpoints: pa.Array, rows: pa.Array) -> pa.RecordBatch:
        return record_batch({"endpoints": endpoints, kind: rows}, len(rows), ASSEMBLED)

    def _packet_rows(self, counts: list[int]) -> pa.StructArray:
        framed = [framed for _, _, framed, _ in self._packets]
        buffer = np.frombuffer(b"".join([one.data for one in framed]), np.uint8)
        shifts = np.cumsum([0] + [len(one.data) for one in framed[:-1]]).tolist()
        dropped = [run.moved(-shift) for one, shift in zip(framed, shifts, strict=True) for run in one.dropped]
        start = np.concatenate([np.array(one.starts) + shift for one, shift in zip(framed, shifts, strict=True)])
        size = np.concatenate([np.array(one.sizes) for one in framed])
        places = [place for *_, place in self._packets]
        columns = {name: pa.concat_arrays([place[name] for place in places]) for name in places[0]}
        columns["stream_id"] = pa.array(np.repeat([stream_id for _, stream_id, *_ in self._packets], counts))
        options = self._options
        columns |= packet_columns(
            buffer, start, size, keep_bodies=options.keep_bodies, dropped=dropped, hiding_key=options.hiding_key
        )
        return struct_array(columns, ASSEMBLED.field("packet").type)
