"""Compares what the product says of acknowledgments with the second computation, on random histories."""

import random
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from gold_rows import plain
from plain_evidence import LATEST_ORDER_ACK, MS, Row, Said, evidence
from replay_tables import NULL, T0, Tables, replay
from replayer import Key, Receiver, chosen, ends, scope_of, verdicts
from test_agreement import MODES, to_queues
from tiers import seeds

from jobs.replaying.sources import Sources
from schemas.replay import Reading, Scope
from schemas.wire import MessageClass

PAUSES = (0, 1, MS, 249 * MS + 999_999, 250 * MS, 1_000 * MS, LATEST_ORDER_ACK - 1, LATEST_ORDER_ACK, 30_000 * MS)
CLASSES = (
    *[MessageClass.MQMSG_CLASS_ACK_RECEIVE] * 3,
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
    MessageClass.MQMSG_CLASS_NACK_Q_PURGED,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,
)
COLUMNS = (
    *("acknowledged_at", "ack_latency_ms", "covered_at", "evidence", "next_ack_agrees_with", "final_ack_class"),
    *("final_ack_latency_ms", "assumed"),
)


# --- random histories -----------------------------------------------------------------------------------------------


class History:
    """A session of one to three original senders, and a receiver that acknowledges what it accepts, more or less."""

    def __init__(self, rng: random.Random, tables: Tables, name: str) -> None:
        self.rng, self.tables, self.ns = rng, tables, T0
        self.receiver, self.address = f"r{name}", f"ip-r{name}"
        self.senders = [f"s{name}.{i}" for i in range(rng.choice([1, 1, 1, 2, 3]))]
        self.connections = [f"{name}-{i}" for i in range(rng.choice([1, 1, 2]))]
        self.offsets = dict.fromkeys(self.connections, 0)
        known = rng.random() < 0.7
        for connection in self.connections:
            tables.connection(connection, f"ip-{self.senders[0]}", self.address)
            if known:
                tables.handshake(connection, self.senders[0], self.receiver)

    def play(self) -> None:
        """Sends the messages of all senders, and acknowledges them."""
        rng = self.rng
        queued = [(source, *message) for source in self.senders for message in to_queues(rng)]
        if len(self.senders) > 1:
            rng.shuffle(queued)
        states: dict[Any, Receiver] = {}
        lossy, final, by_queue = rng.random() < 0.2, rng.random() < 0.4, rng.random() < 0.5
        for source, queue, (identity, number, previous) in queued:
            self.ns += max(rng.choice(PAUSES) // 10 * 10, 10)  # packets of equal rank at one time have no order
            stream = f"{rng.choice(self.connections)}>"
            self.offsets[stream[:-1]] += 10
            key = stream, self.offsets[stream[:-1]]
            if lossy and rng.random() < 0.1:
                self.tables.unread(stream, key[1] - 5)
            id_ = f"{source}\\{number if rng.random() < 0.9 else number + 1_000}"
            through = rng.choice([NULL, NULL, self.receiver])
            self.tables.message(
                key, self.ns, (identity, number, previous), source_queue_manager=source, message_id=id_,
                queue_manager_address=through, destination_queue=queue,
            )  # fmt: skip
            state = states.setdefault((source, queue if by_queue else None), Receiver(None, literal=False))
            state.take(identity, number, previous)
            if rng.random() < 0.6 and state.state:
                self.order_ack(source, state.state, (identity, number))
            if final and rng.random() < 0.5:
                self.final_ack(source, (identity, number), id_)

    def order_ack(self, source: str, state: tuple[int, int], named: tuple[int, int]) -> None:
        """Sends the OrderAck for a state, or another one, once, twice or not at all, now or late, here or there."""
        rng = self.rng
        named = rng.choice([state, state, state, state, named, (state[0], max(state[1] + rng.choice([-2, -1, 1]), 0))])
        sources = [NULL, NULL, source, source, *self.senders, "somebody"]
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            self.send(rng, named, queue_manager_address=rng.choice(sources))

    def final_ack(self, source: str, named: tuple[int, int], message_id: str) -> None:
        """Sends a FinalAck."""
        said = {"ack_type": "final_ack", "message_class": int(self.rng.choice(CLASSES)), "source_guid": source}
        self.send(self.rng, named, acknowledged_message_id=message_id, **said)

    def send(self, rng: random.Random, named: tuple[int, int], **columns: Any) -> None:
        """Sends an acknowledgment after a while, by either name of the receiver; some come from somebody else."""
        stream = f"{rng.choice(self.connections)}{rng.choice('<<<<>')}"
        by = rng.choice([self.receiver, self.receiver, self.address, "somebody"])
        at_ns = self.ns + sum(rng.choices(PAUSES, k=rng.choice([1, 1, 2, 3])))
        if "message_class" in columns:
            at_ns += 5 - at_ns % 10
        self.tables.ack(stream, at_ns, named, source_queue_manager=by, **columns)


def night(rng: random.Random, messages: int) -> Tables:
    """Returns that many messages or a few more, in small sessions."""
    tables, count = Tables(), 0
    while len(tables.rows["messages"]) < messages:
        History(rng, tables, str(count)).play()
        count += 1
    return tables


# --- both computations ----------------------------------------------------------------------------------------------


def expected(tables: Tables, reading: Reading, scope: Scope) -> dict[Key, Said]:
    at = ends(tables.rows)
    fates, conforming = (verdicts(tables.rows, reading=one, scope=scope) for one in (reading, Reading.CONFORMANT))
    judged = [row for row in tables.rows["messages"] if (row["stream_id"], row["stream_offset"]) in fates]
    choice = chosen(judged, at) if scope is Scope.AUTO else {}

    def complete(row: Row) -> Row:
        key, end = (row["stream_id"], row["stream_offset"]), at[row["stream_id"]]
        kind = choice.get((end.session, row["source_queue_manager"]), "queue") if scope is Scope.AUTO else scope.value
        own = {"scope": scope_of(kind, end, row), "conforming": conforming[key]}
        return row | fates[key]._asdict() | own

    return evidence(list(map(complete, judged)), tables.rows["acks"], at, literal=reading is Reading.LITERAL)


def as_columns(said: Said, row: Row) -> tuple[Any, ...]:

    def after(ns: int | None) -> float | None:
        return None if ns is None or row["captured_ns"] is None else (ns - row["captured_ns"]) / MS

    at, covered = ((ns if ns is None else ns // 1_000) for ns in (said.acknowledged_ns, said.covered_ns))
    final = said.final_ack_class, after(said.final_ack_ns)
    return (at, after(said.acknowledged_ns), covered, said.evidence, said.next_ack_agrees_with, *final, said.assumed)


def found(sources: Sources[pl.DataFrame], reading: Reading, scope: Scope) -> dict[Key, tuple[Any, ...]]:
    rows = plain(replay(sources, reading=reading, scope=scope).verdicts)
    return {(row["stream_id"], row["stream_offset"]): tuple(row[name] for name in COLUMNS) for row in rows}


def disagreements(
    tables: Tables, sources: Sources[pl.DataFrame], reading: Reading, scope: Scope
) -> Iterator[tuple[Any, ...]]:
    """Yields messages of which the two say different things: key, what the product says, what the second says."""
    second = expected(tables, reading, scope)
    given = found(sources, reading, scope)
    rows = {(row["stream_id"], row["stream_offset"]): row for row in tables.rows["messages"]}
    assert given.keys() == second.keys()
    for key, said in second.items():
        if (columns := as_columns(said, rows[key])) != given[key]:
            yield key, given[key], columns


# --- the tests ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=seeds([40]))
def tables(request: pytest.FixtureRequest) -> Tables:
    return night(random.Random(request.param), 2_000)


@pytest.fixture(scope="module")
def sources(tables: Tables) -> Sources[pl.DataFrame]:
    return tables.sources()


@pytest.mark.parametrize(("reading", "scope"), MODES)
def test_two_computations_say_the_same_of_acknowledgments(
    tables: Tables, sources: Sources[pl.DataFrame], reading: Reading, scope: Scope
) -> None:
    assert list(disagreements(tables, sources, reading, scope))[:3] == []


def test_the_histories_show_everything_that_acknowledgments_can_say(tables: Tables) -> None:
    said = expected(tables, Reading.CONFORMANT, Scope.AUTO)
    fates = verdicts(tables.rows, reading=Reading.CONFORMANT, scope=Scope.AUTO)
    shown = {(fates[key].accepted, fates[key].verdict == "duplicate", one.evidence) for key, one in said.items()}
    assert shown == {
        *((True, False, what) for what in ("none", "confirmed", "contradicted")),
        *((False, False, what) for what in ("none", "confirmed", "contradicted")),
        *((False, True, what) for what in ("none", "confirmed")),
        (None, False, "none"),
    }
    assert {one.next_ack_agrees_with for one in said.values()} == {None, "both", "conformant", "literal", "neither"}
    assert {one.final_ack_class for one in said.values()} == {None, *map(int, CLASSES)}
    assert {one.assumed for one in said.values()} == {True, False}
