"""Random nights of many small sessions, in which things come as they should, and as they never would."""

import random
from typing import Any

from plain_evidence import LATEST_ORDER_ACK, MS
from replay_tables import NULL, T0, Tables
from replayer import Receiver

from schemas.wire import MessageClass

LAST_NUMBER = 0xFFFFFFFF
Sent = tuple[int, int, int]  # TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber
PAUSES = (0, 1, MS, 250 * MS, 1_000 * MS, LATEST_ORDER_ACK - 1, LATEST_ORDER_ACK, 30_000 * MS)
CLASSES = (
    *[MessageClass.MQMSG_CLASS_ACK_RECEIVE] * 3,
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
    MessageClass.MQMSG_CLASS_NACK_Q_PURGED,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,
)


def as_sent(rng: random.Random) -> list[Sent]:
    """Returns messages of one sender: sequences, expiry, wraps, resends with a bridged previous, loss and swaps."""
    identity = rng.choice([1, (1 << 63) - 2, (1 << 64) - 40, rng.randrange(1 << 63)])
    number = rng.choice([0, 0, 0, 5, LAST_NUMBER - 3])
    unacknowledged: list[int] = []
    wire: list[Sent] = []
    for _ in range(rng.randrange(1, 14)):
        event = rng.random()
        if event < 0.6:
            previous, number = number, number + (2 if rng.random() < 0.15 else 1)
            if number > LAST_NUMBER:
                number = rng.choice([0, 1])
            unacknowledged.append(number)
            wire.append((identity, number, previous))
        elif event < 0.75 and unacknowledged:
            unacknowledged = [n for n in unacknowledged if rng.random() < 0.8]
            bridged = zip([0, *unacknowledged], unacknowledged, strict=False)
            wire += [(identity, n, p) for p, n in bridged if p or n == 1]
        elif event < 0.85:
            identity, number, unacknowledged = identity + rng.choice([1, 1, 2]), rng.choice([0, 0, 0, 1]), []
        elif event < 0.95 and len(wire) > 1:
            wire.append(rng.choice(wire))
    wire = [message for message in wire if rng.random() > 0.08]
    for i in range(len(wire) - 1):
        if rng.random() < 0.08:
            wire[i], wire[i + 1] = wire[i + 1], wire[i]
    return wire


def arbitrary(rng: random.Random) -> list[Sent]:
    """Returns messages that no sender would send."""
    base, low = rng.choice([0, (1 << 63) - 2, (1 << 64) - 4]), rng.choice([0, 0, LAST_NUMBER - 7])
    return [
        (base + rng.randrange(4), low + rng.randrange(8), rng.choice([0, low + rng.randrange(8)]))
        for _ in range(rng.randrange(1, 12))
    ]


def to_queues(rng: random.Random) -> list[tuple[str, Sent]]:
    """Returns messages of one sender to one to three queues, numbered per session or per queue."""
    queues = [f"q{i}" for i in range(rng.choice([1, 1, 2, 3]))]
    make = as_sent if rng.random() < 0.75 else arbitrary
    if rng.random() < 0.5:
        return [(rng.choice(queues), message) for message in make(rng)]
    streams = {queue: make(rng) for queue in queues}
    turns = [queue for queue, messages in streams.items() for _ in messages]
    rng.shuffle(turns)
    return [(queue, streams[queue].pop(0)) for queue in turns]


class Session:
    """A session over one to three connections, one after the other or at once; its clock may be wrong.

    Several original senders mean a router. OrderAcks come before, among and after the messages.
    """

    def __init__(self, rng: random.Random, tables: Tables, name: str, receiver: str, senders: list[str]) -> None:
        self.rng, self.tables, self.receiver, self.senders = rng, tables, receiver, senders
        self.lossy, self.wild = rng.random() < 0.4, rng.random() < 0.2
        self.connections = [f"{name}-{i}" for i in range(rng.choice([1, 1, 1, 2, 3]))]
        self.offsets = dict.fromkeys((f"{one}{side}" for one in self.connections for side in "<>"), 0)
        self.ns = T0 + 10_000
        known = rng.random() < 0.6
        for connection in self.connections:
            self.connect(connection)
            if known and rng.random() < 0.9:
                self.shake_hands(connection)

    def connect(self, connection: str) -> None:
        """Adds both streams of a connection, of which a lossy capture may miss the beginning."""
        addresses = f"ip-{self.senders[0]}", f"ip-{self.receiver}"
        begun = (T0 + self.rng.randrange(20) * 1000) // 1000
        for side, (src, dst) in ((">", addresses), ("<", addresses[::-1])):
            caught = self.lossy and self.rng.random() < 0.4
            at = None if self.lossy and self.rng.random() < 0.1 else begun
            self.tables.stream(f"{connection}{side}", src, dst, mid_stream=caught, first_captured_at=at)

    def shake_hands(self, connection: str) -> None:
        """Adds a handshake, in which the ends may have other names than before."""
        rng, sender, receiver = self.rng, self.senders[0], self.receiver
        self.tables.handshake(connection, sender, receiver)
        request, response = self.tables.rows["handshakes"][-2:]
        request["server_guid"] = rng.choice([NULL, NULL, None, receiver, f"{receiver}, formerly"])
        request["client_guid"] = response["client_guid"] = rng.choice([sender] * 9 + [f"{sender}, renamed"])
        response["server_guid"] = rng.choice([receiver] * 9 + [NULL])

    def play(self) -> None:
        """Sends the messages of all senders, and acknowledges them."""
        rng = self.rng
        queued = [(source, *message) for source in self.senders for message in to_queues(rng)]
        if len(self.senders) > 1:
            rng.shuffle(queued)
        if queued and rng.random() < 0.3:
            identity, number, _ = queued[0][2]
            for _ in range(2):
                named = max(identity - rng.randrange(2), 0), max(number - rng.randrange(3), 1)
                self.send(T0 + rng.randrange(9_000, 10_500, 250), named)
        at_once, slow = rng.random() < 0.3, rng.random() < 0.6
        final, by_queue = rng.random() < 0.4, rng.random() < 0.5
        states: dict[Any, Receiver] = {}
        for i, (source, queue, message) in enumerate(queued):
            self.ns += rng.choice(PAUSES if slow else [0, 1, 7, 1000])
            nth = rng.randrange(len(self.connections)) if at_once else i * len(self.connections) // len(queued)
            other = rng.choice([1, 2]) if rng.random() < 0.1 else 0
            message_id = f"{source}\\{(message[0] * 31 + message[1] + other) % (1 << 32)}"
            self.message(f"{self.connections[nth]}>", source, queue, message, message_id)
            state = states.setdefault((source, queue if by_queue else None), Receiver(None, literal=False))
            state.take(*message)
            if rng.random() < 0.6 and state.state:
                self.order_ack(source, state.state, message[:2])
            if final and rng.random() < 0.5:
                self.acknowledge(
                    message[:2], ack_type="final_ack", message_class=int(rng.choice(CLASSES)), source_guid=source,
                    acknowledged_message_id=message_id,
                )  # fmt: skip
        for stream in self.offsets:
            if self.lossy and rng.random() < 0.3:
                self.lose(stream)

    def message(self, stream: str, source: str, queue: str, message: Sent, message_id: str) -> None:
        """Sends a message; bytes before it may be missing."""
        rng = self.rng
        if self.lossy and rng.random() < 0.15:
            self.lose(stream)
        wrong = rng.randrange(-9000, 9000) if self.wild else 0
        self.tables.message(
            self.place(stream), None if self.wild and rng.random() < 0.1 else self.ns + wrong, message,
            source_queue_manager=source, message_id=message_id, destination_queue=queue,
            queue_manager_address=rng.choice([NULL, NULL, NULL, self.receiver, "elsewhere"]),
            transactional=rng.random() < 0.98, body_encrypted=message[1] % 3 == 0,
            label=rng.choice("aaab") if rng.random() < 0.1 else "a",
            tx_final_ack_required=message[1] % 4 == 1, negative_source_journal=message[1] % 9 == 0,
        )  # fmt: skip

    def place(self, stream: str) -> tuple[str, int]:
        """Returns the next place on a stream."""
        self.offsets[stream] += 10
        return stream, self.offsets[stream]

    def lose(self, stream: str) -> None:
        """Loses bytes, or cannot read them."""
        stage = self.rng.choice([None, None, None, "framing", "framing", "decode", "tcp"])
        self.tables.unread(*self.place(stream), stage=stage)

    def order_ack(self, source: str, state: tuple[int, int], named: tuple[int, int]) -> None:
        """Sends the OrderAck for a state, or another one, once, twice or not at all."""
        rng = self.rng
        named = rng.choice([state, state, state, state, named, (state[0], max(state[1] + rng.choice([-2, -1, 1]), 0))])
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            sources = [NULL, NULL, source, source, *self.senders, "somebody"]
            self.acknowledge(named, queue_manager_address=rng.choice(sources))

    def acknowledge(self, named: tuple[int, int], **columns: Any) -> None:
        """Sends an acknowledgment after a while."""
        self.send(self.ns + sum(self.rng.choices(PAUSES, k=self.rng.choice([1, 1, 2, 3]))), named, **columns)

    def send(self, at_ns: int, named: tuple[int, int], **columns: Any) -> None:
        """Sends an acknowledgment here or there, by either name of the receiver; some come from somebody else."""
        rng = self.rng
        stream = f"{rng.choice(self.connections)}{rng.choice('<<<<>')}"
        by = rng.choice([self.receiver, self.receiver, f"ip-{self.receiver}", "somebody"])
        to = {"queue_manager_address": rng.choice([NULL, *self.senders, "somebody"])}
        self.tables.ack(stream, at_ns, named, source_queue_manager=by, **to | columns)


def night(rng: random.Random, messages: int) -> Tables:
    """Returns that many messages or a few more, in small sessions: some through routers, some to queues of one name."""
    tables, count = Tables(), 0
    while len(tables.rows["messages"]) < messages:
        senders = [f"s{count}.{i}" for i in range(rng.choice([1, 1, 1, 2, 3]))]
        for i in range(rng.choice([1, 1, 1, 2])):
            Session(rng, tables, f"{count}.{i}", f"r{count}.{i}", senders).play()
        count += 1
    return tables
