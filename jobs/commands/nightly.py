"""Runs ingest, decode, replay and report in order."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from typing import cast

from pyspark.sql import SparkSession

from jobs.cli import command
from jobs.cli.capture_listing import Stamp, stamps
from jobs.cli.command import STARTING, Summary
from jobs.cli.config import Config
from jobs.cli.logs import step
from jobs.cli.names import Names
from jobs.cli.spark_session import StartingSession, open_session, starts_own_jvm
from jobs.commands import decode, increments, ingest, naming, reconcile, replay, report, unchanged_run
from jobs.commands.record_run import Run, record
from jobs.commands.summary import summary, with_names
from jobs.engines.on_spark import engine_of
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.warehouse import Warehouse

_STEPS = 5  # with the start of Spark


def run(spark: SparkSession, config: Config, files: Mapping[str, Stamp] | None = None) -> Summary:
    """Runs one night under the publish lock; returns its summary. `files`: the captures, if they are listed already."""
    summary, _ = _night(spark, config, _list(config) if files is None else files)
    return summary


def _night(spark: SparkSession, config: Config, files: Mapping[str, Stamp]) -> tuple[Summary, int]:
    """Runs one night; returns its summary, which another run without new captures has too, and how many are new."""
    began_at, names = datetime.now(UTC), Names.read(config.names_file)
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, upgrades=True)
    starting = spark if isinstance(spark, StartingSession) else None
    with increments.hold(warehouse, config, files) as (held, lock), ExitStack() as until_read:
        with step("ingest", 1 if starting else 2, _STEPS):
            new = ingest.find_new(held, config, list(files))
            until_read.enter_context(new.processes or nullcontext())
            first, *others = new.increments or [()]
            at = ingest.take_in(held, config, new, first)
            # If it is killed, a night is begun again where that is cheaper than to record its steps: where it needs no
            # tasks, and where Spark alone commits and the captures are few.
            is_small = not others and (starting is not None or (held.needs_spark and new.fits))
            end_step: Callable[[], None] = (lambda: None) if is_small else lock.end_step
            end_step()
        if starting:
            with step(STARTING, 2, _STEPS):
                starting.wait()
        replayed = _derive(held, config, end_step)
        for number, increment in enumerate(others, 2):
            of = f", increment {number} of {len(new.increments)}"
            replayed = held  # the tables of the last increment leave this process
            end_step()
            with step(f"ingest{of}", 2, _STEPS):
                at = ingest.take_in(held, config, new, increment, at)
                end_step()
            replayed = _derive(held, config, end_step, of)
        until_read.close()
        if replayed.local is None:
            with step("replay", 4, _STEPS):
                replay.step(replayed, config)
        reconcile.step(replayed)
        naming.step(replayed, names)
        with step("report", 5, _STEPS):
            report.step(replayed, config)
            found = with_names(summary(engine_of(replayed), held.place, names), names)
        place = report.destination(held, config)
        found |= {} if place is None else {"report": place}
        many = sum(map(len, new.increments))
        record(held, config, Run(lock.run, "nightly", began_at), found | {"new_captures": many}, many)
        if not found["books"]["unbalanced"]:
            unchanged_run.remember(held, config, new.files, found)
    return found, many


def _derive(held: Warehouse, config: Config, end_step: Callable[[], None], of: str = "") -> Warehouse:
    """Decodes and replays what is new, `of` an increment; returns the warehouse as it was replayed.

    What is too much for this process is not replayed: that is done once, at the end.
    """
    with step(f"decode{of}", 3, _STEPS):
        decode.step(held, config)
        end_step()
    replayed = increments.with_few_messages(held, config)
    if replayed.local is not None:
        with step(f"replay{of}", 4, _STEPS):
            replay.step(replayed, config)
    return replayed


def main(arguments: Sequence[str]) -> int:
    """Runs the command; starts Spark only if something is new."""

    def night(config: Config) -> Summary:
        files = _list(config)
        if (found := unchanged_run.recall(config, files)) is not None:
            return found | _nothing_new(found, files)
        found, new_captures = _night(_start(config, files), config, files)
        return found | ({"new_captures": new_captures} if new_captures else _nothing_new(found, files))

    return command.main_alone("nightly", night, arguments)


def _nothing_new(summary: Summary, files: Mapping[str, Stamp]) -> Summary:
    """Returns what a summary says in addition where no capture is new: the night saw nothing."""
    read = f"{len(files):,} files are there, and all were read before" if files else "no file is there"
    newest = (summary.get("period") or {}).get("last")
    until = f" What follows ends at {newest}." if newest else ""
    ask = "Look whether the capturing machine still writes captures, and whether this is the folder."
    return {"new_captures": 0, "no_data": f"No new capture came: {read}. {ask}{until}"}


def _list(config: Config) -> Mapping[str, Stamp]:
    return stamps(ingest.files_to_read(config))


def _start(config: Config, files: Mapping[str, Stamp]) -> SparkSession:
    """Starts Spark, for a night that needs no tasks while its captures are read."""
    name, warehouse = "msmq-replay nightly", open_warehouse(None, config)
    if not warehouse.needs_spark:
        require_own(warehouse, upgrades=True)
        if starts_own_jvm() and increments.needs_no_tasks(warehouse, config, files):
            return cast(SparkSession, StartingSession(name, verbose=config.verbose))
    with step(STARTING, 1, _STEPS):
        return open_session(name, verbose=config.verbose)
