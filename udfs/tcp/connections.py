"""Assigns captured segments to TCP connections and unwraps their sequence numbers [RFC 9293].

Segments come in file order (capture, record number), never in clock order. Sequence numbers are unwrapped into
positions that only grow, so a stream may be longer than 4 GiB. The effect of a segment on its connection depends only
on the segments before it, so a stream can be delivered piece by piece and a connection can be stored and resumed.
`udfs.tcp.delivery` decides which bytes of a direction form its stream.

A keep-alive is one byte at one below the next sequence number: a copy of the last byte, or garbage [RFC 1122] 4.2.3.6.
So a segment of one byte is no data if that byte is the last one held, or the last one that its receiver acknowledged
some time ago. A sender that repeats a last segment of one byte looks the same, so where only such a segment holds a
byte, that byte is missing. A segment that comes right after its acknowledgment was captured out of order. In
`udfs.tcp.delivery`, a segment of one byte loses against any longer one, which tells what the others are.
"""

from udfs.capture.records import NO_TIME
from udfs.network.dissect import ACK, FIN, RST, SYN
from udfs.tcp.direction import MODULUS, Direction, NeedsPayload, Segment, highest

_LATE_SYN = 1 << 16
"""A SYN up to this many bytes before the first captured byte of its direction may still be that connection's."""
_LARGEST = (1 << 16) - 1
"""Bytes that a SYN's datagram may hold."""
_QUIET_NS = 240_000_000_000
"""Twice the maximum segment lifetime [RFC 9293] 3.4.2: after it, no segment of a connection is under way."""
_RECENT = 16
"""Connections on one pair of endpoints that a delayed segment may still belong to."""
_CONFIRMED = 3
"""So many segments in a row that are far from all others of their direction form another connection."""
_CLOSE = 1 << 20
"""A segment that is less far from its direction's newest byte belongs to it, whatever it acknowledges."""
WINDOW_BYTES = 64 << 20
"""A segment further ahead of its direction's newest byte is not of this connection."""


class Connection:
    """One TCP connection, the k-th (from 0) on its endpoints: the directions from endpoint a and from endpoint b."""

    def __init__(self, instance: int, window: int = WINDOW_BYTES) -> None:
        """Begins without segments. `window`: most bytes between a segment and the newest byte of its direction."""
        self.window = window
        self.instance = instance
        self.sides = (Direction(), Direction())
        self.closed = False
        self.opened_by_b: bool | None = None
        self.syns: list[_Syn] = []
        self.first_ns = self.last_ns = NO_TIME
        """Times of its earliest and its latest segment."""
        self.ended_by_b: bool | None = None
        """Which side sent its earliest FIN or RST; None where there is none."""
        self.ended_ns = NO_TIME
        """Time of that segment."""

    def opens_with(self, segment: Segment) -> bool:
        """Tells whether this SYN may be this connection's: a repeated one, or the first one captured, perhaps late.

        A SYN/ACK acknowledges the other side's SYN and none, some or all of the data sent with it ([RFC 7413] 3.1,
        [RFC 9293] 3.10.7.3: ISS < SEG.ACK =< SND.NXT).
        """
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.isn is not None:
            return (side.isn - segment.seq) % MODULUS == 0
        if segment.flags & ACK and other.isn is not None:
            sent = 0 if other.end is None else other.end - other.isn - 1
            return (segment.ack - other.isn - 1) % MODULUS <= min(sent, _LARGEST)
        answered = [ack for from_b, _, ack in self.syns if from_b is not segment.from_b and ack is not None]
        if answered and not segment.flags & ACK:
            return any((ack - segment.seq - 1) % MODULUS <= _LARGEST for ack in answered)
        seen = [position for position in (side.low, side.acked_low) if position is not None]
        return not seen or (min(seen) - segment.seq - 1) % MODULUS < _LATE_SYN

    def ended_before(self, segment: Segment) -> bool:
        """Tells whether this SYN opens another connection because this one ended long before; its number is ignored."""
        return self.closed and self.last_ns != NO_TIME and segment.time_ns > self.last_ns + _QUIET_NS

    def accepts(self, segment: Segment) -> bool:
        """Tells whether the sequence number fits what this direction has sent or, if unknown, what it acknowledges.

        Where it is some way off, the acknowledgment has to fit, too: of connections that use their ports again, one in
        twelve begins near the numbers of the one before in one direction, hardly any in both.
        """
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.end is None and side.acked is None and segment.flags & ACK:
            acked = other.unwrap(segment.ack)
            return other.near(acked, self.window) and (other.isn is None or acked > other.isn)
        position = side.unwrap(segment.seq)
        return self._is_near(segment, position) and (side.isn is None or position >= side.isn)

    def _is_near(self, segment: Segment, position: int) -> bool:
        """Tells whether a segment at this position fits what was sent: close to it, or as its acknowledgment is."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        is_close = side.end is None or abs(position - side.end) < _CLOSE
        fits = is_close or not segment.flags & ACK or other.near(other.unwrap(segment.ack), self.window)
        return fits and side.near(position, self.window)

    def was_told_of(self, segment: Segment) -> bool:
        """Tells whether the sequence number lies among those that the other direction acknowledged."""
        side = self.sides[segment.from_b]
        if side.acked is None or side.acked_low is None:
            return False
        return side.acked_low - 1 <= side.unwrap(segment.seq) <= side.acked

    def distance(self, segment: Segment) -> int:
        """Returns how far its numbers are from the newest that each direction has sent, or that were acknowledged."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        of_both = (side, segment.seq), (other, segment.ack if segment.flags & ACK else None)
        newest = ((of, seq, of.acked if of.end is None else of.end) for of, seq in of_both)
        far = (abs(of.unwrap(seq) - end) for of, seq, end in newest if seq is not None and end is not None)
        return max(far, default=MODULUS)

    def precedes(self, segment: Segment) -> bool:
        """Tells whether the sequence number lies shortly before the first of this direction."""
        side = self.sides[segment.from_b]
        position = side.unwrap(segment.seq)
        return side.isn is not None and self._is_near(segment, position) and position < side.isn

    def take(self, segment: Segment) -> None:
        """Updates the state with a segment that this connection accepts."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        position = side.unwrap(segment.seq)
        if self.first_ns == NO_TIME or NO_TIME < segment.time_ns < self.first_ns:
            self.first_ns = segment.time_ns
        self.last_ns = max(self.last_ns, segment.time_ns, segment.last_ns)
        side.last_ns = max(side.last_ns, segment.time_ns, segment.last_ns)
        if segment.flags & (FIN | RST):
            self._see_end(segment)
        if segment.flags & SYN:
            if side.isn is None and side.fixed in (None, position + 1):
                side.isn = position
            self.opened_by_b = segment.from_b is not bool(segment.flags & ACK)
            position += 1
        if segment.flags & RST:
            self.closed = True
            return
        end = position + segment.length
        if segment.length and not (segment.length == 1 and side.is_keep_alive(end, segment)):
            side.take(position, segment, self.window)
            if segment.payload:
                side.held = highest(side.held, position + segment.captured)
        side.low = position if side.low is None else min(side.low, position)
        if segment.flags & FIN and (side.end is None or end >= side.end - self.window):
            side.fin = highest(side.fin, end)
        side.end = highest(side.end, end)
        if segment.flags & ACK:
            acked = other.unwrap(segment.ack)
            if other.near(acked, self.window):
                other.see_acknowledged(acked, segment)
            other.see_window(segment)
        self.closed = self.closed or None not in (side.fin, other.fin)

    def _see_end(self, segment: Segment) -> None:
        """Takes a FIN or RST: the earliest ended the connection, in whichever order captures hold the two directions.

        Without times, the first one in file order did.
        """
        if self.ended_by_b is None or NO_TIME < segment.time_ns < self.ended_ns:
            self.ended_by_b, self.ended_ns = segment.from_b, segment.time_ns


_Syn = tuple[bool, int, int | None]
"""A SYN: sent by b, sequence number, acknowledgment number."""


class Connections:
    """The connections on one pair of endpoints, in the order they were first seen.

    A SYN with a new initial sequence number opens a connection. A known SYN leads back to its connection, so that
    captures from two vantage points fall together, unless that connection ended long before
    (`Connection.ended_before`). A SYN and the SYN/ACK that answers it find each other, so that captures of one
    direction each fall together, too. A lone segment far from what its direction has sent is in no connection
    (`outside`); several in a row form another connection, whose SYN was not captured. Where another capture goes on,
    its first segment belongs to the nearest connection: a firewall may show each one with two sets of numbers.
    """

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        """Begins without connections; `window`: see `Connection`."""
        self.all: list[Connection] = []
        self.outside: list[Segment] = []
        self.far: list[Segment] = []
        self.current: Connection | None = None
        self.first_instance = 0
        self.window = window
        self._by_syn: dict[_Syn, Connection] = {}
        self._by_opening: dict[tuple[bool, int], Connection] = {}
        """The latest connection that a SYN with this number opened, sent by b or not; an answer tells it, too."""
        self._capture: int | None = None

    def at(self, instance: int) -> Connection:
        """Returns the k-th connection."""
        return self.all[instance - self.first_instance]

    def restore(self, connections: list[Connection], current: int | None) -> None:
        """Resumes the latest connections of an earlier run; `current` is an index in the list."""
        self.all = connections
        self.current = None if current is None else connections[current]
        self.first_instance = connections[0].instance if connections else 0
        self._by_syn = {syn: connection for connection in connections for syn in connection.syns}
        self._by_opening = {_opening(syn): connection for connection in connections for syn in connection.syns}

    def recent(self) -> list[Connection]:
        """Returns the connections that may go on."""
        return self.all[-_RECENT:]

    def take(self, segment: Segment) -> None:
        """Assigns the next segment in file order to its connection.

        Raises:
            NeedsPayload: a framed run does not continue what its direction has sent.
        """
        if segment.capture != self._capture:
            self._capture = segment.capture
            self._go_on(segment)
        if segment.flags & SYN:
            self._open(segment)
        elif self.current is None:
            self.current = self._add()
        elif not self.current.accepts(segment):
            self._take_stray(self.current, segment)
            return
        elif self.current.sides[segment.from_b].end is None and (earlier := self._told_of(self.current, segment)):
            earlier.take(segment)
            return
        elif segment.length:
            self.outside += self.far
            self.far = []
        assert self.current is not None  # noqa: S101 - each branch has set it
        self.current.take(segment)

    def finish(self) -> None:
        """Ends the input: far segments after a closed connection form another connection, even if they are few."""
        if self.far and self.current is not None and self.current.closed:
            self._open_far()
        self.outside += self.far
        self.far = []

    def _add(self) -> Connection:
        self.all.append(Connection(self.first_instance + len(self.all), self.window))
        return self.all[-1]

    def _go_on(self, segment: Segment) -> None:
        """Makes the nearest connection to the first segment of a capture the current one."""
        fitting = [connection for connection in self.recent() if connection.accepts(segment)]
        if fitting:
            self.current = min(fitting, key=lambda one: (one.distance(segment), one is not self.current))

    def _open(self, segment: Segment) -> None:
        """Makes the connection of this SYN the current one."""
        syn = segment.from_b, segment.seq, segment.ack if segment.flags & ACK else None
        known = self._by_syn.get(syn)
        if known is not None and not known.ended_before(segment):
            self.current = known
        else:
            self.current = self._that_opens_with(segment, _opening(syn)) or self.current
        if self.current is None or self.current.ended_before(segment) or not self.current.opens_with(segment):
            self.current = self._add()
            self._take_far(self.current, segment)
        if self._by_syn.get(syn) is not self.current:
            self._by_syn[syn] = self._by_opening[_opening(syn)] = self.current
            self.current.syns.append(syn)

    def _that_opens_with(self, segment: Segment, opening: tuple[bool, int]) -> Connection | None:
        """Returns a connection, not the current one, whose other direction tells that it opened with this SYN.

        An answer names the SYN; else the connection is known by acknowledgments of bytes right behind the SYN.
        """
        named = self._by_opening.get(opening)
        told = (one for one in reversed(self.recent()) if one.sides[segment.from_b].acked_low is not None)
        others = (one for one in ([named] if named else told) if one is not self.current)
        return next((one for one in others if not one.ended_before(segment) and one.opens_with(segment)), None)

    def _told_of(self, current: Connection, segment: Segment) -> Connection | None:
        """Returns an earlier connection to which a segment belongs although it would fit the current one, too.

        That has sent nothing in this direction so far, so where its numbers began is known from acknowledgments only.
        """
        if current.was_told_of(segment):
            return None
        return next((c for c in reversed(self.recent()) if c is not current and c.was_told_of(segment)), None)

    def _take_stray(self, current: Connection, segment: Segment) -> None:
        """Assigns a segment that the current connection does not accept."""
        if segment.framed_run:
            raise NeedsPayload
        fitting = next((c for c in reversed(self.recent()) if c.accepts(segment)), None)
        if fitting is None and current.precedes(segment):
            fitting = current
        if fitting is not None:
            fitting.take(segment)
        elif segment.length:
            self.far.append(segment)
            if len(self.far) == _CONFIRMED:
                self._open_far()

    def _take_far(self, opened: Connection, syn: Segment) -> None:
        """Adds to a connection the far segments that its SYN shows to be answers, which another capture has."""
        answers = [one for one in self.far if one.from_b is not syn.from_b and one.flags & ACK]
        answers = [one for one in answers if (one.ack - syn.seq - 1) % MODULUS <= _LARGEST]
        if answers:
            opened.take(syn)
            self.far = [one for one in self.far if one not in answers]
            for one in answers:
                opened.take(one)

    def _open_far(self) -> None:
        """Opens another connection with the far segments."""
        opened, far = self._add(), self.far
        self.current, self.far = opened, []
        for one in far:
            if opened.accepts(one):
                opened.take(one)
            else:
                self.outside.append(one)


def _opening(syn: _Syn) -> tuple[bool, int]:
    """Returns who opened the connection, and the number of that SYN."""
    from_b, seq, ack = syn
    return (from_b, seq) if ack is None else (not from_b, (ack - 1) % MODULUS)
