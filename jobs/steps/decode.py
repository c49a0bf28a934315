"""Decodes packets into messages, acks, handshakes and session_acks; packets that do not decode go to quarantine."""

from functools import partial

from pyspark.sql import SparkSession

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import codegen_for_size
from jobs.steps import reconcile
from jobs.steps.summary import captured_bytes, decode_summary
from jobs.transforms.decode import decode_rows, quarantine_undecodable
from jobs.warehouse import publish_lock
from jobs.warehouse.provenance import derive
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, QUARANTINE, Stage
from schemas.messages import DECODED_TABLES
from udfs.msmq.pseudonyms import pseudonymize

SOURCES = (PACKETS,)
TABLES = DECODED_TABLES


def run(spark: SparkSession, config: Config) -> Summary:
    """Decodes the packets and balances the books; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(PACKETS, "ingest")
    size = captured_bytes(warehouse)
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, lock), codegen_for_size(spark, size):
        step(held, config)
        lock.end_step()
        reconcile.step(held, reconcile.DECODED)
        return decode_summary(held)


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decodes the packets, unless that was done for these packets and options; returns whether it did."""

    def write() -> None:
        packets = warehouse.read(PACKETS)
        rows = {table: decode_rows(packets, table, config.hiding_key) for table in TABLES}
        undecodable = quarantine_undecodable(packets, config.quarantine_raw_bytes)
        run_in_parallel(
            [
                partial(warehouse.replace, QUARANTINE, undecodable, f"stage = '{Stage.DECODE}'"),
                *(partial(warehouse.replace, table, rows[table]) for table in TABLES),
            ]
        )
        progress(f"decode: wrote {', '.join(table.name for table in TABLES)}")

    warehouse.require(PACKETS, "ingest")
    key = config.hiding_key
    names = pseudonymize("names", key) if key else "keep"
    options = {"names": names, "code": code_version.results_hash()}
    is_new = derive(warehouse, "decode", TABLES, SOURCES, write, **options)
    if not is_new:
        progress("decode: nothing new")
    return is_new
