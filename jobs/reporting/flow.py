"""Collects the rows that a report shows, the same on each engine.

What is many is summed where it is: by whole scopes, then by whole sessions. To this process come the tables that have
few rows, sums, what is drawn of the worst sessions, and the rows with the keys of witnesses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.reporting.few import Few
from schemas.ingest import QUARANTINE, STREAM_GAPS
from schemas.messages import ACKS
from schemas.outcomes import OUTCOMES
from schemas.replay import VERDICTS
from udfs.derive.columns import PLACE, RANGE, SEQUENCE
from udfs.derive.frames import ONE, Frames
from udfs.derive.replay.acks import OF_ACKS
from udfs.derive.report.messages import SHOWN, accepted_since, conflicts
from udfs.derive.report.of_session import JUDGED, merged, of_scope, of_session
from udfs.derive.report.page import (
    WITNESSES,
    Chosen,
    Options,
    choose,
    limits,
    listed,
    proofs,
    rows_of,
    witness_columns,
    witness_keys,
)
from udfs.derive.report.pictures import asked, carriers, of_drawn, order_acks, pictures, stairs
from udfs.derive.report.rows import Rows
from udfs.derive.report.sessions import unusable
from udfs.derive.tables import schema_of


@dataclass(frozen=True, slots=True)
class Collected:
    """Holds the rows that a report shows, by name, and what they were chosen from."""

    rows: dict[str, Rows]
    chosen: Chosen


def collect(engine: Engine[T], few: Few, options: Options) -> Collected:
    """Returns the rows that a report shows; no part grows with the large tables. `few` are those REPORTED."""
    verdicts, outcomes = engine.read(VERDICTS, *JUDGED), engine.read(OUTCOMES)
    chosen = choose(few, _scopes(engine, verdicts, options.session), options)
    sequences = engine.hand_in(chosen.sequences.select(SEQUENCE))
    judged = engine.derive(of_scope, verdicts=verdicts, outcomes=outcomes, sequences=sequences)
    sums = merged(engine.gather(partial(of_session, period=chosen.period), **judged), chosen.period)
    tops = listed(chosen, sums, accepted(engine, chosen.incidents, options.saved_messages), options)
    points = _drawn(engine, judged["verdicts"], few, chosen, tops, options)
    shown = tops | points | _beside(engine, few, points["points"], tops, options) | _proofs(engine, few, tops)
    return Collected(rows_of(chosen, shown | limits(_with_sums(engine, few), chosen, tops)), chosen)


def _scopes(engine: Engine[T], verdicts: T, sessions: Sequence[str]) -> pl.DataFrame | None:
    """Returns the scopes in which these sessions have a message; None where none is named."""
    if not sessions:
        return None
    wanted = engine.hand_in(pl.DataFrame({"session_id": list(sessions)}))
    theirs = engine.select(engine.join(verdicts, wanted, ["session_id"], "semi"), "scope_key")
    return engine.bring(scopes=engine.distinct(theirs))["scopes"]


def accepted(engine: Engine[T], incidents: pl.DataFrame, limit: int) -> Frames:
    """Returns `accepted_since` of the senders that used numbers again for different messages."""
    work, since = partial(accepted_since, limit=limit), conflicts(incidents)
    if not since.height:
        return work(schema_of(VERDICTS.arrow).to_frame(), since)
    verdicts = engine.read(VERDICTS, *SHOWN, "accepted")
    theirs = engine.join(verdicts, engine.hand_in(since.drop("since")), ["source_queue_manager"], "semi")
    return engine.gather(work, verdicts=theirs, since=engine.hand_in(since))


def _drawn(engine: Engine[T], verdicts: T, few: Few, chosen: Chosen, tops: Frames, options: Options) -> Frames:
    """Returns `points` and `holes` of the worst sessions; `verdicts` have their `fate`."""
    worst = tops["sessions"].head(options.drawn_sessions).select("session_id")
    streams = carriers(few["stream_ends"].join(worst, on="session_id", how="semi"), chosen.streams)
    theirs = engine.join(verdicts, engine.hand_in(worst), ["session_id"], "semi")
    gaps = engine.join(engine.read(STREAM_GAPS, *RANGE), engine.hand_in(streams), ["stream_id"])
    work = partial(of_drawn, since=chosen.period.since, scopes=options.drawn_pictures, limit=options.drawn_points)
    return engine.gather(work, verdicts=theirs, gaps=gaps)


def _beside(engine: Engine[T], few: Few, points: pl.DataFrame, tops: Frames, options: Options) -> Frames:
    """Returns what stands beside the `points` that are drawn: `pictures`, `stairs`, and `uris` of their captures."""
    drawn_scopes = pictures(points, tops["sessions"])
    sequences = asked(drawn_scopes, few["sequences"])
    wanted = engine.hand_in(sequences.select("tx_sequence_id").unique())
    acks = engine.join(engine.read(ACKS, *OF_ACKS), wanted, ["tx_sequence_id"], "semi")
    answers = engine.one(
        order_acks, acks=acks, ends=engine.hand_in(few["stream_ends"]), asked=engine.hand_in(sequences)
    )
    drawn_acks = engine.gather(partial(stairs, limit=options.drawn_points), acks=answers)[ONE]
    uris = few["captures"].select("capture_id", "uri").join(points, on="capture_id", how="semi")
    return {"pictures": drawn_scopes, "stairs": drawn_acks, "uris": uris}


def _proofs(engine: Engine[T], few: Few, tops: Frames) -> Frames:
    """Returns the rows of the witnesses of what is listed."""
    keys = witness_keys(tops)
    wanted = engine.hand_in(keys)
    found = {
        table.name: engine.join(engine.read(table, *witness_columns(table)), wanted, PLACE, "semi")
        for table in WITNESSES
    }
    return {"witnesses": proofs(engine.bring(**found) | {"captures": few["captures"]}, keys)}


def _with_sums(engine: Engine[T], few: Few) -> Few:
    """Adds, under the names of large tables, sums over them: kinds of ACKS, and what is in QUARANTINE."""
    kinds = engine.bring(acks=engine.sum_up(engine.read(ACKS, "ack_type"), ["ack_type"]))
    quarantined = engine.gather(unusable, quarantine=engine.read(QUARANTINE, "stage", "reason", "stream_id", "length"))[
        ONE
    ]
    return {**few, **kinds, "quarantine": quarantined}
