"""Decodes packets into messages, acks, handshakes and session_acks; packets that do not decode go to quarantine.

Only packets that are new or changed since the last run are decoded, unless the program or its options have changed. Few
are decoded in this process.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.engine.on_spark import engine_of
from jobs.replaying.decoding import decode_arrow, decode_table, quarantine_of
from jobs.steps import in_memory, reconcile
from jobs.steps.summary import decode_summary
from jobs.transforms.decode import decode_rows, quarantine_rows
from jobs.warehouse import publish_lock
from jobs.warehouse.provenance import derive, sources_read
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, QUARANTINE, Stage
from schemas.messages import DECODED_TABLES
from schemas.table import Table
from udfs.msmq.pseudonyms import pseudonymize

SOURCES = (PACKETS,)
_UNDECODABLE = f"stage = '{Stage.DECODE}'"


def run(spark: SparkSession, config: Config) -> Summary:
    """Decodes the packets and balances the books; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(PACKETS, "ingest")
    with publish_lock.hold(warehouse, config.claim_seconds) as (locked, lock):
        step(locked, config)
        lock.end_step()
        held = in_memory.with_few_messages(locked, config)
        reconcile.step(held, reconcile.DECODED)
        return decode_summary(engine_of(held))


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decodes the packets, unless that was done for these packets and options; returns whether it did."""

    def write() -> None:
        read = sources_read(warehouse, "decode", DECODED_TABLES, **options)
        few = _read_few(warehouse, config, read)
        if few is None:
            _decode_there(warehouse, config, read)
        else:
            _decode_here(warehouse, config, *few)

    warehouse.require(PACKETS, "ingest")
    names = pseudonymize("names", config.hiding_key) if config.hiding_key else "keep"
    options: dict[str, Any] = {"names": names, "code": code_version.results_hash()}
    is_new = derive(warehouse, "decode", DECODED_TABLES, SOURCES, write, **options)
    if not is_new:
        progress("decode: nothing new")
    return is_new


def _read_few(
    warehouse: Warehouse, config: Config, read: Mapping[str, int]
) -> tuple[pl.DataFrame, pl.DataFrame | None] | None:
    """Returns the packets that came and that went since the versions that were `read`; None for many.

    Where nothing tells what went, it returns all packets, and None.
    """
    most = in_memory.limit(config, is_local=warehouse.is_local)
    changed = warehouse.differences(PACKETS, read[PACKETS.name], PACKETS.names, most) if read and most else None
    if changed is None and in_memory.has_few_captures(warehouse, config):
        return warehouse.read_local(PACKETS), None
    return changed


def _decode_here(warehouse: Warehouse, config: Config, came: pl.DataFrame, went: pl.DataFrame | None) -> None:
    """Replaces the rows of the packets that went, or all, by those of the packets that came, in this process."""
    rows = {table: decode_table(came, table, config.hiding_key) for table in DECODED_TABLES}
    rows[QUARANTINE] = quarantine_of(came, config.quarantine_raw_bytes)
    gone = dict.fromkeys(rows, None if went is None else went.select(PACKETS.key))
    undecodable = pl.DataFrame({"stage": [Stage.DECODE.value]})
    gone[QUARANTINE] = undecodable if went is None else went.select(PACKETS.key).join(undecodable, how="cross")
    run_in_parallel(partial(warehouse.replace_rows, table, gone[table], of_table) for table, of_table in rows.items())


def _decode_there(warehouse: Warehouse, config: Config, read: Mapping[str, int]) -> None:
    """Does the same with many packets, in tasks."""
    key, raw_kept = config.hiding_key, config.quarantine_raw_bytes
    changed = warehouse.changes(PACKETS, read[PACKETS.name]) if read else None
    packets = changed.came if changed else warehouse.read(PACKETS)
    undecodable = quarantine_rows(packets, raw_kept)
    if changed:
        rows = {table: decode_rows(packets, table, key) for table in DECODED_TABLES}
        _change(warehouse, {QUARANTINE: undecodable, **rows}, changed.went)
        return
    writes = [partial(warehouse.replace, QUARANTINE, undecodable, _UNDECODABLE)]
    if not warehouse.derive_in_tasks(PACKETS, DECODED_TABLES, lambda table, rows: decode_arrow(rows, table, key)):
        writes += [partial(warehouse.replace, table, decode_rows(packets, table, key)) for table in DECODED_TABLES]
    run_in_parallel(writes)


def _change(warehouse: Warehouse, rows: Mapping[Table, DataFrame], went: DataFrame | None) -> None:
    """Deletes the rows of the packets that went, then appends those of the packets that came."""
    if went is not None:
        run_in_parallel(partial(_delete, warehouse, table, went) for table in rows)
    run_in_parallel(partial(warehouse.append, table, of_table, "decode") for table, of_table in rows.items())


def _delete(warehouse: Warehouse, table: Table, went: DataFrame) -> None:
    """Deletes the rows of these packets from a table; of QUARANTINE, those that could not be decoded."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in PACKETS.key)
    warehouse.delete(table, went, f"t.{_UNDECODABLE} AND {same}" if table is QUARANTINE else same)
