"""Declares what rules on messages read, and how a finding is written."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl

from schemas.replay import FINDINGS, FindingKind, Severity
from udfs.replay.words import counted, one_or_many, sequence_name, tx_sequence


class FindingText(NamedTuple):
    """Holds what a rule says of what it found."""

    kind: FindingKind
    severity: Severity
    sentence: str
    witness: Sequence[str | None]
    """The rows that prove it; None is left out."""


def finding_row(told: FindingText, about: Mapping[str, Any]) -> tuple[object, ...]:
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
    sent_at: datetime | None
    """When it was sent, by its sender's clock, to the second."""

    @property
    def age_s(self) -> int | None:
        """Returns how many whole seconds lie between its SentTime and its capture, by two clocks; None if not known."""
        if self.found_at is None or self.sent_at is None:
            return None
        return int((self.found_at - self.sent_at).total_seconds())


class Role(StrEnum):
    """Names the messages that a finding shows, by the column of an arrival that names them by their `replay_order`."""

    FIRST = "replay_order"
    SETTER = "setter"
    ORIGINAL = "original"
    PREVIOUS = "previous_arrival"
    ATTEMPT = "attempt"
    """A refused arrival with a number that the sender skipped afterwards."""


class Found(NamedTuple):
    """Counts the arrivals of a sequence that one rule concerns; all but `shown` are columns of CHOSEN."""

    messages: int
    delivered: int
    lost: int
    pending: int
    first_is_sent_later: bool
    intervals: list[float]
    shown: Mapping[str, Sequence[Message]]
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
        """Returns "sequence #3 (numbered since 2026-03-02T07:59:41Z)"."""
        return sequence_name(self.first.tx_sequence_id)

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
        """Returns "The first is number 7, which needs number 6", or "…, which needs none before it"."""
        needs = f"number {self.first.previous}" if self.first.previous else "none before it"
        return f"{self.first_is}, which needs {needs}"

    @property
    def stood(self) -> str:
        """Returns what the receiver had accepted before the first message: "the receiver stood at: number 5."."""
        number, sequence = self.first.state_number, self.first.state_id
        if number is None or sequence is None:
            return "the receiver stood at: not known."
        of = "" if sequence == self.first.tx_sequence_id else f" of {sequence_name(sequence)}"
        return f"the receiver stood at: number {number}{of}."


class Rule(NamedTuple):
    """A kind of finding that one arrival and its neighbours show."""

    kind: FindingKind
    severity: Severity | Callable[[Found], Severity]
    when: pl.Expr
    """Which arrivals it concerns."""
    says: Callable[[Found], str]
    witness: tuple[Role, ...] = (Role.SETTER, Role.FIRST)
    """The messages that prove it, in the order of the proof."""
    by_cause: bool = False
    """A sequence has one for each class of FinalAck and each queue."""
    of_one_message: bool = False
    """Only the arrivals of the message that was concerned first count."""
