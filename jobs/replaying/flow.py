"""Replays messages into verdicts and what is derived from them, the same on each engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.explaining import find_by_facts, find_on_messages, put_together, with_proof
from jobs.replaying.fates import LITERAL_TALLIES, add_up, find_fates, find_transactions
from jobs.replaying.inputs import CROWDED, Inputs, pair, read_inputs
from jobs.replaying.judging import Accept, judge_messages
from jobs.replaying.sources import Sources
from schemas.incidents import INCIDENTS
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, STATES, TRANSACTIONS, VERDICTS, Reading, Scope

FATES = (TRANSACTIONS, OUTCOMES, FINDINGS, INCIDENTS)
"""Tables of what became of messages, which have no rows under the literal reading: that judges arrivals."""


class Options(NamedTuple):
    """Holds the options that decide what a replay finds."""

    reading: Reading = Reading.CONFORMANT
    scope: Scope = Scope.AUTO


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """Holds the senders that keep what the last replay found of them. None: nobody does."""

    senders: T | None = None
    verdicts: T | None = None
    transactions: T | None = None


def replay(
    engine: Engine[T],
    sources: Sources[T],
    once: Conversations[T],
    accept: Accept[T],
    options: Options,
    find_kept: Callable[[Inputs[T]], Kept[T]] = lambda _: Kept(),
) -> None:
    """Writes all tables of the replay."""
    inputs = read_inputs(engine, sources, once, options.scope)
    kept = find_kept(inputs)
    new = replace(inputs, flows=_others(engine, inputs.flows, kept))
    judged = judge_messages(engine, new, sources.states_before, accept, options.reading)
    engine.replace(VERDICTS, _with(engine, once.restore(judged), kept.verdicts))
    verdicts = engine.read(VERDICTS)
    engine.replace(ENDS, inputs.every_end)
    if options.reading is Reading.LITERAL:
        tallies = engine.one(LITERAL_TALLIES, verdicts=verdicts)
        sums = add_up(engine, sources, once, inputs, tallies, None, options.scope)
        for table in FATES:
            engine.replace(table, engine.table([], table.arrow))
    else:
        fates = find_fates(engine, verdicts, once, sources.packets)
        sums = add_up(engine, sources, once, inputs, fates.tallies, fates, options.scope)
        transactions = find_transactions(engine, _others(engine, verdicts, kept), fates)
        engine.replace(TRANSACTIONS, _with(engine, transactions, kept.transactions))
        transactions = engine.read(TRANSACTIONS)
        used = engine.one(CROWDED, flows=fates.tallies)
        acks = pair(engine, once.counted(sources.acks), inputs.every_end, fates.tallies, used)
        findings = engine.union(
            find_on_messages(engine, verdicts, inputs, acks, fates),
            find_by_facts(engine, sources, once, inputs, verdicts, acks, fates, sums["sequences"], transactions),
        )
        told = put_together(engine, verdicts, fates.undelivered, findings, sums["sequences"])
        explained = with_proof(engine, sources, verdicts, told)
        engine.replace(OUTCOMES, explained.outcomes)
        engine.replace(FINDINGS, explained.findings)
        engine.replace(INCIDENTS, explained.incidents)
    engine.replace(SEQUENCES, sums["sequences"])
    engine.replace(SESSIONS, sums["sessions"])
    engine.replace(STATES, sums["states"])


def _others(engine: Engine[T], rows: T, kept: Kept[T]) -> T:
    """Returns the rows of senders that do not keep theirs."""
    return rows if kept.senders is None else engine.join(rows, kept.senders, ["source_queue_manager"], "anti")


def _with(engine: Engine[T], rows: T, kept: T | None) -> T:
    return rows if kept is None else engine.union(rows, kept)
