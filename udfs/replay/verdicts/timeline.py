"""Puts the messages of each scope in replay order, and joins those that follow one another into chains.

Order on a stream is the stream offset; the running maximum of its clock merges the streams, so that no clock moves a
message on its stream. Consecutive messages of a chain act on the receiver's state exactly like one message with the
first previous number and the last number, so the windows see one row for up to 256 messages.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from udfs.frames.groups import (
    NONE,
    Bools,
    as_lists,
    begins,
    bounds,
    columns_of,
    group_of,
    nullable,
    numbers,
    pieces,
    to_batches,
)
from udfs.frames.rows import Batches
from udfs.replay.verdicts.judge import CHAIN

IN_ORDER = ("clock", "stream_no", "stream_offset")
"""The order of the rows of a scope for `find_chains`."""
_LONGEST = 256
"""Messages of a chain; a chain is a row."""


def find_chains(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of PLACED, those of a scope next to each other and IN_ORDER, into rows of CHAIN in replay order.

    From one piece to the next it keeps the sums over the last scope's rows, and the messages of its last chain, which
    may go on: all others have their row of CHAIN.
    """
    sums, waiting = _NO_SUMS, None
    for rows in pieces(batches):
        messages, sums = in_replay_order(numbers(rows, *rows.column_names), sums)
        messages = messages if waiting is None else pd.concat([waiting, messages], ignore_index=True)
        if len(messages):
            is_first = begins_chain(messages)
            last = int(np.flatnonzero(is_first)[-1])
            yield from to_chains(messages[:last], is_first[:last])
            waiting = messages[last:]
    if waiting is not None:
        yield from to_chains(waiting, begins_chain(waiting))


_NO_SUMS = pd.DataFrame(columns=["scope_no", "replay_order", "missing", "known", "cut_off"], dtype=np.int64)


def in_replay_order(placed: pd.DataFrame, sums: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns messages and initial states with `replay_order` and the unread ranges so far, `missing`; and new sums.

    `replay_order` is 1 for the scope's first message, 0 for a state before it. A stream that was captured from
    mid-stream counts as one more range, unless it is the scope's first. The sums are a row that stands for all rows of
    its scope before, with its counts of messages, of unread ranges, and of rows that know how their stream begins.
    """
    own = placed[["scope_no", "missing", "cut_off"]].assign(
        replay_order=(placed["previous"] != NONE).astype(np.int64),
        known=(placed["mid_stream"] != NONE).astype(np.int64),
    )
    rows = pd.concat([sums, own[sums.columns]], ignore_index=True)
    scope = group_of(rows, "scope_no")
    is_on_first_stream = (rows["known"] > 0) & (rows["known"].groupby(scope).cumsum() == 1)
    rows["missing"] += rows["cut_off"].where(~is_on_first_stream, 0)
    totals = rows.groupby(scope)[["replay_order", "missing", "known"]].cumsum()
    found = totals[len(sums) :].reset_index(drop=True)
    messages = placed.assign(replay_order=found["replay_order"], missing=found["missing"])
    last = totals.tail(1).assign(scope_no=rows["scope_no"].iloc[-1:], cut_off=0)[sums.columns]
    return messages[placed["number"] != NONE].reset_index(drop=True), last


def begins_chain(messages: pd.DataFrame) -> Bools:
    """Returns which messages are not of one stream and sequence with the one before, with the number after that."""
    number, previous = messages["number"].to_numpy(), messages["previous"].to_numpy()
    together = columns_of(messages, "scope_no", "stream_no", "sequence", "missing")
    is_first = begins(*together, messages["replay_order"].to_numpy() // _LONGEST)
    is_first[1:] |= (previous[1:] != number[:-1]) | (number[1:] != previous[1:] + 1) | (previous[1:] <= 0)
    is_first[1:] |= (number[:-1] <= previous[:-1]) | (previous[:-1] == NONE)
    return is_first


def to_chains(messages: pd.DataFrame, is_first: Bools) -> Iterator[pa.RecordBatch]:
    """Yields rows of CHAIN, each from a message that `is_first` to the next."""
    first, last = bounds(is_first)
    firsts = messages.iloc[first]
    lists = messages[["stream_offset", "captured_ns", "message_no"]]
    lists = lists.set_axis(["offsets", "times", "message_nos"], axis=1)
    columns = {name: nullable(firsts[name]) for name in CHAIN.names if name in firsts}
    columns |= {"first_number": nullable(firsts["number"]), "number": nullable(messages["number"].iloc[last])}
    columns["sequence"] = pa.array(firsts["sequence"].to_numpy())  # TxSequenceID 0 is NONE when it is signed
    yield from to_batches(columns | as_lists(lists, first, *lists.columns), CHAIN)
