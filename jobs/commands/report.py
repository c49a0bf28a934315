"""Writes the report: gold tables to one self-contained HTML file."""

import hashlib
import json

from pyspark.sql import SparkSession

from jobs.cli.code_version import VERSION
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.errors import JobError, UsageError
from jobs.cli.logs import progress, warn
from jobs.cli.names import Names
from jobs.cli.text_files import exists, read_text, write_text
from jobs.commands import increments, page
from jobs.engines.on_spark import engine_of
from jobs.report_page import arrange
from jobs.report_page.render import files, render
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.warehouse import Warehouse
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
NAME = "report.html"
_HEAD_BYTES = 4096


def run(spark: SparkSession, config: Config) -> Summary:
    """Writes the report and returns its place.

    Raises:
        UsageError: registered tables have no folder, and `--out` is not given.
    """
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, reads=_TABLES, writes=False)
    place = destination(warehouse, config)
    if place is None:
        raise UsageError("Say where the report goes: --out FILE. Registered tables have no folder for it.")
    warehouse.require(INCIDENTS, "replay")
    with increments.reading(warehouse):
        step(increments.with_few_messages(warehouse, config), config)
    return {"report": place}


def step(warehouse: Warehouse, config: Config) -> None:
    """Writes the report, unless it has no place or is already there for the same tables and options."""
    place = destination(warehouse, config)
    if place is None:
        warn("report: not written, as registered tables have no folder for it: give --out FILE")
        return
    made_from = mark(warehouse, config)
    if made_from in head(place):
        progress(f"report: nothing new in {place}")
        return
    names = Names.read(config.names_file)
    write_text(place, render(page.values(engine_of(warehouse), config, warehouse.place, names), made_from, names))


def mark(warehouse: Warehouse, config: Config) -> str:
    """Returns a hash of a report's inputs: table versions, options, names, and the page's template and scripts."""
    names = list(Names.read(config.names_file).rows())
    options = [arrange.changed_options(config), VERSION, names]
    text = json.dumps([warehouse.versions(_TABLES), warehouse.place, options, files()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def destination(warehouse: Warehouse, config: Config) -> str | None:
    """Returns `--out`, else the report's place in the folder of the tables; None for registered tables."""
    return config.out or warehouse.path(NAME)


def head(uri: str) -> str:
    """Returns the first bytes of an existing report; an empty text where there is none.

    Raises:
        JobError: the place cannot be read.
    """
    try:
        return read_text(uri, _HEAD_BYTES) if exists(uri) else ""
    except (OSError, ValueError) as error:
        raise JobError(f"{uri} cannot be read: {error}") from error
