"""Finds who talks with whom, which state each message belongs to, and what stands on the streams of each scope."""

from dataclasses import dataclass
from functools import partial
from typing import Generic

from schemas.replay import Scope
from udfs.frames.columns import PLACE
from udfs.frames.engine import Engine, T
from udfs.replay.order.acks import answered, find_addresses, pair_acks
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.ends import find_ends
from udfs.replay.order.scopes import (
    FLOW_KEY,
    NUMBERS,
    SENDER_THERE,
    arrived,
    find_flows,
    scoped_flows,
    senders_to_several_queues,
)
from udfs.replay.order.watched import watched_sessions

OF_SCOPES = (
    *(*FLOW_KEY, *NUMBERS, "stream_offset", "captured_ns", "capture_id", "message_id"),
    *("tx_transaction_id", "tx_first", "tx_last"),
)
"""Columns that are read of all transactional messages, to find their scopes and which of them to judge."""


@dataclass(frozen=True, slots=True)
class Inputs(Generic[T]):
    """Holds all rows that verdicts depend on."""

    messages: T
    """Transactional messages, with the columns OF_SCOPES."""
    ends: T
    """ENDS of the streams that count."""
    ends_with_copies: T
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
    undecided: T
    """Rows of `apart.undecided`."""
    has_undecided: bool
    """The order of some rests on two clocks that nothing compares."""


def read_inputs(united: Conversations[T], scope: Scope) -> Inputs[T]:
    """Returns the replay's inputs."""
    engine = united.engine
    narrow = engine.select(united.messages, "transactional", *OF_SCOPES)
    messages = engine.where(narrow, "transactional")
    ends = engine.derive(find_ends, streams=united.streams, handshakes=united.handshakes)
    found = engine.derive_tables(find_flows, messages=engine.derive(arrived, messages=united.messages), ends=ends)
    several = engine.expect_few(engine.derive(senders_to_several_queues, flows=found["flows"]))
    of_several = engine.join(messages, several, ["source_queue_manager"], "semi")
    flows = engine.derive(partial(scoped_flows, scope=scope), flows=found["flows"], messages=of_several)
    paired = pair(engine, united.acks, ends, flows)
    undecided = united.undecided(flows)
    has_undecided = united.clocks is not None and engine.count(undecided) > 0
    disputed = united.disputed(messages, flows)
    if has_undecided:
        disputed = engine.distinct(engine.union(disputed, engine.select(undecided, *PLACE)))
    ends_with_copies = united.with_ends_of_copies(ends)
    return Inputs(
        *(messages, ends, ends_with_copies, flows, found["legs"], united.unread, paired, disputed, undecided),
        has_undecided,
    )


def pair(engine: Engine[T], acks: T, ends: T, senders: T) -> T:
    """Returns rows of `acks.pair_acks`."""
    there = engine.distinct(engine.select(senders, *SENDER_THERE))
    addresses = engine.distinct(engine.derive(find_addresses, ends=ends))
    return engine.derive(pair_acks, acks=acks, ends=ends, senders=there, addresses=addresses)


def watch(engine: Engine[T], inputs: Inputs[T], acks: T, senders: T) -> T:
    """Returns rows of `watched_sessions` of the `senders`, by acknowledgments that are paired."""
    there = engine.distinct(engine.select(senders, *SENDER_THERE))
    pairs = engine.derive(answered, acks=acks)
    return engine.derive(
        watched_sessions, ends=inputs.ends_with_copies, unread=inputs.unread, answered=pairs, senders=there
    )
