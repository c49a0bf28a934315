"""Finds what an analyst should look at, and puts it together as incidents with the frames that prove them."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Generic

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.fates import Fates
from jobs.replaying.inputs import Inputs
from jobs.replaying.sources import Sources
from schemas.explained import FOUND
from udfs.derive.columns import ACK_PAIR, PLACE, SEQUENCE
from udfs.derive.facts.arrivals import arrivals_to_look_at, shown_messages
from udfs.derive.facts.captures import cannot_connect, captured_twice, clock_steps
from udfs.derive.facts.events import addresses_seen, messages_sent, tell_incidents
from udfs.derive.facts.receivers import (
    WINDOW,
    acknowledged_elsewhere,
    count_acks,
    find_stalls,
    find_ways,
    in_last_sequence,
    negative_acks,
    refused_meanwhile,
    repeated_acks,
    returned_messages,
    several_receivers,
    window_stalled,
)
from udfs.derive.facts.senders import (
    broken_transactions,
    expired_on_arrival,
    facts_of_senders,
    find_conflicts,
    ordinal_regressed,
    sent_by_several,
    streams_of_several,
    two_addresses,
)
from udfs.derive.frames import ALL, Derivation, Frames
from udfs.derive.outcomes.slots import MESSAGE, SLOT
from udfs.derive.tables import schema_of
from udfs.derive.witness import find_frames, keys_of, places_of, with_frames
from udfs.replay.findings.captures import CannotConnect, CapturedTwice, ClockStepped
from udfs.replay.findings.finding import finding_row
from udfs.replay.findings.on_messages import CHOSEN, FINDING, NUMBERED_SEQUENCE, choose_messages, tell_messages
from udfs.replay.findings.receivers import (
    AcknowledgedElsewhere,
    RepeatedOrderAck,
    Returned,
    SeveralReceivers,
    WindowStalled,
)
from udfs.replay.findings.senders import (
    ExpiredOnArrival,
    InterleavedTransactions,
    OrdinalRegressed,
    PartlyDelivered,
    TornTransactions,
    TwoAddresses,
)

_LOOKED_AT = (
    *(*SLOT, *MESSAGE, "session_id", "destination_queue", "stream_id", "captured_ns", "sent_at", "replay_order"),
    *("accepted", "verdict", "reason", "gap_size", "incoming_tx_sequence_id", "incoming_tx_sequence_number"),
    *("acknowledged_at", "ack_latency_ms", "evidence", "next_ack_agrees_with", "final_ack_class"),
)
_REFUSED = (
    *("source_queue_manager", "tx_sequence_id", "scope_key", "session_id", "destination_queue", "verdict"),
    *("tx_sequence_number", "captured_ns"),
)
_SHOWN = (*_LOOKED_AT, "stream_offset", "captured_at", "previous_tx_sequence_number")


@dataclass(frozen=True, slots=True)
class Explained(Generic[T]):
    """Holds rows of OUTCOMES, FINDINGS and INCIDENTS."""

    outcomes: T
    findings: T
    incidents: T


def _broken(transactions: pl.DataFrame) -> Frames:
    lost = pl.col("lost") > 0
    return {
        "torn": broken_transactions(transactions, "torn_by_sender"),
        "interleaved": broken_transactions(transactions, "interleaved"),
        "partly": broken_transactions(transactions, "partly_delivered", lost),
    }


def _connections(
    streams: pl.DataFrame,
    ends: pl.DataFrame,
    handshakes: pl.DataFrame,
    quarantine: pl.DataFrame,
    captures: pl.DataFrame,
    pings: pl.DataFrame,
) -> Frames:
    return {
        "failures": cannot_connect(streams, handshakes, quarantine, captures, pings),
        "ways": find_ways(streams, ends, handshakes),
        "several": streams_of_several(ends),
    }


def _of_few(
    ends: pl.DataFrame,
    flows: pl.DataFrame,
    tallies: pl.DataFrame,
    sequences: pl.DataFrame,
    expired: pl.DataFrame,
    around_falls: pl.DataFrame,
    conflicts: pl.DataFrame,
    repeated: pl.DataFrame,
    negative: pl.DataFrame,
    named: pl.DataFrame,
    acks: pl.DataFrame,
    stalls: pl.DataFrame,
    answering: pl.DataFrame,
    failures: pl.DataFrame,
    steps: pl.DataFrame,
    torn: pl.DataFrame,
    interleaved: pl.DataFrame,
    partly: pl.DataFrame,
) -> pl.DataFrame:
    """Returns the findings on what no single arrival shows, from few rows."""
    facts: dict[type[Any], pl.DataFrame] = {
        ExpiredOnArrival: expired_on_arrival(expired, ends),
        OrdinalRegressed: ordinal_regressed(around_falls, ends, sequences),
        TwoAddresses: two_addresses(ends, conflicts),
        RepeatedOrderAck: in_last_sequence(repeated, sequences),
        Returned: returned_messages(named, negative, ends),
        TornTransactions: torn,
        InterleavedTransactions: interleaved,
        PartlyDelivered: partly,
        CapturedTwice: captured_twice(ends),
        ClockStepped: steps,
        CannotConnect: failures,
        WindowStalled: window_stalled(stalls, answering),
        SeveralReceivers: several_receivers(flows, ends, tallies),
        AcknowledgedElsewhere: acknowledged_elsewhere(flows, ends, acks),
    }
    return tell_facts(facts)


def tell_facts(facts: Mapping[type[Any], pl.DataFrame]) -> pl.DataFrame:
    """Returns a row of FINDINGS per fact; facts are named by their kind, whose fields are columns of the rows."""
    rows = (
        finding_row(fact.tell(), fact)
        for kind, of_kind in facts.items()
        for fact in map(kind._make, of_kind.select(kind._fields).iter_rows())
    )
    return pl.DataFrame(list(rows), schema_of(FOUND), orient="row")


def _named_places(**explained: pl.DataFrame) -> Frames:
    keys = keys_of(*explained.values())
    return {"keys": keys, "places": places_of(keys)}


LOOKED_AT = Derivation(
    arrivals_to_look_at,
    {"verdicts": _LOOKED_AT, "slots": ALL, "fates": ALL, "resumed": ALL},
    ("scope_key",),
    ("watched",),
)
SHOWN = Derivation(shown_messages, {"verdicts": _SHOWN}, ("stream_id",), ("chosen",))
OF_SENDERS = Derivation(
    facts_of_senders,
    {
        "messages": (
            *("source_queue_manager", "stream_id", "stream_offset", "message_id", "message_id_ordinal", "sent_at"),
            *("captured_ns", "captured_at", "destination_queue", "time_to_reach_queue", "time_to_be_received"),
            "tx_sequence_id",
        ),
        "verdicts": ("source_queue_manager", "message_id", "accepted"),
    },
    ("source_queue_manager",),
)
OF_CONNECTIONS = Derivation(
    _connections,
    dict.fromkeys(signature(_connections).parameters, ALL),
)
SENT_BY_SEVERAL = Derivation(sent_by_several, {"verdicts": _SHOWN, "streams": ALL}, ("stream_id",))
CONFLICTS = Derivation(find_conflicts, {"sent": ALL}, ("sender_guid",))
REPEATED_ACKS = Derivation(repeated_acks, {"acks": ALL}, ACK_PAIR)
REFUSED_MEANWHILE = Derivation(
    refused_meanwhile, {"repeated": ALL, "verdicts": _REFUSED}, ("source_queue_manager", "tx_sequence_id")
)
NEGATIVE = Derivation(
    negative_acks,
    {
        "messages": ("stream_id", "stream_offset", "message_class", "correlation_id", "captured_ns", "captured_at"),
        "ends": ("stream_id", "session_id"),
    },
    ("stream_id",),
)
COUNTED_ACKS = Derivation(count_acks, {"acks": ALL}, ACK_PAIR)
STALLS = Derivation(
    find_stalls,
    {"ways": ALL} | dict.fromkeys(("messages", "acks", "session_acks"), WINDOW),
    ("connection_id",),
)
CLOCK_STEPS = Derivation(
    clock_steps,
    {
        "captures": ("capture_id", "uri", "clock_steps", "first_captured_at"),
        "messages": ("capture_id", "stream_id", "stream_offset", "last_frame"),
    },
    ("capture_id",),
)
BROKEN = Derivation(_broken, {"transactions": ALL}, ("scope_key",))
OF_FEW = Derivation(
    _of_few,
    dict.fromkeys(signature(_of_few).parameters, ALL),
)
SEEN = Derivation(
    addresses_seen,
    {"verdicts": ("source_queue_manager", "stream_id", "captured_at")},
    ("source_queue_manager",),
)
SENT = Derivation(
    messages_sent,
    {
        "verdicts": (*SLOT, *MESSAGE, "stream_id", "accepted"),
        "outcomes": ALL,
        "findings": SEQUENCE,
    },
    SEQUENCE,
)
INCIDENTS = Derivation(tell_incidents, dict.fromkeys(signature(tell_incidents).parameters, ALL))
PLACES = Derivation(_named_places, dict.fromkeys(("outcomes", "findings", "incidents"), ("witness",)))
FRAMES = Derivation(
    find_frames,
    {
        "keys": ALL,
        "packets": (*PLACE, "packet_type", "capture_id", "captured_at", "first_frame"),
        "verdicts": (*PLACE, "verdict"),
        "captures": ("capture_id", "uri"),
    },
)
WITH_FRAMES = Derivation(with_frames, {"rows": ALL, "frames": ALL})


def find_on_messages(engine: Engine[T], verdicts: T, every_verdict: T, watched: T, fates: Fates[T], resumed: T) -> T:
    """Returns the FINDINGS on messages, without incidents; witnesses are keys.

    `verdicts` are those that were judged now; a finding may show others.
    """
    arrivals = engine.one(
        LOOKED_AT,
        verdicts=verdicts,
        slots=fates.unusual,
        fates=fates.of_messages,
        resumed=resumed,
        watched=watched,
    )
    chosen = engine.keep(engine.run(arrivals, choose_messages, CHOSEN, NUMBERED_SEQUENCE, ("replay_order",)))
    shown = engine.one(SHOWN, verdicts=every_verdict, chosen=chosen)
    return engine.run(shown, tell_messages, FOUND, FINDING)


def find_by_facts(
    engine: Engine[T],
    sources: Sources[T],
    once: Conversations[T],
    inputs: Inputs[T],
    verdicts: T,
    acks: T,
    fates: Fates[T],
    sequences: T,
    transactions: T,
) -> T:
    """Returns the FINDINGS that facts show, without incidents; witnesses are keys."""
    counted, ends = once.counted(sources.messages), inputs.every_end
    of_senders = engine.derive(OF_SENDERS, messages=counted, verdicts=verdicts)
    of_connections = engine.derive(
        OF_CONNECTIONS,
        streams=sources.streams,
        ends=ends,
        handshakes=sources.handshakes,
        quarantine=sources.quarantine,
        captures=sources.captures,
        pings=sources.pings,
    )
    sent = engine.one(SENT_BY_SEVERAL, verdicts=verdicts, streams=of_connections["several"])
    negative = engine.one(NEGATIVE, messages=counted, ends=ends)
    named = engine.join(counted, engine.select(negative, message_id="correlation_id"), ["message_id"], "semi")
    repeated = engine.one(REFUSED_MEANWHILE, repeated=engine.one(REPEATED_ACKS, acks=acks), verdicts=verdicts)
    connections = engine.select(of_connections["ways"], stream_id="stream_id", connection_id="connection_id")
    packets = {
        name: engine.join(engine.select(once.in_time(rows), **{of: of for of in WINDOW}), connections, ["stream_id"])
        for name, rows in (
            ("messages", sources.messages),
            ("acks", sources.acks),
            ("session_acks", sources.session_acks),
        )
    }
    stalls = engine.derive(STALLS, ways=of_connections["ways"], **packets)
    return engine.one(
        OF_FEW,
        ends=ends,
        flows=inputs.flows,
        tallies=fates.tallies,
        sequences=sequences,
        **of_senders,
        conflicts=engine.one(CONFLICTS, sent=sent),
        repeated=repeated,
        negative=negative,
        named=named,
        acks=engine.one(COUNTED_ACKS, acks=inputs.acks),
        **stalls,
        failures=of_connections["failures"],
        steps=engine.one(CLOCK_STEPS, captures=sources.captures, messages=sources.messages),
        **engine.derive(BROKEN, transactions=transactions),
    )


def put_together(engine: Engine[T], verdicts: T, undelivered: T, findings: T, sequences: T) -> Explained[T]:
    """Puts outcomes and findings together as incidents; witnesses are keys."""
    sent = engine.one(SENT, verdicts=verdicts, outcomes=undelivered, findings=findings)
    seen = engine.one(SEEN, verdicts=verdicts)
    told = engine.derive(INCIDENTS, findings=findings, outcomes=undelivered, sequences=sequences, sent=sent, seen=seen)
    return Explained(undelivered, told["findings"], told["incidents"])


def with_proof(engine: Engine[T], sources: Sources[T], verdicts: T, explained: Explained[T]) -> Explained[T]:
    """Returns the same rows, whose witnesses list packets with their frames."""
    rows = {"outcomes": explained.outcomes, "findings": explained.findings, "incidents": explained.incidents}
    named = engine.derive(PLACES, **rows)
    packets, judged = (engine.join(table, named["places"], PLACE, "semi") for table in (sources.packets, verdicts))
    frames = engine.one(FRAMES, keys=named["keys"], packets=packets, verdicts=judged, captures=sources.captures)
    return Explained(*(engine.one(WITH_FRAMES, rows=one, frames=frames) for one in rows.values()))
