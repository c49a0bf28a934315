"""Declares the arrivals of a scope, and the runs of plain arrivals between them.

A *slot* is (scope, sequence, number). An arrival is *plain* if it was accepted in order, once, with the predecessor
that the state names. Plain arrivals have no rows here: the states of the others say how far they went.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from schemas.replay import Reason, Verdict
from schemas.table import U16
from udfs.frames.rows import Batches, read_rows, row_of

State = tuple[int, int]
"""Sequence and number."""


class Arrival(NamedTuple):
    """Holds an arrival in an unusual slot and what is known of its scope; or, with `plain_to`, a run of plain arrivals.

    Sequences are TxSequenceIDs minus 2^63, which keeps their order. Times are in µs since 1970.
    """

    scope_key: str
    sequence: int
    number: int
    falling_sequence: int
    """-1 - `sequence`, as `falling_number` is of `number`: so the highest come first (FALLING)."""
    falling_number: int
    plain_to: int | None
    """The last number of a run of plain arrivals that begins at `number`; None for an arrival."""
    opening_sequence: int | None
    """The state before the first arrival of the scope, with `opening_number`; None where it is unknown."""
    opening_number: int | None
    state_sequence: int
    """The state after the last arrival of the scope, with `state_number`."""
    state_number: int
    state_assumed: bool
    """Whether that state rests on an arrival that nobody confirmed."""
    longest_us: int | None
    """The longest time, in µs, between two arrivals of one message of its sequence; None where nothing came twice."""
    until_us: int | None
    """When the last packet of the machine that sent it was captured, in µs since 1970."""
    due: int | None
    """The first number of the sequence that the scope had to see; None if the sequence came too late."""
    replay_order: int
    previous: int
    source_queue_manager: str
    message_id: str
    content_hash: int
    accepted_twice: bool
    """Whether the same message was accepted more than once, over all scopes."""
    may_be_elsewhere: bool
    """Whether this scope refused the message, and another one, of another receiver, accepted it or may have."""
    session_id: str
    destination_queue: str | None
    label: str | None
    sent_us: int | None
    """Its SentTime, by its sender's clock."""
    captured_us: int | None
    """The time of its last record, as recorded."""
    at_us: int | None
    """When that record was captured, by a clock without steps. Rules compare these times, not the recorded ones."""
    accepted: bool | None
    verdict: str
    reason: str | None
    evidence: str
    final_ack_class: int | None
    final_ack_requested: bool
    """Whether its sender asks for a FinalAck when it is read."""
    acknowledged_us: int | None
    """When an acknowledgment of it came, in µs since 1970; None for none."""
    denied_us: int | None
    """When a FinalAck came that says that it never reached its queue or left it unread; None for none."""
    overdue: bool
    """Whether the receiver acknowledges its sender, and the captures would show that it acknowledged this."""
    acknowledged_sequence: int | None
    """The last sequence of its scope of which its receiver acknowledged a message; None for none."""
    in_vain: bool
    """Whether its receiver acknowledged it, and a lower number afterwards: it went back."""
    untaken: bool
    """Whether the receiver's TCP never acknowledged its bytes, though the receiver was seen long after."""
    jumbled: bool
    """Whether some message of its sequence has a previous number that is not below its number."""
    covered: bool
    """Whether an OrderAck at or after it names its number or a higher one."""
    assumed: bool
    cut_off: bool
    """Whether the receiver's TCP never acknowledged its bytes, on a closed connection."""
    missing_runs: int
    """Unread ranges of the scope before it."""
    behind_gap: bool
    before_sequence: int | None
    """The state that it met, with `before_number`; None where it is unknown."""
    before_number: int | None
    key: str

    @property
    def message(self) -> tuple[str, str, int]:
        """Returns what tells messages of one slot apart."""
        return self.source_queue_manager, self.message_id, self.content_hash

    @property
    def before(self) -> State | None:
        """Returns the state that it met; None where it is unknown."""
        return _state(self.before_sequence, self.before_number)

    @property
    def opening(self) -> State | None:
        """Returns the state before the first arrival of the scope; None where it is unknown."""
        return _state(self.opening_sequence, self.opening_number)

    @property
    def state(self) -> State:
        """Returns the state after the last arrival of the scope."""
        return self.state_sequence, self.state_number

    @property
    def slot(self) -> State:
        """Returns the state that it sets if it is accepted."""
        return self.sequence, self.number

    @property
    def moves(self) -> bool:
        """Returns whether it sets the state: it is accepted, or nobody can tell."""
        return self.accepted is not False

    @property
    def rests_on_assumption(self) -> bool:
        """Returns whether its verdict is unknown, or rests on an assumed state or on clocks that nothing compares.

        From a previous number of 0 on, every lower state accepts.
        """
        by_clocks = self.reason == Reason.CLOCKS_DIFFER
        return self.accepted is None or by_clocks or (self.assumed and not (self.accepted and self.previous == 0))

    @property
    def gap_begins(self) -> int | None:
        """Returns the number below its counted gap, which ends at its own number; None where it has none.

        A gap is counted only where the state before it is known, and not assumed.
        """
        if self.before is None or self.assumed or self.verdict != Verdict.GAP_EXPIRED:
            return None
        return self.before[1] if self.before[0] == self.sequence else 0

    @property
    def names_before(self) -> int | None:
        """Returns the number that it says was sent before it; None if its previous number says nothing."""
        return self.previous if 0 < self.previous < self.number else None

    @property
    def may_hide_others(self) -> bool:
        """Returns whether bytes are missing, or the state is assumed, between it and what set the state before it."""
        return self.behind_gap or self.assumed or self.accepted is None


ARRIVAL = row_of(Arrival, final_ack_class=U16)
FALLING = ("falling_sequence", "falling_number", "replay_order")
"""The order in which the highest sequence and number of a scope come first."""


def read_scopes(batches: Batches) -> Iterator[tuple[str, Iterator[Arrival]]]:
    """Yields the rows of each scope, which lie next to each other."""
    return groupby(read_rows(batches, Arrival), attrgetter("scope_key"))


def _state(sequence: int | None, number: int | None) -> State | None:
    return None if sequence is None or number is None else (sequence, number)
