"""Replays messages into verdicts and what is derived from them, the same on each engine."""

from typing import NamedTuple

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.explaining import find_by_facts, find_on_messages, put_together, with_proof
from jobs.replaying.fates import LITERAL_TALLIES, add_up, find_fates, find_transactions
from jobs.replaying.inputs import CROWDED, pair, read_inputs
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


def replay(
    engine: Engine[T],
    sources: Sources[T],
    once: Conversations[T],
    accept: Accept[T],
    options: Options,
) -> None:
    """Writes all tables of the replay."""
    inputs = read_inputs(engine, sources, once, options.scope)
    judged = judge_messages(engine, inputs, sources.states_before, accept, options.reading)
    engine.replace(VERDICTS, once.restore(judged))
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
        engine.replace(TRANSACTIONS, find_transactions(engine, verdicts, fates))
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
