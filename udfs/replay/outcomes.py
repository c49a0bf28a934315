"""Decides what became of a message: the first rule that holds gives its outcome.

In doubt an outcome claims less than it could. `RULES` has the order of the documented outcomes; each rule is one
question about a `Message`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from schemas.outcomes import DeliveredBy, Outcome
from schemas.replay import Evidence, Verdict
from schemas.wire import NEGATIVE_CLASS, QUEUED_CLASS
from udfs.replay.arrivals import Arrival


@dataclass(eq=False)
class Slot:
    """Holds the arrivals in a slot, in replay order, and what is known of it beside them."""

    arrivals: list[Arrival]
    passed_by: Arrival | None
    """The first arrival after which the state had reached the slot; None if it never did."""
    gap_begins: int | None
    """The number below the lowest counted gap that begins above the slot, or around it."""

    @cached_property
    def messages(self) -> "list[Message]":
        """Returns the messages that share the slot."""
        by_message: dict[tuple[str, str, int], list[Arrival]] = defaultdict(list)
        for arrival in self.arrivals:
            by_message[arrival.message].append(arrival)
        return [Message(arrivals, self) for arrivals in by_message.values()]

    @cached_property
    def accepted(self) -> Arrival | None:
        """Returns the first arrival that was accepted without doubt."""
        taken = (message.accepted_as for message in self.messages if message.accepted_as)
        return min(taken, key=lambda arrival: arrival.replay_order, default=None)

    @cached_property
    def may_be_taken(self) -> bool:
        """Returns whether a message was accepted in doubt."""
        return any(one.moves for message in self.messages for one in message.doubtful)


@dataclass(eq=False)
class Message:
    """Holds all arrivals of one message, in replay order, and its slot."""

    arrivals: list[Arrival]
    slot: Slot

    @property
    def first(self) -> Arrival:
        """Returns its first arrival."""
        return self.arrivals[0]

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

    @cached_property
    def displacer(self) -> Arrival | None:
        """Returns the arrival of another message that was accepted in its place; None if it was accepted itself."""
        return None if self.accepted_as else self.slot.accepted

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
    def surely_refused(self) -> bool:
        """Returns whether every arrival was refused, at least one as out of order, and none in doubt."""
        return not (self.accepted_as or self.doubtful or self.only_duplicates)

    @property
    def is_reached(self) -> bool:
        """Returns whether the scope's last state is at or above its slot."""
        return self.first.slot <= self.first.state

    @property
    def is_alone(self) -> bool:
        """Returns whether no other message has its slot; an OrderAck names a slot, and does not decide between two."""
        return len(self.slot.messages) == 1

    @property
    def too_late_for_one_receiver(self) -> bool:
        """Returns whether it came too late for a state that several receivers share: that of its own may be lower."""
        late = (one for one in self.refusals if one.before is not None and one.slot <= one.before)
        return self.first.several_receivers and any(late)

    @cached_property
    def final_ack_class(self) -> int | None:
        """Returns the class of its FinalAck; the highest of several."""
        classes = (arrival.final_ack_class for arrival in self.arrivals)
        return max((one for one in classes if one is not None), default=None)

    def final_ack_says(self, bit: int) -> bool:
        """Returns whether the class of its FinalAck has a bit, unless another message of its ID has its slot."""
        of_other = self.displacer is not None and self.displacer.message_id == self.first.message_id
        return not of_other and bool((self.final_ack_class or 0) & bit)

    @property
    def was_queued(self) -> bool:
        """Returns whether a FinalAck says that it was in its queue."""
        return self.final_ack_says(QUEUED_CLASS)


def _is_contradicted(message: Message) -> bool:
    """Holds if acknowledgments contradict a verdict, or a FinalAck says that a refused message was in its queue."""
    elsewhere = message.displacer is not None and not message.doubtful
    return message.contradicted_as is not None or (message.was_queued and (message.surely_refused or elsewhere))


def _is_after_refusal(message: Message) -> bool:
    """Holds if an arrival was refused as out of order before one was accepted."""
    refused = (arrival for arrival in message.arrivals if arrival.verdict == Verdict.OUT_OF_ORDER)
    first = next((arrival for arrival in refused if not message.is_doubtful(arrival)), None)
    accepted = message.accepted_as
    return first is not None and accepted is not None and first.replay_order < accepted.replay_order


def _by_acknowledgment(message: Message) -> bool:
    """Holds for a message in doubt that a FinalAck, or an OrderAck for its slot alone, says was delivered."""
    covered = any(arrival.covered for arrival in message.doubtful) and message.is_alone
    return bool(message.doubtful) and (message.was_queued or covered)


def _before_capture(message: Message) -> bool:
    """Holds for a message of which only resends came, if an acknowledgment proves that the receiver had it."""
    confirmed = any(arrival.evidence == Evidence.CONFIRMED for arrival in message.arrivals) and message.is_alone
    return message.only_duplicates and not message.slot.may_be_taken and (message.was_queued or confirmed)


def _is_unknown(message: Message) -> bool:
    """Holds if nothing proves that the message, or another one of its slot, was accepted, nor that it was refused."""
    in_doubt = not message.surely_refused or message.slot.may_be_taken or message.too_late_for_one_receiver
    return in_doubt or (_may_be_accepted_unseen(message) if message.is_reached else message.first.state_assumed)


def _may_be_accepted_unseen(message: Message) -> bool:
    """Returns whether missing bytes may hold an accepted arrival of it from before its slot was passed.

    These are the bytes between its last refusal and the arrival that passed it. Without a refusal before, they begin
    where the state before that arrival was set.
    """
    passing = message.slot.passed_by
    if passing is None:
        return False
    before = [arrival for arrival in message.refusals if arrival.replay_order < passing.replay_order]
    return passing.missing_runs > before[-1].missing_runs if before else passing.may_hide_others


def _is_given_up(message: Message) -> bool:
    """Holds if the sender skipped the number of a refused message afterwards."""
    begins = message.slot.gap_begins
    return begins is not None and begins < message.first.number


RULES: tuple[tuple[Outcome, Callable[[Message], bool]], ...] = (
    (Outcome.CONTRADICTED, _is_contradicted),
    (Outcome.REFUSED_FOR_CAUSE, lambda message: message.final_ack_says(NEGATIVE_CLASS) and not message.was_queued),
    (Outcome.DELIVERED_TWICE, lambda message: message.accepted_as is not None and message.first.accepted_twice),
    (Outcome.NOT_READ, lambda message: message.final_ack_says(NEGATIVE_CLASS) and message.was_queued),
    (Outcome.DELIVERED_AFTER_REFUSAL, _is_after_refusal),
    (Outcome.DELIVERED, lambda message: message.accepted_as is not None),
    (Outcome.DELIVERED_BY_ACKNOWLEDGMENT, _by_acknowledgment),
    (Outcome.DISPLACED, lambda message: message.displacer is not None and not message.too_late_for_one_receiver),
    (Outcome.DELIVERED_BEFORE_CAPTURE, _before_capture),
    (Outcome.UNKNOWN, _is_unknown),
    (Outcome.PENDING, lambda message: not message.is_reached),
    (Outcome.GIVEN_UP, _is_given_up),
    (Outcome.PASSED_BY, lambda _: True),
)
"""Outcomes in the order in which they are asked for."""
_BY_ACCEPTANCE = (Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.DELIVERED_AFTER_REFUSAL, Outcome.DELIVERED)
_BY_ORDER_ACK = (Outcome.DELIVERED_BY_ACKNOWLEDGMENT, Outcome.DELIVERED_BEFORE_CAPTURE)


def outcome_of(message: Message) -> Outcome:
    """Returns what became of a message."""
    return next(outcome for outcome, holds in RULES if holds(message))


def delivered_by(message: Message, outcome: Outcome) -> DeliveredBy | None:
    """Returns what proves that a message was delivered; None if nothing does."""
    if outcome in _BY_ACCEPTANCE and message.accepted_as:
        return DeliveredBy.ACCEPTED
    if outcome not in (*_BY_ACCEPTANCE, *_BY_ORDER_ACK):
        return None
    if (message.final_ack_class or 0) & QUEUED_CLASS:
        return DeliveredBy.FINAL_ACK
    return DeliveredBy.ORDER_ACK if outcome in _BY_ORDER_ACK else None


def witness(message: Message, outcome: Outcome) -> list[str]:
    """Returns the keys of the first arrival, of the one that decided, and of what displaced or passed the message."""
    decided = message.contradicted_as or (message.accepted_as or message.arrivals[-1]).key
    others = {
        Outcome.DISPLACED: message.displacer,
        Outcome.GIVEN_UP: message.slot.passed_by,
        Outcome.PASSED_BY: message.slot.passed_by,
    }
    other = others.get(outcome)
    return distinct((message.first.key, decided, other and other.key))


def distinct(keys: Iterable[str | None]) -> list[str]:
    """Returns keys in their order, each once, without None."""
    return list(dict.fromkeys(key for key in keys if key is not None))
