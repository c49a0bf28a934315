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
    state = State(0, 0, 0)
    for batch in batches:
        messages = map(Message, *(batch[field].to_pylist() for field in Message._fields))
        given = map(State, *(batch[field].to_pylist() for field in STATE))
        before = []
        for message, opens, opening in zip(messages, batch["opens"].to_pylist(), given, strict=True):
            state = opening if opens else state
            before.append(state)
            state = after(state, message)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {name: pa.array([s[i] for s in before], pa.int64()) for i, name in enumerate(STATE)}
        yield pa.RecordBatch.from_pydict(columns, schema=batch.schema)
