"""Passes that judge a scope, without Spark: a chain acts on the state like its messages, one after another."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from schemas.judging import CHAIN, PLACED, VERDICT
from udfs.replay.acceptance import STATE, Message, State, accept, after
from udfs.replay.timeline import find_chains
from udfs.replay.verdicts import judge

Row = dict[str, Any]
LITERALS = {
    "in order": [(5, 1, 0), (5, 2, 1), (5, 3, 2)],
    "a repeat within a run": [(5, 1, 0), (5, 2, 1), (5, 1, 0), (5, 2, 1), (5, 3, 2)],
    "a message is missing": [(5, 1, 0), (5, 3, 2), (5, 4, 3), (5, 2, 1), (5, 3, 2)],
    "numbers that expired": [(5, 1, 0), (5, 4, 1), (5, 5, 4)],
    "another sequence": [(5, 1, 0), (6, 2, 1), (6, 1, 0), (6, 2, 1), (5, 2, 1)],
}


def mark(at: int, sequence: int, number: int, previous: int) -> Row:
    """Returns a message of the only stream of a scope, the `at`th in order."""
    place = {"scope_no": 1, "stream_no": 1, "pair_no": 1, "stream_offset": at, "clock": at, "captured_ns": at}
    numbers = {"sequence": sequence, "number": number, "previous": previous, "message_no": at, "missing": 0}
    return place | numbers | {"mid_stream": False, "cut_off": False}


def with_states(chains: list[Row]) -> Iterator[Row]:
    """Yields chains with the state before each; the first message of the scope begins a sequence."""
    state: State | None = None
    for chain in chains:
        yield chain | dict(zip(STATE, state or (None, None, None), strict=True))
        message = Message(chain["sequence"], chain["number"], chain["previous"], chain["missing"])
        state = after(state, message) if state else State(message.sequence, message.number, message.missing)


def judged(sent: Iterable[tuple[int, int, int]]) -> list[tuple[bool, int | None]]:
    """Returns for each message whether it is accepted, and the number of the state before it."""
    marks = pa.Table.from_pylist([mark(at, *one) for at, one in enumerate(sent)], PLACED).to_batches()
    chains = pa.Table.from_batches(find_chains(marks), CHAIN).to_pylist()
    states = pa.schema([*CHAIN, *((name, pa.int64()) for name in STATE)])
    rows = pa.Table.from_pylist(list(with_states(chains)), states).to_batches()
    found: list[tuple[bool, int | None]] = []
    for run in (row for batch in judge(rows) for row in batch.to_pylist() if row["turn"] == VERDICT):
        before, count = run["state_number"], len(run["offsets"])
        found += [(run["accepted"], before and before + nth) for nth in range(count)]
    return found


def one_after_another(sent: Iterable[tuple[int, int, int]]) -> list[tuple[bool, int | None]]:
    """Returns the same by the rule of [MS-MQQB] 3.1.5.8.6, applied to each message."""
    state: State | None = None
    found: list[tuple[bool, int | None]] = []
    for one in sent:
        message = Message(*one, missing=0)
        found.append((state is None or accept(state, message), state and state.number))
        state = after(state, message) if state else State(message.sequence, message.number, 0)
    return found


@pytest.mark.parametrize("sent", LITERALS.values(), ids=LITERALS)
def test_a_chain_is_judged_like_its_messages(sent: list[tuple[int, int, int]]) -> None:
    assert judged(sent) == one_after_another(sent)


@pytest.mark.parametrize("seed", range(50))
def test_random_histories_are_judged_like_their_messages(seed: int) -> None:
    rng = random.Random(seed)
    sent, number = [(7, 1, 0)], 1
    while len(sent) < 400:
        step = rng.random()
        if step < 0.1:
            sent += rng.choices(sent[-20:], k=rng.randrange(1, 5))
        elif step < 0.15:
            at = rng.randrange(len(sent))
            sent += sent[at : at + rng.randrange(1, 9)]
        else:
            skipped = rng.choice([0] * 9 + [1, 2])
            sent.append((7 + len(sent) // 150, number + 1 + skipped, rng.choice([number] * 9 + [number + skipped])))
            number += 1 + skipped
    assert judged(sent) == one_after_another(sent)


def test_messages_in_order_are_few_rows() -> None:
    marks = [mark(at, 5, at + 1, at) for at in range(1_000)]
    chains = list(find_chains(pa.Table.from_pylist(marks, PLACED).to_batches()))
    assert sum(batch.num_rows for batch in chains) <= 5
