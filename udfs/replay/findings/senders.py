"""The kinds of findings that a sender shows, whatever its messages' verdicts: clocks, IDs, addresses, transactions."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from schemas.wire import UNLIMITED
from udfs.replay.findings.finding import Told
from udfs.replay.words import all_counted, counted, one_or_many, tx_sequence


class ExpiredOnArrival(NamedTuple):
    """Holds messages that had expired when they arrived: a receiver drops them ([MS-MQMQ] 2.2.19.1)."""

    session_id: str
    destination_queue: str | None
    found_at: datetime
    messages: int
    key: str
    """This and the fields below are of the first."""
    age_s: int
    time_to_reach_queue: int | None
    time_to_be_received: int | None

    def tell(self) -> Told:
        """Says which limit had run out."""
        limits = (("TimeToReachQueue", self.time_to_reach_queue), ("TimeToBeReceived", self.time_to_be_received))
        name, limit = next((name, s) for name, s in limits if s is not None and s != UNLIMITED and self.age_s > s)
        sentence = (
            f"{counted(self.messages, 'message arrived after it had', 'messages arrived after they had')} expired, so "
            f"the receiver drops {one_or_many(self.messages, 'it', 'them')}. The first was at least {self.age_s} s "
            f"old, and its {name} ({limit} s) had run out."
        )
        return Told(FindingKind.EXPIRED_ON_ARRIVAL, Severity.WARNING, sentence, [self.key])


class TwoAddresses(NamedTuple):
    """Holds a queue manager with several addresses: a host with several networks, or two machines with one identity."""

    session_id: str
    scope_key: str | None
    tx_sequence_id: int | None
    found_at: datetime | None
    messages: int
    """Addresses."""
    sender_guid: str
    addresses: list[str]
    """The earliest first."""
    beginnings: list[str]
    """The keys of the first stream from each."""
    conflict: list[str] | None
    """The keys of two messages that cannot be of one machine."""

    def tell(self) -> Told:
        """Says whether what they send conflicts."""
        head = f"Queue manager {self.sender_guid} has {self.messages} addresses ({', '.join(self.addresses)})"
        if self.conflict is None:
            sentence = f"{head}: it has several networks, or it moved."
            return Told(FindingKind.TWO_ADDRESSES, Severity.INFO, sentence, [*self.beginnings[:2]])
        sentence = f"{head}, and what they send conflicts: two machines use one identity."
        return Told(FindingKind.TWO_ADDRESSES, Severity.ERROR, sentence, [*self.conflict])


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
    """This and the fields below are of the first."""
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
