"""Compares the replay with the second replayer on random nights, for every scope and reading."""

import random
from itertools import product
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from replay_tables import NULL, T0, Tables, fates, replay
from replayer import verdicts
from tiers import seeds

from jobs.engine.in_process import InProcess
from jobs.replaying.sources import Sources
from jobs.replaying.windows import accept_in_memory, with_states
from jobs.warehouse.spark_rows import collect, to_spark
from schemas.replay import Reading, Scope, Verdict
from udfs.replay.verdicts import AFTER_BREAK, JUDGED, judge

MODES = tuple(product(Reading, Scope))
LAST_NUMBER = 0xFFFFFFFF
Sent = tuple[int, int, int]  # TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber


# --- random nights --------------------------------------------------------------------------------------------------


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


def session(rng: random.Random, tables: Tables, name: str, sender: str, receiver: str, senders: list[str]) -> None:
    """Adds a session over one to three connections, one after the other or at once; its clock may be wrong.

    Several original senders mean a router. OrderAcks come before, among and after the messages.
    """
    known, lossy, wild = rng.random() < 0.6, rng.random() < 0.4, rng.random() < 0.2
    connections = [f"{name}-{i}" for i in range(rng.choice([1, 1, 1, 2, 3]))]
    at_once = rng.random() < 0.3
    offsets = dict.fromkeys((f"{connection}{side}" for connection in connections for side in "<>"), 0)
    for connection in connections:
        addresses = f"ip-{sender}", f"ip-{receiver}"
        begun = (T0 + rng.randrange(20) * 1000) // 1000
        for side, (src, dst) in ((">", addresses), ("<", addresses[::-1])):
            caught = lossy and rng.random() < 0.4
            at = None if lossy and rng.random() < 0.1 else begun
            tables.stream(f"{connection}{side}", src, dst, mid_stream=caught, first_captured_at=at)
        if known and rng.random() < 0.9:
            tables.handshake(connection, sender, receiver)
            request, response = tables.rows["handshakes"][-2:]
            request["server_guid"] = rng.choice([NULL, NULL, None, receiver, f"{receiver}, formerly"])
            request["client_guid"] = response["client_guid"] = rng.choice([sender] * 9 + [f"{sender}, renamed"])
            response["server_guid"] = rng.choice([receiver] * 9 + [NULL])
    queued = [(source, *message) for source in senders for message in to_queues(rng)]
    if len(senders) > 1:
        rng.shuffle(queued)
    ns = T0 + 10_000

    def place(connection: str) -> tuple[str, int]:
        offsets[connection] += 10
        return connection, offsets[connection]

    def lose(stream: str) -> None:
        tables.unread(*place(stream), stage=rng.choice([None, None, None, "framing", "framing", "decode", "tcp"]))

    def acknowledge(tx: tuple[int, int], at_ns: int) -> None:
        stream = f"{rng.choice(connections)}{rng.choice('<<<>')}"
        addressed = rng.choice([NULL, *senders, "somebody"])
        by = rng.choice([receiver, receiver, f"ip-{receiver}"])
        tables.ack(stream, at_ns, tx, queue_manager_address=addressed, source_queue_manager=by)

    if queued and rng.random() < 0.3:
        _, _, (identity, number, _) = queued[0]
        for _ in range(2):
            named = max(identity - rng.randrange(2), 0), max(number - rng.randrange(3), 1)
            acknowledge(named, T0 + rng.randrange(9_000, 10_500, 250))
    for i, (source, queue, message) in enumerate(queued):
        ns += rng.choice([0, 1, 7, 1000])
        stream = f"{connections[rng.randrange(len(connections)) if at_once else i * len(connections) // len(queued)]}>"
        if lossy and rng.random() < 0.15:
            lose(stream)
        stamp = None if wild and rng.random() < 0.1 else ns + (rng.randrange(-9000, 9000) if wild else 0)
        through = rng.choice([NULL, NULL, NULL, receiver, "elsewhere"])
        tables.message(
            place(stream), stamp, message, source_queue_manager=source, queue_manager_address=through,
            destination_queue=queue, transactional=rng.random() < 0.98,
        )  # fmt: skip
        if rng.random() < 0.05:
            acknowledge(message[:2], ns)
    for stream in offsets:
        if lossy and rng.random() < 0.3:
            lose(stream)


def night(rng: random.Random, messages: int) -> Tables:
    """Returns that many messages or a few more, in small sessions: some through routers, some to queues of one name."""
    tables, count = Tables(), 0
    while len(tables.rows["messages"]) < messages:
        senders = [f"s{count}.{i}" for i in range(rng.choice([1, 1, 1, 2]))]
        for i in range(rng.choice([1, 1, 1, 2])):
            session(rng, tables, f"{count}.{i}", senders[0], f"r{count}.{i}", senders)
        count += 1
    return tables


# --- the tests ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=seeds([18]))
def tables(request: pytest.FixtureRequest) -> Tables:
    return night(random.Random(request.param), 2_000)


@pytest.fixture(scope="module")
def sources(tables: Tables) -> Sources[pl.DataFrame]:
    return tables.sources()


@pytest.mark.parametrize(("reading", "scope"), MODES)
def test_two_replayers_agree(tables: Tables, sources: Sources[pl.DataFrame], reading: Reading, scope: Scope) -> None:
    expected = verdicts(tables.rows, reading=reading, scope=scope)
    found = fates(replay(sources, reading=reading, scope=scope).verdicts)
    assert [one for one in expected.keys() | found.keys() if expected.get(one) != found.get(one)] == []


def test_windows_find_the_states_that_are_found_one_message_after_another(spark: SparkSession, tables: Tables) -> None:
    chains = replay(tables.sources()).chains
    by_windows = collect(with_states(to_spark(spark, chains)))
    assert len(chains) > 1_000
    assert 0 < by_windows[AFTER_BREAK].sum() < len(chains) / 2
    in_memory = accept_in_memory(spark)(chains)
    for reading in Reading:
        expected = judged(chains, reading)
        assert judged(by_windows, reading) == expected
        assert judged(in_memory, reading) == expected


def judged(chains: pl.DataFrame, reading: Reading) -> list[tuple[Any, ...]]:
    rows = InProcess().run(chains, judge(reading), JUDGED, ("scope_no",), ("replay_order",))
    return sorted(rows.drop("offsets", "times", "message_nos").rows(), key=repr)


def test_order_of_rows_does_not_matter(tables: Tables) -> None:
    shuffled = Tables()
    for name, rows in tables.rows.items():
        shuffled.rows[name] = random.Random(7).sample(rows, len(rows))
    found = fates(replay(shuffled.sources()).verdicts)
    assert found == verdicts(tables.rows, reading="conformant", scope="auto")


def test_clocks_do_not_matter_within_a_connection(tables: Tables) -> None:
    """Of sessions with one connection, without OrderAcks and routers, as their times decide."""
    rng, right, wrong = random.Random(8), Tables(), Tables()
    connections = (row["connection_id"].rpartition("-") for row in tables.rows["streams"])
    several = {session for session, _, number in connections if number != "0"}
    for name in tables.rows.keys() - {"acks"}:
        right.rows[name] = [row for row in tables.rows[name] if row["stream_id"].rpartition("-")[0] not in several]
    right.rows["messages"] = [row | {"queue_manager_address": NULL} for row in right.rows["messages"]]
    stamps = (None, 0, T0 - 10**15, T0, T0 + 10**15)
    wrong.rows |= right.rows
    wrong.rows["messages"] = [row | {"captured_ns": rng.choice(stamps)} for row in right.rows["messages"]]
    expected = verdicts(right.rows, reading="conformant", scope="session")
    assert len(expected) > len(tables.rows["messages"]) / 4
    assert fates(replay(wrong.sources(), scope=Scope.SESSION).verdicts) == expected


def test_the_night_has_every_verdict_and_reason(tables: Tables) -> None:
    given = verdicts(tables.rows, reading="conformant", scope="auto").values()
    assert {fate.verdict for fate in given} == set(Verdict)
    assert len({fate.reason for fate in given}) == 6


def test_all_scopes_and_readings_differ_on_the_night(tables: Tables) -> None:
    given = [verdicts(tables.rows, reading=reading, scope=scope) for reading, scope in MODES]
    assert all(one != other for i, one in enumerate(given) for other in given[:i])
