"""Declares what rules on messages read, how they are written, and what they say."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from schemas.replay import FINDINGS, Evidence, FindingKind, Severity, Verdict
from schemas.wire import LATEST_ORDER_ACK_MS, LATEST_ORDER_ACK_NS
from udfs.replay.words import counted, one_or_many, tx_sequence


class Told(NamedTuple):
    """Holds what a rule says of what it found."""

    kind: FindingKind
    severity: Severity
    sentence: str
    witness: Sequence[str | None]
    """The rows that prove it; None is left out."""


def finding_row(told: Told, about: NamedTuple, messages: int | None = None) -> tuple[object, ...]:
    """Returns a row of FINDINGS without `incident_id`; other columns are the fields of `about`, or null."""
    sequence = getattr(about, "tx_sequence_id", None)
    row = {
        "kind": told.kind.value,
        "severity": told.severity.value,
        "tx_sequence": None if sequence is None else tx_sequence(sequence),
        "explanation": told.sentence,
        "witness": [key for key in told.witness if key is not None],
    } | ({} if messages is None else {"messages": messages})
    return tuple(row.get(name, getattr(about, name, None)) for name in FINDINGS.names)


class Arrival(NamedTuple):
    """Holds a verdict and what its rules compare it with; the neighbours are named by their `replay_order`."""

    scope_no: int
    sequence: int
    """TxSequenceID minus 2^63."""
    number: int
    replay_order: int
    captured_ns: int | None
    state_number: int | None
    """The number of its sequence that the receiver stood at; null where that was another sequence."""
    accepted: bool | None
    verdict: str
    reason: str | None
    acknowledged: bool
    ack_latency_ms: float | None
    evidence: str
    next_ack_agrees_with: str | None
    final_ack_class: int | None
    cause: int | None
    """Hash of that class and of the queue."""
    content_hash: int
    fate: str
    """What became of the message: delivered, lost, pending or unknown."""
    watched_ns: int | None
    """Until when the captures show the session; null where its OrderAcks may take another path."""
    answers_whole: bool | None
    """No byte from the receiver is missing."""
    setter: int | None
    """The arrival that set the state."""
    is_below_accepted: bool | None
    """The receiver had accepted a higher number."""
    is_sent_after_all_accepted: bool
    """Its SentTime is not below those of all messages accepted before it."""
    original: int | None
    """The first arrival that was accepted under its number."""
    original_hash: int | None
    previous_arrival: int | None
    """The last arrival of the same message."""
    arrivals: int
    """Arrivals of the same message up to this one."""
    interval_s: float | None
    """Time since the previous arrival on the same stream, if no OrderAck covered that in between."""
    gap_order: int | None
    """The first message of the sequence that was accepted over skipped numbers."""
    gap_number: int | None
    gap_size: int | None

    @property
    def is_first_arrival(self) -> bool:
        """Returns whether the message had not come before."""
        return self.previous_arrival is None

    @property
    def is_contradicted(self) -> bool:
        """Returns whether an acknowledgment contradicts the verdict."""
        return self.evidence == Evidence.CONTRADICTED

    @property
    def is_refused(self) -> bool:
        """Returns whether it was refused as out of order, and no acknowledgment says otherwise."""
        return self.verdict == Verdict.OUT_OF_ORDER and not self.is_contradicted

    @property
    def is_original(self) -> bool:
        """Returns whether it has the content that was accepted under its number, if any was."""
        return self.original is None or self.original_hash == self.content_hash

    @property
    def is_overdue(self) -> bool:
        """Returns whether the captures show the session for longer after it than an acknowledgment may take."""
        if self.watched_ns is None or self.captured_ns is None:
            return False
        return self.watched_ns - self.captured_ns > LATEST_ORDER_ACK_NS

    @property
    def is_answered_late(self) -> bool:
        """Returns whether its acknowledgment came later than the timers allow."""
        return self.ack_latency_ms is not None and self.ack_latency_ms > LATEST_ORDER_ACK_MS


class Message(NamedTuple):
    """Holds a message that a sentence or a witness names."""

    key: str
    found_at: datetime | None
    session_id: str
    scope_key: str
    destination_queue: str | None
    message_id: str
    accepted: bool | None
    tx_sequence_id: int
    number: int
    previous: int
    state_id: int | None
    state_number: int | None
    gap_size: int
    ack_latency_ms: float | None
    final_ack_class: int | None


class Found(NamedTuple):
    """Holds what a sentence is made of: the first of the messages that a rule concerns, and how many they are."""

    first: Message
    original: Message | None
    """The message that was accepted under the number of the first."""
    messages: int
    delivered: int
    lost: int
    pending: int
    first_is_sent_later: bool
    intervals: list[float]
    attempts: list[Message]
    """Refused arrivals with numbers that the sender skipped afterwards."""

    def counted(self, noun: str) -> str:
        """Returns "1 message", "14 messages"."""
        return counted(self.messages, noun)

    def one_or_many(self, one: str, many: str) -> str:
        """Returns the form of a word that goes with the number of messages."""
        return one_or_many(self.messages, one, many)

    @property
    def sequence(self) -> str:
        """Returns "sequence 2026-03-02T07:59:41Z#3"."""
        return f"sequence {tx_sequence(self.first.tx_sequence_id)}"

    @property
    def it(self) -> str:
        """Returns "it" or "them"."""
        return self.one_or_many("it", "them")

    @property
    def was(self) -> str:
        """Returns "was" or "were"."""
        return self.one_or_many("was", "were")

    @property
    def stood(self) -> str:
        """Returns what the receiver had accepted before the first message."""
        number, sequence = self.first.state_number, self.first.state_id
        if number is None or sequence is None:
            return "not known"
        same = sequence == self.first.tx_sequence_id
        return f"number {number}" if same else f"number {number} of sequence {tx_sequence(sequence)}"


class Role(StrEnum):
    """Names the messages that a finding shows; `setter`, `original` and `previous_arrival` are fields of Arrival."""

    FIRST = "first"
    SETTER = "setter"
    ORIGINAL = "original"
    PREVIOUS = "previous_arrival"
    ATTEMPT = "attempt"


class MessageRule(NamedTuple):
    """A kind of finding that one arrival and its neighbours show."""

    kind: FindingKind
    severity: Callable[[Arrival], Severity]
    """Of one arrival; a finding has that of its gravest."""
    when: Callable[[Arrival], bool]
    witness: tuple[Role, ...]
    """The messages that prove it, in the order of the proof."""
    by_cause: bool
    """A sequence has one for each class of FinalAck and each queue."""
    of_one_message: bool
    """Only the arrivals of the message that was concerned first count."""
    sentence: Callable[[Found], str]


def finding(
    kind: FindingKind,
    severity: Severity | Callable[[Arrival], Severity],
    *,
    when: Callable[[Arrival], bool],
    witness: tuple[Role, ...] = (Role.SETTER, Role.FIRST),
    by_cause: bool = False,
    of_one_message: bool = False,
) -> Callable[[Callable[[Found], str]], MessageRule]:
    """Makes a rule of the function that returns its sentence."""
    of_arrival = (lambda _: severity) if isinstance(severity, Severity) else severity
    return lambda sentence: MessageRule(kind, of_arrival, when, witness, by_cause, of_one_message, sentence)
