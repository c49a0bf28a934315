"""The replay on Spark, held to a plain loop written from the contract, to the documents' trace and to captures."""

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.replay import verdicts
from jobs.transforms.summaries import findings, sequences, sessions, transactions
from schemas.replay import VERDICTS, Reading, Scope

NULL = "00000000-0000-0000-0000-000000000000"
T0 = 1_700_000_000_000_000_000


@dataclass
class Stream:
    """One direction of a TCP connection: (ns, id, number, previous) for a message, None for a missing run."""

    items: list[tuple[int | None, int, int, int] | None]
    first_ns: int = T0
    mid_stream: bool = False


@dataclass
class History:
    """What one scope's receiver saw, and the OrderAcks (ns, id, number) it sent."""

    streams: list[Stream]
    acks: list[tuple[int, int, int]] = field(default_factory=list)


# --- the plain loop -------------------------------------------------------------------------------------------------


Event = tuple[int, int, tuple[int, int, int] | None]


def merged(history: History) -> Iterator[Event]:
    """(stream, item, message) in replay order, or a message of None where bytes are missing."""
    heap: list[tuple[int, int, int, int]] = []

    def push(number: int, start: int) -> Iterator[Event]:
        stream = history.streams[number]
        following = next((i for i in range(start, len(stream.items)) if stream.items[i]), None)
        if following is not None:
            ns = stream.items[following][0]  # type: ignore[index]
            heapq.heappush(heap, (stream.first_ns if ns is None else ns, stream.first_ns, number, following))
        elif start == 0:  # the stream shows no message at all
            heapq.heappush(heap, (stream.first_ns, stream.first_ns, number, -1))
        else:
            yield from ((number, i, None) for i in range(start, len(stream.items)))

    done = [0] * len(history.streams)
    for number in range(len(history.streams)):
        yield from push(number, 0)
    arrived = False
    while heap:
        *_, number, i = heapq.heappop(heap)
        stream = history.streams[number]
        if i < 0:
            yield from ((number, j, None) for j in range(len(stream.items)))
            continue
        if done[number] == 0 and stream.mid_stream and arrived:
            yield number, i, None
        yield from ((number, j, None) for j in range(done[number], i))
        yield number, i, stream.items[i][1:]  # type: ignore[index]
        arrived, done[number] = True, i + 1
        yield from push(number, i + 1)


def judged(
    before: tuple[int, int] | None, message: tuple[int, int, int], *, lost: bool
) -> tuple[bool | None, str | None, str | None, int]:
    """Accepted, verdict, reason, gap_size; the verdict is None for what is refused."""
    identity, number, previous = message
    if before is None and previous:
        return None, "unknown", "no_prior_state", 0
    if before is not None and (identity, number) <= before:
        return False, None, "stale_sequence" if identity < before[0] else "late", 0
    same = before is not None and identity == before[0]
    incoming = before[1] if before is not None and same else 0
    accepted = previous <= incoming
    gap = max(number - incoming - 1, 0)
    if before is not None and lost and (not accepted or gap):
        return None, "unknown", "capture_gap", 0
    if not accepted:
        return False, None, "predecessor_missing", 0
    return True, "gap_expired" if gap else "in_order" if same else "new_sequence", None, gap


def initial(history: History, order: list[Event]) -> tuple[int, tuple[int, int] | None]:
    """Time and pair of the last OrderAck before the first message."""
    first = next((history.streams[stream].items[i] for stream, i, message in order if message), None)
    seen = [ack for ack in history.acks if first and first[0] is not None and ack[0] < first[0]]
    return (max(seen)[0], max(seen)[1:]) if seen else (0, None)


def replayed(history: History, *, literal: bool) -> dict[tuple[int, int], tuple[Any, ...]]:
    """By (stream, item): order, state before, accepted, verdict, reason, gap_size, reject_count."""
    order = list(merged(history))
    opened, state = initial(history, order)
    sent = [state] if state else []
    moved: set[tuple[int, int]] = set()
    lost, rejects = False, 0
    result: dict[tuple[int, int], tuple[Any, ...]] = {}
    for stream, i, message in order:
        if message is None:
            over_before = not any(history.streams[stream].items) and history.streams[stream].first_ns < opened
            lost = lost or not over_before
            continue
        pair, before = message[:2], state
        accepted, verdict, reason, gap = judged(before, message, lost=lost)
        if accepted is False:
            known = pair in moved or any(pair <= other for other in sent)
            verdict, reason = ("duplicate", None) if known else ("out_of_order", reason)
        else:
            moved.add(pair)
        if accepted is None:
            sent.append((message[0], message[2]))
        rejects = rejects + 1 if accepted is False else 0
        if literal or accepted is not False:
            state, lost = pair, False
        result[stream, i] = (len(result) + 1, *(before or (None, None)), accepted, verdict, reason, gap, rejects)
    return result


# --- tables ---------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "messages": """stream_id string, stream_offset long, captured_at timestamp, captured_ns long, capture_id string,
        first_frame long, last_frame long, source_queue_manager string, queue_manager_address string,
        destination_queue string, message_id string, label string, transactional boolean,
        tx_sequence_id decimal(20,0), tx_sequence_ordinal long, tx_sequence_timestamp long, tx_sequence_number long,
        previous_tx_sequence_number long, tx_first boolean, tx_last boolean, tx_transaction_id long""",
    "streams": """stream_id string, connection_id string, src_ip string, dst_ip string, from_initiator boolean,
        mid_stream boolean, missing_bytes long, first_captured_at timestamp""",
    "stream_gaps": "stream_id string, stream_offset long, length long",
    "quarantine": "stage string, stream_id string, stream_offset long",
    "acks": """stream_id string, stream_offset long, captured_at timestamp, captured_ns long, ack_type string,
        source_queue_manager string, queue_manager_address string, tx_sequence_id decimal(20,0),
        tx_sequence_number long, previous_tx_sequence_number long""",
    "handshakes": """stream_id string, stream_offset long, handshake_type string, client_guid string,
        server_guid string""",
}
ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(20,0)": pa.decimal128(20, 0),
}


class Tables:
    """Rows for the inputs of `verdicts`, written to a folder and read by Spark."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}

    def stream(self, stream_id: str, src: str, dst: str, **columns: Any) -> None:
        """A stream; its name ends in > from the initiator, in < back."""
        row: dict[str, Any] = {"stream_id": stream_id, "connection_id": stream_id.rstrip("<>")}
        row |= {"src_ip": src, "dst_ip": dst}
        row |= {"from_initiator": not stream_id.endswith("<"), "mid_stream": False, "missing_bytes": 0}
        self.rows["streams"].append(row | {"first_captured_at": T0 // 1000} | columns)

    def message(self, key: tuple[str, int], ns: int | None, tx: tuple[int, int, int], **columns: Any) -> None:
        """A message at (stream, offset) with (id, number, previous)."""
        row = {"captured_ns": ns, "captured_at": ns and ns // 1000, "capture_id": "c", "first_frame": 1}
        row |= {"last_frame": 1, "source_queue_manager": "source", "queue_manager_address": NULL}
        row |= {"destination_queue": "queue", "message_id": f"source\\{key[1]}", "transactional": True}
        row |= {"stream_id": key[0], "stream_offset": key[1], "tx_sequence_id": tx[0], "tx_sequence_number": tx[1]}
        self.rows["messages"].append(row | {"previous_tx_sequence_number": tx[2]} | columns)

    def ack(self, stream_id: str, ns: int, tx: tuple[int, int], **columns: Any) -> None:
        """An OrderAck of (id, number)."""
        row = {"stream_id": stream_id, "stream_offset": ns, "captured_ns": ns, "captured_at": ns // 1000}
        row |= {"ack_type": "order_ack", "source_queue_manager": "receiver", "queue_manager_address": NULL}
        self.rows["acks"].append(row | {"tx_sequence_id": tx[0], "tx_sequence_number": tx[1]} | columns)

    def handshake(self, connection: str, client: str, server: str) -> None:
        """EstablishConnection and its answer; the request leaves the server NULL."""
        for side, named in ((">", NULL), ("<", server)):
            row = {"stream_id": connection + side, "stream_offset": 0, "handshake_type": "establish_connection"}
            self.rows["handshakes"].append(row | {"client_guid": client, "server_guid": named})

    def on(self, spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
        """The inputs of `verdicts` by name."""
        tables = {}
        for name, ddl in SCHEMAS.items():
            fields = [pair.split() for pair in ddl.replace("(20,0)", "(20;0)").split(",")]
            columns = {
                column: pa.array([row.get(column) for row in self.rows[name]], pa.uint64()).cast(pa.decimal128(20, 0))
                if kind.startswith("decimal")
                else pa.array([row.get(column) for row in self.rows[name]], ARROW[kind])
                for column, kind in fields
            }
            path = folder / f"{name}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=1 << 17)
            tables[name] = spark.read.parquet(str(path))
        return tables


def replay(inputs: dict[str, DataFrame], reading: Reading = Reading.CONFORMANT, scope: Scope = Scope.AUTO) -> DataFrame:
    """The verdicts on these inputs."""
    return verdicts(*(inputs[name] for name in SCHEMAS), reading=reading, scope=scope)


def tables_of(histories: Iterable[History]) -> Tables:
    """Every history as a session of its own, known by its addresses."""
    tables = Tables()
    for k, history in enumerate(histories):
        sender, receiver = f"s{k}", f"r{k}"
        for s, stream in enumerate(history.streams):
            stream_id = f"{k}-{s}>"
            tables.stream(
                stream_id,
                sender,
                receiver,
                mid_stream=stream.mid_stream,
                first_captured_at=stream.first_ns // 1000,
            )
            for i, item in enumerate(stream.items):
                if item:
                    tables.message((stream_id, i), item[0], item[1:], source_queue_manager=sender)
                elif i % 2:
                    tables.rows["stream_gaps"].append({"stream_id": stream_id, "stream_offset": i, "length": 1})
                else:
                    stage = "decode" if i % 4 else "framing"
                    tables.rows["quarantine"].append({"stage": stage, "stream_id": stream_id, "stream_offset": i})
        if history.acks:
            tables.stream(f"{k}-0<", receiver, sender)
        for a, (ns, identity, number) in enumerate(history.acks):
            addressed = sender if a % 2 else NULL
            tables.ack(f"{k}-0<", ns, (identity, number), queue_manager_address=addressed)
    return tables


FATE = (
    "replay_order",
    "incoming_tx_sequence_id",
    "incoming_tx_sequence_number",
    "accepted",
    "verdict",
    "reason",
    "gap_size",
    "reject_count",
)


def fates(result: DataFrame) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The fate of every message by its key."""
    columns = result.select(
        "stream_id", "stream_offset", *(F.col(c).cast("string") if c.endswith("_id") else c for c in FATE)
    ).toArrow()
    stream_id, offset, order, identity, *rest = (column.to_pylist() for column in columns.columns)
    ids = [value and int(value) for value in identity]
    return dict(zip(zip(stream_id, offset, strict=True), zip(order, ids, *rest, strict=True), strict=True))


# --- random histories -----------------------------------------------------------------------------------------------


def sent(rng: random.Random) -> list[tuple[int, int, int]]:
    """What a sender puts on the wire: sequences, expiry, resends with a bridged previous, loss and swaps."""
    identity = rng.choice([1, (1 << 63) - 2, (1 << 64) - 40, rng.randrange(1 << 63)])
    number = rng.choice([0, 0, 0, 5, (1 << 32) - 40])
    unacknowledged: list[int] = []
    wire: list[tuple[int, int, int]] = []
    for _ in range(rng.randrange(1, 12)):
        event = rng.random()
        if event < 0.6:
            previous, number = number, number + (2 if rng.random() < 0.15 else 1)
            unacknowledged.append(number)
            wire.append((identity, number, previous))
        elif event < 0.75 and unacknowledged:
            unacknowledged = [n for n in unacknowledged if rng.random() < 0.8]
            wire += [
                (identity, n, p) for p, n in zip([0, *unacknowledged], unacknowledged, strict=False) if p or n == 1
            ]
        elif event < 0.85:
            identity, number, unacknowledged = identity + rng.choice([1, 1, 2]), rng.choice([0, 0, 0, 1]), []
        elif event < 0.95 and len(wire) > 1:
            wire.append(rng.choice(wire))
    wire = [message for message in wire if rng.random() > 0.08]
    for i in range(len(wire) - 1):
        if rng.random() < 0.08:
            wire[i], wire[i + 1] = wire[i + 1], wire[i]
    return wire


def arbitrary(rng: random.Random) -> list[tuple[int, int, int]]:
    """Messages that no sender would send."""
    base, low = rng.choice([0, (1 << 63) - 2, (1 << 64) - 4]), rng.choice([0, 0, (1 << 32) - 8])
    return [
        (base + rng.randrange(4), low + rng.randrange(8), rng.choice([0, low + rng.randrange(8)]))
        for _ in range(rng.randrange(1, 12))
    ]


def random_history(rng: random.Random) -> History:
    """Messages over one to three connections, one after the other or at once, with a clock that may step back."""
    messages = sent(rng) if rng.random() < 0.7 else arbitrary(rng)
    count = rng.choice([1, 1, 1, 2, 3])
    at_once, wild = rng.random() < 0.3, rng.random() < 0.2
    lossy = rng.random() < 0.4
    streams = [Stream([], T0 + rng.randrange(5) * 1000, lossy and rng.random() < 0.4) for _ in range(count)]
    ns = T0 + 10_000
    for i, message in enumerate(messages):
        ns += rng.choice([0, 1, 7, 1000])
        stream = streams[rng.randrange(count) if at_once else i * count // len(messages)]
        if lossy and rng.random() < 0.15:
            stream.items.append(None)
        stamp = ns + (rng.randrange(-3000, 3000) if wild else 0)
        stream.items.append((None if wild and rng.random() < 0.1 else stamp, *message))
    for stream in streams:
        if lossy and rng.random() < 0.3:
            stream.items.append(None)
    acks = []
    if messages and rng.random() < 0.15:
        identity, number, _ = messages[0]
        acks = [
            (T0 + 9_000 + 1_000 * a, max(identity - rng.randrange(2), 0), max(number - rng.randrange(3), 1))
            for a in range(2)
        ]
    return History([stream for stream in streams if stream.items], acks)


HISTORIES = 100_000


@pytest.fixture(scope="session")
def histories() -> list[History]:
    rng = random.Random(18)
    return [random_history(rng) for _ in range(HISTORIES)]


@pytest.fixture(scope="session")
def many(
    spark: SparkSession, histories: list[History], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    return tables_of(histories).on(spark, tmp_path_factory.mktemp("histories"))


@pytest.mark.parametrize("reading", list(Reading))
def test_windows_and_fold_equal_the_plain_loop(
    many: dict[str, DataFrame], histories: list[History], reading: Reading
) -> None:
    expected = {
        (f"{k}-{stream}>", item): fate
        for k, history in enumerate(histories)
        for (stream, item), fate in replayed(history, literal=reading is Reading.LITERAL).items()
    }
    found = fates(replay(many, reading=reading, scope=Scope.SESSION))
    wrong = [key for key in expected if found.get(key) != expected[key]]
    assert not wrong, [(histories[int(k.split("-")[0])], found.get((k, o)), expected[k, o]) for k, o in wrong[:2]]
    assert len(found) == len(expected)


def test_rows_and_partitions_may_come_in_any_order(
    spark: SparkSession, histories: list[History], tmp_path: Path
) -> None:
    few = tables_of(histories[:500])
    straight = fates(replay(few.on(spark, tmp_path), scope=Scope.SESSION))
    shuffled = {name: rows.orderBy(F.rand(7)).repartition(5) for name, rows in few.on(spark, tmp_path).items()}
    assert fates(replay(shuffled, scope=Scope.SESSION)) == straight


# --- the documents' trace and captured sequences --------------------------------------------------------------------

S1, S2, S3 = (1 << 63) - 1, 1 << 63, (1 << 64) - 1
TRACE = (  # message, accepted as recommended, accepted by the letter
    ((S1, 1, 0), True, True),
    ((S1, 2, 1), True, True),
    ((S1, 2, 1), False, False),  # resend
    ((S1, 1, 0), False, False),  # resend; by the letter the state falls back to 1
    ((S1, 2, 1), False, True),  # resend; by the letter delivered twice
    ((S1, 5, 4), False, False),  # 3 and 4 not seen; by the letter the state jumps to 5
    ((S1, 3, 2), True, False),  # by the letter lost
    ((S1, 5, 3), True, True),  # 4 expired, bridged
    ((S2, 2, 1), False, False),  # start missed; by the letter the state moves to S2
    ((S2, 1, 0), True, False),
    ((S1, 6, 5), False, False),  # old sequence; by the letter the state moves back
    ((S3, 3, 0), True, True),  # 1 and 2 expired
)


@pytest.mark.parametrize("reading", list(Reading))
def test_trace_that_separates_the_readings(spark: SparkSession, tmp_path: Path, reading: Reading) -> None:
    stream = Stream([(T0 + i, *message) for i, (message, *_) in enumerate(TRACE)])
    found = fates(replay(tables_of([History([stream])]).on(spark, tmp_path), reading=reading))
    literal = reading is Reading.LITERAL
    assert [found["0-0>", i][3] for i in range(len(TRACE))] == [row[1 + literal] for row in TRACE]


B = 7539503806078255102
CAPTURED = (  # id, number, previous, verdict, reason, gap_size, reject_count: from a capture of real TCP
    (B, 1, 0, "new_sequence", None, 0, 0),
    (B, 2, 1, "in_order", None, 0, 0),
    (B + 1, 1, 0, "new_sequence", None, 0, 0),
    (B + 1, 2, 1, "in_order", None, 0, 0),
    (B + 1, 3, 2, "in_order", None, 0, 0),
    (B + 3, 1, 0, "new_sequence", None, 0, 0),
    (B + 3, 1, 0, "duplicate", None, 0, 1),
    (B + 3, 2, 1, "in_order", None, 0, 0),
    (B + 3, 3, 2, "in_order", None, 0, 0),
    (B + 3, 4, 3, "in_order", None, 0, 0),
    (B + 3, 5, 4, "in_order", None, 0, 0),
    (B + 3, 6, 5, "in_order", None, 0, 0),
    (B + 3, 7, 6, "in_order", None, 0, 0),
    (B + 3, 10, 8, "out_of_order", "predecessor_missing", 0, 1),
    (B + 3, 8, 7, "in_order", None, 0, 0),
    (B + 3, 11, 10, "out_of_order", "predecessor_missing", 0, 1),
    (B + 3, 12, 11, "out_of_order", "predecessor_missing", 0, 2),
    (B + 3, 10, 8, "gap_expired", None, 1, 0),
    (B + 3, 8, 7, "duplicate", None, 0, 1),
    (B + 3, 11, 10, "in_order", None, 0, 0),
    (B + 3, 12, 11, "in_order", None, 0, 0),
    (B + 3, 13, 12, "in_order", None, 0, 0),
)
TOP = (1 << 63) - 2  # the next sequence but one no signed number holds
RESENT = (  # every reason, the ID set to where signed and unsigned differ
    (TOP, 3, 2, "unknown", "no_prior_state", 0, 0),
    (TOP + 1, 1, 0, "new_sequence", None, 0, 0),
    (TOP, 5, 4, "out_of_order", "stale_sequence", 0, 1),
    (TOP + 1, 2, 1, "in_order", None, 0, 0),
    (TOP + 1, 4, 3, "out_of_order", "predecessor_missing", 0, 1),
    (TOP + 1, 3, 2, "in_order", None, 0, 0),
    (TOP + 1, 6, 3, "gap_expired", None, 2, 0),
    (TOP + 1, 5, 3, "out_of_order", "late", 0, 1),
    (TOP + 2, 5, 3, "out_of_order", "predecessor_missing", 0, 2),
    (TOP + 2, 1, 0, "new_sequence", None, 0, 0),
    (TOP + 1, 6, 3, "duplicate", None, 0, 1),
)
MID_STREAM = (
    (B, 4294967280, 4294967279, "unknown", "no_prior_state", 0, 0),
    (B, 4294967281, 4294967280, "in_order", None, 0, 0),
    (B, 4294967279, 4294967278, "duplicate", None, 0, 1),  # the first message says that it had been sent
    (B, 4294967283, 4294967282, "out_of_order", "predecessor_missing", 0, 2),
    (B, 4294967282, 4294967281, "in_order", None, 0, 0),
)


@pytest.mark.parametrize("rows", [CAPTURED, RESENT, MID_STREAM])
def test_sequences_with_reviewed_fates(spark: SparkSession, tmp_path: Path, rows: tuple[tuple[Any, ...], ...]) -> None:
    stream = Stream([(T0 + i, *row[:3]) for i, row in enumerate(rows)])
    found = fates(replay(tables_of([History([stream])]).on(spark, tmp_path)))
    assert [found["0-0>", i][4:] for i in range(len(rows))] == [row[3:] for row in rows]


# --- scopes ---------------------------------------------------------------------------------------------------------

ALICE, BOB, ROUTER = (f"{n}0000000-0000-0000-0000-000000000000" for n in "123")


def verdict_of(result: DataFrame) -> dict[tuple[str, int], Any]:
    """Rows by their key."""
    return {(row.stream_id, row.stream_offset): row for row in result.collect()}


def test_result_is_the_table(spark: SparkSession, tmp_path: Path) -> None:
    result = replay(Tables().on(spark, tmp_path)).schema
    assert [(f.name, f.dataType) for f in result] == [(f.name, f.dataType) for f in VERDICTS.spark]


def test_a_session_goes_on_over_connections_and_addresses(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    for i, address in enumerate(("10.0.0.1", "192.0.2.9")):  # the same queue manager behind another address
        tables.stream(f"{i}>", address, "10.0.0.2")
        tables.stream(f"{i}<", "10.0.0.2", address)
        tables.handshake(str(i), ALICE, BOB)
        tables.message((f"{i}>", 100), T0 + i, (S1, i + 1, i), source_queue_manager=ALICE)
    found = verdict_of(replay(tables.on(spark, tmp_path), scope=Scope.SESSION))
    assert found["1>", 100].verdict == "in_order"
    assert found["1>", 100].session_id == f"{ALICE}->{BOB}"
    apart = verdict_of(replay(tables.on(spark, tmp_path), scope=Scope.CONNECTION))
    assert apart["1>", 100].reason == "no_prior_state"


def test_two_queue_managers_behind_one_address_stay_apart(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    for i, sender in enumerate((ALICE, ROUTER)):
        tables.stream(f"{i}>", "10.0.0.1", "10.0.0.2")
        tables.stream(f"{i}<", "10.0.0.2", "10.0.0.1")
        tables.handshake(str(i), sender, BOB)
        tables.message((f"{i}>", 100), T0 + i, (S1, 1, 0), source_queue_manager=sender)
    found = verdict_of(replay(tables.on(spark, tmp_path), scope=Scope.SESSION))
    assert {row.verdict for row in found.values()} == {"new_sequence"}


def test_passing_through_has_no_verdict_and_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    for connection, client, server in (("0", ALICE, ROUTER), ("1", ROUTER, BOB)):
        tables.stream(f"{connection}>", client, server)
        tables.stream(f"{connection}<", server, client)
        tables.handshake(connection, client, server)
        tables.message((f"{connection}>", 1), T0, (S1, 1, 0), source_queue_manager=ALICE, queue_manager_address=BOB)
    inputs = tables.on(spark, tmp_path)
    result = replay(inputs)
    assert list(verdict_of(result)) == [("1>", 1)]
    rows = sessions(inputs["messages"], inputs["streams"], inputs["handshakes"], result).collect()
    assert {row.session_id: (row.passing_through, row.new_sequence) for row in rows} == {
        f"{ALICE}->{ROUTER}": (1, 0),
        f"{ROUTER}->{BOB}": (0, 1),
    }


@pytest.mark.parametrize(("per_queue", "scope"), [(True, "queue"), (False, "session")])
def test_auto_takes_the_scope_under_which_predecessors_are_found(
    spark: SparkSession, tmp_path: Path, per_queue: bool, scope: str
) -> None:
    tables = Tables()
    tables.stream("0>", "a", "b")
    for i in range(8):
        number = i // 2 + 1 if per_queue else i + 1
        queue = f"queue{i % 2}"
        tables.message(("0>", i), T0 + i, (S1 + (i % 2) * per_queue, number, number - 1), destination_queue=queue)
    inputs = tables.on(spark, tmp_path)
    result = replay(inputs)
    assert {row.verdict for row in verdict_of(result).values()} == {"new_sequence", "in_order"}
    (row,) = sessions(inputs["messages"], inputs["streams"], inputs["handshakes"], result).collect()
    assert (row.replay_scope, row.in_order, row.transactional) == (scope, 6 if per_queue else 7, 8)


# --- OrderAcks ------------------------------------------------------------------------------------------------------


def test_an_order_ack_fixes_the_initial_state(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    tables.stream("0>", "a", "b", mid_stream=True)
    tables.stream("0<", "b", "a", mid_stream=True)
    tables.ack("0<", T0, (S1, 5))
    for i, number in enumerate((5, 6, 8)):
        tables.message(("0>", i), T0 + 1 + i, (S1, number, number - 1))
    found = verdict_of(replay(tables.on(spark, tmp_path)))
    assert [found["0>", i].verdict for i in range(3)] == ["duplicate", "in_order", "out_of_order"]
    assert found["0>", 0].incoming_tx_sequence_number == 5
    assert found["0>", 2].reason == "predecessor_missing"


def test_order_acks_confirm_and_contradict(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    for connection in "01":  # OrderAcks may come on another connection, in either role
        tables.stream(f"{connection}>", "a", "b")
        tables.stream(f"{connection}<", "b", "a")
    messages = (
        ((S1, 1, 0), "confirmed"),
        ((S1, 1, 0), "confirmed"),  # a duplicate that the next OrderAck covers
        ((S1, 3, 2), "confirmed"),  # out of order, and the OrderAck after it still names 1
        ((S1, 2, 1), "confirmed"),
        ((S1, 3, 2), "confirmed"),
        ((S1, 5, 4), "contradicted"),  # out of order by the rule, yet acknowledged
        ((S2, 1, 0), "none"),  # nothing tells
    )
    for i, (message, _) in enumerate(messages):
        tables.message(("0>", i), T0 + 1_000_000 * i, message)
    tables.ack("1<", T0 + 2_500_000, (S1, 1))
    tables.ack("1<", T0 + 3_500_000, (S1, 2), queue_manager_address="source")
    tables.ack("1<", T0 + 5_500_000, (S1, 5))
    found = verdict_of(replay(tables.on(spark, tmp_path)))
    assert [found["0>", i].evidence for i in range(len(messages))] == [evidence for _, evidence in messages]
    assert found["0>", 0].ack_latency_ms == pytest.approx(2.5)
    assert found["0>", 3].ack_latency_ms == pytest.approx(0.5)
    assert found["0>", 6].acknowledged_at is None


# --- what verdicts add up to ----------------------------------------------------------------------------------------


def test_sequences_and_findings_of_a_stuck_sequence(spark: SparkSession, tmp_path: Path) -> None:
    rows = ((S1, 1, 0), (S1, 1, 0), (S1, 3, 2), (S1, 4, 3), (S2, 2, 0))
    stream = Stream([(T0 + i, *row) for i, row in enumerate(rows)])
    result = replay(tables_of([History([stream])]).on(spark, tmp_path))
    first, second = sequences(result).orderBy("tx_sequence_id").collect()
    assert (first.messages, first.duplicate, first.out_of_order, first.last_accepted_number) == (4, 1, 2, 1)
    assert (second.gap_expired, second.expired, second.first_number) == (1, 1, 2)
    found = {row.kind: row for row in findings(result).collect()}
    assert {kind: (row.messages, row.witness) for kind, row in found.items()} == {
        "duplicates": (1, ["0-0>@0", "0-0>@1"]),
        "out_of_order": (2, ["0-0>@0", "0-0>@2"]),
        "stuck_sequence": (2, ["0-0>@0", "0-0>@2"]),
        "gap_expired": (1, ["0-0>@0", "0-0>@4"]),
    }
    assert found["stuck_sequence"].explanation == (
        f"2 message(s) of sequence {S1} were refused, and nothing of the sequence was accepted since. "
        f"The first has number 3, previous 2; the state before it: {S1} number 1."
    )


def test_a_transaction_id_is_used_again_and_a_torn_one_flagged(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    tables.stream("0>", "a", "b")
    marks = ((True, False), (False, True), (True, False), (False, False), (True, True))
    for i, (first, last) in enumerate(marks):
        tables.message(("0>", 2 * i), T0 + i, (S1, i + 1, i), tx_first=first, tx_last=last, tx_transaction_id=7)
    tables.message(("0>", 3), T0, (S1, 2, 1), tx_first=False, tx_last=True, tx_transaction_id=7)  # a resend
    rows = transactions(replay(tables.on(spark, tmp_path))).orderBy("instance").collect()
    assert [(row.instance, row.messages, row.accepted, row.torn) for row in rows] == [
        (1, 2, 2, False),
        (2, 2, 2, True),  # its LM was not seen
        (3, 1, 1, False),
    ]
