"""A scene: a small session made of rows of the tables that the replay reads."""

from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from replay_tables import T0, Tables

from schemas.wire import MessageClass

S = (1 << 63) - 1  # the next sequence no signed number holds
NAME = "#4294967295 (numbered since 2038-01-19T03:14:07Z)"  # what sentences call it
DAYS = 3 * 86_400
SECOND_US, NS = 1_000_000, 1_000_000_000


def guid(name: str) -> str:
    """The GUID of a queue manager."""
    return str(uuid5(NAMESPACE_OID, name))


@dataclass
class Scene:
    """A session of a sender `a` and a receiver `b`, known by address or, with `guids`, by handshake; times in s."""

    tables: Tables
    name: str
    guids: bool = False
    offset: dict[str, int] = field(default_factory=dict)

    @property
    def sender(self) -> str:
        """The sender's GUID."""
        return guid(f"{self.name}.a")

    @property
    def receiver(self) -> str:
        """The receiver's GUID."""
        return guid(f"{self.name}.b")

    @property
    def session(self) -> str:
        """The session's ID."""
        ends = (self.sender, self.receiver) if self.guids else (f"ip.{self.name}.a", f"ip.{self.name}.b")
        return "->".join(ends)

    def connection(self, number: int = 0, lasting: float = 0, answers: bool = True, **columns: Any) -> None:
        """A connection that lasts so long; `columns` are of the stream from the sender, `back_…` of the way back."""
        ends = f"ip.{self.name}.a", f"ip.{self.name}.b"
        times = {"last_captured_at": T0 // 1000 + int(lasting * SECOND_US)}
        timeout_ms = columns.pop("ack_timeout_ms", None)
        back = {name.removeprefix("back_"): columns.pop(name) for name in list(columns) if name.startswith("back_")}
        self.tables.stream(f"{self.name}.{number}>", *ends, **(times | columns))
        if answers:
            self.tables.stream(f"{self.name}.{number}<", *ends[::-1], **(times | back))
        if self.guids:
            self.tables.handshake(f"{self.name}.{number}", self.sender, self.receiver)
            self.tables.rows["handshakes"][-1]["ack_timeout_ms"] = timeout_ms

    def key(self, number: int = 0, way: str = ">") -> tuple[str, int]:
        """The next place on a stream."""
        stream = f"{self.name}.{number}{way}"
        self.offset[stream] = self.offset.get(stream, -10) + 10
        return stream, self.offset[stream]

    def message(
        self,
        at: float,
        number: int,
        previous: int,
        sequence: int | None = S,
        on: int = 0,
        *,
        ordinal: int | None = None,
        sent: int = 0,
        part: tuple[int, bool, bool] = (0, True, True),
        **columns: Any,
    ) -> None:
        """A message, transactional unless it has no sequence; its ordinal is its number unless told otherwise.

        `part` is the ID of its transaction, and whether it is the first and the last one of that.
        """
        tx: Any = (sequence, number, previous) if sequence is not None else (None, None, None)
        ordinal = number if ordinal is None else ordinal
        own = {"source_queue_manager": self.sender, "message_id": f"{self.sender}\\{ordinal}", "body_crc32": 0}
        own |= {"message_id_ordinal": ordinal, "sent_at": T0 // 1000 + sent * SECOND_US}
        own |= {"transactional": sequence is not None}
        own |= (
            dict(zip(("tx_transaction_id", "tx_first", "tx_last"), part, strict=True)) if sequence is not None else {}
        )
        self.tables.message(self.key(on), T0 + int(at * NS), tx, **own | columns)

    def messages(self, *numbers: int, at: float = 0) -> None:
        """Messages that follow one another, a ms apart."""
        for i, number in enumerate(numbers):
            self.message(at + i / 1000, number, number - 1)

    def ack(self, at: float, number: int, stream: str = "0<", **columns: Any) -> None:
        """An OrderAck, on the first connection's way back unless told otherwise."""
        named = {"source_queue_manager": self.receiver, "queue_manager_address": self.sender}
        place = {"stream_offset": int(at * 1000)}
        self.tables.ack(f"{self.name}.{stream}", T0 + int(at * NS), (S, number), **named | place | columns)

    def final_ack(self, at: float, number: int, message_class: int, named: int | None = None) -> None:
        """A FinalAck for a number, and for the message ID that goes with it or another one."""
        about = {"source_guid": self.sender, "acknowledged_message_id": f"{self.sender}\\{named or number}"}
        self.ack(at, number, ack_type="final_ack", message_class=int(message_class), **about)

    def session_ack(self, at: float, window_size: int = 64) -> None:
        """A SessionAck, on the first connection's way back."""
        ns = T0 + int(at * NS)
        place = {"stream_id": f"{self.name}.0<", "stream_offset": int(at * 1000), "captured_ns": ns}
        self.tables.rows["session_acks"].append(
            place | {"captured_at": ns // 1000, "capture_id": "c", "last_frame": 1, "window_size": window_size}
        )

    def missing(self, length: int = 100, stage: str | None = None, on: int = 0, way: str = ">") -> None:
        """Bytes that no capture holds, or that are in quarantine from a stage."""
        self.tables.unread(*self.key(on, way), length, stage)

    def returned(self, message_class: MessageClass, at: float = 1, times: int = 1, **fields: Any) -> None:
        """A message, outside transactions unless it has a sequence, and administration messages about it."""
        self.connection(lasting=60)
        self.message(0, **{"number": 9, "previous": 0, "sequence": None, **fields})
        about = {"message_class": int(message_class), "correlation_id": f"{self.sender}\\{fields.get('number', 9)}"}
        own = {"source_queue_manager": self.receiver, "message_id": f"{self.receiver}\\1", "transactional": False}
        nothing: Any = (None, None, None)
        for nth in range(times):
            self.tables.message((f"{self.name}.0<", nth), T0 + int(at * NS), nothing, **own | about)

    def another_receiver(self) -> None:
        """A message to a receiver, and a connection to another one at the same address."""
        self.guids = True
        self.connection()
        self.messages(1)
        self.guids = False
        self.connection(1)
        self.tables.handshake(f"{self.name}.1", self.sender, guid(f"{self.name}.c"))

    def receivers_by_turns(self) -> None:
        """A message to a receiver, a connection to another one, and 5 s later one to the first, at the same address."""
        self.another_receiver()
        self.guids = True
        self.connection(2, first_captured_at=T0 // 1000 + 5 * SECOND_US, lasting=9)

    def two_networks(self) -> None:
        """Connections from two addresses at once, and a message on the first."""
        self.guids = True
        self.connection(0, lasting=10)
        self.connection(1, lasting=10, src_ip="ip.other")
        self.messages(1)

    def another_identity(self) -> None:
        """A connection of another queue manager at the sender's address."""
        self.tables.stream(f"{self.name}.9>", f"ip.{self.name}.a", f"ip.{self.name}.b")
        self.tables.handshake(f"{self.name}.9", guid(f"{self.name}.c"), self.receiver)

    def in_transactions(self, *marks: tuple[int, int, bool, bool]) -> None:
        """Messages with these numbers, transaction IDs, FM and LM."""
        self.connection()
        for number, transaction, first, last in marks:
            self.message(number, number, number - 1, part=(transaction, first, last))
