"""Finds the receiver's state before the first message of a scope, from an OrderAck or the previous warehouse."""

import polars as pl

from schemas.replay import Scope
from udfs.derive.columns import ACK_PAIR, signed
from udfs.derive.frames import derives
from udfs.derive.replay.acks import select_order_acks

_NEVER = (1 << 63) - 1
_STATE = ("sequence", "number", "known", "ns")
"""Of two states the higher one counts; of equal ones the one that is known, and of these the later one."""


def first_messages(flows: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key` and the time `first_ns` of the scope's first message, for each of its pairs.

    `flows` are those that have messages, with their scopes; `previous` are the STATES of the previous warehouse.
    `only` is the one sequence of which an OrderAck is sure to be the scope's; null for any. Queues share a pair but
    not their numbers, so in a queue's scope that is the first message's sequence. `left_ns`, `left_sequence`,
    `left_number` and `left_known` are the state in which the previous warehouse left the scope before; null for none.
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
    left = previous.select(
        "scope_key",
        pl.col("last_captured_ns").alias("left_ns"),
        signed(pl.col("tx_sequence_id")).alias("left_sequence"),
        pl.col("tx_sequence_number").alias("left_number"),
        (~pl.col("assumed").fill_null(False)).alias("left_known"),
    )
    before = firsts.join(left, on="scope_key").filter(pl.col("left_ns") < pl.col("first_ns"))
    return (
        flows.select("scope_key", *ACK_PAIR, "replay_scope")
        .unique()
        .join(firsts, on="scope_key")
        .select("scope_key", *ACK_PAIR, pl.when(is_queue).then("sequence").alias("only"), "first_ns")
        .unique()
        .join(before.select(left.columns), on="scope_key", how="left")
    )


@derives(ACK_PAIR, columns={"acks": ("ack_type", *ACK_PAIR, "ns", "sequence", "number")})
def with_order_acks(firsts: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Adds the last OrderAck before each of `first_messages`, `ack_ns`, `ack_sequence`, `ack_number`; and `covered_ns`.

    That is the time of the first OrderAck that covers an assumed state of the previous warehouse. Null for none.
    `acks` are rows of `pair_acks`.
    """
    order_acks = select_order_acks(acks)
    named = order_acks.select(
        *ACK_PAIR, *(pl.col(name).alias(f"ack_{name}") for name in ("ns", "sequence", "number"))
    ).sort("ack_ns", "ack_sequence", "ack_number")
    is_any = pl.col("only").is_null()
    ordered = firsts.sort("first_ns")
    found = pl.concat(
        [
            _last_before(ordered.filter(is_any), named),
            _last_before(ordered.filter(~is_any), named.with_columns(only="ack_sequence"), "only"),
        ]
    )
    return _with_covering(found, order_acks)


def _last_before(firsts: pl.DataFrame, acks: pl.DataFrame, *by: str) -> pl.DataFrame:
    return firsts.join_asof(
        acks,
        left_on="first_ns",
        right_on="ack_ns",
        by=[*ACK_PAIR, *by],
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )


def _with_covering(firsts: pl.DataFrame, order_acks: pl.DataFrame) -> pl.DataFrame:
    """Adds the time of the first of the OrderAcks for an assumed state's number or a higher one of its sequence."""
    key = [*ACK_PAIR, "left_sequence"]
    covering = (
        order_acks.select(
            *ACK_PAIR,
            pl.col("sequence").alias("left_sequence"),
            pl.col("number").alias("left_number"),
            pl.col("ns").alias("covered_ns"),
        )
        .drop_nulls("left_number")
        .sort("left_number")
        .with_columns(pl.col("covered_ns").cum_min(reverse=True).over(key))
    )
    found = firsts.sort("left_number").join_asof(
        covering, on="left_number", by=key, strategy="forward", check_sortedness=False
    )
    return found.with_columns(pl.when(~pl.col("left_known")).then("covered_ns").alias("covered_ns"))


def choose_states(firsts: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key`, `sequence`, `number`, `ns`, `resumed` and `assumed_until` of scopes with a known beginning.

    The state is what the last OrderAck before the scope's first message names, or what the previous warehouse left,
    whichever is higher. `resumed`: the previous warehouse left one, so bytes may be missing before the first message
    even on the scope's first stream, if that was captured from mid-stream. `assumed_until`: the previous warehouse only
    assumed the state; the time in ns of the first OrderAck that covers it. Null for a known state. `firsts` are rows of
    `with_order_acks`.
    """
    acks = (
        firsts.drop_nulls("ack_ns")
        .sort("ack_ns", "ack_sequence", "ack_number")
        .unique("scope_key", keep="last", maintain_order=True)
        .select("scope_key", *_renamed("ack"), pl.lit(True).alias("known"), pl.lit(False).alias("resumed"))
    )
    left = (
        firsts.drop_nulls("left_ns")
        .group_by("scope_key")
        .agg(
            *(expression.first() for expression in _renamed("left")),
            pl.col("left_known").first().alias("known"),
            pl.lit(True).alias("resumed"),
            pl.col("covered_ns").min(),
        )
    )
    until = pl.when(~pl.col("known")).then(pl.col("covered_ns").fill_null(_NEVER))
    return (
        pl.concat([acks, left], how="diagonal")
        .with_columns(pl.col("resumed").any().over("scope_key"))
        .sort(_STATE)
        .unique("scope_key", keep="last", maintain_order=True)
        .select("scope_key", "sequence", "number", "ns", "resumed", until.alias("assumed_until"))
    )


def _renamed(prefix: str) -> list[pl.Expr]:
    return [pl.col(f"{prefix}_{name}").alias(name) for name in ("ns", "sequence", "number")]
