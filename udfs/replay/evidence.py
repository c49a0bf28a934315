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
from numpy.typing import NDArray

from schemas.judging import PROVEN
from schemas.replay import Evidence, Explains, Reading, Verdict
from schemas.wire import LATEST_ORDER_ACK_MS, QUEUED_CLASS
from udfs.replay.groups import (
    NONE,
    Bools,
    Ints,
    begins,
    bounds,
    columns_of,
    expand,
    group_of,
    nullable,
    numbers,
    texts,
    to_batches,
    whole_groups,
)
from udfs.replay.rows import Batches

_MS = 1_000_000  # ns
_LATEST_NS = LATEST_ORDER_ACK_MS * _MS
_IN_FLIGHT_NS = 250 * _MS
"""An OrderAck that follows sooner may have left before the message arrived."""
_NEVER = np.iinfo(np.int64).max
_NUMBERS = 1 << 33
"""More than there are numbers."""
BLOCK_BITS = 16
"""Low bits of offsets: a hash join on blocks of a stream finds the few runs that an offset may belong to."""
_SCHEMA = PROVEN
_KEPT = (
    *("scope_no", "stream_no", "sequence", "state_sequence", "accepted", "verdict", "reason"),
    *("gap_size", "reject_count", "missing_runs", "behind_gap", "in_doubt", "doubt_order", "initially_until"),
)
_RISING = ("first_number", "replay_order", "state_number")
"""Columns that rise by one with each message of a run; a single message's are its own."""


def prove(reading: Reading) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Returns a pass that turns rows of JUDGED and of ACKNOWLEDGED into rows of PROVEN.

    Those of a pair of queue managers and a sequence come next to each other, in any order.
    """

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(batches, "pair_no", "sequence"):
            group = group_of(numbers(rows, "pair_no", "sequence"), "pair_no", "sequence")
            is_message = rows["verdict"].is_valid().to_numpy()
            judged, acks = rows.filter(pa.array(is_message)), rows.filter(pa.array(~is_message))
            if judged.num_rows:
                messages = read_messages(judged, group[is_message])
                messages = with_acks(messages, read_acks(acks, group[~is_message]))
                yield from to_runs(with_evidence(messages, conformant=reading is Reading.CONFORMANT), judged)

    return work


def read_messages(judged: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns a row per message: `group`, `number`, `ns`, its place in the run (`row`, `nth`), and its verdict."""
    messages, row, nth = expand(judged, "offsets", "times", "message_nos")
    messages = messages.rename(columns={"times": "ns"}).assign(row=row, nth=nth, group=group[row])
    of_run = numbers(judged, "first_number", "conformant_number", "accepted").iloc[row].reset_index(drop=True)
    messages["number"] = of_run["first_number"] + nth
    conformant = of_run["conformant_number"]
    messages["conformant_number"] = conformant.where(conformant == NONE, conformant + nth)
    messages["accepted"], messages["is_unknown"] = of_run["accepted"] == 1, of_run["accepted"] == NONE
    verdict = judged["verdict"].to_numpy()[row]
    messages["is_refused"] = verdict == Verdict.OUT_OF_ORDER
    messages["is_duplicate"] = verdict == Verdict.DUPLICATE
    return messages


def read_acks(acks: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns `group`, `number`, `ns`, `message_class` (NONE for an OrderAck) and `message_no`, in order of time."""
    found = numbers(acks, "number", "ack_ns", "message_class", "message_no").rename(columns={"ack_ns": "ns"})
    return found.assign(group=group).sort_values(["group", "ns", "number", "message_class"], ignore_index=True)


def with_acks(messages: pd.DataFrame, acks: pd.DataFrame) -> pd.DataFrame:
    """Adds what acknowledgments came for each message.

    `by_order_ns`: when an OrderAck first named its number or a higher one. `reached_ns`: when a message first moved the
    state there. `following` and `overdue`: the first OrderAck after the message, and the first that came later than the
    timers allow. `next`: the OrderAck that is the next packet. `final`: the last FinalAck that names the message. Of
    these, `_ns` and `_number`, or `_class`; _NEVER or NONE for none.
    """
    order_acks, final_acks = (acks[of].reset_index(drop=True) for of in _by_kind(acks))
    moving = messages[(messages["accepted"] | messages["is_unknown"]) & (messages["ns"] != NONE)]
    messages["by_order_ns"] = _first_from_number(messages, order_acks)
    messages["reached_ns"] = _first_from_number(messages, moving)
    for name, ns in (("following", messages["ns"]), ("overdue", messages["ns"] + _LATEST_NS)):
        found = _first_from_time(messages["group"].to_numpy(), ns.to_numpy(), order_acks)
        found[messages["ns"].to_numpy() == NONE] = -1
        _add(messages, name, order_acks, found)
    _add(messages, "next", acks, _next_packet(messages, acks))
    finals = final_acks.groupby(["group", "number", "message_no"], as_index=False).last()
    named = messages[["group", "number", "message_nos"]].rename(columns={"message_nos": "message_no"})
    places = named.merge(finals.reset_index(names="place"), "left", ["group", "number", "message_no"])["place"]
    _add(messages, "final", finals, places.fillna(-1).to_numpy(np.int64))
    return messages


def _by_kind(acks: pd.DataFrame) -> "tuple[pd.Series[bool], pd.Series[bool]]":
    is_order_ack = acks["message_class"] == NONE
    return is_order_ack, ~is_order_ack


def _add(messages: pd.DataFrame, name: str, acks: pd.DataFrame, place: Ints) -> None:
    """Adds time, number and class of the acknowledgment at each place; of none at -1."""
    for column, nothing in (("ns", _NEVER), ("number", NONE), ("message_class", NONE)):
        values = np.append(acks[column].to_numpy(np.int64), nothing)
        messages[f"{name}_{column.removeprefix('message_')}"] = values[place]


def _first_from_number(messages: pd.DataFrame, events: pd.DataFrame) -> Ints:
    """Returns the time of the first of the events of each message's group with its number or a higher one."""
    events = events[["group", "number", "ns"]].sort_values(["group", "number"], ignore_index=True)
    earliest = events["ns"][::-1].groupby(events["group"][::-1].to_numpy()).cummin()[::-1]
    key, wanted = (of["group"].to_numpy(np.int64) * _NUMBERS + of["number"] for of in (events, messages))
    place = np.searchsorted(key, wanted)
    return np.where(_is_in(messages, events, place), np.append(earliest, _NEVER)[place], _NEVER)


def _first_from_time(group: Ints, ns: Ints, acks: pd.DataFrame) -> Ints:
    """Returns the place of the first of the acknowledgments of each group from each time on; -1 for none."""
    times = np.unique(acks["ns"])
    key = acks["group"].to_numpy(np.int64) * (len(times) + 1) + np.searchsorted(times, acks["ns"])
    place = np.searchsorted(key, group * (len(times) + 1) + np.searchsorted(times, ns))
    there = np.append(acks["group"].to_numpy(np.int64), -1)[place]
    return np.where(there == group, place, -1)


def _is_in(messages: pd.DataFrame, events: pd.DataFrame, place: Ints) -> Bools:
    found: Bools = np.append(events["group"].to_numpy(np.int64), -1)[place] == messages["group"].to_numpy()
    return found


def _next_packet(messages: pd.DataFrame, acks: pd.DataFrame) -> Ints:
    """Returns the place of the OrderAck that follows each message directly in time; -1 where another packet does."""
    found = np.full(len(messages), -1)
    if acks.empty:
        return found
    timed = np.flatnonzero(messages["ns"] != NONE)
    group, ns, number = (
        np.concatenate([messages[name].to_numpy()[timed], acks[name].to_numpy()]) for name in ("group", "ns", "number")
    )
    place = np.concatenate([np.full(len(timed), -1), np.where(_by_kind(acks)[0], np.arange(len(acks)), -1)])
    packet = np.concatenate([timed, np.full(len(acks), -1)])
    order = np.lexsort((place >= 0, number, ns, group))
    group, place, packet = group[order], place[order], packet[order]
    follows = np.flatnonzero((packet[:-1] >= 0) & (group[:-1] == group[1:]))
    found[packet[follows]] = place[follows + 1]
    return found


def with_evidence(messages: pd.DataFrame, *, conformant: bool) -> pd.DataFrame:
    """Adds `acknowledged_ns`, `covered_ns`, `evidence` and `explained_by`.

    `confirmed`: an accepted message is acknowledged, a duplicate is covered at any time, or the first OrderAck after an
    out-of-order message names a lower number. `contradicted`: an out-of-order message is covered before the replay
    reached its number; or an accepted one is not covered by an OrderAck that came later than the timers allow. `none`:
    otherwise. A receiver of the literal reading names the last message, accepted or not, so nothing contradicts it.

    `covered_ns` is the time of the first OrderAck after the message that names its number or a higher one. If an
    OrderAck did so before the message came, only the next OrderAck counts.
    """
    ns, number, accepted, refused = (messages[name] for name in ("ns", "number", "accepted", "is_refused"))
    has_final = messages["final_class"] != NONE
    was_queued = has_final & ((messages["final_class"] & QUEUED_CLASS) != 0)
    by_order, following = messages["by_order_ns"], messages["following_ns"]
    covered = by_order.clip(upper=messages["final_ns"].where(was_queued, _NEVER))
    acknowledged = covered.where(covered >= ns, following).where(ns != NONE, _NEVER)
    names_it = messages["following_number"] >= number
    covered_later = by_order.where(by_order >= ns, following.where(names_it, _NEVER)).where(ns != NONE, _NEVER)
    is_late = (messages["overdue_number"] != NONE) & (messages["overdue_number"] < number)
    not_covered = accepted & is_late & (covered >= messages["overdue_ns"]) & ~has_final
    too_soon = refused & (covered != _NEVER) & (covered < messages["reached_ns"])
    is_lower = refused & (following != _NEVER) & (messages["following_number"] < number)
    confirmed = (accepted & (acknowledged != _NEVER)) | (messages["is_duplicate"] & (covered != _NEVER))
    messages["acknowledged_ns"], messages["covered_ns"] = acknowledged, covered_later
    messages["evidence"] = np.select(
        [conformant & not_covered, confirmed, conformant & too_soon, is_lower],
        [Evidence.CONTRADICTED, Evidence.CONFIRMED, Evidence.CONTRADICTED, Evidence.CONFIRMED],
        Evidence.NONE,
    )
    messages["explained_by"] = _explained_by(messages)
    return messages


def _explained_by(messages: pd.DataFrame) -> "NDArray[np.str_]":
    """Returns the reading that predicts the next OrderAck, '' for none; the literal one predicts this number."""
    named, number, predicted = (messages[name] for name in ("next_number", "number", "conformant_number"))
    separates = (named != NONE) & (messages["next_ns"] - messages["ns"] >= _IN_FLIGHT_NS) & ~messages["is_unknown"]
    separates &= named <= np.maximum(number, predicted)
    return np.select(
        [~separates, (named == number) & (named == predicted), named == predicted, named == number],
        ["", Explains.BOTH, Explains.CONFORMANT, Explains.LITERAL],
        Explains.NEITHER,
    )


def to_runs(messages: pd.DataFrame, judged: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields rows of PROVEN: messages of a row of JUDGED that are next to each other and have the same evidence."""
    said = ("row", "acknowledged_ns", "covered_ns", "evidence", "explained_by", "final_ns", "final_class")
    block = messages["offsets"].to_numpy() >> BLOCK_BITS
    is_first = begins(*columns_of(messages, *said), block)
    alone = ((messages["final_ns"] != _NEVER) | (messages["explained_by"] != "")).to_numpy()
    is_first |= alone
    is_first[1:] |= alone[:-1]
    first, last = bounds(is_first)
    firsts, nth = messages.iloc[first], pa.array(messages["nth"].to_numpy()[first])
    rows = judged.take(pa.array(firsts["row"].to_numpy()))
    columns = {name: rows[name].combine_chunks() for name in _KEPT}
    columns |= {name: pc.add(rows[name], nth).combine_chunks() for name in _RISING}
    columns |= {name: nullable(firsts[name].replace(_NEVER, NONE)) for name in ("acknowledged_ns", "covered_ns")}
    columns |= {
        "block": pa.array(block[first]),
        "first_offset": pa.array(firsts["offsets"].to_numpy()),
        "last_offset": pa.array(messages["offsets"].to_numpy()[last]),
        "evidence": pa.array(firsts["evidence"].astype(str), pa.string()),
        "explained_by": texts(firsts["explained_by"]),
        "final_ack_class": nullable(firsts["final_class"], pa.int32()),
        "final_ns": nullable(firsts["final_ns"].replace(_NEVER, NONE)),
    }
    yield from to_batches(columns, _SCHEMA)
