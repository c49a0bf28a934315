"""The kinds of findings that a receiver's acknowledgments of a message show."""

from schemas.replay import Explains, FindingKind, Severity
from schemas.wire import LATEST_ORDER_ACK_MS, QUEUED_CLASS, MessageClass
from udfs.replay.findings.causes import advice_on, reason_of
from udfs.replay.findings.finding import Arrival, Found, Role, finding
from udfs.replay.words import class_name, tenths, whole


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
        arrival.explained_by == Explains.LITERAL
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
        and arrival.waited_ms > LATEST_ORDER_ACK_MS
        and not arrival.is_contradicted
    ),
    witness=(Role.FIRST,),
)
def unacknowledged(found: Found) -> str:
    """Tells that accepted messages have no OrderAck, although the captures would show it."""
    return (
        f"{found.counted('message')} of {found.sequence} {found.was} accepted, but the captures hold no OrderAck for "
        f"{found.it}, although they show the session for {tenths(found.waited_ms / 1e3)} s after the first of them, "
        f"number {found.first.number}."
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
