"""The third pass of ingest: connections in, streams and packets out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.ingest import FramingReason, Stage, TcpReason
from udfs.arrow import slices
from udfs.framing import Framed, Framer, Unframed
from udfs.gather import Packets
from udfs.options import Batches, IngestOptions, Pass
from udfs.outline import PACKET_TYPES, outline
from udfs.records import NO_TIME
from udfs.tcp import Connection, Piece, Segment, Stream, assemble, connections


def assemble_connections(options: IngestOptions, segments: pa.Schema, schema: pa.Schema) -> Pass:
    """From rows of `segments`, sorted by connection, capture and frame, to rows of `schemas.staging.ASSEMBLED`.

    Memory: the segments of one connection, and a batch of packets.
    """

    def run(batches: Batches) -> Batches:
        out = _Out(options, schema)
        for rows in _by_connection(batches, segments):
            if rows.column("seq").null_count:
                out.pass_on(rows)
            else:
                yield from out.connection(rows)
            yield from out.full()
        yield from out.rest()

    return run


def _by_connection(batches: Batches, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of each connection, together; a connection may go on from batch to batch."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        ends = pc.run_end_encode(batch.column("connection"), pa.int32()).run_ends.to_pylist()
        start = 0
        for end in ends:
            if held and held[-1].column("connection")[-1] != batch.column("connection")[start]:
                yield pa.Table.from_batches(held, schema)
                held = []
            held.append(batch.slice(start, end - start))
            start = end
    if held:
        yield pa.Table.from_batches(held, schema)


class _Out:
    """Collects rows of each kind until there is a batch of them."""

    def __init__(self, options: IngestOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._rows: dict[str, list[dict[str, Any]]] = {
            kind: [] for kind in ("stream", "gap", "quarantine", "held", "counts")
        }
        self._framed: list[tuple[str, Framed, _Arrivals]] = []
        self._bytes = 0

    def pass_on(self, rows: pa.Table) -> None:
        """Take the rows of a split that are no segments."""
        for row in rows.to_pylist():
            if row["others"] is not None:
                self._rows["counts"].append({"capture": row["capture"], "segments": 0, "others": row["others"]})
            else:
                self._rows["quarantine"].append(
                    {name: row[name] for name in ("stage", "reason", "detail", "capture", "length")}
                    | {"frame_number": row["frame"] or None, "stream_offset": row["offset"], "raw": row["payload"]}
                )

    def connection(self, rows: pa.Table) -> Batches:
        """Put the streams of one pair of endpoints together and frame them."""
        endpoints = rows.column("connection")[0].as_py()
        segments = list(_segments(rows))
        arrivals = _Arrivals(rows)
        low, high = (_printed(*_endpoint(endpoints[at : at + 18])) for at in (0, 18))
        for capture, count in zip(*np.unique(arrivals.capture, return_counts=True), strict=True):
            self._rows["held"].append({"endpoints": f"{low}-{high}", "packed": endpoints, "capture": int(capture)})
            self._rows["counts"].append({"capture": int(capture), "segments": int(count), "others": 0})
        found, outside = connections(segments)
        for index in outside:
            self._reject(index, TcpReason.OUTSIDE_WINDOW, None, segments, arrivals)
        for instance, connection in enumerate(found):
            for from_b, side in zip((False, True), connection.sides, strict=True):
                stream = assemble(side, segments, self._options.overlap)
                if not (stream.pieces or stream.gaps or stream.rejected):
                    continue
                names = _names(endpoints, from_b=from_b, instance=instance)
                ids = names | {"from_initiator": self._from_initiator(connection, names, from_b=from_b)}
                self._add_stream(ids, instance, stream, arrivals)
                for index, reason in stream.rejected:
                    self._reject(index, reason, names["stream_id"], segments, arrivals)
                of_stream = arrivals.of(stream.pieces)
                for part in self._frame(stream, segments):
                    self._add_framed(names["stream_id"], part, of_stream)
                    yield from self.full()

    def _from_initiator(self, connection: Connection, names: dict[str, Any], *, from_b: bool) -> bool | None:
        if connection.opened_by_b is not None:
            return connection.opened_by_b is from_b
        to_port, from_port = (names[name] in self._options.ports for name in ("dst_port", "src_port"))
        return to_port if to_port is not from_port else None

    def _frame(self, stream: Stream, segments: Sequence[Segment]) -> Iterator[Framed]:
        framer = Framer(mid_stream=stream.initial_seq is None, raw_kept=self._options.quarantine_raw_bytes)
        for run in _runs(stream.pieces):
            parts = (segments[p.segment].payload[p.skip : p.skip + p.end - p.start] for p in run)
            yield from framer.run(run[0].start, parts)

    def _add_stream(self, ids: dict[str, Any], instance: int, stream: Stream, arrivals: "_Arrivals") -> None:
        used = arrivals.time_ns[[piece.segment for piece in stream.pieces]]
        times = used[used != NO_TIME]
        self._rows["stream"].append(
            ids
            | {
                "instance": instance,
                "initial_seq": stream.initial_seq,
                "recovered_bytes": sum(piece.end - piece.start for piece in stream.pieces),
                "missing_bytes": sum(length for _, length in stream.gaps),
                "conflict": stream.conflict,
                "mid_stream": stream.initial_seq is None,
                "first_ns": int(times.min()) if len(times) else None,
                "last_ns": int(times.max()) if len(times) else None,
            }
        )
        for offset, length in stream.gaps:
            self._rows["gap"].append({"stream_id": ids["stream_id"], "stream_offset": offset, "length": length})

    def _reject(
        self, index: int, reason: TcpReason, stream_id: str | None, segments: Sequence[Segment], arrivals: "_Arrivals"
    ) -> None:
        segment, frame = segments[index], int(arrivals.frame[index])
        self._rows["quarantine"].append(
            {
                "stage": Stage.TCP,
                "reason": reason,
                "detail": _TCP_DETAILS[reason].format(frame=frame, seq=segment.seq, length=len(segment.payload)),
                "capture": int(arrivals.capture[index]),
                "stream_id": stream_id,
                "frame_number": frame,
                "length": len(segment.payload),
                "raw": bytes(segment.payload[: self._options.quarantine_raw_bytes]),
            }
        )

    def _add_framed(self, stream_id: str, framed: Framed, arrivals: "_Arrivals") -> None:
        for run in framed.unframed:
            capture, frame = arrivals.at(run.offset)
            self._rows["quarantine"].append(
                {"stage": Stage.FRAMING, "detail": _framing_detail(run), "stream_id": stream_id}
                | {"reason": run.reason, "capture": capture, "frame_number": frame, "stream_offset": run.offset}
                | {"length": run.length, "raw": run.raw}
            )
        if framed.starts:
            self._framed.append((stream_id, framed, arrivals))
            self._bytes += len(framed.data)

    def full(self) -> Batches:
        """What has grown to a batch."""
        if self._bytes >= self._options.batch_bytes or sum(map(len, self._rows.values())) >= _ROWS:
            yield from self.rest()

    def rest(self) -> Batches:
        """All that is left."""
        for kind, rows in self._rows.items():
            if rows:
                yield self._batch(kind, pa.array(rows, self._schema.field(kind).type))
                rows.clear()
        if self._framed:
            yield self._batch("packet", self._packets())
            self._framed.clear()
            self._bytes = 0

    def _batch(self, kind: str, rows: pa.Array) -> pa.RecordBatch:
        arrays = [rows if field.name == kind else pa.nulls(len(rows), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _packets(self) -> pa.StructArray:
        buffer = np.frombuffer(b"".join([framed.data for _, framed, _ in self._framed]), np.uint8)
        shifts = np.cumsum([0] + [len(framed.data) for _, framed, _ in self._framed])
        counts = [len(framed.starts) for _, framed, _ in self._framed]
        starts = np.concatenate([np.array(f.starts) + s for (_, f, _), s in zip(self._framed, shifts, strict=False)])
        sizes = np.concatenate([np.array(f.sizes) for _, f, _ in self._framed])
        places = [arrivals.of_packets(framed) for _, framed, arrivals in self._framed]
        lines = outline(Packets.whole(buffer, starts, sizes))
        raw = sizes if self._options.keep_bodies else lines["raw_size"].astype(np.int64)
        trailer_at = np.where(lines["trailer_offset"] < 0, sizes, lines["trailer_offset"])
        whole = self._options.keep_bodies | (lines["trailer_offset"] < 0)
        trailer = slices(buffer, starts + trailer_at, np.where(whole, 0, sizes - trailer_at))
        time_ns = np.concatenate([place.time_ns for place in places])
        columns = {
            "stream_id": pa.array(np.repeat([stream_id for stream_id, _, _ in self._framed], counts)),
            "stream_offset": pa.array(np.concatenate([np.array(f.starts) + f.base for _, f, _ in self._framed])),
            "size": pa.array(sizes),
            "packet_type": pa.array(_PACKET_TYPES[lines["packet_type"]]),
            "captured_ns": pa.array(time_ns, mask=time_ns == NO_TIME),
            "capture": pa.array(np.concatenate([place.capture for place in places])),
            "first_frame": pa.array(np.concatenate([place.first_frame for place in places])),
            "last_frame": pa.array(np.concatenate([place.last_frame for place in places])),
            "raw": slices(buffer, starts, raw),
            "trailer": pc.if_else(pa.array(whole), pa.scalar(None, pa.binary()), trailer),
        }
        fields = list(self._schema.field("packet").type)
        return pa.StructArray.from_arrays([columns[f.name].cast(f.type) for f in fields], fields=fields)


_ROWS = 10_000
_PACKET_TYPES = np.array([str(packet_type) for packet_type in PACKET_TYPES])
_TCP_DETAILS = {
    TcpReason.OUTSIDE_WINDOW: "The {length} bytes of record {frame} carry sequence number {seq}, far from where their "
    "direction was, and nothing follows them there.",
    TcpReason.BEFORE_START: "The {length} bytes of record {frame} (sequence number {seq}) lie before the first byte of "
    "their stream.",
    TcpReason.AFTER_FIN: "The {length} bytes of record {frame} (sequence number {seq}) lie after the end that the FIN "
    "of their stream announced.",
}
_FRAMING_DETAILS = {
    FramingReason.BAD_SIGNATURE: "where a packet should begin there is no MSMQ signature",
    FramingReason.BAD_VERSION: "the header there has a version other than 0x10",
    FramingReason.BAD_PACKET_SIZE: "the header there announces less than 16 bytes or more than 4 MiB",
    FramingReason.INCOMPLETE_FRAME: "the packet that begins there, or before a gap, is not complete",
    FramingReason.AFTER_GAP: "bytes before it are missing, so that no packet's beginning is known",
    FramingReason.MID_STREAM: "the capture began inside the stream, so that no packet's beginning is known",
}


def _framing_detail(run: Unframed) -> str:
    return f"{run.length} bytes from stream offset {run.offset} on are in no packet: {_FRAMING_DETAILS[run.reason]}."


def _segments(rows: pa.Table) -> Iterator[Segment]:
    """The segments; payloads are views of the Arrow buffers."""
    for batch in rows.to_batches():
        payload = batch.column("payload")
        _, offsets, data = payload.buffers()
        at = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + len(payload) + 1].tolist()
        view = memoryview(data or b"")
        columns = [batch.column(name).to_pylist() for name in ("from_b", "seq", "ack", "flags", "length")]
        payloads = (view[start:end] for start, end in pairwise(at))
        yield from map(Segment, *columns, payloads)


def _runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """The pieces, as many together as follow one another without a gap."""
    run: list[Piece] = []
    for piece in pieces:
        if run and run[-1].end != piece.start:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _names(endpoints: bytes, *, from_b: bool, instance: int) -> dict[str, Any]:
    a, b = (_endpoint(endpoints[at : at + 18]) for at in (0, 18))
    (src, src_port), (dst, dst_port) = (b, a) if from_b else (a, b)
    low, high = _printed(*a), _printed(*b)
    source, target = (high, low) if from_b else (low, high)
    return {
        "stream_id": f"{source}>{target}#{instance}",
        "connection_id": f"{low}-{high}#{instance}",
        "src_ip": src,
        "src_port": src_port,
        "dst_ip": dst,
        "dst_port": dst_port,
    }


def _printed(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _endpoint(packed: bytes) -> tuple[str, int]:
    address = IPv6Address(packed[:16])
    return str(address.ipv4_mapped or address), int.from_bytes(packed[16:], "big")


@dataclass(frozen=True, slots=True)
class _Places:
    """Where packets came from, one element a packet."""

    time_ns: NDArray[np.int64]
    capture: NDArray[np.int64]
    first_frame: NDArray[np.int64]
    last_frame: NDArray[np.int64]


class _Arrivals:
    """Capture, record number and time of segments, by their index; and, `of` a stream, of its bytes."""

    def __init__(self, rows: pa.Table) -> None:
        self.capture = rows.column("capture").to_numpy()
        self.frame = rows.column("frame").to_numpy()
        self.time_ns = rows.column("time_ns").fill_null(NO_TIME).to_numpy()
        self._starts = self._segments = np.zeros(0, np.int64)

    def of(self, pieces: Sequence[Piece]) -> "_Arrivals":
        """The arrivals of a stream, to be asked by stream offset."""
        stream = object.__new__(_Arrivals)
        stream.capture, stream.frame, stream.time_ns = self.capture, self.frame, self.time_ns
        stream._starts = np.array([piece.start for piece in pieces], np.int64)
        stream._segments = np.array([piece.segment for piece in pieces], np.int64)
        return stream

    def at(self, offset: int) -> tuple[int, int]:
        """Capture and record number of the byte at a stream offset."""
        segment = self._segments[np.searchsorted(self._starts, offset, "right") - 1]
        return int(self.capture[segment]), int(self.frame[segment])

    def of_packets(self, framed: Framed) -> _Places:
        """Of each packet: the segment that arrived last, and the lowest record number in that segment's capture."""
        start = np.array(framed.starts, np.int64) + framed.base
        first = np.searchsorted(self._starts, start, "right") - 1
        last = np.searchsorted(self._starts, start + np.array(framed.sizes), "left")
        ends = np.stack([first, last], axis=1).ravel()
        segments = np.append(self._segments, -1)
        done = np.maximum.reduceat(segments, ends)[::2]
        capture = self.capture[done]
        frames = np.append(self.frame[self._segments], np.iinfo(np.int64).max)
        first_frame = np.minimum.reduceat(frames, ends)[::2]
        mixed = self.capture[np.minimum.reduceat(np.append(self._segments, len(self.capture)), ends)[::2]] != capture
        for i in np.flatnonzero(mixed).tolist():
            of_packet = self._segments[first[i] : last[i]]
            first_frame[i] = self.frame[of_packet[self.capture[of_packet] == capture[i]]].min()
        return _Places(self.time_ns[done], capture, first_frame, self.frame[done])
