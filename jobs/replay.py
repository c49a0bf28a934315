"""Messages into verdicts, and verdicts into sequences, states, sessions, transactions and findings; ends of streams.

A sender that is judged by what it was judged by before keeps its verdicts and transactions.
"""

import sys
from functools import partial
from typing import Any, NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs import command, earlier, program
from jobs.command import Summary
from jobs.config import Config
from jobs.logs import progress
from jobs.session import suited
from jobs.settled import sent_along, settled
from jobs.summary import captured_bytes, replay_summary
from jobs.together import together
from jobs.transforms import replay, summaries
from jobs.transforms.findings import findings
from jobs.transforms.grounds import SENDER, Grounds
from jobs.transforms.scopes import acknowledgments, with_ends
from jobs.warehouse import Warehouse
from schemas.ingest import QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES
from schemas.replay import (
    ENDS,
    FINDINGS,
    SENDERS,
    SEQUENCES,
    SESSIONS,
    STATES,
    TRANSACTIONS,
    VERDICTS,
    Reading,
    Scope,
)

SOURCES = (MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES)
TABLES = (ENDS, SENDERS, VERDICTS, SEQUENCES, STATES, SESSIONS, TRANSACTIONS, FINDINGS)


def run(spark: SparkSession, config: Config) -> Summary:
    """Replay all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    with suited(spark, captured_bytes(warehouse)):
        step(warehouse, config)
        return replay_summary(warehouse)


def _settled(rows: DataFrame) -> DataFrame:
    return sent_along(settled(rows))


class Kept(NamedTuple):
    """What stays as the last run left it, for these senders are judged by the same as then."""

    senders: DataFrame
    verdicts: DataFrame
    transactions: DataFrame

    @classmethod
    def of(cls, warehouse: Warehouse, senders: DataFrame) -> Self:
        """What stays where the SENDERS are these now."""
        tables = (SENDERS, VERDICTS, TRANSACTIONS)
        left = warehouse.left("replay", tables)
        known, verdicts, transactions = left or (warehouse.read(table).where("false") for table in tables)
        same = senders.join(known, SENDERS.names, "left_semi").select(SENDER)
        if left:
            same = _settled(same)
            progress(f"replay: of {senders.count()} senders {same.count()} keep their verdicts")
        verdicts, transactions = (rows.join(same, SENDER, "left_semi") for rows in (verdicts, transactions))
        return cls(same, verdicts, transactions.withColumn("witness", F.array_compact("witness")))  # of no nulls

    def others(self, rows: DataFrame) -> DataFrame:
        """The rows of all other senders."""
        return rows.join(self.senders, SENDER, "left_anti")


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replay all sessions, unless that was done for these versions and options; returns whether it was still to do."""
    warehouse.require(MESSAGES, "decode")
    stood = earlier.version(warehouse.spark, config)
    options = {"reading": config.reading, "scope": config.scope, "continue_from": stood}
    reading, scope = Reading(config.reading), Scope(config.scope)

    def write(tag: dict[str, Any]) -> None:
        messages, streams, stream_gaps, quarantine, acks, handshakes = (warehouse.read(table) for table in SOURCES)
        states, ends_before = earlier.tables(warehouse.spark, config)
        ends = _settled(with_ends(streams, handshakes, ends_before))
        grounds = Grounds.of(messages, ends, stream_gaps, quarantine, acks, scope=scope, settle=_settled)
        senders = _settled(grounds.by_sender(repr((options, program.fingerprint()))))
        kept = Kept.of(warehouse, senders)
        judged = replay.verdicts(grounds.without(kept.senders), states, reading=reading, settle=_settled)
        warehouse.replace(VERDICTS, judged.unionByName(kept.verdicts), tag)
        progress("replay: wrote verdicts")
        verdicts = warehouse.read(VERDICTS)
        transactions = summaries.transactions(kept.others(verdicts)).unionByName(kept.transactions)
        together(
            partial(warehouse.replace, table, rows, tag)
            for table, rows in (
                (ENDS, ends),
                (SEQUENCES, summaries.sequences(verdicts)),
                (STATES, summaries.states(verdicts, states, reading=reading)),
                (SESSIONS, summaries.sessions(messages, ends, stream_gaps, quarantine, verdicts, scope=scope)),
                (TRANSACTIONS, transactions),
            )
        )
        progress("replay: wrote ends, sequences, states, sessions, transactions")
        written = (verdicts, warehouse.read(SEQUENCES), warehouse.read(TRANSACTIONS))
        rows = findings(messages, ends, grounds.runs, acknowledgments(acks, ends, verdicts), *written, settle=_settled)
        warehouse.replace(FINDINGS, rows, tag)
        warehouse.check_unmoved(SOURCES, tag)  # else the hashes may be of other rows than what was judged
        warehouse.replace(SENDERS, senders, tag)
        progress("replay: wrote findings, senders")

    derived = warehouse.derive("replay", TABLES, SOURCES, write, **options)
    if not derived:
        progress("replay: nothing new")
    return derived


if __name__ == "__main__":
    sys.exit(command.main("replay", run, sys.argv[1:]))
