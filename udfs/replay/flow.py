"""Replays messages into verdicts and what is derived from them, the same on each engine."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import polars as pl

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS, Reading, Scope
from schemas.table import Table
from schemas.tallies import FINDINGS_ON_MESSAGES, TALLIES
from udfs.frames.columns import SEQUENCE
from udfs.frames.engine import T
from udfs.replay.findings.flow import find_by_facts, find_on_messages
from udfs.replay.incidents.flow import find_incidents, with_proof
from udfs.replay.kept import Settled
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.inputs import Inputs, pair, read_inputs, watch
from udfs.replay.outcomes.flow import OutcomeSums, add_up, find_fates, find_transactions
from udfs.replay.outcomes.history import tell_arrivals, tell_plain, tell_unusual
from udfs.replay.outcomes.plain import SLOT
from udfs.replay.outcomes.tallies import merge_tallies, tally
from udfs.replay.settled.flow import LastReplay, find_settled
from udfs.replay.settled.resume_points import tally_rows
from udfs.replay.settled.retold import retell
from udfs.replay.verdicts.flow import AddStates, judge_messages

BY_SEQUENCE = (VERDICTS, OUTCOMES, MESSAGE_HISTORY, TRANSACTIONS)
"""Tables in which the warehouse keeps the rows of sequences that are not judged again."""
CONFORMANT_ONLY = (TRANSACTIONS, OUTCOMES, FINDINGS, INCIDENTS, TALLIES, FINDINGS_ON_MESSAGES)
"""Tables without rows under the literal reading, which judges arrivals but does not tell what became of messages."""


class Options(NamedTuple):
    """Holds the options that decide what a replay finds."""

    reading: Reading = Reading.CONFORMANT
    scope: Scope = Scope.AUTO


def replay(
    united: Conversations[T],
    options: Options,
    last: LastReplay | None = None,
    add_states: AddStates[T] | None = None,
    most: int | None = None,
) -> Mapping[Table, pl.DataFrame]:
    """Writes all tables of the replay; `united` are the sources in which a conversation that was captured twice is one.

    `add_states` uses windows of Spark. After a `last` replay, only some sequences are judged again, and the engine gets
    only their rows of tables BY_SEQUENCE. Returns, by table, these sequences, whose earlier rows the caller replaces in
    the warehouse; no table if all are judged.

    Raises:
        TooManyToJudge: more than `most` messages are to be judged; nothing was written.
    """
    engine, inputs = united.engine, read_inputs(united, options.scope)
    settled = find_settled(united, inputs, last, most)
    judge_messages(united, inputs, settled, options.reading, add_states)
    verdicts = engine.read(VERDICTS)
    engine.replace(ENDS, inputs.ends_with_copies)
    if options.reading is Reading.LITERAL:
        of_parts = engine.derive(partial(tally, reading=Reading.LITERAL), verdicts=verdicts)
        tallies = engine.derive(merge_tallies, parts=of_parts)
        sums = add_up(united, inputs, tallies, fates=None, scope=options.scope)
        captures, copies = united.sources.captures, united.copies
        engine.replace_by(MESSAGE_HISTORY, tell_arrivals, verdicts=verdicts, captures=captures, copies=copies)
        for table in CONFORMANT_ONLY:
            engine.replace(table, engine.table([], table.arrow))
    else:
        in_time = united.in_time(verdicts)
        watched = watch(engine, inputs, inputs.acks, inputs.flows)
        fates = find_fates(united, inputs, in_time, settled, watched)
        sums = add_up(united, inputs, fates.tallies, fates, options.scope)
        engine.replace(TRANSACTIONS, find_transactions(engine, verdicts, fates, settled.uses))
        concerned = _explain(united, inputs, settled, in_time, fates, sums["sequences"])
        sums[SEQUENCES.name] = engine.join(sums[SEQUENCES.name], concerned, SEQUENCE, "left")
        _tell_history(united, verdicts, fates, concerned)
    for table in (SEQUENCES, SESSIONS):
        engine.replace(table, sums[table.name])
    if last is None or settled.judged_again is None:
        return {}
    gone = dict.fromkeys(BY_SEQUENCE, settled.judged_again)
    if options.reading is Reading.CONFORMANT:
        retold, sequences = retell(engine, last, settled.judged_again, concerned)
        engine.replace(MESSAGE_HISTORY, engine.union(engine.read(MESSAGE_HISTORY), retold))
        gone[MESSAGE_HISTORY] = pl.concat([settled.judged_again, sequences])
    return gone


def _explain(
    united: Conversations[T], inputs: Inputs[T], settled: Settled[T], in_time: T, fates: OutcomeSums[T], sequences: T
) -> T:
    """Writes outcomes, findings and incidents, and the tallies that the next replay starts from.

    Returns rows of INCIDENT_OF. `in_time` are the verdicts that were judged now, by clocks that do not step back.
    """
    engine = united.engine
    # Findings and incidents are about all messages, also those whose verdicts were kept.
    every_verdict = settled.with_kept(VERDICTS.name, engine.read(VERDICTS))
    transactions = settled.with_kept(TRANSACTIONS.name, engine.read(TRANSACTIONS))
    acks = inputs.acks
    if not united.is_as_recorded:  # findings name packets as they were recorded, so acknowledgments are paired as such
        acks = pair(engine, united.without_copies(united.sources.acks), inputs.ends_with_copies, fates.tallies)
    watched = watch(engine, inputs, acks, fates.tallies)
    on_messages = find_on_messages(engine, in_time, every_verdict, watched, fates, settled.resumed)
    engine.replace(FINDINGS_ON_MESSAGES, settled.with_kept(FINDINGS_ON_MESSAGES.name, on_messages))
    by_facts = find_by_facts(united, inputs, settled, every_verdict, acks, fates, sequences, transactions)
    findings = engine.union(engine.read(FINDINGS_ON_MESSAGES), by_facts)
    undelivered = settled.with_kept(OUTCOMES.name, fates.undelivered)
    unusual = settled.with_kept(VERDICTS.name, fates.unusual)
    unusual, tallies = united.on_counting_streams(unusual), united.on_counting_streams(fates.tallies)
    incidents = find_incidents(engine, unusual, tallies, undelivered, findings, sequences)
    concerned = incidents.pop("sequences")
    explained = with_proof(united, every_verdict, outcomes=fates.undelivered, **incidents)
    for table in (OUTCOMES, FINDINGS, INCIDENTS):
        engine.replace(table, explained[table.name])
    # By how much clocks differ, and what nothing compares, may be found otherwise the next time: nothing is settled.
    if united.clocks_differ or inputs.has_undecided:
        engine.replace(TALLIES, engine.table([], TALLIES.arrow))
    else:
        engine.replace(TALLIES, engine.derive(tally_rows, tallies=fates.tallies, counts=fates.counts, watched=watched))
    return concerned


def _tell_history(united: Conversations[T], verdicts: T, fates: OutcomeSums[T], incidents: T) -> None:
    """Writes the history of the messages that were judged now; `incidents` are rows of INCIDENT_OF."""
    engine, captures, copies = united.engine, united.sources.captures, united.copies
    plain, others = (engine.join(verdicts, fates.unusual_slots, SLOT, how) for how in ("anti", "semi"))
    told = engine.derive(
        tell_unusual,
        verdicts=others,
        captures=captures,
        copies=copies,
        outcomes=fates.undelivered,
        incidents=incidents,
    )
    engine.replace_by(
        MESSAGE_HISTORY, tell_plain, told, verdicts=plain, captures=captures, copies=copies, incidents=incidents
    )
