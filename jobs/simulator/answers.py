"""Records what the wire shows of arrivals and acknowledgments, and says which messages were never acknowledged.

The rules are those of outcomes, with the simulation's own times.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol
from uuid import UUID

RESEND_S = (30, 30, 30, 300, 300, 300, 1_800, 1_800, 1_800, 21_600)
"""Waits for an OrderAck, [MS-MQQB] 3.1.3.1; the last one repeats."""
_LATEST_NS = 10_500_000_000  # until an OrderAck, [MS-MQQB] 3.1.7.2.2
_Pair = tuple[UUID, UUID]
_Message = tuple[int, int, int, int]
"""TxSequenceID, number, MessageID, and the content: a cloned sender sends others under the same MessageID."""


class Way(Protocol):
    """Describes a TCP connection that messages come on."""

    between: _Pair
    """The queue manager that opened it, and the one that takes the messages."""
    has_ended: bool
    """The wire shows its end."""

    def is_taken(self, position: int) -> bool:
        """Returns whether the wire shows that the receiver's TCP took all bytes of messages up to a position."""


class Arrival(NamedTuple):
    """A message that came past the tap, and whether a receiver that got it accepted it."""

    sequence_id: int
    number: int
    previous: int
    ordinal: int
    content: int
    accepted: bool
    address: str
    """The address that it came from."""
    time_ns: int
    way: Way
    position: int
    """Of its last byte."""

    @property
    def message(self) -> _Message:
        """Returns what tells the message apart from every other one."""
        return self.sequence_id, self.number, self.ordinal, self.content

    @property
    def is_taken(self) -> bool:
        """Returns whether the wire shows that its receiver's TCP took it."""
        return self.way.is_taken(self.position)


@dataclass(slots=True)
class Wire:
    """Holds when each queue manager was seen, and all OrderAcks; times are in ns."""

    spoke_ns: dict[_Pair, int] = field(default_factory=lambda: defaultdict(int))
    """When the last packet from one to another one passed."""
    heard_ns: dict[UUID, int] = field(default_factory=lambda: defaultdict(int))
    """When the last segment of each passed."""
    order_acks: dict[_Pair, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Time, TxSequenceID and number of each OrderAck, by the receiver and the sender that it is for."""

    def shows_order_ack(self, pair: _Pair, state: tuple[int, int], time_ns: int) -> None:
        """Notes an OrderAck that passes."""
        self.order_acks[pair].append((time_ns, *state))

    def last_spoke_ns(self, speaker: UUID) -> int:
        """Returns when the last packet of a queue manager passed."""
        return max(ns for (one, _), ns in self.spoke_ns.items() if one == speaker)


class Answers:
    """Knows which messages of a sender its receiver acknowledged, and whether it should have."""

    def __init__(self, wire: Wire, receiver: UUID, source: UUID) -> None:
        """Starts without a FinalAck."""
        self._wire, self._pair = wire, (receiver, source)
        self.final_acked: set[_Message] = set()
        """Messages that a FinalAck names."""

    @property
    def shows_some(self) -> bool:
        """Returns whether some acknowledgment of the receiver to the sender passed."""
        return bool(self._wire.order_acks[self._pair] or self.final_acked)

    def never_acknowledged(self, accepted: Mapping[_Message, Sequence[Arrival]]) -> dict[_Message, bool]:
        """Returns those of the accepted messages that were never acknowledged, and whether they are still sent.

        Each comes with all its arrivals, in order. The receiver says nothing more of a sequence once it has
        acknowledged a later one.
        """
        acks = self._wire.order_acks[self._pair]
        covered = _Covered(acks)
        longest = _longest_waits(accepted)
        own = {message[0] for message in accepted}
        named = {sequence_id for _, sequence_id, _ in acks} | {message[0] for message in self.final_acked}
        last = max(named & own, default=0)
        first_ack_ns = min((ns for ns, _, _ in acks), default=None)
        found = {}
        for message, arrivals in accepted.items():
            taken_as = next(one for one in arrivals if one.accepted)
            if message in self.final_acked or covered.since(taken_as):
                continue
            is_over = message[0] < last
            still_sent = not is_over and self._is_still_sent(arrivals, taken_as, longest[message[0]])
            overdue = not is_over and first_ack_ns is not None and self._is_overdue(taken_as, first_ack_ns)
            if still_sent or overdue or self._never_came(arrivals):
                found[message] = still_sent
        return found

    def may_not_have_come(self, arrivals: Sequence[Arrival]) -> bool:
        """Returns whether a message need not have arrived: its one connection ended before its receiver's TCP took it.

        It is one that no OrderAck covers.
        """
        (first, *again) = arrivals
        if again or first.is_taken or not first.way.has_ended:
            return False
        return not _Covered(self._wire.order_acks[self._pair]).since(first)

    def _is_still_sent(self, arrivals: Sequence[Arrival], taken_as: Arrival, longest_ns: int) -> bool:
        """Returns whether its sender resent it, without an OrderAck, and is not late with the next resend."""
        times = [one.time_ns for one in arrivals if one.time_ns >= taken_as.time_ns]
        if len(times) == 1 or times[-1] - times[0] < _LATEST_NS:
            return False
        wait_ns = max(RESEND_S[min(len(arrivals) - 1, len(RESEND_S) - 1)] * 1_000_000_000, longest_ns)
        until_ns = max(self._wire.last_spoke_ns(one.way.between[0]) for one in arrivals)
        return until_ns <= times[-1] + wait_ns

    def _is_overdue(self, taken_as: Arrival, first_ack_ns: int) -> bool:
        """Returns whether its sender was acknowledged before, and the session went on for long without that."""
        near, far = taken_as.way.between
        until_ns = max(self._wire.spoke_ns[near, far], self._wire.spoke_ns[far, near])
        due_ns = taken_as.time_ns + _LATEST_NS
        return first_ack_ns < due_ns < until_ns

    def _never_came(self, arrivals: Sequence[Arrival]) -> bool:
        """Returns whether the receiver's TCP took no arrival of it, though the receiver was seen long after each."""
        heard_ns = self._wire.heard_ns[self._pair[0]]
        return all(not one.is_taken and heard_ns - one.time_ns > _LATEST_NS for one in arrivals)


class _Covered:
    """Finds the OrderAcks that cover an arrival."""

    def __init__(self, acks: Sequence[tuple[int, int, int]]) -> None:
        self._times: dict[int, list[int]] = defaultdict(list)
        numbers: dict[int, list[int]] = defaultdict(list)
        for ns, sequence_id, number in sorted(acks):
            self._times[sequence_id].append(ns)
            numbers[sequence_id].append(number)
        self._highest = {one: list(accumulate(reversed(of), max))[::-1] for one, of in numbers.items()}

    def since(self, arrival: Arrival) -> bool:
        """Returns whether one came after the arrival and names its number or a higher one."""
        times = self._times.get(arrival.sequence_id, ())
        place = bisect_right(times, arrival.time_ns)
        return place < len(times) and self._highest[arrival.sequence_id][place] >= arrival.number


def _longest_waits(messages: Mapping[_Message, Sequence[Arrival]]) -> dict[int, int]:
    """Returns the longest time between two arrivals of one message, by TxSequenceID."""
    longest: dict[int, int] = defaultdict(int)
    for message, arrivals in messages.items():
        for before, after in pairwise(arrivals):
            longest[message[0]] = max(longest[message[0]], after.time_ns - before.time_ns)
    return longest
