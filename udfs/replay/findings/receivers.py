"""The kinds of findings on receivers: what they return, who answers at an address, and where the way was closed."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from schemas.wire import QUEUED_CLASS, UNLIMITED, MessageClass
from udfs.replay.findings.causes import advice_on, reason_of
from udfs.replay.findings.finding import Told
from udfs.replay.words import NS, class_name, counted, known, one_or_many, tenths, tx_sequence, whole


class RepeatedOrderAck(NamedTuple):
    """Holds OrderAcks that repeat the highest number of a scope's last sequence: it is stuck, or they get lost."""

    session_id: str
    scope_key: str
    destination_queue: str | None
    tx_sequence_id: int
    found_at: datetime
    messages: int
    """OrderAcks."""
    number: int
    seconds: float
    """From the first to the last of them."""
    refused: int
    """Messages with higher numbers that the receiver refused meanwhile."""
    first_key: str
    last_key: str

    def tell(self) -> Told:
        """Says whether the receiver refused anything meanwhile."""
        reason = (
            f"in this time it refused {counted(self.refused, 'higher number')}"
            if self.refused
            else "the OrderAcks do not reach the sender, or the sender ignores them"
        )
        sentence = (
            f"The receiver sent the OrderAck for number {self.number} of sequence {tx_sequence(self.tx_sequence_id)} "
            f"{self.messages} times in {whole(self.seconds)} s, and none for a higher number: {reason}."
        )
        severity = Severity.WARNING if self.refused else Severity.INFO
        return Told(FindingKind.REPEATED_ORDER_ACK, severity, sentence, [self.first_key, self.last_key])


class Returned(NamedTuple):
    """Holds negative acknowledgments of one class, for messages of one session and queue."""

    session_id: str
    destination_queue: str | None
    found_at: datetime | None
    messages: int
    message_class: int
    transactional: int
    """Messages in transactions among them."""
    key: str
    """Of the first acknowledgment; the others are of the message that it names, as far as a capture holds that."""
    message_id: str | None
    about_key: str | None
    seconds: float | None
    """From the message to the acknowledgment."""
    time_to_reach_queue: int | None
    time_to_be_received: int | None

    def tell(self) -> Told:
        """Says why messages came back."""
        left_unread = self.message_class & QUEUED_CLASS != 0
        subject = (
            counted(self.messages, "message left its queue unread", "messages left their queue unread")
            if left_unread
            else counted(self.messages, "message did not reach its queue", "messages did not reach their queue")
        )
        sentence = (
            f"{subject}, as {one_or_many(self.messages, 'an acknowledgment says', 'acknowledgments say')}: "
            f"{reason_of(self.message_class)} ({class_name(self.message_class)})."
            f"{f' Transactional: {self.transactional}.' if self.transactional else ''} The first is message "
            f"{known(self.message_id)}{self._delay()}. {advice_on(self.message_class)}"
        )
        return Told(
            FindingKind.NOT_RECEIVED_BY_APPLICATION,
            Severity.WARNING if left_unread else Severity.ERROR,
            sentence,
            [self.about_key, self.key],
        )

    def _delay(self) -> str:
        """Returns ", which had 30 s: the acknowledgment came 31.5 s after it" where a time ran out, or ""."""
        limits: dict[int, int | None] = {
            MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: self.time_to_reach_queue,
            MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: self.time_to_be_received,
            MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER: self.time_to_be_received,
        }
        limit_s = limits.get(self.message_class)
        if limit_s is None or limit_s == UNLIMITED or self.seconds is None:
            return ""
        return f", which had {limit_s} s: the acknowledgment came {tenths(self.seconds)} s after it"


class SeveralReceivers(NamedTuple):
    """Holds an address at which several queue managers take messages, each with a state of its own.

    Session and time are those of the second one.
    """

    session_id: str
    found_at: datetime | None
    messages: int
    """Queue managers."""
    address: str
    receivers: list[str]
    """The earliest first."""
    beginnings: list[str]
    """The key of the first message to each."""
    sequences_split: int | None
    """Sequences that went to several of them."""
    split_keys: list[str] | None
    """The keys of the first messages of such a sequence to two of them."""

    def tell(self) -> Told:
        """Says whether a sequence went to several of them."""
        split = counted(self.sequences_split or 0, "sequence of messages went", "sequences of messages went")
        went = f" {split} to several of them." if self.sequences_split else ""
        sentence = (
            f"{self.messages} queue managers take messages at the address {self.address} "
            f"({', '.join(self.receivers)}): a load balancer or a cluster is in front of them, or Message Queuing was "
            f"installed again.{went} Let a sender reach the same one each time: transactional messages need one "
            "receiver."
        )
        severity = Severity.WARNING if self.sequences_split else Severity.INFO
        return Told(FindingKind.SEVERAL_RECEIVERS, severity, sentence, [*(self.split_keys or self.beginnings[:2])])


class AcknowledgedElsewhere(NamedTuple):
    """Holds acknowledgments that went to an address which no message of their sender came from."""

    session_id: str
    found_at: datetime
    messages: int
    """Acknowledgments."""
    source_queue_manager: str
    came_from: list[str]
    more_addresses: int
    """How many addresses they came from beside those."""
    address: str
    key: str

    def tell(self) -> Told:
        """Says where they went."""
        others = f" and {counted(self.more_addresses, 'other')}" if self.more_addresses else ""
        sentence = (
            f"{counted(self.messages, 'acknowledgment')} went to {self.address}, although the messages of sender "
            f"{self.source_queue_manager} come from {', '.join(self.came_from)}{others}: it has several networks, or "
            f"its address is translated on the way. Look whether "
            f"{one_or_many(self.messages, 'it arrives', 'they arrive')} there: a sender repeats what is not "
            "acknowledged."
        )
        return Told(FindingKind.ACKNOWLEDGED_ELSEWHERE, Severity.INFO, sentence, [self.key])


class WindowStalled(NamedTuple):
    """Holds a session whose receiver took no packets, for how long at most, by what showed it."""

    session_id: str
    found_at: datetime | None
    messages: int
    """Connections."""
    is_last: bool
    """The way was still closed when the last packet of a connection was captured."""
    key: str
    unanswered_ns: int | None
    paused_ns: int | None
    shut_ns: int | None

    def tell(self) -> Told:
        """Says what showed it, and whether it went on."""
        causes = (
            (self.unanswered_ns, "no SessionAck came for packets that were sent"),
            (self.paused_ns, "it announced a window of one packet"),
            (self.shut_ns, "its TCP announced a window of 0"),
        )
        said = "; ".join(f"for up to {whole(ns / NS)} s {words}" for ns, words in causes if ns is not None)
        waiting = "It did not go on, so messages wait in the sender's outgoing queue."
        sentence = (
            f"The receiver stopped taking packets on {counted(self.messages, 'connection')}: {said}. "
            f"{waiting if self.is_last else 'It went on later.'} Look on the receiver for a full disk, a lack of "
            "memory, and a Message Queuing service that is paused or hangs."
        )
        return Told(
            FindingKind.WINDOW_STALLED, Severity.WARNING if self.is_last else Severity.INFO, sentence, [self.key]
        )
