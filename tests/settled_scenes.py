"""Scenes of two nights, the second of which changes what the first one settled, and nights that play them."""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from histories import History
from histories import Tables as Found
from replay_tables import NULL, T0, Tables
from scenes import Event, event
from table_frames import rows_of

from schemas.replay import Scope
from schemas.wire import MessageClass

SECOND = 1_000_000_000
GUID = "01234567-89ab-cdef-0123-456789abcdef"


class Nights(Tables):
    """Rows of the sources, which grow from night to night."""

    def opened(self, name: str, src: str = "a", dst: str = "r", at: int = 0) -> None:
        """Adds a stream that began at a time."""
        us = (T0 + at * SECOND) // 1_000
        self.stream(name, src, dst, first_captured_at=us, last_captured_at=us)

    def sent(self, stream: str, *messages: tuple[int | None, int, int, int], begin: int = 0, **columns: Any) -> None:
        """Adds messages (time, ID, number, previous) one after another."""
        for nth, (at, sequence, number, previous) in enumerate(messages):
            ns = None if at is None else T0 + at * SECOND
            key, named = (stream, begin + 10 * nth), {"message_id": rf"source\{sequence * 100 + number}"}
            self.message(key, ns, (sequence, number, previous), **(named | columns))

    def acked(self, stream: str, at: int, sequence: int, number: int) -> None:
        """Adds an OrderAck."""
        self.ack(stream, T0 + at * SECOND, (sequence, number), stream_offset=at)

    def read(self, stream: str, at: int, sequence: int, number: int) -> None:
        """Adds a FinalAck: an application received the message."""
        named = {"source_guid": "source", "acknowledged_message_id": rf"source\{sequence * 100 + number}"}
        final: Any = {"ack_type": "final_ack", "message_class": int(MessageClass.MQMSG_CLASS_ACK_RECEIVE)}
        self.ack(stream, T0 + at * SECOND, (sequence, number), stream_offset=at, **named | final)

    def gone(self, table: str, **columns: Any) -> None:
        """Takes away the rows of a table that have these values."""
        self.rows[table] = [row for row in self.rows[table] if columns.items() - row.items()]

    def changed(self, table: str, **columns: Any) -> None:
        """Changes the first row of a table."""
        self.rows[table][0].update(columns)


opened, sent, acked, unread = (event(one) for one in (Nights.opened, Nights.sent, Nights.acked, Nights.unread))
read = event(Nights.read)
connection, handshake = event(Nights.connection), event(Nights.handshake)
gone, changed = event(Nights.gone), event(Nights.changed)
A = connection("A", "a", "r")
FROM_A_GAP = (A, sent("A>", (10, 7, 2, 1), (20, 8, 1, 0), (30, 9, 1, 0)), acked("A<", 31, 9, 1))
ONE_KNOWN_RECEIVER = (A, opened("B>", dst="x"), handshake("A", "ga", "R"))
"""Nothing names the receiver of stream B."""
FOUR_MESSAGES = (A, opened("B>"), sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0)))
"""They arrived in order."""
ASKED = (A, sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0), tx_final_ack_required=True))
"""They arrived in order, and their sender asked for FinalAcks."""
WHOLE: dict[str, Any] = {"tx_transaction_id": 5, "tx_first": True, "tx_last": True}
USED = (A, sent("A>", (10, 7, 1, 0), **WHOLE), sent("A>", (20, 8, 1, 0), (30, 9, 1, 0), begin=10))
"""A transaction, and others."""
COPIED = tuple(
    one
    for name, address in (("A", "a"), ("N", "n"))
    for one in (connection(name, address, "r", initial_seq=5), handshake(name, "ga", "R", time_stamp_ms=1))
)
"""Connection N is a copy of A."""
BY_TWO_CLOCKS = (
    *(*COPIED, opened("B>"), opened("D>")),
    sent("A>", (1, 5, 1, 0), source_queue_manager="other"),
    sent("N>", (6, 5, 1, 0), source_queue_manager="other", capture_id="d"),
)
"""The clock of capture d is ahead by 5 s."""
DISPUTED = (
    *BY_TWO_CLOCKS,
    *(sent("B>", (20, 7, 1, 0), (30, 8, 1, 0)), sent("D>", (32, 9, 1, 0), capture_id="d")),
    sent("B>", (50, 10, 1, 0), (60, 11, 1, 0), begin=20),
)
"""Two messages are nearer to each other than these clocks are."""
SCENES: dict[str, tuple[Scope, tuple[Event, ...], tuple[Event, ...]]] = {
    "an OrderAck from before all messages comes": (Scope.SESSION, FROM_A_GAP, (acked("A<", 5, 6, 3),)),
    "an OrderAck from before all messages goes": (
        Scope.SESSION,
        (*FROM_A_GAP, acked("A<", 5, 6, 3)),
        (gone("acks", stream_offset=5),),
    ),
    "a sender is new to a session with OrderAcks for anyone": (
        Scope.QUEUE,
        (
            *(A, connection("B", "b", "r")),
            sent("A>", (1, 7, 1, 0), (2, 8, 1, 0), (3, 9, 1, 0)),
            sent("B>", (1, 7, 1, 0), source_queue_manager="other", destination_queue="x"),
            *(acked("B<", 5, 7, 1), acked("A<", 4, 9, 1)),
        ),
        (sent("B>", (50, 10, 1, 0), begin=90, destination_queue="q2"),),
    ),
    "a message follows a range behind what was the last one": (
        Scope.SESSION,
        (
            *(opened("A>"), opened("C>", at=5), unread("C>", 50, 5)),
            sent("C>", (10, 7, 1, 0)),
            sent("A>", (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0)),
        ),
        (sent("C>", (200, 10, 1, 0), begin=100),),
    ),
    "a silent stream has its first message": (
        Scope.SESSION,
        (
            *(opened("A>"), opened("C>", at=15), unread("C>", 5, 5)),
            sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0)),
        ),
        (sent("C>", (200, 10, 1, 0), begin=100),),
    ),
    "an address has a name, so that messages passed through": (
        Scope.QUEUE,
        (
            *ONE_KNOWN_RECEIVER,
            sent("A>", (10, 7, 1, 0), (20, 7, 3, 2), (30, 8, 1, 0), (40, 9, 1, 0), queue_manager_address="R"),
            sent("B>", (15, 11, 2, 1), queue_manager_address="R"),
        ),
        (connection("D", "z", "x"), handshake("D", "gz", "other")),
    ),
    "a message that may be on its way comes late": (
        Scope.QUEUE,
        (*ONE_KNOWN_RECEIVER, sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0), queue_manager_address="R")),
        (sent("B>", (15, 11, 2, 1), queue_manager_address="R"),),
    ),
    "a message names whom messages on their way name": (
        Scope.QUEUE,
        (
            *ONE_KNOWN_RECEIVER,
            sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0)),
            sent("B>", (15, 11, 2, 1), queue_manager_address="R"),
        ),
        (sent("A>", (50, 9, 2, 1), begin=90, queue_manager_address="R"),),
    ),
    "a second receiver has a state of its own": (
        Scope.QUEUE,
        (
            *(A, handshake("A", "ga", GUID)),
            sent("A>", (10, 7, 1, 0), (20, 7, 5, 1), (25, 7, 3, 2), (30, 8, 1, 0), (40, 9, 1, 0)),
        ),
        (connection("B", "a", "r2"), handshake("B", "ga", GUID.replace("0", "f")), sent("B>", (50, 10, 1, 0))),
    ),
    "a message comes after one that never moved the state": (
        Scope.SESSION,
        (A, acked("A<", 1, 9, 5), sent("A>", (10, 6, 5, 4), (20, 9, 6, 5))),
        (sent("A>", (50, 9, 9, 8), begin=40),),
    ),
    "one of two that were accepted goes": (
        Scope.SESSION,
        (
            *(opened("A>"), opened("B>", src="b", dst="r2")),
            sent("A>", (10, 7, 1, 0), message_id=r"source\5"),
            sent("A>", (20, 8, 1, 0), (30, 9, 1, 0), begin=10),
            sent("B>", (11, 107, 1, 0), message_id=r"source\5"),
            sent("B>", (21, 108, 1, 0), begin=10),
        ),
        (gone("messages", tx_sequence_id=107),),
    ),
    "the state falls to that of a sequence that was settled": (
        Scope.QUEUE,
        (
            *(opened("A>"), opened("B>", at=25), unread("B>", 0, 5)),
            sent("A>", (10, 7, 1, 0), (20, 8, 1, 0)),
            sent("B>", (30, 9, 2, 1), begin=10),
        ),
        (gone("stream_gaps"),),
    ),
    "a message without a time": (Scope.QUEUE, FOUR_MESSAGES, (sent("A>", (None, 10, 1, 0), begin=90),)),
    "a message before those after a clock's step back": (
        Scope.QUEUE,
        (
            *(opened("A>"), opened("B>"), changed("captures", clock_steps=[{"frame": 3, "step_ns": -30 * SECOND}])),
            *(
                sent("A>", (10, 7, 1, 0), (20, 8, 1, 0)),
                sent("A>", (70, 9, 1, 0), (80, 10, 1, 0), begin=20, last_frame=3),
            ),
        ),
        (sent("B>", (95, 11, 1, 0)),),
    ),
    "a sequence goes on whose scope has a message in a copy": (
        Scope.QUEUE,
        (
            *(*COPIED, opened("E>"), unread("A>", 0, 30), unread("N>", 0, 5)),
            *(sent("N>", (10, 7, 1, 0), begin=10), sent("A>", (30, 9, 1, 0), begin=60)),
            sent("E>", (20, 8, 1, 0), (40, 10, 1, 0)),
        ),
        (sent("E>", (50, 9, 2, 1), begin=90),),
    ),
    "a copy has a message that its connection lacks": (
        Scope.QUEUE,
        (*COPIED, unread("A>", 0, 30), sent("A>", (30, 9, 1, 0), begin=60)),
        (sent("N>", (10, 7, 1, 0), begin=10),),
    ),
    "clocks turn out to be nearer": (
        Scope.QUEUE,
        DISPUTED,
        tuple(
            sent(name, (70, 6, 1, 0), (80, 6, 2, 1), begin=20, source_queue_manager="other", capture_id=capture)
            for name, capture in (("A>", "c"), ("N>", "d"))
        ),
    ),
    "what was a copy is a connection of its own": (
        Scope.QUEUE,
        DISPUTED,
        (*(gone("handshakes", stream_id=of) for of in ("N>", "N<")), handshake("N", "ga", "R", time_stamp_ms=2)),
    ),
    "a message is too near to one by another clock": (
        Scope.QUEUE,
        (
            *BY_TWO_CLOCKS,
            sent("B>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0), (31, 10, 1, 0)),
        ),
        (sent("D>", (33, 11, 1, 0), capture_id="d"),),
    ),
    "a message before others on another stream": (Scope.QUEUE, FOUR_MESSAGES, (sent("B>", (35, 9, 2, 1)),)),
    "a message at a lower offset": (Scope.QUEUE, FOUR_MESSAGES, (sent("A>", (60, 10, 1, 0), begin=15),)),
    "a message that another queue had": (
        Scope.QUEUE,
        FOUR_MESSAGES,
        (sent("B>", (50, 20, 1, 0), message_id=r"source\701", destination_queue="other"),),
    ),
    "a transaction ID is used again": (
        Scope.QUEUE,
        USED,
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE), sent("A>", (51, 10, 2, 1), begin=100, **WHOLE)),
    ),
    "a message of an ID was sent before the one that is known": (
        Scope.QUEUE,
        USED,
        (sent("A>", (50, 10, 1, 0), begin=90, message_id=r"source\600", **WHOLE),),
    ),
    "a transaction goes on": (
        Scope.QUEUE,
        (A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": False}), sent("A>", (20, 8, 1, 0), begin=10)),
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE | {"tx_first": False}),),
    ),
    "whether the last message was LM is not known": (
        Scope.QUEUE,
        (A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": None}), sent("A>", (20, 8, 1, 0), begin=10)),
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE),),
    ),
    "a transaction ID is used again, and FM is lost": (
        Scope.QUEUE,
        USED,
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE | {"tx_first": False}),),
    ),
    "a transaction ID was used again, and FM was lost": (
        Scope.QUEUE,
        (*USED, sent("A>", (40, 9, 2, 1), begin=40, **WHOLE | {"tx_first": False})),
        (sent("A>", (50, 9, 3, 2), begin=90),),
    ),
    "the second use of an ID goes on": (
        Scope.QUEUE,
        (
            *(A, sent("A>", (10, 7, 1, 0), **WHOLE), sent("A>", (15, 7, 2, 1), begin=10, **WHOLE | {"tx_last": False})),
            sent("A>", (20, 8, 1, 0), (30, 9, 1, 0), begin=20),
        ),
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE | {"tx_first": False}),),
    ),
    "an ID is used again after a transaction in two sequences": (
        Scope.QUEUE,
        (
            *(A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": False}), sent("A>", (20, 8, 1, 0), begin=10)),
            sent("A>", (30, 9, 1, 0), begin=20, **WHOLE | {"tx_first": False}),
        ),
        (sent("A>", (50, 9, 2, 1), begin=90, **WHOLE),),
    ),
    "two messages have the number after a transaction's first": (
        Scope.QUEUE,
        (A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": False}), sent("A>", (20, 8, 1, 0), begin=10)),
        (
            sent("A>", (50, 10, 1, 0), begin=90, **WHOLE | {"tx_first": False}),
            sent("A>", (51, 10, 1, 0), begin=100, message_id=r"source\1000", **WHOLE | {"tx_last": False}),
        ),
    ),
    "a new use comes between two messages of one": (
        Scope.QUEUE,
        (
            *(A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": False}), sent("A>", (20, 8, 1, 0), begin=10)),
            sent("A>", (30, 9, 1, 0), begin=20, message_id=r"source\950", **WHOLE | {"tx_first": False}),
        ),
        (sent("A>", (50, 9, 2, 1), begin=90, message_id=r"source\920", **WHOLE),),
    ),
    "whether a later message is FM is not known": (
        Scope.QUEUE,
        (A, sent("A>", (10, 7, 1, 0), **WHOLE | {"tx_last": False}), sent("A>", (20, 8, 1, 0), begin=10)),
        (sent("A>", (50, 10, 1, 0), begin=90, **WHOLE | {"tx_first": None}),),
    ),
    "a message ID has no number": (
        Scope.QUEUE,
        USED,
        (sent("A>", (50, 10, 1, 0), begin=90, message_id="source", **WHOLE),),
    ),
    "one of two message IDs has no number": (
        Scope.QUEUE,
        USED,
        (
            sent("A>", (50, 10, 1, 0), begin=90, message_id="source", **WHOLE),
            sent("A>", (51, 10, 2, 1), begin=100, **WHOLE),
        ),
    ),
    "an end without acknowledgment of the bytes": (
        Scope.QUEUE,
        FOUR_MESSAGES,
        (changed("streams", closed=True, acked_bytes=5),),
    ),
    "a message that was not read yet is read": (Scope.QUEUE, (*ASKED, acked("A<", 31, 9, 1)), (read("A<", 60, 7, 1),)),
    "the first acknowledgment for a sender comes": (Scope.QUEUE, ASKED, (acked("A<", 60, 9, 1),)),
}
"""Cases of two nights: the rows that the first one brought, and those that the second one brought or took away."""
COPIES = (
    "a copy has a message that its connection lacks",
    "clocks turn out to be nearer",
    "what was a copy is a connection of its own",
)
"""Scenes whose second night judges all messages, those of other scenes too."""
_NAMING = {
    *("stream_id", "connection_id", "capture_id", "uri", "src_ip", "dst_ip", "client_guid", "server_guid"),
    *("source_queue_manager", "queue_manager_address", "source_guid", "message_id", "acknowledged_message_id"),
}
"""Columns with names that a scene has for itself."""
_Rows = dict[str, list[dict[str, Any]]]


def prefix(scene: str) -> str:
    """Returns what the names of a scene begin with where scenes are side by side."""
    return f"{list(SCENES).index(scene)}."


def _after_each(nights: Sequence[Collection[Event]], before: str = "") -> Iterator[_Rows]:
    """Yields the rows that are there after each night, with this before all names."""
    there = Nights()
    there.rows["captures"] = [{"capture_id": "c", "uri": "c.pcap"}]
    there.rows["packets"] = [{"stream_id": "A>", "stream_offset": offset, "size": 10} for offset in (0, 10, 20, 30)]

    def named(column: str, value: Any) -> Any:
        return f"{before}{value}" if column in _NAMING and value not in (None, NULL) else value

    for night in nights:
        for happens in night:
            happens(there)
        yield {
            table: [{column: named(column, value) for column, value in row.items()} for row in of]
            for table, of in there.rows.items()
        }


def _go_on(history: History, *rows: _Rows) -> Found:
    """Returns what a night makes of these rows together."""
    return history.go_on({table: rows_of(table, *chain.from_iterable(of[table] for of in rows)) for table in rows[0]})


def after_each(scope: Scope, *nights: Collection[Event]) -> Iterator[tuple[History, Found]]:
    """Yields the history so far, and what was made, after each night."""
    history = History(scope)
    for rows in _after_each(nights):
        yield history, _go_on(history, rows)


def after(scope: Scope, *nights: Collection[Event]) -> tuple[History, Found]:
    """Returns the history after these nights, and what the last one made."""
    return list(after_each(scope, *nights))[-1]


class SideBySide(NamedTuple):
    """Holds the history of two nights in which several scenes happen, and what the second one made."""

    history: History
    made: Found

    def judged_again(self, scene: str) -> set[tuple[str, int]]:
        """Returns the messages of a scene that the second night judged, without the scene's prefix."""
        before = prefix(scene)
        rows = self.history.judged_last.rows()
        return {(stream.removeprefix(before), offset) for stream, offset in rows if stream.startswith(before)}


@cache
def side_by_side(*scenes: str) -> SideBySide:
    """Plays scenes of one scope at once, each with names of its own."""
    (scope,) = {SCENES[scene][0] for scene in scenes}
    history = History(scope)
    for rows in zip(*(_after_each(SCENES[scene][1:], prefix(scene)) for scene in scenes), strict=True):
        made = _go_on(history, *rows)
    return SideBySide(history, made)
