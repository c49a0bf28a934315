"""What the last night left, beside its tables: so one with nothing new is seen to be that without starting Spark.

A night is known again by its options, by size and time of every capture file, and by the version of every table: that
in which the steps found the tables to come of one another, so a run that writes meanwhile makes it unknown.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyarrow import fs

from jobs.app import code_version
from jobs.app.capture_listing import Stamp, capture_files, stamps
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.steps import report
from jobs.warehouse import log
from jobs.warehouse.store import Warehouse, located
from schemas.ingest import BOOKS, CAPTURES, PACKETS
from schemas.messages import DECODED_TABLES
from schemas.replay import ENDS, FINDINGS, STATES, VERDICTS
from udfs.capture.files import locate
from udfs.msmq.pseudonyms import pseudonymize

_NAME = "last_night.json"
_TOLD = ("json", "log_format", "fail_on")
"""Options of what is said of a night, not of what is done."""
_NEEDED = {table.name for table in (CAPTURES, PACKETS, BOOKS, *DECODED_TABLES, VERDICTS, FINDINGS)}


def recall(config: Config) -> Summary | None:
    """The summary of a night that was done with these captures, options and tables; None when it is to be done."""
    if not config.warehouse or config.catalog_schema:
        return None
    files_now = stamps(capture_files(config.captures))
    try:
        night = json.loads(_read(located(config.warehouse, _NAME)) or "{}")
        if night.get("of") != _of(config, files_now) or not night["report"] or night["report"] not in _report(config):
            return None
        if any(_latest(config, table) != seen for table, seen in night["versions"].items()):
            return None
    except (OSError, ValueError) as error:
        progress(f"nightly: whether anything is new cannot be told without Spark: {error}")
        return None
    progress(f"nightly: nothing new in {len(files_now)} files")
    summary: Summary = night["summary"]
    return summary


def remember(warehouse: Warehouse, config: Config, taken: Mapping[str, Stamp], summary: Summary) -> None:
    """Write down a night whose steps have all found the tables as they should be."""
    if warehouse.catalog_schema:
        return
    versions = {name: commits[0].version for name, commits in warehouse.histories.items()}
    if not versions.keys() >= _NEEDED or any(_latest(config, name) != seen for name, seen in versions.items()):
        return
    night = {
        "of": _of(config, taken),
        "versions": versions,
        "report": report.mark(warehouse, config),
        "summary": summary,
    }
    report.write(located(config.warehouse, _NAME), json.dumps(night))


def _of(config: Config, taken: Mapping[str, Stamp]) -> str:
    """What a night is made of, but for the tables: its options, its captures and this program."""
    options: dict[str, Any] = {name: value for name, value in asdict(config).items() if name not in _TOLD}
    options["names_key"] = config.hiding_key and pseudonymize("names", config.hiding_key)
    if config.continue_from:
        places = (located(config.continue_from, table.name) for table in (STATES, ENDS))
        options["earlier"] = [log.versions(place)[:1] for place in places]
    text = json.dumps([options, sorted(taken.items()), code_version.fingerprint()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _report(config: Config) -> str:
    return report.head(config.out or located(config.warehouse, report.NAME))


def _latest(config: Config, table: str) -> int | None:
    return next(iter(log.versions(located(config.warehouse, table))), None)


def _read(uri: str) -> str:
    filesystem, path = locate(uri)
    if filesystem.get_file_info(path).type is not fs.FileType.File:
        return ""
    with filesystem.open_input_stream(path) as file:
        data: bytes = file.read()
    return data.decode()
