"""Finds what became of messages, of numbers that no message had, and of transactions, and adds it up."""

from dataclasses import dataclass
from functools import partial
from typing import Generic

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.inputs import Inputs
from jobs.replaying.settled import Settled
from schemas.explained import EXPLAINED
from schemas.outcomes import Outcome
from schemas.replay import Scope
from udfs.derive.frames import Frames, derives
from udfs.derive.outcomes.arrivals import sum_up_verdicts, unusual_arrivals
from udfs.derive.outcomes.counts import count_outcomes, message_fates
from udfs.derive.outcomes.slots import (
    JUDGED_AS,
    MESSAGE,
    OF_ACCEPTED,
    SLOT,
    accepted_twice,
    cut_streams,
    unarrived,
)
from udfs.derive.summaries import carried_by_stream, summarize_sequences, summarize_sessions
from udfs.derive.transactions import OF_TRANSACTIONS, derive_transactions, with_neighbours
from udfs.replay.arrivals import FALLING
from udfs.replay.slots import explain_slots


@dataclass(frozen=True, slots=True)
class Fates(Generic[T]):
    """Holds what became of messages, and what verdicts add up to."""

    tallies: T
    """Rows of `tallies.merge_tallies`."""
    unusual_slots: T
    """The slots in which something unusual arrived."""
    unusual: T
    """The verdicts in these."""
    rows: T
    """Rows of EXPLAINED."""
    undelivered: T
    """Those among them that are written."""
    counts: T
    """Rows of `counts.count_outcomes`."""
    slots: T
    """Rows of `counts.count_slots`."""
    of_messages: T
    """Rows of `counts.message_fates`, of messages that were not delivered."""


@derives(("scope_key",))
def _counted(plain: pl.DataFrame, outcomes: pl.DataFrame) -> Frames:
    return {
        "counts": count_outcomes(plain, outcomes),
        "fates": message_fates(outcomes).filter(pl.col("fate") != "delivered"),
        "undelivered": outcomes.filter(pl.col("outcome") != Outcome.DELIVERED.value),
    }


def _sums(
    tallies: pl.DataFrame,
    carried: pl.DataFrame,
    ends: pl.DataFrame,
    unread: pl.DataFrame,
    counts: pl.DataFrame | None = None,
    slots: pl.DataFrame | None = None,
    *,
    scope: Scope,
) -> Frames:
    return {
        "sequences": summarize_sequences(tallies, counts, slots),
        "sessions": summarize_sessions(carried, ends, unread, tallies, counts, scope=scope),
    }


def find_fates(engine: Engine[T], verdicts: T, united: Conversations[T], packets: T, settled: Settled[T]) -> Fates[T]:
    """Returns the outcomes of the messages in VERDICTS of the conformant reading, and what all of a scope add up to."""
    sums = engine.derive(sum_up_verdicts, verdicts=verdicts)
    cut = engine.expect_few(engine.one(cut_streams, streams=united.streams))
    packets, on_cut = (engine.join(rows, cut, ["stream_id"], "semi") for rows in (packets, verdicts))
    not_arrived = engine.one(unarrived, streams=cut, packets=packets, verdicts=on_cut)
    accepted = engine.where(engine.select(verdicts, "accepted", *MESSAGE), "accepted")
    repeated = engine.expect_few(engine.keep(engine.repeated(accepted, *MESSAGE)))
    perhaps_twice = engine.join(engine.select(verdicts, *OF_ACCEPTED), repeated, MESSAGE, "semi")
    twice = engine.keep(engine.one(accepted_twice, verdicts=perhaps_twice))
    slots = engine.union(sums["slots"], *(engine.select(rows, *SLOT) for rows in (twice, not_arrived)))
    slots = engine.expect_few(engine.keep(engine.distinct(slots)))
    unusual = engine.keep(engine.join(engine.select(verdicts, *JUDGED_AS), slots, SLOT, "semi"))
    found = engine.derive(
        unusual_arrivals,
        verdicts=unusual,
        parts=sums["tallies"],
        twice=twice,
        not_arrived=not_arrived,
        settled=settled.tallies,
    )
    rows = engine.keep(engine.run(found["arrivals"], explain_slots, EXPLAINED, ("scope_key",), FALLING))
    counted = engine.derive(_counted, plain=found["plain"], outcomes=rows)
    return Fates(
        found["tallies"],
        slots,
        unusual,
        rows,
        counted["undelivered"],
        settled.with_kept("counts", counted["counts"]),
        settled.with_kept("slots", found["slots"]),
        engine.expect_few(counted["fates"]),
    )


def find_transactions(engine: Engine[T], verdicts: T, fates: Fates[T]) -> T:
    """Returns rows of TRANSACTIONS, whose witnesses are keys."""
    of_transactions = engine.select(verdicts, *OF_TRANSACTIONS)
    with_fates = engine.join(of_transactions, fates.of_messages, [*SLOT, *MESSAGE], "left")
    found = engine.derive(derive_transactions, verdicts=with_fates)
    near = engine.join(of_transactions, found["asked"], SLOT, "semi")
    torn = engine.one(with_neighbours, broken=found["broken"], asked=found["asked"], near=near)
    return engine.union(found["whole"], torn)


def add_up(
    engine: Engine[T],
    united: Conversations[T],
    inputs: Inputs[T],
    tallies: T,
    fates: Fates[T] | None,
    scope: Scope,
) -> dict[str, T]:
    """Returns the rows of `sequences` and `sessions`; without fates, what counts outcomes is null."""
    carried = engine.one(carried_by_stream, messages=united.messages)
    tables = {"tallies": tallies, "carried": carried, "ends": inputs.ends, "unread": inputs.unread}
    if fates is not None:
        tables |= {"counts": fates.counts, "slots": fates.slots}
    return engine.derive(partial(_sums, scope=scope), **tables)
