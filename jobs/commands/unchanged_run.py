"""Recognizes a night with nothing new without starting Spark, by a file that the last complete night left.

The night must have the same options, captures (size and time of every file), program, report, and rows in every table
(`rows_version`, from the tables' logs).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jobs.cli import code_version
from jobs.cli.capture_listing import Stamp
from jobs.cli.command import Summary
from jobs.cli.config import NO_EFFECT, Config
from jobs.cli.logs import progress, warn
from jobs.cli.names import Names
from jobs.cli.text_files import exists, read_text, write_text
from jobs.commands import report
from jobs.tables import provenance, publish_lock
from jobs.tables.declared import path_in
from jobs.tables.places import open_warehouse
from jobs.tables.warehouse import Warehouse
from schemas.ingest import CAPTURES, CaptureReason
from schemas.tables import TABLES
from udfs.msmq.pseudonyms import pseudonymize
from udfs.report.period import not_read_again

_NAME = "last_night.json"
_OF_CLOSED = ("uri", "status", "reason", "size_bytes", "first_captured_at", "ingested_at")


def recall(config: Config, files: Mapping[str, Stamp]) -> Summary | None:
    """Returns the summary of the last night if options, captures and tables are the same; None if Spark must look.

    Captures to read again are as good as new.
    """
    if config.again:
        return None
    warehouse = open_warehouse(None, config)
    place = warehouse.path(_NAME)
    if place is None or warehouse.needs_spark:
        return None
    publish_lock.require_whole(warehouse)
    try:
        night = json.loads(read_text(place)) if exists(place) else {}
        if night.get("of") != _of(config, files) or not night["report"] or night["report"] not in _report(config):
            return None
        if warehouse.versions(TABLES) != night["versions"]:
            return None
    except (OSError, ValueError) as error:
        warn(f"nightly: Spark has to find out whether anything is new: {error}")
        return None
    progress(f"nightly: nothing new in {len(files)} files")
    summary: Summary = night["summary"]
    return summary


def remember(warehouse: Warehouse, config: Config, files: Mapping[str, Stamp], summary: Summary) -> None:
    """Writes the file after a complete night, unless something wrote a table without the publish lock.

    Nor is it written while a file cannot be opened: that it can be, later, does not show in its size and time.
    """
    place, versions = warehouse.path(_NAME), warehouse.versions(TABLES)
    if place is None or not provenance.is_current(warehouse, versions) or _has_closed(warehouse, files):
        return
    night = {
        "of": _of(config, files),
        "versions": versions,
        "report": report.mark(warehouse, config),
        "summary": summary,
    }
    write_text(place, json.dumps(night))


def _has_closed(warehouse: Warehouse, files: Mapping[str, Stamp]) -> bool:
    captures = not_read_again(warehouse.read_local(CAPTURES, *_OF_CLOSED))
    closed = captures.filter(reason=CaptureReason.NOT_READABLE.value)
    return not files.keys().isdisjoint(closed["uri"])


def _of(config: Config, files: Mapping[str, Stamp]) -> str:
    """Returns a hash of the options, the names, the captures and the program."""
    left_out = (*NO_EFFECT, "again")
    options: dict[str, Any] = {name: value for name, value in asdict(config).items() if name not in left_out}
    options["names_key"] = config.hiding_key and pseudonymize("names", config.hiding_key)
    given = [options, list(Names.read(config.names_file).rows()), sorted(files.items()), code_version.program_hash()]
    text = json.dumps(given, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _report(config: Config) -> str:
    return report.head(config.out or path_in(config.warehouse, report.NAME))
