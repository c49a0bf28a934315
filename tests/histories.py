"""Nights one after another in this process, each of which judges only what the last one did not settle."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from random_troubles import step_back, troubled
from replay_tables import T0
from table_frames import rows_of

from jobs.cli.config import DEFAULTS
from jobs.engines.in_process import InProcess
from jobs.engines.on_spark import FEW
from jobs.simulator import simulate
from schemas.ingest import PACKETS, QUARANTINE
from schemas.messages import DECODED_TABLES
from schemas.replay import VERDICTS, Reading, Scope
from schemas.table import Table
from schemas.tables import INGESTED, REPLAYED, TABLES
from udfs.decode.flow import decode_table, quarantine_of
from udfs.frames.columns import SEQUENCE
from udfs.ingest import flow
from udfs.replay.flow import Options, replay
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import read_sources

Tables = dict[str, pl.DataFrame]
Row = dict[str, Any]
_MANY = {table.name for table in TABLES if table not in FEW}
_NIGHT_NS = 60_000_000_000
SITUATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"situations": True},
    {"situations": True, "clock_step_s": -5},
    {"largest_sender": 0.5},
    {"largest_sender": 0.5, "clock_step_s": -60},
    {"situations": True, "both_ends": True},
)
"""Options of the simulator."""


@dataclass
class History:
    """Holds what the nights so far have left."""

    scope: Scope = Scope.AUTO
    reading: Reading = Reading.CONFORMANT
    ingested: Tables = field(default_factory=dict)
    sources: Tables = field(default_factory=dict)
    replayed: Tables = field(default_factory=dict)
    lazy: bool = False
    """Whether rows of large tables are read when they are needed."""
    nights: int = 0
    judged: int = 0
    """How many messages were judged so far, each time counted."""
    judged_last: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The messages that the last night judged, by stream and offset."""

    def night(self, *captures: Path) -> Tables:
        """Reads captures, and replays; returns what the replay made."""
        engine = InProcess(tables=dict(self.ingested))
        for table in INGESTED:
            engine.read(table)
        new = flow.find_new_captures(engine, [str(one) for one in captures], DEFAULTS.ingest)
        flow.ingest(engine, new, DEFAULTS.ingest, lambda: None)
        self.ingested = dict(engine.tables)
        return self.go_on(self._decoded())

    def go_on(self, sources: Tables) -> Tables:
        """Replays sources that may differ from those of the last night in any way; returns what the replay made."""
        before, self.sources, self.nights = self.sources, sources, self.nights + 1
        last = _Last(self._held(self.replayed), before, self.sources) if self.replayed else None
        made, gone = self.replay(last)
        self.judged_last = made[VERDICTS.name].select("stream_id", "stream_offset")
        self.judged += self.judged_last.height
        for table, sequences in gone.items():
            kept = self.replayed[table.name].join(sequences, on=SEQUENCE, how="anti", nulls_equal=True)
            made[table.name] = pl.concat([kept, made[table.name]])
        self.replayed = made
        return made

    def _decoded(self) -> Tables:
        packets = self.ingested[PACKETS.name]
        tables = {table.name: decode_table(InProcess(), packets, table, None) for table in DECODED_TABLES}
        undecodable = quarantine_of(InProcess(), packets, 0)
        tables[QUARANTINE.name] = pl.concat([self.ingested[QUARANTINE.name], undecodable])
        return self.ingested | tables

    def replay(self, last: "_Last | None") -> tuple[Tables, Mapping[Table, pl.DataFrame]]:
        """Replays the sources as they are."""
        engine = InProcess(tables=self._held(self.sources))
        options = Options(self.reading, self.scope)
        gone = replay(unite(engine, read_sources(engine)), options, last)
        return {table.name: engine.read(table) for table in REPLAYED}, gone

    def _held(self, tables: Tables) -> dict[str, Any]:
        """Returns the tables as an engine holds them."""
        return {name: rows.lazy() if self.lazy and name in _MANY else rows for name, rows in tables.items()}


@dataclass
class _Last:
    """Implements LastReplay over tables in memory."""

    replayed: dict[str, Any]
    before: Tables
    now: Tables

    def read(self, table: Table, *columns: str) -> Any:
        rows = self.replayed[table.name]
        return rows.select(list(columns)) if columns else rows

    def changes(self, table: Table, *columns: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        names = list(columns)
        before, now = (tables[table.name].select(names) for tables in (self.before, self.now))
        engine = InProcess()
        return engine.join(now, before, names, "anti"), engine.join(before, now, names, "anti")


def differences(found: Tables, expected: Tables) -> Iterator[str]:
    """Yields the tables that differ, with some rows that only one has."""
    for name, rows in expected.items():
        one, other = found[name], rows
        lists = [(column, of) for column, of in one.schema.items() if isinstance(of, pl.List | pl.Struct)]
        one, other = (
            each.with_columns(pl.col(column).map_elements(repr, pl.String) for column, _ in lists)
            for each in (one, other)
        )
        if not one.sort(one.columns).equals(other.sort(one.columns)):
            more = one.join(other, on=one.columns, how="anti", nulls_equal=True).head(2).to_dicts()
            less = other.join(one, on=one.columns, how="anti", nulls_equal=True).head(2).to_dicts()
            columns = [of for of in one.columns if more and less and more[0][of] != less[0][of]]
            yield f"{name}: {one.height} rows for {other.height}, {columns}\n  has {more}\n  not {less}"


def differences_after(history: History, made: Tables) -> Iterator[str]:
    """Yields what a replay of all makes otherwise than a night; the first night is such a replay."""
    if history.nights > 1:
        expected, _ = history.replay(None)
        yield from differences(made, expected)


def simulated(folder: Path, seed: int) -> list[Path]:
    """Returns captures of a simulated traffic, in the order of their time: whole, or with bytes missing."""
    rng = random.Random(seed)
    options: dict[str, Any] = rng.choice(SITUATIONS) | {"loss": rng.choice([0.0, 0.0, 0.005, 0.03])}
    whole = rng.random() < 0.7
    options |= {} if whole else {"begins_s": rng.randrange(60, 600), "ends_s": rng.randrange(1_200, 4_000)}
    size = rng.choice([40_000, 150_000])
    simulate(str(folder), seed, rng.choice([100, 300, 600]), bodies=(10, 200), file_bytes=size, **options)
    return sorted(folder.glob("*.pcap*"))


def cut(rng: random.Random, captures: Sequence[Path]) -> list[list[Path]]:
    """Returns nights: captures in their order but for some that come late, cut anywhere, some given again."""
    order = sorted(range(len(captures)), key=lambda at: at + (rng.randrange(1, 9) if rng.random() < 0.15 else 0))
    nights: list[list[Path]] = [[]]
    for at in order:
        if nights[-1] and rng.random() < 0.6:
            nights.append([])
        nights[-1].append(captures[at])
    return nights


def of_captures(seed: int) -> Iterator[str]:
    """Yields what differs, after each night of a history, from what a replay of all its captures makes."""
    rng = random.Random(seed)
    history = History(rng.choice([Scope.AUTO, Scope.AUTO, Scope.SESSION, Scope.QUEUE]), lazy=seed % 2 == 0)
    with TemporaryDirectory() as folder:
        for night in cut(rng, simulated(Path(folder), seed)):
            yield from differences_after(history, history.night(*night))


def of_rows(seed: int) -> Iterator[str]:
    """Yields the same of a history in which rows of the sources come, change and go as they never would."""
    rng = random.Random(seed)
    history = History(rng.choice(list(Scope)), lazy=seed % 2 == 0)
    tables = troubled(rng, rng.choice([10, 40, 120]))
    rows = tables.rows
    nights = rng.randrange(2, 6)
    begins = {id(row): first_night(rng, row, nights) for of in rows.values() for row in of}
    begins |= {id(row): 0 for row in rows["captures"]}  # a capture comes no later than its packets
    if rng.random() < 0.3:
        step_back(rng, tables)
    ends = {id(row): rng.randrange(nights) if rng.random() < 0.03 else nights for of in rows.values() for row in of}
    for night in range(nights):
        there = {
            name: [row for row in of if name == "streams" or begins[id(row)] <= night < ends[id(row)]]
            for name, of in rows.items()
        }
        there["streams"] = [as_of(row, begins[id(row)] <= night) for row in there["streams"]]
        made = history.go_on({name: rows_of(name, *of) for name, of in there.items()})
        yield from differences_after(history, made)


def first_night(rng: random.Random, row: Row, nights: int) -> int:
    """Returns the night in which a row comes: rows with a time in its order, but for some."""
    ns = row.get("captured_ns")
    if ns is None or rng.random() < 0.1:
        return rng.randrange(nights)
    return min(int((ns - T0) / _NIGHT_NS), nights - 1)


def as_of(row: Row, is_whole: bool) -> Row:
    """Returns a row of STREAMS, which tells less while a connection goes on."""
    return row if is_whole else row | {"closed": False, "acked_bytes": None}
