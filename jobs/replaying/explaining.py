"""Finds what an analyst should look at, and puts it together as incidents with the frames that prove them."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.fates import Fates
from jobs.replaying.inputs import Inputs, pair
from jobs.replaying.sources import Once, Sources
from schemas.explained import CHOSEN, EXPLAINED, FOUND
from schemas.wire import NEGATIVE_CLASS
from udfs.derive.columns import null
from udfs.derive.facts.acks import in_last_sequence, negative_acks, refused_meanwhile, repeated_acks, returned_messages
from udfs.derive.facts.addresses import find_conflicts, sent_by_several, streams_of_several, two_addresses
from udfs.derive.facts.arrivals import arrivals_to_look_at, shown_messages, watched_sessions
from udfs.derive.facts.balancers import acknowledged_elsewhere, count_acks, several_receivers
from udfs.derive.facts.captures import captured_twice, clock_steps
from udfs.derive.facts.connections import began_with_another_version, cannot_connect
from udfs.derive.facts.events import addresses_seen, events, messages_sent, sender_spans
from udfs.derive.facts.kinds import collect_facts
from udfs.derive.facts.senders import expired_on_arrival, facts_of_senders, ordinal_regressed
from udfs.derive.facts.stalls import find_stalls, find_ways, window_stalled
from udfs.derive.facts.transactions import broken_transactions
from udfs.derive.frames import ALL, Derivation, Frames, making
from udfs.derive.witness import find_frames, keys_of, places_of, with_frames
from udfs.replay.findings.captures import CannotConnect, CapturedTwice, ClockStepped
from udfs.replay.findings.on_facts import tell_facts
from udfs.replay.findings.on_messages import FINDING, SEQUENCE, choose_messages, tell_messages
from udfs.replay.findings.receivers import (
    AcknowledgedElsewhere,
    RepeatedOrderAck,
    Returned,
    SeveralReceivers,
    WindowStalled,
)
from udfs.replay.findings.senders import ExpiredOnArrival, OrdinalRegressed, TwoAddresses
from udfs.replay.findings.transactions import InterleavedTransactions, PartlyDelivered, TornTransactions
from udfs.replay.incidents import explain_incidents

_PAIR = ("receiver", "source_queue_manager")
_WINDOW = ("stream_id", "stream_offset", "captured_ns", "window_size")
_PLACE = ("stream_id", "stream_offset")
_LOOKED_AT = (
    *("scope_key", "tx_sequence_id", "tx_sequence_number", "source_queue_manager", "message_id", "content_hash"),
    *("session_id", "destination_queue", "stream_id", "captured_ns", "sent_at", "replay_order", "accepted", "verdict"),
    *("reason", "gap_size", "incoming_tx_sequence_id", "incoming_tx_sequence_number", "acknowledged_at"),
    *("ack_latency_ms", "evidence", "explained_by", "final_ack_class"),
)
_SHOWN = (*_LOOKED_AT, "stream_offset", "captured_at", "previous_tx_sequence_number")


@dataclass(frozen=True, slots=True)
class Explained(Generic[T]):
    """Holds rows of OUTCOMES, FINDINGS and INCIDENTS."""

    outcomes: T
    findings: T
    incidents: T


def _answered(acks: pl.DataFrame) -> pl.DataFrame:
    is_order_ack = pl.col("ack_type") == "order_ack"
    return acks.filter(is_order_ack).select(_PAIR).unique()


def _negative(messages: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    return negative_acks(messages.filter(pl.col("message_class") & NEGATIVE_CLASS != 0), ends)


def _broken(transactions: pl.DataFrame) -> Frames:
    lost = pl.col("lost") > 0
    return {
        "torn": broken_transactions(transactions, "torn_by_sender"),
        "interleaved": broken_transactions(transactions, "interleaved"),
        "partly": broken_transactions(transactions, "partly_delivered", lost),
    }


def _connections(
    streams: pl.DataFrame,
    all_streams: pl.DataFrame,
    ends: pl.DataFrame,
    handshakes: pl.DataFrame,
    all_handshakes: pl.DataFrame,
    quarantine: pl.DataFrame,
    captures: pl.DataFrame,
    pings: pl.DataFrame,
) -> Frames:
    of_other_version = quarantine.filter(began_with_another_version())
    return {
        "failures": cannot_connect(all_streams, all_handshakes, of_other_version, captures, pings),
        "ways": find_ways(all_streams, ends, all_handshakes),
        "several": streams_of_several(ends),
    }
