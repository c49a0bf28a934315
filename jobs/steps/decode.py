"""Decodes packets into messages, acks, handshakes and session_acks; packets that do not decode go to quarantine.

Only packets that are new or changed since the last run are decoded, unless the program or its options have changed. A
small warehouse, which is held in memory, is decoded as a whole.
"""

from collections.abc import Mapping
from functools import partial

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.engine.of_warehouse import engine_of
from jobs.replaying.decoding import decode_arrow, decode_table, quarantine_of
from jobs.steps import in_memory, reconcile
from jobs.steps.summary import decode_summary
from jobs.transforms.decode import decode_rows, quarantine_rows
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
    with in_memory.hold(warehouse, config) as (held, lock):
        step(held, config)
        lock.end_step()
        reconcile.step(held, reconcile.DECODED)
        return decode_summary(engine_of(held))


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decodes the packets, unless that was done for these packets and options; returns whether it did."""

    def write() -> None:
        if warehouse.local is None:
            _decode_there(warehouse, config, sources_read(warehouse, "decode", DECODED_TABLES, **options))
        else:
            writes = [partial(_decode_in_memory, warehouse, table, key) for table in DECODED_TABLES]
            run_in_parallel([*writes, partial(_quarantine_in_memory, warehouse, config.quarantine_raw_bytes)])

    warehouse.require(PACKETS, "ingest")
    key = config.hiding_key
    names = pseudonymize("names", key) if key else "keep"
    options = {"names": names, "code": code_version.results_hash()}
    is_new = derive(warehouse, "decode", DECODED_TABLES, SOURCES, write, **options)
    if not is_new:
        progress("decode: nothing new")
    return is_new


def _decode_there(warehouse: Warehouse, config: Config, read: Mapping[str, int]) -> None:
    """Decodes the packets that changed since the versions that were `read`; all, without one."""
    key, raw_kept = config.hiding_key, config.quarantine_raw_bytes
    most = in_memory.limit(config, warehouse.log_place(PACKETS))
    few = warehouse.differences(PACKETS, read[PACKETS.name], PACKETS.names, most) if read and most else None
    if few:
        came, went = few
        _change_here(warehouse, came, went.select(PACKETS.key), key, raw_kept)
        return
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


def _change_here(
    warehouse: Warehouse, came: pl.DataFrame, went: pl.DataFrame, key: bytes | None, raw_kept: int
) -> None:
    """Does what `_change` does with few packets, in this process as far as it can."""
    rows = {table: decode_table(came, table, key) for table in DECODED_TABLES}
    rows[QUARANTINE] = quarantine_of(came, raw_kept)
    gone = dict.fromkeys(rows, went)
    gone[QUARANTINE] = went.with_columns(stage=pl.lit(Stage.DECODE.value))
    run_in_parallel(partial(warehouse.replace_rows, table, gone[table], of_table) for table, of_table in rows.items())


def _delete(warehouse: Warehouse, table: Table, went: DataFrame) -> None:
    """Deletes the rows of these packets from a table; of QUARANTINE, those that could not be decoded."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in PACKETS.key)
    warehouse.delete(table, went, f"t.{_UNDECODABLE} AND {same}" if table is QUARANTINE else same)


def _decode_in_memory(warehouse: Warehouse, table: Table, key: bytes | None) -> None:
    warehouse.replace_local(table, decode_table(warehouse.read_local(PACKETS), table, key))


def _quarantine_in_memory(warehouse: Warehouse, raw_kept: int) -> None:
    """Replaces the packets in quarantine that cannot be decoded, if there are or were any."""
    undecodable, before = quarantine_of(warehouse.read_local(PACKETS), raw_kept), warehouse.read_local(QUARANTINE)
    kept = before.filter(pl.col("stage") != Stage.DECODE.value)
    if undecodable.height or kept.height != before.height:
        warehouse.replace_local(QUARANTINE, pl.concat([kept, undecodable]))
