"""The verdict on each message, from the receiver's state before it (contract: the table of verdicts)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from schemas.judging import JUDGED, TIMED, TIMES, VERDICT
from schemas.replay import Reason, Verdict
from udfs.replay.acceptance import STATE
from udfs.replay.groups import (
    NONE,
    NUMBERS,
    Bools,
    Ints,
    as_lists,
    begins,
    bounds,
    columns_of,
    expand,
    group_of,
    nullable,
    numbers,
    pieces,
    texts,
    to_batches,
)
from udfs.replay.rows import Batches

LITERAL = ("literal_sequence", "literal_number", "literal_missing")
"""The state before a chain under the literal reading, where that is asked for."""
_LISTS = ("offsets", "times", "message_nos")
_NUMBERS = ("scope_no", "stream_no", "pair_no", "replay_order", "sequence", "first_number", "number", "previous")


def judge(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of CHAIN with the state before each into rows of JUDGED; those of a scope come in replay order.

    From one piece to the next it keeps what the messages of the last scope so far tell of its further ones: `Past`.
    """
    past = Past()
    for rows in pieces(batches, lists="offsets"):
        messages = read_messages(rows, STATE)
        verdicts = with_rule(messages)
        conformant = conformant_number(verdicts)
        if LITERAL[0] in rows.column_names:
            verdicts = with_rule(read_messages(rows, LITERAL, always_moves=True))
        yield from to_runs(past.with_verdict(verdicts.assign(conformant_number=conformant)))


def read_messages(rows: pa.Table, state: tuple[str, ...], *, always_moves: bool = False) -> pd.DataFrame:
    """Returns a row per message and initial state, with the state before it: `sequence`, `number`, `missing` of STATE.

    The state of a chain is that before its first message. It moves with the chain from the first accepted message on,
    or `always_moves`: then each message sets it.
    """
    items, row, nth = expand(rows, *_LISTS)
    of_chain = numbers(rows, *_NUMBERS, "missing", "assumed_until", *state).rename(
        columns=dict(zip(state, STATE, strict=True))
    )
    found = of_chain.iloc[row].reset_index(drop=True)
    found[list(_LISTS)] = items
    found["chain"], found["is_message"] = row, found["previous"] != NONE
    reaches = with_rule(of_chain.assign(number=of_chain["first_number"]))
    moves = (reaches["accepted"] | reaches["unknown"]).to_numpy()
    within = of_chain["state_number"].between(of_chain["first_number"], of_chain["number"] - 1)
    within &= of_chain["state_sequence"] == of_chain["sequence"]
    found["replay_order"] += nth
    found["number"] = np.where(found["is_message"], found["first_number"] + nth, found["number"])
    found["previous"] = np.where(nth > 0, found["number"] - 1, found["previous"])
    is_moved = (nth > 0) & (moves[row] | (within.to_numpy()[row] & (found["previous"] > found["state_number"])))
    own = (nth > 0) if always_moves else is_moved
    for name, mine in zip(STATE, ("sequence", "previous", "missing"), strict=True):
        found[name] = np.where(own, found[mine], found[name])
    return found


def with_rule(rows: pd.DataFrame) -> pd.DataFrame:
    """Adds what [MS-MQQB] 3.1.5.8.6 says of each message in the state before it.

    `accepted`; `unknown` where the captures cannot show it; whether it is `above` the state and in the `same` sequence;
    whether bytes are unread between what set the state and the message (`across`); and how many numbers were `skipped`.
    """
    is_known = rows["state_number"] != NONE
    same = is_known & (rows["sequence"] == rows["state_sequence"])
    above = ~is_known | (rows["sequence"] > rows["state_sequence"])
    above |= same & (rows["number"] > rows["state_number"])
    across = is_known & (rows["missing"] > rows["state_missing"])
    skipped = (rows["number"] - np.where(same, rows["state_number"], 0) - 1).clip(lower=0)
    follows = np.where(same, rows["previous"] <= rows["state_number"], rows["previous"] == 0)
    unknown = np.where(is_known, above & across & (~follows | (skipped > 0)), rows["previous"] != 0)
    unknown &= rows["previous"] != NONE
    accepted = ~unknown & above & follows & (rows["previous"] != NONE)
    return rows.assign(
        is_known=is_known, same=same, above=above, across=across, skipped=skipped, unknown=unknown, accepted=accepted
    )


def conformant_number(rows: pd.DataFrame) -> Ints:
    """Returns the number that the next OrderAck of a conformant receiver names, in the message's sequence.

    NONE where the verdict is unknown, and where the receiver is in another sequence.
    """
    refused = rows["same"] & ~rows["accepted"] & ~rows["unknown"]
    return np.where(rows["accepted"], rows["number"], np.where(refused, rows["state_number"], NONE))


_MAXIMA = ("moved", "unknown", "doubted", "sure", "assumed_until", "missing")


class Past:
    """Holds what the rows of a scope so far tell of the verdicts on its further ones.

    `maxima` is a row that stands for all of them, with the last `replay_order` of four kinds, and what the initial
    state says; `sent` is the highest (sequence, number) that the receiver had surely been sent; `taken` are the numbers
    that were accepted, or taken across unread bytes. They are those of the scope of the last row.
    """

    def __init__(self) -> None:
        """Begins before all scopes."""
        self.maxima = pd.DataFrame(columns=["scope_no", *_MAXIMA], dtype=np.int64)
        self.sent = pd.DataFrame(columns=["scope_no", "sequence", "number"], dtype=np.int64)
        self.taken = Taken()

    def with_verdict(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Adds `verdict`, `reason` and what depends on the messages before, and drops initial states.

        A refused message is a duplicate if its number was accepted before, or if it is at or below what the receiver
        had surely been sent: the initial state, or the previous number of a message that cannot be judged. A verdict is
        `in doubt` where the state before it rests on such a message, or on an initial state that was only assumed; that
        ends with an accepted message whose previous number is 0. `doubt_order` is the `replay_order` of that message.
        """
        unknown, accepted, is_message = rows["unknown"], rows["accepted"], rows["is_message"]
        before, last_moved = self._maxima_before(rows)
        rows["last_moved"], rows["doubt_order"] = last_moved, before["unknown"]
        rows["in_doubt"] = before["doubted"] > before["sure"]
        rows["initially_until"] = before["assumed_until"]
        rows["missing_runs"] = rows["missing"] - before["missing"].clip(lower=0)
        refused = ~accepted & ~unknown & is_message
        duplicate = refused & (self._is_sent(rows) | self._is_repeated(rows, refused))
        rows["verdict"] = np.select(
            [unknown, duplicate, refused, rows["skipped"] > 0, rows["same"]],
            [Verdict.UNKNOWN, Verdict.DUPLICATE, Verdict.OUT_OF_ORDER, Verdict.GAP_EXPIRED, Verdict.IN_ORDER],
            Verdict.NEW_SEQUENCE,
        )
        rows["reason"] = np.select(
            [unknown & rows["is_known"], unknown, ~refused | duplicate, rows["above"], rows["same"]],
            [Reason.CAPTURE_GAP, Reason.NO_PRIOR_STATE, "", Reason.PREDECESSOR_MISSING, Reason.LATE],
            Reason.STALE_SEQUENCE,
        )
        rows["gap_size"] = rows["skipped"].where(rows["verdict"] == Verdict.GAP_EXPIRED, 0)
        rows["reject_count"] = (rows["replay_order"] - rows["last_moved"]).clip(lower=0)
        return rows[is_message].reset_index(drop=True)

    def _maxima_before(self, rows: pd.DataFrame) -> "tuple[pd.DataFrame, pd.Series[int]]":
        """Returns _MAXIMA over the rows of its scope before each, and `moved` with itself; NONE for none."""
        order, unknown, accepted = rows["replay_order"], rows["unknown"], rows["accepted"]
        own = {
            "scope_no": rows["scope_no"],
            "moved": order.where(accepted | unknown, NONE),
            "unknown": order.where(unknown, NONE),
            "doubted": order.where(unknown | (rows["assumed_until"] != NONE), NONE),
            "sure": order.where(accepted & (rows["previous"] == 0), NONE),
            "assumed_until": rows["assumed_until"],
            "missing": rows["missing"].where(~rows["is_message"], NONE),
        }
        values = pd.concat([self.maxima, pd.DataFrame(own)], ignore_index=True)
        scope, known = group_of(values, "scope_no"), len(self.maxima)
        reached = values[list(_MAXIMA)].groupby(scope).cummax()
        before = reached.groupby(scope).shift(fill_value=NONE)[known:].reset_index(drop=True)
        self.maxima = reached.tail(1).assign(scope_no=values["scope_no"].iloc[-1])[list(values.columns)]
        return before, reached["moved"][known:].reset_index(drop=True).clip(lower=0)

    def _is_sent(self, rows: pd.DataFrame) -> "pd.Series[bool]":
        """Returns whether a message is at or below the highest (sequence, number) that had surely been sent before."""
        number = rows["number"].where(~rows["is_message"], rows["previous"])
        is_sure = ~rows["is_message"] | rows["unknown"]
        named = pd.concat([self.sent, rows[["scope_no", "sequence"]].assign(number=number)], ignore_index=True)
        known = len(self.sent)
        surely = np.concatenate([np.ones(known, bool), is_sure.to_numpy()])
        scope = group_of(named, "scope_no")
        if not surely.any():
            return pd.Series(data=False, index=rows.index)
        pairs = named.loc[surely, ["sequence", "number"]].drop_duplicates()
        pairs = pairs.sort_values(["sequence", "number"], ignore_index=True)
        found = named[surely].reset_index().merge(pairs.reset_index(names="rank"), on=["sequence", "number"])
        ranks = pd.Series(-1, named.index)
        ranks[found["index"].to_numpy()] = found["rank"].to_numpy()
        reached = ranks.groupby(scope).cummax()
        highest = reached.groupby(scope).shift(fill_value=-1)[known:].reset_index(drop=True)
        sequence, last = (pairs[name].to_numpy()[highest.clip(lower=0)] for name in ("sequence", "number"))
        self.sent = pairs.iloc[reached.tail(1).to_numpy()] if reached.iloc[-1] >= 0 else pairs[:0]
        self.sent = self.sent.assign(scope_no=named["scope_no"].iloc[-1])[list(named.columns)]
        return (highest >= 0) & (
            (rows["sequence"] < sequence) | ((rows["sequence"] == sequence) & (rows["number"] <= last))
        )

    def _is_repeated(self, rows: pd.DataFrame, refused: "pd.Series[bool]") -> "pd.Series[bool]":
        """Returns whether the number of a refused message was accepted before, or taken across unread bytes."""
        slot = ["scope_no", "sequence", "number"]
        moved = rows.loc[rows["accepted"] | rows["unknown"], [*slot, "replay_order"]]
        some = rows.loc[refused, [*slot, "replay_order"]].reset_index()
        found = some.merge(moved, on=slot, suffixes=("", "_before"))
        repeated = pd.Series(data=False, index=rows.index)
        repeated[some.loc[self.taken.have(some), "index"]] = True
        repeated[found.loc[found["replay_order_before"] < found["replay_order"], "index"]] = True
        self.taken.add(moved, rows["scope_no"].iloc[-1])
        return repeated


class Taken:
    """Holds numbers of one scope as ranges: those of a sequence without gaps are one.

    They are in levels, of which each has at least twice the ranges of the next. So to add some merges a few levels, and
    the cost of all grows hardly faster than their count.
    """

    def __init__(self) -> None:
        """Begins without a scope."""
        self.scope_no: int | None = None
        self.levels: list[_Level] = []

    def have(self, slots: pd.DataFrame) -> Bools:
        """Returns which of the slots have a scope and number that were added."""
        scope_no, sequence, number = columns_of(slots, "scope_no", "sequence", "number")
        found = np.zeros(len(slots), bool)
        for level in self.levels:
            rank = np.searchsorted(level.sequences, sequence).clip(max=len(level.sequences) - 1)
            wanted = rank * NUMBERS + number
            place = np.searchsorted(level.first, wanted, "right") - 1
            found |= (level.sequences[rank] == sequence) & (place >= 0) & (level.last[place] >= wanted)
        found &= scope_no == self.scope_no
        return found

    def add(self, slots: pd.DataFrame, scope_no: int) -> None:
        """Adds the numbers of the slots of a scope; forgets those of another one."""
        if scope_no != self.scope_no:
            self.scope_no, self.levels = scope_no, []
        sequence, number = columns_of(slots[slots["scope_no"] == scope_no], "sequence", "number")
        if len(number):
            self.levels.append(_level(sequence, number, number))
        while len(self.levels) > 1 and len(self.levels[-2].first) < 2 * len(self.levels[-1].first):
            last_two = (self.levels.pop().ranges() for _ in range(2))
            self.levels.append(_level(*map(np.concatenate, zip(*last_two, strict=True))))


class _Level(NamedTuple):
    """Ranges that do not touch, in order. A number has the rank of its sequence in its high bits."""

    sequences: Ints
    first: Ints
    last: Ints

    def ranges(self) -> tuple[Ints, Ints, Ints]:
        """Returns sequence, first and last number of each range."""
        return self.sequences[self.first // NUMBERS], self.first % NUMBERS, self.last % NUMBERS


def _level(sequence: Ints, first: Ints, last: Ints) -> _Level:
    """Returns the ranges in order, those that touch or overlap as one."""
    sequences, rank = np.unique(sequence, return_inverse=True)
    order = np.argsort(rank * NUMBERS + first, kind="stable")
    low, high = (((rank * NUMBERS) + of)[order] for of in (first, last))
    high = np.maximum.accumulate(high)
    is_apart = np.append(True, low[1:] > high[:-1] + 1)
    starts, ends = bounds(is_apart)
    return _Level(sequences, low[starts], high[ends])


def to_runs(rows: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    """Yields rows of JUDGED: runs of messages of a chain that are plainly in order, and others by themselves."""
    plain = (rows["verdict"] == Verdict.IN_ORDER).to_numpy() & ~rows["across"].to_numpy()
    plain &= (rows["reject_count"] == 0).to_numpy() & (rows["state_number"] == rows["number"] - 1).to_numpy()
    plain &= (rows["conformant_number"] == rows["number"]).to_numpy()
    is_first = begins(*columns_of(rows, "chain", "in_doubt", "doubt_order", "initially_until"))
    is_first[1:] |= ~(plain[1:] & plain[:-1])
    first, last = bounds(is_first)
    firsts = rows.iloc[first]
    is_known = firsts["is_known"].to_numpy()
    columns = {name: nullable(firsts[name]) for name in _INTEGERS}
    columns |= {
        "first_number": nullable(firsts["number"]),
        "number": nullable(rows["number"].iloc[last]),
        "sequence": pa.array(firsts["sequence"].to_numpy()),
        "state_sequence": pa.array(firsts["state_sequence"].to_numpy(), mask=~is_known),
        "accepted": pa.array(firsts["accepted"].to_numpy(), pa.bool_(), mask=firsts["unknown"].to_numpy()),
        "verdict": texts(firsts["verdict"]),
        "reason": texts(firsts["reason"]),
        "behind_gap": _flags(firsts["across"]),
        "in_doubt": _flags(firsts["in_doubt"]),
    }
    columns |= as_lists(rows, first, *_LISTS)
    for turn, names in ((TIMES, TIMED), (VERDICT, JUDGED.names)):
        given = {name: column for name, column in columns.items() if name in names}
        yield from to_batches(given | {"turn": pa.array(np.full(len(first), turn))}, JUDGED)


_INTEGERS = (
    *("scope_no", "stream_no", "pair_no", "replay_order", "state_number", "gap_size", "reject_count", "missing_runs"),
    *("conformant_number", "doubt_order", "initially_until"),
)


def _flags(values: "pd.Series[bool]") -> pa.Array:
    return pa.array(values.to_numpy(), pa.bool_())
