"""The acceptance rule of [MS-MQQB] 3.1.5.8.6, and the state after a message."""

from typing import NamedTuple


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


STATE = tuple(f"state_{field}" for field in State._fields)


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
