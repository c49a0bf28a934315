"""Queue managers that send, route and receive; and what goes wrong with them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random
from typing import Any
from uuid import UUID

from schemas.wire import QueueType
from udfs import build
from udfs.simulation.events import MILLISECOND, SECOND, Action, Events, Faults
from udfs.simulation.network import Connection, Endpoint, Network
from udfs.simulation.packets import Message, Template
from udfs.simulation.session import Session
from udfs.simulation.stream import Stream, post_back
from udfs.simulation.truth import Truth

MSMQ_PORT = 1801
_RECONNECT_NS = 5 * SECOND  # [MS-MQQB] 3.1.2.3
_LATENCY_NS = 2 * MILLISECOND
_CUT_NS = MILLISECOND, 4 * MILLISECOND  # after a transaction was sent: some of it has arrived
_RESTART_NS = 20 * SECOND, 60 * SECOND
_SETTING_UP_NS = SECOND  # at most
_LAST_NUMBER = 0xFFFFFFFF
_TRANSACTION_IDS = 1 << 20
_TRANSACTION_SIZES = (1, 1, 1, 2, 3, 5, 8, 20)
_TRANSACTION_BITS = 0x2, 0x4, 0x8  # FA, FM, LM
_EXPRESS_SHARE = 0.05  # of transactions, behind which a message goes that is not transactional
_FINAL_ACK_SHARE = 0.05  # of transactions, whose messages ask for a FinalAck
_SHORT_LIVED_SHARE, _SHORT_LIFE_S = 0.1, 25  # of messages; shorter than the first wait for an OrderAck
_BUSY_SHARE, _IDLE_SHARE = 0.8, 0.005  # of pauses between transactions; the rest is long enough for an OrderAck
_BUSY_NS = MILLISECOND, 50 * MILLISECOND
_PAUSE_NS = 600 * MILLISECOND, 3 * SECOND
_SILENCES_S = 100, 100, 100, 100, 1_000, 7_000  # two, five and ten times is everything sent again
_WAIT_NS = 10 * SECOND  # between looks at whether all is acknowledged
_IDLE_NS = 300 * SECOND, 400 * SECOND  # the session is closed, [MS-MQQB] 3.1.2.2
_PORT_REUSE = 0.5  # of reconnections
_EPHEMERAL_PORTS = 49_152
_TIMESTAMPS = 1 << 12  # between those of two senders; a restore takes the next
_RECEIVER_ADDRESSES = {4: "10.0.0.{}", 6: "fd00::{}"}
_ROUTER_ADDRESSES = {4: "10.0.1.{}", 6: "fd00:1::{}"}
_SENDER_ADDRESSES = {4: "10.20.0.{}", 6: "fd00:20::{}"}
_NAT_ADDRESSES = {4: "203.0.113.7", 6: "2001:db8::7"}
_NAT_PORTS = 61_000
_POOL_PARTS, _POOL_PART = 64, 16_384  # bytes that bodies are cut from


class World:
    """All there is: time, the network, chance, and where the truth is written."""

    def __init__(self, rng: Random, events: Events, network: Network, truth: Truth, bodies: tuple[int, int]) -> None:
        """Bodies have a size between two."""
        self.rng, self.events, self.network, self.truth = rng, events, network, truth
        self.begins_ns = network.tap.blindness.begins_ns
        self._bodies = bodies
        # A body may hold a whole packet: what looks like a header is not always one. None ends where a segment does.
        decoy = build.user_message(UUID(int=rng.getrandbits(128)), message_id=1, sequence=(1, 1, 0), body=b"within")
        self._pool = b"".join(rng.randbytes(_POOL_PART + 1) + decoy + bytes(3) for _ in range(_POOL_PARTS))
        if not network.tap.is_whole:  # behind a hole even the contract takes a packet in a body for one
            self._pool = rng.randbytes(len(self._pool))
        self._nat_port = _NAT_PORTS

    def next_nat_port(self) -> int:
        """The next port that the address translator gives out."""
        self._nat_port = _NAT_PORTS + (self._nat_port + 1 - _NAT_PORTS) % ((1 << 16) - _NAT_PORTS)
        return self._nat_port

    def body(self, *, plain: bool = False) -> bytes:
        """The body of a message, from the beginning of the pool, where no packet is, when it is to be `plain`."""
        smallest, largest = self._bodies
        size = smallest + int(self.rng.random() * (largest - smallest + 1))
        start = 0 if plain else int(self.rng.random() * (len(self._pool) - size)) & ~3
        return self._pool[start : start + size]


class Host:
    """A queue manager that others connect to."""

    def __init__(self, rng: Random, addresses: dict[int, str], index: int) -> None:
        """Listen on an IPv4 and an IPv6 address."""
        self.guid = UUID(int=rng.getrandbits(128), version=4)
        self.addresses = {version: ip_address(text.format(index + 1)) for version, text in addresses.items()}
        self.links: list[Link] = []


class Receiver(Host):
    """A receiving queue manager."""

    _ordinal = 0

    def __init__(self, rng: Random, index: int) -> None:
        """Have sent no message."""
        super().__init__(rng, _RECEIVER_ADDRESSES, index)

    def next_ordinal(self) -> int:
        """The MessageID of the next acknowledgment."""
        self._ordinal += 1
        return self._ordinal

    def restart(self, down_ns: int) -> None:
        """Break all sessions, and answer again after a while; the incoming states are on disk."""
        for link in self.links:
            if link.session is not None:
                link.cut(link.session, down_ns)


@dataclass(frozen=True, slots=True)
class Line:
    """How a queue manager connects to the next."""

    address: IPv4Address | IPv6Address
    is_direct: bool
    behind_nat: bool = False
    isn_near_wrap: bool = False
    hops: int = 0
    is_final: bool = True


class Link:
    """A queue manager's sessions with the next one, one at a time."""

    def __init__(
        self, world: World, near: UUID, far: Host, line: Line, take: Action, opened: Callable[[], None]
    ) -> None:
        """Have none; `take` is what the next does with a message, `opened` is called at each new session."""
        self.session: Session | None = None
        self.streams: list[Stream] = []
        """Those that arrive at their destination there."""
        self._world, self._near, self._far, self._line = world, near, far, line
        self._take, self._opened = take, opened
        self._booted_ns = world.events.now - world.rng.randrange(10**15)
        self._port = _EPHEMERAL_PORTS + world.rng.randrange(4_096)
        far.links.append(self)

    def connect(self) -> None:
        """Open a session; not when the capture is about to begin, so that it has seen all of a set-up or nothing."""
        events, begins_ns = self._world.events, self._world.begins_ns
        if begins_ns - _SETTING_UP_NS <= events.now < begins_ns:
            events.at(begins_ns + self._world.rng.randrange(_SETTING_UP_NS), self.connect)
            return
        session = self._new_session(is_open=False)
        session.establish(self._near, self._far.guid, self._booted_ns, self._begin, is_direct=self._line.is_direct)

    def go_on(self) -> Session:
        """The session that was there before the simulation; `begin` makes it go on."""
        return self._new_session(is_open=True)

    def begin(self, session: Session) -> None:
        """Use a session from now on."""
        session.begin(self._begin)

    def close(self, pause_ns: int | None = None, *, reset: bool = False) -> None:
        """Close the session when all that was sent has arrived; connect again after the pause, if there is one."""
        session, self.session = self._current(), None
        session.close(partial(self._again, pause_ns), reset=reset)

    def cut(self, session: Session, pause_ns: int) -> None:
        """Lose the session, if it is still the one, with all that is under way; connect again after the pause."""
        if session is self.session:
            self.session = None
            session.cut(partial(self._again, pause_ns))

    def restart(self, session: Session, pause_ns: int) -> None:
        """Lose the session as a queue manager does that is started anew."""
        if session is self.session:
            self._booted_ns = self._world.events.now
            self.cut(session, pause_ns)

    def _current(self) -> Session:
        assert self.session is not None  # noqa: S101 - only who has a session closes it
        return self.session

    def _again(self, pause_ns: int | None) -> None:
        if pause_ns is not None:
            self._world.events.after(pause_ns, self.connect)

    def _begin(self, session: Session) -> None:
        self.session = session
        self._opened()

    def _new_session(self, *, is_open: bool) -> Session:
        rng, line = self._world.rng, self._line
        if line.behind_nat:
            self._port = self._world.next_nat_port()
        elif line.isn_near_wrap or rng.random() > _PORT_REUSE:  # near numbers on one port would be one connection's
            self._port = _EPHEMERAL_PORTS + (self._port + 1) % (1 << 14)
        isn = (1 << 32) - rng.randrange(1, 4_096) if line.isn_near_wrap else rng.getrandbits(32)
        initiator = Endpoint(line.address, self._port)
        acceptor = Endpoint(self._far.addresses[line.address.version], MSMQ_PORT)
        positions = isn, rng.getrandbits(32)
        connection = Connection(self._world.network, initiator, acceptor, positions, _LATENCY_NS, is_open=is_open)

        def missing() -> None:
            for stream in self.streams:
                stream.verdicts.missing(connection)

        connection.missing = missing
        return Session(connection, self._take, hops=line.hops, is_final=line.is_final)


class Router(Host):
    """A routing server: what it takes it sends on, until the next has acknowledged it ([MS-MQQB] 3.1.5.8.2)."""

    def __init__(self, world: World, index: int, receiver: Receiver) -> None:
        """Route to one receiver."""
        super().__init__(world.rng, _ROUTER_ADDRESSES, index)
        line = Line(self.addresses[4], is_direct=False, hops=1)
        self.link = Link(world, self.guid, receiver, line, _arrive, self._opened)
        self._events = world.events
        self._last: Session | None = None
        self._waiting: list[tuple[Message, int]] = []

    def take(self, _: Session, message: Message, previous: int) -> None:
        """Send a message on, or keep it until there is a session."""
        session = self.link.session
        if session is None:
            self._waiting.append((message, previous))
        else:
            session.send(message, previous)
            session.pump()

    def _opened(self) -> None:
        session = self.link.session
        assert session is not None  # noqa: S101 - it was opened just now
        left = [] if self._last is None else self._last.left()
        now_s = self._events.now // SECOND
        for message, previous in left + self._waiting:
            if not message.has_expired(now_s):
                session.send(message, previous)
        self._last, self._waiting = session, []
        session.pump()
        for stream in self.link.streams:
            stream.send_final_acks()


def _arrive(session: Session, message: Message, previous: int) -> None:
    message.stream.arrive(session, message, previous)


class Fault(Enum):
    """What goes wrong with a transaction."""

    EXPIRED = auto()  # the message before it expires before it is sent
    LOST = auto()  # its first message is not sent until it is sent again
    LOST_AND_EXPIRED = auto()  # nor then, unless that is soon
    POSTPONED = auto()  # its first message is sent behind the others, which do not count it
    NOT_ACKNOWLEDGED = auto()  # the receiver loses its OrderAck
    SILENT = auto()  # the receiver loses all OrderAcks for long, in which the sender has nothing new to send
    DISCONNECTED = auto()  # the session breaks before the OrderAck
    CUT = auto()  # the network is cut while it is under way
    RESTARTED = auto()  # the sender is started anew while it is under way
    RECEIVER_RESTARTED = auto()  # the receiver is
    RESTORED = auto()  # the sender is restored from a backup before its last message is sent


@dataclass(frozen=True, slots=True)
class Branch:
    """What is particular about a sender."""

    queues: tuple[QueueType, ...] = (QueueType.DIRECT,)
    numbered_per_queue: bool = False
    ip_version: int = 4
    behind_nat: bool = False
    is_routed: bool = False
    isn_near_wrap: bool = False
    timestamp: int = 1_704_067_200  # TxSequenceID.TimeStamp, s since 1970
    sequence_ordinal: int = 1  # TxSequenceID.Ordinal
    message_ordinal: int = 1  # MessageID
    sent_before: int = 0
    """TxSequenceNumber of the last message that was sent before the capture began; 0: there was no session."""
    order_ack_first: bool = False
    """Of what was sent before, the capture still holds the OrderAck."""

    @property
    def shares_numbers(self) -> bool:
        """Whether several queues are numbered together."""
        return len(self.queues) > 1 and not self.numbered_per_queue

    @property
    def needs_names(self) -> bool:
        """Whether the replay must have seen the names of queue managers to judge its messages as the truth does."""
        return self.is_routed or self.shares_numbers


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
    Branch((_PRIVATE,), sent_before=0xFFFFFFFD, timestamp=0x8000_0000),
    Branch((_PRIVATE,), sent_before=7, order_ack_first=True),
    Branch((_PRIVATE,), timestamp=0xFFF0_0000, sequence_ordinal=0xC000_0000, message_ordinal=0x8000_0000),
    Branch((_PRIVATE,), ip_version=6, behind_nat=True, isn_near_wrap=True, sequence_ordinal=0x7FFF_FFF0),
    Branch((_PRIVATE,), is_routed=True),
    Branch((_PRIVATE, _PRIVATE), numbered_per_queue=True, is_routed=True, ip_version=6),
)


class Sender:
    """A sending queue manager: commits transactions until its quota is used up and all is acknowledged."""

    def __init__(
        self, world: World, faults: Faults[Fault], index: int, receiver: Receiver, router: Router, quota: int
    ) -> None:
        """Make the streams; `quota` is how many transactional messages are to be sent."""
        rng = world.rng
        self.branch = branch = BRANCHES[index % len(BRANCHES)]
        self._world, self._faults = world, faults
        self._guid = UUID(int=rng.getrandbits(128), version=4)
        self._receiver = receiver
        self._quota = quota
        self._timestamp = branch.timestamp + index * _TIMESTAMPS
        self._sequence_ordinal = branch.sequence_ordinal - 1
        self._message_ordinal = branch.message_ordinal - 1
        self._transaction_id = rng.randrange(_TRANSACTION_IDS)
        self._turn = 0
        addresses = _NAT_ADDRESSES if branch.behind_nat else _SENDER_ADDRESSES
        line = Line(
            ip_address(addresses[branch.ip_version].format(index + 1)),
            is_direct=branch.queues[0] is _DIRECT,
            behind_nat=branch.behind_nat,
            isn_near_wrap=branch.isn_near_wrap,
            is_final=not branch.is_routed,
        )
        way: tuple[Host, Action] = (router, router.take) if branch.is_routed else (receiver, _arrive)
        self.link = Link(world, self._guid, way[0], line, way[1], self._opened)
        self._last_link = router.link if branch.is_routed else self.link
        self._links = [router.link, self.link] if branch.is_routed else [self.link]
        self._streams = self._made_streams()
        self._last_link.streams += self._streams

    def _made_streams(self) -> list[Stream]:
        world, branch, receiver = self._world, self.branch, self._receiver
        queues = [
            build.direct(f"OS:hub\\private$\\orders{number}") if kind is _DIRECT else build.private(16 + number)
            for number, kind in enumerate(branch.queues)
        ]
        templates = [Template(self._guid, receiver.guid, queue) for queue in queues]
        self._express = Template(self._guid, receiver.guid, queues[0], transactional=False)
        parts = [[template] for template in templates] if branch.numbered_per_queue else [templates]
        streams = []
        for part in parts:
            name = part[0].destination_queue if len(parts) > 1 else None
            verdicts = world.truth.verdicts(self._guid, name, by_queue=not branch.shares_numbers)
            ends = world.events, world.rng, self._guid, receiver
            streams.append(Stream(*ends, part, verdicts, self._next_sequence_id, self._answer))
        return streams

    def start(self) -> None:
        """Connect, or go on from before the capture began."""
        if not self.branch.sent_before:
            self.link.connect()
            return
        (stream,) = self._streams
        stream.go_on_from(self.branch.sent_before)
        session = self.link.go_on()
        if self.branch.order_ack_first:
            session.open = True
            self.link.session = session
            stream.send_order_ack(session)
        self.link.begin(session)

    def _next_sequence_id(self) -> int:
        """A TxSequenceID above all before it."""
        self._sequence_ordinal += 1
        return self._timestamp << 32 | self._sequence_ordinal

    def _answer(self, packet: bytes, deliver: Action, *arguments: Any, **how: Any) -> None:
        """Send a packet of the receiver's back the way that messages come."""
        post_back([link.session for link in self._links], packet, deliver, *arguments, **how)

    def _opened(self) -> None:
        """Send again what is unacknowledged, and go on."""
        session = self.link.session
        assert session is not None  # noqa: S101 - it was opened just now
        for stream in self._streams:
            stream.session = session
            stream.resend(session)
            stream.send_final_acks()
        self._turn += 1
        self._work(self._turn)

    def _after(self, delay_ns: int) -> None:
        """Go on then, unless a new session is opened before."""
        self._turn += 1
        self._world.events.after(delay_ns, self._work, self._turn)

    def _work(self, turn: int) -> None:
        """Commit a transaction and pause, or finish."""
        session, events, rng = self.link.session, self._world.events, self._world.rng
        if turn != self._turn or session is None:
            return  # a session is, or will be, opened
        silent = any(stream.silent_until_ns > events.now for stream in self._streams)
        fault = Fault.SILENT if silent else self._commit(session) if self._quota else None
        if fault is Fault.DISCONNECTED or fault is Fault.RESTORED:
            self.link.close(_RECONNECT_NS, reset=rng.random() < 0.5)  # noqa: PLR2004 - one in two
        elif fault is Fault.SILENT:
            self._after(_WAIT_NS)
        elif fault is Fault.CUT:
            events.after(rng.randint(*_CUT_NS), self.link.cut, session, _RECONNECT_NS)
        elif fault is Fault.RESTARTED:
            events.after(rng.randint(*_CUT_NS), self.link.restart, session, rng.randint(*_RESTART_NS))
        elif self._quota:
            pause = rng.random()
            if pause < _BUSY_SHARE:
                self._after(rng.randint(*_BUSY_NS))
            elif pause < 1 - _IDLE_SHARE:
                self._after(rng.randint(*_PAUSE_NS))
            else:
                self.link.close(rng.randint(*_IDLE_NS))
        elif all(stream.is_settled for stream in self._streams):
            self.link.close()
        else:
            self._after(_WAIT_NS)

    def _commit(self, session: Session) -> Fault | None:
        """Send the messages of a transaction, faults and all; returns the fault."""
        world = self._world
        stream = world.rng.choice(self._streams)
        room = _LAST_NUMBER - stream.number
        if not room:
            if not stream.unacknowledged:
                stream.begin_sequence()
            return None
        fault = self._faults.strike()
        if fault is Fault.EXPIRED and room > 1:
            stream.number += 1
            room -= 1
        smallest = 2 if fault is Fault.POSTPONED or self.branch.shares_numbers else 1
        count = min(max(world.rng.choice(_TRANSACTION_SIZES), smallest), self._quota, room)
        self._quota -= count
        is_quiet = not stream.unacknowledged
        sent = self._transaction(stream, count)
        first = sent[0][0]
        if fault in (Fault.LOST, Fault.LOST_AND_EXPIRED):
            if fault is Fault.LOST_AND_EXPIRED:
                first.time_to_reach_s = _SHORT_LIFE_S
            del sent[0]
        elif fault is Fault.POSTPONED and count > 1:
            postponed, (second, _), *others = sent
            sent = [(second, postponed[1]), *others, postponed]
        elif fault is Fault.NOT_ACKNOWLEDGED:
            stream.loses_order_ack = True
        elif fault is Fault.SILENT:
            stream.silent_until_ns = world.events.now + world.rng.choice(_SILENCES_S) * SECOND
        elif fault is Fault.RECEIVER_RESTARTED:
            down_ns = world.rng.randint(*_RESTART_NS)
            world.events.after(world.rng.randint(*_CUT_NS), self._receiver.restart, down_ns)
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
        rng = self._world.rng
        self._transaction_id = (self._transaction_id + 1) % _TRANSACTION_IDS
        final_ack_required, first, last = _TRANSACTION_BITS
        flags = self._transaction_id << 4 | (final_ack_required if rng.random() < _FINAL_ACK_SHARE else 0)
        messages = []
        for index in range(count):
            stream.number += 1
            # The first of a transaction go to one queue after the other: what is numbered together shows.
            each_queue = index < len(stream.templates)
            message = self._message(stream, stream.templates[index] if each_queue else rng.choice(stream.templates))
            message.sequence_id, message.number = stream.sequence_id, stream.number
            message.transaction_flags = flags | (first if index == 0 else 0) | (last if index == count - 1 else 0)
            stream.unacknowledged.append(message)
            messages.append((message, stream.last_sent))
            stream.last_sent = stream.number
        return messages

    def _message(self, stream: Stream, template: Template) -> Message:
        world = self._world
        self._message_ordinal += 1
        plain = self._message_ordinal == self.branch.message_ordinal
        life_s = _SHORT_LIFE_S if world.rng.random() < _SHORT_LIVED_SHARE else build.FOUR_DAYS
        ordinal = self._message_ordinal & 0xFFFFFFFF
        return Message(stream, template, ordinal, world.events.now // SECOND, world.body(plain=plain), life_s)
