"""Writes the report: gold tables to one self-contained HTML file."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.app.code_version import VERSION
from jobs.app.command import Summary
from jobs.app.config import ALL, LAST, Config, parse_time
from jobs.app.errors import JobError, UsageError
from jobs.app.logs import progress, warn
from jobs.app.muted import read_muted
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.app.text_files import exists, read_text, write_text
from jobs.report_page import arrange
from jobs.report_page.arrange import Rows
from jobs.report_page.render import files, render
from jobs.report_page.saved import SAVED_FOR_EACH_LISTED, take_turns
from jobs.steps import in_memory
from jobs.steps.page_values import page_values as values_of_page
from jobs.transforms import report, report_lists
from jobs.transforms.expressions import nanoseconds
from jobs.transforms.health import health
from jobs.transforms.witness import with_keys
from jobs.warehouse.publish_lock import require_whole
from jobs.warehouse.store import Warehouse
from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, VERDICTS

_TABLES = (
    *(CAPTURES, STREAMS, STREAM_GAPS, PACKETS, QUARANTINE, BOOKS),
    *(MESSAGES, ACKS, HANDSHAKES),
    *(ENDS, VERDICTS, OUTCOMES, SEQUENCES, SESSIONS, FINDINGS, INCIDENTS),
)
_OPTIONS = (
    *("since", "session", "listed_messages", "listed_incidents", "listed_findings", "listed_sessions"),
    *("drawn_sessions", "drawn_pictures", "drawn_points"),
)
NAME = "report.html"
_HEAD_BYTES = 4096
_KEYS = "stream_id STRING, stream_offset BIGINT"
_PICTURES = "session_id STRING, scope_key STRING, source_queue_manager STRING, receiver STRING"


def run(spark: SparkSession, config: Config) -> Summary:
    """Writes the report and returns its place.

    Raises:
        UsageError: registered tables have no folder, and `--out` is not given.
    """
    warehouse = Warehouse.of(spark, config)
    require_whole(warehouse.folder, warehouse.catalog_schema)
    place = destination(warehouse, config)
    if place is None:
        raise UsageError("Say where the report goes: --out FILE. Registered tables have no folder for it.")
    with in_memory.hold_if_small(warehouse, config) as held:
        step(held, config)
    return {"report": place}


def step(warehouse: Warehouse, config: Config) -> None:
    """Writes the report, unless it has no place or is already there for the same tables and options."""
    place = destination(warehouse, config)
    if place is None:
        warn("report: not written, as registered tables have no folder for it: give --out FILE")
        return
    warehouse.require(INCIDENTS, "replay")
    made_from = mark(warehouse, config)
    if made_from in head(place):
        progress(f"report: nothing new in {place}")
        return
    write_text(place, render(page_values(warehouse, config), made_from, Names.read(config.names_file)))


def mark(warehouse: Warehouse, config: Config) -> str:
    """Returns a hash of a report's inputs: table versions, options, names, and the page's template and scripts."""
    options = [{name: getattr(config, name) for name in _OPTIONS}, arrange.changed_options(config), VERSION]
    options += given_files(config)
    text = json.dumps([warehouse.versions(_TABLES), warehouse.place, options, files()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def given_files(config: Config) -> list[Any]:
    """Returns what --names-file and --muted-file say, in a form that JSON can hold."""
    muted = [list(map(str, one)) for one in read_muted(config.muted_file)]
    return [list(Names.read(config.names_file).rows()), muted]


def destination(warehouse: Warehouse, config: Config) -> str | None:
    """Returns `--out`, else the report's place in the folder of the tables; None for registered tables."""
    return config.out or (None if warehouse.catalog_schema else warehouse.location(NAME))


def head(uri: str) -> str:
    """Returns the first bytes of an existing report; an empty text where there is none.

    Raises:
        JobError: the place cannot be read.
    """
    try:
        return read_text(uri, _HEAD_BYTES) if exists(uri) else ""
    except (OSError, ValueError) as error:
        raise JobError(f"{uri} cannot be read: {error}") from error


def page_values(warehouse: Warehouse, config: Config) -> dict[str, Any]:
    """Returns the values that the page shows; no part grows with the tables."""
    tables = {table.name: warehouse.read(table) for table in _TABLES}
    tables |= {name: with_keys(tables[name]) for name in ("outcomes", "findings", "incidents")}
    since, only = _since(config, tables["captures"]), config.session
    all_sessions, all_verdicts, all_findings = (
        report_lists.of_sessions(tables[name], only) for name in ("sessions", "verdicts", "findings")
    )
    muted = read_muted(config.muted_file)
    known = report_lists.is_muted([(one.kind, one.queue) for one in muted])
    muted_findings = report.shown_findings(all_findings).where(known) if muted else None
    all_findings = report.shown_findings(all_findings).where(~known) if muted else report.shown_findings(all_findings)
    rows = _collect(extent=report.extent(all_sessions, since), busy_hours=report.busy_hours(tables["captures"]))
    extent = rows["extent"][0]
    since = since if extent["cut"] else None
    verdicts = report_lists.of_period(all_verdicts, since)
    sessions, files, streams = (
        report_lists.of_period(rows, since, "last_captured_at")
        for rows in (all_sessions, tables["captures"], tables["streams"])
    )
    findings = report.findings_of_period(all_findings, tables["sequences"], since)
    sequences = report_lists.chosen_sequences(tables["sequences"], tables["verdicts"], only, since)
    outcomes = report_lists.outcomes_of(tables["outcomes"], sequences)
    incidents = report_lists.of_period(report_lists.of_sessions(tables["incidents"], only), since, "last_captured_at")
    judged = report.with_fate(verdicts, outcomes)
    rows |= _collect(
        incident_counts=report_lists.incident_counts(incidents),
        incidents=_first(config.listed_incidents, report_lists.worst_incidents, incidents),
        last_run=report.last_run(tables["captures"]).select(nanoseconds("since").alias("ns")),
        arrivals=report.arrivals_over_time(judged, *arrange.steps(extent, rows["busy_hours"])),
        outcome_counts=report_lists.outcome_counts(sequences),
        places=report_lists.places(outcomes),
        saved_messages=_first(config.listed_messages * SAVED_FOR_EACH_LISTED, report_lists.listed_messages, outcomes),
        final_acks=report_lists.final_acks(tables["acks"]),
        muted=muted_findings
        and report.findings_by_kind(report.findings_of_period(muted_findings, tables["sequences"], since)),
        unjudged=report_lists.unjudged_messages(sessions),
        kinds=report.findings_by_kind(findings),
        every_finding=all_findings.groupBy().count() if since else None,
        findings=_first(config.listed_findings, report.worst_findings, findings),
        sessions=_first(config.listed_sessions, report.ranked_sessions, sessions, verdicts, findings, outcomes),
        health=_first(
            config.listed_sessions, health, all_verdicts, report_lists.of_sessions(tables["outcomes"], only), since
        ),
        caveats=report.caveats(files, streams, tables["quarantine"], tables["books"], sessions),
    )
    rows["listed_messages"] = take_turns(rows["saved_messages"], config.listed_messages)
    listed = [row["session_id"] for row in rows["sessions"]]
    drawn_sessions = listed[: config.drawn_sessions]
    drawn = judged.where(judged["session_id"].isin(*drawn_sessions))
    holed = any(row["missing_bytes"] for row in rows["sessions"][: config.drawn_sessions])
    stories = [row["incident_id"] for row in rows["incidents"]]
    limit = config.listed_findings if stories else 0
    rows |= _collect(evidence=_first(limit, report_lists.findings_of_incidents, findings, stories))
    keys = arrange.witness_keys(rows)
    ends = tables["ends"].where("copy_of is null")
    limit = config.drawn_points
    rows |= _collect(
        witnesses=_witnesses(warehouse.spark, keys, tables, ["verdicts"]),
        coverage=report.coverage(tables["streams"], ends, tables["quarantine"], listed) if listed else None,
        points=report.points(drawn, config.drawn_pictures, limit) if drawn_sessions else None,
        holes=report.holes(tables["stream_gaps"], drawn, streams, ends, limit) if holed else None,
    )
    pictures = warehouse.spark.createDataFrame(arrange.pictures(rows), _PICTURES)
    captures = sorted({row["capture_id"] for row in rows["points"]})
    rows |= _collect(
        others=_witnesses(
            warehouse.spark, arrange.unseen_keys(rows), tables, ["messages", "acks", "packets", "stream_gaps"]
        ),
        stairs=report.stairs(tables["acks"], ends, tables["sequences"], pictures, limit) if captures else None,
        uris=report.uris(tables["captures"], captures) if captures else None,
    )
    return values_of_page(rows, config, warehouse.place, since, muted, Names.read(config.names_file))


def _witnesses(
    spark: SparkSession, keys: list[tuple[str, int]], tables: Mapping[str, DataFrame], names: Sequence[str]
) -> DataFrame | None:
    """Returns the rows with these keys, each from the first of the named tables that has it."""
    if not keys:
        return None
    wanted = spark.createDataFrame(keys, _KEYS)
    return report.witness_rows(wanted, [tables[name] for name in names], tables["captures"])


def _first(limit: int, rows: Callable[..., DataFrame], *of: Any) -> DataFrame | None:
    """Returns the first `limit` rows; None, which takes no query, where none are wanted."""
    return rows(*of, limit) if limit else None


def _collect(**bounded: DataFrame | None) -> dict[str, Rows]:
    """Collects bounded DataFrames in parallel, as planning takes most of the time; no rows for None."""
    return dict(zip(bounded, run_in_parallel(partial(_rows, rows) for rows in bounded.values()), strict=True))


def _rows(bounded: DataFrame | None) -> Rows:
    return [] if bounded is None else [row.asDict() for row in bounded.collect()]


def _since(config: Config, captures: DataFrame) -> datetime | None:
    """Returns the beginning of the period; None for all that the tables hold."""
    if config.since == ALL:
        return None
    if config.since != LAST:
        return parse_time(config.since)
    rows = report.last_run(captures).select(nanoseconds("since").alias("ns")).collect()
    return datetime.fromtimestamp(rows[0]["ns"] // 10**9, UTC) if rows and rows[0]["ns"] is not None else None
