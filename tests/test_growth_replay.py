"""What a sender can multiply makes no more rows than messages, in the tables and at every step of a query on the way.

All tricks are in one night, of n messages each. It is replayed with n and with 2n, and no operator of any query may
give more than twice the rows: an operator that pairs n things with n others would give four times as many.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from growth import assert_linear
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it
from replay_tables import T0, Tables
from scene import guid
from warehouses import config
from wiretap import ACK, PSH, Sent, handshake, pcap, records

from jobs.simulator import build
from jobs.steps import nightly
from jobs.steps.conversations import unite
from jobs.steps.replay import (
    derive_outcomes,
    derive_transactions,
    find_by_facts,
    find_on_messages,
    find_suspects,
    judge_messages,
    read_inputs,
)
from jobs.transforms.facts.arrivals import watched_sessions
from jobs.transforms.facts.balancers import acknowledged_elsewhere, several_receivers
from jobs.transforms.facts.events import events, sender_spans
from jobs.transforms.facts.kinds import facts_of_messages
from jobs.transforms.outcomes.rows import message_fates
from jobs.transforms.replay import timeline
from jobs.transforms.replay.acknowledgments import crowded, pair_acks
from jobs.transforms.replay.conversations import Conversations
from jobs.transforms.replay.peers import with_peers
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.warehouse import checkpoint
from jobs.warehouse.passes import run_in_tasks
from schemas.explained import ARRIVAL, EXPLAINED
from schemas.ingest import CAPTURES
from schemas.outcomes import Outcome
from udfs.replay.arrivals import Arrival
from udfs.replay.findings.receivers import AcknowledgedElsewhere, SeveralReceivers
from udfs.replay.incidents import explain_incidents
from udfs.replay.rows import write_rows
from udfs.replay.slots import explain_slots

S = 1 << 62
MS = 1_000_000
_UNITED = ("messages", "streams", "stream_gaps", "quarantine", "acks", "handshakes")
_ROWS = re.compile(r"<b>([^<]*)</b>.*?number of output rows: ([\d,]+)")


# --- tricks -----------------------------------------------------------------------------------------------------------

Trick = Callable[[Tables, str, int], None]
TRICKS: dict[str, Trick] = {}


def trick(play: Trick) -> Trick:
    """A night's worth of one thing, n times, by its function's name."""
    TRICKS[play.__name__] = play
    return play


def connect(tables: Tables, name: str, number: int = 0, **columns: Any) -> str:
    """Both ways of a connection; returns the one of the sender."""
    ends = columns.pop("ends", (f"ip.{name}.a", f"ip.{name}.b"))
    tables.stream(f"{name}.{number}>", *ends, **columns)
    tables.stream(f"{name}.{number}<", *ends[::-1], **columns)
    return f"{name}.{number}>"


def send(tables: Tables, stream: str, i: int, tx: tuple[int, int, int], **columns: Any) -> None:
    """The i-th message of a stream; its message ID is its number, unless told otherwise."""
    name = stream.rsplit(".", 1)[0]
    given = {"source_queue_manager": f"{name}.a", "message_id": f"{name}.a\\{tx[1]}", "label": f"{tx[0]} {tx[1]}"}
    tables.message((stream, i * 10), T0 + i * MS, tx, **(given | columns))


def miss(tables: Tables, stream: str, i: int) -> None:
    """Bytes that are missing before the i-th message."""
    tables.rows["stream_gaps"].append({"stream_id": stream, "stream_offset": i * 10 - 5, "length": 1})


@trick
def numbers_skipped(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, (S, 1000 * (i + 1), 1000 * i))


@trick
def numbers_never_seen(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    send(tables, stream, 0, (S, 1, 0))
    for i in range(1, n):
        send(tables, stream, i, (S, 1000 * i, 1000 * i - 1))


@trick
def numbers_skipped_to_the_middle_of_a_sequence(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(0, n, 2):
        send(tables, stream, i, (S + i, 1, 0))
        send(tables, stream, i + 1, (S + i, 1 << 31, 1))


@trick
def sequences(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, (S + i, 1, 0))


@trick
def long_transactions(tables: Tables, name: str, n: int) -> None:
    """The first and the last message of each, with all the numbers that one may have in between."""
    stream = connect(tables, name)
    for i in range(0, n, 2):
        first, last = i // 2 << 12, (i // 2 << 12) + 4095
        of = {"tx_transaction_id": i}
        send(tables, stream, i, (S, max(first, 1), max(first - 1, 0)), tx_first=True, tx_last=False, **of)
        send(tables, stream, i + 1, (S, last, last - 1), tx_first=False, tx_last=True, **of)


@trick
def torn_transactions(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, (S, i + 1, i), tx_first=True, tx_last=False, tx_transaction_id=i)


@trick
def one_transaction_id(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, (S, 2 * i + 1, 2 * i), tx_first=i % 3 == 0, tx_last=i % 2 == 0, tx_transaction_id=7)


@trick
def queues_between_missing_bytes(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name, missing_bytes=n)
    for i in range(n):
        miss(tables, stream, i)
        send(tables, stream, i, (S, 1, 0), destination_queue=f"queue {i}")


@trick
def connections_with_missing_bytes(tables: Tables, name: str, n: int) -> None:
    """A queue on each; what is missing on any of them may be of each queue."""
    for i in range(n):
        stream = connect(tables, name, i, missing_bytes=1)
        miss(tables, stream, 1)
        send(tables, stream, 1, (S, 1, 0), destination_queue=f"queue {i}")


@trick
def legs_of_routers(tables: Tables, name: str, n: int) -> None:
    """Messages that may have reached one receiver on any of many sessions, of which each has one state."""
    server = str(guid(f"{name}.b"))
    for i in range(0, n, 2):
        stream = connect(tables, name, i, ends=(f"ip.{name}.a{i}", f"ip.{name}.b"))
        tables.handshake(f"{name}.{i}", str(guid(f"{name}.{i}")), server)
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
def refusals(tables: Tables, name: str, n: int) -> None:
    """In each sequence a message that never becomes acceptable, and another one that has the number of the first."""
    stream = connect(tables, name)
    for i in range(0, n, 3):
        send(tables, stream, i, (S + i, 1, 0))
        send(tables, stream, i + 1, (S + i, 1, 0), label="another")
        send(tables, stream, i + 2, (S + i, 9, 8))


@trick
def resends_refused(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    send(tables, stream, 0, (S, 1, 0))
    for i in range(1, n - 1):
        send(tables, stream, i, (S, 3, 2))
    send(tables, stream, n - 1, (S, 5, 1))


@trick
def different_messages_of_one_number(tables: Tables, name: str, n: int) -> None:
    stream = connect(tables, name)
    for i in range(n):
        send(tables, stream, i, (S, 1, 0), message_id=f"{name}.a\\{i}", label=str(i))


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
    client, server = str(guid(f"{name}.a")), str(guid(f"{name}.b"))
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
        send(tables, connect(tables, name, i, ends=ends, mid_stream=True), 1, (S, 1, 0))


@trick
def two_captures_of_one_packet(tables: Tables, name: str, n: int) -> None:
    for i in range(2):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        stream = connect(tables, name, i, ends=ends, mid_stream=True)
        for j in range(n // 2):
            send(tables, stream, j, (S, 1, 0))


@trick
def addresses_of_a_sender(tables: Tables, name: str, n: int) -> None:
    """Each conflicts with the others; and acknowledgments go to further ones."""
    client, server = str(guid(f"{name}.a")), str(guid(f"{name}.b"))
    for i in range(0, n, 2):
        ends = (f"ip.{name}.a{i}", f"ip.{name}.b")
        stream = connect(tables, name, i, ends=ends)
        tables.handshake(f"{name}.{i}", client, server)
        send(tables, stream, i, (S - i, 1, 0), source_queue_manager=client, message_id=f"{client}\\{i}")
        send(tables, stream, i + 1, (S + i, 1, 0), source_queue_manager=client, message_id=f"{client}\\{i + n}")
    for i in range(n):
        connect(tables, f"{name}.back", i, ends=(f"ip.{name}.c{i}", f"ip.{name}.b"))
        tables.handshake(f"{name}.back.{i}", str(guid(f"{name}.{i}")), server)
        named = {"source_queue_manager": server, "queue_manager_address": client}
        tables.ack(f"{name}.back.{i}<", T0 + i * MS, (S, 1), **named)


# --- the replay, and what its queries did -----------------------------------------------------------------------------


class Queries:
    """Counts the rows that each operator of each query gave, in the order of the queries."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Any = spark
        self.operators: list[tuple[str, int]] = []
        self._noted = self._last()

    def materialize(self, rows: DataFrame, most: int = checkpoint.MOST_ROWS) -> DataFrame:  # noqa: ARG002 - as Materialize
        """Computes rows, which are few enough to broadcast, and notes what that took."""
        caller = inspect.stack()[1]
        found = F.broadcast(checkpoint.checkpoint(rows))
        self._note(f"{Path(caller.filename).name}:{caller.lineno}")
        return found

    def _executions(self) -> Iterator[int]:
        self._session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        listed = self._store().executionsList()
        yield from (listed.apply(i).executionId() for i in range(listed.size()))

    def _store(self) -> Any:
        return self._session._jsparkSession.sharedState().statusStore()

    def _last(self) -> int:
        return max(self._executions(), default=-1)

    def _note(self, what: str) -> None:
        store = self._store()
        for execution in sorted(one for one in self._executions() if one > self._noted):
            dot = store.planGraph(execution).makeDotFile(store.executionMetrics(execution))
            self.operators += [(f"{what} {name}", int(rows.replace(",", ""))) for name, rows in _ROWS.findall(dot)]
            self._noted = execution


class Replayed(NamedTuple):
    """What a night came to."""

    messages: int
    tables: dict[str, int]
    operators: list[tuple[str, int]]


def replay(spark: SparkSession, tables: Tables, folder: Path) -> Replayed:
    """Replays a night as `jobs.steps.replay` does, counting rows."""
    folder.mkdir()
    queries = Queries(spark)
    keep = queries.materialize
    given = tables.on(spark, folder)
    messages, streams, gaps, quarantine, acks, handshakes = (given[name] for name in _UNITED)
    rows = Conversations(messages, streams, gaps, quarantine, acks, handshakes)
    once = unite(rows, spark.createDataFrame([], CAPTURES.spark), materialize=keep)
    peers = keep(with_peers(once.streams, once.handshakes))
    ends = keep(once.every_end(peers))
    inputs = read_inputs(
        once.messages, peers, once.stream_gaps, once.quarantine, once.acks, once=once, materialize=keep
    )
    verdicts = keep(once.restore(judge_messages(inputs, materialize=keep)))
    outcomes = derive_outcomes(verdicts, materialize=keep)
    fates = keep(message_fates(outcomes.rows))
    paired = keep(pair_acks(once.counted(acks), ends, outcomes.tallies, crowded(outcomes.tallies)))
    sequences, transactions = (
        keep(rows)
        for rows in (
            summarize_sequences(outcomes.tallies, outcomes),
            derive_transactions(verdicts, outcomes, fates, materialize=keep),
        )
    )
    counted = once.counted(messages)
    watched = watched_sessions(ends, inputs.unread, paired, outcomes.tallies)
    suspects = find_suspects(counted, ends, materialize=keep)
    facts = {
        **facts_of_messages(counted, ends, paired, verdicts, sequences, transactions, suspects),
        SeveralReceivers: several_receivers(inputs.flows, peers, outcomes.tallies),
        AcknowledgedElsewhere: acknowledged_elsewhere(inputs.flows, peers, inputs.acks),
    }
    findings = keep(find_on_messages(verdicts, watched, outcomes).unionByName(find_by_facts(facts)))
    unusual = outcomes.rows.where(F.col("outcome") != Outcome.DELIVERED.value)
    told = events(findings, unusual, sequences, sender_spans(verdicts, unusual, findings))
    explained = run_in_tasks(told, explain_incidents, EXPLAINED, ("scope_key",), ("tx_sequence_id",))
    sessions = summarize_sessions(once.messages, peers, once.stream_gaps, once.quarantine, outcomes.tallies, outcomes)
    made = {
        "ends": ends,
        "verdicts": verdicts,
        "outcomes": unusual,
        "sequences": sequences,
        "sessions": sessions,
        "states": summarize_states(outcomes.tallies),
        "transactions": transactions,
        "findings": explained.where("finding IS NOT NULL"),
        "incidents": explained.where("incident IS NOT NULL"),
    }
    counts = {name: keep(of).count() for name, of in made.items()}
    return Replayed(len(tables.rows["messages"]), counts, queries.operators)


def night(n: int, *names: str) -> Tables:
    """Tables in which each of these tricks is played n times."""
    tables = Tables()
    for name in names:
        TRICKS[name](tables, name, n)
    return tables


N = 100
MOST_ROWS_OF_A_MESSAGE, MOST_ON_THE_WAY = 3, 12


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Replayed, Replayed]:
    folder = tmp_path_factory.mktemp("nights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_MOST_PAIRS", N // 2)
        one, two = (replay(spark, night(n, *TRICKS), folder / str(n)) for n in (N, 2 * N))
    return one, two


@pytest.mark.slow
def test_each_table_has_a_few_rows_for_a_message_at_most(nights: tuple[Replayed, Replayed]) -> None:
    for found in nights:
        most = MOST_ROWS_OF_A_MESSAGE * found.messages
        assert {name: rows for name, rows in found.tables.items() if rows > most} == {}


@pytest.mark.slow
def test_no_operator_of_a_query_has_more_than_a_few_rows_for_a_message(nights: tuple[Replayed, Replayed]) -> None:
    for found in nights:
        most = MOST_ON_THE_WAY * found.messages
        assert [(name, rows) for name, rows in found.operators if rows > most] == []


@pytest.mark.slow
def test_no_operator_of_a_query_pairs_what_a_sender_can_multiply(nights: tuple[Replayed, Replayed]) -> None:
    one, two = nights
    assert [name for name, _ in one.operators] == [name for name, _ in two.operators]
    assert len(one.operators) > 500
    grew = {
        (place, name): (before, after)
        for place, ((name, before), (_, after)) in enumerate(zip(one.operators, two.operators, strict=True))
        if after > 2.5 * before + N
    }
    assert [f"{place}: {of}" for place, of in grew.items()] == []


# --- what is done instead ---------------------------------------------------------------------------------------------


def test_an_acknowledgment_for_nobody_by_name_is_for_who_uses_its_sequence_where_a_session_has_many_senders(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, shared = Tables(), 16
    for name, senders in (("few", 16), ("many", 34)):
        stream = connect(tables, name)
        for i in range(senders):
            sequence = 1 if i < shared else 2 if i < shared + 17 else 3
            send(tables, stream, i, (sequence, 1, 0), source_queue_manager=f"{name}.{i}")
        for sequence in (1, 2, 3, 4):
            tables.ack(f"{name}.0<", T0 + sequence, (sequence, 1), source_queue_manager=f"ip.{name}.b")
    given = tables.on(spark, tmp_path)
    inputs = read_inputs(*(given[name] for name in ("messages", "ends", "stream_gaps", "quarantine", "acks")))
    found = {
        (row["receiver"], row["sequence"] + (1 << 63)): row["senders"]
        for row in inputs.acks.groupBy("receiver", "sequence")
        .agg(F.sort_array(F.collect_set("source_queue_manager")).alias("senders"))
        .collect()
    }
    first = {name: sorted(f"{name}.{i}" for i in range(shared)) for name in ("few", "many")}
    assert found == {("ip.few.b", sequence): first["few"] for sequence in (1, 2, 3, 4)} | {
        ("ip.many.b", 1): first["many"],
        ("ip.many.b", 3): ["many.33"],
    }


@pytest.mark.slow
def test_where_too_much_would_be_paired_each_message_is_judged_as_behind_missing_bytes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables()
    for name, broken in (("broken", True), ("whole", False)):
        stream = connect(tables, name)
        for i, tx in enumerate(((S, 1, 0), (S, 2, 1), (S, 4, 3), (S, 6, 1))):
            send(tables, stream, i, tx)
        if broken:
            miss(tables, connect(tables, name, 1, first_captured_at=T0 // 1000 + 10**9), 1)
    given = tables.on(spark, tmp_path)

    def verdicts() -> dict[str, list[str]]:
        inputs = read_inputs(*(given[name] for name in ("messages", "ends", "stream_gaps", "quarantine", "acks")))
        rows = judge_messages(inputs).orderBy("source_queue_manager", "replay_order").collect()
        return {
            name: [row["verdict"] for row in rows if row["stream_id"] == f"{name}.0>"] for name in ("broken", "whole")
        }

    judged = ["new_sequence", "in_order", "out_of_order", "gap_expired"]
    assert verdicts() == {"broken": judged, "whole": judged}  # the other connection is a later one
    monkeypatch.setattr(timeline, "_MOST_PAIRS", 0)
    assert verdicts() == {"broken": ["new_sequence", "in_order", "unknown", "unknown"], "whole": judged}


# --- one capture through a whole night --------------------------------------------------------------------------------

NUMBER, PREVIOUS, ORDINAL = 0xDEADBEEF, 0xFEEDFACE, 0xCAFEBABE


def capture_of_skipped_numbers(path: Path, n: int, skipped: int) -> None:
    """A capture of n messages, before each of which its sender skipped so many numbers."""
    one = build.user_message(guid("a"), message_id=ORDINAL, sequence=(S, NUMBER, PREVIOUS))
    fields = [value.to_bytes(4, "little") for value in (ORDINAL, NUMBER, PREVIOUS)]
    assert [one.count(field) for field in fields] == [1, 1, 1]
    packets = []
    for i in range(n):
        packet = one
        for field, value in zip(fields, (i + 1, (i + 1) * (skipped + 1), i * (skipped + 1)), strict=True):
            packet = packet.replace(field, value.to_bytes(4, "little"))
        packets.append(packet)
    sent = handshake(1000, 5000)
    sent += [Sent(False, 1001 + i * len(one), 5001, ACK | PSH, packet) for i, packet in enumerate(packets)]
    path.write_bytes(pcap(records(segment.frame() for segment in sent)))


def test_a_capture_whose_sender_skips_five_million_numbers_has_a_row_for_a_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    n, skipped = 5_000, 999
    capture_of_skipped_numbers(tmp_path / "skipped.pcap", n, skipped)
    found = nightly.run(spark, config(tmp_path / "tables", tmp_path / "skipped.pcap"))
    counted = n - 1  # what was skipped before the first message may have been delivered before the capture
    assert found["outcomes"] == {"delivered": n, "expired_unseen": counted * skipped}
    runs = (
        DeltaTable(str(tmp_path / "tables" / "outcomes")).to_pyarrow_table(columns=["outcome", "numbers"]).to_pylist()
    )
    assert runs == [{"outcome": "expired_unseen", "numbers": skipped}] * counted
    assert found["books"]["unbalanced"] == 0


def reused(times: int) -> list[Arrival]:
    """So many different messages under one number, of which the first was accepted."""
    first = Arrival(
        *("s", 1, 5, None, None, None, 1, 9, False, False, 1, 1, 4, "q", "q\\0", 0, False, "a->b", "Q", None, 1, True),
        *("in_order", "none", None, False, False, False, 0, False, 1, 4, "k@0"),
    )
    others = (
        first._replace(replay_order=i + 1, message_id=f"q\\{i}", content_hash=i, accepted=False, verdict="duplicate")
        for i in range(1, times)
    )
    return [first, *others]


def test_a_number_that_many_messages_use_costs_what_they_are() -> None:
    def explain(arrivals: list[Arrival]) -> int:
        schema = ARRIVAL
        rows = [row for batch in explain_slots(write_rows(arrivals, schema)) for row in batch.to_pylist()]
        return sum(row["outcome"]["outcome"] == Outcome.DISPLACED for row in rows if row["outcome"])

    _, large = assert_linear(explain, reused, 2_000)
    assert large.result == 3_999
