"""Messages into verdicts, and verdicts into sequences, sessions, transactions and findings."""

import sys

from pyspark.sql import DataFrame, SparkSession

from jobs import command
from jobs.command import Summary, progress
from jobs.config import Config
from jobs.summary import replay_summary
from jobs.transforms import replay, summaries
from jobs.transforms.coverage import unread_runs
from jobs.transforms.findings import findings
from jobs.transforms.scopes import acknowledgments, with_ends
from jobs.warehouse import Origin, Warehouse
from schemas.ingest import QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES
from schemas.replay import FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS, Reading, Scope

_SOURCES = (MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES)
_TABLES = (VERDICTS, SEQUENCES, SESSIONS, TRANSACTIONS, FINDINGS)


def run(spark: SparkSession, config: Config) -> Summary:
    """Replay all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    step(warehouse, config)
    return replay_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> None:
    """Replay all sessions, unless that was done for these versions and options."""
    warehouse.require(MESSAGES, "decode")
    for table in _TABLES:
        warehouse.create(table)
    origin: Origin = {table.name: warehouse.version(table) for table in _SOURCES}
    origin |= {"reading": config.reading, "scope": config.scope}
    if warehouse.derived_from(FINDINGS) == origin:
        progress("replay: nothing new")
        return
    messages, streams, stream_gaps, quarantine, acks, handshakes = (warehouse.read(table) for table in _SOURCES)
    ends = _settled(with_ends(streams, handshakes))
    reading, scope = Reading(config.reading), Scope(config.scope)
    judged = replay.verdicts(
        messages, ends, stream_gaps, quarantine, acks, reading=reading, scope=scope, settle=_settled
    )
    warehouse.replace(VERDICTS, judged)
    progress("replay: wrote verdicts")
    verdicts, runs = warehouse.read(VERDICTS), unread_runs(stream_gaps, quarantine)
    for table, rows in (
        (SEQUENCES, summaries.sequences(verdicts)),
        (SESSIONS, summaries.sessions(messages, ends, stream_gaps, quarantine, verdicts, scope=scope)),
        (TRANSACTIONS, summaries.transactions(verdicts)),
    ):
        warehouse.replace(table, rows, derived_from=origin)
        progress(f"replay: wrote {table.name}")
    written = (verdicts, warehouse.read(SEQUENCES), warehouse.read(TRANSACTIONS))
    # The last of the tables says that all of them are done.
    rows = findings(messages, ends, runs, acknowledgments(acks, ends, verdicts), *written)
    warehouse.replace(FINDINGS, rows, derived_from=origin)
    progress("replay: wrote findings")


def _settled(rows: DataFrame) -> DataFrame:
    return rows.localCheckpoint()


if __name__ == "__main__":
    sys.exit(command.main("replay", run, sys.argv[1:]))
