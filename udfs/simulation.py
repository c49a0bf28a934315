"""Simulated queue managers: captures of what they send one another, and the verdicts that a replay must reach.

Senders number, resend and expire transactional messages as [MS-MQQB] 3.1.1.5 and 3.1.1.6 have it, and at times fail
to; receivers judge every message by the contract's table of verdicts, in a plain loop that shares nothing with the
replay, and their OrderAcks follow it. Nothing on the wire is missing from the captures, so the truth is exact.
"""

import json
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import ip_address
from pathlib import Path
from random import Random
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, TextIO
from uuid import UUID

from schemas.wire import (
    BASE_HEADER,
    MESSAGE_PROPERTIES_HEADER,
    TRANSACTION_HEADER,
    USER_HEADER,
    DeliveryMode,
    Header,
    QueueType,
)
from udfs import build
from udfs.names import direct_name, private_name
from udfs.network import (
    MILLISECOND,
    SECOND,
    Action,
    Connection,
    Direction,
    Endpoint,
    Events,
    Faults,
    Network,
    RingBuffer,
)

START_NS = 1_772_438_400 * SECOND  # 2026-03-02 08:00 UTC
MSMQ_PORT = 1801
CAPTURE_PREFIX = "simulated"
TRUTH = "truth.json"
_WINDOW = 64  # unacknowledged messages, [MS-MQQB] 3.1.3.2
_ACK_FLAGS = 32  # recoverable messages that one SessionHeader can acknowledge
_RECOVERABLE_ACK_NS = 500 * MILLISECOND
_ACK_TIMEOUT_NS = 20 * SECOND
_ORDER_ACK_NS = 500 * MILLISECOND
_MAXIMUM_ORDER_ACK_DELAY_NS = 10 * SECOND
_RESEND_S = (30, 30, 30, 300, 300, 300, 1_800, 1_800, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1; the last one repeats
_RECONNECT_NS = 5 * SECOND
_LATENCY_NS = 2 * MILLISECOND
_STAGGER_NS = 7 * MILLISECOND
_LAST_NUMBER = 0xFFFFFFFF
_TRANSACTION_IDS = 1 << 20
_TRANSACTION_SIZES = (1, 1, 1, 2, 3, 5, 8, 20)
_EXPRESS_SHARE = 0.05  # of transactions, behind which a message goes that is not transactional
_BUSY_SHARE, _IDLE_SHARE = 0.8, 0.005  # of pauses between transactions; the rest is long enough for an OrderAck
_BUSY_NS = MILLISECOND, 50 * MILLISECOND
_PAUSE_NS = 600 * MILLISECOND, 3 * SECOND
_IDLE_NS = 300 * SECOND, 400 * SECOND  # the session is closed, [MS-MQQB] 3.1.2.2
_PORT_REUSE = 0.5  # of reconnections
_EPHEMERAL_PORTS = 49_152
_POOL_PARTS, _POOL_PART = 64, 16_384  # bytes that bodies are cut from
_HEADERS = 500  # bytes that a message takes beside its body, roughly
_FILES, _SMALLEST_FILE = 4, 256 << 10
_MESSAGES_PER_SENDER, _MOST_SENDERS = 5_000, 240
_RECEIVER_ADDRESSES = {4: "10.0.0.{}", 6: "fd00::{}"}
_SENDER_ADDRESSES = {4: "10.20.0.{}", 6: "fd00:20::{}"}
_NAT_ADDRESSES = {4: "203.0.113.7", 6: "2001:db8::7"}
_NAT_PORTS = 61_000


# --- the truth ------------------------------------------------------------------------------------------------------


class Verdicts:
    """What a receiver makes of the messages of one scope: the contract's table, one message after the other."""

    def __init__(self, rows: TextIO) -> None:
        """Write the rows of truth.json that the scope has, a line each."""
        self.incoming: tuple[int, int] | None = None
        """IncomingTxSequenceID and IncomingTxSequenceNumber."""
        self._sent_before: tuple[int, int] = (0, 0)
        self._rejects = 0
        self._rows = rows
        self._separator = ""

    def fixed_by(self, sequence_id: int, number: int) -> None:
        """An OrderAck is seen before any message."""
        self.incoming = self._sent_before = sequence_id, number

    def judge(self, message: "Message", previous: int) -> None:
        """Judge a message that arrives with this PreviousTxSequenceNumber, and write its row."""
        before = self.incoming
        pair = sequence_id, number = message.sequence_id, message.number
        accepted: bool | None
        reason: str | None = None
        gap = 0
        if before is None:
            accepted = True if previous == 0 else None
            skipped = number - 1
        elif sequence_id == before[0]:
            accepted = previous <= before[1] < number
            skipped = number - before[1] - 1
        else:
            accepted = sequence_id > before[0] and previous == 0
            skipped = number - 1
        if accepted is None:
            verdict, reason = "unknown", "no_prior_state"
            self._sent_before = sequence_id, previous
        elif accepted and skipped:
            verdict, gap = "gap_expired", skipped
        elif accepted:
            verdict = "in_order" if before and sequence_id == before[0] else "new_sequence"
        elif message.accepted or pair <= self._sent_before:
            verdict = "duplicate"
        elif before and sequence_id < before[0]:
            verdict, reason = "out_of_order", "stale_sequence"
        elif before and pair <= before:
            verdict, reason = "out_of_order", "late"
        else:
            verdict, reason = "out_of_order", "predecessor_missing"
        if accepted is False:
            self._rejects += 1
        else:
            self._rejects = 0
            self.incoming = pair
            message.accepted = True
        row = {
            "id": str(sequence_id),
            "no": number,
            "prev": previous,
            "accepted": accepted,
            "verdict": verdict,
            "reason": reason,
            "gap": gap,
            "reject": self._rejects,
            "before": before and (str(before[0]), before[1]),
            "mid": message.ordinal,
        }
        self._rows.write(self._separator + json.dumps(row))
        self._separator = ",\n"


# --- packets --------------------------------------------------------------------------------------------------------


def _offset(header: Header, field: str) -> int:
    """Where a field begins in its header."""
    names = [f.attribute for f in header.fixed]
    return sum(f.size for f in header.fixed[: names.index(field)])


_SENT_AT = BASE_HEADER.size + _offset(USER_HEADER, "sent_at")
_BODY_SIZE = _offset(MESSAGE_PROPERTIES_HEADER, "body_size")
_PACKET_SIZE = _offset(BASE_HEADER, "packet_size")
_BASE_FLAGS = _offset(BASE_HEADER, "base_flags")
_HAS_SESSION_HEADER = 0x10
_PACK_SIZE = struct.Struct("<I").pack_into
_PACK_SENT = struct.Struct("<II").pack_into  # SentTime, MessageID
_PACK_TRANSACTION = struct.Struct("<IQII").pack_into  # Flags, TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber
_PACK_BODY_SIZES = struct.Struct("<II").pack_into  # MessageSize, AllocationBodySize


class Template:
    """The packets of one sender to one queue: built once, patched for every message."""

    def __init__(self, source: UUID, receiver: UUID, queue: build.QueueName, *, transactional: bool = True) -> None:
        """A direct queue's host is named by the queue itself, a private one's by `receiver`."""
        self.is_direct = queue.type is QueueType.DIRECT
        label = f"From {source}"
        packet = build.user_message(
            source,
            message_id=0,
            destination=queue,
            queue_manager_address=build.NULL if self.is_direct else receiver,
            sequence=(0, 1, 0) if transactional else None,
            delivery_mode=DeliveryMode.RECOVERABLE if transactional else DeliveryMode.EXPRESS,
            label=label,
        )
        name = queue.content
        self.destination_queue = direct_name(name) if self.is_direct else private_name(receiver.bytes_le + name)
        self._transaction = BASE_HEADER.size + USER_HEADER.size + len(queue.in_user_header)
        self._transactional = transactional
        self._properties = self._transaction + (TRANSACTION_HEADER.size if transactional else 0)
        self._head = packet[: self._properties + MESSAGE_PROPERTIES_HEADER.size + len(build.utf16(label))]

    def packet(self, message: "Message", previous: int) -> bytearray:
        """The message as it is sent with this PreviousTxSequenceNumber."""
        packet = bytearray(self._head)
        size = len(message.body)
        _PACK_SENT(packet, _SENT_AT, message.sent_at_s, message.ordinal)
        if self._transactional:
            identity = message.sequence_id, message.number
            _PACK_TRANSACTION(packet, self._transaction, message.transaction_flags, *identity, previous)
        _PACK_BODY_SIZES(packet, self._properties + _BODY_SIZE, size, size)
        packet += message.body
        packet += build.FILL * (-len(packet) % 4)
        _PACK_SIZE(packet, _PACKET_SIZE, len(packet))
        return packet


@dataclass(slots=True, eq=False)
class Message:
    """A message in its sender's table; `sequence_id` and `number` are 0 when it is not transactional."""

    stream: "Stream"
    template: Template
    ordinal: int
    sent_at_s: int
    body: bytes
    sequence_id: int = 0
    number: int = 0
    transaction_flags: int = 0
    accepted: bool = False
    """Its (TxSequenceID, TxSequenceNumber) was accepted before."""
    expired: bool = False
    """It expires before it is sent again."""


# --- sessions -------------------------------------------------------------------------------------------------------


class Side:
    """One queue manager's counts on a session, and the SessionAcks it sends ([MS-MQQB] 3.1.1.4, 3.1.6.4)."""

    peer: "Side"

    def __init__(self, session: "Session", direction: Direction) -> None:
        """Count from 0, as every TCP connection does; `direction` leads to the peer."""
        self.direction = direction
        self._session = session
        self._events = session.events
        self._sent = self._sent_recoverable = 0
        self._received = self._received_recoverable = 0
        self._acknowledged = 0  # packets of this side that the peer has acknowledged
        self._answered_recoverable = 0  # recoverable packets of the peer that this side has acknowledged
        self._ack_since = self._ack_due = 0  # ns; 0 when there is nothing to acknowledge

    @property
    def unacknowledged(self) -> int:
        """UserMessage-shaped packets that the peer has not acknowledged."""
        return self._sent - self._acknowledged

    def post(self, packet: bytearray, deliver: Action, *arguments: Any, recoverable: bool) -> None:
        """Write a UserMessage-shaped packet; it carries a SessionHeader when 75 % of the ack timer have run."""
        self._sent += 1
        self._sent_recoverable += recoverable
        acknowledged = None
        if self._ack_due and 4 * (self._events.now - self._ack_since) > 3 * (self._ack_due - self._ack_since):
            packet[_BASE_FLAGS] |= _HAS_SESSION_HEADER
            packet += bytes(build.session_header(**self._counts()))
            acknowledged = self._received
        self.direction.write(packet, self.peer.take, acknowledged, recoverable, deliver, arguments)

    def take(self, acknowledged: int | None, recoverable: bool, deliver: Action, arguments: tuple[Any, ...]) -> None:
        """Count a packet from the peer, and pass it on."""
        if acknowledged is not None:
            self.acknowledged_up_to(acknowledged)
        self._received += 1
        unanswered = self._received_recoverable - self._answered_recoverable
        self._received_recoverable += recoverable
        if not self._ack_due:
            self._start_timer(_RECOVERABLE_ACK_NS if recoverable else _ACK_TIMEOUT_NS // 2)
        elif recoverable and not unanswered:
            self._start_timer(_RECOVERABLE_ACK_NS)
        if unanswered + recoverable == _ACK_FLAGS:
            self._send_ack()
        deliver(*arguments)

    def acknowledged_up_to(self, count: int) -> None:
        """The peer has received so many packets."""
        self._acknowledged = count
        self._session.pump()

    def _start_timer(self, delay_ns: int) -> None:
        self._ack_since, self._ack_due = self._events.now, self._events.now + delay_ns
        self._events.at(self._ack_due, self._ack_timer, self._ack_due)

    def _ack_timer(self, due: int) -> None:
        if due == self._ack_due and self._session.open:
            self._send_ack()

    def _send_ack(self) -> None:
        packet = build.session_ack(**self._counts())
        self.direction.write(packet, self.peer.acknowledged_up_to, self._received)
        self.direction.flush()

    def _counts(self) -> dict[str, int]:
        """The fields of a SessionHeader, [MS-MQMQ] 2.2.20.4; what it acknowledges needs no more acknowledgment."""
        unanswered = self._received_recoverable - self._answered_recoverable
        counts = {
            "ack_sequence_number": self._received,
            "recoverable_msg_ack_seq_number": self._answered_recoverable + 1 if unanswered else 0,
            "user_msg_sequence_number": self._sent,
            "recoverable_msg_seq_number": self._sent_recoverable,
        }
        self._answered_recoverable = self._received_recoverable
        self._ack_due = 0
        flags = {"recoverable_msg_ack_flags": (1 << unanswered) - 1}
        return {name: count & 0xFFFF for name, count in counts.items()} | flags


class Session:
    """A session between a sender and its receiver, on one TCP connection."""

    def __init__(self, sender: "Sender", connection: Connection) -> None:
        """Be closed, with nothing to send."""
        self.events: Events = sender.world.events
        self.open = False
        self.near, self.far = Side(self, connection.up), Side(self, connection.down)
        self.near.peer, self.far.peer = self.far, self.near
        self._sender = sender
        self._connection = connection
        self._backlog: deque[tuple[Message, int]] = deque()

    @property
    def initiator(self) -> str:
        """The sender's address as the receiver sees it."""
        return str(self._connection.initiator.address)

    def establish(self) -> None:
        """Connect, exchange EstablishConnection and ConnectionParameters, and tell the sender."""
        client, server = self._sender.guid, self._sender.receiver.guid
        named = build.NULL if self._sender.branch.queues[0] is QueueType.DIRECT else server
        time_stamp_ms = self.events.now // MILLISECOND & 0xFFFFFFFF
        exchange = iter(
            (
                (self.near, build.establish_connection(client, named, time_stamp_ms=time_stamp_ms)),
                (self.far, build.establish_connection(client, server, time_stamp_ms=time_stamp_ms)),
                (self.near, build.connection_parameters()),
                (self.far, build.connection_parameters()),
            )
        )

        def step() -> None:
            side, packet = next(exchange, (None, b""))
            if side is None:
                self.begin()
            else:
                side.direction.write(packet, step)
                side.direction.flush()

        self._connection.open(step)

    def begin(self) -> None:
        """Be open, whether the capture saw how or not."""
        self.open = True
        self._sender.opened(self)

    def close(self, then: Action, *, reset: bool = False) -> None:
        """Send nothing more; do `then` when the connection is closed."""
        self.open = False
        self._backlog.clear()
        self._connection.close(then, reset=reset)

    def send(self, message: Message, previous: int) -> None:
        """Send a message as soon as the window lets it, with the next `pump`."""
        self._backlog.append((message, previous))

    def pump(self) -> None:
        """Send what the window lets through."""
        near, backlog = self.near, self._backlog
        while backlog and near.unacknowledged < _WINDOW:
            message, previous = backlog.popleft()
            packet = message.template.packet(message, previous)
            near.post(packet, message.stream.arrive, self, message, previous, recoverable=message.number > 0)
        near.direction.flush()


# --- queue managers -------------------------------------------------------------------------------------------------


class Receiver:
    """A receiving queue manager."""

    def __init__(self, rng: Random, index: int) -> None:
        """Listen on an IPv4 and an IPv6 address."""
        self.guid = UUID(int=rng.getrandbits(128), version=4)
        self.addresses = {version: ip_address(text.format(index + 1)) for version, text in _RECEIVER_ADDRESSES.items()}
        self.ordinal = 0


class Stream:
    """Messages that are numbered together: the sender's table of them, and the state at the receiver.

    The sender's half is [MS-MQQB] 3.1.1.5, 3.1.5.6, 3.1.6.5, the receiver's 3.1.5.8.6, 3.1.6.9.
    """

    def __init__(self, sender: "Sender", templates: Sequence[Template], verdicts: Verdicts) -> None:
        """Begin a sequence with no message in it."""
        self.templates = templates
        self.verdicts = verdicts
        self.unacknowledged: deque[Message] = deque()
        self.left_behind: list[Message] = []
        """Messages of a sequence from before a restore, to be sent behind the new one's first."""
        self.sequence_id = sender.next_sequence_id()
        self.number = self.last_sent = 0
        self.loses_order_ack = False
        self._sender = sender
        self._events = sender.world.events
        self._resends = 0
        self._resend_timer = 0
        self._session: Session | None = None
        self._order_ack_due = 0  # ns; 0 when none is
        self._order_ack_sent = self._events.now

    def begin_sequence(self) -> None:
        """Number from 1 under the next TxSequenceID."""
        self.sequence_id = self._sender.next_sequence_id()
        self.number = self.last_sent = 0

    def restore(self) -> None:
        """Forget the table, as a queue manager does that comes back from a backup; what was sent turns up later."""
        self.left_behind += self.unacknowledged
        self.unacknowledged.clear()
        self.begin_sequence()

    def expect_order_ack(self) -> None:
        """Start the timer after which all that is unacknowledged is sent again."""
        self._resend_timer += 1
        interval = _RESEND_S[min(self._resends, len(_RESEND_S) - 1)] * SECOND
        self._events.after(interval, self._order_ack_timeout, self._resend_timer)

    def resend(self, session: Session) -> None:
        """Send all that is unacknowledged and has not expired; each names the one before it in the table."""
        self.unacknowledged = deque(message for message in self.unacknowledged if not message.expired)
        previous = 0
        for message in self.unacknowledged:
            session.send(message, previous)
            previous = message.number
        if self.unacknowledged:
            self.expect_order_ack()
        session.pump()

    def arrive(self, session: Session, message: Message, previous: int) -> None:
        """Judge a message at the receiver, and start or restart the timer of its OrderAck."""
        if not message.number:
            return
        self.verdicts.judge(message, previous)
        now = self._events.now
        self._session = session
        if not self._order_ack_due:
            self._events.after(_ORDER_ACK_NS, self._order_ack_timer)
        if not self._order_ack_due or now - self._order_ack_sent < _MAXIMUM_ORDER_ACK_DELAY_NS:
            self._order_ack_due = now + _ORDER_ACK_NS

    def send_order_ack(self, session: Session, sequence_id: int, number: int) -> None:
        """Acknowledge all messages of the sequence up to this number."""
        receiver = self._sender.receiver
        receiver.ordinal += 1
        is_direct = self.templates[0].is_direct
        packet = build.order_ack(
            receiver.guid,
            sender=self._sender.guid,
            message_id=receiver.ordinal,
            sequence_id=sequence_id,
            number=number,
            direct_name=f"TCP:{session.initiator}\\PRIVATE$\\order_queue$" if is_direct else None,
            sent_time=self._events.now // SECOND,
        )
        self._order_ack_sent = self._events.now
        session.far.post(bytearray(packet), self._acknowledged, sequence_id, number, recoverable=False)
        session.far.direction.flush()

    def _order_ack_timer(self) -> None:
        if self._events.now < self._order_ack_due:
            self._events.at(self._order_ack_due, self._order_ack_timer)
            return
        self._order_ack_due = 0
        lost, self.loses_order_ack = self.loses_order_ack, False
        if self._session is not None and self._session.open and self.verdicts.incoming and not lost:
            self.send_order_ack(self._session, *self.verdicts.incoming)

    def _acknowledged(self, sequence_id: int, number: int) -> None:
        """Let go of what an OrderAck covers; when nothing is left a new sequence begins."""
        if sequence_id != self.sequence_id or not self.unacknowledged or self.unacknowledged[0].number > number:
            return
        while self.unacknowledged and self.unacknowledged[0].number <= number:
            self.unacknowledged.popleft()
        self._resends = 0
        if self.unacknowledged:
            self.expect_order_ack()
        else:
            self.begin_sequence()

    def _order_ack_timeout(self, timer: int) -> None:
        session = self._sender.session
        if timer == self._resend_timer and self.unacknowledged and session is not None:
            self._resends += 1
            self.resend(session)


class Fault(Enum):
    """What goes wrong with a transaction."""

    EXPIRED = auto()  # the message before it expires before it is sent
    LOST = auto()  # its first message is not sent until it is sent again
    LOST_AND_EXPIRED = auto()  # nor then
    POSTPONED = auto()  # its first message is sent behind the others, which do not count it
    NOT_ACKNOWLEDGED = auto()  # the receiver loses its OrderAck
    DISCONNECTED = auto()  # the session breaks before the OrderAck
    RESTORED = auto()  # the sender is restored from a backup before its last message is sent


@dataclass(frozen=True, slots=True)
class Branch:
    """What is particular about a sender."""

    queues: tuple[QueueType, ...] = (QueueType.DIRECT,)
    numbered_per_queue: bool = False
    ip_version: int = 4
    behind_nat: bool = False
    isn_near_wrap: bool = False
    timestamp: int = 1_704_067_200  # TxSequenceID.TimeStamp, s since 1970
    sequence_ordinal: int = 1  # TxSequenceID.Ordinal
    message_ordinal: int = 1  # MessageID
    sent_before: int = 0
    """TxSequenceNumber of the last message that was sent before the capture began; 0: there was no session."""
    order_ack_first: bool = False
    """Of what was sent before, the capture still holds the OrderAck."""


_DIRECT, _PRIVATE = QueueType.DIRECT, QueueType.PRIVATE_ON_DESTINATION
BRANCHES = (
    Branch(),
    Branch((_PRIVATE,), isn_near_wrap=True),
    Branch(sent_before=41),
    Branch(ip_version=6),
    Branch((_DIRECT, _DIRECT, _DIRECT), numbered_per_queue=True),
    Branch((_PRIVATE, _PRIVATE)),
    Branch(behind_nat=True),
    Branch(behind_nat=True),
    Branch((_PRIVATE,), sent_before=0xFFFFFFF8, timestamp=0x8000_0000),
    Branch((_PRIVATE,), sent_before=7, order_ack_first=True),
    Branch((_PRIVATE,), timestamp=0xFFFF_0000, sequence_ordinal=0xC000_0000, message_ordinal=0x8000_0000),
    Branch((_PRIVATE,), ip_version=6, behind_nat=True, isn_near_wrap=True, sequence_ordinal=0x7FFF_FFF0),
)


class Sender:
    """A sending queue manager: commits transactions until its quota is used up and all is acknowledged."""

    def __init__(self, world: "World", index: int, quota: int) -> None:
        """Make the streams; `quota` is how many transactional messages are to be sent."""
        rng = world.rng
        self.world = world
        self.branch = branch = BRANCHES[index % len(BRANCHES)]
        self.guid = UUID(int=rng.getrandbits(128), version=4)
        self.receiver = world.receivers[index // 2 % len(world.receivers)]
        self.session: Session | None = None
        self._quota = quota
        self._timestamp, self._sequence_ordinal = branch.timestamp, branch.sequence_ordinal - 1
        self._message_ordinal = branch.message_ordinal - 1
        self._transaction_id = rng.randrange(_TRANSACTION_IDS)
        addresses = _NAT_ADDRESSES if branch.behind_nat else _SENDER_ADDRESSES
        self._address = ip_address(addresses[branch.ip_version].format(index + 1))
        self._port = _EPHEMERAL_PORTS + rng.randrange(4_096)
        queues = [
            build.direct(f"OS:hub\\private$\\orders{number}") if kind is _DIRECT else build.private(16 + number)
            for number, kind in enumerate(branch.queues)
        ]
        templates = [Template(self.guid, self.receiver.guid, queue) for queue in queues]
        self._express = Template(self.guid, self.receiver.guid, queues[0], transactional=False)
        parts = [[template] for template in templates] if branch.numbered_per_queue else [templates]
        self._streams = [
            Stream(self, part, world.verdicts(self.guid, part[0].destination_queue if len(parts) > 1 else None))
            for part in parts
        ]

    def start(self) -> None:
        """Connect, or go on from before the capture began."""
        if not self.branch.sent_before:
            self._connect()
            return
        (stream,) = self._streams
        stream.number = stream.last_sent = self.branch.sent_before
        session = Session(self, self._connection())
        if self.branch.order_ack_first:
            stream.verdicts.fixed_by(stream.sequence_id, stream.number)
            stream.send_order_ack(session, stream.sequence_id, stream.number)
        session.begin()

    def opened(self, session: Session) -> None:
        """Send again what is unacknowledged, and go on."""
        self.session = session
        for stream in self._streams:
            stream.resend(session)
        self._work()

    def next_sequence_id(self) -> int:
        """A TxSequenceID above all before it."""
        self._sequence_ordinal += 1
        return self._timestamp << 32 | self._sequence_ordinal

    def _connection(self) -> Connection:
        rng, version = self.world.rng, self.branch.ip_version
        if self.branch.behind_nat:
            self._port = self.world.next_nat_port()
        elif rng.random() > _PORT_REUSE:
            self._port = _EPHEMERAL_PORTS + (self._port + 1) % (1 << 14)
        isn = (1 << 32) - rng.randrange(1, 4_096) if self.branch.isn_near_wrap else rng.getrandbits(32)
        initiator = Endpoint(self._address, self._port)
        acceptor = Endpoint(self.receiver.addresses[version], MSMQ_PORT)
        return Connection(self.world.network, initiator, acceptor, (isn, rng.getrandbits(32)), _LATENCY_NS)

    def _connect(self) -> None:
        Session(self, self._connection()).establish()

    def _work(self) -> None:
        """Commit a transaction and pause, or finish. Exactly one call is due as long as the sender is not done."""
        session, events, rng = self.session, self.world.events, self.world.rng
        assert session is not None  # noqa: S101 - whoever closes the session opens the next one first
        fault = self._commit(session) if self._quota else None
        if fault is Fault.DISCONNECTED or fault is Fault.RESTORED:
            self._disconnect(session, _RECONNECT_NS, reset=rng.random() < 0.5)  # noqa: PLR2004 - one in two
        elif self._quota:
            pause = rng.random()
            if pause < _BUSY_SHARE:
                events.after(rng.randint(*_BUSY_NS), self._work)
            elif pause < 1 - _IDLE_SHARE:
                events.after(rng.randint(*_PAUSE_NS), self._work)
            else:
                self._disconnect(session, rng.randint(*_IDLE_NS))
        elif any(stream.unacknowledged for stream in self._streams):
            events.after(SECOND, self._work)
        else:
            session.close(lambda: None)

    def _disconnect(self, session: Session, pause_ns: int, *, reset: bool = False) -> None:
        self.session = None
        session.close(lambda: self.world.events.after(pause_ns, self._connect), reset=reset)

    def _commit(self, session: Session) -> Fault | None:
        """Send the messages of a transaction, faults and all; returns the fault."""
        world = self.world
        stream = world.rng.choice(self._streams)
        room = _LAST_NUMBER - stream.number
        if not room:
            if not stream.unacknowledged:
                stream.begin_sequence()
            return None
        fault = world.faults.strike()
        if fault is Fault.EXPIRED and room > 1:
            stream.number += 1
            room -= 1
        smallest = 2 if fault is Fault.POSTPONED else 1
        count = min(max(world.rng.choice(_TRANSACTION_SIZES), smallest), self._quota, room)
        self._quota -= count
        is_quiet = not stream.unacknowledged
        sent = self._transaction(stream, count)
        first = sent[0][0]
        if fault in (Fault.LOST, Fault.LOST_AND_EXPIRED):
            first.expired = fault is Fault.LOST_AND_EXPIRED
            del sent[0]
        elif fault is Fault.POSTPONED and count > 1:
            postponed, (second, _), *others = sent
            sent = [(second, postponed[1]), *others, postponed]
        elif fault is Fault.NOT_ACKNOWLEDGED:
            stream.loses_order_ack = True
        elif fault is Fault.RESTORED:
            del sent[-1]
        sent += [(message, message.number - 1) for message in stream.left_behind]
        stream.left_behind.clear()
        if world.rng.random() < _EXPRESS_SHARE:
            sent.append((self._message(stream, self._express), 0))
        for message, previous in sent:
            session.send(message, previous)
        session.pump()
        if is_quiet:
            stream.expect_order_ack()
        if fault is Fault.RESTORED:
            self._timestamp += 1
            self._sequence_ordinal = 0
            for each in self._streams:
                each.restore()
        return fault

    def _transaction(self, stream: Stream, count: int) -> list[tuple[Message, int]]:
        """New messages of one transaction, each with its PreviousTxSequenceNumber."""
        self._transaction_id = (self._transaction_id + 1) % _TRANSACTION_IDS
        messages = []
        for index in range(count):
            stream.number += 1
            message = self._message(stream, self.world.rng.choice(stream.templates))
            message.sequence_id, message.number = stream.sequence_id, stream.number
            bounds = (index == 0) << 2 | (index == count - 1) << 3  # FM, LM
            message.transaction_flags = self._transaction_id << 4 | bounds
            stream.unacknowledged.append(message)
            messages.append((message, stream.last_sent))
            stream.last_sent = stream.number
        return messages

    def _message(self, stream: Stream, template: Template) -> Message:
        self._message_ordinal += 1
        return Message(stream, template, self._message_ordinal, self.world.events.now // SECOND, self.world.body())


class World:
    """All there is: time, the network, the receivers, and where the truth is written."""

    def __init__(
        self, rng: Random, folder: Path, capture: RingBuffer, bodies: tuple[int, int], disorder: float
    ) -> None:
        """Bodies have a size between two; `disorder` is the share of transactions, and of segments, with a fault."""
        self._folder = folder
        self.rng = rng
        self.events = Events(START_NS)
        self.network = Network(self.events, rng, capture, disorder)
        self.faults = Faults(rng, disorder, tuple(Fault))
        self.receivers = [Receiver(rng, index) for index in range(2)]
        self.scopes: list[tuple[dict[str, str], TextIO]] = []
        self.open_files = ExitStack()
        self._bodies = bodies
        # A body may hold a whole packet: what looks like a header is not always one.
        packet = build.user_message(UUID(int=rng.getrandbits(128)), message_id=1, sequence=(1, 1, 0), body=b"within")
        self._pool = b"".join(rng.randbytes(_POOL_PART) + packet for _ in range(_POOL_PARTS))
        self._nat_port = _NAT_PORTS

    def verdicts(self, source: UUID, destination_queue: str | None) -> Verdicts:
        """The verdicts of a scope, whose rows are kept in a file of their own until `write_truth`."""
        scope = {"source_queue_manager": str(source)}
        if destination_queue is not None:
            scope["destination_queue"] = destination_queue
        rows = self.open_files.enter_context(TemporaryFile("w+", dir=self._folder))  # noqa: SIM115 - the stack closes it
        self.scopes.append((scope, rows))
        return Verdicts(rows)

    def next_nat_port(self) -> int:
        """The next port that the address translator gives out."""
        self._nat_port = _NAT_PORTS + (self._nat_port + 1 - _NAT_PORTS) % ((1 << 16) - _NAT_PORTS)
        return self._nat_port

    def body(self) -> bytes:
        """The body of a message."""
        smallest, largest = self._bodies
        size = smallest + int(self.rng.random() * (largest - smallest + 1))
        start = int(self.rng.random() * (len(self._pool) - size))
        return self._pool[start : start + size]

    def write_truth(self, file: TextIO) -> None:
        """Write all scopes in which a message arrived."""
        separator = "[\n"
        for scope, rows in self.scopes:
            if rows.tell():
                file.write(f'{separator}{json.dumps(scope)[:-1]}, "rows": [\n')
                rows.seek(0)
                copyfileobj(rows, file)
                file.write("\n]}")
                separator = ",\n"
        file.write("\n]\n")


def simulate(
    out: str,
    seed: int,
    messages: int,
    *,
    bodies: tuple[int, int] = (100, 4_000),
    disorder: float = 0.1,
    file_bytes: int | None = None,
    nanoseconds: bool = True,
) -> None:
    """Write captures of `messages` transactional messages, and truth.json, to the folder `out`.

    The same arguments write the same bytes; what an earlier run wrote there is replaced. `bodies` are the smallest
    and the largest body in bytes, `disorder` the share of transactions and of segments with a fault, `file_bytes`
    about the size of one file of the ring buffer. Memory does not grow with `messages`.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob(f"{CAPTURE_PREFIX}_*.pcap"):
        earlier.unlink()
    if file_bytes is None:
        file_bytes = max(messages * (sum(bodies) // 2 + _HEADERS) // _FILES, _SMALLEST_FILE)
    rng = Random(seed)  # noqa: S311 - reproducible traffic, no secrets
    senders = min(max(len(BRANCHES), messages // _MESSAGES_PER_SENDER), _MOST_SENDERS)
    with closing(RingBuffer(folder, CAPTURE_PREFIX, file_bytes, nanoseconds=nanoseconds)) as capture:
        world = World(rng, folder, capture, bodies, disorder)
        with world.open_files:
            for index in range(senders):
                quota = messages // senders + (index < messages % senders)
                if quota:
                    sender = Sender(world, index, quota)
                    world.events.at(START_NS + index * _STAGGER_NS, sender.start)
            world.events.run()
            with (folder / TRUTH).open("w", encoding="utf-8") as file:
                world.write_truth(file)
