"""Declares how tables are derived from tables, whole groups at a time, and runs that over Arrow batches."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from schemas.table import RowType, row
from udfs.replay.groups import whole_groups
from udfs.replay.rows import Batches

Frames = dict[str, pl.DataFrame]
_BATCH_ROWS = 10_000


class Derivation(NamedTuple):
    """Derives tables from tables: `work` gets one frame per name of `inputs`, and returns one per name of `outputs`.

    All inputs have the columns `by`. A call gets all rows of one or of many groups, which have the same values there;
    rows are in no order. Without `by`, a call gets all rows.
    """

    work: Callable[..., Frames]
    inputs: Mapping[str, RowType]
    outputs: Mapping[str, RowType]
    by: tuple[str, ...] = ()

    @property
    def tagged(self) -> RowType:
        """Rows of all inputs below each other: the columns `by`, and a struct for the table that a row is of."""
        key = {name: next(iter(self.inputs.values()))[name].dataType for name in self.by}
        return row(**key, **self.inputs)

    @property
    def made(self) -> RowType:
        """Rows of all outputs below each other: a struct for the table that a row is of."""
        return row(**self.outputs)

    def run(self, **tables: pa.Table) -> dict[str, pa.Table]:
        """Derives whole tables."""
        frames = {
            name: to_frame(tables[name].select(schema.names).cast(schema)) for name, schema in self.inputs.items()
        }
        made = self.work(**frames)
        return {name: to_arrow(made[name], schema) for name, schema in self.outputs.items()}

    def run_on_batches(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Turns rows of `tagged`, those of a group next to each other, into rows of `made`."""
        schema = self.made
        groups = whole_groups(batches, *self.by) if self.by else [pa.Table.from_batches(batches, self.tagged)]
        for rows in groups:
            tables = {name: _of_struct(rows[name]) for name in self.inputs}
            for name, made in self.run(**tables).items():
                for batch in made.to_batches(max_chunksize=_BATCH_ROWS):
                    column = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
                    columns = [column if one.name == name else pa.nulls(len(batch), one.type) for one in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def to_frame(rows: pa.Table) -> pl.DataFrame:
    """Returns the rows as a frame, in which a TxSequenceID is a UInt64."""
    schema = pa.schema([pa.field(one.name, _unsigned(one.type)) for one in rows.schema])
    frame = pl.from_arrow(rows.cast(schema))
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def to_arrow(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Returns the columns of the schema, in its types."""
    return frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)


def _of_struct(column: pa.ChunkedArray) -> pa.Table:
    """Returns the structs that are not null as a table."""
    there = pa.Table.from_batches(pa.table({"of": column.drop_null()}).to_batches(), pa.schema([("of", column.type)]))
    return there.flatten().rename_columns([one.name for one in column.type])


def _unsigned(of: pa.DataType) -> pa.DataType:
    """Returns the type with UInt64 in place of a decimal, nested ones among them."""
    if pa.types.is_decimal(of):
        return pa.uint64()
    if pa.types.is_struct(of):
        return pa.struct([pa.field(one.name, _unsigned(one.type)) for one in of])
    if pa.types.is_list(of):
        return pa.list_(_unsigned(of.value_type))
    return of
