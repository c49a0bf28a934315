"""Decides what became of a message: the first rule that holds gives its outcome.

In doubt an outcome claims less than it could.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from schemas.outcomes import FATE_OF, DeliveredBy, Fate, Outcome
from schemas.replay import Evidence, Reason, Verdict
from schemas.wire import LATEST_ORDER_ACK_NS, NEGATIVE_CLASS, QUEUED_CLASS, RESEND_INTERVALS_S
from udfs.replay.outcomes.arrivals import Arrival

_LATEST_ORDER_ACK_US = LATEST_ORDER_ACK_NS // 1_000


@dataclass(eq=False)
class Slot:
    """Holds the arrivals in a slot, in replay order, and what is known of it beside them."""

    arrivals: list[Arrival]
    passed_by: Arrival | None
    """The first arrival after which the state had reached the slot; None if it never did."""
    gap_begins: int | None
    """The number below the lowest counted gap that begins above the slot, or around it."""
    is_skipped: bool = False
    """Whether the previous number of a later message shows that the sender skipped this number."""

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

    @cached_property
    def rivals(self) -> "list[Message]":
        """Returns the messages that were accepted in its place, or may have been; none if it was accepted itself."""
        if self.accepted_as:
            return []
        others = [other for other in self.slot.messages if other is not self]
        accepted = [other for other in others if self.displacer in other.arrivals]
        perhaps = (one for one in others if any(by.moves or by.reason == Reason.CLOCKS_DIFFER for by in one.doubtful))
        return accepted or list(perhaps)

    @property
    def contenders(self) -> int | None:
        """Returns how many messages have its number, where clocks do not tell which was accepted; None elsewhere."""
        by_clocks = any(arrival.reason == Reason.CLOCKS_DIFFER for arrival in self.arrivals)
        is_settled = self.slot.accepted is not None or len(self.slot.messages) == 1
        return len(self.slot.messages) if by_clocks and not is_settled else None

    @property
    def refusals(self) -> list[Arrival]:
        """Returns the arrivals that were refused."""
        return [arrival for arrival in self.arrivals if arrival.accepted is False]

    @property
    def contradicted_as(self) -> str | None:
        """Returns the key of an arrival whose verdict the receiver's OrderAcks contradict."""
        keys = (one.key for one in self.arrivals if one.evidence == Evidence.CONTRADICTED or one.in_vain)
        return min(keys, default=None)

    @cached_property
    def final_ack_class(self) -> int | None:
        """Returns the class of its FinalAck; the highest of several."""
        classes = (arrival.final_ack_class for arrival in self.arrivals)
        return max((one for one in classes if one is not None), default=None)

    @property
    def acknowledged_us(self) -> int | None:
        """Returns when the first acknowledgment of it came; None for none."""
        times = (arrival.acknowledged_us for arrival in self.arrivals)
        return min((us for us in times if us is not None), default=None)

    @property
    def arrival_acknowledged_us(self) -> int | None:
        """Returns when its receiver acknowledged the arrival that it accepted, or else the first one not judged."""
        accepted = (one for one in self.arrivals if one.accepted)
        unjudged = (one for one in self.arrivals if one.accepted is None)
        judged = next(accepted, None) or next(unjudged, None)
        return judged and judged.acknowledged_us

    @cached_property
    def times_since_acceptance(self) -> list[int]:
        """Returns when it arrived, from the accepted arrival on: what is refused is sent again for that alone."""
        since = self.accepted_as.replay_order if self.accepted_as else 0
        return [one.at_us for one in self.arrivals if one.replay_order >= since and one.at_us is not None]

    @cached_property
    def next_resend_us(self) -> int | None:
        """Returns when its sender, which still sends it, sends it again at the latest; None if it does not.

        A resend says that its sender had no OrderAck until then. A sender that let the time of the next resend pass by
        more than a timer may be late, while it sent other packets, may have had one on a way that no capture holds.
        """
        times = self.times_since_acceptance
        if len(times) < 2 or max(times) - min(times) < _LATEST_ORDER_ACK_US:  # noqa: PLR2004 - sent again
            return None
        resends = min(len(self.arrivals) - 1, len(RESEND_INTERVALS_S) - 1)
        interval_us = max(RESEND_INTERVALS_S[resends] * 1_000_000, self.first.longest_us or 0)
        next_us = max(times) + interval_us
        until_us = max((one.until_us for one in self.arrivals if one.until_us is not None), default=None)
        return None if until_us is not None and until_us > next_us + _LATEST_ORDER_ACK_US else next_us

    @cached_property
    def never_taken(self) -> bool:
        """Returns whether nothing of the receiver's TCP acknowledged it, though the receiver was seen long after."""
        return all(arrival.untaken for arrival in self.arrivals)

    @cached_property
    def is_unacknowledged(self) -> bool:
        """Returns whether its receiver never acknowledged it, although it should have."""
        if self.acknowledged_us is not None or self.final_ack_class is not None:
            return False
        acknowledged = self.first.acknowledged_sequence
        if acknowledged is not None and self.first.sequence < acknowledged:
            return self.never_taken  # its receiver went on to a later sequence, and says no more of this one
        overdue = any(arrival.overdue for arrival in self.arrivals)
        return overdue or self.never_taken or self.next_resend_us is not None

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


def outcome_of(message: Message) -> Outcome:
    """Returns what became of a message, asking in the order of the documented outcomes."""
    arrivals, slot, first = message.arrivals, message.slot, message.first
    accepted, doubtful, displacer = message.accepted_as, message.doubtful, message.displacer
    only_duplicates = all(arrival.verdict == Verdict.DUPLICATE for arrival in arrivals)
    surely_refused = not (accepted or doubtful or only_duplicates)
    # A FinalAck names a message by its ID, and an OrderAck a slot: neither decides between two that share it.
    names_other = any(other.first.message_id == first.message_id for other in message.rivals)
    final = 0 if names_other else message.final_ack_class or 0
    is_negative, was_queued = final & NEGATIVE_CLASS != 0, final & QUEUED_CLASS != 0
    is_alone = len(slot.messages) == 1

    if message.contradicted_as is not None or (was_queued and (surely_refused or (displacer and not doubtful))):
        return Outcome.CONTRADICTED
    if is_negative and not was_queued:
        return Outcome.REFUSED_FOR_CAUSE
    if accepted and first.accepted_twice:
        return Outcome.DELIVERED_TWICE
    if is_negative:
        return Outcome.NOT_READ
    if accepted and message.is_unacknowledged:
        return Outcome.UNACKNOWLEDGED
    if accepted:
        refused = (one for one in arrivals if one.verdict == Verdict.OUT_OF_ORDER and not message.is_doubtful(one))
        is_after = any(one.replay_order < accepted.replay_order for one in refused)
        return Outcome.DELIVERED_AFTER_REFUSAL if is_after else Outcome.DELIVERED
    if surely_refused and first.may_be_elsewhere:
        return Outcome.UNKNOWN  # another receiver may have it
    # An OrderAck of a later number covers what its sender skipped, too, and what it sent out of turn after that number.
    is_sent = is_alone and not (slot.is_skipped or (only_duplicates and first.jumbled))
    is_covered = is_sent and any(arrival.covered for arrival in doubtful)
    if doubtful and (was_queued or is_covered):
        return Outcome.DELIVERED_BY_ACKNOWLEDGMENT
    if displacer:
        return Outcome.DISPLACED
    is_confirmed = is_sent and any(arrival.evidence == Evidence.CONFIRMED for arrival in arrivals)
    if only_duplicates and not slot.may_be_taken and (was_queued or is_confirmed):
        return Outcome.DELIVERED_BEFORE_CAPTURE
    if not surely_refused or slot.may_be_taken:
        return Outcome.UNKNOWN
    if first.slot > first.state:
        return Outcome.UNKNOWN if first.state_assumed else Outcome.PENDING
    if message.may_be_accepted_unseen:
        return Outcome.UNKNOWN
    # Its sender skipped its number afterwards, or what came later overtook it.
    return Outcome.GIVEN_UP if slot.gap_begins is not None and slot.gap_begins < first.number else Outcome.PASSED_BY


_BY_ACCEPTANCE = (Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.DELIVERED_AFTER_REFUSAL, Outcome.DELIVERED)
_BY_ORDER_ACK = (Outcome.DELIVERED_BY_ACKNOWLEDGMENT, Outcome.DELIVERED_BEFORE_CAPTURE)


def delivered_by(message: Message, outcome: Outcome) -> DeliveredBy | None:
    """Returns what proves that a message was delivered; None if nothing does."""
    if outcome in _BY_ACCEPTANCE and message.accepted_as:
        return DeliveredBy.ACCEPTED
    if outcome not in (*_BY_ACCEPTANCE, *_BY_ORDER_ACK):
        return None
    if (message.final_ack_class or 0) & QUEUED_CLASS:
        return DeliveredBy.FINAL_ACK
    return DeliveredBy.ORDER_ACK if outcome in _BY_ORDER_ACK else None


def decided_us(message: Message, outcome: Outcome) -> int | None:
    """Returns when the captures showed what became of a message, in µs since 1970; None while nothing decides it."""
    if FATE_OF[outcome] not in (Fate.DELIVERED, Fate.LOST):
        return None
    denied = [arrival.denied_us for arrival in message.arrivals]
    if outcome is Outcome.REFUSED_FOR_CAUSE:
        return min((us for us in denied if us is not None), default=None)
    if outcome in _BY_ACCEPTANCE and message.accepted_as:
        # It was unacknowledged until an OrderAck that came later than timers allow or, without one, its last resend.
        accepted_us, sent_us = (one.captured_us for one in (message.accepted_as, message.arrivals[-1]))
        until_us = sent_us if message.acknowledged_us is None else message.acknowledged_us
        if accepted_us is None or until_us is None:
            return accepted_us
        return until_us if until_us - accepted_us > _LATEST_ORDER_ACK_US else accepted_us
    if outcome in (*_BY_ACCEPTANCE, *_BY_ORDER_ACK):
        return min((us for us in (message.acknowledged_us, *denied) if us is not None), default=None)
    by = message.displacer if outcome is Outcome.DISPLACED else message.slot.passed_by
    times = (message.first.captured_us, by and by.captured_us)
    return max((us for us in times if us is not None), default=None)


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
