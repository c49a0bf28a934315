"""Packets into messages, acks, handshakes and session_acks; what cannot be decoded into quarantine."""

from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import codegen_for_size
from jobs.steps import reconcile
from jobs.steps.summary import captured_bytes, decode_summary
from jobs.transforms.decode import decode_rows, quarantine_undecodable
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, QUARANTINE, Stage
from schemas.messages import DECODED_TABLES
from udfs.msmq.pseudonyms import pseudonymize

SOURCES = (PACKETS,)
TABLES = DECODED_TABLES


def run(spark: SparkSession, config: Config) -> Summary:
    """Decode the packets; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    with codegen_for_size(spark, captured_bytes(warehouse)):
        step(warehouse, config)
        reconcile.step(warehouse)
        return decode_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decode the packets, unless that was done for this version of them; returns whether it was still to do."""

    def write(tag: dict[str, Any]) -> None:
        packets = warehouse.read(PACKETS)
        undecodable = quarantine_undecodable(packets, config.quarantine_raw_bytes)
        # Before the tables that say what they come of: a run that is killed in between is seen to have more to do.
        warehouse.replace(QUARANTINE, undecodable, tag, f"stage = '{Stage.DECODE}'")
        rows = {table: decode_rows(packets, table, config.hiding_key) for table in TABLES}
        run_in_parallel(partial(warehouse.replace, table, rows[table], tag) for table in TABLES)
        progress(f"decode: wrote {', '.join(table.name for table in TABLES)}")

    warehouse.require(PACKETS, "ingest")
    key = config.hiding_key
    names = pseudonymize("names", key) if key else "keep"
    derived = warehouse.derive("decode", TABLES, SOURCES, write, names=names)
    if not derived:
        progress("decode: nothing new")
    return derived
