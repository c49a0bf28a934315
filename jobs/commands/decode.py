"""Decodes packets into messages, acks, handshakes and session_acks; packets that do not decode go to quarantine.

Only packets that are new or changed since the last run are decoded, unless the program or its options have changed. Few
are decoded in this process.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli import code_version
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.logs import progress
from jobs.commands import increments, reconcile
from jobs.commands.summary import decode_summary
from jobs.engines.on_spark import engine_of
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.provenance import derive
from jobs.tables.warehouse import Rows, Warehouse
from schemas.ingest import PACKETS, QUARANTINE, Stage
from schemas.messages import DECODED_TABLES
from schemas.table import Table
from udfs.decode.flow import decode_table, quarantine_of
from udfs.frames.parallel import run_in_parallel
from udfs.msmq.pseudonyms import pseudonymize

SOURCES = (PACKETS,)


def run(spark: SparkSession, config: Config) -> Summary:
    """Decodes the packets and balances the books; returns the summary."""
    warehouse = open_warehouse(spark, config)
    require_own(warehouse)
    warehouse.require(PACKETS, "ingest")
    with increments.hold(warehouse, config) as (locked, lock):
        step(locked, config)
        lock.end_step()
        held = increments.with_few_messages(locked, config)
        reconcile.step(held, reconcile.DECODED)
        return decode_summary(engine_of(held))


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decodes the packets, unless that was done for these packets and options; returns whether it did."""

    def write(read: Mapping[str, int]) -> None:
        _decode(warehouse, config, *_changed(warehouse, config, read))

    warehouse.require(PACKETS, "ingest")
    names = pseudonymize("names", config.hiding_key) if config.hiding_key else "keep"
    options: dict[str, Any] = {"names": names, "code": code_version.results_hash()}
    is_new = derive(warehouse, "decode", DECODED_TABLES, SOURCES, write, **options)
    if not is_new:
        progress("decode: nothing new")
    return is_new


def _changed(warehouse: Warehouse, config: Config, read: Mapping[str, int]) -> tuple[Rows, Rows | None]:
    """Returns the packets that came since the versions that were `read`, and the keys of those that went.

    Where nothing tells what went, it returns all packets, and None. Few packets are in this process, many on Spark.
    """
    most = increments.limit(warehouse, config)
    if read and most and (few := warehouse.differences(PACKETS, read[PACKETS.name], PACKETS.names, most)) is not None:
        came, went = few
        return came, went.select(PACKETS.key)
    if increments.has_few_captures(warehouse, config):
        return warehouse.read_local(PACKETS), None
    changes = warehouse.changes(PACKETS, read[PACKETS.name]) if read else None
    return (engine_of(warehouse).read(PACKETS), None) if changes is None else changes


def _decode(warehouse: Warehouse, config: Config, came: Rows, went: Rows | None) -> None:
    """Replaces the rows of the packets that went, or all, by those of the packets that came."""
    engine, key, raw_kept = engine_of(warehouse), config.hiding_key, config.ingest.quarantine_raw_bytes
    rows: dict[Table, Rows] = {QUARANTINE: quarantine_of(engine, came, raw_kept)}
    rows |= {table: decode_table(engine, came, table, key) for table in DECODED_TABLES}
    gone = dict.fromkeys(rows, went) | {QUARANTINE: _undecodable(went)}
    run_in_parallel(partial(warehouse.replace_rows, table, gone[table], of_table) for table, of_table in rows.items())


def _undecodable(packets: Rows | None) -> Rows:
    """Returns which rows of QUARANTINE tell of packets that could not be decoded: of these, or of all."""
    stage = Stage.DECODE.value
    if packets is None:
        return pl.DataFrame({"stage": [stage]})
    if isinstance(packets, pl.DataFrame):
        return packets.with_columns(stage=pl.lit(stage))
    return packets.withColumn("stage", F.lit(stage))
