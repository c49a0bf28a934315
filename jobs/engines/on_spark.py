"""Runs steps on Spark, over the tables of a warehouse, and in this process what they do with few rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce, wraps
from typing import Any, TypeAlias, TypeVar, cast

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import StructType

from jobs.engines.in_process import MANY_ROWS, InProcess, conform
from jobs.engines.parcels import PARCEL, pack, unpack
from jobs.engines.processes import Processes
from jobs.tables.spark_rows import (
    MOST_ROWS,
    cast_columns,
    checkpoint,
    nullable,
    timestamp,
    to_spark,
    with_columns_of,
)
from jobs.tables.tasks import Made, tasks, to_frames
from jobs.tables.warehouse import Warehouse
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.judging import PIECE_BYTES
from schemas.messages import HANDSHAKES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS
from schemas.staging import TIMES
from schemas.table import RowType, Table, row, row_type, spark_schema
from schemas.tallies import FINDINGS_ON_MESSAGES, TALLIES
from udfs.frames.derivation import ONE, Derivation, Frames, Work, is_only_one, stacked, to_frame, untagged
from udfs.frames.engine import Engine, How, Row
from udfs.frames.rows import Batches, Pass
from udfs.frames.tables import schema_of

Rows: TypeAlias = Any
"""A DataFrame of Spark with many rows, or those that its tasks are to make; or a frame of few, in this process."""
Operation = TypeVar("Operation", bound=Callable[..., Any])
_OFTEN_EMPTY = (STREAM_GAPS, QUARANTINE)
"""Tables that a night may have no rows for: asking costs less than a commit."""
FEW = {
    *(CAPTURES, INTERNAL_CONNECTIONS, STREAMS, STREAM_GAPS, HANDSHAKES),
    *(ENDS, SEQUENCES, SESSIONS, FINDINGS, INCIDENTS, TALLIES, FINDINGS_ON_MESSAGES),
}
"""Tables with rows per connection, sequence or story: if their files are small, they are read in this process."""
_FEW_BYTES = 32 * 2**20
"""Bytes of a table's files that are few enough for this process."""
_BUCKET_ROWS = 100_000
"""There is a bucket for each so many packets."""
_BUCKETS_OF_A_TASK = 4
"""Spark hands a task all its parcels in one batch, which may not reach 2 GiB."""
_MOST_BUCKETS = 1_000
"""With more buckets, parcels of a task would have too few rows each."""
_FEW_ROWS = 500_000
"""Rows that are few enough for this process; of more, a derivation without groups is one task."""


def _dispatch_by_backend(work: Operation) -> Operation:
    """Makes an operation happen in this process if all its rows are here; else those that are go to Spark."""
    in_process = getattr(InProcess(), work.__name__)

    @wraps(work)
    def choose(self: "OnSpark", *given: Any, **named: Any) -> Any:
        if not any(isinstance(one, DataFrame | Made) for one in given):
            return in_process(*given, **named)
        return work(self, *map(self.as_spark, given), **named)

    return cast(Operation, choose)


def _row_by_row(work: Operation) -> Operation:
    """Makes an operation on rows that are still to be made happen in the tasks that make them."""
    in_process = getattr(InProcess(), work.__name__)

    @wraps(work)
    def choose(self: "OnSpark", rows: Any, *given: Any, **named: Any) -> Any:
        if isinstance(rows, Made) and all(map(_is_for_each_task, given)):
            return rows.each(lambda frame: in_process(frame, *given, **named))
        return work(self, rows, *given, **named)

    return cast(Operation, choose)


def _is_for_each_task(given: Any) -> bool:
    """Returns whether what an operation is given can be sent to each task: it is no table, or has few rows."""
    return given.height <= MOST_ROWS if isinstance(given, pl.DataFrame) else not isinstance(given, DataFrame | Made)


@dataclass(frozen=True)
class OnSpark:
    """An engine whose tables are Delta tables. Its rows are DataFrames or, where they are few, frames.

    What a derivation makes without groups are few rows, and so are the rows of some tables. Groups come together in
    buckets (`jobs.engines.parcels`).
    """

    warehouse: Warehouse
    few_bytes: bool = False
    """Whether this process reads the captures: they are few, whatever the warehouse holds."""
    processes: Processes | None = None
    """Other processes of this machine that read these captures, too."""
    handed: dict[int, tuple[pl.DataFrame | Made, DataFrame]] = field(default_factory=dict, repr=False, compare=False)
    """The rows of this process, or that tasks make, that Spark has, by the identity of the table."""

    @cached_property
    def buckets(self) -> int:
        """The number of buckets for rows of messages, so that the memory of a task holds one."""
        packets = self.warehouse.count(PACKETS)
        return _MOST_BUCKETS if packets is None else min(packets // _BUCKET_ROWS + 1, _MOST_BUCKETS)

    def as_spark(self, rows: Any) -> Any:
        """Returns rows as a DataFrame, and everything else as it is."""
        if not isinstance(rows, pl.DataFrame | Made):
            return rows
        if id(rows) not in self.handed:
            if isinstance(rows, Made):
                found = rows.rows()
            else:
                given = to_spark(self.warehouse.spark, rows)
                found = F.broadcast(given) if rows.height <= MOST_ROWS else checkpoint(given)
            self.handed[id(rows)] = rows, found
        return self.handed[id(rows)][1]

    def read(self, table: Table, *columns: str) -> Rows:
        few = self.warehouse.read_if_small(table, _FEW_BYTES, *columns) if table in FEW else None
        if few is not None:
            return few
        made = self.warehouse.read_in_tasks(table, *columns)
        if made is not None:
            return made
        return with_columns_of(table, self.warehouse.read(table, *columns)).select(*(columns or table.names))

    def table(self, rows: Sequence[Row], schema: RowType) -> pl.DataFrame:
        return InProcess().table(rows, schema)

    def run(
        self,
        rows: Rows,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> Rows:
        if isinstance(rows, pl.DataFrame) and (self.few_bytes or not parts):
            return InProcess(processes=self.processes).run(rows, work, schema, by, order, parts=parts)
        if isinstance(rows, Made) and not (by or parts):
            return rows.followed_by(work, schema)
        rows = _grouped(self.as_spark(rows), by, order)
        if parts:
            rows = rows.repartition(tasks(parts))
        return Made.by(rows, work, schema)

    def derive_tables(self, work: Work | Derivation, **tables: Rows) -> dict[str, Rows]:
        derivation = Derivation.of(work)
        if _are_here(tables):
            return derivation.run(**tables)
        if derivation.needs_all:
            needed = {
                name: self.select(rows, *derivation.columns[name]) if name in derivation.columns else rows
                for name, rows in tables.items()
            }
            few = self._collect_some(needed, _FEW_ROWS)
            if few is not None:
                return derivation.run(**few)
        names, made = self._made(derivation, tables)
        found = checkpoint(made.rows())
        if is_only_one(names):
            return {ONE: found}
        return {name: found.where(F.col(name).isNotNull()).select(f"{name}.*") for name in names}

    def _made(self, derivation: Derivation, tables: Mapping[str, Rows]) -> tuple[list[str], Made]:
        """Returns which tables it makes in tasks, and their rows, below each other (`stacked`)."""
        shared = self.collect(**{name: tables[name] for name in derivation.shared})
        given = {name: rows for name, rows in tables.items() if name not in shared}
        without_rows = {name: _without_rows(rows) for name, rows in given.items()}
        keys = {tuple(rows.schema[name] for name in derivation.by) for rows in without_rows.values()}
        if len(keys) > 1:  # equal values of other types have other hashes
            raise TypeError(f"The columns {', '.join(derivation.by)} have other types in other tables: {keys}.")
        empty = {name: derivation.needed(name, rows) for name, rows in without_rows.items()}
        made = derivation.made(**empty, **shared)
        if derivation.in_parts:
            ((name, rows),) = given.items()
            source = self._in_tasks(rows, *empty[name].columns)
            to_tables: Callable[[Batches], Iterable[Frames]] = partial(_named, name)
        else:
            buckets = self.buckets if derivation.by else 1
            parcels = [self._packed(name, rows, empty[name], derivation.by, buckets) for name, rows in given.items()]
            many = tasks(buckets // _BUCKETS_OF_A_TASK)
            source = Made.of(self.union(*parcels).repartition(many, "bucket").sortWithinPartitions("bucket"))
            to_tables = partial(unpack, empty)
        return [*made], source.followed_by(_deriving(derivation, made, shared, to_tables), stacked(made))

    def _in_tasks(self, rows: Rows, *columns: str) -> Made:
        """Returns columns, as tasks get them."""
        names = dict.fromkeys(columns)
        return rows.select(*names) if isinstance(rows, Made) else Made.of(self.as_spark(rows).select(*names))

    def _packed(self, name: str, rows: Rows, empty: pl.DataFrame, by: Sequence[str], buckets: int) -> DataFrame:
        """Returns rows of PARCEL."""

        def packed(batches: Batches) -> Iterator[pa.RecordBatch]:
            return pack(name, to_frames(batches), empty, by, buckets)

        return self._in_tasks(rows, *empty.columns, *by).followed_by(packed, PARCEL).rows()

    def derive(self, work: Work | Derivation, **tables: Rows) -> Rows:
        return self.derive_tables(work, **tables)[ONE]

    def gather(self, work: Work | Derivation, **tables: Rows) -> Frames:
        derivation = Derivation.of(work)
        if derivation.needs_all or _are_here(tables):
            return self.collect(**self.derive_tables(derivation, **tables))
        names, made = self._made(derivation, tables)
        found = made.rows().toArrow().cast(made.schema)
        return {ONE: to_frame(found)} if is_only_one(names) else untagged(found, names)

    def collect(self, **tables: Rows) -> Frames:
        return self._collect_some(tables) or {}

    def _collect_some(self, tables: Mapping[str, Rows], most: int | None = None) -> Frames | None:
        """Brings the tables here, by one query; None if those on Spark have more than `most` rows together."""
        many = {name: self.as_spark(rows) for name, rows in tables.items() if not isinstance(rows, pl.DataFrame)}
        if not many:
            return dict(tables)
        # The rows of all tables stand below each other, each as a struct in the column of its table.
        tagged = row(**{name: row_type(rows.schema) for name, rows in many.items()})
        structs = (rows.select(F.struct(*rows.columns).alias(name)) for name, rows in many.items())
        types = {field.name: nullable(field.dataType) for field in spark_schema(tagged)}
        rows = cast_columns(self.union(*structs), types)
        found = (rows if most is None else rows.limit(most + 1)).toArrow()
        if most is not None and found.num_rows > most:
            return None
        return {**tables, **untagged(found.cast(tagged), many)}

    def keep(self, rows: Rows) -> Rows:
        return rows if isinstance(rows, pl.DataFrame) else checkpoint(self.as_spark(rows))

    def expect_few(self, rows: Rows) -> Rows:
        few = self._collect_some({ONE: rows}, MOST_ROWS)
        return rows if few is None else few[ONE]

    @_dispatch_by_backend
    def union(self, *parts: Rows) -> Rows:
        return reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), parts)

    @_dispatch_by_backend
    def pick(self, rows: Rows, column: str, *others: str) -> Rows:
        fields = f"{column}.*" if isinstance(rows.schema[column].dataType, StructType) else column
        return rows.where(F.col(column).isNotNull()).select(*dict.fromkeys((*others, fields)))

    def select(self, rows: Rows, *names: str, **columns: str) -> Rows:
        if isinstance(rows, pl.DataFrame):
            return InProcess().select(rows, *names, **columns)
        if isinstance(rows, Made) and not columns:
            return rows.select(*names)
        return self.as_spark(rows).select(*names, *(F.col(old).alias(new) for new, old in columns.items()))

    @_row_by_row
    @_dispatch_by_backend
    def with_piece(self, rows: Rows) -> Rows:
        whole = f"(stream_offset - pmod(stream_offset, {PIECE_BYTES}))"  # as `div` rounds towards 0
        return rows.withColumn("piece", F.expr(f"{whole} div {PIECE_BYTES}"))

    @_dispatch_by_backend
    def distinct(self, rows: Rows) -> Rows:
        return rows.distinct()

    @_row_by_row
    @_dispatch_by_backend
    def where(self, rows: Rows, condition: str) -> Rows:
        return rows.where(condition)

    @_row_by_row
    @_dispatch_by_backend
    def join(self, rows: Rows, other: Rows, on: Sequence[str], how: How = "inner") -> Rows:
        if how not in {"semi", "anti"}:  # as in memory, columns of `other` replace those of the same name
            rows = rows.drop(*(name for name in other.columns if name not in on))
        return rows.join(other, list(on), how)

    def sum_up(self, rows: Rows, by: Sequence[str], *columns: str) -> Rows:
        if isinstance(rows, pl.DataFrame):
            return InProcess().sum_up(rows, by, *columns)
        parts = self.as_spark(self.select(rows, *dict.fromkeys((*by, *columns)))).withColumn("count", F.lit(1))
        return parts.groupBy(*by).agg(*(F.sum(name).alias(name) for name in ("count", *columns)))

    @_dispatch_by_backend
    def count(self, rows: Rows) -> int:
        return int(rows.count())

    def write(self, table: Table, rows: Rows, *, update: bool = False, stale: Rows | None = None) -> None:
        rows = self.as_spark(rows) if isinstance(rows, Made) else rows
        if not isinstance(rows, pl.DataFrame) and table in _OFTEN_EMPTY and rows.isEmpty():
            rows = InProcess().table([], table.arrow)
        if isinstance(rows, pl.DataFrame):
            rows = conform(rows, table)
        else:
            times = {at: timestamp(F.col(ns)) for at, ns in TIMES.items() if ns in rows.columns}
            rows = rows.withColumns(times) if times else rows
        if stale is None:
            self.warehouse.merge(table, rows, update=update)
        else:
            self.warehouse.merge_from_offset(table, stale, rows)

    def replace(self, table: Table, rows: Rows) -> None:
        self.warehouse.replace(table, conform(rows, table) if isinstance(rows, pl.DataFrame) else self.as_spark(rows))

    def replace_by(self, table: Table, work: Work | Derivation, *others: Rows, **tables: Rows) -> None:
        derivation = Derivation.of(work)
        if derivation.needs_all or _are_here(tables):
            self.replace(table, self.union(self.derive(derivation, **tables), *others))
        else:
            _, made = self._made(derivation, tables)
            self.warehouse.replace(table, made, *others)

    def delete(self, table: Table, gone: Rows) -> None:
        self.warehouse.replace_rows(table, gone, InProcess().table([], table.arrow))


def _grouped(rows: DataFrame, by: Sequence[str], order: Sequence[str] = ()) -> DataFrame:
    """Returns the rows of each group in one partition, next to each other."""
    if not by:
        return rows
    # Not by the columns themselves: Spark 4.1 leaves that out above a union whose sides were joined by them, and then
    # may coalesce the partitions of the two sides differently, so that rows of one group part.
    return rows.repartition(F.xxhash64(*by)).sortWithinPartitions(*by, *order)


def _named(name: str, batches: Batches) -> Iterator[Frames]:
    """Yields rows as frames of the table of this name."""
    return ({name: frame} for frame in to_frames(batches))


def _deriving(
    derivation: Derivation,
    made: Mapping[str, RowType],
    shared: Frames,
    to_tables: Callable[[Batches], Iterable[Frames]],
) -> Pass:
    """Returns a pass that derives tables, each time from some rows of the given tables and all that are shared."""
    return lambda batches: derivation.stack(({**some, **shared} for some in to_tables(batches)), made)


def _without_rows(rows: Rows) -> pl.DataFrame:
    """Returns a frame with the columns of rows, and none of them."""
    if isinstance(rows, pl.DataFrame):
        return rows.clear()
    return schema_of(rows.schema if isinstance(rows, Made) else row_type(rows.schema)).to_frame()


def _are_here(tables: Mapping[str, Rows]) -> bool:
    """Returns whether all rows are in this process."""
    return all(isinstance(rows, pl.DataFrame) for rows in tables.values())


def engine_of(warehouse: Warehouse) -> Engine[Any]:
    """Returns an engine in this process for a warehouse that is held in memory, else one on Spark."""
    return OnSpark(warehouse) if warehouse.local is None else InProcess(load=partial(load, warehouse))


def write_if_held(warehouse: Warehouse, engine: Engine[Any], *tables: Table) -> None:
    """Writes tables that an engine in this process has made of a warehouse; one on Spark has written its own."""
    if isinstance(engine, InProcess):
        for table in tables:
            warehouse.replace(table, engine.read(table))


def load(warehouse: Warehouse, table: Table, *columns: str) -> pl.DataFrame | pl.LazyFrame:
    """Returns the rows of a table as `InProcess` holds them: many are read from its files when they are needed.

    With columns, it returns these at least.
    """
    is_held = warehouse.local is not None and table.name in warehouse.local.tables
    many = None if is_held or table in FEW else warehouse.scan_if_many(table, MANY_ROWS, *columns)
    return warehouse.read_local(table, *columns) if many is None else many
