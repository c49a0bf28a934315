"""Simulates queue managers that send, route and receive, and what goes wrong with them."""

from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import Any
from uuid import UUID

from jobs.simulator import build
from jobs.simulator.branches import Branch, Fault, Trouble
from jobs.simulator.capture import Seen
from jobs.simulator.events import MILLISECOND, SECOND, Action, Events, Faults, nothing
from jobs.simulator.incoming import Incoming
from jobs.simulator.network import Connection
from jobs.simulator.packets import Message, Template
from jobs.simulator.session import Session
from jobs.simulator.stream import Stream, post_back
from jobs.simulator.world import Host, Line, Link, World
from schemas.replay import FindingKind
from schemas.wire import MessageClass, QueueType

_RECONNECT_NS = 5 * SECOND  # [MS-MQQB] 3.1.2.3
_CUT_NS = MILLISECOND, 4 * MILLISECOND  # after a transaction was sent, when part of it has arrived
_RESTART_NS = 20 * SECOND, 60 * SECOND
_BETWEEN_RESTARTS_NS = 600 * SECOND  # of a receiver, at least
_LAST_NUMBER = 0xFFFFFFFF
_TRANSACTION_IDS = 1 << 20
_TRANSACTION_BITS = 0x2, 0x4, 0x8  # FA, FM, LM
_SHORT_LIFE_S = 25  # shorter than the first wait for an OrderAck
_HOLD_NS = 50 * SECOND
_SHUT_NS = 12 * SECOND
_SURELY_STALLED_NS = 31 * SECOND  # patience and a step of `udfs.replay.findings.receivers`, with AckTimeout of 20 s
_UNANSWERED_NS = 25 * SECOND
_BUSY_NS = MILLISECOND, 50 * MILLISECOND
_SILENCES_S = 100, 100, 100, 100, 1_000, 7_000  # everything is resent two, five and ten times
_WAIT_NS = 10 * SECOND  # between looks at whether all is acknowledged
_IDLE_NS = 300 * SECOND, 400 * SECOND  # the session is closed, [MS-MQQB] 3.1.2.2
_TIMESTAMPS = 1 << 12  # between those of two senders; a restore takes the next
_CLONES = 120  # added to the number of a sender in the address of its clone
_RECEIVER_ADDRESSES = {4: "10.0.0.{}", 6: "fd00::{}"}
_ROUTER_ADDRESSES = {4: "10.0.1.{}", 6: "fd00:1::{}"}
_SENDER_ADDRESSES = {4: "10.20.0.{}", 6: "fd00:20::{}"}
_OTHER_ADDRESSES = {4: "10.20.1.{}", 6: "fd00:20::1:{}"}
_NAT_ADDRESSES = {4: "203.0.113.7", 6: "2001:db8::7"}


class Receiver(Host):
    """Receives messages, and acknowledges them."""

    _ordinal = 0

    def __init__(self, rng: Random, events: Events, index: int) -> None:
        """Starts without having sent a message."""
        super().__init__(rng, _RECEIVER_ADDRESSES, index)
        self._events = events
        self._may_restart_ns = 0

    def next_ordinal(self) -> int:
        """Returns the MessageID of the next acknowledgment."""
        self._ordinal += 1
        return self._ordinal

    def restart(self, down_ns: int) -> None:
        """Breaks all sessions and answers again later, with its states on disk; does nothing soon after a restart."""
        if self._events.now < self._may_restart_ns:
            return
        self._may_restart_ns = self._events.now + _BETWEEN_RESTARTS_NS
        for link in self.links:
            if link.session is not None:
                link.cut(link.session, down_ns)


class Router(Host):
    """Routes messages: keeps each until the next queue manager has acknowledged it ([MS-MQQB] 3.1.5.8.2)."""

    def __init__(self, world: World, index: int, receiver: Receiver) -> None:
        """Routes to one receiver."""
        super().__init__(world.rng, _ROUTER_ADDRESSES, index)
        line = Line(self.addresses[4], is_direct=False, hops=1)
        self.link = Link(world, self.guid, receiver, line, _arrive, self._opened)
        self._events = world.events
        self._last: Session | None = None
        self._waiting: list[tuple[Message, int]] = []

    def take(self, _: Session, message: Message, previous: int) -> None:
        """Sends a message on, or keeps it until there is a session."""
        session = self.link.session
        if session is None:
            self._waiting.append((message, previous))
        else:
            session.send(message, previous)
            session.pump()

    def _opened(self, session: Session) -> None:
        left = [] if self._last is None else self._last.left()
        now_s = self._events.now // SECOND
        for message, previous in left + self._waiting:
            if not message.has_expired(now_s):
                session.send(message, previous)
        self._last, self._waiting = session, []
        session.pump()
        for stream in self.link.streams:
            stream.incoming.send_final_acks()


def _arrive(session: Session, message: Message, previous: int) -> None:
    message.stream.arrive(session, message, previous)


class Sender:
    """Commits transactions until its quota is used up and all is acknowledged."""

    _stream_type = Stream

    def __init__(
        self,
        world: World,
        faults: Faults[Fault],
        index: int,
        receiver: Receiver,
        router: Router,
        quota: int,
        *,
        branch: Branch,
        original: "Sender | None" = None,
        beside: Receiver | None = None,
    ) -> None:
        """Creates the streams; `quota` is the number of transactional messages to send.

        `beside`: another receiver at the same address, which a balancer lets every other connection reach. A clone has
        the identity of its `original`, and its streams start from the state of the original's streams.
        """
        rng = world.rng
        self.branch = branch
        self._world, self._faults = world, faults
        self.guid: UUID = original.guid if original else UUID(int=rng.getrandbits(128), version=4)
        self._index, self._receiver, self._router = index, receiver, router
        self._is_clone = original is not None
        self._receivers = [receiver, beside] if beside else [receiver]
        self._incoming: dict[UUID, list[Incoming]] = {one.guid: [] for one in self._receivers}
        self._quota = self._whole_quota = quota
        self._timestamp = branch.timestamp + index * _TIMESTAMPS
        self._sequence_ordinal = branch.sequence_ordinal - 1
        self._message_ordinal = branch.message_ordinal - 1
        self._transaction_id = rng.randrange(_TRANSACTION_IDS)
        self._turn = 0
        self._snapshot: list[Any] = []
        addresses = _NAT_ADDRESSES if branch.behind_nat else _SENDER_ADDRESSES
        line = Line(
            ip_address(addresses[branch.ip_version].format(index + 1)),
            is_direct=branch.queues[0] is QueueType.DIRECT,
            behind_nat=branch.behind_nat,
            isn_near_wrap=branch.isn_near_wrap,
            is_final=not branch.is_routed,
        )
        way: tuple[Host, Action] = (router, router.take) if branch.is_routed else (receiver, _arrive)
        self.link = Link(world, self.guid, way[0], line, way[1], self._opened)
        self.link.beside = beside
        self._answers: Link | None = None
        if branch.is_answered_elsewhere:
            other = Host(rng, _OTHER_ADDRESSES, index)
            other.guid = self.guid
            back = Line(receiver.addresses[4], is_direct=False)
            self._answers = Link(world, receiver.guid, other, back, nothing, self._send_final_acks)
        self._last_link = router.link if branch.is_routed else self.link
        self._links = [router.link, self.link] if branch.is_routed else [self.link]
        self.streams = self._made_streams(original)
        self._last_link.streams += self.streams
        if original:
            self._restore(original.state())
            world.truth.copied(self.guid, str(self.link.address))

    def _made_streams(self, original: "Sender | None") -> list[Stream]:
        world, branch, receiver = self._world, self.branch, self._receiver
        queues = [
            build.direct(f"OS:hub\\private$\\{branch.queue_names[number]}")
            if kind is QueueType.DIRECT
            else build.private(16 + number)
            for number, kind in enumerate(branch.queues)
        ]
        templates = [Template(self.guid, receiver.guid, queue, label=branch.label) for queue in queues]
        self._express = Template(self.guid, receiver.guid, queues[0], label=branch.label, transactional=False)
        parts = [[template] for template in templates] if branch.numbered_per_queue else [templates]
        streams = []
        for number, part in enumerate(parts):
            if original:
                incoming = original.streams[number].incoming
            else:
                name = part[0].destination_queue if len(parts) > 1 else None
                own = receiver.guid if branch.trouble is Trouble.REPLACED else None
                verdicts = world.truth.verdicts(self.guid, name, by_queue=not branch.shares_numbers, receiver=own)
                for each in self._receivers:
                    incoming = Incoming(world.events, world.rng, world.network.wire, self.guid, each, verdicts)
                    self._incoming[each.guid].append(incoming)
                    world.truth.fates(verdicts, incoming.fates)
            stream = self._stream_type(world.events, incoming, part, self._next_sequence_id, self._answer)
            stream.take_express = self._return if branch.is_full else nothing
            streams.append(stream)
        return streams

    def start(self) -> None:
        """Connects, or continues a session from before the capture."""
        if self._answers is not None:
            self._answers.connect()
        if self.branch.first_try is not None:
            self.link.fail(self.branch.first_try)
            self.find(FindingKind.CANNOT_CONNECT)
            self._world.events.after(_UNANSWERED_NS, self.link.connect)
            return
        if not self.branch.sent_before:
            self.link.connect()
            return
        (stream,) = self.streams
        number, receiver_at = self.branch.sent_before, self.branch.receiver_at
        stream.go_on_from(number, number if receiver_at is None else receiver_at)
        session = self.link.go_on()
        if self.branch.order_ack_first:
            session.open = True
            self.link.session = session
            stream.incoming.send_order_ack(stream, session)
        self.link.begin(session)
        for refused in range(number if receiver_at is None else receiver_at, number):
            message = self._message(stream, stream.templates[0])
            message.sequence_id, message.number = stream.sequence_id, refused + 1
            stream.unacknowledged.append(message)
        if stream.unacknowledged:
            stream.expect_order_ack()

    def state(self) -> list[Any]:
        """Returns what a copy or a snapshot of the queue manager holds."""
        counters = self._timestamp, self._sequence_ordinal, self._message_ordinal, self._transaction_id
        return [counters, *((stream.sequence_id, stream.number, stream.last_sent) for stream in self.streams)]

    def _restore(self, state: list[Any]) -> None:
        """Goes back to a state that `_state` returned; what is unacknowledged is forgotten."""
        self._timestamp, self._sequence_ordinal, self._message_ordinal, self._transaction_id = state[0]
        for stream, (sequence_id, number, last_sent) in zip(self.streams, state[1:], strict=True):
            stream.sequence_id, stream.number, stream.last_sent = sequence_id, number, last_sent
            stream.unacknowledged.clear()

    def _is_due(self, share: float) -> bool:
        """Returns whether so much of the quota has been sent."""
        return self._quota <= self._whole_quota * (1 - share)

    def _start_clone(self) -> None:
        """Lets a copy of this queue manager send the rest of the messages, or some of it, a second time."""
        branch = replace(self.branch, is_cloned=False)
        quota = round(self._quota * branch.copy_sends)
        given = self._world, self._faults, self._index + _CLONES, self._receiver, self._router, quota
        Sender(*given, branch=branch, original=self).start()

    def _held(self, length_ns: int) -> None:
        """Notes that packets waited so long for a SessionAck; whether that is too long, the step of time may decide."""
        if length_ns > _SURELY_STALLED_NS:
            self._stalled(length_ns)

    def _stalled(self, length_ns: int) -> None:
        """Notes that the way to the receiver was closed for so long, if the capture's clock shows it."""
        if self._world.shows_time_since(self._world.events.now - length_ns):
            self.find(FindingKind.WINDOW_STALLED)

    def find(self, kind: FindingKind | None, _: int = 0) -> None:
        """Notes what must be found of this sender; None for what nobody can foretell."""
        for stream in self.streams:
            self._world.truth.find(stream.incoming.verdicts, kind)

    def _return(self, message: Message) -> None:
        """Returns an express message, because its queue is full."""
        packet = build.user_message(
            self._receiver.guid,
            message_id=self._receiver.next_ordinal(),
            sent_time=self._world.events.now // SECOND,
            message_class=MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA,
            correlation_id=self.guid.bytes_le + message.ordinal.to_bytes(4, "little"),
        )

        def seen_on(_: Connection) -> Seen:
            return partial(self.find, FindingKind.NOT_RECEIVED_BY_APPLICATION)

        self._answer(packet, nothing, recoverable=True, seen_on=seen_on)

    def _next_sequence_id(self) -> int:
        """Returns a TxSequenceID above all earlier ones."""
        self._sequence_ordinal += 1
        return self._timestamp << 32 | self._sequence_ordinal

    def _answer(self, packet: bytes, deliver: Action, *arguments: Any, **how: Any) -> None:
        """Sends a packet of the receiver back along the path of the messages, or on its own connection."""
        if self._answers is None:
            sides = [None if link.session is None else link.session.far for link in self._links]
        elif (session := self._answers.session) is not None:
            sides = [session.near]
        else:
            return
        post_back(sides, packet, deliver, *arguments, **how)

    def _send_final_acks(self, _: Session) -> None:
        if self._answers is not None and self._answers.session is not None:
            self.find(FindingKind.TWO_ADDRESSES)
        for stream in self.streams:
            stream.incoming.send_final_acks()

    def _opened(self, session: Session) -> None:
        """Resends what is unacknowledged, then continues."""
        if self._is_clone:
            self.find(FindingKind.TWO_ADDRESSES)
        for stream, incoming in zip(self.streams, self._incoming.get(self.link.far.guid, ()), strict=False):
            stream.incoming, stream.judge = incoming, incoming.verdicts.judge
        for stream in self.streams:
            stream.session = session
            stream.resend(session)
        self._send_final_acks(session)
        self._turn += 1
        self._work(self._turn)

    def _after(self, delay_ns: int) -> None:
        """Continues after a delay, unless a new session opens first."""
        self._turn += 1
        self._world.events.after(delay_ns, self._work, self._turn)

    def _work(self, turn: int) -> None:
        """Commits a transaction and pauses, or finishes."""
        session, events, rng = self.link.session, self._world.events, self._world.rng
        habits = self.branch.habits
        if turn != self._turn or session is None:
            return  # another session is open, or will be
        if self.branch.is_reverted and not self._snapshot and self._is_due(1 / 3) and not self._is_due(2 / 3):
            self._snapshot = self.state()
        if self.branch.is_cloned and self._is_due(self.branch.cloned_after):
            self.branch = replace(self.branch, is_cloned=False)
            self._start_clone()
        if (self.branch.is_held or self.branch.is_shut) and self._is_due(1 / 2):
            self.find(None)
            if self.branch.is_held:
                session.far.hold(_HOLD_NS, self._held)
            else:
                session.shut(_SHUT_NS, partial(self._stalled, _SHUT_NS))
            self.branch = replace(self.branch, is_held=False, is_shut=False)
        silent = any(stream.silent_until_ns > events.now for stream in self.streams)
        fault = Fault.SILENT if silent else self._commit(session) if self._quota else None
        if fault is Fault.DISCONNECTED or fault is Fault.RESTORED:
            self.link.close(session, _RECONNECT_NS, reset=rng.random() < 0.5)  # noqa: PLR2004 - one in two
        elif self._snapshot and self._is_due(2 / 3) and self.branch.is_reverted:
            self._restore(self._snapshot)
            self._snapshot = []
            self.link.close(session, _RECONNECT_NS, reset=True)
        elif fault is Fault.SILENT:
            self._after(_WAIT_NS)
        elif fault is Fault.CUT:
            events.after(rng.randint(*_CUT_NS), self.link.cut, session, _RECONNECT_NS)
        elif fault is Fault.RESTARTED:
            events.after(rng.randint(*_CUT_NS), self.link.restart, session, rng.randint(*_RESTART_NS))
        elif self._quota:
            pause = rng.random()
            if pause < habits.busy_share:
                self._after(rng.randint(*_BUSY_NS))
            elif pause < 1 - habits.idle_share:
                self._after(rng.randint(*habits.pause_ns))
            else:
                self.link.close(session, rng.randint(*_IDLE_NS))
        elif all(stream.is_settled for stream in self.streams):
            self.link.close(session)
        else:
            self._after(_WAIT_NS)

    def _commit(self, session: Session) -> Fault | None:
        """Sends the messages of a transaction, with a fault if one strikes; returns the fault."""
        world = self._world
        stream = world.rng.choice(self.streams)
        room = _LAST_NUMBER - stream.number
        if not room:
            if not stream.unacknowledged:
                stream.begin_sequence()
            return None
        fault = self._faults.strike()
        if fault is Fault.EXPIRED and room > 1:
            stream.number += 1
            room -= 1
        smallest = 2 if fault in (Fault.POSTPONED, Fault.VANISHED) or self.branch.shares_numbers else 1
        count = min(max(world.rng.choice(self.branch.habits.transaction_sizes), smallest), self._quota, room)
        self._quota -= count
        is_quiet = not stream.unacknowledged
        sent = self._transaction(stream, count)
        first = sent[0][0]
        if fault in (Fault.LOST, Fault.LOST_AND_EXPIRED):
            if fault is Fault.LOST_AND_EXPIRED:
                first.time_to_reach_s = _SHORT_LIFE_S
            del sent[0]
        elif fault is Fault.VANISHED:
            stream.unacknowledged.remove(first)
            stream.vanished = first.number
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
        if world.rng.random() < self.branch.habits.express_share:
            sent.append((self._message(stream, self._express), 0))
        for message, previous in sent:
            session.send(message, previous)
        session.pump()
        if is_quiet:
            stream.expect_order_ack()
        if fault is Fault.RESTORED:
            self._timestamp += 1
            self._sequence_ordinal = 0
            for each in self.streams:
                each.restore()
        return fault

    def _transaction(self, stream: Stream, count: int) -> list[tuple[Message, int]]:
        """Creates the messages of one transaction, each with its PreviousTxSequenceNumber."""
        rng = self._world.rng
        self._transaction_id = (self._transaction_id + 1) % _TRANSACTION_IDS
        final_ack_required, first, last = _TRANSACTION_BITS
        flags = self._transaction_id << 4 | (
            final_ack_required if rng.random() < self.branch.habits.final_ack_share else 0
        )
        messages = []
        for index in range(count):
            stream.number += 1
            # The first messages go to one queue after the other, so that the capture shows which queues share numbers.
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
        life_s = _SHORT_LIFE_S if world.rng.random() < self.branch.habits.short_lived_share else build.FOUR_DAYS
        ordinal = self._message_ordinal & 0xFFFFFFFF
        return Message(stream, template, ordinal, world.events.now // SECOND, world.body(plain=plain), life_s)
