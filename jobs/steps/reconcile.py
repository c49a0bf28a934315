"""Balances the books: computes both sides of each law of conservation from the tables."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame

from jobs.app import code_version
from jobs.transforms import books
from jobs.warehouse.provenance import derive
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Law
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import Table

INGESTED = (CAPTURES, STREAMS, PACKETS, QUARANTINE)
DECODED = INGESTED + DECODED_TABLES
REPLAYED = (*DECODED, VERDICTS, OUTCOMES, SEQUENCES)


def step(warehouse: Warehouse, tables: Sequence[Table] = REPLAYED) -> bool:
    """Balances the books of INGESTED, DECODED or REPLAYED tables, unless that was done; returns whether it did."""

    def write() -> None:
        captures, streams, packets, quarantine = map(warehouse.read, INGESTED)
        rows = {
            Law.RECORDS: books.balance_records(captures, quarantine),
            Law.BYTES: books.balance_bytes(streams, packets, quarantine),
        }
        if tables != INGESTED:
            decoded = [warehouse.read(table) for table in DECODED_TABLES]
            rows[Law.PACKETS] = books.balance_packets(packets, decoded, quarantine)
        if tables == REPLAYED:
            verdicts, outcomes, sequences = map(warehouse.read, REPLAYED[len(DECODED) :])
            rows[Law.ARRIVALS] = books.balance_arrivals(verdicts, outcomes, sequences)
            rows[Law.SLOTS] = books.balance_slots(outcomes, sequences)
        laws = ", ".join(f"'{law}'" for law in rows)
        warehouse.replace(BOOKS, reduce(DataFrame.unionAll, rows.values()), f"law IN ({laws})")

    return derive(warehouse, "books", (BOOKS,), tables, write, code=code_version.results_hash())
