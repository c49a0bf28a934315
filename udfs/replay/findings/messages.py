"""The kinds of findings on messages: repeated, refused or accepted over others, not judged, and what answers say.

Each decorated function becomes a MessageRule, listed in `on_messages.RULES`.
"""

from schemas.replay import Explains, FindingKind, Reason, Severity, Verdict
from schemas.wire import LATEST_ORDER_ACK_MS, QUEUED_CLASS, MessageClass
from udfs.replay.findings.causes import advice_on, reason_of
from udfs.replay.findings.finding import Arrival, Found, Role, finding
from udfs.replay.words import all_counted, class_name, number_range, one_or_many, tenths, whole

_DEFAULTS_S = (30, 300, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1
_TOLERANCE = 0.1  # of the interval
_SEVERITY_BY_FATE = {"lost": Severity.ERROR, "delivered": Severity.INFO}


@finding(
    FindingKind.DUPLICATES,
    Severity.INFO,
    when=lambda arrival: arrival.verdict == Verdict.DUPLICATE and arrival.is_original,
    witness=(Role.ORIGINAL, Role.FIRST),
)
def duplicates(found: Found) -> str:
    """Tells that messages came again after they had been accepted."""
    return (
        f"{found.counted('repeat')} of {found.sequence} arrived after the receiver had the message, and it refused "
        f"{found.it}, as it should. The first repeats number {found.first.number}."
    )


@finding(
    FindingKind.DUPLICATES_DIFFER,
    Severity.ERROR,
    when=lambda arrival: not arrival.is_original and arrival.is_first_arrival,
    witness=(Role.ORIGINAL, Role.FIRST),
)
def duplicates_differ(found: Found) -> str:
    """Tells that a number was used for two messages."""
    other_id = found.original is not None and found.original.message_id != found.first.message_id
    return (
        f"{found.counted('message')} of {found.sequence} reused {found.one_or_many('a number', 'numbers')} under which "
        f"the receiver accepted a different message "
        f"({'another message ID' if other_id else 'the same message ID, other content'}). Two senders share one "
        f"identity, or a sender was restored from a backup. The first is number {found.first.number}."
    )


@finding(
    FindingKind.RESEND_SCHEDULE,
    Severity.INFO,
    when=lambda arrival: arrival.interval_s is not None,
    witness=(Role.PREVIOUS, Role.FIRST),
    of_one_message=True,
)
def resend_schedule(found: Found) -> str:
    """Tells after which intervals a message was resent."""
    listed = ", ".join(str(tenths(interval)) for interval in found.intervals)
    judged = (
        "the default intervals of [MS-MQQB] 3.1.3.1"
        if all(map(_is_default, found.intervals))
        else "not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry settings set them"
    )
    return (
        f"No OrderAck came in time for {found.sequence}, so the sender sent number {found.first.number} again on the "
        f"same connection, after {listed} s: {judged}."
    )


def _is_default(interval_s: float) -> bool:
    return any(abs(interval_s - default) <= default * _TOLERANCE for default in _DEFAULTS_S)


def _severity(arrival: Arrival) -> Severity:
    return _SEVERITY_BY_FATE.get(arrival.fate, Severity.WARNING)


@finding(FindingKind.OUT_OF_ORDER, _severity, when=lambda arrival: arrival.is_refused and arrival.is_first_arrival)
def out_of_order(found: Found) -> str:
    """Tells what became of messages that were refused when they first came."""
    return (
        f"{found.counted('message')} of {found.sequence} arrived out of order and {found.was} refused; "
        f"{_fates(found)}. The first is number {found.first.number}, which needs number {found.first.previous}; the "
        f"receiver stood at: {found.stood}."
    )


def _fates(found: Found) -> str:
    """Says what became of the refused: "all were accepted later", "2 are lost, 1 is still to be accepted"."""
    unknown = found.messages - found.delivered - found.lost - found.pending
    fates = (
        (found.delivered, "was accepted later", "were accepted later"),
        (found.lost, "was never accepted and is lost", "were never accepted and are lost"),
        (found.pending, "is still to be accepted", "are still to be accepted"),
        (unknown, "has an unknown outcome", "have an unknown outcome"),
    )
    for count, one, many in fates:
        if count == found.messages:
            return one_or_many(count, f"it {one}", f"all {many}")
    return ", ".join(all_counted(fates))


@finding(
    FindingKind.STUCK_SEQUENCE,
    Severity.WARNING,
    when=lambda arrival: (
        arrival.is_refused
        and arrival.reason == Reason.PREDECESSOR_MISSING
        and not arrival.is_first_arrival
        and arrival.fate == "pending"
    ),
    witness=(Role.SETTER, Role.PREVIOUS, Role.FIRST),
)
def stuck_sequence(found: Found) -> str:
    """Tells that messages are refused each time that they are resent."""
    return (
        f"The sender resends and the receiver refuses: {found.counted('resend')} of {found.sequence} {found.was} "
        f"refused again, and the receiver still waits for a message before {found.it}. The first is number "
        f"{found.first.number}, which needs number {found.first.previous}; the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.SEQUENCE_REGRESSED,
    Severity.ERROR,
    when=lambda arrival: (
        arrival.is_refused
        and arrival.is_first_arrival
        and arrival.is_below_accepted is True
        and (arrival.reason == Reason.STALE_SEQUENCE or arrival.is_sent_after_all_accepted)
    ),
)
def sequence_regressed(found: Found) -> str:
    """Tells that a sender went back to numbers that the receiver had passed."""
    began = "" if found.first_is_sent_later else "a new sequence began before these were acknowledged, so "
    return (
        f"{found.counted('new message')} of {found.sequence} {found.one_or_many('lies', 'lie')} below what the "
        f"receiver had accepted: {began}the sender was restored from a backup, or another machine uses its identity. "
        f"The first is number {found.first.number}; the receiver stood at: {found.stood}."
    )


@finding(FindingKind.GAP_EXPIRED, Severity.WARNING, when=lambda arrival: arrival.verdict == Verdict.GAP_EXPIRED)
def gap_expired(found: Found) -> str:
    """Tells which numbers a sender skipped, and which of them the receiver had refused before."""
    number = found.first.number
    refused = ", ".join(f"number {one.number} ({one.message_id})" for one in found.attempts)
    return (
        f"{found.counted('message')} of {found.sequence} {found.was} accepted although the sender skipped numbers, "
        f"which it does when messages expire. Before the first, number {number}, "
        f"{number_range(number - found.first.gap_size, number - 1)} expired."
        f"{f' The receiver had refused: {refused}.' if refused else ''}"
    )


@finding(
    FindingKind.CAPTURE_GAP,
    Severity.WARNING,
    when=lambda arrival: arrival.reason == Reason.CAPTURE_GAP and not arrival.acknowledged,
)
def capture_gap(found: Found) -> str:
    """Tells that missing bytes leave open what the receiver did."""
    return (
        f"{found.counted('message')} of {found.sequence} cannot be judged: bytes are missing from the captures before "
        f"{found.it}, and the numbers skipped may have been in these bytes. The first is number {found.first.number}, "
        f"which needs number {found.first.previous}; before the missing bytes the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.MISSED_BY_CAPTURE,
    Severity.INFO,
    when=lambda arrival: arrival.reason == Reason.CAPTURE_GAP and arrival.acknowledged,
)
def missed_by_capture(found: Found) -> str:
    """Tells that an acknowledgment closes the gap that missing bytes left."""
    return (
        f"Bytes are missing from the captures before {found.counted('message')} of {found.sequence}, but the receiver "
        f"acknowledged {found.it}: it had what the captures miss. The first is number {found.first.number}; before the "
        f"missing bytes the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.CLOCKS_DIFFER,
    Severity.WARNING,
    when=lambda arrival: arrival.reason == Reason.CLOCKS_DIFFER and not arrival.acknowledged,
)
def clocks_differ(found: Found) -> str:
    """Tells that the clocks of two captures leave the order open."""
    return (
        f"{found.counted('message')} of {found.sequence} cannot be judged: the clocks of two captures differ by more "
        f"than the time between {found.it} and a message on another connection, so either may have come first. The "
        f"first is number {found.first.number}, which needs number {found.first.previous}; the receiver stood at: "
        f"{found.stood}."
    )


@finding(
    FindingKind.CONTRADICTED,
    Severity.ERROR,
    when=lambda arrival: arrival.is_contradicted,
    witness=(Role.FIRST,),
)
def contradicted(found: Found) -> str:
    """Tells that acknowledgments say otherwise than the replay."""
    subject = f"{found.counted('message')} of {found.sequence} {found.one_or_many('is', 'are')}"
    if found.first.accepted:
        return (
            f"The receiver's OrderAcks contradict the replay: {subject} in order, but an OrderAck at least "
            f"{LATEST_ORDER_ACK_MS} ms later names a lower number. The first is number {found.first.number}."
        )
    return (
        f"The receiver's acknowledgments contradict the replay: {subject} out of order, but the receiver acknowledged "
        f"{found.it}. It breaks the rule, or it had messages that no capture holds. The first is number "
        f"{found.first.number}, which needs number {found.first.previous}; the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.STATE_FELL,
    Severity.ERROR,
    when=lambda arrival: (
        arrival.next_ack_agrees_with == Explains.LITERAL
        and arrival.state_number is not None
        and arrival.number < arrival.state_number
    ),
)
def state_fell(found: Found) -> str:
    """Tells that a receiver follows the literal reading."""
    return (
        f"The receiver's state fell: it answered {found.counted('repeat')} of {found.sequence} with an OrderAck for "
        "the repeated, lower number. It follows the letter of [MS-MQQB] 3.1.5.8.6 and may accept messages twice. The "
        f"first is number {found.first.number}; the receiver stood at: {found.stood}."
    )


def _is_refused_for_cause(arrival: Arrival) -> bool:
    final = arrival.final_ack_class
    return final is not None and not final & QUEUED_CLASS and arrival.is_first_arrival


def _is_unread(arrival: Arrival) -> bool:
    final = arrival.final_ack_class
    return final is not None and final >= MessageClass.MQMSG_CLASS_NACK_Q_DELETED and arrival.is_first_arrival


@finding(
    FindingKind.REFUSED_FOR_CAUSE, Severity.ERROR, when=_is_refused_for_cause, witness=(Role.FIRST,), by_cause=True
)
def refused_for_cause(found: Found) -> str:
    """Tells that FinalAcks name a cause for which messages never reached their queue."""
    return f"The receiver refused {found.counted('message')} of {found.sequence}, {_as_final_acks_say(found)}"


@finding(
    FindingKind.NOT_RECEIVED_BY_APPLICATION, Severity.WARNING, when=_is_unread, witness=(Role.FIRST,), by_cause=True
)
def not_received_by_application(found: Found) -> str:
    """Tells that FinalAcks say that messages left their queue unread."""
    subject = f"{found.counted('message')} of {found.sequence}"
    return f"{subject} reached the queue and left it unread, {_as_final_acks_say(found)}"


def _as_final_acks_say(found: Found) -> str:
    final = found.first.final_ack_class
    assert final is not None  # noqa: S101 - both rules ask for one
    return (
        f"as {found.one_or_many('a FinalAck says', 'FinalAcks say')}: {reason_of(final)} ({class_name(final)}). The "
        f"first is number {found.first.number}. {advice_on(final)}"
    )


@finding(
    FindingKind.UNACKNOWLEDGED,
    Severity.WARNING,
    when=lambda arrival: (
        arrival.accepted is True
        and arrival.answers_whole is True
        and not arrival.acknowledged
        and arrival.is_overdue
        and not arrival.is_contradicted
    ),
    witness=(Role.FIRST,),
)
def unacknowledged(found: Found) -> str:
    """Tells that accepted messages have no OrderAck, although the captures would show it."""
    return (
        f"{found.counted('message')} of {found.sequence} {found.was} accepted, but the captures hold no OrderAck for "
        f"{found.it}, although they show the session for more than the {LATEST_ORDER_ACK_MS} ms that the timers allow. "
        f"The first is number {found.first.number}."
    )


@finding(
    FindingKind.SLOW_ACKNOWLEDGMENT,
    Severity.WARNING,
    when=lambda arrival: arrival.accepted is True and arrival.answers_whole is True and arrival.is_answered_late,
    witness=(Role.FIRST,),
)
def slow_acknowledgment(found: Found) -> str:
    """Tells that OrderAcks came later than the timers allow."""
    return (
        f"{found.counted('message')} of {found.sequence} {found.was} acknowledged after more than the "
        f"{LATEST_ORDER_ACK_MS} ms that the timers allow. The first is number {found.first.number}: after "
        f"{whole(found.first.ack_latency_ms or 0)} ms."
    )
