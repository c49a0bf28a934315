"""Finds what one replayed sequence state belongs to ([MS-MQQB] 3.1.1.3.1, 3.1.1.5)."""

import polars as pl

from schemas.messages import MESSAGES
from schemas.replay import VERDICTS, Scope
from udfs.frames.columns import count, signed
from udfs.frames.derivation import Frame, Frames, derives
from udfs.replay.content import CONTENT
from udfs.replay.order.ends import passes_through, receiver_is_unknown

FLOW_KEY = ("stream_id", "source_queue_manager", "queue_manager_address", "destination_queue")
SENDER_THERE = ("session_id", "source_queue_manager")
"""An original sender on a session: what one choice of `auto` is for."""
_QUEUE = ("source_queue_manager", "state_of", "destination_queue")
"""Whose stream of messages it is, which queue manager has the state, and the queue."""
NUMBERS = ("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number")
ASKS_FOR_FINAL_ACK = ("tx_final_ack_required", "negative_source_journal", "positive_source_journal")
"""The flags of which one is enough for a FinalAck when a message leaves its queue ([MS-MQQB] 3.1.7.2.2)."""
TRANSACTIONAL = tuple(
    name
    for name in MESSAGES.names
    if name in {*VERDICTS.names, *CONTENT, *FLOW_KEY, *ASKS_FOR_FINAL_ACK} - {"tx_sequence"}
)
"""The columns of MESSAGES that the replay reads."""


@derives(
    columns={"messages": (*FLOW_KEY, "stream_offset", "captured_ns", "transactional", "tx_sequence_id")}, in_parts=True
)
def arrived(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns per FLOW_KEY how many transactional ones of some messages `arrived`.

    Beside it are `offset`, `ns` and `sequence` of the first.
    """
    first = pl.col("captured_ns", "tx_sequence_id").min_by("stream_offset")
    return (
        messages.filter("transactional")
        .group_by(FLOW_KEY)
        .agg(count().alias("arrived"), pl.col("stream_offset").min().alias("offset"), first)
        .select(*FLOW_KEY, "arrived", "offset", ns="captured_ns", sequence=signed(pl.col("tx_sequence_id")))
    )


@derives(("stream_id",))
def find_flows(messages: pl.DataFrame, ends: pl.DataFrame) -> Frames:
    """Returns as `flows` one row per FLOW_KEY of transactional messages at their final destination.

    `messages` are the rows of `arrived`. Each flow has the ends of its stream, the count of its messages, and `first`:
    offset, time and sequence (`signed`) of its first message. Those whose leg is unknown are `legs` instead: their
    messages may be passing through a router, because nothing names the receiver.
    """
    first = pl.struct("offset", "ns", "sequence").min_by("offset").alias("first")
    found = (
        messages.group_by(FLOW_KEY)
        .agg(pl.col("arrived").sum(), first)
        .join(ends, on="stream_id")
        .filter(~passes_through())
    )
    return {"flows": found.filter(~receiver_is_unknown()), "legs": found.filter(receiver_is_unknown())}


def with_flow(messages: Frame, flows: Frame, *columns: str) -> Frame:
    """Adds columns of the flow of each message, and leaves out messages without one; in a FLOW_KEY, nulls are equal."""
    return messages.join(flows.select(*FLOW_KEY, *columns), on=FLOW_KEY, nulls_equal=True)


@derives(("stream_id",), columns={"flows": ("scope_key", *FLOW_KEY)})
def with_scopes(messages: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Adds the `scope_key` of each message, and leaves out messages without one."""
    return with_flow(messages, flows, "scope_key")


@derives(("source_queue_manager",), columns={"messages": (*FLOW_KEY, *NUMBERS)})
def scoped_flows(flows: pl.DataFrame, messages: pl.DataFrame, scope: Scope) -> pl.DataFrame:
    """Adds `replay_scope`, `scope_key` and `state_of` to flows whose leg is known.

    `state_of` is the receiving queue manager, which has the state: its GUID, also where only other connections to its
    address name it, or else its address. A `scope_key` is readable text. Sequences are end to end, so each key names
    the original sender. `messages` are the transactional ones of `senders_to_several_queues`, which only `auto` reads.
    """
    flows = flows.with_columns(pl.coalesce("receiver_guid", "receiver_by_address", "receiver").alias("state_of"))
    if scope is Scope.AUTO:
        chosen = _senders_by_session(flows, messages).with_columns(pl.lit(Scope.SESSION.value).alias("replay_scope"))
        scoped = flows.join(chosen, on=SENDER_THERE, how="left")
        scoped = scoped.with_columns(pl.col("replay_scope").fill_null(Scope.QUEUE.value))
    else:
        scoped = flows.with_columns(pl.lit(scope.value).alias("replay_scope"))
    by_session = _words("replay_scope", "session_id", "source_queue_manager")
    by_queue = _words("replay_scope", *_QUEUE)
    is_session = pl.col("replay_scope") == Scope.SESSION.value
    return scoped.with_columns(pl.when(is_session).then(by_session).otherwise(by_queue).alias("scope_key"))


@derives(("source_queue_manager",), columns={"flows": ("source_queue_manager", "session_id", "destination_queue")})
def senders_to_several_queues(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns each `source_queue_manager` that sent to several queues on some session.

    Only for these, scopes differ: to one queue, `queue` finds whatever `session` does.
    """
    queue = pl.col("destination_queue")
    several = flows.group_by(SENDER_THERE).agg(queue.min() < queue.max()).filter("destination_queue")
    return several.select("source_queue_manager").unique()


def _words(*names: str) -> pl.Expr:
    return pl.concat_str(*names, separator=" ", ignore_nulls=True)


def _senders_by_session(flows: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Returns each SENDER_THERE for which `auto` means `session`.

    Under that scope more of its messages find their predecessor than under `queue`. One is found where any message of
    the scope has its number, at any time, on any session.
    """
    asked = flows.join(senders_to_several_queues(flows), on="source_queue_manager", how="semi")
    asked = numbered(numbered(asked, SENDER_THERE, "by_session"), _QUEUE, "by_queue")
    scopes = ("by_session", "by_queue")
    numbers = with_flow(messages.select(*FLOW_KEY, *NUMBERS), asked, *scopes).drop(FLOW_KEY)
    in_session, in_queue = (_predecessors_found(numbers, scope) for scope in scopes)
    more = in_session.join(in_queue, on="by_session", how="left", suffix="_in_queue").filter(
        pl.col("found") > pl.col("found_in_queue").fill_null(0)
    )
    return asked.join(more, on="by_session", how="semi").select(SENDER_THERE).unique()


def numbered(flows: pl.DataFrame, names: tuple[str, ...], number: str) -> pl.DataFrame:
    """Adds a `number` that those rows share which have the same names."""
    named = flows.select(names).unique(maintain_order=True).with_row_index(number)
    return flows.join(named.with_columns(pl.col(number).cast(pl.Int64)), on=names, nulls_equal=True)


def _predecessors_found(numbers: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Returns per number `by_session` for how many of its messages the predecessor is `found` in their scope."""
    sequence = (scope, "tx_sequence_id")
    previous = pl.col("previous_tx_sequence_number")
    seen = numbers.select(*sequence, pl.col("tx_sequence_number").alias("previous_tx_sequence_number"))
    asked = numbers.filter(previous > 0).select(*dict.fromkeys(("by_session", *sequence)), previous)
    found = asked.join(seen, on=(*sequence, "previous_tx_sequence_number"), how="semi", nulls_equal=True)
    return found.group_by("by_session").agg(pl.len().alias("found"))
