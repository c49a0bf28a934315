"""Ingests captures: indexes and extracts them, plans and assembles their connections, writes the tables.

The same steps run in any `Engine`. The decisions are in `captures` (which captures are new, in which order) and in
`connections` (from where each connection resumes).
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

import polars as pl

from schemas import staging
from schemas.ingest import (
    CAPTURES,
    DAMAGED,
    INTERNAL_CONNECTIONS,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
    Stage,
)
from schemas.table import STRING, row
from udfs.frames.columns import nanoseconds
from udfs.frames.derivation import derives
from udfs.frames.engine import Engine, Row, T
from udfs.frames.parallel import run_in_parallel
from udfs.ingest.assemble import assemble_connections
from udfs.ingest.captures import Place, capture_rows, find_new, find_unchanged, rank, split, unreadable_rows
from udfs.ingest.connections import plan_connections
from udfs.ingest.defragment import defragment
from udfs.ingest.extract import extract_splits
from udfs.ingest.index import index_files
from udfs.ingest.options import CaptureFile, IngestOptions
from udfs.ingest.pings import sum_up_pings
from udfs.ingest.preframe import unpack
from udfs.ingest.series import with_steps_between
from udfs.logs import LOG


class LateError(Exception):
    """Says that late captures cannot be put where they belong."""


@derives(("stream_id",), columns={"streams": ("stream_id", "instance", "connection_id")})
def _with_endpoints(streams: pl.DataFrame) -> pl.DataFrame:
    return streams.with_columns(endpoints=pl.col("connection_id").str.replace("#[^#]*$", ""))


@derives(("capture_id",), columns={"connections": ("capture_id", "packed")})
def _of_captures(connections: pl.DataFrame) -> pl.DataFrame:
    return connections.group_by("capture_id").agg(pl.col("packed").alias("only"))


@dataclass(frozen=True, slots=True)
class Extracted(Generic[T]):
    """Holds rows of EXTRACTED of ranked captures."""

    captures: Sequence[Row]
    rows: T
    segments: T
    """The segments among them."""


@dataclass(frozen=True, slots=True)
class Assembled(Generic[T]):
    """Holds the rows of ASSEMBLED to write."""

    rows: T
    planned: T
    """Rows of PLANNED from before the first assembly."""
    stale: T
    """Rows (packed, stream_id, from_offset) of streams to delete."""
    repeated: T
    """Connections (packed, rewind) that were assembled a second time."""


def index_captures(engine: Engine[T], files: Sequence[str], options: IngestOptions) -> list[Row]:
    """Returns one row of INDEX per file."""
    listed = engine.table([{"uri": file} for file in files], staging.FILE)
    return _brought(engine, engine.run(listed, index_files(options), staging.INDEX, parts=len(files)))


def find_new_captures(
    engine: Engine[T], files: Sequence[str], options: IngestOptions, again: Collection[str] = ()
) -> list[Row]:
    """Indexes the files and ranks those whose content is not in the tables, or that are to be read `again`."""
    indexed = index_captures(engine, files, options)
    known = _all_captures(engine)
    new = with_steps_between(find_new(indexed, {row["capture_id"] for row in known}, again), known)
    return rank([row | {"raw": row["raw"] and row["raw"][: options.raw_kept]} for row in new])


def _known_captures(engine: Engine[T], ids: Collection[str]) -> list[Row]:
    """Returns (capture_id, uri) of the captures with these identifiers that the table `captures` has."""
    wanted = engine.table([{"capture_id": one} for one in ids], row(capture_id=STRING))
    known = engine.join(engine.read(CAPTURES, "capture_id", "uri"), wanted, ["capture_id"], "semi")
    return _brought(engine, known)


def _all_captures(engine: Engine[T]) -> list[Row]:
    """Returns (capture_id, uri, clock_steps, first_ns, last_ns) of all captures in the tables."""
    columns = ("capture_id", "uri", "first_captured_at", "last_captured_at", "clock_steps")
    known = engine.collect(rows=engine.select(engine.read(CAPTURES, *columns), *columns))["rows"]
    times = {f"{end}_ns": nanoseconds(pl.col(f"{end}_captured_at")) for end in ("first", "last")}
    return known.select("capture_id", "uri", "clock_steps", **times).to_dicts()


def _brought(engine: Engine[T], rows: T) -> list[Row]:
    return engine.collect(rows=rows)["rows"].to_dicts()


def ingest(
    engine: Engine[T],
    captures: Sequence[Row],
    options: IngestOptions,
    require_unchanged: Callable[[], None],
    ingested_ns: int | None = None,
) -> int:
    """Reads ranked captures into the engine's tables, if they are found unchanged once they are read.

    What the tables have of captures that are read `again` is replaced. Returns when they were ingested: see `write`.
    """
    found = extract(engine, captures, options)
    require_unchanged()
    return write(engine, found, assemble(engine, found, options), options, ingested_ns)


def extract(engine: Engine[T], captures: Sequence[Row], options: IngestOptions, only: T | None = None) -> Extracted[T]:
    """Extracts segments from ranked captures: of all connections, or only of those in `only` (packed, capture_id)."""
    parts = list(split(captures))
    splits = engine.table(parts, staging.SPLIT)
    if only is not None:
        splits = engine.join(splits, engine.derive(_of_captures, connections=only), ["capture_id"])
    rows = engine.keep(engine.run(splits, extract_splits(options), staging.EXTRACTED, parts=len(parts)))
    fragments = engine.pick(rows, "fragment", "capture")
    if engine.count(fragments):
        whole = engine.run(fragments, defragment(options), staging.EXTRACTED, ("key",), staging.ORDER)
        rows = engine.union(rows, engine.keep(whole))
    return Extracted(captures, rows, engine.pick(rows, "segment", "capture"))


def assemble(engine: Engine[T], extracted: Extracted[T], options: IngestOptions) -> Assembled[T]:
    """Assembles connections: first those that resume from their latest state, then the others from all their bytes.

    The others are those with late captures, and those whose first assembly needed bytes of a framed run.

    Raises:
        LateError: a connection needs an earlier capture that is gone, and has no state to resume from.
    """
    history = engine.keep(_read_history(engine, extracted))
    planned = _plan(engine, history, extracted.captures)
    late = engine.pick(planned, "late")
    in_order = engine.join(extracted.segments, engine.select(late, connection="packed"), ["connection"], "anti")
    rows = _run_assembly(engine, extracted.captures, in_order, planned, options, final=False)
    stale = engine.pick(planned, "stale")
    repeated = engine.keep(engine.union(engine.pick(rows, "needs_payload"), late))
    if not (count := engine.count(repeated)):
        return Assembled(rows, planned, stale, repeated)
    LOG.info(f"ingest: {count} connections are assembled again with all their bytes")
    history = engine.keep(engine.union(engine.join(history, repeated, ["packed"], "semi"), repeated))
    replanned, more = _read_again(engine, extracted, history, options)
    redone = _run_assembly(engine, more.captures, more.segments, replanned, options, final=True)
    first = engine.join(rows, engine.distinct(engine.select(redone, endpoints="endpoints")), ["endpoints"], "anti")
    stale = engine.union(engine.join(stale, repeated, ["packed"], "anti"), engine.pick(replanned, "stale"))
    return Assembled(engine.union(first, redone), planned, stale, repeated)


def write(
    engine: Engine[T],
    extracted: Extracted[T],
    assembled: Assembled[T],
    options: IngestOptions,
    ingested_ns: int | None = None,
) -> int:
    """Deletes the rows that a run replaces, and writes its tables; `captures` last: its rows mark what is ingested.

    Returns when that was, in ns since 1970, as its rows say: `ingested_ns` where the run has written other captures
    before, so that all of a run have one time.
    """
    rows, planned = assembled.rows, assembled.planned
    ids = engine.table(extracted.captures, staging.CAPTURE_ID)
    states = engine.join(engine.pick(rows, "state", "endpoints"), engine.pick(planned, "last"), ["packed"])
    states = engine.keep(states)
    names = engine.select(states, packed="packed", endpoints="endpoints")
    connections = engine.union(states, engine.join(engine.pick(planned, "stateless"), names, ["packed"]))
    confirmed = engine.expect_few(engine.pick(rows, "framed_run"))
    runs = engine.pick(extracted.rows, "run_packets", "capture")
    framed = engine.join(engine.join(runs, confirmed, ["capture", "frame"]), ids, ["capture"])
    faults = engine.join(engine.pick(extracted.rows, "fault", "capture"), ids, ["capture"])
    unreadable = engine.table(unreadable_rows(extracted.captures), QUARANTINE.arrow)
    counts, pings = (engine.pick(extracted.rows, kind, "capture") for kind in ("count", "ping"))
    last_ns = {row["capture"]: row["last_ns"] for row in extracted.captures}
    few = engine.collect(counts=counts, pings=engine.derive(partial(sum_up_pings, last_ns=last_ns), pings=pings))
    at = time.time_ns() if ingested_ns is None else ingested_ns
    read: Row = {"read_by": options.release, "ports": sorted(options.ports), "overlap": options.overlap.value}
    read["ingested_ns"] = at
    captures = capture_rows(extracted.captures, few["counts"].to_dicts(), few["pings"].to_dicts(), read)
    packets = _without_marks(engine, engine.pick(rows, "packet"), captures)
    added = {
        STREAMS: engine.pick(rows, "stream"),
        STREAM_GAPS: engine.pick(rows, "gap"),
        PACKETS: engine.union(engine.run(framed, unpack(), staging.PACKET), packets),
        QUARANTINE: engine.union(engine.pick(rows, "quarantine"), faults, unreadable),
    }
    stale = engine.keep(assembled.stale)
    _forget(engine, extracted.captures)
    gone = stale if engine.count(stale) else None
    writes = [partial(engine.write, table, of_table, stale=gone) for table, of_table in added.items()]
    run_in_parallel([*writes, partial(engine.write, INTERNAL_CONNECTIONS, connections, update=True)])
    engine.write(CAPTURES, engine.table(captures, staging.CAPTURE))
    return at


def _without_marks(engine: Engine[T], packets: T, captures: Sequence[Row]) -> T:
    """Returns rows of PACKET, of which those of captures without damaged segments are not marked as damaged."""
    unsure = [capture for capture in captures if capture["wrong_sums"]]
    if not unsure:
        return packets
    ids = engine.table(unsure, row(capture_id=STRING))
    names = [name for name in staging.PACKET.names if name != DAMAGED.name]
    unmarked = engine.select(engine.join(packets, ids, ["capture_id"], "semi"), *names)
    return engine.union(engine.join(packets, ids, ["capture_id"], "anti"), unmarked)


def _forget(engine: Engine[T], captures: Sequence[Row]) -> None:
    """Deletes what the tables have of captures that are read again, but for streams, which a plan replaces."""
    again = [row["capture_id"] for row in captures if row["again"]]
    if not again:
        return
    ids = engine.table([{"capture_id": one} for one in again], row(capture_id=STRING))
    faults = [{"capture_id": one, "stage": stage.value} for one in again for stage in (Stage.CAPTURE, Stage.FRAME)]
    engine.delete(QUARANTINE, engine.table(faults, row(capture_id=STRING, stage=STRING)))
    engine.delete(INTERNAL_CONNECTIONS, ids)
    engine.delete(CAPTURES, ids)


def _read_history(engine: Engine[T], extracted: Extracted[T]) -> T:
    """Returns rows of HISTORY for the connections in the captures, without those of captures that were not finished.

    A capture that is read again has those that it had before, too, as fewer may be found in it now.
    """
    now = engine.select(extracted.segments, packed="connection", capture="capture")
    done = engine.read(CAPTURES, "capture_id")
    if again := [row for row in extracted.captures if row["again"]]:
        ids = engine.table(again, staging.CAPTURE_ID)
        had = engine.join(engine.select(engine.read(INTERNAL_CONNECTIONS), "packed", "capture_id"), ids, ["capture_id"])
        now = engine.union(now, engine.select(had, "packed", "capture"))
        done = engine.join(done, ids, ["capture_id"], "anti")
    now = engine.keep(engine.distinct(now))
    known = engine.join(engine.read(INTERNAL_CONNECTIONS), now, ["packed"], "semi")
    before = engine.join(known, done, ["capture_id"], "semi")
    names = engine.distinct(engine.select(known, "endpoints", "packed"))
    streams = engine.derive(_with_endpoints, streams=engine.read(STREAMS))
    streams = engine.select(
        engine.join(streams, names, ["endpoints"]), packed="packed", stream_id="stream_id", instance="instance"
    )
    return engine.union(engine.table([], staging.HISTORY), now, before, streams)


def _plan(engine: Engine[T], history: T, captures: Sequence[Row], gone: frozenset[str] = frozenset()) -> T:
    places = {row["capture"]: Place.of(row) for row in captures}
    return engine.keep(engine.run(history, plan_connections(places, gone), staging.PLANNED, ("packed",)))


def _run_assembly(
    engine: Engine[T], captures: Sequence[Row], segments: T, planned: T, options: IngestOptions, *, final: bool
) -> T:
    files = {row["capture"]: CaptureFile(row["capture_id"], row["uri"]) for row in captures}
    work = assemble_connections(options, files, final=final)
    rows = engine.union(segments, engine.pick(planned, "state"))
    return engine.keep(engine.run(rows, work, staging.ASSEMBLED, ("connection",), staging.ORDER))


def _read_again(
    engine: Engine[T], extracted: Extracted[T], history: T, options: IngestOptions
) -> tuple[T, Extracted[T]]:
    """Plans connections again and reads all their segments from the captures that their states do not cover.

    Raises:
        LateError: an earlier capture is gone, and there is no state to resume from.
    """
    planned = _plan(engine, history, extracted.captures)
    read = engine.distinct(engine.select(engine.pick(planned, "read"), capture_id="capture_id"))
    needed = {row["capture_id"] for row in _brought(engine, read)} - {row["capture_id"] for row in extracted.captures}
    old: list[Row] = []
    if needed:
        LOG.info(f"ingest: {len(needed)} earlier captures are read again")
        known = _known_captures(engine, needed)
        old = find_unchanged(index_captures(engine, [row["uri"] for row in known], options), known)
        if gone := frozenset(needed - {row["capture_id"] for row in old}):
            planned = _plan(engine, history, extracted.captures, gone)
            if engine.count(engine.pick(planned, "unrecoverable")):
                raise LateError("Late captures belong before captures that are gone or changed: put these back.")
            LOG.warning("ingest: earlier captures are gone: late segments of their connections go to quarantine")
    captures = rank([*extracted.captures, *old])
    return planned, extract(engine, captures, options, engine.pick(planned, "read"))
