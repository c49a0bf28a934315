"""The acceptance rule of [MS-MQQB] 3.1.5.8.6, and the fold that carries its state through a run of messages."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa


class State(NamedTuple):
    """IncomingTxSequenceID and IncomingTxSequenceNumber, and how many missing runs lay before they were set."""

    sequence: int
    number: int
    missing: int


class Message(NamedTuple):
    """TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber, and how many missing runs lie before it."""

    sequence: int
    number: int
    previous: int
    missing: int


def accept(state: State, message: Message) -> bool:
    """Whether a receiver in `state` accepts `message`."""
    return (message.sequence == state.sequence and message.number > state.number >= message.previous) or (
        message.sequence > state.sequence and message.previous == 0
    )


def after(state: State, message: Message) -> State:
    """The state after `message`: it moves on accept, or upwards across bytes that the capture is missing."""
    above = (message.sequence, message.number) > (state.sequence, state.number)
    if accept(state, message) or (above and message.missing > state.missing):
        return State(message.sequence, message.number, message.missing)
    return state


STATE = tuple(f"state_{field}" for field in State._fields)


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the true state before each message into the columns `STATE`.

    Rows come in replay order, runs one after the other; a row with `opens` begins a run, and its `STATE` is
    true already. Only the state is carried from batch to batch, so that memory does not grow with a run.
    """
    names = ("opens", *STATE, *Message._fields)
    state_sequence = state_number = state_missing = 0
    for batch in batches:
        before = []
        # `accept` and `after`, written out: a call and two tuples a row cost four times as much.
        for opens, *opening, sequence, number, previous, missing in zip(
            *(batch[name].to_pylist() for name in names), strict=True
        ):
            if opens:
                state_sequence, state_number, state_missing = opening
            before.append((state_sequence, state_number, state_missing))
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
