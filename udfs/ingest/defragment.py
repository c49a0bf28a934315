"""Between the second and the third pass of ingest: reassembles IP fragments into TCP segments.

[RFC 791] 3.2, [RFC 8200] 4.5. A datagram is complete when its last missing byte arrives; the next fragment with the
same key begins another datagram, because identifications are reused. Where fragments overlap, the first to arrive wins.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.ingest import FrameReason, Stage
from schemas.staging import EXTRACTED, Counted
from udfs.capture.records import NO_TIME, Records
from udfs.frames.rows import Batches, Pass
from udfs.ingest.options import IngestOptions
from udfs.network.dissect import find_segments
from udfs.network.segment_rows import FRAME_DETAILS, segment_rows
from udfs.network.tunnels import TUNNEL_PORTS

_LARGEST = 0xFFFF
"""Most payload bytes of a datagram: a length field cannot express more."""
_PENDING = 512
"""Most fragments of an incomplete datagram, copies included."""
_PENDING_BYTES = 1 << 17
"""Most different bytes among these: room for the largest datagram, fragmented in two ways."""
_PATIENCE_NS = 60 * 1_000_000_000  # [RFC 8200] 4.5
_ROWS = 10_000
_RAW_IPV6 = 229
_UDP = 17
_LOST = "lost"
"""The fate of a complete datagram that cannot be read."""


class _Content(NamedTuple):
    """Header fields and payload of a fragment; copies of a fragment have equal contents."""

    offset: int
    more: bool
    length: int
    payload: bytes


class _Arrival(NamedTuple):
    """A captured fragment."""

    capture: int
    frame: int
    order: int | None
    time_ns: int | None
    content: _Content


@dataclass(slots=True, eq=False)
class _Datagram:
    """A complete datagram: its payload up to the first byte that was not captured, and its length on the wire."""

    key: bytes
    data: bytes
    length: int
    arrivals: list[_Arrival]
    contents: dict[_Content, None]
    completed_by: _Arrival
    fate: str | None = None
    """The name under which its fragments are counted (`Counted`), or `_LOST`; None before it is parsed."""


@dataclass(slots=True)
class _Pending:
    """Fragments of an incomplete datagram. `on_wire`, `captured`: bit masks, one bit per byte of the datagram."""

    arrivals: list[_Arrival] = field(default_factory=list)
    contents: dict[_Content, None] = field(default_factory=dict)
    size: int = 0
    total: int | None = None
    on_wire: int = 0
    captured: int = 0

    def has_room(self, content: _Content) -> bool:
        """Tells whether another fragment fits the limits."""
        return len(self.arrivals) < _PENDING and self.size + len(content.payload) <= _PENDING_BYTES

    def waits_for(self, time_ns: int | None) -> bool:
        """Tells whether a fragment that arrives then may belong to the same datagram."""
        first = self.arrivals[0].time_ns if self.arrivals else None
        return first is None or time_ns is None or abs(time_ns - first) <= _PATIENCE_NS

    def add(self, arrival: _Arrival) -> None:
        """Adds a fragment; a copy of a known one takes no room."""
        offset, more, length, payload = arrival.content
        self.arrivals.append(arrival)
        if arrival.content in self.contents:
            return
        self.contents[arrival.content] = None
        self.size += len(payload)
        self.on_wire |= ((1 << length) - 1) << offset
        self.captured |= ((1 << len(payload)) - 1) << offset
        if not more and self.total is None:
            self.total = offset + length

    def datagram(self, key: bytes) -> _Datagram | None:
        """Returns the datagram; None while a byte is missing."""
        if self.total is None or ~self.on_wire & ((1 << self.total) - 1):
            return None
        data = bytearray(self.on_wire.bit_length())
        for content in reversed(self.contents):
            data[content.offset : content.offset + len(content.payload)] = content.payload
        first_hole = (~self.captured & (self.captured + 1)).bit_length() - 1
        captured = bytes(data[: min(first_hole, self.total)])
        own = [arrival for arrival in self.arrivals if not self.is_behind(arrival.content)]
        contents = {arrival.content: None for arrival in own}
        return _Datagram(key, captured, self.total, own, contents, self.arrivals[-1])

    def is_behind(self, content: _Content) -> bool:
        """Tells whether all bytes of a fragment lie after the datagram's end."""
        return self.total is not None and content.offset >= self.total and content.length > 0


def defragment(options: IngestOptions) -> Pass:
    """Turns fragments (`schemas.staging.EXTRACTED`), sorted by key and ORDER, into other rows of EXTRACTED.

    One segment per complete datagram that is one from or to one of the ports, with record and time of the fragment that
    completed it. One fault (`ip_fragment`) per fragment of a datagram that never completes or is not a readable TCP
    segment, and per fragment that lies after its datagram's end. Two counts per capture: of the fragments of segments,
    and of those of datagrams to other ports, also of UDP datagrams that never complete and show no port of a tunnel. So
    every fragment is a fault or is counted, once.

    A datagram cut by the snap length has the bytes before the first missing one. A datagram is given up when fragments
    with its key are 60 s apart, or when more of them arrive than any datagram has. Exact copies of a complete
    datagram's fragments, as a mirror port makes, belong to it until a fragment comes that is none.

    Memory: the pending fragments of one key, and a batch of datagrams.
    """

    def run(batches: Batches) -> Batches:
        out = _Out(options)
        state = _Key(b"", out)
        for key, arrival in _arrivals(batches):
            if key != state.key:
                state.give_up()
                state = _Key(key, out)
            state.take(arrival)
            yield from out.full()
        state.give_up()
        yield from out.rest()
        yield from out.counts()

    return run


def _arrivals(batches: Batches) -> Iterator[tuple[bytes, _Arrival]]:
    """Yields the fragments with their keys."""
    for batch in batches:
        keys, captures, frames, orders, times, *contents = (
            batch.column(name).to_pylist()
            for name in ("key", "capture", "frame", "order", "time_ns", "offset", "more", "length", "payload")
        )
        yield from zip(keys, map(_Arrival, captures, frames, orders, times, map(_Content, *contents)), strict=True)


class _Key:
    """The consecutive datagrams with one key."""

    def __init__(self, key: bytes, out: "_Out") -> None:
        self.key = key
        self._out = out
        self._pending = _Pending()
        self._before: _Datagram | None = None

    def take(self, arrival: _Arrival) -> None:
        """Assigns the next fragment to its datagram."""
        content = arrival.content
        if content.offset + content.length > _LARGEST:
            self._out.lose([arrival])
            return
        if self._before is not None and not self._pending.arrivals and content in self._before.contents:
            self._out.join(self._before, [arrival])
            return
        if not (self._pending.waits_for(arrival.time_ns) and self._pending.has_room(content)):
            self.give_up()
        self._pending.add(arrival)
        if (datagram := self._pending.datagram(self.key)) is not None:
            behind = [other for other in self._pending.arrivals if self._pending.is_behind(other.content)]
            self._pending, self._before = _Pending(), datagram
            self._out.complete(datagram)
            self._out.lose(behind)

    def give_up(self) -> None:
        """Gives up the pending datagram."""
        arrivals = self._pending.arrivals
        if self.key[-1:] == bytes([_UDP]) and not any(_enters_tunnel(arrival.content) for arrival in arrivals):
            self._out.pass_over(arrivals)
        else:
            self._out.lose(arrivals)
        self._pending = _Pending()


def _enters_tunnel(content: _Content) -> bool:
    """Tells whether a fragment of a UDP datagram shows that it goes to a port of a tunnel."""
    return content.offset == 0 and int.from_bytes(content.payload[2:4], "big") in TUNNEL_PORTS


class _Out:
    """Collects rows until there is a batch of them."""

    def __init__(self, options: IngestOptions) -> None:
        self._options = options
        self._datagrams: list[_Datagram] = []
        self._lost: list[_Arrival] = []
        self._bytes = 0
        self._counts: Counter[tuple[int, str]] = Counter()

    def complete(self, datagram: _Datagram) -> None:
        """Adds a complete datagram, which is parsed with its batch."""
        self._datagrams.append(datagram)
        self._bytes += len(datagram.data)

    def join(self, datagram: _Datagram, arrivals: list[_Arrival]) -> None:
        """Adds copies of a datagram's fragments, which share its fate."""
        if datagram.fate is None:
            datagram.arrivals += arrivals
        elif datagram.fate == _LOST:
            self.lose(arrivals)
        else:
            self._counts.update((arrival.capture, datagram.fate) for arrival in arrivals)

    def pass_over(self, arrivals: Iterable[_Arrival]) -> None:
        """Counts fragments of other traffic."""
        self._counts.update((arrival.capture, Counted.OTHER.value) for arrival in arrivals)

    def lose(self, arrivals: Iterable[_Arrival]) -> None:
        """Adds fragments that are faults."""
        for arrival in arrivals:
            self._lost.append(arrival)
            self._bytes += len(arrival.content.payload)

    def full(self) -> Batches:
        """Yields all rows when they are enough for a batch."""
        if self._bytes >= self._options.batch_bytes or len(self._datagrams) + len(self._lost) >= _ROWS:
            yield from self.rest()

    def rest(self) -> Batches:
        """Yields all rows that were added since the last batch, without counts."""
        if self._datagrams:
            yield self._parse()
        if self._lost:
            rows = [_fault(arrival, self._options.raw_kept) for arrival in self._lost]
            yield pa.RecordBatch.from_pylist(rows, EXTRACTED)
        self._datagrams, self._lost, self._bytes = [], [], 0

    def counts(self) -> Batches:
        """Yields how many fragments of each capture belong to segments, and how many to other traffic."""
        counts = sorted(self._counts.items())
        if rows := [{"capture": capture, "count": {"what": what, "records": n}} for (capture, what), n in counts]:
            yield pa.RecordBatch.from_pylist(rows, EXTRACTED)

    def _parse(self) -> pa.RecordBatch:
        """Returns the rows of the segments among the datagrams, and sets the fate of all datagrams."""
        records = _records(self._datagrams)
        segments, rejected, nested = find_segments(records, self._options.ports)
        fates = dict.fromkeys(rejected.frame.tolist() + nested.frame.tolist(), _LOST)
        fates |= dict.fromkeys(segments.frame.tolist(), Counted.SEGMENT.value)
        for number, datagram in enumerate(self._datagrams, records.first_frame):
            datagram.fate = fates.get(number, Counted.OTHER.value)
            arrivals, datagram.arrivals, datagram.data = datagram.arrivals, [], b""
            self.join(datagram, arrivals)
        last = [self._datagrams[number - records.first_frame].completed_by for number in segments.frame.tolist()]
        times = [NO_TIME if arrival.time_ns is None else arrival.time_ns for arrival in last]
        placed = segments._replace(
            frame=np.array([arrival.frame for arrival in last], np.int64), time_ns=np.array(times, np.int64)
        )
        capture = np.array([arrival.capture for arrival in last], np.int64)
        order = pa.array([arrival.order for arrival in last], pa.int64())
        return segment_rows(records.buffer, placed, capture, order=order)


def _records(datagrams: list[_Datagram]) -> Records:
    """Returns the datagrams as records of whole IPv6 packets, because keys hold IPv6 addresses."""
    parts = [struct.pack(">IHBB", 6 << 28, d.length, d.key[36], 64) + d.key[:32] + d.data for d in datagrams]
    captured = np.array([len(part) for part in parts], np.int64)
    return Records(
        buffer=np.frombuffer(b"".join(parts), np.uint8),
        start=np.cumsum(captured) - captured,
        captured=captured,
        time_ns=np.full(len(parts), NO_TIME),
        link_type=np.full(len(parts), _RAW_IPV6),
        first_frame=1,
    )


def _fault(arrival: _Arrival, raw_kept: int) -> dict[str, object]:
    payload = arrival.content.payload
    fault = {
        "stage": Stage.FRAME,
        "reason": FrameReason.IP_FRAGMENT,
        "detail": FRAME_DETAILS[FrameReason.IP_FRAGMENT].format(frame=arrival.frame),
        "frame_number": arrival.frame,
        "length": len(payload),
        "raw": payload[:raw_kept],
    }
    return {"capture": arrival.capture, "fault": fault}
