"""A finding as the second computation tells it, and the words that its sentences share."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from schemas.replay import FindingKind

Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Tables by name. Timestamps are µs since 1970, whatever ends in `_ns` is ns."""
SECOND = 1_000_000_000
SIGNED = "Compare certificates and cryptographic providers of sender and receiver."
READ = "Look whether an application reads the queue, or allow more time."
CAUSES = {
    0x8000: ("BAD_DST_Q", "the queue does not exist", "Create the queue, or correct its name at the sender."),
    0x8001: ("DELETED", "it was deleted on its way", "Ask who deleted it from its outgoing queue."),
    0x8002: (
        "REACH_QUEUE_TIMEOUT",
        "its time to reach the queue ran out",
        "Look for what held it up, such as a receiver that could not be reached, or allow more time.",
    ),
    0x8003: (
        "Q_EXCEED_QUOTA",
        "the queue is full",
        "Look whether an application reads the queue, or raise the quota of the queue or the machine.",
    ),
    0x8004: (
        "ACCESS_DENIED",
        "the sender has no access to the queue",
        "Grant its account the right to send to the queue.",
    ),
    0x8005: ("HOP_COUNT_EXCEEDED", "it passed too many queue managers", "Check the routing links."),
    0x8006: ("BAD_SIGNATURE", "its signature is not valid", SIGNED),
    0x8007: ("BAD_ENCRYPTION", "it could not be decrypted", SIGNED),
    0x8008: ("COULD_NOT_ENCRYPT", "it could not be encrypted", SIGNED),
    0x8009: (
        "NOT_TRANSACTIONAL_Q",
        "it is transactional and the queue is not",
        "Send it outside a transaction, or to a transactional queue.",
    ),
    0x800A: (
        "NOT_TRANSACTIONAL_MSG",
        "the queue is transactional and it is not",
        "Send it in a transaction, or to another queue.",
    ),
    0x800B: ("UNSUPPORTED_CRYPTO_PROVIDER", "the receiver lacks its cryptographic provider", SIGNED),
    0x800C: (
        "SOURCE_COMPUTER_GUID_CHANGED",
        "the GUID of its source changed",
        "Ask whether Message Queuing was installed again on the sender.",
    ),
    0xC000: ("Q_DELETED", "the queue was deleted", "Ask who deleted the queue."),
    0xC001: ("Q_PURGED", "the queue was purged", "Ask who purged the queue."),
    0xC002: ("RECEIVE_TIMEOUT", "its time to be received ran out", READ),
    0xC003: ("RECEIVE_TIMEOUT_AT_SENDER", "its time to be received ran out at the sender", READ),
    0xC004: (
        "RECEIVE_REJECTED",
        "an application rejected it",
        "Look for the cause in the log of the application.",
    ),
}
"""By class of a negative acknowledgment, [MC-MQAC] 2.2.2.9: its name, why, and what to do."""


class Finding(NamedTuple):
    """A row of `findings`; the second computation of incidents says which one it is part of."""

    kind: FindingKind
    severity: str
    found_at: int | None
    session_id: str | None
    messages: int
    explanation: str
    witness: tuple[str, ...]
    scope_key: str | None = None
    destination_queue: str | None = None
    tx_sequence_id: int | None = None


def keys(*rows: Row | str | None) -> tuple[str, ...]:
    """Returns how a witness names rows; those that are not there are left out."""
    return tuple(row if isinstance(row, str) else key(row) for row in rows if row is not None)


def key(row: Row) -> str:
    """Returns how a witness names a row."""
    return f"{row['stream_id']}@{row['stream_offset']}"


def sequence_name(identity: int) -> str:
    """Returns the name of a sequence, such as 2026-03-02T07:59:41Z#3."""
    began = datetime.fromtimestamp(identity >> 32, UTC)
    return f"{began:%Y-%m-%dT%H:%M:%SZ}#{identity & 0xFFFFFFFF}"


def counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def rounded(value: float, places: int = 0) -> str:
    """Returns a number with so many places, a half rounded up."""
    nearest = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return str(abs(nearest) if nearest == 0 else nearest)


def stood_at(row: Row) -> str:
    """Returns where the receiver stood before an arrival."""
    number = row["incoming_tx_sequence_number"]
    if number is None:
        return "not known"
    if row["incoming_tx_sequence_id"] == row["tx_sequence_id"]:
        return f"number {number}"
    return f"number {number} of sequence {sequence_name(int(row['incoming_tx_sequence_id']))}"


def cause_of(message_class: int) -> tuple[str, str, str]:
    """Returns the name of the class of a negative acknowledgment, why, and what to do."""
    if message_class in CAUSES:
        name, why, advice = CAUSES[message_class]
        return f"NACK_{name}", why, advice
    unnamed = "for a reason that the documents do not name"
    return f"class {message_class}", unnamed, "Look for the class in [MC-MQAC] 2.2.2.9."
