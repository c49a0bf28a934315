"""What a replay derives is the same in this process and on Spark, from the same tables."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from test_offsets import by_direction, in_two
from tiers import merge_needs
from warehouses import config, looked_at

from jobs.engines import on_spark
from jobs.engines.in_process import InProcess, conform
from jobs.engines.on_spark import OnSpark, Rows
from jobs.engines.parcels import PARCEL
from jobs.simulator import simulate
from jobs.tables.in_folder import InFolder
from jobs.tables.parquet_files import FILE
from jobs.tables.spark_rows import collect, to_spark, with_columns_of
from jobs.tables.tasks import Made
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, PACKETS, STREAM_GAPS, STREAMS
from schemas.judging import PIECE_BYTES
from schemas.messages import MESSAGES
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS, Scope
from schemas.table import LONG, STRING, TIMESTAMP, U64, RowType, Table, array, row
from udfs.frames.columns import PLACE
from udfs.frames.derivation import Derivation, Frames, Work, to_frame
from udfs.frames.engine import Engine, T
from udfs.frames.tables import schema_of
from udfs.replay.fitness.counts import FILLED
from udfs.replay.fitness.flow import filled_rows
from udfs.replay.flow import Options, replay
from udfs.replay.order.conversations import Conversations, unite
from udfs.replay.order.sources import SOURCES, read_sources

WRITTEN = (VERDICTS, ENDS, TRANSACTIONS, OUTCOMES, MESSAGE_HISTORY, FINDINGS, INCIDENTS, SEQUENCES, SESSIONS)
LOST = 0.1
"""Share of messages that each end lacks."""
NIGHTS: dict[str, dict[str, Any]] = {
    "copies, clock steps and gaps": {"both_ends": True, "clock_step_s": -5.0, "loss": 0.01},
    "copies from the middle of connections": {"both_ends": True, "loss": 0.02, "begins_s": 20},
    "routers": {"situations": True},
    "gaps": {"loss": 0.05, "disorder": 0.4},
    "damaged segments": {"situations": True, "is_damaged": True},
    "two clocks": {"clocks_differ_s": 6, "disorder": 0.4, "file_bytes": 1 << 40},
    "clocks of two directions": {"clocks_differ_s": -2, "cut": by_direction, "file_bytes": 1 << 40},
}


@dataclass(frozen=True, slots=True)
class InMemory(OnSpark):
    """Has tables in memory only."""

    tables: Frames = field(default_factory=dict)
    buckets = 3

    def read(self, table: Table, *columns: str) -> Rows:
        """Returns the table's rows as a table in a store has them."""
        return Made.of(to_spark(self.warehouse.spark, self.tables[table.name])).select(*(columns or table.names))

    def replace(self, table: Table, rows: Rows) -> None:
        """Replaces the table's rows."""
        self.tables[table.name] = collect(with_columns_of(table, self.as_spark(rows)))

    def replace_by(self, table: Table, work: Work | Derivation, *others: Rows, **tables: Rows) -> None:
        """Replaces the table's rows by those that a function derives, and others."""
        self.replace(table, self.union(self.derive(work, **tables), *others))


@dataclass(frozen=True)
class InBuckets(OnSpark):
    """Has several buckets, though there are few rows."""

    buckets = 3


def in_memory(spark: SparkSession, tables: Frames) -> InMemory:
    """Returns an engine on Spark that has these tables."""
    return InMemory(InFolder(spark, "unused"), tables=dict(tables))


def night(
    folder: Path,
    *,
    clocks_differ_s: int = 0,
    cut: Callable[[Path, int], object] = in_two,
    is_damaged: bool = False,
    **options: Any,
) -> InProcess:
    """Returns the tables of a simulated night."""
    simulate(str(folder), 5, 300, **options)
    if clocks_differ_s:
        (capture,) = folder.glob("*.pcap")
        cut(capture, clocks_differ_s)
    engine = looked_at(config(folder, folder / "*.pcap"))
    blank = engine.read(CAPTURES).with_columns(pl.lit(None).alias(name) for name in FILLED)
    engine.replace(CAPTURES, blank.cast(schema_of(CAPTURES.arrow)))
    if options.get("both_ends"):
        _lose_packets(engine)
    if is_damaged:
        _damage_resends(engine)
    return engine


def _damage_resends(engine: InProcess) -> None:
    """Gives every third arrival of what was sent again another body and label, as damaged bytes may."""
    messages = engine.read(MESSAGES).sort("captured_ns", "stream_id", "stream_offset")
    is_hit = pl.col("transactional") & (pl.len().over("message_id") > 1) & (pl.int_range(pl.len()) % 3 == 0)
    damaged = {"body_crc32": pl.col("body_crc32").fill_null(0) ^ 1, "label": pl.lit("?"), "damaged": pl.lit(value=True)}
    hit = {name: pl.when(is_hit).then(of).otherwise(name).alias(name) for name, of in damaged.items()}
    engine.replace(MESSAGES, messages.with_columns(**hit).cast(schema_of(MESSAGES.arrow)))
    engine.replace(CAPTURES, engine.read(CAPTURES).with_columns(damaged_count=pl.lit(1, pl.Int64)))


def _lose_packets(engine: InProcess) -> None:
    """Takes some messages away: a simulated capture lacks nothing that the one of the other end has."""
    rng = Random(1)
    packets = engine.read(PACKETS).to_dicts()
    lost = {
        (one["stream_id"], one["stream_offset"]): one["size"]
        for one in packets
        if one["packet_type"] == "user_message" and rng.random() < LOST
    }
    for table in (PACKETS, MESSAGES):
        kept = [one for one in engine.read(table).to_dicts() if (one["stream_id"], one["stream_offset"]) not in lost]
        engine.replace(table, engine.table(kept, table.arrow))
    gaps = [{"stream_id": stream, "stream_offset": at, "length": size} for (stream, at), size in lost.items()]
    engine.replace(STREAM_GAPS, engine.union(engine.read(STREAM_GAPS), engine.table(gaps, STREAM_GAPS.arrow)))
    streams = engine.read(STREAMS).to_dicts()
    for one in streams:
        size = sum(gap["length"] for gap in gaps if gap["stream_id"] == one["stream_id"])
        one |= {"missing_bytes": one["missing_bytes"] + size, "recovered_bytes": one["recovered_bytes"] - size}
    engine.replace(STREAMS, engine.table(streams, STREAMS.arrow))


def replayed(engine: Engine[T], options: Options) -> Conversations[T]:
    """Replays the tables of an engine, and returns what was captured twice."""
    united = unite(engine, read_sources(engine))
    replay(united, options)
    return united


def counted(rows: pl.DataFrame) -> Counter[str]:
    """Returns the rows, in no order."""
    return Counter(map(repr, rows.to_dicts()))


NESTED = row(
    key=STRING,
    number=U64,
    at=TIMESTAMP,
    parts=array(row(name=STRING, length=LONG)),
    inner=row(big=U64, names=array(STRING)),
)


def _rows(keys: list[str | None]) -> Iterator[dict[str, Any]]:
    for at, key in enumerate(keys):
        part = {"name": None if at % 2 else key, "length": at}
        inner = None if at % 3 else {"big": None if at else (1 << 64) - 1, "names": [key, None]}
        yield {"key": key, "number": (1 << 64) - at if at else None, "parts": [part] * (at % 3), "inner": inner}


def _deriving() -> Callable[..., Frames]:
    """Returns a work that Spark's workers get by its value: they know no tests."""

    def derive(left: pl.DataFrame, right: pl.DataFrame, few: pl.DataFrame) -> Frames:
        """Returns rows as they are, joined rows, one row per call that has few, and nothing at all."""
        both = left.select("key", "number").join(right, on="key", how="left", nulls_equal=True)
        return {
            "left": left,
            "both": both.with_columns(few=pl.lit(few.height), is_flag=pl.col("number") > 1, none=pl.lit(None)),
            "nothing": right.clear(),
            "sums": left.group_by("key").agg(pl.len(), pl.col("inner").struct.field("big").max(), pl.col("at").max()),
        }

    return derive


def derived(engine: Engine[T], derivation: Derivation, *tables: T) -> dict[str, T]:
    """Derives tables from left, right and few."""
    return engine.derive_tables(derivation, **dict(zip(("left", "right", "few"), tables, strict=True)))


WAYS = ((("key",), 0), ((), 0), ((), 100))
"""By which column rows are derived, and of how few that is done in this process."""
ROWS: tuple[tuple[list[str | None], list[str | None]], ...] = (
    (["a", "b", None, "b", "a", None, "c"], ["a", None, "d"]),
    (["a"], []),
    ([], ["a"]),
    ([None] * 4, [None]),
    ([], []),
)


@pytest.mark.parametrize(
    ("by", "few_rows", "left", "right"),
    merge_needs(
        [(*WAYS[0], *ROWS[0]), (*WAYS[1], *ROWS[4])],
        ((*way, *rows) for way in WAYS for rows in ROWS),
    ),
)
def test_both_engines_derive_the_same(
    spark: SparkSession,
    by: tuple[str, ...],
    few_rows: int,
    left: list[str | None],
    right: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of few rows without groups, the engine on Spark derives in this process, too."""
    monkeypatch.setattr(on_spark, "_FEW_ROWS", few_rows)
    derivation = Derivation(_deriving(), by, ("few",), {"right": ("key", "value")})
    of_right, of_few = row(key=STRING, value=LONG, unused=STRING), row(name=STRING)
    rows: list[tuple[list[dict[str, Any]], RowType]] = [
        (list(_rows(left)), NESTED),
        ([{"key": key, "value": at, "unused": "x"} for at, key in enumerate(right)], of_right),
        ([{"name": "one"}] if left else [], of_few),
    ]
    tables = [to_frame(pa.Table.from_pylist(*one)) for one in rows]
    expected = derived(InProcess(), derivation, *tables)
    engine = in_memory(spark, {})
    found = engine.collect(**derived(engine, derivation, *(to_spark(spark, table) for table in tables)))
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert found[name].columns == table.columns
        assert counted(found[name]) == counted(table), name


def test_what_a_derivation_makes_goes_below_rows_of_a_table(spark: SparkSession) -> None:
    same = Derivation(lambda rows: rows, ("capture_id",))
    clock = pl.Series("clock_steps", [[{"frame": 1, "step_ns": -5}], None], schema_of(CAPTURES.arrow)["clock_steps"])
    given = pl.DataFrame({"capture_id": ["a", "b"], "uri": ["x", "y"], "size_bytes": [1, 2], "clock_steps": clock})
    here, there, table = InProcess(), in_memory(spark, {}), to_spark(spark, given)
    found = there.union(table, there.derive(same, rows=table))
    assert counted(collect(found)) == counted(here.union(given, here.derive(same, rows=given)))


def _combined(engine: Engine[T], few: pl.DataFrame) -> dict[str, T]:
    """Returns rows of MESSAGES after each operation that tasks do with rows of files."""
    rows = engine.with_piece(engine.where(engine.read(MESSAGES), "transactional"))
    return {
        "narrow": engine.select(rows, "piece", "message_id", from_stream="stream_id"),
        **{how: engine.join(rows, few, ["stream_id"], how) for how in ("inner", "left", "semi", "anti")},
        "many": engine.join(rows, engine.read(MESSAGES, "stream_id", "stream_offset"), PLACE, "semi"),
        "both": engine.union(rows, few),
        "last_sent": engine.derive(Derivation(_last_sent(), ("stream_id",)), rows=rows, few=few),
    }


def _last_sent() -> Callable[..., pl.DataFrame]:
    return lambda rows, few: (
        rows.join(few, on="stream_id").group_by("stream_id", "mark").agg(pl.max("sent_at"), pl.len())
    )


@pytest.mark.slow
def test_spark_does_with_rows_of_files_what_this_process_does(spark: SparkSession, tmp_path: Path) -> None:
    here = night(tmp_path / "night", situations=True)
    warehouse = InFolder(spark, str(tmp_path / "tables"))
    warehouse.create(MESSAGES)
    for half in here.read(MESSAGES).iter_slices(here.read(MESSAGES).height // 2 + 1):
        warehouse.append(MESSAGES, half)
    there = InBuckets(warehouse)
    few = here.read(MESSAGES).select("stream_id").unique().head(3).with_columns(mark=pl.lit("few"))
    expected, found = _combined(here, few), there.collect(**_combined(there, few))
    for name, rows in expected.items():
        assert rows.height
        assert counted(found[name].select(rows.columns)) == counted(rows), name


def _halved() -> Callable[..., pl.DataFrame]:
    return lambda gaps: gaps.select("length", *STREAM_GAPS.names[:2], *STREAM_GAPS.names[3:]).with_columns(
        pl.col("length") // 2
    )


def test_a_task_that_makes_rows_of_a_table_writes_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gets no row of them; others may come beside them."""
    warehouse = InFolder(spark, str(tmp_path))
    warehouse.create(STREAM_GAPS)
    lengths = pl.DataFrame({"stream_id": list("abcd"), "stream_offset": range(4), "length": [2, 4, 6, 8]})
    given = conform(lengths, STREAM_GAPS)
    other = given.head(1).with_columns(stream_id=pl.lit("e"))
    handed, rows_of = list[tuple[str, ...]](), Made.rows

    def noted(made: Made) -> DataFrame:
        handed.append(tuple(made.schema.names))
        return rows_of(made)

    monkeypatch.setattr(Made, "rows", noted)
    work = Derivation(_halved(), ("stream_id",))
    InBuckets(warehouse).replace_by(STREAM_GAPS, work, other, gaps=to_spark(spark, given))
    expected = pl.concat([given.with_columns(pl.col("length") // 2), other])
    assert warehouse.read_local(STREAM_GAPS).sort("stream_id").equals(expected)
    assert set(handed) == {tuple(PARCEL.names), tuple(FILE.names)}


def test_a_piece_of_a_stream_may_lie_before_its_beginning(spark: SparkSession) -> None:
    """A copy of a stream may have been captured from earlier on."""
    given = pl.DataFrame({"stream_offset": [-PIECE_BYTES - 1, -PIECE_BYTES, -1, 0, PIECE_BYTES]})
    here, there = InProcess(), in_memory(spark, {})
    assert here.with_piece(given)["piece"].to_list() == [-2, -1, -1, 0, 1]
    assert collect(there.with_piece(to_spark(spark, given)))["piece"].to_list() == [-2, -1, -1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NIGHTS)
def test_both_engines_replay_a_night_alike(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    here = night(tmp_path, **NIGHTS[kind])
    there = in_memory(spark, {table.name: here.read(table) for table in SOURCES})
    options = Options(scope=Scope.SESSION) if kind == "gaps" else Options()
    united = replayed(here, options)
    if NIGHTS[kind].get("both_ends"):
        assert united.found is not None
        assert united.found.placed.height
        assert united.found.skews is not None
    else:
        assert united.found is None
    assert united.has_steps is ("clock" in kind)
    assert united.clocks_differ is ("clocks" in kind)
    once_there = replayed(there, options)
    for table in WRITTEN:
        assert counted(there.tables[table.name]) == counted(here.read(table)), table.name
    filled, expected = filled_rows(once_there), filled_rows(united)
    assert filled.keys() == expected.keys()
    assert expected[CAPTURES].height == here.read(CAPTURES).height
    for table, rows in expected.items():
        assert counted(there.collect(rows=filled[table])["rows"]) == counted(rows)
