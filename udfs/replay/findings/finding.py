"""Declares what rules on messages read, and how a finding is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

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


def finding_row(told: Told, about: Mapping[str, Any]) -> tuple[object, ...]:
    """Returns a row of FINDINGS without `incident_id`; what `told` does not say is a column of `about`, or null."""
    sequence = about.get("tx_sequence_id")
    row = {
        **about,
        "kind": told.kind.value,
        "severity": told.severity.value,
        "tx_sequence": None if sequence is None else tx_sequence(sequence),
        "explanation": told.sentence,
        "witness": [key for key in told.witness if key is not None],
    }
    return tuple(map(row.get, FINDINGS.names))


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


class Role(StrEnum):
    """Names the messages that a finding shows; `setter`, `original` and `previous_arrival` are fields of Arrival."""

    FIRST = "first"
    SETTER = "setter"
    ORIGINAL = "original"
    PREVIOUS = "previous_arrival"
    ATTEMPT = "attempt"
    """A refused arrival with a number that the sender skipped afterwards."""


@dataclass(slots=True)
class Found:
    """Counts the arrivals of a sequence that one rule concerns; all but `shown` are columns of CHOSEN."""

    kind: str
    cause: int | None
    first_is_sent_later: bool
    severity: str = Severity.INFO.value
    messages: int = 0
    delivered: int = 0
    lost: int = 0
    pending: int = 0
    intervals: list[float] = field(default_factory=list)
    shown: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    """The messages that a sentence or a witness names, by their role; the first of those concerned is always there."""

    @property
    def first(self) -> Message:
        """Returns the first of the messages concerned."""
        return self.shown[Role.FIRST][0]

    def counted(self, noun: str) -> str:
        """Returns "1 message of sequence 2026-03-02T07:59:41Z#3", "14 messages of …"."""
        return f"{counted(self.messages, noun)} of {self.sequence}"

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
    def first_is(self) -> str:
        """Returns "The first is number 7"."""
        return f"The first is number {self.first.number}"

    @property
    def first_needs(self) -> str:
        """Returns "The first is number 7, which needs number 6"."""
        return f"{self.first_is}, which needs number {self.first.previous}"

    @property
    def stood(self) -> str:
        """Returns what the receiver had accepted before the first message: "the receiver stood at: number 5."."""
        number, sequence = self.first.state_number, self.first.state_id
        if number is None or sequence is None:
            return "the receiver stood at: not known."
        of = "" if sequence == self.first.tx_sequence_id else f" of sequence {tx_sequence(sequence)}"
        return f"the receiver stood at: number {number}{of}."


class Rule(NamedTuple):
    """A kind of finding that one arrival and its neighbours show."""

    kind: FindingKind
    severity: Severity | Callable[[Arrival], Severity]
    """Of one arrival; a finding has that of its gravest."""
    when: Callable[[Arrival], bool]
    says: Callable[[Found], str]
    witness: tuple[Role, ...] = (Role.SETTER, Role.FIRST)
    """The messages that prove it, in the order of the proof."""
    by_cause: bool = False
    """A sequence has one for each class of FinalAck and each queue."""
    of_one_message: bool = False
    """Only the arrivals of the message that was concerned first count."""
