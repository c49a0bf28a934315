"""Replays messages into verdicts and what is derived from them, the same on each engine."""

from functools import partial
from typing import NamedTuple

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.explaining import find_by_facts, find_on_messages, put_together, with_proof
from jobs.replaying.fates import Fates, add_up, find_fates, find_transactions
from jobs.replaying.inputs import Inputs, pair, read_inputs, watch
from jobs.replaying.judging import Accept, judge_messages
from jobs.replaying.settled import LastReplay, Settled, find_settled
from jobs.replaying.sources import Sources
from schemas.incidents import INCIDENTS
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS, Reading, Scope
from schemas.tallies import FINDINGS_ON_MESSAGES, TALLIES
from udfs.derive.outcomes.tallies import merge_tallies, tally
from udfs.derive.settled import tally_rows

BY_SEQUENCE = (VERDICTS, OUTCOMES, TRANSACTIONS)
"""Tables in which the rows of sequences that are not judged again stay: the caller puts the new ones beside them."""
CONFORMANT_ONLY = (TRANSACTIONS, OUTCOMES, FINDINGS, INCIDENTS, TALLIES, FINDINGS_ON_MESSAGES)
"""Tables of what became of messages; without rows under the literal reading, which judges arrivals only."""


class Options(NamedTuple):
    """Holds the options that decide what a replay finds."""

    reading: Reading = Reading.CONFORMANT
    scope: Scope = Scope.AUTO


def replay(
    engine: Engine[T],
    sources: Sources[T],
    united: Conversations[T],
    options: Options,
    last: LastReplay | None = None,
    accept: Accept[T] | None = None,
) -> pl.DataFrame | None:
    """Writes all tables of the replay; `united` are the sources with each conversation once.

    After a `last` replay, what it settled is kept: tables BY_SEQUENCE get only rows of sequences that are judged again.
    Returns these sequences, whose earlier rows in those tables the caller deletes; None if the tables are complete.
    """
    inputs = read_inputs(united, options.scope)
    settled = find_settled(united, inputs, last)
    judged = judge_messages(engine, inputs, settled, options.reading, accept)
    engine.replace(VERDICTS, united.restore(judged))
    verdicts = engine.read(VERDICTS)  # from files, so that Spark judges only once
    engine.replace(ENDS, inputs.every_end)
    if options.reading is Reading.LITERAL:
        tallies = engine.one(
            merge_tallies, parts=engine.one(partial(tally, reading=Reading.LITERAL), verdicts=verdicts)
        )
        sums = add_up(engine, united, inputs, tallies, None, options.scope)
        for table in CONFORMANT_ONLY:
            engine.replace(table, engine.table([], table.arrow))
    else:
        fates = find_fates(engine, verdicts, united, sources.packets, settled)
        sums = add_up(engine, united, inputs, fates.tallies, fates, options.scope)
        engine.replace(TRANSACTIONS, find_transactions(engine, verdicts, fates))
        _explain(engine, sources, united, inputs, settled, verdicts, fates, sums["sequences"])
    for table in (SEQUENCES, SESSIONS):
        engine.replace(table, sums[table.name])
    return settled.judged_again


def _explain(
    engine: Engine[T],
    sources: Sources[T],
    united: Conversations[T],
    inputs: Inputs[T],
    settled: Settled[T],
    verdicts: T,
    fates: Fates[T],
    sequences: T,
) -> None:
    """Writes outcomes, findings and incidents, and the tallies that the next replay starts from."""
    # Findings and incidents are told of all messages, also of those whose verdicts were kept.
    every_verdict = settled.with_kept(VERDICTS.name, verdicts)
    transactions = settled.with_kept(TRANSACTIONS.name, engine.read(TRANSACTIONS))
    acks = inputs.acks
    if not united.is_plain:  # findings name keys and times as the tables have them, so these are paired, too
        acks = pair(engine, united.counted(sources.acks), inputs.every_end, fates.tallies)
    watched = watch(engine, inputs, acks, fates.tallies)
    on_messages = find_on_messages(engine, verdicts, every_verdict, watched, fates, settled.resumed)
    engine.replace(FINDINGS_ON_MESSAGES, settled.with_kept(FINDINGS_ON_MESSAGES.name, on_messages))
    by_facts = find_by_facts(engine, sources, united, inputs, every_verdict, acks, fates, sequences, transactions)
    findings = engine.union(engine.read(FINDINGS_ON_MESSAGES), by_facts)
    undelivered = settled.with_kept(OUTCOMES.name, fates.undelivered)
    told = put_together(engine, every_verdict, fates.tallies, undelivered, findings, sequences)
    explained = with_proof(engine, sources, every_verdict, outcomes=fates.undelivered, **told)
    for table in (OUTCOMES, FINDINGS, INCIDENTS):
        engine.replace(table, explained[table.name])
    engine.replace(TALLIES, engine.one(tally_rows, tallies=fates.tallies, counts=fates.counts, watched=watched))
