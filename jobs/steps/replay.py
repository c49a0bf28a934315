"""Messages into verdicts, and verdicts into sequences, states, sessions, transactions and findings; ends of streams.

A sender that is judged by what it was judged by before keeps its verdicts and transactions.
"""

from functools import partial
from typing import NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import codegen_for_size
from jobs.steps import previous_warehouse
from jobs.steps.summary import captured_bytes, replay_summary
from jobs.transforms.findings.engine import collect_findings, concerned_messages, watched_sessions
from jobs.transforms.replay.acknowledgments import pair_acks
from jobs.transforms.replay.inputs import SENDER, ReplayInputs
from jobs.transforms.replay.peers import with_peers
from jobs.transforms.replay.verdicts import judge_messages
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.transforms.summaries.transactions import assemble_transactions
from jobs.warehouse import publish_lock
from jobs.warehouse.checkpoint import broadcast_if_small, checkpoint
from jobs.warehouse.provenance import as_left, derive
from jobs.warehouse.store import Warehouse
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
    warehouse.require(MESSAGES, "decode")
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, _), codegen_for_size(spark, captured_bytes(held)):
        step(held, config)
        return replay_summary(held)


def _settled(rows: DataFrame) -> DataFrame:
    return broadcast_if_small(checkpoint(rows))


class Kept(NamedTuple):
    """What stays as the last run left it, for these senders are judged by the same as then."""

    senders: DataFrame
    verdicts: DataFrame
    transactions: DataFrame

    @classmethod
    def of(cls, warehouse: Warehouse, senders: DataFrame) -> Self:
        """What stays where the SENDERS are these now."""
        tables = (SENDERS, VERDICTS, TRANSACTIONS)
        left = as_left(warehouse, "replay", tables)
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
    stood = previous_warehouse.version(warehouse.spark, config)
    options = {"reading": config.reading, "scope": config.scope, "continue_from": stood}
    reading, scope = Reading(config.reading), Scope(config.scope)

    def write() -> None:
        messages, streams, stream_gaps, quarantine, acks, handshakes = (warehouse.read(table) for table in SOURCES)
        states, ends_before = previous_warehouse.tables(warehouse.spark, config)
        ends = _settled(with_peers(streams, handshakes, ends_before))
        grounds = ReplayInputs.of(messages, ends, stream_gaps, quarantine, acks, scope=scope, settle=_settled)
        senders = _settled(grounds.by_sender(repr((options, code_version.results_hash()))))
        kept = Kept.of(warehouse, senders)
        judged = judge_messages(grounds.without(kept.senders), states, reading=reading, settle=_settled)
        warehouse.replace(VERDICTS, judged.unionByName(kept.verdicts))
        progress("replay: wrote verdicts")
        verdicts = warehouse.read(VERDICTS)
        transactions = assemble_transactions(kept.others(verdicts)).unionByName(kept.transactions)
        run_in_parallel(
            partial(warehouse.replace, table, rows)
            for table, rows in (
                (ENDS, ends),
                (SEQUENCES, summarize_sequences(verdicts)),
                (STATES, summarize_states(verdicts, states, reading=reading)),
                (SESSIONS, summarize_sessions(messages, ends, stream_gaps, quarantine, verdicts, scope=scope)),
                (TRANSACTIONS, transactions),
            )
        )
        progress("replay: wrote ends, sequences, states, sessions, transactions")
        written = (verdicts, warehouse.read(SEQUENCES), warehouse.read(TRANSACTIONS))
        answers = pair_acks(acks, ends, verdicts)
        concerned = _settled(concerned_messages(verdicts, watched_sessions(ends, grounds.runs, answers)))
        warehouse.replace(FINDINGS, collect_findings(messages, ends, answers, *written, concerned))
        warehouse.replace(SENDERS, senders)
        progress("replay: wrote findings, senders")

    derived = derive(warehouse, "replay", TABLES, SOURCES, write, code=code_version.results_hash(), **options)
    if not derived:
        progress("replay: nothing new")
    return derived
