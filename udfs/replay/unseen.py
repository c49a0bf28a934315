"""Decides what became of the numbers that no message had: runs between two numbers that were seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from schemas.outcomes import Outcome
from udfs.replay.arrivals import Arrival
from udfs.replay.outcomes import Passing


class Skip(NamedTuple):
    """Names an arrival that says that its sender skipped the numbers from `low` + 1 up to the one before its own."""

    low: int
    replay_order: int
    source_queue_manager: str
    session_id: str
    destination_queue: str | None
    key: str

    @classmethod
    def of(cls, arrival: Arrival) -> "Skip | None":
        """Returns what an arrival says was skipped before it: by its previous number, or by its counted gap."""
        below = [low for low in (arrival.names_before, arrival.gap_begins) if low is not None]
        place = arrival.source_queue_manager, arrival.session_id, arrival.destination_queue, arrival.key
        return cls(min(below), arrival.replay_order, *place) if below else None


@dataclass(frozen=True, slots=True)
class Hole:
    """Holds numbers that were not seen, right below a slot, and what the slots above say of them."""

    seen_to: int
    """The highest number seen below the hole; 0 for none."""
    above: Arrival
    """The first arrival in the slot right above."""
    skip: Skip | None
    """What says how far the numbers below the slot were skipped; of several, what goes lowest."""
    sent_to: int
    """The highest number of which a message above says that it was sent."""
    passed_by: Passing | None
    """The first arrival after which the state had reached the hole."""


class Run(NamedTuple):
    """Holds the numbers from `first` to `last`, none of them seen, with one outcome and one cause."""

    first: int
    last: int
    outcome: Outcome
    shown_by: Skip | Arrival
    """The message that says that the numbers were skipped or sent."""
    decided_by: str | None
    """The key of the arrival that passed them; None if nothing did, and for skipped ones."""


def unseen_runs(hole: Hole) -> Iterator[Run]:
    """Yields the runs of a hole: what was skipped, what was sent, and what may have been sent.

    Numbers at or below the state that the scope began at were delivered or expired earlier, and are in no run; nor is a
    number that was neither skipped nor sent, unless the state went over it. In doubt a number is `unknown`: the state
    passed it behind missing bytes or while it was assumed, or it is above an assumed state.
    """
    above = hole.above
    if above.opening is not None and above.sequence < above.opening[0]:
        return
    begins, ends = hole.seen_to + 1, above.number - 1
    if above.opening is not None and above.sequence == above.opening[0]:
        begins = max(begins, above.opening[1] + 1)
    unskipped_to = ends
    if hole.skip is not None:
        unskipped_to = min(ends, hole.skip.low)
        if (first := max(hole.skip.low + 1, begins)) <= ends:
            yield Run(first, ends, Outcome.EXPIRED_UNSEEN, hole.skip, None)
    if above.due is None:
        return
    first, decided_by = max(begins, above.due), hole.passed_by and hole.passed_by.key
    sent_to = min(unskipped_to, hole.sent_to)
    if first <= sent_to:
        yield Run(first, sent_to, _of_sent(hole), above, decided_by)
    first = max(first, hole.sent_to + 1)
    if _is_reached(hole) and above.sequence == above.state_sequence and first <= unskipped_to:
        yield Run(first, unskipped_to, Outcome.UNKNOWN, above, decided_by)


def _is_reached(hole: Hole) -> bool:
    return (hole.above.sequence, hole.above.number - 1) <= hole.above.state


def _of_sent(hole: Hole) -> Outcome:
    """Returns the outcome of numbers that a later message says were sent."""
    if not _is_reached(hole):
        return Outcome.UNKNOWN if hole.above.state_assumed else Outcome.AWAITED
    in_doubt = hole.passed_by is None or hole.passed_by.may_hide_others
    return Outcome.UNKNOWN if in_doubt else Outcome.NEVER_SEEN
