"""Decides what became of a message: the first rule that holds gives its outcome.

In doubt an outcome claims less than it could. `RULES` has the order of the documented outcomes; each rule is one
question about a `Message`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from schemas.outcomes import DeliveredBy, Outcome
from schemas.replay import Evidence, Verdict
from schemas.wire import NEGATIVE_CLASS, QUEUED_CLASS
from udfs.replay.arrivals import Arrival


class Passing(NamedTuple):
    """Names an arrival that set the state, so that all slots at or below its own are passed for good."""

    replay_order: int
    missing_runs: int
    behind_gap: bool
    doubtful: bool
    """Whether it is assumed that it was accepted."""
    key: str

    @property
    def may_hide_others(self) -> bool:
        """Returns whether bytes are missing, or the state is assumed, between it and what set the state before it."""
        return self.behind_gap or self.doubtful


@dataclass(frozen=True)
class Slot:
    """Holds what is known of a slot beside its arrivals."""

    passed_by: Passing | None
    """The first arrival after which the state had reached the slot; None if it never did."""
    gap_begins: int | None
    """The number below the lowest counted gap that begins above the slot, or around it."""


@dataclass(frozen=True)
class Message:
    """Holds all arrivals of one message, in replay order, and what its slot tells."""

    arrivals: list[Arrival]
    slot: Slot

    @property
    def first(self) -> Arrival:
        """Returns its first arrival."""
        return self.arrivals[0]

    @property
    def last(self) -> Arrival:
        """Returns its last arrival."""
        return self.arrivals[-1]

    def is_doubtful(self, arrival: Arrival) -> bool:
        """Returns whether an arrival rests on an assumed state, or need not have reached its receiver.

        What TCP never acknowledged did arrive if the message came again or an OrderAck covers it.
        """
        alone = arrival.cut_off and not arrival.covered and len(self.arrivals) == 1
        return arrival.rests_on_assumption or alone

    @cached_property
    def doubtful(self) -> list[Arrival]:
        """Returns its doubtful arrivals."""
        return [arrival for arrival in self.arrivals if self.is_doubtful(arrival)]

    @cached_property
    def accepted_as(self) -> Arrival | None:
        """Returns the arrival that was accepted without doubt."""
        surely = (arrival for arrival in self.arrivals if arrival.accepted and not self.is_doubtful(arrival))
        return next(surely, None)

    @property
    def refusals(self) -> list[Arrival]:
        """Returns the arrivals that were refused."""
        return [arrival for arrival in self.arrivals if arrival.accepted is False]

    @property
    def contradicted_as(self) -> str | None:
        """Returns the key of an arrival whose verdict the receiver's OrderAcks contradict."""
        keys = (arrival.key for arrival in self.arrivals if arrival.evidence == Evidence.CONTRADICTED)
        return min(keys, default=None)

    @property
    def only_duplicates(self) -> bool:
        """Returns whether it was only ever refused as a duplicate."""
        return all(arrival.verdict == Verdict.DUPLICATE for arrival in self.arrivals)

    @property
    def confirmed(self) -> bool:
        """Returns whether an acknowledgment agrees with a verdict on it."""
        return any(arrival.evidence == Evidence.CONFIRMED for arrival in self.arrivals)

    @property
    def final_ack_class(self) -> int | None:
        """Returns the class of its FinalAck; the highest of several."""
        classes = (arrival.final_ack_class for arrival in self.arrivals)
        return max((one for one in classes if one is not None), default=None)

    @property
    def is_reached(self) -> bool:
        """Returns whether the scope's last state is at or above its slot."""
        return self.first.slot <= self.first.state

    @property
    def came_late(self) -> bool:
        """Returns whether an arrival was refused because the state was at or above its slot."""
        return any(arrival.before is not None and arrival.slot <= arrival.before for arrival in self.refusals)

    @property
    def refused_before_accepted(self) -> bool:
        """Returns whether an arrival was refused as out of order before one was accepted."""
        refused = (arrival for arrival in self.arrivals if arrival.verdict == Verdict.OUT_OF_ORDER)
        first = next((arrival.replay_order for arrival in refused if not self.is_doubtful(arrival)), None)
        return first is not None and self.accepted_as is not None and first < self.accepted_as.replay_order

    @property
    def may_be_accepted_unseen(self) -> bool:
        """Returns whether missing bytes may hold an accepted arrival of it from before its slot was passed.

        These are the bytes between its last refusal and the arrival that passed it. Without a refusal before, they
        begin where the state before that arrival was set.
        """
        passing = self.slot.passed_by
        if passing is None:
            return False
        before = [arrival for arrival in self.refusals if arrival.replay_order < passing.replay_order]
        return passing.missing_runs > before[-1].missing_runs if before else passing.may_hide_others


@dataclass(frozen=True)
class Occupants:
    """Holds all messages of a slot; what they have in common is found once, however many share it."""

    messages: list[Message]

    @cached_property
    def accepted(self) -> Arrival | None:
        """Returns the first arrival in the slot that was accepted without doubt."""
        taken = (message.accepted_as for message in self.messages if message.accepted_as)
        return min(taken, key=lambda arrival: arrival.replay_order, default=None)

    @cached_property
    def may_be_taken(self) -> bool:
        """Returns whether a message was accepted in doubt."""
        return any(one.accepted is not False for message in self.messages for one in message.doubtful)


@dataclass(frozen=True)
class Case:
    """Holds a message and all that share its slot: what the rules ask."""

    message: Message
    occupants: Occupants

    @cached_property
    def accepted(self) -> bool:
        """Returns whether it was accepted without doubt."""
        return self.message.accepted_as is not None

    @property
    def displacer(self) -> Arrival | None:
        """Returns the arrival of another message that was accepted in its place; None if it was accepted itself."""
        return None if self.accepted else self.occupants.accepted

    @cached_property
    def final_ack_class(self) -> int:
        """Returns the class of its FinalAck; 0 without one, and if it is for another message of the ID and slot."""
        of_other = self.displacer is not None and self.displacer.message_id == self.message.first.message_id
        return 0 if of_other else self.message.final_ack_class or 0

    @property
    def was_queued(self) -> bool:
        """Returns whether a FinalAck says that it was in its queue."""
        return bool(self.final_ack_class & QUEUED_CLASS)

    @property
    def is_negative(self) -> bool:
        """Returns whether a FinalAck says that it was not read."""
        return bool(self.final_ack_class & NEGATIVE_CLASS)

    @property
    def is_alone(self) -> bool:
        """Returns whether no other message has its slot; an OrderAck names a slot, and does not decide between two."""
        return len(self.occupants.messages) == 1

    @property
    def surely_refused(self) -> bool:
        """Returns whether every arrival was refused, at least one as out of order, and none in doubt."""
        return not (self.accepted or self.message.doubtful or self.message.only_duplicates)

    @property
    def too_late_for_one_receiver(self) -> bool:
        """Returns whether it came too late for a state that several receivers share: that of its own may be lower."""
        return self.message.first.several_receivers and self.message.came_late


def _is_contradicted(case: Case) -> bool:
    """Holds if acknowledgments contradict a verdict, or a FinalAck says that a refused message was in its queue."""
    elsewhere = case.displacer is not None and not case.message.doubtful
    return case.message.contradicted_as is not None or (case.was_queued and (case.surely_refused or elsewhere))


def _by_acknowledgment(case: Case) -> bool:
    """Holds for a message in doubt that a FinalAck, or an OrderAck for its slot alone, says was delivered."""
    covered = any(arrival.covered for arrival in case.message.doubtful) and case.is_alone
    return bool(case.message.doubtful) and (case.was_queued or covered)


def _before_capture(case: Case) -> bool:
    """Holds for a message of which only resends came, if an acknowledgment proves that the receiver had it."""
    proven = case.was_queued or (case.message.confirmed and case.is_alone)
    return case.message.only_duplicates and not case.occupants.may_be_taken and proven


def _is_unknown(case: Case) -> bool:
    """Holds if nothing proves that the message, or another one of its slot, was accepted, nor that it was refused."""
    in_doubt = not case.surely_refused or case.occupants.may_be_taken or case.too_late_for_one_receiver
    waits_for_assumed_state = not case.message.is_reached and case.message.first.state_assumed
    passed_unseen = case.message.is_reached and case.message.may_be_accepted_unseen
    return in_doubt or waits_for_assumed_state or passed_unseen


def _is_given_up(case: Case) -> bool:
    """Holds if the sender skipped the number of a refused message afterwards."""
    begins = case.message.slot.gap_begins
    return begins is not None and begins < case.message.first.number


RULES: tuple[tuple[Outcome, Callable[[Case], bool]], ...] = (
    (Outcome.CONTRADICTED, _is_contradicted),
    (Outcome.REFUSED_FOR_CAUSE, lambda case: case.is_negative and not case.was_queued),
    (Outcome.DELIVERED_TWICE, lambda case: case.accepted and case.message.first.accepted_twice),
    (Outcome.NOT_READ, lambda case: case.is_negative and case.was_queued),
    (Outcome.DELIVERED_AFTER_REFUSAL, lambda case: case.message.refused_before_accepted),
    (Outcome.DELIVERED, lambda case: case.accepted),
    (Outcome.DELIVERED_BY_ACKNOWLEDGMENT, _by_acknowledgment),
    (Outcome.DISPLACED, lambda case: case.displacer is not None and not case.too_late_for_one_receiver),
    (Outcome.DELIVERED_BEFORE_CAPTURE, _before_capture),
    (Outcome.UNKNOWN, _is_unknown),
    (Outcome.PENDING, lambda case: not case.message.is_reached),
    (Outcome.GIVEN_UP, _is_given_up),
    (Outcome.PASSED_BY, lambda _: True),
)
"""Outcomes in the order in which they are asked for."""
_BY_ACCEPTANCE = (Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.DELIVERED_AFTER_REFUSAL, Outcome.DELIVERED)
_BY_ORDER_ACK = (Outcome.DELIVERED_BY_ACKNOWLEDGMENT, Outcome.DELIVERED_BEFORE_CAPTURE)


def outcome_of(case: Case) -> Outcome:
    """Returns what became of a message."""
    return next(outcome for outcome, holds in RULES if holds(case))


def delivered_by(case: Case, outcome: Outcome) -> DeliveredBy | None:
    """Returns what proves that a message was delivered; None if nothing does."""
    if outcome in _BY_ACCEPTANCE and case.accepted:
        return DeliveredBy.ACCEPTED
    if outcome not in (*_BY_ACCEPTANCE, *_BY_ORDER_ACK):
        return None
    if (case.message.final_ack_class or 0) & QUEUED_CLASS:
        return DeliveredBy.FINAL_ACK
    return DeliveredBy.ORDER_ACK if outcome in _BY_ORDER_ACK else None


def witness(case: Case, outcome: Outcome) -> list[str]:
    """Returns the keys of the first arrival, of the one that decided, and of what displaced or passed the message."""
    message, passed_by = case.message, case.message.slot.passed_by
    decided = message.contradicted_as or (message.accepted_as or message.last).key
    other: str | None = None
    if outcome is Outcome.DISPLACED and case.displacer is not None:
        other = case.displacer.key
    elif outcome in (Outcome.GIVEN_UP, Outcome.PASSED_BY) and passed_by is not None:
        other = passed_by.key
    return distinct((message.first.key, decided, other))


def distinct(keys: Iterable[str | None]) -> list[str]:
    """Returns keys in their order, each once, without None."""
    return list(dict.fromkeys(key for key in keys if key is not None))
