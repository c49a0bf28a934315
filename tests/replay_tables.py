"""Tables that the replay reads, made of rows, and what it finds in them; replayed in this process, without Spark."""

from types import SimpleNamespace
from typing import Any, TypeAlias

import polars as pl
from plain_finding import Finding
from replayer import Fate, Key
from table_frames import rows_of

from jobs.engines.in_process import InProcess
from schemas.replay import FindingKind, Reading, Scope
from schemas.table import Table
from udfs.replay.flow import Options
from udfs.replay.flow import replay as replay_flow
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import SOURCES, Sources

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
        """Adds a stream, a copy of no other; its name ends in > if its sender is the initiator, otherwise in <."""
        row: dict[str, Any] = {"stream_id": stream_id, "connection_id": stream_id.rstrip("<>")}
        row |= {"src_ip": src, "dst_ip": dst, "initial_seq": len(self.rows["streams"])}
        row |= {"from_initiator": not stream_id.endswith("<"), "mid_stream": False, "missing_bytes": 0}
        row |= {"recovered_bytes": 1000, "first_captured_at": T0 // 1000, "last_captured_at": T0 // 1000}
        self.rows["streams"].append(row | columns)

    def connection(self, name: str, src: str, dst: str, **columns: Any) -> None:
        """Adds both streams of a connection from one address to another."""
        self.stream(f"{name}>", src, dst, **columns)
        self.stream(f"{name}<", dst, src, **columns)

    def unread(self, stream: str, offset: int, length: int = 1, stage: str | None = None) -> None:
        """Adds a range of bytes that no capture holds, or that is in quarantine from a stage."""
        row = {"stream_id": stream, "stream_offset": offset, "length": length}
        self.rows["quarantine" if stage else "stream_gaps"].append(row | ({"stage": stage} if stage else {}))

    def message(self, key: tuple[str, int], ns: int | None, tx: tuple[int, int, int], **columns: Any) -> None:
        """Adds a message at (stream, offset) with (ID, number, previous)."""
        row = {"captured_ns": ns, "captured_at": ns and ns // 1000, "capture_id": "c", "first_frame": 1}
        row |= {"last_frame": 1, "source_queue_manager": "source", "queue_manager_address": NULL}
        row |= {"destination_queue": "queue", "message_id": f"source\\{tx[1]}", "transactional": True}
        row |= {"message_class": 0, "time_to_reach_queue": None, "time_to_be_received": None}
        row |= {"stream_id": key[0], "stream_offset": key[1], "tx_sequence_id": tx[0], "tx_sequence_number": tx[1]}
        self.rows["messages"].append(row | {"previous_tx_sequence_number": tx[2]} | columns)

    def ack(self, stream_id: str, ns: int, tx: tuple[int, int], **columns: Any) -> None:
        """Adds an OrderAck of (ID, number)."""
        row: dict[str, Any] = {"stream_id": stream_id, "stream_offset": ns, "captured_ns": ns}
        row["captured_at"] = ns // 1000
        row |= {"ack_type": "order_ack", "source_queue_manager": "receiver", "queue_manager_address": NULL}
        self.rows["acks"].append(row | {"tx_sequence_id": tx[0], "tx_sequence_number": tx[1]} | columns)

    def handshake(self, connection: str, client: str, server: str, **columns: Any) -> None:
        """Adds an EstablishConnection, which leaves the server NULL, and its response."""
        for side, named in ((">", NULL), ("<", server)):
            row: dict[str, Any] = {"stream_id": connection + side, "stream_offset": 0, "captured_ns": T0}
            row["handshake_type"] = "establish_connection"
            self.rows["handshakes"].append(row | {"client_guid": client, "server_guid": named} | columns)

    def sources(self) -> Sources[pl.DataFrame]:
        """Returns the tables."""
        return Sources(**{name: rows_of(table, *self.rows[name]) for name, table in TABLES.items()})


def attributes_of(table: pl.DataFrame) -> list[Row]:
    """Returns the rows of a table, with their columns as attributes."""
    return [SimpleNamespace(**one) for one in table.to_dicts()]


def plain(rows: pl.DataFrame) -> list[Row]:
    """Returns rows with whole numbers for timestamps (µs since 1970)."""
    return rows.with_columns(pl.selectors.datetime().dt.timestamp("us")).to_dicts()


def with_keys(row: Row) -> Row:
    """Returns a row whose witness lists keys, in place of packets."""
    packets = row.get("witness") or []
    keys = [one if isinstance(one, str) else f"{one['stream_id']}@{one['stream_offset']}" for one in packets]
    return row | {"witness": keys} if "witness" in row else row


def finding_of(row: Row) -> Finding:
    """Returns a row of FINDINGS as the second computation tells it."""
    values: dict[str, Any] = {name: row[name] for name in Finding._fields}
    return Finding(**values | {"kind": FindingKind(row["kind"]), "witness": tuple(row["witness"])})


class Replayed:
    """Holds the tables that one replay writes, by their names as attributes, and what it made them of."""

    def __init__(self, sources: Sources[pl.DataFrame], options: Options, batch_rows: int) -> None:
        engine = InProcess(batch_rows)
        self.sources = sources
        replay_flow(unite(engine, sources), options, add_states=self._note)
        self.tables: dict[str, pl.DataFrame] = engine.tables

    def _note(self, chains: pl.DataFrame) -> pl.DataFrame:
        self.chains = chains
        return chains

    def __getattr__(self, name: str) -> pl.DataFrame:
        return self.tables[name]


def replay(
    sources: Sources[pl.DataFrame],
    *,
    reading: Reading = Reading.CONFORMANT,
    scope: Scope = Scope.AUTO,
    batch_rows: int = 10_000,
) -> Replayed:
    """Replays tables in this process; passes get batches of so many rows."""
    return Replayed(sources, Options(reading, scope), batch_rows)


def fates(verdicts: pl.DataFrame) -> dict[Key, Fate]:
    """Returns the fate of each message by its key."""
    columns = verdicts.select("stream_id", "stream_offset", *Fate._fields).iter_rows()
    return {(stream, offset): Fate(*fate) for stream, offset, *fate in columns}
