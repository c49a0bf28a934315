"""The kinds of findings on receivers: what they return, who answers at an address, and where the way was closed."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from schemas.wire import QUEUED_CLASS, UNLIMITED, MessageClass
from udfs.replay.findings.causes import advice_on, reason_of
from udfs.replay.findings.finding import Finding
from udfs.replay.words import NS, at, class_name, counted, known, one_or_many, tenths, tx_sequence, whole


class RepeatedOrderAck(NamedTuple):
    """Holds the OrderAcks that repeat the highest number of a scope's last sequence, and what was refused meanwhile."""

    session_id: str
    scope_key: str
    destination_queue: str | None
    tx_sequence_id: int
    number: int
    times: int
    refused: int
    """Messages with higher numbers that the receiver refused between the first and the last of them."""
    first_ns: int
    last_ns: int
    first_key: str
    last_key: str


def repeated_order_ack(fact: RepeatedOrderAck) -> Finding:
    """Says that a sequence is stuck, or that acknowledgments get lost."""
    reason = (
        f"in this time it refused {counted(fact.refused, 'higher number')}"
        if fact.refused
        else "the OrderAcks do not reach the sender, or the sender ignores them"
    )
    return Finding(
        FindingKind.REPEATED_ORDER_ACK,
        Severity.WARNING if fact.refused else Severity.INFO,
        at(fact.first_ns),
        fact.times,
        f"The receiver sent the OrderAck for number {fact.number} of sequence {tx_sequence(fact.tx_sequence_id)} "
        f"{fact.times} times in {whole((fact.last_ns - fact.first_ns) / NS)} s, and none for a higher number: "
        f"{reason}.",
        [fact.first_key, fact.last_key],
        session_id=fact.session_id,
        scope_key=fact.scope_key,
        destination_queue=fact.destination_queue,
        tx_sequence_id=fact.tx_sequence_id,
    )


class Returned(NamedTuple):
    """Holds the negative acknowledgments of one class, per session and queue; `about` is what the first one names."""

    message_class: int
    session_id: str
    destination_queue: str | None
    messages: int
    transactional: int
    captured_at: datetime | None
    first_ns: int | None
    first_key: str
    message_id: str | None
    about_ns: int | None
    about_key: str | None
    time_to_reach_queue: int | None
    time_to_be_received: int | None


def not_received_by_application(fact: Returned) -> Finding:
    """Says why messages came back; where a time ran out, how long that was, and how long it took."""
    left_unread = fact.message_class & QUEUED_CLASS != 0
    subject = (
        counted(fact.messages, "message left its queue unread", "messages left their queue unread")
        if left_unread
        else counted(fact.messages, "message did not reach its queue", "messages did not reach their queue")
    )
    transactional = f" Transactional: {fact.transactional}." if fact.transactional else ""
    return Finding(
        FindingKind.NOT_RECEIVED_BY_APPLICATION,
        Severity.WARNING if left_unread else Severity.ERROR,
        fact.captured_at,
        fact.messages,
        f"{subject}, as {one_or_many(fact.messages, 'an acknowledgment says', 'acknowledgments say')}: "
        f"{reason_of(fact.message_class)} ({class_name(fact.message_class)}).{transactional} The first is message "
        f"{known(fact.message_id)}{_delay(fact)}. {advice_on(fact.message_class)}",
        [fact.about_key, fact.first_key],
        session_id=fact.session_id,
        destination_queue=fact.destination_queue,
    )


def _delay(fact: Returned) -> str:
    """Returns ", which had 30 s: the acknowledgment came 31.5 s after it", or an empty text."""
    limit_s = {
        MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: fact.time_to_reach_queue,
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: fact.time_to_be_received,
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER: fact.time_to_be_received,
    }.get(fact.message_class)  # type: ignore[call-overload] # of a class that the documents do not name as well
    if limit_s is None or limit_s == UNLIMITED or fact.first_ns is None or fact.about_ns is None:
        return ""
    return f", which had {limit_s} s: the acknowledgment came {tenths((fact.first_ns - fact.about_ns) / NS)} s after it"


class SeveralReceivers(NamedTuple):
    """Holds the queue managers that take messages at an address, the earliest first."""

    address: str
    receivers: list[str]
    beginnings: list[str]
    """The key of the first message to each."""
    second_ns: int | None
    session_id: str
    split: int | None
    """Sequences that went to several of them."""
    parts: list[str] | None
    """The keys of the first messages of such a sequence to two of them."""


def several_receivers(fact: SeveralReceivers) -> Finding:
    """Says that receivers share an address; each has a state of its own, to which the others' numbers are missing."""
    count = len(fact.receivers)
    split = (
        f" {counted(fact.split, 'sequence of messages went', 'sequences of messages went')} to several of them."
        if fact.split
        else ""
    )
    return Finding(
        FindingKind.SEVERAL_RECEIVERS,
        Severity.WARNING if fact.split else Severity.INFO,
        at(fact.second_ns),
        count,
        f"{count} queue managers take messages at the address {fact.address} ({', '.join(fact.receivers)}): a load "
        f"balancer or a cluster is in front of them, or Message Queuing was installed again.{split} Let a sender reach "
        "the same one each time: transactional messages need one receiver.",
        [*(fact.parts or fact.beginnings[:2])],
        session_id=fact.session_id,
    )


class AcknowledgedElsewhere(NamedTuple):
    """Holds the acknowledgments that went to an address which no message of their sender came from."""

    session_id: str
    source_queue_manager: str
    came_from: list[str]
    address: str
    acks: int
    first_ns: int
    first_key: str


def acknowledged_elsewhere(fact: AcknowledgedElsewhere) -> Finding:
    """Says where acknowledgments went."""
    return Finding(
        FindingKind.ACKNOWLEDGED_ELSEWHERE,
        Severity.INFO,
        at(fact.first_ns),
        fact.acks,
        f"{counted(fact.acks, 'acknowledgment')} went to {fact.address}, although the messages of sender "
        f"{fact.source_queue_manager} come from {', '.join(fact.came_from)}: it has several networks, or its address "
        f"is translated on the way. Look whether {one_or_many(fact.acks, 'it arrives', 'they arrive')} there: a sender "
        "repeats what is not acknowledged.",
        [fact.first_key],
        session_id=fact.session_id,
    )


class WindowStalled(NamedTuple):
    """Holds for how long a session's receiver took no packets at most, by what showed it."""

    session_id: str
    connections: int
    is_last: bool
    """The way was still closed when the last packet of a connection was captured."""
    first_ns: int
    first_key: str
    unanswered_ns: int | None
    paused_ns: int | None
    shut_ns: int | None


def window_stalled(fact: WindowStalled) -> Finding:
    """Says that the way to a receiver was closed while packets waited."""
    causes = (
        (fact.unanswered_ns, "no SessionAck came for packets that were sent"),
        (fact.paused_ns, "it announced a window of one packet"),
        (fact.shut_ns, "its TCP announced a window of 0"),
    )
    said = "; ".join(f"for up to {whole(ns / NS)} s {words}" for ns, words in causes if ns is not None)
    end = "It did not go on, so messages wait in the sender's outgoing queue." if fact.is_last else "It went on later."
    return Finding(
        FindingKind.WINDOW_STALLED,
        Severity.WARNING if fact.is_last else Severity.INFO,
        at(fact.first_ns),
        fact.connections,
        f"The receiver stopped taking packets on {counted(fact.connections, 'connection')}: {said}. {end} Look on the "
        "receiver for a full disk, a lack of memory, and a Message Queuing service that is paused or hangs.",
        [fact.first_key],
        session_id=fact.session_id,
    )
