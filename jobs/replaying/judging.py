"""Judges messages: chains, the receiver's state before each, verdicts, and what acknowledgments prove."""

from collections.abc import Callable

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.inputs import (
    ACKNOWLEDGED,
    FIRST_MESSAGES,
    INITIAL_MARKS,
    MARKS,
    NUMBERED,
    ORDER_ACKS,
    WITH_ORDER_ACKS,
    Inputs,
)
from jobs.replaying.settled import Settled
from schemas.judging import CHAIN, ENDED, JUDGED, PROVEN
from schemas.replay import Reading
from udfs.derive.frames import ALL, Derivation
from udfs.derive.replay.marks import STREAM
from udfs.derive.replay.verdict_rows import verdict_rows, with_disputes
from udfs.replay.acks import GROUP
from udfs.replay.evidence import end_doubts, prove
from udfs.replay.timeline import IN_ORDER, find_chains
from udfs.replay.verdicts import judge

Accept = Callable[[T], T]
"""Adds the receiver's state before each chain: by windows on Spark, or by a fold."""


def _verdicts(
    proven: pl.DataFrame, messages: pl.DataFrame, streams: pl.DataFrame, disputed: pl.DataFrame
) -> pl.DataFrame:
    of_any_piece = streams.drop("piece").unique()
    return with_disputes(verdict_rows(proven, messages, of_any_piece), disputed)


VERDICT_ROWS = Derivation(
    _verdicts, {"proven": ALL, "messages": ALL, "streams": ALL, "disputed": ALL}, ("stream_id", "piece")
)


def judge_messages(
    engine: Engine[T],
    inputs: Inputs[T],
    settled: Settled[T],
    states_before: T,
    accept: Accept[T],
    reading: Reading,
) -> T:
    """Returns one row of VERDICTS per transactional message that arrived at its final destination, and is not settled.

    Scopes with a row in `states_before`, which are STATES of the previous warehouse, resume there.
    """
    numbered = engine.derive(
        NUMBERED,
        flows=settled.flows,
        unread=inputs.unread,
        ends=inputs.ends,
        legs=inputs.legs,
        resumed=settled.resumed,
        every_flow=inputs.flows,
    )
    streams = numbered["streams"]
    beginning = engine.join(numbered["with_messages"], settled.resumed, ["scope_key"], "anti")
    firsts = engine.one(FIRST_MESSAGES, flows=beginning, previous=states_before)
    order_acks = engine.one(ORDER_ACKS, acknowledgments=inputs.acks)
    initial = engine.one(
        INITIAL_MARKS,
        firsts=engine.one(WITH_ORDER_ACKS, firsts=firsts, order_acks=order_acks),
        resumed=settled.resumed,
    )
    placed = engine.one(
        MARKS,
        messages=settled.messages,
        unread=inputs.unread,
        streams=streams,
        legs=numbered["legs"],
        disputed=inputs.disputed,
        behind=settled.behind,
    )
    chains = engine.keep(engine.run(engine.union(placed, initial), find_chains, CHAIN, ("scope_no",), IN_ORDER))
    judged = engine.run(accept(chains), judge, JUDGED, ("scope_no",), ("replay_order",))
    acks = settled.only(inputs.acks, "sequence", placed)
    acknowledged = engine.one(ACKNOWLEDGED, acks=acks, streams=numbered["with_messages"])
    rows = engine.union(judged, acknowledged)
    proven = engine.run(rows, prove(reading), PROVEN, GROUP, ("turn", "first_number"))
    ended = engine.run(proven, end_doubts, ENDED, ("scope_no",), ("replay_order",))
    places = engine.distinct(engine.select(streams, **{name: name for name in (*STREAM, "stream_id")}))
    on_streams = engine.keep(engine.join(ended, places, STREAM))
    in_pieces = engine.distinct(engine.select(on_streams, stream_id="stream_id", piece="piece"))
    return engine.one(
        VERDICT_ROWS,
        proven=on_streams,
        messages=engine.with_piece(settled.messages),
        streams=engine.join(streams, in_pieces, ["stream_id"]),
        disputed=engine.with_piece(inputs.disputed),
    )
