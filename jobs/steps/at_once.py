"""Derives all tables of captures at once, in this process and from nothing else."""

from collections.abc import Mapping
from functools import partial

import polars as pl

from jobs.app.capture_listing import Stamp, stamps
from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.logs import progress, step, warn
from jobs.engine.in_process import InProcess
from jobs.ingestion import flow
from jobs.replaying.conversations import unite
from jobs.replaying.decoding import decode_table, quarantine_of
from jobs.replaying.flow import Options, replay
from jobs.replaying.in_process import accept_by_fold
from jobs.replaying.sources import read_sources
from jobs.reporting import balancing
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAMS
from schemas.messages import DECODED_TABLES
from schemas.replay import Reading, Scope


def derive_tables(files: Mapping[str, Stamp], config: Config, shown: Mapping[str, str], of: int) -> InProcess:
    """Returns an engine with the rows of all tables that `nightly` would make of these files.

    `shown` says what files are called in the tables, if not by their own names. There are `of` steps, of which these
    are the first three.

    Raises:
        JobError: a file changed while it was read.
    """
    engine = InProcess()
    with step("ingest", 1, of):
        _ingest(engine, files, config, shown)
    with step("decode", 2, of):
        _decode(engine, config)
    with step("replay", 3, of):
        _replay(engine, config)
    return engine


def _ingest(engine: InProcess, files: Mapping[str, Stamp], config: Config, shown: Mapping[str, str]) -> None:
    captures = flow.find_new_captures(engine, list(files), config.ingest)
    size = sum(row["content_bytes"] for row in captures)
    progress(f"ingest: {len(captures)} captures, {size / 1e6:.1f} MB")
    flow.ingest(engine, captures, config.ingest, partial(_require_unchanged, files))
    engine.replace(CAPTURES, engine.read(CAPTURES).with_columns(pl.col("uri").replace(shown)))


def _require_unchanged(files: Mapping[str, Stamp]) -> None:
    """Says which files grew: what was read of them is whole.

    Raises:
        JobError: another file changed.
    """
    for file, after in stamps(files).items():
        if after == files[file]:
            continue
        if (after.size or 0) <= (files[file].size or 0):
            raise JobError(f"{file} changed while it was read: look again.")
        warn(f"{file} grew while it was read: what came meanwhile is left out.")


def _decode(engine: InProcess, config: Config) -> None:
    packets = engine.read(PACKETS)
    for table in DECODED_TABLES:
        engine.replace(table, decode_table(packets, table, config.hiding_key))
    undecodable = quarantine_of(packets, config.quarantine_raw_bytes)
    engine.replace(QUARANTINE, engine.union(engine.read(QUARANTINE), undecodable))


def _replay(engine: InProcess, config: Config) -> None:
    options = Options(Reading(config.reading), Scope(config.scope))
    sources = read_sources(engine)
    united = unite(engine, sources)
    replay(engine, sources, united, accept_by_fold(engine, options.reading), options)
    renamed = united.renamed_copies(sources.streams)
    if renamed is not None:
        engine.write(STREAMS, renamed, update=True)
    balancing.balance(engine, balancing.REPLAYED)
