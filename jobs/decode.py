"""Packets into messages, acks, handshakes and session_acks; what cannot be decoded into quarantine."""

import sys
from typing import Any

from pyspark.sql import SparkSession

from jobs import accounts, command
from jobs.command import Summary, progress
from jobs.config import Config
from jobs.summary import decode_summary
from jobs.transforms.decode import decoded_rows, undecodable_rows
from jobs.warehouse import Warehouse
from schemas.ingest import PACKETS, QUARANTINE, Stage
from schemas.messages import DECODED, MESSAGES
from udfs.hide import hidden

SOURCES = (PACKETS,)
TABLES = DECODED


def run(spark: SparkSession, config: Config) -> Summary:
    """Decode the packets; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    step(warehouse, config)
    accounts.step(warehouse)
    return decode_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> bool:
    """Decode the packets, unless that was done for this version of them; returns whether it was still to do."""

    def write(tag: dict[str, Any]) -> None:
        packets = warehouse.read(PACKETS)
        for table in TABLES:
            warehouse.replace(table, decoded_rows(packets, table, config.hiding_key), tag)
            progress(f"decode: wrote {table.name}")
            if table is MESSAGES:
                # Between tables that say what they come of: without a row, old or new, it makes no commit.
                undecodable = undecodable_rows(packets, config.quarantine_raw_bytes)
                warehouse.replace(QUARANTINE, undecodable, tag, f"stage = '{Stage.DECODE}'")

    warehouse.require(PACKETS, "ingest")
    key = config.hiding_key
    names = hidden("names", key) if key else "keep"
    derived = warehouse.derive("decode", TABLES, SOURCES, write, names=names)
    if not derived:
        progress("decode: nothing new")
    return derived


if __name__ == "__main__":
    sys.exit(command.main("decode", run, sys.argv[1:]))
