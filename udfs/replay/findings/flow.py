"""Finds what an analyst should look at: on messages, and by facts that no single arrival shows."""

from collections.abc import Callable
from functools import partial

import polars as pl

from schemas.outcomes import OUTCOMES
from schemas.replay import FindingKind
from schemas.tallies import FINDINGS_ON_MESSAGES
from udfs.frames.engine import Engine, T
from udfs.frames.tables import schema_of
from udfs.replay.findings import facts, facts_unanswered
from udfs.replay.findings.arrivals import (
    SHOWN,
    choose_shown,
    scopes_below_state,
    sent_after_all,
    shown_messages,
    times_of_sending,
)
from udfs.replay.findings.captures import (
    cannot_connect,
    captured_twice,
    clock_steps,
    unanswered_pings,
    with_clock_steps,
)
from udfs.replay.findings.finding import FindingText, finding_row
from udfs.replay.findings.on_messages import FINDING, tell_messages
from udfs.replay.findings.receivers import (
    WINDOW,
    find_stalls,
    find_ways,
    in_last_sequence,
    negative_acks,
    refused_meanwhile,
    repeated_acks,
    returned_messages,
    several_receivers,
    thin_out,
    window_stalled,
)
from udfs.replay.findings.senders import (
    HAS_LIMIT,
    SENT,
    broken_transactions,
    expired_by_stream,
    expired_on_arrival,
    find_conflicts,
    find_expired,
    least_ages,
    merge_ages,
    streams_of_several,
    two_addresses,
)
from udfs.replay.findings.unanswered import (
    OF_ACKS,
    closed_connections,
    doubted_sequences,
    explain_failures,
    fallen_in_scopes,
    order_acks_elsewhere,
    replaced_receivers,
    unexplained,
    with_addresses,
)
from udfs.replay.kept import Settled
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.inputs import Inputs
from udfs.replay.outcomes.flow import OutcomeSums
from udfs.replay.outcomes.missing_acks import fallen_acks
from udfs.replay.outcomes.plain import SLOT


def _of_few(**few: pl.DataFrame) -> pl.DataFrame:
    """Returns the findings on what no single arrival shows, from few rows: a row of FINDINGS per fact."""
    ends, sequences = few["ends"], few["sequences"]
    doubted = with_addresses(few["doubted"], ends)
    failures = explain_failures(few["failures"], doubted)
    elsewhere = order_acks_elsewhere(few["answers"], ends, doubted)
    closed = closed_connections(few["streams"], ends, few["session_acks"], doubted)
    replaced = replaced_receivers(few["tallies"], ends, doubted)
    unanswered = unexplained(few["streams"], ends, doubted, failures, elsewhere, closed, replaced)
    found: dict[Callable[..., FindingText], pl.DataFrame] = {
        facts.expired_on_arrival: expired_on_arrival(few["expired"], ends),
        facts.two_addresses: two_addresses(ends, few["conflicts"]),
        facts.repeated_order_ack: in_last_sequence(few["repeated"], sequences),
        facts.returned: returned_messages(few["named"], few["negative"], ends),
        partial(facts.broken_transactions, kind=FindingKind.TORN_TRANSACTION): few["torn"],
        partial(facts.broken_transactions, kind=FindingKind.TRANSACTION_PARTLY_DELIVERED): few["partly"],
        facts.captured_twice: captured_twice(ends),
        facts.clock_stepped: few["steps"],
        facts.cannot_connect: failures,
        facts.unanswered_pings: few["pings"],
        facts_unanswered.acknowledged_elsewhere: elsewhere,
        facts_unanswered.closed_by_receiver: closed,
        facts_unanswered.receiver_replaced: replaced,
        facts_unanswered.never_answered: unanswered,
        facts_unanswered.acknowledgment_fell: fallen_in_scopes(few["fallen"], few["tallies"], doubted),
        facts.window_stalled: window_stalled(few["stalls"], few["answering"]),
        facts.several_receivers: several_receivers(few["flows"], ends, few["tallies"]),
    }
    rows = (
        finding_row(tell(**fact), fact) for tell, of_kind in found.items() for fact in of_kind.iter_rows(named=True)
    )
    return pl.DataFrame(list(rows), schema_of(FINDINGS_ON_MESSAGES.arrow), orient="row")


def find_on_messages(
    engine: Engine[T], verdicts: T, every_verdict: T, watched: T, fates: OutcomeSums[T], resumed: T
) -> T:
    """Returns the FINDINGS on messages, without incidents; witnesses are keys.

    `verdicts` are those that were judged now, by clocks that do not step back; a finding may show others.
    """
    asking = engine.expect_few(engine.distinct(engine.derive(scopes_below_state, verdicts=fates.unusual)))
    sent = engine.derive(times_of_sending, verdicts=engine.join(verdicts, asking, ["scope_key"], "semi"))
    chosen = engine.derive(
        choose_shown,
        unusual=fates.unusual,
        late=engine.join(fates.late, fates.unusual_slots, SLOT, "anti"),
        sent_later=engine.derive(sent_after_all, sent=sent, resumed=resumed),
        fates=fates.message_fates,
        resumed=resumed,
        watched=watched,
    )
    shown = engine.join(engine.select(every_verdict, *SHOWN), engine.expect_few(chosen), ["scope_key", "replay_order"])
    return engine.run(engine.derive(shown_messages, shown=shown), tell_messages, FINDINGS_ON_MESSAGES.arrow, FINDING)


def find_by_facts(
    united: Conversations[T],
    inputs: Inputs[T],
    settled: Settled[T],
    verdicts: T,
    acks: T,
    fates: OutcomeSums[T],
    sequences: T,
    transactions: T,
) -> T:
    """Returns the FINDINGS that facts show, without incidents; witnesses are keys."""
    engine, sources = united.engine, united.sources
    messages, ends = united.without_copies(sources.messages), inputs.ends_with_copies
    failures = engine.derive(
        cannot_connect,
        streams=sources.streams,
        handshakes=sources.handshakes,
        quarantine=sources.quarantine,
        captures=sources.captures,
    )
    undelivered = settled.with_kept(OUTCOMES.name, fates.undelivered)
    doubted = engine.expect_few(engine.derive(doubted_sequences, outcomes=undelivered))
    answers = engine.join(sources.acks, engine.select(doubted, "tx_sequence_id"), ["tx_sequence_id"], "semi")
    several = engine.derive(streams_of_several, ends=ends)
    sent = engine.join(engine.select(verdicts, *SENT), several, ["stream_id"])
    sessions = engine.select(ends, "stream_id", "session_id")
    negative = engine.derive(negative_acks, messages=messages, ends=sessions)
    named = engine.join(messages, engine.select(negative, message_id="correlation_id"), ["message_id"], "semi")
    repeated = engine.expect_few(engine.derive(repeated_acks, acks=acks))
    meanwhile = engine.join(verdicts, repeated, ["source_queue_manager", "tx_sequence_id"], "semi")
    repeated = engine.derive(refused_meanwhile, repeated=repeated, verdicts=meanwhile)
    stepped = engine.expect_few(engine.derive(with_clock_steps, captures=sources.captures))
    in_stepped = engine.join(sources.messages, stepped, ["capture_id"], "semi")
    ways = engine.derive(find_ways, streams=sources.streams, ends=ends, handshakes=sources.handshakes)
    connections = engine.select(ways, "stream_id", "connection_id")
    packets = (engine.derive(thin_out, packets=united.in_time(rows)) for rows in (sources.messages, sources.acks))
    session_acks = engine.select(united.in_time(sources.session_acks), *WINDOW)
    stalls = engine.derive_tables(
        find_stalls,
        ways=ways,
        packets=engine.join(engine.union(*packets), connections, ["stream_id"]),
        session_acks=engine.join(session_acks, connections, ["stream_id"]),
    )
    return engine.derive(
        _of_few,
        ends=ends,
        flows=inputs.flows,
        tallies=fates.tallies,
        sequences=sequences,
        expired=engine.derive(expired_by_stream, expired=_not_accepted(engine, united.in_time(messages), verdicts)),
        conflicts=engine.derive(find_conflicts, sent=sent),
        repeated=repeated,
        negative=negative,
        named=named,
        **stalls,
        failures=failures,
        doubted=doubted,
        answers=engine.select(answers, *OF_ACKS),
        streams=united.streams,
        session_acks=engine.distinct(engine.select(sources.session_acks, "stream_id")),
        fallen=engine.derive(fallen_acks, acks=acks),
        steps=engine.derive(clock_steps, captures=stepped, messages=in_stepped),
        pings=engine.derive(unanswered_pings, captures=sources.captures, streams=sources.streams),
        **engine.derive_tables(broken_transactions, transactions=transactions),
    )


def _not_accepted(engine: Engine[T], messages: T, verdicts: T) -> T:
    """Returns the messages that had expired and were not accepted."""
    ages = engine.derive(merge_ages, ages=engine.derive(least_ages, messages=messages))
    expired = engine.expect_few(engine.derive(find_expired, messages=engine.where(messages, HAS_LIMIT), ages=ages))
    accepted = engine.select(engine.where(verdicts, "accepted"), "message_id")
    return engine.join(expired, engine.join(accepted, expired, ["message_id"], "semi"), ["message_id"], "anti")
