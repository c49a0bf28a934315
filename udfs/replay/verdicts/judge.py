"""The verdict on each message, from the receiver's state before it (contract: the table of verdicts)."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.judging import LISTS, TIMED, TIMES, VERDICT
from schemas.replay import Reading, Reason, Verdict
from schemas.table import LONG, row
from udfs.frames.groups import pieces, to_batches
from udfs.frames.rows import Batches, read_rows, row_of
from udfs.replay.verdicts.acceptance import STATE, Message, State, accept, after

AFTER_BREAK = "after_break"
"""Whether the state before a chain is not the one in the columns STATE."""
_BELOW_ALL = (-(1 << 63) - 1, 0)


class Chain(NamedTuple):
    """Messages that follow one another in a scope, on one stream, without a gap; or, without `previous`, a state.

    `replay_order`, `first_number` and `previous` are those of the first message, `number` is that of the last.
    """

    scope_no: int
    stream_no: int
    pair_no: int
    replay_order: int
    sequence: int
    first_number: int
    number: int
    previous: int | None
    missing: int
    """Unread ranges before it."""


class Judged(NamedTuple):
    """Holds a message with its verdict and the state before it; or a run of a chain that is all in order.

    In a run, `replay_order` and `state_number` are those of the first message and rise by one.
    """

    scope_no: int
    stream_no: int
    pair_no: int
    replay_order: int
    sequence: int
    first_number: int
    number: int
    state_sequence: int | None
    state_number: int | None
    accepted: bool | None
    verdict: str
    reason: str | None
    gap_size: int
    reject_count: int
    missing_runs: int
    behind_gap: bool
    in_doubt: bool


CHAIN = row(**{field.name: field.type for field in row_of(Chain)}, **LISTS)
JUDGED = row(turn=LONG, **{field.name: field.type for field in row_of(Judged)}, **LISTS)
"""Each row comes twice: at the turn TIMES with the columns TIMED alone, and at the turn VERDICT."""


def judge(reading: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Returns a pass that turns rows of CHAIN, those of a scope in replay order, into rows of JUDGED.

    Messages of a chain that are plainly in order are one row, others a row each. With the columns STATE and
    AFTER_BREAK, it takes the state before a chain from there.
    """

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        scope = Scope(None, reading)
        for rows in pieces(batches, lists="offsets"):
            found: list[Judged] = []
            for chain, known in zip(read_rows(rows.to_batches(), Chain), _known_states(rows), strict=False):
                if chain.scope_no != scope.scope_no:
                    scope = Scope(chain.scope_no, reading)
                if known is not None and reading is Reading.CONFORMANT:
                    scope.state = known
                if chain.previous is None:
                    scope.begin(chain)
                else:
                    found += scope.judge(chain, chain.previous)
            if found:
                yield from _to_batches(found, rows.filter(rows["previous"].is_valid()))

    return work


def _known_states(rows: pa.Table) -> Iterator[State | None]:
    """Yields the state before each chain, where a column says it and it is not after a break."""
    if AFTER_BREAK not in rows.column_names:
        yield from repeat(None)
    for after_break, *state in zip(*(rows[name].to_pylist() for name in (AFTER_BREAK, *STATE)), strict=True):
        yield None if after_break or state[0] is None else State(*state)


def _to_batches(found: list[Judged], chains: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields rows of JUDGED, first all at the turn TIMES; they share out the messages of the chains in their order."""
    values = zip(Judged._fields, zip(*found, strict=True), strict=True)
    columns = {name: pa.array(of, JUDGED.field(name).type) for name, of in values}
    ends = pa.array(np.cumsum([0, *(one.number - one.first_number + 1 for one in found)]), pa.int32())
    columns |= {name: pa.ListArray.from_arrays(ends, pc.list_flatten(chains[name].combine_chunks())) for name in LISTS}
    for turn, names in ((TIMES, TIMED), (VERDICT, JUDGED.names)):
        given = {name: column for name, column in columns.items() if name in names}
        yield from to_batches(given | {"turn": pa.array(np.full(len(found), turn))}, JUDGED)


class Scope:
    """Judges the messages of a scope one after another, and holds what they tell of the verdicts on further ones.

    A verdict is in doubt where the state before it rests on a message that cannot be judged; that ends with an accepted
    message whose previous number is 0.
    """

    def __init__(self, scope_no: int | None, reading: Reading) -> None:
        """Begins before all messages. Of messages it holds the `replay_order`."""
        self.scope_no, self.reading = scope_no, reading
        self.state: State | None = None
        """The receiver's state: under the literal reading, the last message or initial state."""
        self.moved = 0
        """The last message that moved the state, or may have."""
        self.doubted = self.sure = -1
        """Since when verdicts are in doubt, and when that ended last."""
        self.missing = 0
        """Unread ranges before the initial state."""
        self.sent = _BELOW_ALL
        """The highest (sequence, number) that the receiver had surely been sent.

        That is the initial state, or the previous number of a message that cannot be judged.
        """
        self.taken = Taken()

    def begin(self, initial: Chain) -> None:
        """Takes an initial state."""
        self.state = State(initial.sequence, initial.number, initial.missing)
        self.sent = max(self.sent, (initial.sequence, initial.number))
        self.missing = max(self.missing, initial.missing)

    def judge(self, chain: Chain, previous: int) -> Iterator[Judged]:
        """Yields the verdicts on a chain, of which the first message has this previous number."""
        for order, number in enumerate(range(chain.first_number, chain.number + 1), chain.replay_order):
            message = Message(chain.sequence, number, previous, chain.missing)
            one = self._judged(chain, order, message)
            yield one
            self._learn(one, message)
            if self.state is None or self.reading is Reading.LITERAL:
                self.state = State(one.sequence, one.number, chain.missing)
            else:
                self.state = after(self.state, message._replace(number=one.number))
            if one.number == chain.number:
                return
            previous = number

    def _judged(self, chain: Chain, order: int, message: Message) -> Judged:
        """Returns the row of a message; of a plain one, with those after it in the chain, which are as plain."""
        state, slot = self.state, (message.sequence, message.number)
        same = state is not None and message.sequence == state.sequence
        above = state is None or slot > (state.sequence, state.number)
        across = state is not None and message.missing > state.missing
        skipped = max(message.number - (state.number if state is not None and same else 0) - 1, 0)
        accepted: bool | None = message.previous == 0 if state is None else accept(state, message)
        reason = None
        if state is None and not accepted:
            accepted, verdict, reason = None, Verdict.UNKNOWN, Reason.NO_PRIOR_STATE
        elif above and across and (not accepted or skipped):
            accepted, verdict, reason = None, Verdict.UNKNOWN, Reason.CAPTURE_GAP
        elif accepted:
            verdict = Verdict.GAP_EXPIRED if skipped else Verdict.IN_ORDER if same else Verdict.NEW_SEQUENCE
        elif slot <= self.sent or self.taken.have(*slot):
            verdict = Verdict.DUPLICATE
        else:
            below = Reason.LATE if same else Reason.STALE_SEQUENCE
            verdict, reason = Verdict.OUT_OF_ORDER, Reason.PREDECESSOR_MISSING if above else below
        is_plain = verdict is Verdict.IN_ORDER and message.previous > 0 and not across
        return Judged(
            chain.scope_no,
            chain.stream_no,
            chain.pair_no,
            order,
            message.sequence,
            first_number=message.number,
            number=chain.number if is_plain else message.number,
            state_sequence=state and state.sequence,
            state_number=state and state.number,
            accepted=accepted,
            verdict=verdict,
            reason=reason,
            gap_size=skipped if verdict is Verdict.GAP_EXPIRED else 0,
            reject_count=order - self.moved if accepted is False else 0,
            missing_runs=message.missing - self.missing,
            behind_gap=across,
            in_doubt=self.doubted > self.sure,
        )

    def _learn(self, one: Judged, message: Message) -> None:
        """Learns from a verdict on a message, or on a run of plain ones."""
        if one.accepted is False:
            return
        self.moved = one.replay_order + one.number - one.first_number
        self.taken.add(one.sequence, one.first_number, one.number)
        if one.accepted is None:
            self.doubted = one.replay_order
            self.sent = max(self.sent, (message.sequence, message.previous))
        elif message.previous == 0:
            self.sure = one.replay_order


class Taken:
    """Holds the numbers of a scope that were accepted, or taken across unread bytes; those without gaps as a range."""

    def __init__(self) -> None:
        """Begins without numbers."""
        self._sequences, self._first, self._last = array("q"), array("q"), array("q")
        self._others: set[tuple[int, int]] = set()

    def add(self, sequence: int, first: int, last: int) -> None:
        """Adds numbers, which rise with the state; under the literal reading that may fall."""
        highest = (self._sequences[-1], self._last[-1]) if self._last else _BELOW_ALL
        if highest == (sequence, first - 1):
            self._last[-1] = last
        elif highest < (sequence, first):
            for values, value in ((self._sequences, sequence), (self._first, first), (self._last, last)):
                values.append(value)
        else:
            self._others.update((sequence, number) for number in range(first, last + 1))

    def have(self, sequence: int, number: int) -> bool:
        """Returns whether a number was added."""
        places = range(len(self._last))
        after = bisect_right(places, (sequence, number), key=lambda at: (self._sequences[at], self._first[at]))
        in_range = after > 0 and self._sequences[after - 1] == sequence and number <= self._last[after - 1]
        return in_range or (sequence, number) in self._others
