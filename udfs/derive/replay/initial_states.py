"""Finds the receiver's state before the first message of a scope, from an OrderAck."""

import polars as pl

from schemas.replay import Scope
from udfs.derive.columns import ACK_PAIR
from udfs.derive.frames import derives
from udfs.derive.replay.acks import select_order_acks


def first_messages(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key` and the time `first_ns` of the scope's first message, for each of its pairs.

    `flows` are those that have messages, with their scopes. `only` is the one sequence of which an OrderAck is sure to
    be the scope's; null for any. Queues share a pair but not their numbers, so in a queue's scope that is the first
    message's sequence.
    """
    is_queue = pl.col("replay_scope") == Scope.QUEUE.value
    began = pl.coalesce("ns", "first_ns")
    firsts = (
        flows.select("scope_key", "stream_id", "first_ns", pl.col("first").struct.unnest())
        .sort("offset", "ns", "sequence")
        .unique(["scope_key", "stream_id"], keep="first", maintain_order=True)
        .sort(began, "first_ns", "stream_id")
        .unique("scope_key", keep="first", maintain_order=True)
        .select("scope_key", "sequence", pl.col("ns").alias("first_ns"))
    )
    return (
        flows.select("scope_key", *ACK_PAIR, "replay_scope")
        .unique()
        .join(firsts, on="scope_key")
        .select("scope_key", *ACK_PAIR, pl.when(is_queue).then("sequence").alias("only"), "first_ns")
        .unique()
    )


@derives(ACK_PAIR, columns={"acks": ("ack_type", *ACK_PAIR, "ns", "sequence", "number")})
def with_order_acks(firsts: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Adds time, sequence and number of the last OrderAck before each of `first_messages`: `ns`, `sequence`, `number`.

    Null for none. `acks` are rows of `pair_acks`.
    """
    named = select_order_acks(acks).select(*ACK_PAIR, "ns", "sequence", "number").sort("ns", "sequence", "number")
    is_any = pl.col("only").is_null()
    ordered = firsts.sort("first_ns")
    return pl.concat(
        [
            _last_before(ordered.filter(is_any), named),
            _last_before(ordered.filter(~is_any), named.with_columns(only="sequence"), "only"),
        ]
    )


def _last_before(firsts: pl.DataFrame, acks: pl.DataFrame, *by: str) -> pl.DataFrame:
    return firsts.join_asof(
        acks,
        left_on="first_ns",
        right_on="ns",
        by=[*ACK_PAIR, *by],
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )


def choose_states(firsts: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key`, `sequence`, `number` and `ns` of scopes with a known beginning.

    The state is what the last OrderAck before the scope's first message names. `firsts` are rows of `with_order_acks`.
    """
    return (
        firsts.drop_nulls("ns")
        .sort("ns", "sequence", "number")
        .unique("scope_key", keep="last", maintain_order=True)
        .select("scope_key", "sequence", "number", "ns")
    )
