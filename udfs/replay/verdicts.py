"""The verdict on each message, from the receiver's state before it (contract: the table of verdicts)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from schemas.judging import JUDGED
from schemas.replay import Reason, Verdict
from udfs.replay.acceptance import STATE
from udfs.replay.groups import (
    NONE,
    Ints,
    as_lists,
    before,
    begins,
    bounds,
    columns_of,
    expand,
    group_of,
    nullable,
    numbers,
    so_far,
    texts,
    to_batches,
    whole_groups,
)
from udfs.replay.rows import Batches

LITERAL = ("literal_sequence", "literal_number", "literal_missing")
"""The state before a chain under the literal reading, where that is asked for."""
_LISTS = ("offsets", "times", "message_nos")
_NUMBERS = ("scope_no", "stream_no", "pair_no", "replay_order", "sequence", "first_number", "number", "previous")
_SCHEMA = JUDGED


def judge(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of CHAIN with the state before each into rows of JUDGED; those of a scope come in replay order."""
    for rows in whole_groups(batches, "scope_no"):
        messages = read_messages(rows, STATE)
        verdicts = with_rule(messages)
        conformant = conformant_number(verdicts)
        if LITERAL[0] in rows.column_names:
            verdicts = with_rule(read_messages(rows, LITERAL, always_moves=True))
        yield from to_runs(with_verdict(verdicts.assign(conformant_number=conformant)))


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


def with_verdict(rows: pd.DataFrame) -> pd.DataFrame:
    """Adds `verdict`, `reason` and what depends on the messages before, and drops initial states.

    A refused message is a duplicate if its number was accepted before, or if it is at or below what the receiver had
    surely been sent: the initial state, or the previous number of a message that cannot be judged. A verdict is `in
    doubt` where the state before it rests on such a message, or on an initial state that was only assumed; that ends
    with an accepted message whose previous number is 0. `doubt_order` is the `replay_order` of that message.
    """
    scope, order = group_of(rows, "scope_no"), rows["replay_order"]
    unknown, accepted, is_message = rows["unknown"], rows["accepted"], rows["is_message"]
    rows["last_moved"] = so_far(order.where(accepted | unknown, 0), scope)
    rows["doubt_order"] = before(order.where(unknown, NONE), scope, NONE)
    last_unknown = before(order.where(unknown | (rows["assumed_until"] != NONE), -1), scope, -1)
    rows["in_doubt"] = last_unknown > before(order.where(accepted & (rows["previous"] == 0), -1), scope, -1)
    rows["initially_until"] = before(rows["assumed_until"], scope, NONE)
    rows["missing_runs"] = rows["missing"] - before(rows["missing"].where(~is_message, 0), scope, 0)
    refused = ~accepted & ~unknown & is_message
    duplicate = refused & (_is_sent(rows, scope) | _is_repeated(rows, refused))
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
    rows["reject_count"] = (order - rows["last_moved"]).clip(lower=0)
    return rows[is_message].reset_index(drop=True)


def _is_sent(rows: pd.DataFrame, scope: Ints) -> "pd.Series[bool]":
    """Returns whether a message is at or below the highest (sequence, number) that had surely been sent before it."""
    number = rows["number"].where(~rows["is_message"], rows["previous"])
    surely = ~rows["is_message"] | rows["unknown"]
    pairs = pd.DataFrame({"sequence": rows["sequence"], "number": number})[surely]
    pairs = pairs.drop_duplicates().sort_values(["sequence", "number"], ignore_index=True)
    ranks = pd.Series(-1, rows.index)
    if pairs.empty:
        return ranks == 0
    named = rows[["sequence"]].assign(number=number)[surely].reset_index()
    found = named.merge(pairs.reset_index(names="rank"), on=["sequence", "number"])
    ranks[found["index"].to_numpy()] = found["rank"].to_numpy()
    highest = before(ranks, scope, -1)
    sequence, last = (pairs[name].to_numpy()[highest.clip(lower=0)] for name in ("sequence", "number"))
    return (highest >= 0) & (
        (rows["sequence"] < sequence) | ((rows["sequence"] == sequence) & (rows["number"] <= last))
    )


def _is_repeated(rows: pd.DataFrame, refused: "pd.Series[bool]") -> "pd.Series[bool]":
    """Returns whether the number of a refused message was accepted before, or taken across unread bytes."""
    slot = ["scope_no", "sequence", "number"]
    some = rows.loc[refused, [*slot, "replay_order"]].reset_index()
    moved = rows.loc[rows["accepted"] | rows["unknown"], [*slot, "replay_order"]]
    found = some.merge(moved, on=slot, suffixes=("", "_before"))
    repeated = pd.Series(data=False, index=rows.index)
    repeated[found.loc[found["replay_order_before"] < found["replay_order"], "index"]] = True
    return repeated


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
    yield from to_batches(columns | as_lists(rows, first, *_LISTS), _SCHEMA)


_INTEGERS = (
    *("scope_no", "stream_no", "pair_no", "replay_order", "state_number", "gap_size", "reject_count", "missing_runs"),
    *("conformant_number", "doubt_order", "initially_until"),
)


def _flags(values: "pd.Series[bool]") -> pa.Array:
    return pa.array(values.to_numpy(), pa.bool_())
