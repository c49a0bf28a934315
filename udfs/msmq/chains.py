"""Joins messages into chains: runs of one stream and sequence in which each number follows the one before it."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

OF_STREAM = ("scope_no", "stream_no", "pair_no", "first_ns", "mid_stream")
"""Columns that all messages of a scope on a stream have in common."""
PAUSE_NS = 250_000_000
"""A chain ends where the next message comes this much later, or more."""
NUMBER_BITS = 8
"""Low bits in which the numbers of a chain may differ. A hash join by the other bits finds what lies among them."""
_NO_TIME = -1


def find_chains(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns one row per chain: OF_STREAM, `sequence`, its numbers and the previous number of its first message.

    `offsets` and `times` list the stream offset and `captured_ns` of each message. Within a chain, previous numbers
    are one less than numbers, and times do not fall. Rows come in any order; a chain never spans two batches.
    """
    for batch in batches:
        if batch.num_rows:
            yield _chains(batch)


def _chains(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = {
        name: pc.fill_null(batch[name], _NO_TIME).to_numpy(zero_copy_only=False)
        for name in ("scope_no", "stream_no", "stream_offset", "captured_ns", "sequence", "number", "previous")
    }
    order = np.lexsort((values["stream_offset"], values["stream_no"], values["scope_no"]))
    values = {name: column[order] for name, column in values.items()}
    number, previous, time = values["number"], values["previous"], values["captured_ns"]
    follows = (previous[1:] == number[:-1]) & (number[1:] == previous[1:] + 1) & (previous[1:] > 0)
    for name in ("scope_no", "stream_no", "sequence"):
        follows &= values[name][1:] == values[name][:-1]
    follows &= number[:-1] > previous[:-1]
    follows &= number[1:] >> NUMBER_BITS == number[:-1] >> NUMBER_BITS
    pause = time[1:] - time[:-1]
    follows &= (time[:-1] != _NO_TIME) & (pause >= 0) & (pause < PAUSE_NS)
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    bounds = np.append(first, batch.num_rows)
    last = bounds[1:] - 1
    lists = {
        "offsets": pa.array(values["stream_offset"], pa.int64()),
        "times": pa.array(time, pa.int64(), mask=time == _NO_TIME),
    }
    columns = {name: batch[name].take(pa.array(order[first])) for name in OF_STREAM} | {
        "sequence": values["sequence"][first],
        "first_number": number[first],
        "number": number[last],
        "previous": previous[first],
        **{name: pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), of) for name, of in lists.items()},
    }
    return pa.RecordBatch.from_pydict(columns)
