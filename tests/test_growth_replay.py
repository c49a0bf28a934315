"""What a sender can multiply makes no more rows than messages, in the tables and at every step of the way to them.

All tricks are in one night, of n messages each. It is replayed with n and with 2n, and no step of any derivation may
give more than twice the rows: a step that pairs n things with n others would give four times as many.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from growth import assert_linear
from replay_tables import T0, Tables, replay
from scene import guid

from schemas.tables import REPLAYED
from udfs.replay.order import marks

S = 1 << 62
MS = 1_000_000


# --- tricks -----------------------------------------------------------------------------------------------------------

Trick = Callable[[Tables, str, int], None]
TRICKS: dict[str, Trick] = {}


def trick(play: Trick) -> Trick:
    """A night's worth of one thing, n times, by its function's name."""
    TRICKS[play.__name__] = play
    return play


def connect(tables: Tables, name: str, number: int = 0, **columns: Any) -> str:
    """Both ways of a connection; returns the one of the sender."""
    tables.connection(f"{name}.{number}", *columns.pop("ends", (f"ip.{name}.a", f"ip.{name}.b")), **columns)
    return f"{name}.{number}>"


def send(tables: Tables, stream: str, i: int, tx: tuple[int, int, int], **columns: Any) -> None:
    """The i-th message of a stream; its message ID is its number, unless told otherwise."""
    name = stream.rsplit(".", 1)[0]
    given = {"source_queue_manager": f"{name}.a", "message_id": f"{name}.a\\{tx[1]}", "label": f"{tx[0]} {tx[1]}"}
    tables.message((stream, i * 10), T0 + i * MS, tx, **(given | columns))


ON_ONE_CONNECTION: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "numbers_skipped": lambda i, _: {"tx": (S, 1000 * (i + 1), 1000 * i)},
    "numbers_never_seen": lambda i, _: {"tx": (S, 1000 * i, 1000 * i - 1) if i else (S, 1, 0)},
    "numbers_skipped_to_the_middle_of_a_sequence": lambda i, _: {"tx": (S + i // 2, *((1, 0), (1 << 31, 1))[i % 2])},
    "sequences": lambda i, _: {"tx": (S + i, 1, 0)},
    "different_messages_of_one_number": lambda i, _: {"tx": (S, 1, 0), "message_id": f"a\\{i}", "label": str(i)},
    "refusals": lambda i, _: {"tx": (S + i // 3, *((1, 0), (1, 0), (9, 8))[i % 3]), "label": str(i % 3)},
    "resends_refused": lambda i, n: {"tx": (S, 1, 0) if i == 0 else (S, 3, 2) if i < n - 1 else (S, 5, 1)},
    "torn_transactions": lambda i, _: {
        "tx": (S, i + 1, i), "tx_first": True, "tx_last": False, "tx_transaction_id": i
    },
    "one_transaction_id": lambda i, _: {
        "tx": (S, 2 * i + 1, 2 * i), "tx_first": i % 3 == 0, "tx_last": i % 2 == 0, "tx_transaction_id": 7
    },
    "long_transactions": lambda i, _: {
        "tx": (S, (i // 2 << 12) + (i % 2 * 4095 or 1), i // 2 << 12), "tx_first": i % 2 == 0, "tx_last": i % 2 == 1,
        "tx_transaction_id": i // 2,
    },
}  # fmt: skip
"""Functions of i and n to the columns of the i-th of n messages: sequence, number and previous number, and others.

A refusal is one of a message that never becomes acceptable, and of another one that has the number of the first. A long
transaction has only its first and its last message, with all the numbers that one may have in between.
"""


def on_one_connection(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, **ON_ONE_CONNECTION[name](i, n))


TRICKS |= dict.fromkeys(ON_ONE_CONNECTION, on_one_connection)


@trick
def queues_between_missing_bytes(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name, missing_bytes=n)
    for i in range(n):
        tables.unread(stream, i * 10 - 5)
        send(tables, stream, i, (S, 1, 0), destination_queue=f"queue {i}")


@trick
def connections_with_missing_bytes(tables: Tables, name: str, n: int) -> None:
    """A queue on each; what is missing on any of them may be of each queue."""
    for i in range(n):
        stream = connect(tables, name, i, missing_bytes=1)
        tables.unread(stream, 5)
        send(tables, stream, 1, (S, 1, 0), destination_queue=f"queue {i}")


@trick
def legs_of_routers(tables: Tables, name: str, n: int) -> None:
    """Messages that may have reached one receiver on any of many sessions, of which each has one state."""
    server = guid(f"{name}.b")
    for i in range(0, n, 2):
        stream = connect(tables, name, i, ends=(f"ip.{name}.a{i}", f"ip.{name}.b"))
        tables.handshake(f"{name}.{i}", guid(f"{name}.{i}"), server)
        for number in (1, 2):
            to = {"queue_manager_address": server, "destination_queue": f"queue {number}"}
            send(tables, stream, i + number, (S + i, number, number - 1), source_queue_manager=f"{name}.a", **to)
    for i in range(n):
        stream = connect(tables, f"{name}.leg", i, ends=(f"ip.{name}.c", f"ip.{name}.d"))
        send(tables, stream, i, (S, 1, 0), source_queue_manager=f"{name}.a", queue_manager_address=server)


@trick
def senders_of_a_session(tables: Tables, name: str, n: int) -> None:
    """OrderAcks that name no addressee, for sequences of one sender, of all, and of none."""
    stream = connect(tables, name)
    for i in range(n):
        sequence = S + i if i % 2 else S
        send(tables, stream, i, (sequence, 1, 0), source_queue_manager=f"{name}.{i}", message_id=f"{name}.{i}\\1")
        for j, acknowledged in enumerate((sequence, S + n + i)):
            ns = T0 + (2 * i + j) * MS + MS // 2
            tables.ack(f"{name}.0<", ns, (acknowledged, 1), source_queue_manager=f"ip.{name}.b")


@trick
def repeated_acknowledgments(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    named = {"source_queue_manager": f"ip.{name}.b", "source_guid": f"{name}.a"}
    for i in range(n):
        send(tables, stream, i, (S, i + 1, i))
        tables.ack(f"{name}.0<", T0 + i * MS + MS // 2, (S, 1), **named)
        tables.ack(
            f"{name}.0<", T0 + i * MS + MS // 3, (S, 2), ack_type="final_ack", message_class=0x8002,
            acknowledged_message_id=f"{name}.a\\2", **named,
        )  # fmt: skip


@trick
def not_acknowledged(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name, last_captured_at=T0 // 1000 + 10**9)
    for i in range(n):
        send(tables, stream, i, (S, i + 1, i))
    tables.ack(f"{name}.0<", T0 + MS // 2, (S, 1), source_queue_manager=f"ip.{name}.b", source_guid=f"{name}.a")


@trick
def connections_that_begin_alike(tables: Tables, name: str, n: int) -> None:
    client, server = guid(f"{name}.a"), guid(f"{name}.b")
    for i in range(n):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        stream = connect(tables, name, i, ends=ends, initial_seq=7)
        tables.handshake(f"{name}.{i}", client, server)
        send(tables, stream, 1, (S, i + 1, i))
    for row in tables.rows["handshakes"]:
        row["time_stamp_ms"] = 1


@trick
def connections_with_one_packet(tables: Tables, name: str, n: int) -> None:
    for i in range(n):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        send(tables, connect(tables, name, i, ends=ends, mid_stream=True, initial_seq=None), 1, (S, 1, 0))


@trick
def two_captures_of_one_packet(tables: Tables, name: str, n: int) -> None:
    for i in range(2):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        stream = connect(tables, name, i, ends=ends, mid_stream=True, initial_seq=None)
        for j in range(n // 2):
            send(tables, stream, j, (S, 1, 0))


@trick
def addresses_of_a_sender(tables: Tables, name: str, n: int) -> None:
    """Each conflicts with the others; and acknowledgments go to further ones."""
    client, server = guid(f"{name}.a"), guid(f"{name}.b")
    for i in range(0, n, 2):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        stream = connect(tables, name, i, ends=ends)
        tables.handshake(f"{name}.{i}", client, server)
        send(tables, stream, i, (S - i, 1, 0), source_queue_manager=client, message_id=f"{client}\\{i}")
        send(tables, stream, i + 1, (S + i, 1, 0), source_queue_manager=client, message_id=f"{client}\\{i + n}")
    for i in range(n):
        connect(tables, f"{name}.back", i, ends=(f"ip.{name}.c{i}", f"ip.{name}.b"))
        tables.handshake(f"{name}.back.{i}", guid(f"{name}.{i}"), server)
        named = {"source_queue_manager": server, "queue_manager_address": client}
        tables.ack(f"{name}.back.{i}<", T0 + i * MS, (S, 1), **named)


# --- the replay, and what its steps did -------------------------------------------------------------------------------


class Step(NamedTuple):
    """A frame that was made: by which line of the program, and how many rows it has."""

    place: str
    rows: int


@contextmanager
def steps_noted() -> Iterator[list[Step]]:
    """Notes every frame that Polars makes, in their order."""
    steps: list[Step] = []
    make = pl.DataFrame._from_pydf.__func__  # type: ignore[attr-defined]

    def note(of: type[pl.DataFrame], made: Any) -> pl.DataFrame:
        frame: pl.DataFrame = make(of, made)
        caller = sys._getframe(1)
        while "/polars/" in caller.f_code.co_filename and caller.f_back:
            caller = caller.f_back
        steps.append(Step(f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}", frame.height))
        return frame

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.DataFrame, "_from_pydf", classmethod(note))
        yield steps


class Night(NamedTuple):
    """What a night came to."""

    messages: int
    tables: dict[str, int]
    steps: list[Step]


def night(n: int, *names: str) -> Tables:
    """Tables in which each of these tricks is played n times."""
    tables = Tables()
    for name in names:
        TRICKS[name](tables, name, n)
    return tables


def replayed(n: int) -> Night:
    tables = night(n, *TRICKS)
    sources = tables.sources()
    with steps_noted() as steps:
        found = replay(sources).tables
    return Night(len(tables.rows["messages"]), {name: table.height for name, table in found.items()}, steps)


N = 100


@pytest.fixture(scope="module")
def nights() -> tuple[Night, Night]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marks, "MOST_PAIRS", N // 2)
        one, two = (replayed(n) for n in (N, 2 * N))
    return one, two


def test_neither_a_table_nor_a_step_on_the_way_has_more_than_a_few_rows_for_a_message(
    nights: tuple[Night, Night],
) -> None:
    for found in nights:
        assert len(found.tables) == len(REPLAYED)
        many = [step for step in (*starmap(Step, found.tables.items()), *found.steps) if step.rows > 3 * found.messages]
        assert many == []


def test_no_step_of_the_way_pairs_what_a_sender_can_multiply(nights: tuple[Night, Night]) -> None:
    one, two = nights
    assert [step.place for step in one.steps] == [step.place for step in two.steps]
    assert len(one.steps) > 1_000
    grew = [
        (before.place, before.rows, after.rows)
        for before, after in zip(one.steps, two.steps, strict=True)
        if after.rows > 2.5 * before.rows + N
    ]
    assert grew == []


@pytest.mark.slow  # the tests above find the same by counting the rows of each step
@pytest.mark.parametrize("name", TRICKS)
def test_twice_as_many_of_one_thing_take_twice_the_time(name: str) -> None:
    assert_linear(replay, lambda n: night(n, name).sources(), 500)


# --- what is done instead ---------------------------------------------------------------------------------------------


def test_an_acknowledgment_for_nobody_by_name_is_for_nobody_where_a_session_has_many_senders() -> None:
    tables = Tables()
    for name, senders in (("few", 16), ("many", 17)):
        stream = connect(tables, name)
        for i in range(senders):
            send(tables, stream, i, (S, 1, 0), source_queue_manager=f"{name}.{i}")
        tables.ack(f"{name}.0<", T0 + 1_000 * MS, (S, 1), source_queue_manager=f"ip.{name}.b")
    verdicts = replay(tables.sources()).verdicts.to_dicts()
    acknowledged = {row["source_queue_manager"] for row in verdicts if row["acknowledged_at"] is not None}
    assert acknowledged == {f"few.{i}" for i in range(16)}


def test_where_too_much_would_be_paired_each_message_is_judged_as_behind_missing_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Tables()
    for name, broken in (("broken", True), ("whole", False)):
        stream = connect(tables, name)
        for i, tx in enumerate(((S, 1, 0), (S, 2, 1), (S, 4, 3), (S, 6, 1))):
            send(tables, stream, i, tx)
        if broken:
            tables.unread(connect(tables, name, 1, first_captured_at=T0 // 1000 + 10**9), 5)

    def verdicts() -> dict[str, list[str]]:
        rows = replay(tables.sources()).verdicts.to_dicts()
        rows.sort(key=lambda row: (row["source_queue_manager"], row["replay_order"]))
        return {
            name: [row["verdict"] for row in rows if row["stream_id"] == f"{name}.0>"] for name in ("broken", "whole")
        }

    judged = ["new_sequence", "in_order", "out_of_order", "gap_expired"]
    assert verdicts() == {"broken": judged, "whole": judged}  # the other connection is a later one
    monkeypatch.setattr(marks, "MOST_PAIRS", 0)
    assert verdicts() == {"broken": ["new_sequence", "in_order", "unknown", "unknown"], "whole": judged}
