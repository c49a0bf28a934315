"""Finds what the last replay settled, so that only the rest of each scope is judged (`settled.resume_points`)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import polars as pl

from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.judging import BEHIND, RESUMED, USES
from schemas.messages import ACKS, MESSAGES
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, SEQUENCES, TRANSACTIONS, VERDICTS
from schemas.table import Table
from schemas.tallies import FINDINGS_ON_MESSAGES, TALLIES
from udfs.frames.columns import PLACE, RANGE, SEQUENCE, in_one_only, is_on
from udfs.frames.derivation import Frames
from udfs.frames.engine import Engine, T
from udfs.frames.parallel import run_in_parallel
from udfs.frames.tables import schema_of
from udfs.logs import LOG
from udfs.replay.kept import Settled
from udfs.replay.order.conversations import Conversations
from udfs.replay.order.inputs import Inputs, watch
from udfs.replay.order.marks import doubtful_scopes
from udfs.replay.order.scopes import TRANSACTIONAL
from udfs.replay.order.sources import COLUMNS
from udfs.replay.outcomes.counts import COUNT_KEY, sum_outcomes
from udfs.replay.outcomes.transactions import TRANSACTION_ID
from udfs.replay.settled.resume_points import TooManyToJudge, read_tallies, settle
from udfs.replay.settled.touched import Now, find_touched
from udfs.replay.witness import with_keys

_SOURCES: Mapping[Table, tuple[str, ...]] = {
    **{table: COLUMNS[table] or tuple(table.names) for table in (MESSAGES, PACKETS, STREAMS, QUARANTINE, ACKS)},
    STREAM_GAPS: RANGE,
    CAPTURES: ("capture_id", "uri"),
}
"""The tables of which changes touch what was judged, and the columns that matter."""
_OF_VERDICTS = (
    *("scope_key", "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "replay_order"),
    *("source_queue_manager", "session_id", "destination_queue", "stream_id", "stream_offset"),
    *("message_id", "content_hash", "captured_at", "captured_ns", "accepted", "verdict", "reason", "gap_size"),
    *("incoming_tx_sequence_id", "incoming_tx_sequence_number", "ack_latency_ms", "final_ack_class"),
    *("assumed", "covered_at"),
)
"""Columns of VERDICTS that facts, incidents and witnesses need, also of messages that are not judged again."""
_SLOTS = (*SEQUENCE, "first_number_due", "numbers_due", "numbers_seen")


class LastReplay(Protocol):
    """Tells what the last replay left and what has changed since."""

    def read(self, table: Table, *columns: str) -> Any:
        """Returns the rows that it left, as an engine in this process holds them; with columns, these."""

    def changes(self, table: Table, *columns: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a source that came since, and those that went; None where nothing tells."""


def _nothing_settled(united: Conversations[T], flows: T, most: int | None) -> Settled[T]:
    """Returns that all transactional messages are to be judged; `flows` are all there are."""
    engine = united.engine
    messages = engine.select(engine.where(united.messages, "transactional"), *TRANSACTIONAL)
    if most is not None:
        TooManyToJudge.check(engine.count(messages), most)
    none = read_tallies(schema_of(TALLIES.arrow).to_frame())
    resumed, behind, uses = (engine.table([], of) for of in (RESUMED, BEHIND, USES))
    return Settled(engine, messages, flows, resumed, behind, uses, none)


def find_settled(
    united: Conversations[Any], inputs: Inputs[Any], last: LastReplay | None, most: int | None
) -> Settled[Any]:
    """Returns what stays of the last replay; says why where that is nothing. With a `last` one, the engine is here.

    Raises:
        TooManyToJudge: more than `most` messages do not stay.
    """
    engine, sources = united.engine, united.sources
    tallies = None if last is None else read_tallies(last.read(TALLIES))
    if last is None or tallies is None or tallies.is_empty():  # the literal reading leaves none
        return _nothing_settled(united, inputs.flows, most)
    changes: dict[str, Frames] = {}
    if united.clocks_differ:
        why = "the clocks of captures differ that were made at the same time"
    elif doubtful_scopes(inputs.flows, inputs.unread, inputs.ends, inputs.legs).height:
        why = "too many streams have unread bytes"
    else:
        changes, why = _changes(last), "nothing tells what has changed"
    ends_before, copies = last.read(ENDS), united.copies
    if changes and _copies_changed(copies, ends_before, changes):
        changes, why = {}, "connections that captures hold twice have changed"
    if not changes:
        LOG.info(f"replay: all messages are judged: {why}")
        return _nothing_settled(united, inputs.flows, most)
    watched = watch(engine, inputs, inputs.acks, inputs.flows)
    now = Now(
        inputs.ends_with_copies,
        inputs.flows,
        inputs.legs,
        inputs.messages.lazy(),
        sources.packets.lazy(),
        united.streams.lazy(),
        sources.acks.lazy(),
        inputs.acks,
        inputs.unread,
        watched,
        last.read(TRANSACTIONS).lazy(),
        copies,
        inputs.disputed,
    )
    touched = find_touched(tallies, changes, ends_before, now)
    found = settle(tallies, touched, changes[MESSAGES.name]["came"], now, most)
    LOG.info(
        f"replay: {found['messages'].height:,} of {engine.count(inputs.messages):,} messages are judged, in "
        f"{found['flows']['scope_key'].n_unique():,} scopes"
    )
    judged_again = tallies.join(found["tallies"], on=SEQUENCE, how="anti").select(SEQUENCE).unique()
    kept = _kept(engine, last, judged_again, found["tallies"], found["flows"])
    to_judge = engine.join(engine.select(united.messages, *TRANSACTIONAL), found.pop("messages"), PLACE, "semi")
    to_judge, flows = engine.keep(to_judge), found.pop("flows")
    ids = engine.distinct(engine.select(to_judge, *TRANSACTION_ID))
    uses = engine.keep(engine.join(engine.select(kept[TRANSACTIONS.name], *USES.names), ids, TRANSACTION_ID, "semi"))
    return Settled(engine, to_judge, flows, uses=uses, **found, kept=kept, judged_again=judged_again)


def _changes(last: LastReplay) -> dict[str, Frames]:
    """Returns the rows of each source that `came` and `went`; nothing where that is not known, or captures went."""
    changes = run_in_parallel(partial(last.changes, table, *columns) for table, columns in _SOURCES.items())
    found = {}
    for table, of_table in zip(_SOURCES, changes, strict=True):
        if of_table is None or (table is CAPTURES and of_table[1].height):
            return {}
        found[table.name] = dict(zip(("came", "went"), of_table, strict=True))
    return found


def _copies_changed(copies: pl.DataFrame, ends_before: pl.DataFrame, changes: Mapping[str, Frames]) -> bool:
    """Returns whether the last replay found other copies, or something has changed on these or the streams they copy.

    Then clocks may differ by other times than it found.
    """
    if in_one_only(ends_before.select(copies.columns).drop_nulls(), copies).height:
        return True
    there = is_on(pl.concat([copies["stream_id"], copies["copy_of"]]))
    of_streams = (rows for name, of in changes.items() if name != CAPTURES.name for rows in of.values())
    return any(rows.filter(there).height for rows in of_streams)


def _kept(
    engine: Engine[Any], last: LastReplay, judged_again: pl.DataFrame, tallies: pl.DataFrame, flows: pl.DataFrame
) -> dict[str, Any]:
    """Returns the rows that stay of the tables of which not all are derived again; witnesses are keys."""

    def read(table: Table, *columns: str) -> Any:
        return engine.join(last.read(table, *columns), judged_again, SEQUENCE, "anti")

    slots = read(SEQUENCES, *_SLOTS).drop_nulls("numbers_due").join(flows, on="scope_key", how="anti")
    return {
        VERDICTS.name: read(VERDICTS, *_OF_VERDICTS),
        OUTCOMES.name: engine.derive(with_keys, rows=read(OUTCOMES)),
        TRANSACTIONS.name: read(TRANSACTIONS),
        FINDINGS_ON_MESSAGES.name: read(FINDINGS_ON_MESSAGES),
        "slot_counts": slots,
        "counts": sum_outcomes(tallies.drop_nulls("delivered_arrivals"), *COUNT_KEY),
    }
