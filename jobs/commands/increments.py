"""Decides what this process has the memory for: captures to read, packets to decode, and messages to replay."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

from jobs.cli.capture_listing import (
    AS_INGESTED,
    FEW_BYTES,
    Stamp,
    bytes_of,
    changed_files,
    files_if_any,
    most_in_memory,
    most_messages,
)
from jobs.cli.config import Config
from jobs.cli.spark_session import FOR_FEW_ROWS, UNCOMPILED, StartingSession, session_settings
from jobs.engines.processes import Processes, cores
from jobs.tables import publish_lock
from jobs.tables.memory import Memory
from jobs.tables.publish_lock import PublishLock
from jobs.tables.warehouse import Warehouse
from schemas.ingest import CAPTURES, PACKETS
from udfs.frames.engine import Row
from udfs.ingest import extract

T = TypeVar("T")
_WORTH_TASKS = 64 << 20
"""Bytes of captures from which on several tasks in each stage take less time than one."""
_WORTH_TASKS_FOR_DELTA = 256 << 20
"""Bytes from which on they do where Spark writes the tables: most queries are then Delta's, of logs with few rows."""
_WORTH_COMPILING = 1 << 30
"""Bytes from which on compiling queries may save more time than it takes: most rows are only in Python's processes."""
_WORTH_PROCESSES = 512 << 20
"""Bytes of captures from which on reading them in several processes takes less time than starting these."""


def limit(warehouse: Warehouse, config: Config) -> int:
    """Returns how many bytes of captures this process reads at a time.

    That is at most a share of the machine's memory; and few if the tables come and go through Spark.
    """
    most = most_in_memory(config.in_memory_bytes)
    return min(most, FEW_BYTES) if warehouse.needs_spark else most


def processes(size: int) -> Processes | None:
    """Starts processes to read captures of so many bytes, if that is worth it."""
    return Processes(cores(), extract.__name__) if size >= _WORTH_PROCESSES and cores() > 1 else None


def fit(warehouse: Warehouse, config: Config, files: Mapping[str, Stamp]) -> bool:
    """Returns whether this process has the memory to read these captures, by `increments` if need be."""
    most = limit(warehouse, config)
    return bool(most) and all(bytes_of(dict(some), most) <= most for some in _apart(warehouse, files.items()))


def increments(warehouse: Warehouse, config: Config, captures: Sequence[Row]) -> list[list[Row]]:
    """Returns captures in parts that this process has the memory for, in their order, each to be completed by itself.

    Of more than it has the memory for, several in one part have at most half as many bytes, because what earlier parts
    brought needs memory, too. A capture that is too large is a part of its own, for tasks of Spark.
    """
    most, parts, size = limit(warehouse, config), [list[Row]()], 0
    at_once = most if sum(capture["content_bytes"] for capture in captures) <= most else most // 2
    for some in _apart(warehouse, captures) if most else [list(captures)]:
        more = sum(capture["content_bytes"] for capture in some)
        size += more
        if parts[-1] and size > at_once:
            parts.append([])
            size = more
        parts[-1] += some
    return list(filter(None, parts))


def _apart(warehouse: Warehouse, captures: Iterable[T]) -> list[list[T]]:
    """Returns what has to fit in memory together: one capture or, where an increment's commits cost much, all."""
    return [list(captures)] if warehouse.needs_spark else [[capture] for capture in captures]


def needs_no_tasks(warehouse: Warehouse, config: Config, files: Mapping[str, Stamp]) -> bool:
    """Returns whether a night with these files, and tables that need no Spark, is known to need no tasks of Spark."""
    count = warehouse.count(PACKETS)
    if count is None or count > most_messages(config.in_memory_messages):
        return False
    if warehouse.has(CAPTURES):
        known = warehouse.read_local(CAPTURES, *AS_INGESTED)
        again = files_if_any(config.again)
        files = {file: files[file] for file in changed_files(known.to_dicts(), files, again)}
    return fit(warehouse, config, files)


def has_few_captures(warehouse: Warehouse, config: Config) -> bool:
    """Returns whether this process is known to have the memory for all captures that were ingested."""
    return _bytes_ingested(warehouse) < limit(warehouse, config)


@contextmanager
def hold(
    warehouse: Warehouse, config: Config, files: Mapping[str, Stamp] | None = None, **how: bool
) -> Iterator[tuple[Warehouse, PublishLock]]:
    """Holds the publish lock (`publish_lock.hold`), and gives Spark its settings for the warehouse and these files."""
    with (
        publish_lock.hold(warehouse, config.claim_seconds, **how) as (locked, lock),
        session_settings(warehouse.spark, _settings(locked, files or {})),
    ):
        yield locked, lock


def reading(warehouse: Warehouse) -> AbstractContextManager[None]:
    """Gives Spark its settings for a run that only reads the warehouse, where that needs Spark."""
    return session_settings(warehouse.spark, _settings(warehouse, {})) if warehouse.needs_spark else nullcontext()


def _settings(warehouse: Warehouse, files: Mapping[str, Stamp]) -> Mapping[str, str]:
    """Returns the settings of a session, by the size of the warehouse with these files.

    A session that is just starting is left alone, as nobody may wait for it yet.
    """
    if isinstance(warehouse.spark, StartingSession):
        return {}
    few = _WORTH_TASKS_FOR_DELTA if warehouse.needs_spark else _WORTH_TASKS
    with warehouse.without_compiling():
        size = _bytes_ingested(warehouse) + bytes_of(files, few)
    if size < few:
        return FOR_FEW_ROWS
    return UNCOMPILED if size < _WORTH_COMPILING else {}


def _bytes_ingested(warehouse: Warehouse) -> int:
    """Returns the size of the captures in the table."""
    return int(warehouse.read_local(CAPTURES, "content_bytes")["content_bytes"].sum())


def with_few_messages(warehouse: Warehouse, config: Config) -> Warehouse:
    """Returns the warehouse to replay and to report on, which is held in memory where its packets are few enough.

    They may be few although the captures are many: a replay needs neither these nor the packets' bytes. And there may
    be more than can be judged: those that the last replay settled stay in files, where these can be read without Spark.
    """
    packets, memory = warehouse.count(PACKETS), Memory(most_messages(config.in_memory_messages))
    if packets is None or packets > (memory.most_to_judge if warehouse.needs_spark else memory.most_settled):
        return warehouse
    return replace(warehouse, local=memory)


def can_judge_all(warehouse: Warehouse) -> bool:
    """Returns whether a warehouse is held in memory that is enough to judge all its messages."""
    return warehouse.local is not None and (warehouse.count(PACKETS) or 0) <= warehouse.local.most_to_judge
