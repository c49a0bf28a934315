"""The kinds of findings that a sender's messages show, whatever their verdicts: clocks, message IDs, addresses."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from schemas.wire import UNLIMITED
from udfs.replay.findings.finding import Told
from udfs.replay.words import counted, known, one_or_many


class ExpiredOnArrival(NamedTuple):
    """Holds messages that had expired when they arrived: a receiver drops them ([MS-MQMQ] 2.2.19.1)."""

    session_id: str
    destination_queue: str | None
    found_at: datetime
    messages: int
    key: str
    """Of the first, as are the others."""
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


class OrdinalRegressed(NamedTuple):
    """Holds a sender whose message IDs fell while SentTime rose ([MS-MQQB] 3.1.1.3 MessageIdOrdinal)."""

    session_id: str | None
    destination_queue: str | None
    scope_key: str | None
    tx_sequence_id: int | None
    found_at: datetime | None
    messages: int
    """How often they fell."""
    source_queue_manager: str
    ordinal_before: int | None
    """Of the messages around the first fall, as are the others."""
    ordinal_after: int | None
    key_before: str | None
    key_after: str | None

    def tell(self) -> Told:
        """Says by how much they fell first."""
        sentence = (
            f"The message IDs of sender {self.source_queue_manager} fell {counted(self.messages, 'time')} while its "
            f"clock went on, the first time from {known(self.ordinal_before)} to {known(self.ordinal_after)}: the "
            "sender was restored from a backup, another machine uses its identity, or its clock was set back."
        )
        return Told(FindingKind.ORDINAL_REGRESSED, Severity.WARNING, sentence, [self.key_before, self.key_after])


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
