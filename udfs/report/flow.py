"""Collects the rows that a report shows, the same on each engine.

What is many is summed where it is, by whole scopes. To this process come the tables that have few rows, sums, what is
drawn of the worst sessions, and the rows with the keys of witnesses.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import polars as pl

from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS, CAPTURES, QUARANTINE, STREAMS
from schemas.messages import ACKS
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, VERDICTS
from schemas.table import Table
from schemas.wire import NEGATIVE_CLASS
from udfs.frames.columns import PLACE, SEQUENCE
from udfs.frames.derivation import ONE, Frames
from udfs.frames.engine import Engine, T
from udfs.frames.tables import schema_of
from udfs.replay.findings.final_acks import reason_of
from udfs.replay.fitness.nothing import why_nothing
from udfs.replay.order.acks import OF_ACKS
from udfs.replay.words import one_or_many
from udfs.report.messages import (
    ACCEPTED_AT,
    OF_HARM,
    SHOWN,
    conflicts,
    first_accepted,
    harm_by_queue,
    merge_accepted,
    not_accepted,
    with_address,
)
from udfs.report.page import (
    WITNESSES,
    choose,
    figures,
    listed,
    of_sessions,
    proofs,
    rows_of,
    witness_columns,
    witness_keys,
)
from udfs.report.period import captured, not_read_again
from udfs.report.pictures import DRAWN_SESSIONS, asked, order_acks, pictures, points, stairs
from udfs.report.proof import missing_messages, prove
from udfs.report.rows import Rows, in_period
from udfs.report.sessions import unusable
from udfs.report.sums import JUDGED, merged, of_scope
from udfs.report.trend import OF_TREND, harm_by_day, trend

Few = Mapping[str, pl.DataFrame]
"""Rows of tables with a row per capture, stream, session, sequence or story, by the names of the tables."""
SUMMARIZED = (SESSIONS, ENDS, FINDINGS, INCIDENTS)
REPORTED = (*SUMMARIZED, CAPTURES, STREAMS, SEQUENCES, BOOKS)
COPIES = "copies"
"""The name of the streams that were captured twice among few rows: `stream_id`, and `copy_of`, which counts."""
_NEEDED = {
    STREAMS: (*("stream_id", "src_ip", "dst_ip", "last_captured_at", "missing_bytes", "mid_stream", "conflict"),),
    ENDS: (
        *("stream_id", "session_id", "sender", "receiver", "receiver_guid", "receiver_by_address"),
        *("recovered_bytes", "missing_bytes", "copy_of", "last_ns", "receiver_last_ns", "mid_stream"),
    ),
    BOOKS: ("balanced",),
}
"""Columns of tables of which others are not needed."""


def read_few(engine: Engine[Any], *tables: Table) -> Few:
    """Returns the rows of these tables; those of ENDS without copies, which are COPIES.

    Captures are those that were `not_read_again`.
    """
    rows = {table.name: engine.read(table, *_NEEDED.get(table, ())) for table in tables}
    few = engine.collect(**rows)
    if CAPTURES.name in few:
        few[CAPTURES.name] = not_read_again(few[CAPTURES.name])
    if ENDS.name in few:
        few[COPIES] = few[ENDS.name].select("stream_id", "copy_of").drop_nulls("copy_of")
        few[ENDS.name] = few[ENDS.name].filter(pl.col("copy_of").is_null())
    return few


def why_nothing_in_period(engine: Engine[Any], few: Few, since: datetime | None, *, has_failed: bool) -> str:
    """Returns why a period has no transactional message: `why_nothing_judged`, unless only other times have some."""
    if since is None or not few["sessions"]["transactional_messages"].sum():
        return why_nothing_judged(engine, few["captures"].to_dicts(), has_failed=has_failed)
    if few["captures"].filter(in_period(since, "last_captured_at")).is_empty():
        return "No capture is of this period."
    return "The captures have some of other times. Look whether the capturing machine still sees MSMQ's traffic."


def why_nothing_judged(engine: Engine[Any], captures: Rows, *, has_failed: bool) -> str:
    """Returns `why_nothing`, and what acknowledgments alone say."""
    return " ".join([why_nothing(captures, has_failed=has_failed), *_said_by_acks(engine)])


def _said_by_acks(engine: Engine[Any]) -> list[str]:
    """Returns what FinalAcks say of messages that did not arrive, a sentence per class; for captures without these."""
    said = engine.collect(acks=engine.sum_up(engine.read(ACKS, "message_class"), ["message_class"]))["acks"]
    negative = said.drop_nulls().filter(pl.col("message_class").cast(pl.Int64) & NEGATIVE_CLASS != 0)
    return [
        f"{many:,} {one_or_many(many, 'acknowledgment says', 'acknowledgments say')} that a message was refused or not "
        f"read: {reason_of(one)}."
        for one, many in negative.sort("message_class").iter_rows()
    ]


def collect(engine: Engine[T], few: Few, since: datetime | None, sessions: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the rows that a report shows from `since` on, of these sessions, of all where none is named.

    No part grows with the large tables. `few` are those REPORTED.
    """
    verdicts = engine.read(VERDICTS, *JUDGED)
    # Captures are not of a session, so what they hold is no volume of some sessions.
    by_day = [] if sessions else _trend(engine, few["captures"])
    if sessions:
        wanted = pl.DataFrame({"session_id": list(sessions)})
        verdicts = engine.join(verdicts, wanted, ["session_id"], "semi")
        scopes = engine.collect(scopes=engine.distinct(engine.select(verdicts, "scope_key")))["scopes"]
        few = of_sessions(few, wanted, scopes)
    tables, chosen = _with_sums(engine, few), choose(few, since)
    sequences = chosen.sequences.select(SEQUENCE)
    work = partial(of_scope, since=chosen.since, steps=chosen.steps)
    judged = engine.derive_tables(work, verdicts=verdicts, outcomes=engine.read(OUTCOMES), sequences=sequences)
    recent = judged.pop("verdicts")
    sums = merged(engine.collect(**judged))
    tops = listed(tables, chosen, sums, _first_accepted(engine, chosen.incidents, few[COPIES]))
    shown = tops | _drawn(engine, recent, few, tops["sessions"]) | _proofs(engine, few, tops)
    harm = engine.join(engine.read(OUTCOMES, *SEQUENCE, *OF_HARM), sequences, SEQUENCE, "semi")
    begun_ns, until_ns = captured(few["captures"])[0], captured(chosen.captures)[1]
    queues = queues_with_harm(engine, harm, begun_ns, until_ns)
    found = figures(tables, chosen, queues, accepted_since(engine, chosen.incidents, few[COPIES]))
    told = pl.concat([tops["incidents"], tops["earlier"]])
    proof = {"proof": prove(engine, told, few["findings"]), "missing": missing_messages(engine, told)}
    return rows_of(shown) | found | proof | {"trend": by_day}


def _trend(engine: Engine[T], captures: pl.DataFrame) -> Rows:
    return trend(captures, engine.gather(harm_by_day, outcomes=engine.read(OUTCOMES, *OF_TREND))[ONE])


def queues_with_harm(engine: Engine[T], outcomes: T, begun_ns: int | None, until_ns: int | None) -> pl.DataFrame:
    """Returns rows of `harm_by_queue`, of captures that begin and end then."""
    return engine.gather(partial(harm_by_queue, begun_ns=begun_ns, until_ns=until_ns), outcomes=outcomes)[ONE]


def accepted_since(engine: Engine[T], incidents: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns how many `messages` were accepted of senders since they used numbers again, with their `address`."""
    counted = engine.sum_up(_accepted(engine, conflicts(incidents), ACCEPTED_AT), ["source_queue_manager", "stream_id"])
    return with_address(engine.collect(rows=counted)["rows"], copies).rename({"count": "messages"})


def arrivals_accepted_since(engine: Engine[T], incidents: pl.DataFrame, copies: pl.DataFrame) -> T:
    """Returns the arrivals that `accepted_since` counts, with their `address`."""
    return engine.derive(with_address, rows=_accepted(engine, conflicts(incidents), SHOWN), copies=copies)


def _first_accepted(engine: Engine[T], incidents: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the first of the messages that `accepted_since` counts."""
    firsts = engine.derive(first_accepted, accepted=_accepted(engine, conflicts(incidents), SHOWN), copies=copies)
    return engine.gather(merge_accepted, accepted=firsts)[ONE]


def _accepted(engine: Engine[Any], since: pl.DataFrame, columns: Sequence[str]) -> Any:
    """Returns columns of the arrivals that count as accepted `since` the conflicts of their sender began."""
    if not since.height:
        return schema_of(VERDICTS.arrow).to_frame().select(columns)
    denied = engine.derive(not_accepted, outcomes=engine.read(OUTCOMES, *OUTCOMES.key, "outcome"), since=since)
    verdicts = engine.join(engine.read(VERDICTS, *columns), since, ["source_queue_manager"])
    accepted = engine.select(engine.where(verdicts, "accepted AND captured_at >= since"), *columns)
    return engine.join(accepted, denied, list(OUTCOMES.key), "anti")


def _with_sums(engine: Engine[T], few: Few) -> Few:
    """Adds, under the name of a large table, sums over it: what is in QUARANTINE."""
    quarantine = engine.read(QUARANTINE, "stage", "reason", "stream_id", "length")
    return {**few, "quarantine": engine.gather(unusable, quarantine=quarantine)[ONE]}


def _drawn(engine: Engine[T], verdicts: T, few: Few, sessions: pl.DataFrame) -> Frames:
    """Returns what is drawn of the worst sessions: `pictures`, `points`, `stairs`, and `uris` of their captures."""
    worst = sessions.head(DRAWN_SESSIONS).select("session_id")
    drawn = engine.gather(points, verdicts=engine.join(verdicts, worst, ["session_id"], "semi"))[ONE]
    scopes = pictures(drawn, sessions)
    sequences = asked(scopes, few["sequences"])
    wanted = sequences.select("tx_sequence_id").unique()
    acks = engine.join(engine.read(ACKS, *OF_ACKS), wanted, ["tx_sequence_id"], "semi")
    answers = engine.derive(order_acks, acks=acks, ends=few["stream_ends"], asked=sequences)
    uris = few["captures"].select("capture_id", "uri").join(drawn, on="capture_id", how="semi")
    return {"pictures": scopes, "points": drawn, "stairs": engine.gather(stairs, acks=answers)[ONE], "uris": uris}


def _proofs(engine: Engine[T], few: Few, tops: Frames) -> Frames:
    """Returns the rows of the witnesses of what is listed."""
    wanted = witness_keys(tops)
    found = {
        table.name: engine.join(engine.read(table, *witness_columns(table)), wanted, PLACE, "semi")
        for table in WITNESSES
    }
    return {"witnesses": proofs(engine.collect(**found), few["captures"])}
