"""A chain of messages acts on the state like one message, held to the rule applied to one message after another."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pytest

from udfs.msmq.acceptance import Message, State, after
from udfs.msmq.chains import OF_STREAM, PAUSE_NS, find_chains


class Sent(NamedTuple):
    """A message with its place and time."""

    offset: int
    time: int | None
    sequence: int
    number: int
    previous: int
    stream: int = 1


class Chain(NamedTuple):
    """A row of `find_chains`, without what the messages have in common."""

    sequence: int
    first_number: int
    number: int
    previous: int
    offsets: list[int]
    times: list[int | None]


def chains(*batches: list[Sent]) -> list[Chain]:
    common: dict[str, int | None] = dict.fromkeys(OF_STREAM, 1)
    names = ("stream_offset", "captured_ns", "sequence", "number", "previous")
    rows = [
        pa.RecordBatch.from_pylist(
            [common | {"stream_no": sent.stream} | dict(zip(names, sent[:-1], strict=True)) for sent in batch],
            pa.schema([(name, pa.int64()) for name in (*common, *names)]),
        )
        for batch in batches
    ]
    return [Chain(*(row[name] for name in Chain._fields)) for found in find_chains(rows) for row in found.to_pylist()]


def numbered(*numbers: tuple[int, int], times: tuple[int | None, ...] = ()) -> list[Sent]:
    return [Sent(i, times[i] if times else i, 7, number, previous) for i, (number, previous) in enumerate(numbers)]


@pytest.mark.parametrize(
    ("messages", "lengths"),
    [
        (numbered((5, 4), (6, 5), (7, 6)), [3]),
        (numbered((5, 0), (6, 5)), [2]),
        (numbered((5, 4), (6, 5), (6, 5)), [2, 1]),
        (numbered((5, 4), (7, 5)), [1, 1]),  # 6 expired: whether the second is across a gap depends on the state
        (numbered((5, 4), (6, 0)), [1, 1]),
        (numbered((5, 9), (6, 5)), [1, 1]),  # the first can never be accepted, the second can
        (numbered((255, 254), (256, 255)), [1, 1]),
        (numbered((5, 4), (6, 5), times=(0, PAUSE_NS - 1)), [2]),
        (numbered((5, 4), (6, 5), times=(0, PAUSE_NS)), [1, 1]),
        (numbered((5, 4), (6, 5), times=(1, 0)), [1, 1]),
        (numbered((5, 4), (6, 5), times=(None, 1)), [1, 1]),
        (numbered((5, 4), (6, 5), times=(1, None)), [1, 1]),
        ([Sent(0, 1, 7, 5, 4), Sent(0, 2, 7, 6, 5, stream=2)], [1, 1]),
        ([Sent(0, 1, 7, 5, 4), Sent(1, 2, 8, 6, 5)], [1, 1]),
    ],
)
def test_where_a_chain_ends(messages: list[Sent], lengths: list[int]) -> None:
    random.Random(1).shuffle(messages)
    assert [len(chain.offsets) for chain in chains(messages)] == lengths


def histories(rng: random.Random) -> Iterator[tuple[list[Sent], list[int]]]:
    """Yields messages of a scope and how many unread ranges lie before each: as sent, with disorder, or arbitrary."""
    sequence, number, missing = 7, rng.randrange(3), 0
    messages: list[Sent] = []
    unread: list[int] = []
    noise = rng.choice([0.0, 0.05, 0.3, 1.0])
    for offset in range(rng.randrange(1, 40)):
        previous, number = number, number + 1
        if rng.random() < 0.04:
            sequence, number, previous = sequence + 1, rng.randrange(1, 3), 0
        sent = Sent(offset, offset, sequence, number, previous)
        if rng.random() < noise:
            sent = rng.choice(
                [
                    sent._replace(sequence=7 + rng.randrange(3), number=rng.randrange(9), previous=rng.randrange(9)),
                    sent._replace(previous=0),
                    sent._replace(number=number + 1),
                    rng.choice([*messages, sent])._replace(offset=offset, time=offset),
                ]
            )
            number = rng.choice([number, sent.number])
        if rng.random() < noise / 3:
            missing += 1
        messages.append(sent)
        unread.append(missing)
    yield messages, unread


def state_after(state: State | None, message: Message) -> State:
    """Returns the state after a message, which is its own if none is known."""
    return after(state, message) if state else State(message.sequence, message.number, message.missing)


def states_before(chain: Chain, missing: int, state: State | None) -> list[State | None]:
    """Returns the state before each message of a chain, from that before the chain: `chains.cut` in one formula."""
    own = Message(chain.sequence, chain.number, chain.previous, missing)
    head = own._replace(number=chain.first_number)
    moved_by_head = state_after(state, head) != state
    found: list[State | None] = [state]
    for number in range(chain.first_number + 1, chain.number + 1):
        within = state and state.sequence == chain.sequence and chain.first_number <= state.number < number - 1
        in_chain = moved_by_head or within
        found.append(State(chain.sequence, number - 1, missing) if in_chain else state)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_chain_acts_on_the_state_like_one_message(seed: int) -> None:
    rng = random.Random(seed)
    longest = 0
    for _ in range(80):
        for messages, unread in histories(rng):
            cuts = sorted({0, len(messages), *(rng.randrange(len(messages)) for _ in range(rng.randrange(3)))})
            cuts = sorted({*cuts, *(i for i in range(1, len(unread)) if unread[i] != unread[i - 1])})
            batches = [messages[first:last] for first, last in pairwise(cuts)]
            state: State | None = rng.choice([None, State(7, rng.randrange(5), 0)])
            expected, found = [], []
            stood = state
            for sent, missing in zip(messages, unread, strict=True):
                expected.append(stood)
                stood = state_after(stood, Message(sent.sequence, sent.number, sent.previous, missing))
            for chain in chains(*batches):
                missing = unread[chain.offsets[0]]
                found += states_before(chain, missing, state)
                state = state_after(state, Message(chain.sequence, chain.number, chain.previous, missing))
                longest = max(longest, len(chain.offsets))
            assert found == expected
            assert state == stood
    assert longest > 9
