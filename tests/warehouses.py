"""Options of a night on a warehouse, and what its tables say."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import duckdb
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.cli.capture_listing import capture_files, stamps
from jobs.cli.config import Config
from jobs.cli.spark_session import FOR_FEW_ROWS
from jobs.commands.look import derive_tables
from jobs.engines.in_process import InProcess
from jobs.tables.in_folder import InFolder
from schemas.ingest import INTERNAL_CONNECTIONS
from schemas.runs import RUNS
from schemas.table import Table
from schemas.tables import TABLES
from udfs.capture import stores
from udfs.frames.derivation import Frames

CAPTURES = Path(__file__).parent / "captures"
LOSSES = CAPTURES / "reports" / "no_right_to_send.pcap"
"""A small capture in which messages were lost."""
OF_CAPTURES = tuple(table for table in TABLES if table != RUNS)
"""The tables of which captures decide the rows."""


def config(warehouse: Path, *captures: Path | str, **options: Any) -> Config:
    """The options of a run."""
    given: dict[str, Any] = {"captures": [str(path) for path in captures], "warehouse": str(warehouse)}
    return Config.load(given | options, None)


def rows(warehouse: Path, table: str, *, without: tuple[str, ...] = ("ingested_at",)) -> list[dict[str, Any]]:
    """A table's rows as delta-rs reads them, in an order of their own."""
    place = str(warehouse / table)
    settings = stores.options(place) if stores.in_store(place) else None
    read = DeltaTable(place, storage_options=settings).to_pyarrow_table().to_pylist()
    kept = [{name: value for name, value in row.items() if name not in without} for row in read]
    return sorted(kept, key=repr)


def all_rows(warehouse: Path, tables: Iterable[Table] = OF_CAPTURES) -> dict[str, list[dict[str, Any]]]:
    """What the tables say; but for the states, of which every run leaves its own."""
    states = ("first_instance", "tails", "state")
    without = {table: ("ingested_at", "uri", *(states if table == INTERNAL_CONNECTIONS else ())) for table in tables}
    return {table.name: rows(warehouse, table.name, without=without[table]) for table in tables}


def in_duckdb(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB that knows the tables by their names."""
    found = duckdb.connect()
    found.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        found.register(table.name, DeltaTable(str(warehouse / table.name)).to_pyarrow_dataset())
    return found


def new_session(spark: SparkSession) -> SparkSession:
    """A session with names of its own, for few rows as the tests' session is: settings are not handed on."""
    own = spark.newSession()
    for key, value in FOR_FEW_ROWS.items():
        own.conf.set(key, value)
    return own


def without_spark(folder: Path) -> InFolder:
    """The warehouse in a folder, for what is done to it without Spark."""
    return InFolder(cast(Any, None), str(folder))


def looked_at(options: Config) -> InProcess:
    """The tables of captures, derived in this process."""
    return derive_tables(stamps(capture_files(options.captures)), options)


def derived(captures: Path | str) -> Frames:
    """The rows of these tables."""
    engine = looked_at(config(Path("w"), Path(captures)))
    return {table.name: engine.read(table) for table in TABLES}
