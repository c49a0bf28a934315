"""Runs steps on Spark, over the tables of a warehouse."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import StructType

from jobs.app.parallel import run_in_parallel
from jobs.engine.engine import How, Row
from jobs.transforms.expressions import timestamp, with_columns_of
from jobs.warehouse.checkpoint import broadcast_if_small, checkpoint
from jobs.warehouse.local_tables import cast_columns, nullable, to_spark
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.judging import PIECE_BYTES
from schemas.pings import PINGS
from schemas.staging import TIMES
from schemas.table import RowType, Table, row, row_type, spark_schema
from udfs.derive.frames import ONE, Derivation, untagged
from udfs.on_spark import map_arrow, tasks
from udfs.passes.options import Pass

_OFTEN_EMPTY = (STREAM_GAPS, QUARANTINE, PINGS)
"""Tables that a night may have no rows for: asking costs less than a commit."""


@dataclass(frozen=True, slots=True)
class OnSpark:
    """An engine whose rows are DataFrames and whose tables are Delta tables."""

    warehouse: Warehouse

    def known_captures(self, ids: Collection[str]) -> list[Row]:
        wanted = self.warehouse.spark.createDataFrame([(one,) for one in ids], "capture_id string")
        known = self.read(CAPTURES).select("capture_id", "uri")
        return self.collect(known.join(F.broadcast(wanted), "capture_id", "left_semi"))

    def read(self, table: Table) -> DataFrame:
        rows = self.warehouse.read(table)
        return rows if set(table.names) <= set(rows.columns) else with_columns_of(table, rows)

    def streams_between(self, connections: DataFrame) -> DataFrame:
        endpoints = F.substring_index("connection_id", "#", 1).alias("endpoints")
        streams = self.read(STREAMS).select("stream_id", "instance", endpoints)
        return streams.join(connections, "endpoints").select("packed", "stream_id", "instance")

    def table(self, rows: Sequence[Row], schema: RowType) -> DataFrame:
        values = [tuple(row.get(name) for name in schema.names) for row in rows]
        return F.broadcast(self.warehouse.spark.createDataFrame(values, spark_schema(schema)))

    def run(
        self,
        rows: DataFrame,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> DataFrame:
        if by:
            # Not by the columns themselves: Spark 4.1 leaves that out above a union whose sides were joined by them,
            # and then may coalesce the partitions of the two sides differently, so that rows of one group part.
            rows = rows.repartition(F.xxhash64(*by)).sortWithinPartitions(*by, *order)
        if parts:
            rows = rows.repartition(tasks(parts))
        return map_arrow(rows, work, schema)

    def derive(self, derivation: Derivation, **tables: DataFrame) -> dict[str, DataFrame]:
        found, made = self._derived(derivation, tables)
        found = checkpoint(found)
        return {name: found.where(F.col(name).isNotNull()).select(f"{name}.*") for name in made.names}

    def _derived(self, derivation: Derivation, tables: Mapping[str, DataFrame]) -> tuple[DataFrame, RowType]:
        """Returns the made rows below each other, and their schema: a struct for each table."""
        schemas = {name: row_type(rows.schema) for name, rows in tables.items()}
        tagged, made = derivation.tagged(**schemas), derivation.made(**schemas)
        shared = {name: tables[name].toArrow() for name in derivation.shared}
        rows = self._tagged({name: tables[name] for name in derivation.inputs}, tagged, derivation.by)
        rows = rows if derivation.by else rows.coalesce(1)
        return self.run(rows, derivation.on_batches(made, **shared), made, derivation.by), made

    def _tagged(self, tables: Mapping[str, DataFrame], tagged: RowType, by: Sequence[str] = ()) -> DataFrame:
        """Returns the rows of tables below each other: the columns `by`, and a struct for each table."""
        parts = (
            rows.select(*by, F.struct(*(one.name for one in tagged.field(name).type)).alias(name))
            for name, rows in tables.items()
        )
        types = {field.name: nullable(field.dataType) for field in spark_schema(tagged)}
        return cast_columns(self.union(*parts), types)

    def one(self, derivation: Derivation, **tables: DataFrame) -> DataFrame:
        return self.derive(derivation, **tables)[ONE]

    def gather(self, derivation: Derivation, **tables: DataFrame) -> dict[str, pa.Table]:
        found, made = self._derived(derivation, tables)
        return untagged(_here(found, made), made.names)

    def bring(self, **tables: DataFrame) -> dict[str, pa.Table]:
        tagged = row(**{name: row_type(rows.schema) for name, rows in tables.items()})
        return untagged(_here(self._tagged(tables, tagged), tagged), tables)

    def hand_in(self, rows: pa.Table) -> DataFrame:
        return F.broadcast(to_spark(self.warehouse.spark, rows))

    def keep(self, rows: DataFrame) -> DataFrame:
        return checkpoint(rows)

    def expect_few(self, rows: DataFrame) -> DataFrame:
        return broadcast_if_small(rows)

    def union(self, *parts: DataFrame) -> DataFrame:
        return reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), parts)

    def pick(self, rows: DataFrame, column: str, *others: str) -> DataFrame:
        fields = f"{column}.*" if isinstance(rows.schema[column].dataType, StructType) else column
        return rows.where(F.col(column).isNotNull()).select(*dict.fromkeys((*others, fields)))

    def select(self, rows: DataFrame, **columns: str) -> DataFrame:
        return rows.select(*(F.col(old).alias(new) for new, old in columns.items()))

    def with_piece(self, rows: DataFrame) -> DataFrame:
        return rows.withColumn("piece", F.expr(f"stream_offset div {PIECE_BYTES}"))

    def distinct(self, rows: DataFrame) -> DataFrame:
        return rows.distinct()

    def where(self, rows: DataFrame, column: str) -> DataFrame:
        return rows.where(column)

    def join(self, rows: DataFrame, other: DataFrame, on: Sequence[str], how: How = "inner") -> DataFrame:
        return rows.join(other, list(on), how)

    def sum_up(self, rows: DataFrame, by: Sequence[str], *columns: str) -> DataFrame:
        return rows.groupBy(*by).agg(F.count(F.lit(1)).alias("count"), *(F.sum(name).alias(name) for name in columns))

    def collect_lists(self, rows: DataFrame, by: str, column: str) -> DataFrame:
        return rows.groupBy(by).agg(F.collect_list(column).alias(column))

    def count(self, rows: DataFrame) -> int:
        return rows.count()

    def collect(self, rows: DataFrame) -> list[Row]:
        return [row.asDict() for row in rows.collect()]

    def write(self, table: Table, rows: DataFrame, *, update: bool = False) -> None:
        if table in _OFTEN_EMPTY and rows.isEmpty():
            return
        times = {at: timestamp(F.col(ns)) for at, ns in TIMES.items() if ns in rows.columns}
        self.warehouse.merge(table, rows.withColumns(times), update=update)

    def replace(self, table: Table, rows: DataFrame) -> None:
        self.warehouse.replace(table, with_columns_of(table, rows))

    def delete_from_offset(self, table: Table, stale: DataFrame) -> None:
        offset = "coalesce(t.stream_offset, -1) >= s.from_offset" if "stream_offset" in table.names else "true"
        self.warehouse.delete(table, stale, f"t.stream_id = s.stream_id AND {offset}")

    def do_all(self, works: Iterable[Callable[[], None]]) -> None:
        run_in_parallel(works)


def _here(rows: DataFrame, schema: RowType) -> pa.Table:
    """Computes the rows, which have to fit in memory."""
    return rows.toArrow().cast(schema)
