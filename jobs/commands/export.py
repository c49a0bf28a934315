"""Writes messages, findings and incidents as NDJSON for log stores; `udfs.report.lines` makes the lines.

Where the tables are in a folder, it needs no Spark, and holds a part of the messages at a time.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any

import polars as pl
from pyspark.sql import SparkSession

from jobs.cli import command
from jobs.cli.capture_listing import most_messages
from jobs.cli.command import STDOUT, Summary
from jobs.cli.config import Config, parse_time
from jobs.cli.logs import give_up_stdout
from jobs.cli.text_files import writing
from jobs.commands import increments
from jobs.commands.page import begin_of_period
from jobs.engines.in_process import InProcess
from jobs.engines.on_spark import engine_of
from jobs.tables.memory import Memory
from jobs.tables.own_tables import require_own
from jobs.tables.places import needs_spark, open_warehouse
from jobs.tables.warehouse import Warehouse
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES
from schemas.replay import FINDINGS, SEQUENCES
from schemas.terms import EXPORTED
from udfs.frames.derivation import ONE, Derivation
from udfs.report.lines import finding_lines, incident_lines, message_lines

_STDOUT = ("", "-")
"""Values of `out` that stand for stdout."""
_PART = 20_000
"""Messages of which the lines are made at a time."""


def run(spark: SparkSession, config: Config) -> Summary:
    """Writes the lines; returns where, how many of each table, and of which period."""
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, reads=(CAPTURES, SEQUENCES, *EXPORTED), writes=False)
    warehouse.require(MESSAGE_HISTORY, "replay")
    with increments.reading(warehouse):
        return _export(warehouse, config)


def _export(warehouse: Warehouse, config: Config) -> Summary:
    memory = None if warehouse.needs_spark else Memory(most_messages(config.in_memory_messages))
    engine = engine_of(replace(warehouse, local=memory))
    few = engine.collect(
        captures=engine.read(CAPTURES, "first_captured_at", "ingested_at"),
        findings=engine.read(FINDINGS),
        incidents=engine.read(INCIDENTS),
        sequences=engine.read(SEQUENCES, "scope_key", "tx_sequence_id", "last_captured_at"),
    )
    since = begin_of_period(config, few["captures"])
    until = parse_time(config.until, "until") if config.until else None
    period: dict[str, Any] = {"since": since, "until": until}
    made = {
        MESSAGE_HISTORY: _messages(warehouse, engine, partial(message_lines, **period), few["sequences"]),
        FINDINGS: _few(finding_lines(few["findings"], few["incidents"], **period)),
        INCIDENTS: _few(incident_lines(few["incidents"], **period)),
    }
    exported = {}
    with _opened(config.out) as file:
        for table, parts in made.items():
            exported[table.name] = 0
            for lines in parts:
                file.writelines(f"{line}\n".encode() for line in lines)
                exported[table.name] += len(lines)
    told = {name: time and time.isoformat() for name, time in period.items()}
    return {"out": STDOUT if config.out in _STDOUT else config.out} | told | {"exported": exported}


def main(arguments: Sequence[str]) -> int:
    """Runs the command; starts Spark only where the tables need it."""
    return command.main_if_needed("export", run, needs_spark, arguments)


def _few(lines: pl.DataFrame) -> Iterator[list[str]]:
    yield lines["line"].to_list()


def _messages(warehouse: Warehouse, engine: Any, work: Any, sequences: pl.DataFrame) -> Iterator[Sequence[str]]:
    """Yields the lines of messages in parts; on Spark its tasks make them."""
    if isinstance(engine, InProcess):
        rows = warehouse.scan_if_many(MESSAGE_HISTORY, 0)
        parts = [engine.read(MESSAGE_HISTORY)] if rows is None else rows.collect_batches(chunk_size=_PART)
        for part in parts:
            yield Derivation.of(work).run(rows=part, sequences=sequences)[ONE]["line"].to_list()
        return
    made = engine.derive(work, rows=engine.read(MESSAGE_HISTORY), sequences=sequences)
    if isinstance(made, pl.DataFrame):
        yield made["line"].to_list()
        return
    for row in made.toLocalIterator():
        yield [row["line"]]


@contextmanager
def _opened(out: str) -> Iterator[IO[bytes]]:
    """Opens the file to write; it is there when all is written. Lines on stdout end with the reader that asked.

    Raises:
        JobError: it cannot be written.
    """
    if out in _STDOUT:
        with give_up_stdout("The lines"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    else:
        with writing(out) as file:
            yield file
