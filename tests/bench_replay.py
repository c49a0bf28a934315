"""Measures the replay's transforms on generated rows: `python tests/bench_replay.py --messages 1000000 --scopes 1000`.

Spark generates the tables that they read, so ten million messages need no capture and no decoding. A process of its own
does so, and its memory does not count. CPU time is that of all processes of the run; memory is what each process held
most, and what all held at one time. `--hash` prints a hash of each result, to compare two versions of the program.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from replay_tables import T0, TABLES

from jobs.app.spark_session import open_session
from jobs.bench.measure import Memory, measured
from jobs.steps import replay as step
from jobs.transforms.facts.arrivals import watched_sessions
from jobs.transforms.facts.kinds import facts_of_messages
from jobs.transforms.outcomes.rows import Outcomes, message_fates
from jobs.transforms.replay.acknowledgments import pair_acks
from jobs.transforms.replay.coverage import unread_ranges
from jobs.transforms.replay.peers import NULL_GUID, with_peers
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.warehouse import checkpoint
from schemas.wire import UNLIMITED

_ROUND = 500  # messages of a scope; one is resent, two are swapped and one number expires
_NUMBERS = 499  # of a round
_ROUNDS = 200  # of a sequence
_ON_CONNECTION = 20_000  # messages of a scope per connection
_SPACING_NS = 10_000_000
_ACKNOWLEDGED = 20  # messages per OrderAck
_FIRST_SCOPES = 100  # of a smaller run before the others, after which the JVM has compiled
_LOST = 10_000  # messages, of which the capture misses one
_MEMORY = ("the JVM, MB", "the largest Python process, MB", "all together, MB")
_OPERATORS = ("Exchange", "BroadcastExchange", "Sort", "Window", "Scan", "HashAggregate", "SortMergeJoin")

Held = dict[int, tuple[bool, float]]
"""Of each process, by its number: is it a JVM, and the most that it held, in MB."""


def guid(prefix: str, number: Column) -> Column:
    """Returns the GUID of a generated queue manager."""
    return F.concat(F.lit(prefix), F.lpad(number.cast("string"), 7, "0"), F.lit("-1234-5678-9abc-def012345678"))


def sent(spark: SparkSession, messages: int, scopes: int) -> DataFrame:
    """Returns one row per message: `scope`, its place `k` in it, its numbers, connection and stream offset."""
    of_scope = -(-messages // scopes)
    scope, k = F.expr(f"id div {of_scope}"), F.col("id") % of_scope
    rows = spark.range(messages).select(scope.alias("scope"), k.alias("k"))
    rows = rows.withColumn("turn", F.col("k") + F.col("scope") * 37 % _ROUND if of_scope < _ROUND else F.col("k"))
    p, turn = F.col("p"), F.expr(f"turn div {_ROUND}")
    steps = (  # of a round: from which place on, the number there, less the place
        (300, F.lit(0)),
        (203, F.lit(-1)),
        (202, F.lit(-1)),
        (201, F.lit(-1)),
        (200, F.lit(1)),
        (101, F.lit(0)),
        (100, F.lit(-9)),
    )
    less: Column = F.lit(1)
    for place, number in reversed(steps):
        less = F.when(p >= place, number).otherwise(less)
    number = turn % _ROUNDS * _NUMBERS + p + less
    previous = F.when((F.col("k") == 0) | (F.col("number") == 1), 0).otherwise(
        F.col("number") - F.when(p == 300, 2).otherwise(1)
    )
    sequence = (7_000_000_000_000_000_000 + F.col("scope") * 1_000_000 + F.expr(f"turn div {_ROUND * _ROUNDS}")).cast(
        "decimal(20,0)"
    )
    return (
        rows.withColumn("p", F.col("turn") % _ROUND)
        .withColumn("number", number.cast("long"))
        .withColumn("previous", previous.cast("long"))
        .withColumn("sequence", sequence)
        .withColumn("connection", F.expr(f"k div {_ON_CONNECTION}"))
        .withColumn("offset", F.col("k") % _ON_CONNECTION * 1000)
        .withColumn("ns", T0 + F.col("k") * _SPACING_NS + F.col("scope"))
        # Of ten senders one sends to two queues. Their sequences are numbered apart, their messages are not.
        .withColumn("second", (F.col("scope") % 10 == 1).cast("long"))
        .withColumn("source", guid("a", F.col("scope") - F.col("second")))
        .withColumn("receiver", guid("b", F.col("scope") % 50))
        .withColumn("stream_id", _stream_id(forth=True))
    )


def _stream_id(*, forth: bool) -> Column:
    ends = F.concat(F.lit("10.0."), F.col("scope"), F.lit(".1:"), 49_152 + F.col("connection")), F.lit("10.9.0.1:1801")
    return F.concat_ws(">", *(ends if forth else ends[::-1]))


def made(spark: SparkSession, messages: int, scopes: int) -> dict[str, DataFrame]:
    """Returns the tables and columns that the replay reads."""
    rows = sent(spark, messages, scopes)
    lost = F.col("k") % _LOST == _LOST - 1
    at = F.timestamp_micros(F.expr("ns div 1000"))
    ordinal = F.col("k") + 1
    known = {
        "stream_offset": F.col("offset"),
        "captured_at": at,
        "captured_ns": F.col("ns"),
        "capture_id": F.lit("0123456789abcdef0123456789abcdef"),
        "first_frame": F.col("k") * 2,
        "last_frame": F.col("k") * 2 + 1,
        "source_queue_manager": F.col("source"),
        "queue_manager_address": F.lit(NULL_GUID),
        "destination_queue": F.concat(F.lit("DIRECT=OS:server\\private$\\orders"), F.col("scope")),
        "message_id": F.concat_ws("\\", "source", F.col("number") * 2 + F.col("second")),
        "message_id_ordinal": ordinal,
        "label": F.concat(F.lit("order "), F.col("number")),
        "transactional": F.lit(True),
        "tx_sequence_id": F.col("sequence"),
        "tx_sequence_ordinal": F.col("scope"),
        "tx_sequence_timestamp": F.lit(1_600_000_000),
        "tx_sequence_number": F.col("number"),
        "previous_tx_sequence_number": F.col("previous"),
        "tx_first": F.col("number") % 4 == 1,
        "tx_last": F.col("number") % 4 == 0,
        "tx_transaction_id": F.expr("((number - 1) div 4 * 2 + second) % 1048576"),
        "message_class": F.lit(0),
        "body_size": F.lit(1000),
        "body_type": F.lit(8),
        "application_tag": F.lit(0),
        "extension_size": F.lit(0),
        "correlation_id": F.lit(None),
        "sent_at": at - F.expr("interval 1 second"),
        "time_to_reach_queue": F.lit(UNLIMITED),
        "time_to_be_received": F.lit(UNLIMITED),
    }
    ends = (
        rows.groupBy("scope", "connection", "source", "receiver")
        .agg(F.min(at).alias("first_captured_at"), F.max(at).alias("last_captured_at"), F.count("*").alias("n"))
        .withColumn("connection_id", _stream_id(forth=True))
        .withColumn("stream_id", F.explode(F.array(_stream_id(forth=True), _stream_id(forth=False))))
        .withColumn("from_initiator", F.col("stream_id") == F.col("connection_id"))
        .withColumn("addresses", F.transform(F.split("stream_id", ">"), lambda end: F.substring_index(end, ":", 1)))
    )
    acknowledged = rows.where(F.col("k") % _ACKNOWLEDGED == _ACKNOWLEDGED - 1)
    made_columns: dict[str, tuple[DataFrame, dict[str, Column]]] = {
        "messages": (rows.where(~lost), known),
        "streams": (
            ends,
            {
                "src_ip": F.col("addresses")[0],
                "dst_ip": F.col("addresses")[1],
                "mid_stream": F.lit(False),
                "recovered_bytes": F.col("n") * 1000,
                "missing_bytes": F.lit(0),
            },
        ),
        "stream_gaps": (rows.where(lost), {"stream_offset": F.col("offset"), "length": F.lit(1000)}),
        "quarantine": (rows.where("false"), {"stage": F.lit("framing"), "stream_offset": F.col("offset")}),
        "acks": (
            acknowledged,
            {
                "stream_id": _stream_id(forth=False),
                "stream_offset": F.col("offset"),
                "captured_at": at,
                "captured_ns": F.col("ns") + 5_000_000,
                "ack_type": F.lit("order_ack"),
                "source_queue_manager": F.col("receiver"),
                "queue_manager_address": F.when(F.col("k") % 40 == 19, NULL_GUID).otherwise(F.col("source")),
                "tx_sequence_id": F.col("sequence"),
                "tx_sequence_number": F.col("number"),
                "previous_tx_sequence_number": F.col("previous"),
            },
        ),
        "handshakes": (
            ends,
            {
                "stream_offset": F.lit(0),
                "handshake_type": F.lit("establish_connection"),
                "client_guid": F.col("source"),
                "server_guid": F.when(F.col("from_initiator"), NULL_GUID).otherwise(F.col("receiver")),
            },
        ),
    }
    return {name: _shaped(name, *of) for name, of in made_columns.items()}


def _shaped(name: str, rows: DataFrame, columns: dict[str, Column]) -> DataFrame:
    table, names = TABLES[name]
    return rows.select(
        *(
            columns.get(column, F.col(column) if column in rows.columns else F.lit(None))
            .cast(table.spark[column].dataType)
            .alias(column)
            for column in names
        )
    )


def memory_of(peaks: Held) -> str:
    """Returns a sentence on the most memory that each process held; that of this process is the driver's."""
    jvm_mb = max((peak for java, peak in peaks.values() if java), default=0.0)
    workers = sorted((peak for pid, (java, peak) in peaks.items() if not java and pid != os.getpid()), reverse=True)
    driver_mb = peaks.get(os.getpid(), (False, 0.0))[1]
    others = ", ".join(f"{peak:,.0f}" for peak in workers) or "none"
    return (
        f"The JVM held {jvm_mb:,.0f} MB, the driver's Python {driver_mb:,.0f} MB, other Python processes {others} MB."
    )


class Bench:
    """Reads the tables in the folder `given`, writes others to a folder, and measures each."""

    def __init__(self, spark: SparkSession, given: Path, folder: Path, memory: Memory) -> None:
        self.spark, self.given, self.folder, self.memory = spark, given, folder, memory
        self.planned: list[DataFrame] = []

    def table(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes rows; returns them as read again."""
        self.planned.append(rows)
        path = str(self.folder / name)
        rows.write.parquet(path)
        return self.spark.read.parquet(path)

    def materialize(self, rows: DataFrame, most: int = checkpoint.MOST_ROWS) -> DataFrame:
        """Materializes rows as the job does."""
        self.planned.append(rows)
        return checkpoint.materialize(rows, most)

    def operators(self) -> Counter[str]:
        """Counts the operators of the plans since the last call."""
        text = StringIO()
        with redirect_stdout(text):
            for rows in self.planned:
                rows.explain()
        self.planned.clear()
        words = text.getvalue().replace("(", " ").replace("*", " ").split()
        return Counter(word for word in words if word in _OPERATORS)

    def replay(self, messages: int) -> list[str]:
        """Returns the cost of each table, as lines of Markdown."""
        tables = {path.name: self.spark.read.parquet(str(path)) for path in self.given.iterdir()}
        gaps, quarantine = tables["stream_gaps"], tables["quarantine"]
        ends = self.materialize(with_peers(tables["streams"], tables["handshakes"]))
        result: dict[str, DataFrame] = {}

        def write(name: str, make: Callable[[], DataFrame]) -> str:
            def work() -> None:
                result[name] = self.table(name, make())

            self.memory.begin()
            cost = measured(work)
            self.memory.look()
            total.append(cost.cpu_s)
            together.append(self.memory.together_mb)
            for pid, (java, peak_mb) in self.memory.peaks.items():
                most[pid] = java, max(peak_mb, most.get(pid, (java, 0.0))[1])
            held = self.memory.jvm_mb, max(self.memory.python_mb, default=0.0), self.memory.together_mb
            costs = (f"{cost.wall_s:.1f}", f"{cost.cpu_s:.1f}", f"{cost.cpu_s / messages * 1e6:.1f}")
            plans = self.operators()
            plan = " | ".join(str(plans[operator]) for operator in _OPERATORS)
            return f"| {name} | {' | '.join(costs)} | {' | '.join(f'{mb:.0f}' for mb in held)} | {plan} |"

        total: list[float] = []
        most: Held = {}
        together: list[float] = []
        derived: list[Outcomes] = []
        fates: list[DataFrame] = []

        def verdicts_of() -> DataFrame:
            read = (tables["messages"], ends, gaps, quarantine, tables["acks"])
            given = step.read_inputs(*read, materialize=self.materialize)
            return step.judge_messages(given, materialize=self.materialize)

        def outcomes() -> DataFrame:
            derived.append(step.derive_outcomes(result["verdicts"], materialize=self.materialize))
            fates.append(self.materialize(message_fates(derived[0].rows)))
            return derived[0].rows

        def found() -> DataFrame:
            tallies = derived[0].tallies
            acks = pair_acks(tables["acks"], ends, tallies)
            unread = unread_ranges(gaps, quarantine)
            verdicts, sequences, transactions = (result[name] for name in ("verdicts", "sequences", "transactions"))
            watched = watched_sessions(ends, unread, acks, tallies)
            on_messages = step.find_on_messages(verdicts, watched, derived[0])
            suspects = step.find_suspects(tables["messages"], ends, materialize=self.materialize)
            facts = facts_of_messages(tables["messages"], ends, acks, verdicts, sequences, transactions, suspects)
            return on_messages.unionByName(step.find_by_facts(facts))

        lines = [
            f"| table | wall s | CPU s | CPU µs a message | {' | '.join((*_MEMORY, *_OPERATORS))} |",
            f"| --- |{' ---: |' * (3 + len(_MEMORY) + len(_OPERATORS))}",
        ]
        self.planned.clear()
        lines.append(write("messages_again", lambda: tables["messages"]))
        (copied,) = total
        for of_copying in (total, together, most):
            of_copying.clear()
        lines += [
            write("verdicts", verdicts_of),
            write("outcomes", outcomes),
            write("sequences", lambda: summarize_sequences(derived[0].tallies, derived[0])),
            write("states", lambda: summarize_states(derived[0].tallies)),
            write(
                "sessions",
                lambda: summarize_sessions(tables["messages"], ends, gaps, quarantine, derived[0].tallies, derived[0]),
            ),
            write(
                "transactions",
                lambda: step.derive_transactions(
                    result["verdicts"], derived[0], fates[0], materialize=self.materialize
                ),
            ),
            write("findings", found),
        ]
        each_us, times = sum(total) / messages * 1e6, sum(total) / copied
        return [
            *lines,
            f"| all | | {sum(total):.1f} | {each_us:.1f} | |",
            "",
            f"All of it costs {times:.1f} times as much CPU time as reading the messages and writing them back.",
            f"{memory_of(most)} All held {max(together):,.0f} MB at one time.",
        ]

    def hashes(self) -> list[str]:
        """Returns the count and a hash of the rows of each table; their order has no influence."""
        lines = []
        for name in ("verdicts", "sequences", "states", "sessions", "transactions", "findings"):
            rows = self.spark.read.parquet(str(self.folder / name))
            of_row = F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")
            lines.append(f"{name} {rows.agg(F.count('*'), F.sum(of_row)).collect()[0]}")
        return lines


def write_made(spark: SparkSession, folder: Path, cases: Iterable[tuple[int, int]]) -> None:
    """Writes the tables of each case, so many messages and scopes, to a folder of its own."""
    for messages, scopes in cases:
        for name, rows in made(spark, messages, scopes).items():
            rows.write.parquet(str(folder / f"{messages}-{scopes}" / name))


def main() -> None:
    """Replays the given numbers of messages and scopes, and prints the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--heap", default="4g", help="of the JVM")
    parser.add_argument("--hash", action="store_true", help="print a hash of each result")
    parser.add_argument("--make", type=Path, help="only write the tables, to this folder")
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[2] --driver-memory {asked.heap} pyspark-shell")
    cases = ((asked.messages // 20, _FIRST_SCOPES), *((asked.messages, scopes) for scopes in asked.scopes))
    if asked.make:
        write_made(open_session("tables for a benchmark"), asked.make, cases)
        return
    with TemporaryDirectory() as given, Memory() as memory:
        subprocess.run([sys.executable, *sys.argv, "--make", given], check=True)
        spark = open_session("benchmark of the replay")
        for messages, scopes in cases:
            with TemporaryDirectory() as folder:
                bench = Bench(spark, Path(given, f"{messages}-{scopes}"), Path(folder), memory)
                title = f"\n{messages:,} messages in {scopes:,} scopes\n"
                with mock.patch.object(step, "materialize", bench.materialize):
                    print(title, *bench.replay(messages), sep="\n", flush=True)  # noqa: T201
                if asked.hash:
                    print(*bench.hashes(), sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
