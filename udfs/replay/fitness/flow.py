"""Fills in, after a replay, the columns of ingested tables that only many captures together can tell."""

from typing import Any

from schemas.ingest import CAPTURES, STREAM_GAPS, STREAMS
from schemas.replay import ENDS, VERDICTS
from schemas.table import Table
from udfs.frames.engine import T
from udfs.replay.fitness.counts import fill_captures
from udfs.replay.fitness.gaps import OF_VERDICTS, doubted_places, doubted_scopes, fill_gaps
from udfs.replay.order.conversations import Conversations

FILLED = (STREAMS, STREAM_GAPS, CAPTURES)


def filled_rows(united: Conversations[T], settled: T | None = None) -> dict[Table, Any]:
    """Returns the rows, of FILLED, in which a column to fill in is not what it should be; the engine has replayed.

    `settled` are the VERDICTS that stay of the last replay, with the columns OF_VERDICTS. A table of which no row can
    be wrong has no entry.
    """
    engine, sources = united.engine, united.sources
    packets = engine.sum_up(sources.packets, ["capture_id", "packet_type"])
    captures = engine.derive(
        fill_captures,
        captures=sources.captures,
        streams=sources.streams,
        connections=sources.internal_connections,
        packets=packets,
    )
    found = {CAPTURES: captures}
    if (renamed := united.renamed_copies(sources.streams)) is not None:
        found[STREAMS] = renamed
    if engine.count(sources.stream_gaps):
        made = engine.read(VERDICTS, *OF_VERDICTS)
        found[STREAM_GAPS] = _filled_gaps(united, made if settled is None else engine.union(settled, made))
    return found


def _filled_gaps(united: Conversations[T], verdicts: T) -> T:
    """Returns the rows of STREAM_GAPS in which `unknown_verdicts` is not what it should be."""
    engine, gaps = united.engine, united.sources.stream_gaps
    scopes = engine.expect_few(engine.distinct(engine.derive(doubted_scopes, verdicts=verdicts)))
    in_doubt = united.on_counting_streams(engine.join(verdicts, scopes, ["scope_key"], "semi"))
    with_gaps = engine.join(engine.read(ENDS), engine.distinct(engine.select(gaps, "stream_id")), ["stream_id"], "semi")
    silent = engine.expect_few(engine.select(with_gaps, "session_id", "stream_id", "first_ns"))
    places = engine.expect_few(engine.derive(doubted_places, verdicts=in_doubt, silent=silent))
    return engine.derive(fill_gaps, gaps=gaps, places=places)
