"""The kinds of findings that a sender's messages show, whatever their verdicts: clocks, message IDs, addresses."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from schemas.wire import UNLIMITED
from udfs.replay.findings.finding import Finding
from udfs.replay.words import at, counted, known, one_or_many


class ExpiredOnArrival(NamedTuple):
    """Holds the messages that had expired when they arrived, per session and queue; the others are of the first."""

    session_id: str
    destination_queue: str | None
    messages: int
    captured_at: datetime
    key: str
    age_s: int
    time_to_reach_queue: int | None
    time_to_be_received: int | None


def expired_on_arrival(fact: ExpiredOnArrival) -> Finding:
    """Says what [MS-MQMQ] 2.2.19.1 has a receiver drop."""
    limits = (("TimeToReachQueue", fact.time_to_reach_queue), ("TimeToBeReceived", fact.time_to_be_received))
    name, limit = next((name, s) for name, s in limits if s not in (None, UNLIMITED) and fact.age_s > (s or 0))
    return Finding(
        FindingKind.EXPIRED_ON_ARRIVAL,
        Severity.WARNING,
        fact.captured_at,
        fact.messages,
        f"{counted(fact.messages, 'message arrived after it had', 'messages arrived after they had')} expired, so the "
        f"receiver drops {one_or_many(fact.messages, 'it', 'them')}. The first was at least {fact.age_s} s old, and "
        f"its {name} ({limit} s) had run out.",
        [fact.key],
        session_id=fact.session_id,
        destination_queue=fact.destination_queue,
    )


class OrdinalRegressed(NamedTuple):
    """Holds how often a sender's message IDs fell, and the messages around the first fall."""

    source_queue_manager: str
    times: int
    ordinal_before: int | None
    key_before: str | None
    ordinal_after: int | None
    key_after: str | None
    captured_at: datetime | None
    session_id: str | None
    destination_queue: str | None
    scope_key: str | None
    tx_sequence_id: int | None


def ordinal_regressed(fact: OrdinalRegressed) -> Finding:
    """Says that message IDs fell while SentTime rose ([MS-MQQB] 3.1.1.3 MessageIdOrdinal)."""
    return Finding(
        FindingKind.ORDINAL_REGRESSED,
        Severity.WARNING,
        fact.captured_at,
        fact.times,
        f"The message IDs of sender {fact.source_queue_manager} fell {counted(fact.times, 'time')} while its clock "
        f"went on, the first time from {known(fact.ordinal_before)} to {known(fact.ordinal_after)}: the sender was "
        "restored from a backup, another machine uses its identity, or its clock was set back.",
        [fact.key_before, fact.key_after],
        session_id=fact.session_id,
        scope_key=fact.scope_key,
        destination_queue=fact.destination_queue,
        tx_sequence_id=None if fact.scope_key is None else fact.tx_sequence_id,
    )


class TwoAddresses(NamedTuple):
    """Holds the addresses of a queue manager, the earliest first, and two of its messages that conflict, if any do."""

    sender_guid: str
    addresses: list[str]
    beginnings: list[str]
    """The keys of the first stream from each address."""
    second_ns: int | None
    session_id: str
    conflict: list[str] | None
    scope_key: str | None
    tx_sequence_id: int | None


def two_addresses(fact: TwoAddresses) -> Finding:
    """Says that a host has several networks, or that two machines have one identity."""
    conflicts = fact.conflict is not None
    return Finding(
        FindingKind.TWO_ADDRESSES,
        Severity.ERROR if conflicts else Severity.INFO,
        at(fact.second_ns),
        len(fact.addresses),
        f"Queue manager {fact.sender_guid} has {len(fact.addresses)} addresses ({', '.join(fact.addresses)})"
        + (
            ", and what they send conflicts: two machines use one identity."
            if conflicts
            else ": it has several networks, or it moved."
        ),
        [*(fact.conflict or fact.beginnings[:2])],
        session_id=fact.session_id,
        scope_key=fact.scope_key,
        tx_sequence_id=fact.tx_sequence_id,
    )
