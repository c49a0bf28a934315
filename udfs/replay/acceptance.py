"""The acceptance rule of [MS-MQQB] 3.1.5.8.6, and its fold over messages one after another."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa


class State(NamedTuple):
    """IncomingTxSequenceID and IncomingTxSequenceNumber, and the number of unread ranges before them."""

    sequence: int
    number: int
    missing: int


class Message(NamedTuple):
    """TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber, and the number of unread ranges before it."""

    sequence: int
    number: int
    previous: int
    missing: int


def accept(state: State, message: Message) -> bool:
    """Returns whether a receiver in `state` accepts `message`."""
    return (message.sequence == state.sequence and message.number > state.number >= message.previous) or (
        message.sequence > state.sequence and message.previous == 0
    )


def after(state: State, message: Message) -> State:
    """Returns the state after `message`: it moves if `message` is accepted, or upwards across unread bytes."""
    above = (message.sequence, message.number) > (state.sequence, state.number)
    if accept(state, message) or (above and message.missing > state.missing):
        return State(message.sequence, message.number, message.missing)
    return state


STATE = tuple(f"state_{field}" for field in State._fields)


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the state before each message into the columns `STATE`.

    Rows are in replay order, one stretch of messages after another. A row with `begins` begins a stretch, and has its
    state already. Only the state is kept between batches, so memory does not grow with a stretch.
    """
    names = ("begins", *STATE, *Message._fields)
    state_sequence = state_number = state_missing = 0
    for batch in batches:
        before = []
        # `accept` and `after` inlined: a call and two tuples a row cost four times as much.
        for begins, *initial, sequence, number, previous, missing in zip(
            *(batch[name].to_pylist() for name in names), strict=True
        ):
            if begins:
                state_sequence, state_number, state_missing = initial
            before.append((state_sequence, state_number, state_missing))
            if state_sequence is None:  # the first of a scope, of which the state before is not known
                state_sequence, state_number, state_missing = sequence, number, missing
                continue
            if sequence == state_sequence:
                above = number > state_number
                accepted = above and state_number >= previous
            else:
                above = sequence > state_sequence
                accepted = above and previous == 0
            if accepted or (above and missing > state_missing):
                state_sequence, state_number, state_missing = sequence, number, missing
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {name: pa.array([state[i] for state in before], pa.int64()) for i, name in enumerate(STATE)}
        yield pa.RecordBatch.from_pydict(columns, schema=batch.schema)


def fold_scopes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds the columns STATE, the state before each row, to rows in replay order, one scope after another.

    It is null before the first row of a scope.
    """
    for batch in fold(_beginning_with_scopes(batches)):
        yield batch.drop_columns("begins")


def _beginning_with_scopes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    scope = None
    for batch in batches:
        begins = []
        for one in batch["scope_no"].to_pylist():
            begins.append(one != scope)
            scope = one
        unknown = pa.nulls(len(batch), pa.int64())
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= dict.fromkeys(STATE, unknown) | {"begins": pa.array(begins, pa.bool_())}
        yield pa.RecordBatch.from_pydict(columns)
