"""Looks at captures in this process: says what became of messages, without Spark and without tables."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import polars as pl

from jobs.cli.capture_listing import Stamp, bytes_of, capture_files, most_in_memory, stamps
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.errors import JobError, UsageError
from jobs.cli.logs import progress, step, warn
from jobs.cli.names import Names
from jobs.commands.summary import summary, with_names
from jobs.engines.in_process import InProcess
from schemas.incidents import INCIDENTS
from schemas.ingest import PACKETS, QUARANTINE
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import FINDINGS, Reading, Scope
from udfs.decode.flow import decode_table, quarantine_of
from udfs.ingest import flow
from udfs.replay.fitness.flow import filled_rows
from udfs.replay.flow import Options, replay
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import read_sources
from udfs.report import balancing
from udfs.report.incidents import worst_incidents

_STEPS = 4
_MB = 10**6


def run(config: Config) -> Summary:
    """Looks at the captures; returns the summary, with all rows of what was found where JSON is asked for.

    Raises:
        UsageError: the captures are too large for the memory, or the options are wrong.
    """
    if not config.captures:
        raise UsageError("Name what to look at: captures, folders or globs.")
    names = Names.read(config.names_file)
    engine = derive_tables(_files(config), config)
    with step("report" if config.out else "summary", _STEPS, _STEPS):
        if config.out:
            _write_report(engine, config, names)
        found = with_names(summary(engine, "", names), names)
        del found["tables"]
        found["new_captures"] = sum(found["captures"].values())
        if config.out_orders:
            found["orders"] = _write_orders(engine, config.out_orders)
        found |= {"report": config.out} if config.out else {}
        return found | ({"rows": _rows(engine)} if config.json else {})


def _files(config: Config) -> Mapping[str, Stamp]:
    """Returns the captures.

    Raises:
        UsageError: they are too large.
    """
    limit = most_in_memory(config.in_memory_bytes)
    files = stamps(capture_files(config.captures))
    if bytes_of(files, limit) > limit:
        raise UsageError(
            f"There are more than {limit / _MB:,.0f} MB of captures, and look holds all of them in memory: a 24th of "
            "this machine's, or what --in-memory-bytes says, if that is less. nightly has no such limit, because it "
            "puts Spark to work: msmq-replay nightly --captures FILE --warehouse FOLDER."
        )
    return files


def _write_report(engine: InProcess, config: Config, names: Names) -> None:
    """Writes the page to the place that --out names; what makes it is imported only where one is asked for."""
    from jobs.cli.text_files import write_text  # noqa: PLC0415
    from jobs.commands import page  # noqa: PLC0415
    from jobs.report_page.render import render  # noqa: PLC0415

    write_text(config.out, render(page.values(engine, config, "", names), names=names))


def _write_orders(engine: InProcess, folder: str) -> Summary:
    """Writes the lists for the back office; what makes them is imported only where they are asked for."""
    from jobs.commands.orders import write_orders  # noqa: PLC0415

    return write_orders(engine, folder)


def _rows(engine: InProcess) -> dict[str, list[dict[str, Any]]]:
    """Returns the incidents, the worst first, the findings and the outcomes, with their witnesses, for JSON."""
    incidents = engine.read(INCIDENTS)
    order = worst_incidents(incidents, incidents.height).select("incident_id")
    found = {
        "incidents": order.join(incidents, on="incident_id", how="left", maintain_order="left"),
        "findings": engine.read(FINDINGS).sort("found_at", "scope_key", "tx_sequence_id", "kind", nulls_last=True),
        "outcomes": engine.read(OUTCOMES).sort("first_seen_at", "scope_key", "tx_sequence_id", nulls_last=True),
    }
    # As numbers, a TxSequenceID and a hash would lose their last digits in many readers of JSON.
    long = pl.selectors.by_dtype(pl.UInt64) | pl.selectors.by_name("content_hash", require_all=False)
    return {name: _plain(rows.with_columns(long.cast(pl.String)).to_dicts()) for name, rows in found.items()}


def _plain(value: Any) -> Any:
    """Returns the value in a form that JSON can hold: times are texts of ISO 8601."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return value.isoformat() if isinstance(value, datetime) else value


def derive_tables(files: Mapping[str, Stamp], config: Config) -> InProcess:
    """Returns an engine with the rows of all tables that `nightly` would make of these files.

    Raises:
        JobError: a file changed while it was read.
    """
    engine = InProcess()
    with step("ingest", 1, _STEPS):
        _ingest(engine, files, config)
    with step("decode", 2, _STEPS):
        _decode(engine, config)
    with step("replay", 3, _STEPS):
        _replay(engine, config)
    return engine


def _ingest(engine: InProcess, files: Mapping[str, Stamp], config: Config) -> None:
    captures = flow.find_new_captures(engine, list(files), config.ingest)
    size = sum(row["content_bytes"] for row in captures)
    progress(f"ingest: {len(captures)} captures, {size / 1e6:.1f} MB")
    flow.ingest(engine, captures, config.ingest, partial(_require_unchanged, files))


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
        engine.replace(table, decode_table(engine, packets, table, config.hiding_key))
    undecodable = quarantine_of(engine, packets, config.ingest.quarantine_raw_bytes)
    engine.replace(QUARANTINE, engine.union(engine.read(QUARANTINE), undecodable))


def _replay(engine: InProcess, config: Config) -> None:
    options = Options(Reading(config.reading), Scope(config.scope))
    united = unite(engine, read_sources(engine))
    replay(united, options)
    for table, rows in filled_rows(united).items():
        engine.write(table, rows, update=True)
    balancing.balance(engine, balancing.REPLAYED)
