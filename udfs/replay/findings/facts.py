"""The kinds of findings that no single arrival shows: what others of this room count over many rows.

Each kind is a function from the columns of one fact to what the finding says of it. `messages` is how many things of
the kind there are; `key` and `…_key` are places of packets, `<stream_id>@<stream_offset>`.
"""

from datetime import datetime

from schemas.ingest import Attempt
from schemas.replay import FindingKind, Severity
from schemas.wire import QUEUED_CLASS, MessageClass
from udfs.replay.findings.final_acks import advice_on, reason_of
from udfs.replay.findings.finding import FindingText
from udfs.replay.words import (
    NS,
    all_counted,
    class_name,
    counted,
    known,
    one_or_many,
    sequence_name,
    tenths,
    utc,
    whole,
)

# --- how the traffic was captured, and who could not connect to whom --------------------------------------------------


def captured_twice(*, messages: int, stream_id: str, copy_of: str, **_: object) -> FindingText:
    """Connections of a session that were captured at both ends of an address translation: one copy counts."""
    sentence = (
        f"{counted(messages, 'connection was', 'connections were')} captured twice, at both ends of an address "
        f"translation, and {one_or_many(messages, 'counts', 'count')} once. The first is {copy_of}; its copy is "
        f"{stream_id}."
    )
    return FindingText(FindingKind.CAPTURED_TWICE, Severity.INFO, sentence, [f"{copy_of}@0", f"{stream_id}@0"])


def clock_stepped(
    *,
    messages: int,
    uri: str,
    step_ns: int,
    frame: int | None,
    key_before: str | None,
    key_after: str | None,
    **_: object,
) -> FindingText:
    """A capture whose clock stepped back so often; the rest is of the first step."""
    before = "before its first record, as the file before it in its series shows"
    where = before if frame == 1 else f"at record {known(frame)}"
    sentence = (
        f"The clock of capture {uri} stepped back {counted(messages, 'time')}, first by {tenths(-step_ns / NS)} s "
        f"{where}. The replay undoes this; the tables show the times that were recorded."
    )
    return FindingText(FindingKind.CLOCK_STEPPED, Severity.WARNING, sentence, [key_before, key_after])


FAILURES = {
    Attempt.NO_ANSWER.value: ("connection had no answer", "connections had no answer"),
    Attempt.REFUSED.value: ("was refused by a reset", "were refused by a reset"),
    Attempt.SILENT.value: ("opened and carried nothing", "opened and carried nothing"),
    "closed": ("was closed without an answer to the handshake", "were closed without an answer to the handshake"),
    "refused_session": ("was refused in the handshake", "were refused in the handshake"),
    "other_version": ("began with another version of the protocol", "began with another version of the protocol"),
}
"""How a sentence names each kind of failure: words for one connection, and for several."""
_NOT_CONNECTED = (Attempt.NO_ANSWER.value, Attempt.REFUSED.value)
"""The failures of TCP; others are of the session."""


def cannot_connect(
    *,
    client: str,
    server: str,
    failures: dict[str, int],
    lately: int,
    waiting: int,
    found_at: datetime | None,
    last_at: datetime | None,
    worked_at: datetime | None,
    key: str | None,
    explains: bool | None = None,
    **_: object,
) -> FindingText:
    """Connections that failed, `lately` after the last one that worked: a warning where nothing worked afterwards.

    So many more have no answer yet when the captures end, `waiting`. An error where it `explains` why a receiver's
    acknowledgments did not arrive.
    """
    causes = ", ".join(all_counted((failures[name], *words) for name, words in FAILURES.items()))
    if worked_at is None:
        worked = f"The captures show no connection from {client} that worked."
    elif lately:
        worked = f"The last bytes on a connection that worked are of {utc(worked_at)}."
    else:
        worked = f"Connections work again: the last bytes on one are of {utc(worked_at)}."
    more = f"; {waiting} more had no answer yet when the captures end" if waiting else ""
    could_not = "connect to" if any(failures[name] for name in _NOT_CONNECTED) else "open a session with"
    look = (
        f"Look on {server} whether Message Queuing listens, for a firewall that stops {client} on the way "
        f"there, and on {client} which address the name means."
    )
    sentence = (
        f"{client} could not {could_not} {server}: {causes}, from {utc(found_at)} to {utc(last_at)}{more}. {worked} "
        f"{look}"
    )
    severity = Severity.ERROR if explains else Severity.WARNING if lately else Severity.INFO
    return FindingText(FindingKind.CANNOT_CONNECT, severity, sentence, [key])


def unanswered_pings(
    *,
    messages: int,
    source: str,
    destination: str,
    requests: int,
    found_at: datetime | None,
    last_at: datetime | None,
    answered_at: datetime | None,
    connected_at: datetime | None,
    **_: object,
) -> FindingText:
    """Pings without an answer: a warning where neither an answer nor a connection came after the last of them."""
    head = (
        f"{destination} did not answer {messages:,} of {counted(requests, 'ping')} (UDP port 3527) from {source}, from "
        f"{utc(found_at)} to {utc(last_at)}."
    )
    later = [at for at in (answered_at, connected_at) if at is not None and (last_at is None or at > last_at)]
    if later:
        sentence = f"{head} Afterwards {source} had an answer, or connected all the same, at {utc(max(later))}."
        return FindingText(FindingKind.UNANSWERED_PINGS, Severity.INFO, sentence, [])
    sentence = (
        f"{head} Nothing came afterwards, and a sender that pings does not connect before it has an answer. Look for a "
        f"firewall that stops UDP port 3527 between the two, and whether Message Queuing runs on {destination}; since "
        f"Windows Vista and Server 2008 it does not answer pings by default: then turn them off on {source}."
    )
    return FindingText(FindingKind.UNANSWERED_PINGS, Severity.WARNING, sentence, [])


# --- receivers: what they return, who answers at an address, and where the way was closed -----------------------------


def repeated_order_ack(
    *,
    messages: int,
    number: int,
    tx_sequence_id: int,
    seconds: float,
    refused: int,
    first_key: str,
    last_key: str,
    **_: object,
) -> FindingText:
    """OrderAcks that repeat the highest number of a scope's last sequence: it is stuck, or they get lost.

    `refused` counts the messages with higher numbers that the receiver refused meanwhile.
    """
    reason = (
        f"in this time it refused {counted(refused, 'higher number')}"
        if refused
        else "the OrderAcks do not reach the sender, or the sender ignores them"
    )
    sentence = (
        f"The receiver sent the OrderAck for number {number} of {sequence_name(tx_sequence_id)} {messages} "
        f"times in {whole(seconds)} s, and none for a higher number: {reason}."
    )
    severity = Severity.WARNING if refused else Severity.INFO
    return FindingText(FindingKind.REPEATED_ORDER_ACK, severity, sentence, [first_key, last_key])


def returned(
    *,
    messages: int,
    message_class: int,
    transactional: int,
    message_id: str | None,
    seconds: float | None,
    time_to_reach_queue: int | None,
    time_to_be_received: int | None,
    destination_queue: str | None,
    answering: str | None,
    told: str | None,
    about_key: str | None,
    key: str,
    **_: object,
) -> FindingText:
    """Negative acknowledgments of one class, for messages of one session and queue, from one machine to another.

    `key` is of the first acknowledgment, `about_key` of the message that it names, which it came `seconds` after.
    """
    left_unread = message_class & QUEUED_CLASS != 0
    subject = (
        counted(messages, "message left its queue", "messages left their queue")
        if left_unread
        else counted(messages, "message did not reach its queue", "messages did not reach their queue")
    )
    queue = f", {destination_queue}" if destination_queue else ""
    unread = f"{',' if queue else ''} unread" if left_unread else ""
    way = f" from {answering} to {told}" if answering and told else ""
    limit_s = {
        MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT.value: time_to_reach_queue,
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT.value: time_to_be_received,
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER.value: time_to_be_received,
    }.get(message_class)
    no, delay = one_or_many(messages, "no", "none"), ""
    if limit_s is not None and seconds is not None:
        delay = f", which had {limit_s} s: the acknowledgment came {tenths(seconds)} s after it"
    sentence = (
        f"{subject}{queue}{unread}, as {one_or_many(messages, 'an acknowledgment', 'acknowledgments')}{way} "
        f"{one_or_many(messages, 'says', 'say')}: "
        f"{reason_of(message_class)} ({class_name(message_class)})."
        f"{f' Transactional: {transactional or no}.' if transactional or about_key else ''} The first is message "
        f"{known(message_id)}{delay}. {advice_on(message_class)}"
    )
    severity = Severity.WARNING if left_unread else Severity.ERROR
    return FindingText(FindingKind.NOT_RECEIVED_BY_APPLICATION, severity, sentence, [about_key, key])


def several_receivers(
    *,
    messages: int,
    address: str,
    receivers: list[str],
    beginnings: list[str],
    sequences_split: int | None,
    split_keys: list[str] | None,
    **_: object,
) -> FindingText:
    """An address at which several queue managers take messages, each with a state of its own.

    `beginnings` are keys of the first message to each; `split_keys` those of a sequence that went to several of them.
    """
    split = counted(sequences_split or 0, "sequence of messages went", "sequences of messages went")
    went = f" {split} to several of them." if sequences_split else ""
    sentence = (
        f"{messages} queue managers take messages at the address {address} ({', '.join(receivers)}): a load balancer "
        f"or a cluster is in front of them, or Message Queuing was installed again.{went} Let a sender reach the same "
        "one each time: transactional messages need one receiver."
    )
    severity = Severity.WARNING if sequences_split else Severity.INFO
    return FindingText(FindingKind.SEVERAL_RECEIVERS, severity, sentence, split_keys or beginnings[:2])


def window_stalled(
    *,
    messages: int,
    is_last: bool,
    key: str,
    unanswered_ns: int | None,
    paused_ns: int | None,
    shut_ns: int | None,
    **_: object,
) -> FindingText:
    """A session whose receiver took no packets, for how long at most, by what showed it.

    `messages` counts connections. `is_last`: one of them was still stalled when its last packet was captured.
    """
    causes = (
        (unanswered_ns, "no SessionAck came for packets that were sent"),
        (paused_ns, "it announced a window of one packet at most"),
        (shut_ns, "its TCP announced a window of 0"),
    )
    said = "; ".join(f"for up to {whole(ns / NS)} s {words}" for ns, words in causes if ns is not None)
    waiting = (
        f"{one_or_many(messages, 'It', 'At least one of them')} did not go on while it was captured: unless another "
        "connection took over, messages wait in the sender's outgoing queue."
    )
    sentence = (
        f"Packets were not taken on {counted(messages, 'connection')}: {said}. "
        f"{waiting if is_last else 'It went on later.'} Look on the receiver for a full disk, a lack of memory, and a "
        "Message Queuing service that is paused or hangs; on the way for one that drops large packets."
    )
    return FindingText(FindingKind.WINDOW_STALLED, Severity.WARNING if is_last else Severity.INFO, sentence, [key])


# --- senders, whatever their messages' verdicts: clocks, IDs, addresses, transactions ---------------------------------


def expired_on_arrival(
    *,
    messages: int,
    age_s: int,
    time_to_reach_queue: int | None,
    time_to_be_received: int | None,
    key: str,
    **_: object,
) -> FindingText:
    """Messages that had expired when they arrived: a receiver drops them ([MS-MQMQ] 2.2.19.1)."""
    limits = (("TimeToReachQueue", time_to_reach_queue), ("TimeToBeReceived", time_to_be_received))
    name, limit = next((name, s) for name, s in limits if s is not None and age_s > s)
    sentence = (
        f"{counted(messages, 'message arrived after it had', 'messages arrived after they had')} expired, so the "
        f"receiver drops {one_or_many(messages, 'it', 'them')}. The first was at least {age_s} s old, and its {name} "
        f"({limit} s) had run out."
    )
    return FindingText(FindingKind.EXPIRED_ON_ARRIVAL, Severity.WARNING, sentence, [key])


def two_addresses(
    *,
    messages: int,
    sender_guid: str,
    addresses: list[str],
    beginnings: list[str],
    conflict: list[str] | None,
    **_: object,
) -> FindingText:
    """A queue manager with several addresses; `conflict` are keys of two messages that cannot be of one machine."""
    if conflict is None:
        head = f"Queue manager {sender_guid} has {messages} addresses ({', '.join(addresses)})"
        sentence = f"{head}: it has several networks, or it moved."
        return FindingText(FindingKind.TWO_ADDRESSES, Severity.INFO, sentence, beginnings[:2])
    machines = "Two machines" if len(addresses) == len(conflict) else f"Machines at {messages} addresses"
    which = f"{machines}, {' and '.join(addresses)},"
    sentence = f"{which} use one identity: what they send as queue manager {sender_guid} conflicts."
    return FindingText(FindingKind.TWO_ADDRESSES, Severity.ERROR, sentence, conflict)


def broken_transactions(
    *,
    kind: FindingKind,
    messages: int,
    tx_sequence_id: int,
    tx_transaction_id: int,
    size: int,
    lost_messages: int,
    pending: int,
    has_lost: bool,
    witness_keys: list[str],
    **_: object,
) -> FindingText:
    """Transactions of a sequence that are broken; what follows `tx_sequence_id` is of the first."""
    begin = counted(messages, "transaction that begins", "transactions that begin")
    head = f"{begin} in {sequence_name(tx_sequence_id)} {one_or_many(messages, 'is', 'are')}"
    first = f"The first has the ID {tx_transaction_id} and {counted(size, 'message')}"
    parts = all_counted([(lost_messages, "is lost", "are lost"), (pending, "is pending", "are pending")])
    sentence = {
        FindingKind.TORN_TRANSACTION: f"{head} torn: the number next to {one_or_many(messages, 'it', 'them')} was "
        f"seen, and no message is marked as the first or as the last. {first}.",
        FindingKind.TRANSACTION_PARTLY_DELIVERED: f"{head} delivered only in part. {first}, of which "
        f"{' and '.join(parts)}.",
    }[kind]
    is_pending = kind is FindingKind.TRANSACTION_PARTLY_DELIVERED and not has_lost
    return FindingText(kind, Severity.WARNING if is_pending else Severity.ERROR, sentence, witness_keys)
