"""Tables that the replay reads, made of rows, and what it finds in them; replayed in this process, without Spark."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from jobs.engine.in_process import InProcess
from jobs.replaying.conversations import Conversations, unite
from jobs.replaying.explaining import Explained, find_by_facts, find_on_messages, put_together, with_proof
from jobs.replaying.fates import Fates, add_up, find_fates, find_transactions
from jobs.replaying.flow import Options
from jobs.replaying.flow import replay as write_all
from jobs.replaying.in_process import accept_by_fold
from jobs.replaying.inputs import Inputs, pair, read_inputs, watch
from jobs.replaying.judging import judge_messages
from jobs.replaying.settled import Settled, nothing_settled
from jobs.replaying.sources import SOURCES, Sources
from schemas.replay import ENDS, STATES, Reading, Scope
from schemas.table import Table
from schemas.wire import UNLIMITED
from udfs.derive.frames import to_frame
from udfs.derive.outcomes.tallies import tally
from udfs.derive.replay.acks import crowded

Row: TypeAlias = Any
"""A row with its columns as attributes."""
NULL = "00000000-0000-0000-0000-000000000000"
T0 = 1_700_000_000_000_000_000
TABLES: dict[str, Table] = {table.name: table for table in SOURCES}


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

    def sources(
        self, *, states_before: pl.DataFrame | None = None, ends_before: pl.DataFrame | None = None
    ) -> Sources[pl.DataFrame]:
        """Returns the tables, and what a previous warehouse left."""
        tables = {name: frame(table, self.rows[name]) for name, table in TABLES.items()}
        return Sources(
            **tables,
            states_before=frame(STATES, []) if states_before is None else states_before,
            ends_before=frame(ENDS, []) if ends_before is None else ends_before,
        )


def frame(table: Table, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Returns rows with all columns of the table, null where they have none; times may be µs since 1970."""
    given = list(rows)

    def column(name: str, of: pa.DataType) -> pa.Array:
        values = [one.get(name) for one in given]
        if not pa.types.is_decimal(of):
            return pa.array(values, of)
        return pa.array([value if value is None else int(value) for value in values], pa.uint64())

    return to_frame(pa.table({field.name: column(field.name, field.type) for field in table.arrow}))


def rows_of(table: pl.DataFrame) -> list[Row]:
    """Returns the rows of a table, with their columns as attributes."""
    return [SimpleNamespace(**one) for one in table.to_dicts()]


def arrival(order: int, number: int, **columns: Any) -> dict[str, Any]:
    """Returns a row of VERDICTS for the message with a number, accepted with its predecessor in place."""
    row: dict[str, Any] = {
        "scope_key": "queue s q",
        "source_queue_manager": "s",
        "session_id": "a->b",
        "stream_id": "a>",
    }
    row |= {"stream_id": "a>", "stream_offset": order * 10, "replay_order": order}
    row |= {"captured_ns": order, "captured_at": T0 // 1000}
    row |= {"tx_sequence_id": 7, "tx_sequence_number": number, "previous_tx_sequence_number": number - 1}
    row |= {"incoming_tx_sequence_id": 7, "incoming_tx_sequence_number": number - 1, "message_id": f"s\\{number}"}
    row |= {"accepted": True, "verdict": "in_order", "evidence": "none", "gap_size": 0, "reject_count": 0}
    return row | {"assumed": False, "missing_runs": 0, "behind_gap": False, "content_hash": 1} | columns


def fates_of(verdicts: pl.DataFrame) -> Fates[pl.DataFrame]:
    """Returns what became of the messages in VERDICTS, of which no stream is known."""
    engine, sources = InProcess(), Tables().sources()
    settled = nothing_settled(engine, sources.messages, frame(ENDS, []))
    return find_fates(engine, verdicts, unite(engine, sources), sources.packets, settled)


class Replayed:
    """What the replay finds in tables: each part of it when it is asked for, and then only once."""

    def __init__(self, sources: Sources[pl.DataFrame], reading: Reading, scope: Scope, *, unites: bool) -> None:
        self.engine, self.sources, self.reading, self.scope = InProcess(), sources, reading, scope
        self._unites = unites

    @cached_property
    def once(self) -> Conversations[pl.DataFrame]:
        """The sources with each conversation once, or just as they are."""
        given = self.sources
        streams = given.streams.drop("attempt", "copy_of")
        tables = (given.messages, streams, given.stream_gaps, given.quarantine, given.acks, given.handshakes)
        return unite(self.engine, given) if self._unites else Conversations(self.engine, *tables)

    @cached_property
    def inputs(self) -> Inputs[pl.DataFrame]:
        """What verdicts depend on, ENDS among it."""
        return read_inputs(self.engine, self.sources, self.once, self.scope)

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        """VERDICTS."""
        return self.judge(self.inputs)

    def judge(self, inputs: Inputs[pl.DataFrame]) -> pl.DataFrame:
        """Returns VERDICTS of these inputs."""
        before = self.sources.states_before
        settled = nothing_settled(self.engine, self.once.messages, inputs.flows)
        return self.once.restore(judge_messages(self.engine, inputs, settled, before, self.accept, self.reading))

    def accept(self, chains: pl.DataFrame) -> pl.DataFrame:
        """Adds the receiver's state before each chain, by the fold."""
        self.chains = chains
        return accept_by_fold(self.engine, self.reading)(chains)

    @cached_property
    def fates(self) -> Fates[pl.DataFrame]:
        """What became of messages and numbers."""
        return find_fates(self.engine, self.verdicts, self.once, self.sources.packets, self._settled)

    @property
    def _settled(self) -> Settled[pl.DataFrame]:
        return nothing_settled(self.engine, self.once.messages, self.inputs.flows)

    @cached_property
    def _sums(self) -> dict[str, pl.DataFrame]:
        told = None if self.reading is Reading.LITERAL else self.fates
        tallies = (
            told.tallies if told else self.engine.one(partial(tally, reading=Reading.LITERAL), verdicts=self.verdicts)
        )
        return add_up(self.engine, self.sources, self.once, self.inputs, tallies, told, self.scope)

    @property
    def sequences(self) -> pl.DataFrame:
        """SEQUENCES."""
        return self._sums["sequences"]

    @property
    def sessions(self) -> pl.DataFrame:
        """SESSIONS."""
        return self._sums["sessions"]

    @property
    def states(self) -> pl.DataFrame:
        """STATES."""
        return self._sums["states"]

    @cached_property
    def transactions(self) -> pl.DataFrame:
        """TRANSACTIONS, whose witnesses are keys."""
        return find_transactions(self.engine, self.verdicts, self.fates)

    @cached_property
    def _acks(self) -> pl.DataFrame:
        tallies, once = self.fates.tallies, self.once
        used = self.engine.one(crowded, flows=tallies)
        return pair(self.engine, once.counted(self.sources.acks), self.inputs.every_end, tallies, used)

    @cached_property
    def findings_on_messages(self) -> pl.DataFrame:
        """The findings that are made of verdicts alone."""
        watched = watch(self.engine, self.inputs, self._acks, self.fates.tallies)
        resumed = self._settled.resumed
        return find_on_messages(self.engine, self.verdicts, self.verdicts, watched, self.fates, resumed)

    @cached_property
    def findings(self) -> pl.DataFrame:
        """FINDINGS without incidents, whose witnesses are keys."""
        by_facts = find_by_facts(
            self.engine,
            self.sources,
            self.once,
            self.inputs,
            self.verdicts,
            self._acks,
            self.fates,
            self.sequences,
            self.transactions,
        )
        return self.engine.union(self.findings_on_messages, by_facts)

    @cached_property
    def explained(self) -> Explained[pl.DataFrame]:
        """OUTCOMES, FINDINGS and INCIDENTS, whose witnesses are keys."""
        return put_together(self.engine, self.verdicts, self.fates.undelivered, self.findings, self.sequences)

    @cached_property
    def proven(self) -> Explained[pl.DataFrame]:
        """OUTCOMES, FINDINGS and INCIDENTS, whose witnesses are packets."""
        return with_proof(self.engine, self.sources, self.verdicts, self.explained)


def replay(
    sources: Sources[pl.DataFrame], *, reading: Reading = Reading.CONFORMANT, scope: Scope = Scope.AUTO
) -> Replayed:
    """Returns what the replay finds in tables that hold no conversation twice, as it does not look for those here."""
    return Replayed(sources, reading, scope, unites=False)


def replay_once(sources: Sources[pl.DataFrame]) -> Replayed:
    """Returns what the replay finds in tables in which conversations may be twice."""
    return Replayed(sources, Reading.CONFORMANT, Scope.AUTO, unites=True)


def replay_all(sources: Sources[pl.DataFrame], batch_rows: int = 10_000) -> dict[str, pl.DataFrame]:
    """Returns all tables that a replay writes, by name; its passes get batches of so many rows."""
    engine, options = InProcess(batch_rows), Options()
    write_all(engine, sources, unite(engine, sources), accept_by_fold(engine, options.reading), options)
    return engine.tables


def states_after(replayed: Replayed) -> dict[str, tuple[Any, ...]]:
    """Returns of STATES by scope: ID, number, reject count, messages, latest time."""
    columns = ("tx_sequence_number", "reject_count", "messages", "last_captured_ns")
    return {
        one["scope_key"]: (int(one["tx_sequence_id"]), *(one[name] for name in columns))
        for one in replayed.states.to_dicts()
    }


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


def fates(verdicts: pl.DataFrame) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Returns the fate of each message by its key."""
    columns = verdicts.select("stream_id", "stream_offset", *FATE).iter_rows()
    return {(stream, offset): tuple(fate) for stream, offset, *fate in columns}


def compare_nights(
    about: str | None,
    night: Callable[[random.Random, int], Tables],
    largest: int,
    differences: Callable[[Tables], Iterator[tuple[str, list[Any]]]],
) -> None:
    """Compares as many messages as the command line says, in nights; prints what differs, and then exits with 1."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("messages", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--night", type=int, default=largest, help="messages of one night")
    options = parser.parse_args()
    began, judged, wrong = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + -(-options.messages // options.night)):
        tables = night(random.Random(seed), min(options.night, options.messages))
        judged += len(tables.rows["messages"])
        for mode, differing in differences(tables):
            wrong += len(differing)
            print(f"seed {seed}, {mode}: {len(differing)} differ", *differing[:5], sep="\n", flush=True)  # noqa: T201
    print(f"{judged} messages, {wrong} differ, {time.monotonic() - began:.0f} s")  # noqa: T201
    sys.exit(wrong > 0)
