"""Finds the receiver's state before the first message of a scope, from an OrderAck."""

import polars as pl

from schemas.replay import Scope
from udfs.derive.columns import ACK_PAIR
from udfs.derive.frames import derives
from udfs.derive.replay.acks import select_order_acks


def first_messages(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_no` and the time `first_ns` of the scope's first message, for each of its pairs.

    `flows` are rows of `marks.number_streams` with messages. Queues share a pair but not their numbers, so that in a
    queue's scope (`by_queue`), only an OrderAck of the first message's sequence, `only`, is sure to be the scope's.
    """
    by_queue = pl.col("replay_scope") == Scope.QUEUE.value
    began = pl.coalesce("ns", "first_ns")
    firsts = (
        flows.select("scope_no", "stream_id", "first_ns", pl.col("first").struct.unnest())
        .sort("offset", "ns", "sequence")
        .unique(["scope_no", "stream_id"], keep="first", maintain_order=True)
        .sort(began, "first_ns", "stream_id")
        .unique("scope_no", keep="first", maintain_order=True)
        .select("scope_no", first_ns="ns", only="sequence")
    )
    pairs = flows.select("scope_no", *ACK_PAIR, by_queue=by_queue).unique()
    return pairs.join(firsts, on="scope_no").with_columns(pl.when("by_queue").then("only").otherwise(0))


@derives(ACK_PAIR, columns={"acks": ("ack_type", *ACK_PAIR, "ns", "sequence", "number")})
def with_order_acks(firsts: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Adds time, sequence and number of the last OrderAck before each of `first_messages`: `ns`, `sequence`, `number`.

    Null for none. `acks` are rows of `pair_acks`.
    """
    named = select_order_acks(acks).select(*ACK_PAIR, "ns", "sequence", "number").sort("ns", "sequence", "number")
    of_any = named.with_columns(by_queue=pl.lit(value=False), only=pl.lit(0, pl.Int64))
    of_sequence = named.with_columns(by_queue=pl.lit(value=True), only="sequence")
    return firsts.sort("first_ns").join_asof(
        pl.concat([of_any, of_sequence]).sort("ns", maintain_order=True),
        left_on="first_ns",
        right_on="ns",
        by=[*ACK_PAIR, "by_queue", "only"],
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )
