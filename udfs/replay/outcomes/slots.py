"""Goes through the slots of each scope from the highest to the lowest, and writes the rows of `outcomes`.

In this order, what passed a slot, what skipped it and what was sent are running values, so one slot is held at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from schemas.outcomes import EXPLAINED, LOSS_UNKNOWN, LOST, DeliveredBy, Outcome
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.frames.rows import Batches, write_rows
from udfs.replay.outcomes.arrivals import Arrival, read_scopes
from udfs.replay.outcomes.rules import Message, Slot, decided_us, delivered_by, distinct, outcome_of, witness
from udfs.replay.words import tx_sequence, utc

Row = Mapping[str, object]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGN = 1 << 63
"""What a TxSequenceID has more than its `sequence`."""


def explain_slots(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yields the outcomes of messages and of numbers never seen: rows of EXPLAINED.

    Rows are `Arrival`s and runs of plain ones, scope by scope in FALLING order.
    """
    explained = (row for _, arrivals in read_scopes(batches) for row in _explain_scope(arrivals))
    yield from write_rows((tuple(map(row.get, EXPLAINED.names)) for row in explained), EXPLAINED)


@dataclass(slots=True)
class Above:
    """Holds what the slots above, of the sequence at hand, say of the numbers below them."""

    passed_by: Arrival | None
    """The first arrival in any sequence after which the state had reached these numbers."""
    slot: Arrival | None = None
    """The first arrival in the last slot; None for a run of plain ones."""
    skip: Arrival | None = None
    """The arrival that says that numbers below it were skipped; of several, the one that reaches lowest."""
    skips_from: int = 0
    """The number after which it says so."""
    gap_begins: int | None = None
    """The number below the lowest counted gap."""
    sent_to: int = 0
    """The highest number of which a message says that it was sent."""

    def add(self, arrival: Arrival) -> None:
        """Learns what an arrival says of the numbers below its own."""
        named, gap = arrival.names_before, arrival.gap_begins
        self.sent_to = max(self.sent_to, named or 0)
        if gap is not None and (self.gap_begins is None or gap < self.gap_begins):
            self.gap_begins = gap
        skips_from = min((low for low in (named, gap) if low is not None), default=None)
        if skips_from is None:
            return
        lowest = self.skip and (self.skips_from, self.skip.replay_order)
        if lowest is None or (skips_from, arrival.replay_order) < lowest:
            self.skip, self.skips_from = arrival, skips_from


def _explain_scope(arrivals: Iterator[Arrival]) -> Iterator[Row]:
    above = Above(None)
    for _, of_sequence in groupby(arrivals, attrgetter("sequence")):
        above = Above(above.passed_by)
        for number, in_slot in groupby(of_sequence, attrgetter("number")):
            slot = list(in_slot)
            plain_to = slot[0].plain_to
            yield from _unseen(number if plain_to is None else plain_to, above)
            if plain_to is not None:
                above.slot, above.sent_to = None, max(above.sent_to, plain_to - 1)
                continue
            moving = next((arrival for arrival in slot if arrival.moves), None)
            is_skipped = above.skip is not None and above.skips_from < number
            above.slot = slot[0]
            if moving and (above.passed_by is None or moving.replay_order < above.passed_by.replay_order):
                above.passed_by = moving
            gaps_above = above.gap_begins
            for arrival in slot:
                above.add(arrival)
            yield from map(_message_row, Slot(slot, above.passed_by, gaps_above, is_skipped=is_skipped).messages)
        yield from _unseen(0, above)


def _unseen(seen_to: int, above: Above) -> Iterator[Row]:
    """Yields rows for the numbers between the last slot and the highest one seen below it, 0 for none.

    They were skipped, or sent, or may have been sent; a row is a run of numbers with one outcome and one cause.
    Numbers at or below the state that the scope began at were delivered or expired earlier, and are in no run; nor is a
    number that was neither skipped nor sent, unless the state went over it. In doubt a number is `unknown`: the state
    passed it behind missing bytes or while it was assumed, or it is above an assumed state.
    """
    slot = above.slot
    if slot is None or (slot.opening is not None and slot.sequence < slot.opening[0]):
        return
    begins, ends = seen_to + 1, slot.number - 1
    if slot.opening is not None and slot.sequence == slot.opening[0]:
        begins = max(begins, slot.opening[1] + 1)
    unskipped_to = ends
    if above.skip is not None:
        unskipped_to = min(ends, above.skips_from)
        if (first := max(above.skips_from + 1, begins)) <= ends:
            yield _run_row(first, ends, Outcome.EXPIRED_UNSEEN, above.skip, None, above.skip.captured_us)
    if slot.due is None:
        return
    is_reached = (slot.sequence, ends) <= slot.state
    first, decided_by = max(begins, slot.due), above.passed_by and above.passed_by.key
    sent_to = min(unskipped_to, above.sent_to)
    if first <= sent_to:
        if is_reached:
            in_doubt = above.passed_by is None or above.passed_by.may_hide_others
            outcome = Outcome.UNKNOWN if in_doubt else Outcome.NEVER_SEEN
        else:
            outcome = Outcome.UNKNOWN if slot.state_assumed else Outcome.AWAITED
        passed_us = above.passed_by.captured_us if above.passed_by and outcome is Outcome.NEVER_SEEN else None
        yield _run_row(first, sent_to, outcome, slot, decided_by, passed_us)
    first = max(first, above.sent_to + 1)
    if is_reached and slot.sequence == slot.state_sequence and first <= unskipped_to:
        yield _run_row(first, unskipped_to, Outcome.UNKNOWN, slot, decided_by)


def _message_row(message: Message) -> Row:
    outcome, first, refusals = outcome_of(message), message.first, len(message.refusals)
    proof = delivered_by(message, outcome)
    stuck = outcome is Outcome.PENDING and refusals > 1
    contenders = message.contenders if outcome is Outcome.UNKNOWN else None
    seen = [arrival.captured_us for arrival in message.arrivals if arrival.captured_us is not None]
    accepted = [arrival.captured_us for arrival in message.arrivals if arrival.accepted]
    return {
        **_row_of(first, first.number, outcome),
        "message_id": first.message_id,
        "message_key": str(first.content_hash),
        "content_hash": first.content_hash,
        "numbers": 1,
        "label": first.label,
        "stuck": stuck,
        "arrivals": len(message.arrivals),
        "refusals": refusals,
        "contenders": contenders,
        "sent_at": first.sent_us,
        "first_seen_at": min(seen, default=None),
        "last_seen_at": max(seen, default=None),
        "accepted_at": min((us for us in accepted if us is not None), default=None),
        "decided_at": decided_us(message, outcome),
        "acknowledged_at": message.arrival_acknowledged_us,
        "next_resend_at": message.next_resend_us if outcome is Outcome.UNACKNOWLEDGED else None,
        "delivered_by": proof and proof.value,
        "final_ack_class": message.final_ack_class,
        "final_ack_requested": any(arrival.final_ack_requested for arrival in message.arrivals),
        "witness": witness(message, outcome),
        "explanation": _UNDECIDED
        if contenders
        else _OF_MESSAGE[outcome].format(
            named="unknown" if message.final_ack_class is None else f"0x{message.final_ack_class:04X}",
            acknowledgment="a FinalAck" if proof is DeliveredBy.FINAL_ACK else "an OrderAck",
            again=" It was refused each time that it was resent." if stuck else "",
            why=_why_unacknowledged(message) if outcome is Outcome.UNACKNOWLEDGED else "",
            but=_BUT_ELSEWHERE if message.first.may_be_elsewhere else "",
        ),
    }


def _why_unacknowledged(message: Message) -> str:
    """Says how it is known that an acknowledgment did not come: because of resends, of TCP, or of other answers."""
    times = message.times_since_acceptance
    if message.next_resend_us is not None:
        first, last, next_one = (
            utc(_EPOCH + timedelta(microseconds=us)) for us in (min(times), max(times), message.next_resend_us)
        )
        sent = f": it was sent {len(times)} times from {first} to {last}, and is due again by {next_one}"
        return sent + _untaken(message)
    if message.never_taken:
        return ", and its TCP did not acknowledge the bytes either, so it never arrived"
    return (
        f", although it acknowledged other messages of this sender, and the captures show the session for more than "
        f"the {LATEST_ORDER_ACK_MS} ms that the timers allow"
    )


def _untaken(message: Message) -> str:
    """Says how often TCP did not take a message that was sent several times; of the last time it may be too soon."""
    times = sum(arrival.untaken for arrival in message.arrivals)
    if not times:
        return ""
    often = "each time" if message.never_taken else f"{times} of these times"
    return f"; {often} the receiver's TCP did not acknowledge the bytes either, so it did not arrive"


def _run_row(
    first: int, last: int, outcome: Outcome, shown_by: Arrival, decided_by: str | None, decided_us: int | None = None
) -> Row:
    """Returns the row of numbers that an arrival says were skipped or sent; `decided_by` is the key of what passed.

    `decided_us` is when it was decided, in µs since 1970; None if it was not.
    """
    which = f" This holds for {last - first + 1} numbers, from {first} to {last}."
    or_before = "" if shown_by.before and not shown_by.assumed else ", or came before the captures begin"
    return {
        **_row_of(shown_by, first, outcome),
        "numbers": last - first + 1,
        "stuck": False,
        "arrivals": 0,
        "refusals": 0,
        "decided_at": decided_us,
        "witness": distinct((shown_by.key, decided_by)),
        "explanation": _OF_NUMBERS[outcome].format(or_before=or_before) + ("" if first == last else which),
    }


def _row_of(arrival: Arrival, number: int, outcome: Outcome) -> Row:
    """Returns what rows on messages and on numbers have in common."""
    tx_sequence_id = arrival.sequence + _SIGN
    return {
        "scope_key": arrival.scope_key,
        "tx_sequence_id": tx_sequence_id,
        "tx_sequence": tx_sequence(tx_sequence_id),
        "tx_sequence_number": number,
        "source_queue_manager": arrival.source_queue_manager,
        "session_id": arrival.session_id,
        "destination_queue": arrival.destination_queue,
        "outcome": outcome.value,
        "lost": None if outcome in LOSS_UNKNOWN else outcome in LOST,
    }


_BUT_ELSEWHERE = " This one refused it, but another queue manager accepted the same message, or may have."
_OF_MESSAGE: Mapping[Outcome, str] = {
    Outcome.CONTRADICTED: "The receiver's acknowledgments contradict the replay, so whether it has the message is not "
    "known.",
    Outcome.REFUSED_FOR_CAUSE: "A FinalAck of class {named} says that the message never reached its queue.",
    Outcome.DELIVERED_TWICE: "The message was accepted more than once.",
    Outcome.NOT_READ: "The message reached its queue, and a FinalAck of class {named} says that it left it unread.",
    Outcome.UNACKNOWLEDGED: "The rule accepts the message, but its receiver never acknowledged it{why}.",
    Outcome.DELIVERED_AFTER_REFUSAL: "The message was refused as out of order, and accepted when it came again.",
    Outcome.DELIVERED_BY_ACKNOWLEDGMENT: "The captures do not tell whether this arrival was accepted, but "
    "{acknowledgment} says that the receiver has the message.",
    Outcome.DISPLACED: "The message was never accepted, because another message with its sequence number was.",
    Outcome.DELIVERED_BEFORE_CAPTURE: "Only resends of the message were captured, and {acknowledgment} says that the "
    "receiver has it.",
    Outcome.GIVEN_UP: "The message was refused as out of order, and its sender skipped its number.",
    Outcome.PASSED_BY: "The message was only refused, and the receiver went on beyond its number, so it can not be "
    "accepted any more.",
    Outcome.PENDING: "The message was only refused so far; the receiver still waits for one before it.{again}",
    Outcome.UNKNOWN: "The captures do not tell whether the receiver has it.{but}",
    Outcome.DELIVERED: "The message was accepted.",
}


_UNDECIDED = (
    "Another message has its number, and nothing compares the clocks of the captures that show them, so which one the "
    "receiver accepted is not known."
)
_OF_NUMBERS: Mapping[Outcome, str] = {
    Outcome.EXPIRED_UNSEEN: "No message with this number was seen on the way to this receiver, and its sender skipped "
    "it: it expired before it came here, or was withdrawn{or_before}.",
    Outcome.NEVER_SEEN: "A later message says that one with this number was sent, but none was seen, and the receiver "
    "went on beyond it.",
    Outcome.AWAITED: "A later message says that one with this number was sent, but none was seen yet, and the receiver "
    "waits for it.",
    Outcome.UNKNOWN: _OF_MESSAGE[Outcome.UNKNOWN].format(but=""),
}
