"""Finds what became of messages, of numbers that no message had, and of transactions, and adds it up."""

from dataclasses import dataclass
from functools import partial
from typing import Generic

import polars as pl

from schemas.outcomes import EXPLAINED, Outcome
from schemas.replay import Scope
from udfs.frames.columns import ACK_PAIR, PLACE
from udfs.frames.derivation import Frames, derives
from udfs.frames.engine import Engine, T
from udfs.replay.content import MESSAGE
from udfs.replay.kept import Settled
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.inputs import Inputs
from udfs.replay.outcomes.arrivals import FALLING
from udfs.replay.outcomes.counts import OF_ASKED, count_not_read, count_outcomes, message_fates, where_reported
from udfs.replay.outcomes.missing_acks import (
    acknowledged_in_vain,
    acknowledged_no_more,
    acknowledged_pairs,
    fallen_acks,
    late_arrivals,
)
from udfs.replay.outcomes.plain import IS_LATE, JUDGED_AS, SLOT, accepted_twice, cut_packets, cut_streams, last_seen
from udfs.replay.outcomes.slots import explain_slots
from udfs.replay.outcomes.summaries import OF_FLOWS, carried_by_stream, summarize_sequences, summarize_sessions
from udfs.replay.outcomes.transactions import OF_TRANSACTIONS, derive_transactions, with_neighbours
from udfs.replay.outcomes.unusual import sum_up_verdicts, unusual_arrivals

_OF_FALLEN = ("source_queue_manager", "tx_sequence_id")


@dataclass(frozen=True, slots=True)
class OutcomeSums(Generic[T]):
    """Holds what became of messages, and what verdicts add up to."""

    tallies: T
    """Rows of `tallies.merge_tallies`."""
    unusual_slots: T
    """The slots in which something unusual arrived."""
    unusual: T
    """The verdicts in these."""
    late: T
    """Rows of `late_arrivals`."""
    undelivered: T
    """Rows of EXPLAINED with another outcome than delivered."""
    message_fates: T
    """Rows of `counts.message_fates`."""
    counts: T
    """Rows of `counts.count_outcomes`."""
    slot_counts: T
    """Rows of `counts.count_slots`."""


@derives(("scope_key",))
def _count_outcomes(plain: pl.DataFrame, outcomes: pl.DataFrame, not_read: pl.DataFrame) -> Frames:
    return {
        "counts": count_outcomes(plain, outcomes, not_read),
        "fates": message_fates(outcomes),
        "undelivered": outcomes.filter(pl.col("outcome") != Outcome.DELIVERED.value),
    }


def _summarize(
    tallies: pl.DataFrame,
    carried: pl.DataFrame,
    ends: pl.DataFrame,
    unread: pl.DataFrame,
    flows: pl.DataFrame,
    answered: pl.DataFrame,
    counts: pl.DataFrame | None = None,
    slot_counts: pl.DataFrame | None = None,
    *,
    scope: Scope,
) -> Frames:
    if counts is not None:
        counts = where_reported(counts, tallies, answered)
    return {
        "sequences": summarize_sequences(tallies, counts, slot_counts),
        "sessions": summarize_sessions(carried, ends, unread, tallies, flows, counts, scope=scope),
    }


def find_fates(
    united: Conversations[T], inputs: Inputs[T], verdicts: T, settled: Settled[T], watched: T
) -> OutcomeSums[T]:
    """Returns the outcomes of the messages in VERDICTS of the conformant reading, and the sums of each scope.

    Most messages are plain, and only added up. Explained are those in unusual slots, of which there are few; a slot is
    (scope, sequence, number). `watched` are rows of `watched_sessions`.
    """
    engine = united.engine
    sums = engine.derive_tables(sum_up_verdicts, verdicts=verdicts)
    # A packet that TCP never acknowledged need not have arrived.
    cut = engine.expect_few(engine.derive(cut_streams, streams=united.streams))
    packets = engine.join(united.sources.packets, cut, ["stream_id"], "semi")
    never_acked = engine.expect_few(engine.derive(cut_packets, streams=cut, packets=packets))
    not_arrived = engine.keep(engine.join(engine.select(verdicts, *SLOT, *PLACE), never_acked, PLACE))
    several = engine.where(engine.sum_up(verdicts, ["content_hash"]), "count > 1")
    several = engine.expect_few(engine.keep(engine.select(several, "content_hash")))
    twice = engine.derive(accepted_twice, verdicts=engine.join(verdicts, several, ["content_hash"], "semi"))
    late = engine.keep(
        engine.derive(late_arrivals, late=engine.where(verdicts, f"accepted AND {IS_LATE}"), watched=watched)
    )
    answered = engine.expect_few(engine.derive(acknowledged_pairs, acks=inputs.acks))
    overdue = engine.derive(acknowledged_no_more, late=late, pairs=answered)
    fallen = engine.expect_few(engine.derive(fallen_acks, acks=inputs.acks))
    concerned = engine.distinct(engine.select(fallen, *_OF_FALLEN))
    in_fallen = engine.join(verdicts, concerned, _OF_FALLEN, "semi")
    in_vain = engine.keep(engine.derive(acknowledged_in_vain, verdicts=in_fallen, fallen=fallen))
    found_slots = (engine.select(rows, *SLOT) for rows in (twice, not_arrived, overdue, in_vain))
    slots = engine.union(sums["slots"], *found_slots)
    unusual_slots = engine.expect_few(engine.keep(engine.distinct(slots)))
    unusual = engine.keep(engine.join(engine.select(verdicts, *JUDGED_AS), unusual_slots, SLOT, "semi"))
    seen = engine.derive(last_seen, ends=inputs.ends_with_copies)
    found = engine.derive_tables(
        unusual_arrivals,
        verdicts=engine.join(unusual, seen, ["stream_id"], "left"),
        parts=sums["tallies"],
        twice=twice,
        not_arrived=engine.select(not_arrived, "scope_key", *PLACE, "closed"),
        overdue=engine.select(overdue, "scope_key", *PLACE),
        in_vain=engine.select(in_vain, "scope_key", *PLACE),
        settled=settled.tallies,
    )
    explained = engine.keep(engine.run(found["arrivals"], explain_slots, EXPLAINED, ("scope_key",), FALLING))
    asked = engine.where(engine.select(verdicts, *OF_ASKED), "final_ack_requested")
    not_read = engine.derive(count_not_read, asked=engine.join(asked, unusual_slots, SLOT, "anti"))
    counted = engine.derive_tables(_count_outcomes, plain=found["plain"], outcomes=explained, not_read=not_read)
    return OutcomeSums(
        tallies=found["tallies"],
        unusual_slots=unusual_slots,
        unusual=unusual,
        late=late,
        undelivered=counted["undelivered"],
        message_fates=engine.expect_few(counted["fates"]),
        counts=settled.with_kept("counts", counted["counts"]),
        slot_counts=settled.with_kept("slot_counts", found["slot_counts"]),
    )


def find_transactions(engine: Engine[T], verdicts: T, fates: OutcomeSums[T], uses: T) -> T:
    """Returns rows of TRANSACTIONS, whose witnesses are keys of messages; earlier `uses` of their IDs are settled."""
    of_transactions = engine.select(verdicts, *OF_TRANSACTIONS)
    with_fates = engine.join(of_transactions, fates.message_fates, [*SLOT, *MESSAGE], "left")
    found = engine.derive_tables(derive_transactions, verdicts=with_fates, earlier=uses)
    asked = engine.expect_few(found["asked"])
    near = engine.join(of_transactions, asked, SLOT, "semi")
    broken = engine.derive(with_neighbours, broken=found["broken"], asked=asked, near=near)
    return engine.union(found["whole"], broken)


def add_up(
    united: Conversations[T], inputs: Inputs[T], tallies: T, fates: OutcomeSums[T] | None, scope: Scope
) -> dict[str, T]:
    """Returns the rows of `sequences` and `sessions`; without fates, the counts of outcomes are null."""
    engine = united.engine
    carried = engine.derive(carried_by_stream, messages=united.messages)
    tables = {
        "tallies": tallies,
        "carried": carried,
        "ends": inputs.ends,
        "unread": inputs.unread,
        "flows": engine.distinct(engine.select(inputs.flows, *OF_FLOWS)),
        "answered": engine.distinct(engine.select(inputs.acks, *ACK_PAIR)),
    }
    if fates is not None:
        tables |= {"counts": fates.counts, "slot_counts": fates.slot_counts}
    return engine.derive_tables(partial(_summarize, scope=scope), **tables)
