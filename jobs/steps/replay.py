"""Replays `messages` into `verdicts`, and derives the other tables of the replay from them.

Senders keep their verdicts and transactions if nothing that these depend on has changed (`jobs.steps.kept`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.muted import read_muted
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.steps import in_memory, previous_warehouse, reconcile
from jobs.steps.conversations import facts_of_captures, name_copies, unite
from jobs.steps.found import with_names
from jobs.steps.kept import Kept, with_kept
from jobs.steps.summary import replay_summary, with_muted
from jobs.transforms.facts.acks import negative_acks
from jobs.transforms.facts.arrivals import shown_messages, watched_sessions, with_fates, with_neighbours
from jobs.transforms.facts.balancers import acknowledged_elsewhere, several_receivers
from jobs.transforms.facts.events import events, sender_spans
from jobs.transforms.facts.kinds import Facts, Suspects, collect_facts, facts_of_messages
from jobs.transforms.facts.senders import fallen_ordinals, outlived_messages, sending_seconds
from jobs.transforms.outcomes.rows import Outcomes, count_outcomes, count_slots, message_fates, plain_arrivals
from jobs.transforms.outcomes.slots import (
    FALLING,
    accepted_twice,
    first_due,
    repeated_messages,
    slot_no,
    unarrived,
    unusual_arrivals,
    unusual_slots,
    with_facts_of_scope,
    with_falling_order,
)
from jobs.transforms.outcomes.tallies import scope_states, tally
from jobs.transforms.replay.acceptance import mark_sequence_breaks, stretches, with_conformant_state, with_literal_state
from jobs.transforms.replay.acknowledgments import (
    acknowledged,
    crowded,
    pair_acks,
    select_order_acks,
    sequences_used,
)
from jobs.transforms.replay.clocks import disputed_messages
from jobs.transforms.replay.conversations import Conversations
from jobs.transforms.replay.coverage import unread_ranges
from jobs.transforms.replay.initial_states import find_initial_states
from jobs.transforms.replay.inputs import ReplayInputs, select_transactional
from jobs.transforms.replay.peers import with_peers
from jobs.transforms.replay.scopes import choose_scopes, find_flows, with_scope
from jobs.transforms.replay.timeline import doubtful_scopes, marks, number_streams
from jobs.transforms.replay.verdicts import verdict_rows, with_disputes, with_end_of_doubt
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.transforms.summaries.transactions import assemble_transactions
from jobs.transforms.summaries.whole_transactions import find_uses, other_ids, slots_nearby, whole_transactions
from jobs.transforms.witness import find_frames, keys_of, with_frames
from jobs.warehouse.catalog import create_history
from jobs.warehouse.checkpoint import Materialize, materialize
from jobs.warehouse.passes import RunPass, run_in_tasks
from jobs.warehouse.provenance import derive
from jobs.warehouse.store import Warehouse
from schemas.explained import ARRIVAL, CHOSEN, EXPLAINED, FOUND, OF_SLOT
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.judging import CHAIN, JUDGED, PROVEN
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.outcomes import OUTCOMES, Outcome
from schemas.pings import PINGS
from schemas.replay import (
    ENDS,
    FINDINGS,
    SEQUENCES,
    SESSIONS,
    STATES,
    TRANSACTIONS,
    VERDICTS,
    Reading,
    Scope,
)
from schemas.table import Table
from schemas.tables import REPLAYED
from udfs.replay.acceptance import fold
from udfs.replay.arrivals import find_plain_runs
from udfs.replay.evidence import prove
from udfs.replay.findings.on_facts import tell_facts
from udfs.replay.findings.on_messages import FINDING, SEQUENCE, choose_messages, tell_messages
from udfs.replay.findings.receivers import AcknowledgedElsewhere, SeveralReceivers
from udfs.replay.incidents import explain_incidents
from udfs.replay.slots import explain_slots
from udfs.replay.timeline import find_chains
from udfs.replay.verdicts import judge

SOURCES = (PACKETS, MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES, CAPTURES, SESSION_ACKS, PINGS)
_FATES = (TRANSACTIONS, OUTCOMES, FINDINGS, INCIDENTS)
"""Tables of what became of messages, which have no rows under the literal reading: that judges arrivals."""
_MOST_RUNS = 300_000
"""Runs to broadcast: messages are wide, and there are ten to a hundred times as many."""
_MOST_SLOTS = 1_000_000
"""Numbers of slots to broadcast, of eight bytes each."""

Rows = Callable[[], DataFrame]


def run(spark: SparkSession, config: Config) -> Summary:
    """Replays all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(MESSAGES, "decode")
    with in_memory.hold(warehouse, config) as (held, _):
        step(held, config)
        reconcile.step(held)
        names = Names.read(config.names_file)
        found = with_names(replay_summary(held, names), names)
        return with_muted(found, held, read_muted(config.muted_file))


def derive_outcomes(
    verdicts: DataFrame,
    not_arrived: DataFrame | None = None,
    *,
    materialize: Materialize = materialize,
    run: RunPass = run_in_tasks,
) -> Outcomes:
    """Returns the outcomes of the messages in VERDICTS of the conformant reading, and what they add up to.

    `not_arrived` are the keys of `unarrived` packets; none are assumed without them.
    """
    if not_arrived is None:
        not_arrived = verdicts.where("false").select("stream_id", "stream_offset")
    twice = materialize(accepted_twice(verdicts, materialize(repeated_messages(verdicts))))
    slots = materialize(unusual_slots(verdicts, twice, not_arrived), _MOST_SLOTS)
    arrivals = materialize(unusual_arrivals(verdicts, slots, not_arrived))
    tallies = materialize(tally(verdicts))
    states = materialize(scope_states(tallies))
    due = materialize(first_due(arrivals, states))
    rows = with_facts_of_scope(arrivals, states, due, twice)
    plain_runs = run(rows, find_plain_runs, ARRIVAL, ("scope_key",), ("replay_order",))
    falling = with_falling_order(rows.unionByName(plain_runs))
    found = run(falling, explain_slots, OF_SLOT, ("scope_key",), FALLING)
    rows = found.where("outcome is not null").select("outcome.*")
    below_holes = found.where("slot_below is not null").select("slot_below.*").select(slot_no().alias("slot_no"))
    plain = materialize(plain_arrivals(tallies, arrivals))
    due_slots = materialize(count_slots(plain, arrivals, states, due))
    return Outcomes(tallies, rows, materialize(count_outcomes(plain, rows)), due_slots, slots, below_holes)


def derive_transactions(
    verdicts: DataFrame,
    outcomes: Outcomes,
    fates: DataFrame,
    *,
    materialize: Materialize = materialize,
) -> DataFrame:
    """Returns one row of TRANSACTIONS per use of a sender's transaction ID.

    Windows see only those that one aggregate does not describe.
    """
    uses = materialize(find_uses(verdicts, outcomes.unusual))
    others = materialize(other_ids(uses))
    nearby = materialize(slots_nearby(verdicts, others, outcomes.below_holes), _MOST_SLOTS)
    there = materialize(verdicts.withColumn("slot_no", slot_no()).join(nearby, "slot_no", "left_semi"))
    return whole_transactions(uses).unionByName(assemble_transactions(there, fates, others))


def find_suspects(messages: DataFrame, ends: DataFrame, *, materialize: Materialize = materialize) -> Suspects:
    """Returns the messages that rules on a sender's messages and on acknowledgments concern."""
    seconds = materialize(sending_seconds(messages))
    late, fallen = outlived_messages(messages, seconds), fallen_ordinals(seconds)
    return Suspects(materialize(late), materialize(fallen), materialize(negative_acks(messages, ends)))


def find_on_messages(
    verdicts: DataFrame, watched: DataFrame, outcomes: Outcomes, run: RunPass = run_in_tasks
) -> DataFrame:
    """Returns the FINDINGS on messages, without incidents; `watched` are those of `watched_sessions`."""
    neighbours = with_neighbours(verdicts, watched, outcomes.unusual)
    arrivals = with_fates(neighbours, verdicts, message_fates(outcomes.rows))
    chosen = run(arrivals, choose_messages, CHOSEN, SEQUENCE, ("replay_order",))
    return run(shown_messages(verdicts, chosen), tell_messages, FOUND, FINDING)


def find_by_facts(facts: Facts, run: RunPass = run_in_tasks) -> DataFrame:
    """Returns the FINDINGS that facts show, without incidents."""
    return run(collect_facts(facts), tell_facts, FOUND)


def read_inputs(
    messages: DataFrame,
    peers: DataFrame,
    stream_gaps: DataFrame,
    quarantine: DataFrame,
    acks: DataFrame,
    *,
    scope: Scope = Scope.AUTO,
    once: Conversations | None = None,
    materialize: Materialize = materialize,
) -> ReplayInputs:
    """Returns the replay's inputs; `peers` should be materialized. `once` holds the skews of captures' clocks."""
    messages = select_transactional(messages)
    every = materialize(find_flows(messages, peers))
    flows, legs = every.where("not leg_unknown").drop("leg_unknown"), every.where("leg_unknown")
    chosen = materialize(choose_scopes(messages, peers, flows)) if scope is Scope.AUTO else None
    scoped = with_scope(flows, scope, chosen)
    many = materialize(crowded(flows))
    used = None if many.isEmpty() else sequences_used(messages, many)
    paired = materialize(pair_acks(acks, peers, flows, used))
    unread = unread_ranges(stream_gaps, quarantine)
    doubtful = materialize(doubtful_scopes(scoped, unread, peers, legs)).withColumn("doubtful", F.lit(True))
    scoped = scoped.join(doubtful, "scope_key", "left")
    inputs = ReplayInputs(messages, peers, scoped, unread, paired, None if legs.isEmpty() else legs)
    if once is None or once.skews is None or once.placed is None:
        return inputs
    disputed = materialize(disputed_messages(messages, scoped, once.skews, once.placed))
    return inputs if disputed.isEmpty() else replace(inputs, disputed=disputed)


def judge_messages(
    inputs: ReplayInputs,
    previous: DataFrame | None = None,
    *,
    reading: Reading = Reading.CONFORMANT,
    materialize: Materialize = materialize,
    run: RunPass = run_in_tasks,
) -> DataFrame:
    """Returns one row of VERDICTS per transactional message that arrived at its final destination.

    Scopes with a row in `previous`, which are STATES, resume there.
    """
    streams = materialize(number_streams(inputs.flows, inputs.unread, inputs.peers))
    initial = find_initial_states(streams.where("has_messages"), select_order_acks(inputs.acks), previous)
    marked = marks(inputs.messages, inputs.unread, streams, initial, inputs.legs, inputs.disputed)
    chains = run(marked, find_chains, CHAIN, ("scope_no",))
    broken = materialize(mark_sequence_breaks(chains))
    to_fold = stretches(broken)
    folded = run(to_fold, fold, to_fold.schema, ("scope_no", "stretch"), ("replay_order",))  # splits a large scope
    states = with_conformant_state(broken, folded)
    states = with_literal_state(states) if reading is Reading.LITERAL else states
    judged = run(states, judge, JUDGED, ("scope_no",), ("replay_order",))
    rows = judged.unionByName(acknowledged(inputs.acks, streams), allowMissingColumns=True)
    proven = with_end_of_doubt(run(rows, prove(reading), PROVEN, ("pair_no", "sequence")))
    verdicts = verdict_rows(materialize(proven, _MOST_RUNS), inputs.messages, streams)
    return verdicts if inputs.disputed is None else with_disputes(verdicts, inputs.disputed)


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replays all sessions, unless that was done for these versions and options; returns whether it was still to do."""
    warehouse.require(MESSAGES, "decode")
    resumed = previous_warehouse.version(warehouse.spark, config)
    options = {"reading": config.reading, "scope": config.scope, "continue_from": resumed}
    options["code"] = code_version.results_hash()
    reading, scope = Reading(config.reading), Scope(config.scope)

    def write() -> None:
        _, messages, streams, stream_gaps, quarantine, acks, handshakes, captures = map(warehouse.read, SOURCES[:-2])
        states, ends = previous_warehouse.tables(warehouse.spark, config)
        keep = warehouse.materialize
        once = unite(
            Conversations(messages, streams, stream_gaps, quarantine, acks, handshakes), captures, materialize=keep
        )
        peers = keep(with_peers(once.streams, once.handshakes, ends))
        every_end = once.every_end(peers)
        read = (once.messages, peers, once.stream_gaps, once.quarantine, once.acks)
        inputs = read_inputs(*read, scope=scope, once=once, materialize=keep)
        # Where conversations are united or clocks corrected, a message may move although its row has not changed.
        may_move = once.had_copies or once.copies is not None or once.steps is not None
        kept = Kept() if may_move else Kept.of(warehouse, inputs, every_end, options)
        new = replace(inputs, flows=kept.others(inputs.flows))
        judged = judge_messages(new, states, reading=reading, materialize=keep, run=warehouse.run)
        warehouse.replace(VERDICTS, with_kept(once.restore(judged), kept.verdicts))
        verdicts = warehouse.read(VERDICTS)
        summaries = partial(_summaries, once, peers, states, scope)
        if reading is Reading.LITERAL:
            _write_without_fates(warehouse, summaries(keep(tally(verdicts, reading=reading)), None))
            name_copies(warehouse, once)
            return
        not_arrived = keep(unarrived(once.streams, warehouse.read(PACKETS)))
        outcomes = derive_outcomes(verdicts, not_arrived, materialize=keep, run=warehouse.run)
        paired = pair_acks(once.counted(acks), every_end, outcomes.tallies, crowded(outcomes.tallies))
        tables: dict[Table, Rows] = {
            TRANSACTIONS: lambda: with_kept(
                derive_transactions(kept.others(verdicts), outcomes, message_fates(outcomes.rows), materialize=keep),
                kept.transactions,
            ),
            **summaries(outcomes.tallies, outcomes),
        }

        def of_messages() -> DataFrame:
            watched = watched_sessions(every_end, inputs.unread, paired, outcomes.tallies)
            return find_on_messages(verdicts, watched, outcomes, warehouse.run)

        def write_and_find_others() -> DataFrame:
            transactions, sequences, *_ = run_in_parallel(
                partial(_write, warehouse, table, rows) for table, rows in tables.items()
            )
            counted = once.counted(messages)
            suspects = find_suspects(counted, every_end, materialize=keep)
            facts = {
                **facts_of_messages(counted, every_end, paired, verdicts, sequences, transactions, suspects),
                **facts_of_captures(once, every_end, warehouse),
                SeveralReceivers: several_receivers(inputs.flows, peers, outcomes.tallies),
                AcknowledgedElsewhere: acknowledged_elsewhere(inputs.flows, peers, inputs.acks),
            }
            return find_by_facts(facts, warehouse.run)

        some, others = run_in_parallel([of_messages, write_and_find_others])
        unusual = outcomes.rows.where(F.col("outcome") != Outcome.DELIVERED.value)
        _write_explained(warehouse, verdicts, unusual, some.unionByName(others))
        name_copies(warehouse, once)

    derived = derive(warehouse, "replay", (*REPLAYED, STREAMS), SOURCES, write, **options)
    if not derived:
        progress("replay: nothing new")
    if warehouse.catalog_schema:
        create_history(warehouse)
    return derived


def _write_explained(warehouse: Warehouse, verdicts: DataFrame, outcomes: DataFrame, findings: DataFrame) -> None:
    """Puts outcomes and findings together as incidents, and writes all three with the frames that prove them."""
    senders = sender_spans(verdicts, outcomes, findings)
    told = events(findings, outcomes, warehouse.read(SEQUENCES), senders)
    explained = warehouse.run(told, explain_incidents, EXPLAINED, ("scope_key",), ("tx_sequence_id",))
    made = {
        OUTCOMES: outcomes,
        FINDINGS: explained.where("finding is not null").select("finding.*"),
        INCIDENTS: explained.where("incident is not null").select("incident.*"),
    }
    packets, captures = warehouse.read(PACKETS), warehouse.read(CAPTURES)
    frames = warehouse.materialize(find_frames(keys_of(*made.values()), packets, verdicts, captures))
    run_in_parallel(partial(warehouse.replace, table, with_frames(rows, frames)) for table, rows in made.items())


def _summaries(
    once: Conversations,
    peers: DataFrame,
    states: DataFrame | None,
    scope: Scope,
    tallies: DataFrame,
    outcomes: Outcomes | None,
) -> dict[Table, Rows]:
    """Returns how to make the tables that hold sums of verdicts, and where scopes stand."""
    of_sessions = (once.messages, peers, once.stream_gaps, once.quarantine)
    return {
        SEQUENCES: lambda: summarize_sequences(tallies, outcomes),
        SESSIONS: lambda: summarize_sessions(*of_sessions, tallies, outcomes, scope=scope),
        STATES: lambda: summarize_states(tallies, states),
        ENDS: lambda: once.every_end(peers),
    }


def _write_without_fates(warehouse: Warehouse, tables: Mapping[Table, Rows]) -> None:
    """Writes these tables, and none of what became of messages."""
    nothing: dict[Table, Rows] = {table: partial(warehouse.spark.createDataFrame, [], table.spark) for table in _FATES}
    run_in_parallel(partial(_write, warehouse, table, rows) for table, rows in {**tables, **nothing}.items())


def _write(warehouse: Warehouse, table: Table, rows: Rows) -> DataFrame:
    """Replaces the table's rows, which are planned on this thread, and returns it."""
    warehouse.replace(table, rows())
    return warehouse.read(table)
