"""Goes through the slots of each scope from the highest to the lowest, and writes the rows of `outcomes`.

In this order, what passed a slot, what skipped it and what was sent are running values, so one slot is held at a time.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from schemas.explained import EXPLAINED
from schemas.outcomes import LOSS_UNKNOWN, LOST, DeliveredBy, Outcome
from udfs.replay.arrivals import Arrival
from udfs.replay.outcomes import Case, Message, Occupants, Passing, Slot, delivered_by, distinct, outcome_of, witness
from udfs.replay.rows import Batches, write_rows
from udfs.replay.unseen import Hole, Run, Skip, unseen_runs
from udfs.replay.words import tx_sequence

Row = Mapping[str, object]
_SIGN = 1 << 63
"""What a TxSequenceID has more than its `sequence`."""


def explain_slots(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yields the outcomes of messages and of numbers never seen: rows of EXPLAINED.

    Rows are `Arrival`s and runs of plain ones, scope by scope in FALLING order.
    """
    explained = (row for _, arrivals in Arrival.read(batches) for row in _explain_scope(arrivals))
    yield from write_rows((tuple(map(row.get, EXPLAINED.names)) for row in explained), EXPLAINED)


def _explain_scope(arrivals: Iterator[Arrival]) -> Iterator[Row]:
    passed_by: Passing | None = None
    for _, of_sequence in groupby(arrivals, attrgetter("sequence")):
        skip: Skip | None = None
        gap_begins: int | None = None
        sent_to = 0
        above: Arrival | None = None
        for number, in_slot in groupby(of_sequence, attrgetter("number")):
            slot = list(in_slot)
            first, is_run = slot[0], slot[0].plain_to is not None
            seen_to = number if first.plain_to is None else first.plain_to
            if above is not None and above.number > seen_to + 1:
                yield from _of_hole(Hole(seen_to, above, skip, sent_to, passed_by))
            above = None if is_run else first
            if is_run:
                sent_to = max(sent_to, seen_to - 1)
                continue
            skips = (Skip.of(arrival) for arrival in slot)
            passed_by = min((one for one in (passed_by, _passing(slot)) if one is not None), default=None)
            skip = min((one for one in (skip, *skips) if one is not None), default=None)
            sent_to = max(sent_to, *(arrival.names_before or 0 for arrival in slot))
            yield from _of_messages(slot, Slot(passed_by, gap_begins))
            begins = (arrival.gap_begins for arrival in slot)
            gap_begins = min((one for one in (gap_begins, *begins) if one is not None), default=None)
        if above is not None:
            yield from _of_hole(Hole(0, above, skip, sent_to, passed_by))


def _passing(slot: list[Arrival]) -> Passing | None:
    """Returns the first arrival in a slot that sets the state."""
    moving = next((arrival for arrival in slot if arrival.moves), None)
    if moving is None:
        return None
    doubtful = moving.assumed or moving.accepted is None
    return Passing(moving.replay_order, moving.missing_runs, moving.behind_gap, doubtful, moving.key)


def _of_messages(slot: list[Arrival], known: Slot) -> Iterator[Row]:
    by_message: dict[tuple[str, str, int], list[Arrival]] = defaultdict(list)
    for arrival in slot:
        by_message[arrival.message].append(arrival)
    occupants = Occupants([Message(arrivals, known) for arrivals in by_message.values()])
    for message in occupants.messages:
        case = Case(message, occupants)
        yield _message_row(case, outcome_of(case))


def _message_row(case: Case, outcome: Outcome) -> Row:
    message, first = case.message, case.message.first
    refusals, proof = len(message.refusals), delivered_by(case, outcome)
    stuck = outcome is Outcome.PENDING and refusals > 1
    seen = [arrival.captured_us for arrival in message.arrivals if arrival.captured_us is not None]
    accepted = [arrival.captured_us for arrival in message.arrivals if arrival.accepted]
    return {
        **_slot(first.scope_key, first.sequence, first.number),
        "source_queue_manager": first.source_queue_manager,
        "message_id": first.message_id,
        "content_hash": first.content_hash,
        "numbers": 1,
        "session_id": first.session_id,
        "destination_queue": first.destination_queue,
        "label": first.label,
        "outcome": outcome.value,
        "lost": _lost(outcome),
        "stuck": stuck,
        "arrivals": len(message.arrivals),
        "refusals": refusals,
        "first_seen_at": min(seen, default=None),
        "last_seen_at": max(seen, default=None),
        "accepted_at": min((us for us in accepted if us is not None), default=None),
        "delivered_by": proof and proof.value,
        "final_ack_class": message.final_ack_class,
        "witness": witness(case, outcome),
        "explanation": _of_message(outcome, proof, message.final_ack_class, stuck=stuck),
    }


def _of_hole(hole: Hole) -> Iterator[Row]:
    for run in unseen_runs(hole):
        yield _run_row(hole, run)


def _run_row(hole: Hole, run: Run) -> Row:
    return {
        **_slot(hole.above.scope_key, hole.above.sequence, run.first),
        "source_queue_manager": run.shown_by.source_queue_manager,
        "numbers": run.last - run.first + 1,
        "session_id": run.shown_by.session_id,
        "destination_queue": run.shown_by.destination_queue,
        "outcome": run.outcome.value,
        "lost": _lost(run.outcome),
        "stuck": False,
        "arrivals": 0,
        "refusals": 0,
        "witness": distinct((run.shown_by.key, run.decided_by)),
        "explanation": _of_numbers(run),
    }


def _slot(scope_key: str, sequence: int, number: int) -> Row:
    tx_sequence_id = sequence + _SIGN
    return {
        "scope_key": scope_key,
        "tx_sequence_id": tx_sequence_id,
        "tx_sequence": tx_sequence(tx_sequence_id),
        "tx_sequence_number": number,
    }


def _lost(outcome: Outcome) -> bool | None:
    return None if outcome in LOSS_UNKNOWN else outcome in LOST


_OF_MESSAGE: Mapping[Outcome, str] = {
    Outcome.CONTRADICTED: "The receiver's acknowledgments contradict the replay, so whether it has the message is not "
    "known.",
    Outcome.REFUSED_FOR_CAUSE: "A FinalAck of class {named} says that the message never reached its queue.",
    Outcome.DELIVERED_TWICE: "The message was accepted more than once.",
    Outcome.NOT_READ: "The message reached its queue, and a FinalAck of class {named} says that it left it unread.",
    Outcome.DELIVERED_AFTER_REFUSAL: "The message was refused as out of order, and accepted when it came again.",
    Outcome.DELIVERED_BY_ACKNOWLEDGMENT: "The captures do not tell whether this arrival was accepted, but "
    "{acknowledgment} says that the receiver has the message.",
    Outcome.DISPLACED: "The message was never accepted, because another message with its sequence number was.",
    Outcome.DELIVERED_BEFORE_CAPTURE: "Only resends of the message were captured, and {acknowledgment} says that the "
    "receiver has it.",
    Outcome.GIVEN_UP: "The message was refused as out of order, and its sender then skipped its number.",
    Outcome.PASSED_BY: "The message was only refused, and the receiver went on beyond its number, so it can not be "
    "accepted any more.",
    Outcome.PENDING: "The message was only refused so far; the receiver still waits for one before it.{again}",
    Outcome.UNKNOWN: "The captures do not tell whether the receiver has it.",
    Outcome.DELIVERED: "The message was accepted.",
}


def _of_message(outcome: Outcome, proof: DeliveredBy | None, final_ack_class: int | None, *, stuck: bool) -> str:
    """Returns what became of a message in one sentence."""
    return _OF_MESSAGE[outcome].format(
        named="unknown" if final_ack_class is None else f"0x{final_ack_class:04X}",
        acknowledgment="a FinalAck" if proof is DeliveredBy.FINAL_ACK else "an OrderAck",
        again=" It was refused each time that it was resent." if stuck else "",
    )


def _of_numbers(run: Run) -> str:
    """Returns what became of numbers that no message had in one sentence, and how many there are."""
    sentence = {
        Outcome.EXPIRED_UNSEEN: "No message with this number was seen, and its sender skipped it: it expired before it "
        "was sent, or was withdrawn.",
        Outcome.NEVER_SEEN: "A later message says that one with this number was sent, but none was seen, and the "
        "receiver went on beyond it.",
        Outcome.AWAITED: "A later message says that one with this number was sent, but none was seen yet, and the "
        "receiver waits for it.",
        Outcome.UNKNOWN: "The captures do not tell whether the receiver has it.",
    }[run.outcome]
    numbers = run.last - run.first + 1
    if numbers == 1:
        return sentence
    return f"{sentence} This holds for {numbers} numbers, from {run.first} to {run.last}."
