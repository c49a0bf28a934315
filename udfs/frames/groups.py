"""Rows of equal keys as whole tables, and rows that stand for several messages."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.frames.rows import Batches

Item = TypeVar("Item")
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NONE = np.iinfo(np.int64).min
"""Stands for null in columns of numbers, below all others."""
NUMBERS = 1 << 33
"""More than there are numbers in a sequence."""
_BATCH_ROWS = 2_000
"""A row may list hundreds of messages."""
FRAME_ROWS = 100_000
"""Rows that are worth a call of their own: the cost of vectorised steps is per call."""


def bunches(items: Iterable[Item], size: Callable[[Item], float], enough: float) -> Iterator[list[Item]]:
    """Yields successive items together, as soon as their sizes add up to enough; the last ones may be fewer."""
    waiting, total = list[Item](), 0.0
    for item in items:
        waiting.append(item)
        total += size(item)
        if total >= enough:
            yield waiting
            waiting, total = [], 0.0
    if waiting:
        yield waiting


def pieces(batches: Batches, *, lists: str | None = None) -> Iterator[pa.Table]:
    """Yields the rows as tables of FRAME_ROWS, the last of fewer; with `lists`, hardly more items of these than that.

    So the memory of a step does not grow with the rows of a key: what it has to know of those before, it keeps.
    """
    waiting, count = [], 0
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        while rows.num_rows:
            ends = np.cumsum(_weights(rows, lists))
            cut = min(int(np.searchsorted(ends, FRAME_ROWS - count)) + 1, rows.num_rows)
            waiting.append(rows.slice(0, cut))
            rows, count = rows.slice(cut), count + int(ends[cut - 1])
            if count >= FRAME_ROWS:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _weights(rows: pa.Table, lists: str | None) -> Ints:
    """Returns 1 for each row, or the length of its list if that is greater."""
    if lists is None:
        return np.ones(rows.num_rows, np.int64)
    lengths: Ints = pc.fill_null(pc.list_value_length(rows[lists]), 1).to_numpy()
    return lengths.astype(np.int64).clip(min=1)


def numbers(rows: pa.Table, *names: str) -> pd.DataFrame:
    """Returns columns of numbers or flags as int64, with NONE for null."""
    return pd.DataFrame(
        {name: pc.fill_null(rows[name].cast(pa.int64()), NONE).to_numpy(zero_copy_only=False) for name in names},
        copy=False,
    )


def begins(*columns: "NDArray[Any]") -> Bools:
    """Returns which rows differ from the row before in one of the columns; the first row always does."""
    first = np.ones(len(columns[0]), bool)
    first[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    return first


def columns_of(frame: pd.DataFrame, *names: str) -> "list[NDArray[Any]]":
    """Returns columns as arrays."""
    return [frame[name].to_numpy() for name in names]


def group_of(frame: pd.DataFrame, *key: str) -> Ints:
    """Returns the number of each row's group, 0, 1, …, where rows of a group are next to each other."""
    return np.cumsum(begins(*columns_of(frame, *key))) - 1


def bounds(is_first: Bools) -> tuple[Ints, Ints]:
    """Returns the places of the first and of the last row of each run, given which rows begin one."""
    first = np.flatnonzero(is_first)
    return first, np.append(first, len(is_first))[1:] - 1


def expand(rows: pa.Table, *lists: str) -> tuple[pd.DataFrame, Ints, Ints]:
    """Returns a row per message with its items of the lists; and the place of its row, and its own place in that."""
    lengths = pc.list_value_length(rows[lists[0]]).combine_chunks().to_numpy()
    row = np.repeat(np.arange(rows.num_rows), lengths)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    items = pa.table({name: pc.list_flatten(rows[name]) for name in lists})
    return numbers(items, *lists), row, nth


def as_lists(frame: pd.DataFrame, first: Ints, *names: str) -> dict[str, pa.Array]:
    """Returns columns as lists, each from one of the rows `first` to the next."""
    ends = pa.array(np.append(first, len(frame)), pa.int32())
    return {name: pa.ListArray.from_arrays(ends, nullable(frame[name])) for name in names}


def nullable(values: "pd.Series[int]", of: pa.DataType | None = None) -> pa.Array:
    """Returns numbers with null in place of NONE, as int64 or another type."""
    made = pa.array(values.to_numpy(), pa.int64(), mask=values.to_numpy() == NONE)
    return made if of is None else made.cast(of)


def to_batches(columns: dict[str, pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Returns the columns of the schema as batches that Spark can hold; those that are not given are null."""
    count = len(next(iter(columns.values())))
    columns = {one.name: pa.nulls(count, one.type) for one in schema} | columns
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)
