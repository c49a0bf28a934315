"""Says why a receiver never acknowledged messages.

`from_address` is the sender's, `to_address` the receiver's; else as in `facts`.
"""

from datetime import datetime

from schemas.replay import FindingKind, Severity
from udfs.replay.findings.finding import FindingText
from udfs.replay.words import counted, one_or_many, sequence_name, utc


def acknowledged_elsewhere(
    *,
    messages: int,
    from_address: str,
    to_address: str,
    other: str,
    other_address: str,
    ack_key: str,
    key: str,
    **_: object,
) -> FindingText:
    """OrderAcks of a sender's sequence that went to another queue manager, at `other_address`."""
    sentence = (
        f"{to_address} sent {counted(messages, 'OrderAck')} for messages of {from_address} to another machine, "
        f"{other_address} (queue manager {other}): the sender does not get them, and sends its messages again. Look "
        f"what name and address {to_address} has for the sender."
    )
    return FindingText(FindingKind.ACKNOWLEDGED_ELSEWHERE, Severity.ERROR, sentence, [key, ack_key])


def closed_by_receiver(
    *,
    messages: int,
    from_address: str,
    to_address: str,
    found_at: datetime | None,
    last_at: datetime | None,
    key: str,
    last_key: str,
    **_: object,
) -> FindingText:
    """Connections that the receiver ended right after messages, before it sent a SessionAck."""
    sentence = (
        f"{to_address} ended {counted(messages, 'connection')} from {from_address} right after messages, from "
        f"{utc(found_at)} to {utc(last_at)}, and sent no SessionAck on the last three: nothing says that it stored "
        "what it took."
    )
    return FindingText(FindingKind.CLOSED_BY_RECEIVER, Severity.ERROR, sentence, [key, last_key])


def receiver_replaced(
    *,
    from_address: str,
    guid: str,
    guid_before: str,
    reached: str,
    reached_before: str,
    messages_before: int,
    found_at: datetime | None,
    last_at: datetime | None,
    first_key: str,
    key: str,
    **_: object,
) -> FindingText:
    """A sequence that went on at another queue manager, `guid`, after the last message to `guid_before`."""
    sentence = (
        f"{from_address} sent to queue manager {guid_before} at {reached_before} until {utc(last_at)}; since "
        f"{utc(found_at)} another one answers, {guid} at {reached}. The new one does not know what the old one took: "
        f"{counted(messages_before, 'message')} of this sequence went to the old one, and may still be there."
    )
    return FindingText(FindingKind.RECEIVER_REPLACED, Severity.ERROR, sentence, [first_key, key])


def acknowledgment_fell(
    *,
    messages: int,
    number: int,
    high: int,
    from_address: str,
    to_address: str,
    high_at: datetime | None,
    found_at: datetime | None,
    high_key: str,
    low_key: str,
    tx_sequence_id: int,
    **_: object,
) -> FindingText:
    """OrderAcks of a sequence that named `high` and later only `number`, with the messages between the two."""
    sentence = (
        f"{to_address} acknowledged number {high} of {sequence_name(tx_sequence_id)} at {utc(high_at)}, and "
        f"only number {number} at {utc(found_at)}: it went back to an earlier state. {from_address} has dropped the "
        f"{counted(messages, 'message')} between the two, and will not send {one_or_many(messages, 'it', 'them')} "
        "again."
    )
    return FindingText(FindingKind.ACKNOWLEDGMENT_FELL, Severity.ERROR, sentence, [high_key, low_key])


_LARGE = "the path drops large packets, as a tunnel may, or a firewall that drops ICMP"


def never_answered(
    *,
    messages: int,
    from_address: str,
    to_address: str,
    destination_queue: str | None,
    untaken_bytes: int | None,
    unseen_bytes: int,
    key: str,
    **_: object,
) -> FindingText:
    """Messages of a sequence that their receiver never acknowledged, for no cause that the captures show.

    Its TCP never acknowledged `untaken_bytes` of the connections; None where its TCP was not captured. No capture holds
    `unseen_bytes` of the way back, which may be acknowledgments.
    """
    outgoing = f"look in the outgoing queue of {from_address} whether the messages are still there; if they are"
    queue = f"whether this queue exists on {to_address} and is transactional"
    sent = f"{counted(messages, 'message')} from {from_address} to {destination_queue or 'a queue that is not named'}"
    said = f"{to_address} never acknowledged {sent}, neither with an OrderAck nor with a FinalAck."
    if untaken_bytes is None:
        said = (
            f"No acknowledgment of {sent} was captured, nor anything else that {to_address} sent on these connections:"
        )
        look = (
            f"the captures may lack the way back. Capture both directions, or {outgoing}, {queue}, and whether "
            f"{_LARGE}."
        )
    elif unseen_bytes:
        look = (
            f"But the captures lack {counted(unseen_bytes, 'byte')} of the way back, which may hold acknowledgments: "
            f"{outgoing}, {queue}."
        )
    elif untaken_bytes:
        look = (
            f"Its TCP did not acknowledge {counted(untaken_bytes, 'byte')} of these connections either: look whether "
            f"{_LARGE}, and {queue}."
        )
    else:
        look = f"Its TCP acknowledged all bytes of these connections, so the packets arrived: look {queue}."
    return FindingText(FindingKind.NEVER_ANSWERED, Severity.ERROR, f"{said} {look}", [key])
