"""Packets into messages, acks, handshakes and session_acks; what cannot be decoded into quarantine."""

import sys

from pyspark.sql import SparkSession

from jobs import command
from jobs.command import Summary, progress
from jobs.config import Config
from jobs.summary import decode_summary
from jobs.transforms import books
from jobs.transforms.decode import decoded_rows, undecodable_rows
from jobs.warehouse import Warehouse
from schemas.ingest import BOOKS, PACKETS, QUARANTINE, Law, Stage
from schemas.messages import DECODED


def run(spark: SparkSession, config: Config) -> Summary:
    """Decode the packets; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    step(warehouse, config)
    return decode_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> None:
    """Decode the packets, unless that was done for this version of them."""
    warehouse.require(PACKETS, "ingest")
    for table in DECODED:
        warehouse.create(table)
    origin = {"packets": warehouse.version(PACKETS)}
    if warehouse.derived_from(DECODED[-1]) == origin:
        progress("decode: nothing new")
        return
    packets = warehouse.read(PACKETS)
    undecodable = undecodable_rows(packets, config.quarantine_raw_bytes)
    warehouse.replace(QUARANTINE, undecodable, f"stage = '{Stage.DECODE}'")
    for table in DECODED:
        # The last of the tables says that all of them are done.
        warehouse.replace(table, decoded_rows(packets, table), derived_from=origin)
        progress(f"decode: wrote {table.name}")
    rows = books.packet_books(packets, [warehouse.read(table) for table in DECODED], warehouse.read(QUARANTINE))
    warehouse.replace(BOOKS, rows, f"law = '{Law.PACKETS}'")


if __name__ == "__main__":
    sys.exit(command.main("decode", run, sys.argv[1:]))
