"""Compares verdicts with the receiver's own acknowledgments ([MS-MQQB] 3.1.1.6.2, 3.1.6.9, 2.2.5).

An OrderAck is cumulative: the first one at or above a message's number *covers* the message. A resend is acknowledged
by the next OrderAck once its number is covered. A FinalAck speaks of the message that it names, and covers it if that
was in its queue.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from schemas.judging import ACK, PIECE_BYTES, TIMES, VERDICT
from schemas.replay import Evidence, Reading, Verdict
from schemas.table import LONG, STRING, U16, row
from schemas.wire import LATEST_ORDER_ACK_NS, NEGATIVE_CLASS, QUEUED_CLASS
from udfs.frames.groups import (
    NONE,
    Ints,
    begins,
    bounds,
    columns_of,
    expand,
    nullable,
    numbers,
    pieces,
    to_batches,
)
from udfs.frames.rows import Batches
from udfs.replay.verdicts.acks import GROUP, NEVER, Acks, read_acks
from udfs.replay.verdicts.judge import JUDGED

_KEPT = (
    *("scope_no", "stream_no", "sequence", "state_sequence", "accepted", "verdict", "reason"),
    *("gap_size", "reject_count", "missing_runs", "behind_gap", "in_doubt"),
)
_RISING = ("first_number", "replay_order", "state_number")
"""Columns that rise by one with each message of a run; a single message's are its own."""
_PLACES = ("piece", "first_offset", "last_offset")
_TIMES = ("acknowledged_ns", "covered_ns", "denied_ns")
PROVEN = row(
    **{name: JUDGED.field(name).type for name in (*_KEPT, *_RISING)},
    **dict.fromkeys(_PLACES + _TIMES, LONG),
    evidence=STRING,
    final_ack_class=U16,
    doubt_ended_ns=LONG,
)
"""A run of messages in one piece of their stream, of which acknowledgments say the same.

`doubt_ended_ns` says when its verdict was no longer in doubt, if that rests on another message or on a state.
"""


def prove(reading: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Returns a pass that turns rows of JUDGED and of ACKNOWLEDGED into rows of PROVEN.

    Those of a pair of queue managers and a sequence, a *group*, come next to each other, by `turn`. From one piece to
    the next it keeps the acknowledgments of the last group and, of each, what the messages of the group told at the
    turn TIMES. So each message needs no others at the turn VERDICT.
    """

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        acks = Acks()
        for rows in pieces(batches, lists="times"):
            groups, turn = acks.begin(numbers(rows, *GROUP)), rows["turn"].to_numpy()
            (new, of_new), (times, of_times), (judged, of_judged) = (
                (rows.filter(pa.array(turn == one)), groups[turn == one]) for one in (ACK, TIMES, VERDICT)
            )
            acks.add(read_acks(new, of_new))
            if new.num_rows < rows.num_rows:
                acks.put_in_order()
            acks.learn(read_times(times, of_times))
            if judged.num_rows:
                messages = with_acks(read_messages(judged, of_judged), acks)
                yield from to_runs(with_evidence(messages, conformant=reading is Reading.CONFORMANT), judged)

    return work


def read_times(judged: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns `group`, `number` and `ns` of each message with a time that moved the state, or may have."""
    items, row, nth = expand(judged, "times")
    of_run = numbers(judged, "first_number", "accepted")
    times = items.rename(columns={"times": "ns"}).assign(group=group[row])
    times["number"] = of_run["first_number"].to_numpy()[row] + nth
    return times[(times["ns"] != NONE) & (of_run["accepted"] != 0).to_numpy()[row]]


def read_messages(judged: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns a row per message: `group`, `number`, `ns`, its place in the run (`row`, `nth`), and its verdict."""
    messages, row, nth = expand(judged, "offsets", "times", "message_nos")
    messages = messages.rename(columns={"times": "ns"}).assign(row=row, nth=nth, group=group[row])
    of_run = numbers(judged, "first_number", "accepted").iloc[row].reset_index(drop=True)
    messages["number"] = of_run["first_number"] + nth
    messages["accepted"] = of_run["accepted"] == 1
    verdict = judged["verdict"].to_numpy()[row]
    messages["is_refused"] = verdict == Verdict.OUT_OF_ORDER
    messages["is_duplicate"] = verdict == Verdict.DUPLICATE
    return messages


def with_acks(messages: pd.DataFrame, acks: Acks) -> pd.DataFrame:
    """Adds what acknowledgments came for each message.

    `by_order_ns`: when an OrderAck first named its number or a higher one. `following` and `overdue`: the first
    OrderAck after the message, and the first that came later than the timers allow. `final`: the last FinalAck that
    names the message. Of these, `_ns` and `_number`, or `_class`; NEVER or NONE for none. `covered`: when the message
    first was, by either; and whether the replay `had_reached` its number.
    """
    group, number, ns = columns_of(messages, "group", "number", "ns")
    messages["by_order_ns"] = acks.first_from_number(group, number)
    for name, from_ns in (("following", ns), ("overdue", ns + LATEST_ORDER_ACK_NS)):
        found = acks.orders.first_from(group, from_ns)
        _add(messages, name, acks.orders.acks, np.where(ns == NONE, -1, found))
    finals = acks.finals_from(group, number)
    named = messages[["group", "number", "message_nos"]].rename(columns={"message_nos": "message_no"})
    places = named.merge(finals.reset_index(names="place"), "left", ["group", "number", "message_no"])["place"]
    _add(messages, "final", finals, places.fillna(-1).to_numpy(np.int64))
    was_queued = (messages["final_class"] != NONE) & ((messages["final_class"] & QUEUED_CLASS) != 0)
    messages["covered"] = messages["by_order_ns"].clip(upper=messages["final_ns"].where(was_queued, NEVER))
    asked = np.flatnonzero(messages["is_refused"] & (messages["covered"] != NEVER))
    messages["had_reached"] = False
    covered = messages["covered"].to_numpy()
    messages.loc[asked, "had_reached"] = acks.had_reached(group[asked], number[asked], covered[asked])
    return messages


def _add(messages: pd.DataFrame, name: str, acks: pd.DataFrame, place: Ints) -> None:
    """Adds time, number and class of the acknowledgment at each place; of none at -1."""
    for column, nothing in (("ns", NEVER), ("number", NONE), ("message_class", NONE)):
        values = np.append(acks[column].to_numpy(np.int64), nothing)
        messages[f"{name}_{column.removeprefix('message_')}"] = values[place]


def with_evidence(messages: pd.DataFrame, *, conformant: bool) -> pd.DataFrame:
    """Adds `acknowledged_ns`, `covered_ns`, `denied_ns` and `evidence`.

    `confirmed`: an accepted message is acknowledged, a duplicate is covered at any time, or the first OrderAck after an
    out-of-order message names a lower number. `contradicted`: an out-of-order message is covered before the replay
    reached its number; or an accepted one is not covered by an OrderAck that came later than the timers allow. `none`:
    otherwise. A receiver of the literal reading names the last message, accepted or not, so nothing contradicts it.

    `covered_ns` is the time of the first OrderAck after the message that names its number or a higher one. If an
    OrderAck did so before the message came, only the next OrderAck counts. `denied_ns` is the time of a negative
    FinalAck.
    """
    ns, number, accepted, refused = (messages[name] for name in ("ns", "number", "accepted", "is_refused"))
    by_order, following, covered = (messages[name] for name in ("by_order_ns", "following_ns", "covered"))
    acknowledged = covered.where(covered >= ns, following).where(ns != NONE, NEVER)
    names_it = messages["following_number"] >= number
    covered_later = by_order.where(by_order >= ns, following.where(names_it, NEVER)).where(ns != NONE, NEVER)
    is_late = (messages["overdue_number"] != NONE) & (messages["overdue_number"] < number)
    not_covered = accepted & is_late & (covered >= messages["overdue_ns"])
    not_covered &= messages["final_class"] == NONE
    too_soon = refused & (covered != NEVER) & ~messages["had_reached"]
    is_lower = refused & (following != NEVER) & (messages["following_number"] < number)
    confirmed = (accepted & (acknowledged != NEVER)) | (messages["is_duplicate"] & (covered != NEVER))
    messages["acknowledged_ns"], messages["covered_ns"] = acknowledged, covered_later
    is_negative = (messages["final_class"] != NONE) & ((messages["final_class"] & NEGATIVE_CLASS) != 0)
    messages["denied_ns"] = messages["final_ns"].where(is_negative, NEVER)
    messages["evidence"] = np.select(
        [conformant & not_covered, confirmed, conformant & too_soon, is_lower],
        [Evidence.CONTRADICTED, Evidence.CONFIRMED, Evidence.CONTRADICTED, Evidence.CONFIRMED],
        Evidence.NONE,
    )
    return messages


def to_runs(messages: pd.DataFrame, judged: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields rows of PROVEN: messages of a row of JUDGED that are next to each other and have the same evidence."""
    said = ("row", *_TIMES, "evidence", "final_class")
    piece = messages["offsets"].to_numpy() // PIECE_BYTES
    is_first = begins(*columns_of(messages, *said), piece)
    first, last = bounds(is_first)
    firsts, nth = messages.iloc[first], pa.array(messages["nth"].to_numpy()[first])
    rows = judged.take(pa.array(firsts["row"].to_numpy()))
    columns = {name: rows[name].combine_chunks() for name in _KEPT}
    columns |= {name: pc.add(rows[name], nth).combine_chunks() for name in _RISING}
    columns |= {name: nullable(firsts[name].replace(NEVER, NONE)) for name in _TIMES}
    columns |= {
        "piece": pa.array(piece[first]),
        "first_offset": pa.array(firsts["offsets"].to_numpy()),
        "last_offset": pa.array(messages["offsets"].to_numpy()[last]),
        "evidence": pa.array(firsts["evidence"].astype(str), pa.string()),
        "final_ack_class": nullable(firsts["final_class"], pa.int32()),
    }
    yield from to_batches(columns, PROVEN)


def end_doubts(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Adds `doubt_ended_ns` to rows of PROVEN; those of a scope come in replay order.

    The state before a row that is `in_doubt` rests on the last unknown message of its scope before it. From one piece
    to the next it keeps when an OrderAck covered the last unknown message.
    """
    covered = NONE
    for rows in pieces(batches):
        known = numbers(rows, "accepted", "covered_ns")
        times = np.append(covered, known["covered_ns"])
        places = np.append(0, np.where(known["accepted"] == NONE, np.arange(1, len(times)), 0))
        last = np.maximum.accumulate(places)
        covered = times[last[-1]]
        at = rows.schema.get_field_index("doubt_ended_ns")
        ended = nullable(pd.Series(times[last[:-1]]))
        yield from rows.set_column(at, PROVEN.field("doubt_ended_ns"), ended).cast(PROVEN).to_batches()
