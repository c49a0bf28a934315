"""Puts the messages of each scope in replay order, and joins those that follow one another into chains.

Order on a stream is the stream offset; the running maximum of its clock merges the streams, so that no clock moves a
message on its stream. Consecutive messages of a chain act on the receiver's state exactly like one message with the
first previous number and the last number, so the windows see one row for up to 256 messages.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from schemas.judging import CHAIN
from udfs.replay.groups import (
    NONE,
    as_lists,
    before,
    begins,
    bounds,
    columns_of,
    group_of,
    nullable,
    numbers,
    so_far,
    to_batches,
    whole_groups,
)
from udfs.replay.rows import Batches

STREAM_END = (1 << 63) - 1
"""Stream offset of what comes after all messages."""
_LONGEST = 256
"""Messages of a chain; a chain is a row."""
_SCHEMA = CHAIN


def find_chains(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of MARK, those of a scope next to each other, into rows of CHAIN in replay order."""
    for rows in whole_groups(batches, "scope_no"):
        yield from join_into_chains(in_replay_order(numbers(rows, *rows.column_names)))


def in_replay_order(marks: pd.DataFrame) -> pd.DataFrame:
    """Returns messages and initial states in replay order, with `replay_order` and the unread ranges so far, `missing`.

    `replay_order` is 1 for the scope's first message, 0 for a state before it. Unread ranges count from the next
    message of their stream on. A stream that was captured from mid-stream counts as one more range, unless it is the
    scope's first.
    """
    marks = marks.sort_values(["scope_no", "stream_no", "stream_offset"], kind="stable", ignore_index=True)
    stream, is_message = group_of(marks, "scope_no", "stream_no"), marks["previous"] != NONE
    marks["clock"] = so_far(marks["at_ns"], stream)
    missing_here = marks["missing"].groupby(stream).cumsum()
    marks["added"] = missing_here - before(missing_here.where(is_message, 0), stream, 0)
    is_first = is_message & (is_message.groupby(stream).cumsum() == 1)
    marks["cut_off"] = (is_first & (marks["mid_stream"] == 1)).astype(np.int64)
    marks = marks[(marks["number"] != NONE) | (marks["stream_offset"] == STREAM_END)]
    marks = marks.sort_values(["scope_no", "clock", "stream_no", "stream_offset"], kind="stable", ignore_index=True)
    scope = group_of(marks, "scope_no")
    of_scope = marks.groupby(scope)
    marks["replay_order"] = (marks["previous"] != NONE).groupby(scope).cumsum()
    on_first_stream = marks["cut_off"].where(marks["mid_stream"] != NONE).groupby(scope).transform("first")
    later = (of_scope["cut_off"].cumsum() - on_first_stream.fillna(0)).clip(lower=0)
    marks["missing"] = of_scope["added"].cumsum() + later.astype(np.int64)
    return marks[marks["number"] != NONE].reset_index(drop=True)


def join_into_chains(rows: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    """Yields rows of CHAIN: messages of one stream and sequence, each with the number after that of the one before."""
    number, previous = rows["number"].to_numpy(), rows["previous"].to_numpy()
    together = columns_of(rows, "scope_no", "stream_no", "sequence", "missing")
    is_first = begins(*together, rows["replay_order"].to_numpy() // _LONGEST)
    is_first[1:] |= (previous[1:] != number[:-1]) | (number[1:] != previous[1:] + 1) | (previous[1:] <= 0)
    is_first[1:] |= (number[:-1] <= previous[:-1]) | (previous[:-1] == NONE)
    first, last = bounds(is_first)
    firsts = rows.iloc[first]
    lists = rows[["stream_offset", "captured_ns", "message_no"]].set_axis(["offsets", "times", "message_nos"], axis=1)
    columns = {name: nullable(firsts[name]) for name in _SCHEMA.names if name in firsts}
    columns |= {"first_number": nullable(firsts["number"]), "number": nullable(rows["number"].iloc[last])}
    columns["sequence"] = pa.array(firsts["sequence"].to_numpy())  # TxSequenceID 0 is NONE when it is signed
    yield from to_batches(columns | as_lists(lists, first, *lists.columns), _SCHEMA)
