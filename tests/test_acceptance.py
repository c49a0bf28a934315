"""The acceptance rule, without Spark."""

import pytest

from udfs.replay.acceptance import Message, State, accept, after


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ((7, 6, 5), True),  # the next number
        ((7, 9, 5), True),  # 6 to 8 expired
        ((7, 9, 0), True),  # nothing before it is left in the sender's table
        ((7, 5, 4), False),  # sent again
        ((7, 1, 0), False),  # sent again, from the first number on
        ((7, 7, 6), False),  # 6 is missing
        ((8, 1, 0), True),  # a new sequence
        ((8, 3, 0), True),  # a new sequence of which 1 and 2 expired
        ((8, 2, 1), False),  # a new sequence whose start was missed
        ((6, 9, 0), False),  # an old sequence
        ((7, 6, 8), False),  # a previous number above its own
    ],
)
def test_rule(message: tuple[int, int, int], accepted: bool) -> None:
    assert accept(State(7, 5, 0), Message(*message, missing=0)) is accepted


def test_a_refused_message_moves_the_state_only_upwards_and_across_unread_bytes() -> None:
    state = State(7, 5, 1)
    assert after(state, Message(7, 9, 8, missing=1)) == state
    assert after(state, Message(7, 9, 8, missing=2)) == State(7, 9, 2)
    assert after(state, Message(7, 5, 4, missing=2)) == state
