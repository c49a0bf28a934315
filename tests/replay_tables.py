"""Tables that the replay reads, made of rows; shared by the tests of replay, agreement, evidence and findings."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app.spark_session import open_session
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
from jobs.transforms.facts.kinds import facts_of_messages
from jobs.transforms.facts.stalls import window_stalled
from jobs.transforms.outcomes.rows import Outcomes, message_fates
from jobs.transforms.outcomes.tallies import tally
from jobs.transforms.replay.acknowledgments import crowded, pair_acks
from jobs.transforms.replay.conversations import Conversations
from jobs.transforms.replay.coverage import unread_ranges
from jobs.transforms.replay.peers import with_peers
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.warehouse.checkpoint import materialize
from schemas.ingest import CAPTURES, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.replay import Reading, Scope
from schemas.table import Table
from schemas.wire import UNLIMITED
from udfs.replay.findings.receivers import AcknowledgedElsewhere, SeveralReceivers, WindowStalled

NULL = "00000000-0000-0000-0000-000000000000"
T0 = 1_700_000_000_000_000_000

TABLES: dict[str, tuple[Table, tuple[str, ...]]] = {
    "messages": (
        MESSAGES,
        (
            *("stream_id", "stream_offset", "captured_at", "captured_ns", "capture_id", "first_frame", "last_frame"),
            *("source_queue_manager", "queue_manager_address", "destination_queue", "message_id", "message_id_ordinal"),
            *("label", "transactional", "tx_sequence_id", "tx_sequence_ordinal", "tx_sequence_timestamp"),
            *("tx_sequence_number", "previous_tx_sequence_number", "tx_first", "tx_last", "tx_transaction_id"),
            *(
                "message_class",
                "body_size",
                "body_type",
                "body_crc32",
                "application_tag",
                "extension_size",
                "correlation_id",
            ),
            *("sent_at", "time_to_reach_queue", "time_to_be_received", "window_size", "body_encrypted"),
        ),
    ),
    "streams": (
        STREAMS,
        (
            *("stream_id", "connection_id", "src_ip", "dst_ip", "from_initiator", "mid_stream", "recovered_bytes"),
            *("missing_bytes", "first_captured_at", "last_captured_at", "initial_seq"),
            *("connection_last_at", "window_shut_at", "window_shut_ms"),
        ),
    ),
    "stream_gaps": (STREAM_GAPS, ("stream_id", "stream_offset", "length")),
    "quarantine": (QUARANTINE, ("stage", "stream_id", "stream_offset", "length")),
    "acks": (
        ACKS,
        (
            *("stream_id", "stream_offset", "captured_at", "captured_ns", "ack_type", "source_queue_manager"),
            *("queue_manager_address", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
            *("source_guid", "message_class", "acknowledged_message_id", "capture_id", "last_frame"),
            "window_size",
        ),
    ),
    "handshakes": (
        HANDSHAKES,
        (
            *("stream_id", "stream_offset", "handshake_type", "client_guid", "server_guid", "time_stamp_ms"),
            *("captured_ns", "capture_id", "last_frame", "ack_timeout_ms"),
        ),
    ),
    "session_acks": (SESSION_ACKS, ("stream_id", "stream_offset", "captured_ns", "window_size")),
}


class Tables:
    """Rows of the tables that the replay reads."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def stream(self, stream_id: str, src: str, dst: str, **columns: Any) -> None:
        """Adds a stream; its name ends in > if its sender is the initiator, otherwise in <."""
        row: dict[str, Any] = {"stream_id": stream_id, "connection_id": stream_id.rstrip("<>")}
        row |= {"src_ip": src, "dst_ip": dst}
        row |= {"from_initiator": not stream_id.endswith("<"), "mid_stream": False, "missing_bytes": 0}
        row |= {"recovered_bytes": 1000, "first_captured_at": T0 // 1000, "last_captured_at": T0 // 1000}
        self.rows["streams"].append(row | columns)

    def message(self, key: tuple[str, int], ns: int | None, tx: tuple[int, int, int], **columns: Any) -> None:
        """Adds a message at (stream, offset) with (ID, number, previous)."""
        row = {"captured_ns": ns, "captured_at": ns and ns // 1000, "capture_id": "c", "first_frame": 1}
        row |= {"last_frame": 1, "source_queue_manager": "source", "queue_manager_address": NULL}
        row |= {"destination_queue": "queue", "message_id": f"source\\{tx[1]}", "transactional": True}
        row |= {"message_class": 0, "time_to_reach_queue": UNLIMITED, "time_to_be_received": UNLIMITED}
        row |= {"stream_id": key[0], "stream_offset": key[1], "tx_sequence_id": tx[0], "tx_sequence_number": tx[1]}
        self.rows["messages"].append(row | {"previous_tx_sequence_number": tx[2]} | columns)

    def ack(self, stream_id: str, ns: int, tx: tuple[int, int], **columns: Any) -> None:
        """Adds an OrderAck of (ID, number)."""
        row: dict[str, Any] = {"stream_id": stream_id, "stream_offset": ns, "captured_ns": ns}
        row["captured_at"] = ns // 1000
        row |= {"ack_type": "order_ack", "source_queue_manager": "receiver", "queue_manager_address": NULL}
        self.rows["acks"].append(row | {"tx_sequence_id": tx[0], "tx_sequence_number": tx[1]} | columns)

    def handshake(self, connection: str, client: str, server: str) -> None:
        """Adds an EstablishConnection, which leaves the server NULL, and its response."""
        for side, named in ((">", NULL), ("<", server)):
            row: dict[str, Any] = {"stream_id": connection + side, "stream_offset": 0, "captured_ns": T0}
            row["handshake_type"] = "establish_connection"
            self.rows["handshakes"].append(row | {"client_guid": client, "server_guid": named})

    def replay_once(
        self, spark: SparkSession, folder: Path, captures: DataFrame | None = None
    ) -> tuple[DataFrame, dict[str, DataFrame]]:
        """Returns VERDICTS of tables in which conversations may be twice; and the united tables, with `ends`."""
        tables = self._written(spark, folder)
        gaps, quarantine = tables["stream_gaps"], tables["quarantine"]
        rows = Conversations(
            tables["messages"], tables["streams"], gaps, quarantine, tables["acks"], tables["handshakes"]
        )
        once = unite(rows, spark.createDataFrame([], CAPTURES.spark) if captures is None else captures)
        peers = materialize(with_peers(once.streams, once.handshakes))
        inputs = read_inputs(once.messages, peers, once.stream_gaps, once.quarantine, once.acks, once=once)
        verdicts = materialize(once.restore(judge_messages(inputs)))
        united = {name: getattr(once, name, rows) for name, rows in tables.items()}
        return verdicts, united | {"ends": peers, "every_end": once.every_end(peers)}

    def on(self, spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
        """Returns the tables by name, written to a folder, with the columns that the replay reads; and `ends`."""
        tables = self._written(spark, folder)
        return tables | {"ends": materialize(with_peers(tables["streams"], tables["handshakes"]))}

    def _written(self, spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
        tables = {}
        for name, (table, columns) in TABLES.items():
            schema = pa.schema([table.arrow.field(column) for column in columns])
            arrays = [
                pa.array([row.get(field.name) for row in self.rows[name]], pa.uint64()).cast(field.type)
                if pa.types.is_decimal(field.type)
                else pa.array([row.get(field.name) for row in self.rows[name]], field.type)
                for field in schema
            ]
            path = folder / f"{name}.parquet"
            pq.write_table(pa.table(arrays, names=schema.names), path, row_group_size=1 << 17)
            tables[name] = spark.read.parquet(str(path))
        return tables


INPUTS = ("messages", "ends", "stream_gaps", "quarantine", "acks")
"""What `read_inputs` takes."""


def replay(
    inputs: dict[str, DataFrame],
    previous: DataFrame | None = None,
    *,
    reading: Reading = Reading.CONFORMANT,
    scope: Scope = Scope.AUTO,
) -> DataFrame:
    """Returns VERDICTS of these inputs; `previous` are the STATES of the previous warehouse."""
    read = read_inputs(*(inputs[name] for name in INPUTS), scope=scope)
    return materialize(judge_messages(read, previous, reading=reading))


def states_after(
    result: DataFrame, previous: DataFrame | None, reading: Reading
) -> tuple[dict[str, tuple[Any, ...]], DataFrame]:
    """Returns STATES, and by scope: ID, number, reject count, messages, latest time."""
    rows = materialize(summarize_states(tally(result, reading=reading), previous))
    columns = ("tx_sequence_number", "reject_count", "messages", "last_captured_ns")
    found = {row["scope_key"]: (int(row["tx_sequence_id"]), *(row[name] for name in columns)) for row in rows.collect()}
    return found, rows


class Derived:
    """Derives the other tables from the VERDICTS of a replay, what they share once."""

    def __init__(self, inputs: dict[str, DataFrame], verdicts: DataFrame) -> None:
        self._inputs, self._verdicts = inputs, verdicts

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcomes of messages and numbers."""
        return derive_outcomes(self._verdicts)

    @cached_property
    def transactions(self) -> DataFrame:
        """TRANSACTIONS, materialized."""
        fates = materialize(message_fates(self.outcomes.rows))
        return materialize(derive_transactions(self._verdicts, self.outcomes, fates))

    def sessions(self, *, told: bool = True) -> DataFrame:
        """Returns SESSIONS; unless `told`, as under the literal reading, without counts of outcomes."""
        outcomes = self.outcomes if told else None
        tallies = outcomes.tallies if outcomes else tally(self._verdicts)
        messages, ends, gaps, quarantine = (
            self._inputs[name] for name in ("messages", "ends", "stream_gaps", "quarantine")
        )
        return summarize_sessions(messages, ends, gaps, quarantine, tallies, outcomes)

    @cached_property
    def _acks(self) -> DataFrame:
        tallies = self.outcomes.tallies
        return pair_acks(self._inputs["acks"], self._inputs["ends"], tallies, crowded(tallies))

    def findings_on_messages(self) -> DataFrame:
        """Returns the findings that are made of verdicts alone."""
        inputs = self._inputs
        unread = unread_ranges(inputs["stream_gaps"], inputs["quarantine"])
        watched = watched_sessions(inputs["ends"], unread, self._acks, self.outcomes.tallies)
        return find_on_messages(self._verdicts, watched, self.outcomes)

    def findings(self) -> DataFrame:
        """Returns FINDINGS."""
        inputs, acks = self._inputs, self._acks
        sequences = summarize_sequences(self.outcomes.tallies, self.outcomes)
        summaries = materialize(sequences), self.transactions
        packets = (inputs[name] for name in ("messages", "acks", "session_acks", "handshakes"))
        flows = read_inputs(*(inputs[name] for name in INPUTS)).flows
        suspects = find_suspects(inputs["messages"], inputs["ends"])
        facts = {
            **facts_of_messages(inputs["messages"], inputs["ends"], acks, self._verdicts, *summaries, suspects),
            WindowStalled: window_stalled(inputs["streams"], inputs["ends"], *packets),
            SeveralReceivers: several_receivers(flows, inputs["ends"], self.outcomes.tallies),
            AcknowledgedElsewhere: acknowledged_elsewhere(flows, inputs["ends"], acks),
        }
        return self.findings_on_messages().unionByName(find_by_facts(facts))


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
    """Returns the fate of each message by its key."""
    columns = result.select(
        "stream_id", "stream_offset", *(F.col(c).cast("string") if c.endswith("_id") else c for c in FATE)
    ).toArrow()
    stream_id, offset, order, identity, *rest = (column.to_pylist() for column in columns.columns)
    ids = [value and int(value) for value in identity]
    return dict(zip(zip(stream_id, offset, strict=True), zip(order, ids, *rest, strict=True), strict=True))


def compare_nights(
    about: str | None,
    night: Callable[[random.Random, int], Tables],
    largest: int,
    differences: Callable[[SparkSession, Tables, Path], Iterator[tuple[str, list[Any]]]],
) -> None:
    """Compares as many messages as the command line says, in nights; prints what differs, and then exits with 1."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("messages", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--night", type=int, default=largest, help="messages of one night")
    options = parser.parse_args()
    spark = open_session("compare")
    began, judged, wrong = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + -(-options.messages // options.night)):
        tables = night(random.Random(seed), min(options.night, options.messages))
        judged += len(tables.rows["messages"])
        with TemporaryDirectory() as folder:
            for mode, differing in differences(spark, tables, Path(folder)):
                wrong += len(differing)
                print(f"seed {seed}, {mode}: {len(differing)} differ", *differing[:5], sep="\n", flush=True)  # noqa: T201
    print(f"{judged} messages, {wrong} differ, {time.monotonic() - began:.0f} s")  # noqa: T201
    sys.exit(wrong > 0)
