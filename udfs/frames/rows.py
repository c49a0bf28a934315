"""Turns Arrow batches into rows that are objects with names, and back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar, get_type_hints

import pyarrow as pa

from schemas.table import BOOL, DOUBLE, LONG, STRING, RowType, array, row

Batches = Iterable[pa.RecordBatch]
Pass = Callable[[Batches], Batches]
"""Turns batches into batches and keeps no state between calls; an engine runs it."""
R = TypeVar("R", bound=NamedTuple)
_BATCH_ROWS = 10_000
_TYPES: dict[Any, pa.DataType] = {bool: BOOL, int: LONG, float: DOUBLE, str: STRING, list[float]: array(DOUBLE)}


def row_of(kind: type[NamedTuple], **others: pa.DataType) -> RowType:
    """Returns the schema of a named tuple's rows; types that its fields do not tell are given."""
    types = _TYPES | {of | None: arrow for of, arrow in _TYPES.items()}
    return row(**{name: types[of] for name, of in get_type_hints(kind).items()} | others)


def read_rows(batches: Batches, kind: type[R]) -> Iterator[R]:
    """Yields the rows as objects of a named tuple, whose fields are names of columns."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in kind._fields)
        yield from map(kind._make, zip(*columns, strict=True))


def write_rows(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields rows as batches; a row has the values of all columns in their order."""
    waiting = iter(rows)
    while some := list(islice(waiting, _BATCH_ROWS)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
