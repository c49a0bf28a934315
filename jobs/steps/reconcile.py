"""Both sides of the books, from the tables as they are."""

from collections.abc import Sequence
from typing import Any

from jobs.app.logs import progress
from jobs.transforms import books
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Law
from schemas.messages import DECODED_TABLES
from schemas.table import Table

INGESTED = (CAPTURES, STREAMS, PACKETS, QUARANTINE)


def step(warehouse: Warehouse, tables: Sequence[Table] = INGESTED + DECODED_TABLES) -> bool:
    """Balance the books of all tables, or of INGESTED alone, unless that was done; returns whether it was to do."""

    def write(tag: dict[str, Any]) -> None:
        captures, streams, packets, quarantine = map(warehouse.read, INGESTED)
        rows = books.balance_records(captures, quarantine).unionAll(books.balance_bytes(streams, packets, quarantine))
        where = f"law IN ('{Law.RECORDS}', '{Law.BYTES}')"
        if len(tables) > len(INGESTED):
            rows = rows.unionAll(
                books.balance_packets(packets, [warehouse.read(table) for table in DECODED_TABLES], quarantine)
            )
            where = "true"
        warehouse.replace(BOOKS, rows, tag, where)
        progress(f"wrote {BOOKS.name}")

    return warehouse.derive("books", (BOOKS,), tables, write)
