"""Runs passes over rows that a query returns: in tasks, or in this process where the warehouse is held in memory."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.warehouse.checkpoint import checkpoint
from jobs.warehouse.local_tables import LocalTable, cast_columns, nullable
from schemas.table import RowType
from udfs.on_spark import map_arrow
from udfs.passes.options import Pass

_BATCH_ROWS = 10_000


class RunPass(Protocol):
    """Runs a pass now, because several queries read what it returns."""

    def __call__(
        self, rows: DataFrame, work: Pass, schema: RowType, by: Sequence[str] = (), order: Sequence[str] = ()
    ) -> DataFrame:
        """Returns the rows of `schema` that the pass makes of `rows`.

        All rows with the same values in the columns `by` come to one task, next to each other, sorted by `order`.
        """


def run_in_tasks(
    rows: DataFrame, work: Pass, schema: RowType, by: Sequence[str] = (), order: Sequence[str] = ()
) -> DataFrame:
    """Implements `RunPass` by `mapInArrow`."""
    rows = cast_columns(rows, {field.name: nullable(field.dataType) for field in rows.schema})
    if by:
        # Not by the columns themselves: Spark would leave that out where a union or a join has such partitions already.
        rows = rows.repartition(F.xxhash64(*by)).sortWithinPartitions(*by, *order)
    return checkpoint(map_arrow(rows, work, schema))


def run_here(
    rows: DataFrame, work: Pass, schema: RowType, by: Sequence[str] = (), order: Sequence[str] = ()
) -> pa.Table:
    """Returns the same rows as an Arrow table; `rows` have to fit in memory."""
    held = LocalTable.collect(rows).arrow
    if by:
        held = held.sort_by([(name, "ascending") for name in (*by, *order)])
    batches = held.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    return pa.Table.from_batches(work(batches), schema)
