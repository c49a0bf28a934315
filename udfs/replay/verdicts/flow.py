"""Judges messages: puts them in order, finds the receiver's state before each, and compares with acknowledgments.

A chain is a run of messages of one stream that follow each other without a gap. It is judged like one message.
"""

from collections.abc import Callable

from schemas.replay import VERDICTS, Reading
from udfs.frames.engine import T
from udfs.replay.kept import Settled
from udfs.replay.order.acks import acknowledged
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.inputs import Inputs
from udfs.replay.order.marks import STREAM, first_messages, initial_marks, marks, number_streams, with_order_acks
from udfs.replay.verdicts.acks import GROUP
from udfs.replay.verdicts.evidence import PROVEN, end_doubts, prove
from udfs.replay.verdicts.judge import CHAIN, JUDGED, judge
from udfs.replay.verdicts.timeline import IN_ORDER, find_chains
from udfs.replay.verdicts.verdict_rows import verdict_rows

AddStates = Callable[[T], T]
"""Adds the receiver's state before each chain by windows of Spark; `judge` finds those that windows cannot."""


def judge_messages(
    united: Conversations[T],
    inputs: Inputs[T],
    settled: Settled[T],
    reading: Reading,
    add_states: AddStates[T] | None,
) -> None:
    """Replaces the rows of VERDICTS: one for each transactional message that arrived at its final destination.

    Those that the last replay `settled` have none. Without `add_states`, `judge` finds the receiver's state before each
    message, one after another.
    """
    engine = united.engine
    numbered = engine.derive_tables(
        number_streams,
        flows=settled.flows_to_judge,
        unread=inputs.unread,
        ends=inputs.ends,
        legs=inputs.legs,
        resumed=settled.resumed,
        every_flow=inputs.flows,
    )
    streams = numbered["streams"]
    with_messages = engine.where(streams, "has_messages")
    not_resumed = engine.join(with_messages, settled.resumed, ["scope_key"], "anti")
    firsts = engine.derive(first_messages, flows=not_resumed)
    initial = engine.derive(
        initial_marks,
        firsts=engine.derive(with_order_acks, firsts=firsts, acks=inputs.acks),
        resumed=settled.resumed,
        streams=with_messages,
    )
    marked = engine.derive(
        marks,
        messages=settled.to_judge,
        unread=inputs.unread,
        streams=streams,
        legs=numbered["legs"],
        disputed=inputs.disputed,
        behind=settled.behind,
    )
    chains = engine.keep(engine.run(engine.union(marked, initial), find_chains, CHAIN, ("scope_no",), IN_ORDER))
    with_states = chains if add_states is None else add_states(chains)
    judged = engine.run(with_states, judge(reading), JUDGED, ("scope_no",), ("replay_order",))
    acks = settled.only(inputs.acks, "sequence", marked)
    rows = engine.union(judged, engine.derive(acknowledged, acks=acks, streams=with_messages))
    proven = engine.run(rows, prove(reading), PROVEN, GROUP, ("turn", "first_number"))
    ended = engine.run(proven, end_doubts, PROVEN, ("scope_no",), ("replay_order",))
    places = engine.distinct(engine.select(streams, *STREAM, "stream_id"))
    with_streams = engine.keep(engine.join(ended, places, STREAM))
    in_pieces = engine.distinct(engine.select(with_streams, "stream_id", "piece"))
    engine.replace_by(
        VERDICTS,
        verdict_rows,
        proven=with_streams,
        messages=engine.with_piece(settled.to_judge),
        streams=engine.join(streams, in_pieces, ["stream_id"]),
        disputed=engine.with_piece(inputs.disputed),
        undecided=engine.with_piece(inputs.undecided),
        only_in_copies=engine.with_piece(united.only_in_copies),
        steps=united.steps,
    )
