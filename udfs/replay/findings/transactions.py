"""The kinds of findings that transactions show."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from udfs.replay.findings.finding import Told
from udfs.replay.words import all_counted, counted, one_or_many, tx_sequence


class _Broken(NamedTuple):
    """Holds transactions of a sequence that are broken."""

    session_id: str
    scope_key: str
    destination_queue: str | None
    tx_sequence_id: int
    found_at: datetime | None
    messages: int
    """Transactions."""
    witness: list[str]
    """Of the first, as are the others."""
    tx_transaction_id: int
    size: int
    """Messages."""
    lost: int
    pending: int
    has_lost: bool
    """Each of the transactions has messages that are lost, or none has."""

    @property
    def head(self) -> str:
        """Returns "2 transactions that begin in sequence 2026-03-02T07:59:41Z#3 are"."""
        begin = counted(self.messages, "transaction that begins", "transactions that begin")
        return f"{begin} in sequence {tx_sequence(self.tx_sequence_id)} {one_or_many(self.messages, 'is', 'are')}"

    @property
    def first(self) -> str:
        """Returns which one is the first."""
        return f"The first has the ID {self.tx_transaction_id} and {counted(self.size, 'message')}"


class TornTransactions(_Broken):
    """Holds transactions without a first or a last message, though the number next to them was seen."""

    def tell(self) -> Told:
        """Says how they are broken."""
        sentence = (
            f"{self.head} torn: the number next to {one_or_many(self.messages, 'it', 'them')} was seen, and no message "
            f"is marked as the first or as the last. {self.first}."
        )
        return Told(FindingKind.TORN_TRANSACTION, Severity.ERROR, sentence, [*self.witness])


class InterleavedTransactions(_Broken):
    """Holds transactions with messages of another transaction between their own."""

    def tell(self) -> Told:
        """Says how they are broken."""
        sentence = (
            f"{self.head} interleaved: messages of another transaction have numbers between "
            f"{one_or_many(self.messages, 'its own', 'their own')}. {self.first}."
        )
        return Told(FindingKind.INTERLEAVED_TRANSACTION, Severity.ERROR, sentence, [*self.witness])


class PartlyDelivered(_Broken):
    """Holds transactions of which some messages were delivered, and others are lost or pending."""

    def tell(self) -> Told:
        """Says how many are lost, and how many pending."""
        parts = all_counted([(self.lost, "is lost", "are lost"), (self.pending, "is pending", "are pending")])
        sentence = f"{self.head} delivered only in part. {self.first}, of which {' and '.join(parts)}."
        return Told(
            FindingKind.TRANSACTION_PARTLY_DELIVERED,
            Severity.ERROR if self.has_lost else Severity.WARNING,
            sentence,
            [*self.witness],
        )
