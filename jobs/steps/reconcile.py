"""Balances the books: computes both sides of each law of conservation from the tables."""

from collections.abc import Sequence

from jobs.app import code_version
from jobs.app.logs import progress
from jobs.transforms import books
from jobs.warehouse.provenance import derive
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Law
from schemas.messages import DECODED_TABLES
from schemas.table import Table

INGESTED = (CAPTURES, STREAMS, PACKETS, QUARANTINE)


def step(warehouse: Warehouse, tables: Sequence[Table] = INGESTED + DECODED_TABLES) -> bool:
    """Balances the books of all tables, or of INGESTED alone, unless that was done; returns whether it did."""

    def write() -> None:
        captures, streams, packets, quarantine = map(warehouse.read, INGESTED)
        rows = books.balance_records(captures, quarantine).unionAll(books.balance_bytes(streams, packets, quarantine))
        where = f"law IN ('{Law.RECORDS}', '{Law.BYTES}')"
        if len(tables) > len(INGESTED):
            decoded = [warehouse.read(table) for table in DECODED_TABLES]
            rows = rows.unionAll(books.balance_packets(packets, decoded, quarantine))
            where = f"law IN ('{Law.RECORDS}', '{Law.BYTES}', '{Law.PACKETS}')"
        warehouse.replace(BOOKS, rows, where)
        progress(f"books: wrote {BOOKS.name}")

    return derive(warehouse, "books", (BOOKS,), tables, write, code=code_version.results_hash())
