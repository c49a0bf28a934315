"""Messages into verdicts, and verdicts into sequences, states, sessions, transactions and findings; ends of streams."""

import sys
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs import command, earlier
from jobs.command import Summary
from jobs.config import Config
from jobs.logs import progress
from jobs.session import suited
from jobs.settled import sent_along, settled
from jobs.summary import captured_bytes, replay_summary
from jobs.together import together
from jobs.transforms import replay, summaries
from jobs.transforms.coverage import unread_runs
from jobs.transforms.findings import findings
from jobs.transforms.scopes import acknowledgments, with_ends
from jobs.warehouse import Warehouse
from schemas.ingest import QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, STATES, TRANSACTIONS, VERDICTS, Reading, Scope

SOURCES = (MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES)
TABLES = (ENDS, VERDICTS, SEQUENCES, STATES, SESSIONS, TRANSACTIONS, FINDINGS)


def run(spark: SparkSession, config: Config) -> Summary:
    """Replay all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    with suited(spark, captured_bytes(warehouse)):
        step(warehouse, config)
        return replay_summary(warehouse)


def _settled(rows: DataFrame) -> DataFrame:
    return sent_along(settled(rows))


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replay all sessions, unless that was done for these versions and options; returns whether it was still to do."""

    def write(tag: dict[str, Any]) -> None:
        messages, streams, stream_gaps, quarantine, acks, handshakes = (warehouse.read(table) for table in SOURCES)
        states, ends_before = earlier.tables(warehouse.spark, config)
        ends = _settled(with_ends(streams, handshakes, ends_before))
        reading, scope = Reading(config.reading), Scope(config.scope)
        judged = replay.verdicts(
            messages, ends, stream_gaps, quarantine, acks, states, reading=reading, scope=scope, settle=_settled
        )
        warehouse.replace(VERDICTS, judged, tag)
        progress("replay: wrote verdicts")
        verdicts, runs = warehouse.read(VERDICTS), unread_runs(stream_gaps, quarantine)
        together(
            partial(warehouse.replace, table, rows, tag)
            for table, rows in (
                (ENDS, ends),
                (SEQUENCES, summaries.sequences(verdicts)),
                (STATES, summaries.states(verdicts, states, reading=reading)),
                (SESSIONS, summaries.sessions(messages, ends, stream_gaps, quarantine, verdicts, scope=scope)),
                (TRANSACTIONS, summaries.transactions(verdicts)),
            )
        )
        progress("replay: wrote ends, sequences, states, sessions, transactions")
        written = (verdicts, warehouse.read(SEQUENCES), warehouse.read(TRANSACTIONS))
        rows = findings(messages, ends, runs, acknowledgments(acks, ends, verdicts), *written, settle=_settled)
        warehouse.replace(FINDINGS, rows, tag)
        progress("replay: wrote findings")

    warehouse.require(MESSAGES, "decode")
    stood = earlier.version(warehouse.spark, config)
    derived = warehouse.derive(
        "replay", TABLES, SOURCES, write, reading=config.reading, scope=config.scope, continue_from=stood
    )
    if not derived:
        progress("replay: nothing new")
    return derived


if __name__ == "__main__":
    sys.exit(command.main("replay", run, sys.argv[1:]))
