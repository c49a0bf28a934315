"""Measures the replay's transforms on generated rows: `python tests/bench_replay.py --messages 1000000 --scopes 1000`.

Spark generates the tables that they read, so ten million messages need no capture and no decoding. A process of its own
does so, and its memory does not count. CPU time is that of all processes of the run; memory is what each process held
most, and what all held at one time. `--hash` prints a hash of each result, to compare two versions of the program.
`--command` measures the command `replay` instead, on a warehouse that was made so.
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

from made_messages import made, write_warehouse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.logs import log_as
from jobs.app.logs import step as logged
from jobs.app.spark_session import open_session
from jobs.bench.measure import Memory, Watched, measured, watch
from jobs.steps import replay as step
from jobs.transforms.facts.arrivals import watched_sessions
from jobs.transforms.facts.kinds import facts_of_messages
from jobs.transforms.outcomes.rows import Outcomes, message_fates
from jobs.transforms.replay.acknowledgments import pair_acks
from jobs.transforms.replay.coverage import unread_ranges
from jobs.transforms.replay.peers import with_peers
from jobs.transforms.summaries.sequences import summarize_sequences, summarize_states
from jobs.transforms.summaries.sessions import summarize_sessions
from jobs.warehouse import checkpoint

_FIRST_SCOPES = 100  # of a smaller run before the others, after which the JVM has compiled
_STARTING, _COPYING, _REPLAYING = "Starting Spark", "copy", "replay"  # as logged
_MEMORY = ("the JVM, MB", "the largest Python process, MB", "all together, MB")
_OPERATORS = ("Exchange", "BroadcastExchange", "Sort", "Window", "Scan", "HashAggregate", "SortMergeJoin")

Held = dict[int, tuple[bool, float]]
"""Of each process, by its number: is it a JVM, and the most that it held, in MB."""


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


def write_made(spark: SparkSession, folder: Path, cases: Iterable[tuple[int, int]], *, warehouses: bool) -> None:
    """Writes the tables of each case, so many messages and scopes, to a folder of its own."""
    for messages, scopes in cases:
        place = folder / f"{messages}-{scopes}"
        if warehouses:
            write_warehouse(spark, place, messages, scopes)
        else:
            for name, rows in made(spark, messages, scopes).items():
                rows.write.parquet(str(place / name))


def copy_messages(warehouse: Path) -> None:
    """Reads the messages of a warehouse and writes them back, beside the others."""
    log_as("json")
    with logged(_STARTING):
        spark = open_session("messages, written back")
    with logged(_COPYING):
        rows = spark.read.format("delta").load(str(warehouse / "messages"))
        rows.write.format("delta").save(str(warehouse / "messages_again"))


def measure_command(warehouse: Path, messages: int) -> list[str]:
    """Returns the cost of the command on a warehouse, as lines of Markdown; each run is a process of its own."""
    heads = ("run", "wall s", "CPU s", *_MEMORY[::2], "each Python process, MB")
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]

    def row(name: str, run: Watched) -> str:
        pythons = ", ".join(f"{mb:.0f}" for mb in run.pythons_mb)
        cells = (
            f"{run.cost.wall_s:.1f}",
            f"{run.cost.cpu_s:.1f}",
            f"{run.jvm_mb:.0f}",
            f"{run.together_mb:.0f}",
            pythons,
        )
        return f"| {name} | {' | '.join(cells)} |"

    copied = watch([sys.executable, __file__, "--copy", str(warehouse)])
    lines.append(row("messages read and written back", copied))
    replay = (sys.executable, "-m", "jobs.cli", "replay")
    replayed = watch([*replay, "--warehouse", str(warehouse), "--log-format", "json"])
    lines.append(row("replay", replayed))
    cpu_s, base_s = replayed.steps[_REPLAYING].cpu_s, copied.steps[_COPYING].cpu_s
    sentence = (
        f"Without starting Spark, replay takes {cpu_s:.1f} CPU s, {cpu_s / messages * 1e6:.1f} µs a message: "
        f"{cpu_s / base_s:.1f} times as much as reading the messages and writing them back ({base_s:.1f} CPU s)."
    )
    return [*lines, "", sentence]


def main() -> None:
    """Replays the given numbers of messages and scopes, and prints the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--heap", default="4g", help="of the JVM")
    parser.add_argument("--hash", action="store_true", help="print a hash of each result")
    parser.add_argument("--command", action="store_true", help="measure the command, not its parts")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)  # only write the tables, to this folder
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)  # only read and write messages of this warehouse
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[2] --driver-memory {asked.heap} pyspark-shell")
    first = (asked.messages // 20, _FIRST_SCOPES)
    cases = [*(() if asked.command else (first,)), *((asked.messages, scopes) for scopes in asked.scopes)]
    if asked.copy:
        copy_messages(asked.copy)
        return
    if asked.make:
        write_made(open_session("tables for a benchmark"), asked.make, cases, warehouses=asked.command)
        return
    with TemporaryDirectory() as given:
        subprocess.run([sys.executable, *sys.argv, "--make", given], check=True)
        measure = measure_command if asked.command else measure_parts(hashes=asked.hash)
        for messages, scopes in cases:
            print(f"\n{messages:,} messages in {scopes:,} scopes\n", flush=True)  # noqa: T201
            print(*measure(Path(given, f"{messages}-{scopes}"), messages), sep="\n", flush=True)  # noqa: T201


def measure_parts(*, hashes: bool) -> Callable[[Path, int], list[str]]:
    """Returns what measures each part of the replay on made tables, all in one session, as lines of Markdown."""
    spark = open_session("benchmark of the replay")

    def measure(given: Path, messages: int) -> list[str]:
        with TemporaryDirectory() as folder, Memory() as memory:
            bench = Bench(spark, given, Path(folder), memory)
            with mock.patch.object(step, "materialize", bench.materialize):
                lines = bench.replay(messages)
            return [*lines, *(bench.hashes() if hashes else ())]

    return measure


if __name__ == "__main__":
    main()
