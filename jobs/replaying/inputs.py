"""Finds who talks with whom, which state each message belongs to, and what stands on the streams of each scope."""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Generic

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.conversations import Conversations
from jobs.replaying.sources import Sources
from schemas.replay import Scope
from udfs.derive.columns import ACK_PAIR
from udfs.derive.facts.arrivals import watched_sessions
from udfs.derive.frames import ALL, Derivation, Frames
from udfs.derive.replay.acks import acknowledged, crowded, pair_acks, select_order_acks, sequences_used
from udfs.derive.replay.coverage import blind_spans, unread_ranges
from udfs.derive.replay.ends import find_ends
from udfs.derive.replay.initial_states import choose_states, first_messages, with_order_acks
from udfs.derive.replay.marks import (
    along_streams,
    doubtful_scopes,
    initial_marks,
    marks,
    number_streams,
    scopes_of_legs,
)
from udfs.derive.replay.scopes import FLOW_KEY, SENDER_THERE, find_flows, scoped_flows
from udfs.derive.summaries.sessions import carried_by_stream

_NUMBERS = ("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number")
_ACK = (
    *("stream_id", "stream_offset", "captured_ns", "ack_type", "source_queue_manager", "source_guid"),
    *("queue_manager_address", "tx_sequence_id", "tx_sequence_number", "message_class", "acknowledged_message_id"),
)


OF_SCOPES = (*(*FLOW_KEY, *_NUMBERS, "stream_offset", "captured_ns", "capture_id", "message_id", "tx_transaction_id"),)
"""Columns that are read of all transactional messages, to find their scopes and which of them to judge."""


@dataclass(frozen=True, slots=True)
class Inputs(Generic[T]):
    """Holds all rows that verdicts depend on."""

    messages: T
    """Transactional messages, with the columns OF_SCOPES."""
    ends: T
    """ENDS of the streams that count."""
    every_end: T
    """ENDS."""
    flows: T
    """Rows of `scopes.find_flows`, with their scopes."""
    legs: T
    """Rows of `scopes.find_flows` whose leg is unknown: their messages are not judged."""
    unread: T
    """Rows of `coverage.unread_ranges`."""
    acks: T
    """Rows of `acks.pair_acks`."""
    disputed: T
    """Messages that may have come before or after another one, as clocks differ."""


def _flows(messages: pl.DataFrame, ends: pl.DataFrame) -> Frames:
    found = find_flows(messages, ends)
    return {"flows": found.filter(~pl.col("leg_unknown")).drop("leg_unknown"), "legs": found.filter("leg_unknown")}


def _numbered(
    flows: pl.DataFrame,
    unread: pl.DataFrame,
    ends: pl.DataFrame,
    legs: pl.DataFrame,
    resumed: pl.DataFrame,
    every_flow: pl.DataFrame,
) -> Frames:
    doubtful = doubtful_scopes(flows, unread, ends, legs).with_columns(doubtful=True)
    streams = number_streams(flows.join(doubtful, on="scope_key", how="left"), unread, ends, resumed, every_flow)
    return {
        "streams": streams,
        "legs": scopes_of_legs(legs, streams, every_flow),
        "with_messages": streams.filter("has_messages"),
    }


ENDS_OF_STREAMS = Derivation(find_ends, {"streams": ALL, "handshakes": ALL, "previous": ALL})
UNREAD = Derivation(unread_ranges, {"stream_gaps": ALL, "quarantine": ALL})
FLOWS = Derivation(
    _flows,
    {"messages": (*FLOW_KEY, "stream_offset", "captured_ns", "tx_sequence_id"), "ends": ALL},
    ("stream_id",),
)
CROWDED = Derivation(crowded, {"flows": ALL})
USED = Derivation(sequences_used, {"messages": (*FLOW_KEY, "tx_sequence_id"), "flows": ALL}, ("stream_id",))
PAIRED = Derivation(pair_acks, {"acks": _ACK, "ends": ALL}, ("stream_id",), ("flows", "used"))
NUMBERED = Derivation(_numbered, dict.fromkeys(signature(_numbered).parameters, ALL))
FIRST_MESSAGES = Derivation(first_messages, {"flows": ALL, "previous": ALL})
ORDER_ACKS = Derivation(select_order_acks, {"acknowledgments": ALL}, ACK_PAIR)
WITH_ORDER_ACKS = Derivation(with_order_acks, {"firsts": ALL, "order_acks": ALL}, ACK_PAIR)
INITIAL_MARKS = Derivation(
    lambda firsts, resumed: along_streams(initial_marks(choose_states(firsts), resumed)),
    {"firsts": ALL, "resumed": ALL},
)
MARKS = Derivation(
    lambda **rows: along_streams(marks(**rows)),
    {
        "messages": (*FLOW_KEY, *_NUMBERS, "stream_offset", "captured_ns", "message_id"),
        "unread": ALL,
        "streams": ALL,
        "legs": ALL,
        "disputed": ALL,
        "behind": ALL,
    },
    ("stream_id",),
)
WATCHED = Derivation(watched_sessions, {"ends": ALL, "unread": ALL, "answered": ALL, "senders": ALL})
ANSWERED = Derivation(
    lambda acks: select_order_acks(acks).select(ACK_PAIR).unique(), {"acks": ("ack_type", *ACK_PAIR)}, ACK_PAIR
)
ACKNOWLEDGED = Derivation(acknowledged, {"acks": ALL, "streams": ALL}, ACK_PAIR)
CARRIED = Derivation(
    carried_by_stream,
    {"messages": ("stream_id", "queue_manager_address", "transactional", "body_encrypted", "captured_at")},
    ("stream_id",),
)
SPANS = Derivation(
    blind_spans, {"messages": ("stream_id", "stream_offset", "captured_ns"), "unread": ALL}, ("stream_id",)
)


def read_inputs(engine: Engine[T], sources: Sources[T], once: Conversations[T], scope: Scope) -> Inputs[T]:
    """Returns the replay's inputs."""
    narrow = engine.select(once.messages, transactional="transactional", **{name: name for name in OF_SCOPES})
    messages = engine.where(narrow, "transactional")
    ends = engine.one(ENDS_OF_STREAMS, streams=once.streams, handshakes=once.handshakes, previous=sources.ends_before)
    unread = engine.one(UNREAD, stream_gaps=once.stream_gaps, quarantine=once.quarantine)
    found = engine.derive(FLOWS, messages=messages, ends=ends)
    scoped = Derivation(
        partial(scoped_flows, scope=scope),
        {"flows": ALL, "messages": (*FLOW_KEY, *_NUMBERS)},
        ("source_queue_manager",),
    )
    flows = engine.one(scoped, flows=found["flows"], messages=messages)
    used = engine.one(USED, messages=messages, flows=engine.one(CROWDED, flows=flows))
    paired = pair(engine, once.acks, ends, flows, used)
    disputed = once.disputed(messages, flows)
    return Inputs(messages, ends, once.every_end(ends), flows, found["legs"], unread, paired, disputed)


def pair(engine: Engine[T], acks: T, ends: T, flows: T, used: T) -> T:
    """Returns rows of `acks.pair_acks`; `used` are the sequences that senders of crowded sessions used there."""
    senders = engine.distinct(engine.select(flows, **{name: name for name in SENDER_THERE}))
    return engine.one(PAIRED, acks=acks, ends=ends, flows=senders, used=used)


def watch(engine: Engine[T], inputs: Inputs[T], acks: T, senders: T) -> T:
    """Returns rows of `watched_sessions` of the `senders`, by acknowledgments that are paired."""
    there = engine.distinct(engine.select(senders, **{name: name for name in SENDER_THERE}))
    answered = engine.one(ANSWERED, acks=acks)
    return engine.one(WATCHED, ends=inputs.every_end, unread=inputs.unread, answered=answered, senders=there)
