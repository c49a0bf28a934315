"""A scene: a small session made of packets, the findings it must give, and what else is expected of it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from one_packet import decode_packet
from replay_tables import T0, Tables

from jobs.simulator import build
from schemas.replay import FindingKind, Severity
from schemas.wire import MessageClass

S = (1 << 63) - 1  # the next sequence no signed number holds
NAME = "2038-01-19T03:14:07Z#4294967295"  # what people call it
NS = 1_000_000_000
DAYS = 3 * 86_400


def guid(name: str) -> UUID:
    """The GUID of a queue manager."""
    return uuid5(NAMESPACE_OID, name)


@dataclass
class Scene:
    """A session of a sender `a` and a receiver `b`, known by address or, with `guids`, by handshake; times in s.

    What they send are packets, as `jobs.simulator.build` builds and `udfs.msmq.reference_rows` decodes them.
    """

    tables: Tables
    name: str
    guids: bool = False
    offset: dict[str, int] = field(default_factory=dict)

    @property
    def sender(self) -> UUID:
        """The sender's GUID."""
        return guid(f"{self.name}.a")

    @property
    def session(self) -> str:
        """The session's ID."""
        ends = (self.sender, guid(f"{self.name}.b")) if self.guids else (f"ip.{self.name}.a", f"ip.{self.name}.b")
        return "->".join(map(str, ends))

    def connection(self, number: int = 0, lasting: float = 0, answers: bool = True, **columns: Any) -> None:
        """A connection that lasts so long; `columns` are of the stream from the sender, `back_…` of the way back."""
        ends = f"ip.{self.name}.a", f"ip.{self.name}.b"
        times = {"last_captured_at": T0 // 1000 + int(lasting * 1_000_000)}
        back = {name.removeprefix("back_"): columns.pop(name) for name in list(columns) if name.startswith("back_")}
        self.tables.stream(f"{self.name}.{number}>", *ends, **(times | columns))
        if answers:
            self.tables.stream(f"{self.name}.{number}<", *ends[::-1], **(times | back))
        if self.guids:
            self.handshake(f"{self.name}.{number}", self.sender, guid(f"{self.name}.b"))

    def handshake(self, connection: str, client: UUID, server: UUID) -> None:
        """EstablishConnection and its answer, which names the server."""
        self.packet("handshakes", (f"{connection}>", 0), 0, build.establish_connection(client))
        self.packet("handshakes", (f"{connection}<", 0), 0, build.establish_connection(client, server))

    def key(self, number: int = 0, way: str = ">") -> tuple[str, int]:
        """The next place on a stream."""
        stream = f"{self.name}.{number}{way}"
        self.offset[stream] = self.offset.get(stream, -10) + 10
        return stream, self.offset[stream]

    def packet(self, table: str, key: tuple[str, int], at: float, packet: bytes) -> None:
        """A packet as the table shows it."""
        decoded = decode_packet(packet, None, len(packet))
        assert isinstance(decoded, dict)
        ns = T0 + int(at * NS)
        place = {"stream_id": key[0], "stream_offset": key[1], "captured_ns": ns, "captured_at": ns // 1000}
        record = {"capture_id": "c", "first_frame": 1, "last_frame": 1}
        self.tables.rows[table].append(decoded | place | record)

    def message(
        self, at: float, number: int, previous: int, sequence: int | None = S, on: int = 0, **fields: Any
    ) -> None:
        """A message, transactional unless it has no sequence; its message ID is its number unless told otherwise."""
        given: dict[str, Any] = {"message_id": number, "body": bytes(10)} | fields
        if sequence is not None:
            given["sequence"] = sequence, number, previous
        self.packet("messages", self.key(on), at, build.user_message(self.sender, **given))
        self.tables.rows["messages"][-1]["body_crc32"] = zlib.crc32(given["body"])

    def messages(self, *numbers: int, at: float = 0) -> None:
        """Messages that follow one another, a ms apart."""
        for i, number in enumerate(numbers):
            self.message(at + i / 1000, number, number - 1)

    def ack(self, at: float, number: int) -> None:
        """An OrderAck, on the first connection's way back."""
        by = guid(f"{self.name}.b")
        packet = build.order_ack(by, sender=self.sender, message_id=1, sequence_id=S, number=number)
        self.packet("acks", (f"{self.name}.0<", int(at * 1000)), at, packet)

    def session_ack(self, at: float, **fields: int) -> None:
        """A SessionAck, on the first connection's way back."""
        self.packet("session_acks", (f"{self.name}.0<", int(at * 1000)), at, build.session_ack(**fields))

    def final_ack(self, at: float, number: int, message_class: MessageClass, named: int | None = None) -> None:
        """A FinalAck for a number, and for the message ID that goes with it or another one."""
        packet = build.final_ack(
            guid(f"{self.name}.b"),
            sender=self.sender,
            message_id=1,
            sequence_id=S,
            number=number,
            previous=number - 1,
            acknowledged_message_id=number if named is None else named,
            message_class=message_class,
        )
        self.packet("acks", (f"{self.name}.0<", int(at * 1000)), at, packet)

    def missing(
        self, table: str = "stream_gaps", length: int = 100, stage: str | None = None, on: int = 0, way: str = ">"
    ) -> None:
        """Bytes that no capture holds, or that are in quarantine."""
        place = dict(zip(("stream_id", "stream_offset"), self.key(on, way), strict=True))
        self.tables.rows[table].append(place | {"length": length, "stage": stage})


Event = Callable[[Scene], None]
"""Adds packets to a scene."""
SCENES: dict[str, tuple[Event, dict[FindingKind, Severity]]] = {}
"""By name: what happens, and the findings it must give, these and no others."""
READINGS: dict[str, str] = {}
"""The reading of 3.1.5.8.6 that foretells the OrderAcks of a scene, by its name."""
COVERED: dict[str, tuple[float | None, float | None, int]] = {}
"""Coverage of bytes and of time, and connections in mid-stream, of some scenes."""
INFO, WARNING, ERROR = Severity


def event(add: Callable[..., None]) -> Callable[..., Event]:
    """Makes an event of what adds packets to a scene."""

    @wraps(add)
    def of(*arguments: Any, **options: Any) -> Event:
        return lambda played: add(played, *arguments, **options)

    return of


connection, message, messages = event(Scene.connection), event(Scene.message), event(Scene.messages)
ack, final_ack, session_ack = event(Scene.ack), event(Scene.final_ack), event(Scene.session_ack)
missing = event(Scene.missing)


def script(
    name: str,
    reading: str | None = None,
    coverage: tuple[float | None, float | None, int] | None = None,
    *,
    guids: bool = False,
    **kinds: Severity,
) -> Callable[..., None]:
    """Adds a scene by its name and the findings that it must give; what is returned takes its events."""
    if reading is not None:
        READINGS[name] = reading
    if coverage is not None:
        COVERED[name] = coverage

    def of(*events: Event) -> None:
        def play(played: Scene) -> None:
            played.guids = guids
            for one in events:
                one(played)

        play.__name__ = name
        scene(**kinds)(play)

    return of


def scene(**kinds: Severity) -> Callable[[Event], Event]:
    """Adds a scene by its function's name."""

    def named(play: Event) -> Event:
        SCENES[play.__name__] = play, {FindingKind(kind): severity for kind, severity in kinds.items()}
        return play

    return named
