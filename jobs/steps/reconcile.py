"""Both sides of the books, from the tables as they are."""

from collections.abc import Sequence
from typing import Any

from jobs.app.logs import progress
from jobs.transforms import books
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Law
from schemas.messages import DECODED
from schemas.table import Table

INGESTED = (CAPTURES, STREAMS, PACKETS, QUARANTINE)


def step(warehouse: Warehouse, tables: Sequence[Table] = INGESTED + DECODED) -> bool:
    """Balance the books of all tables, or of INGESTED alone, unless that was done; returns whether it was to do."""

    def write(tag: dict[str, Any]) -> None:
        captures, streams, packets, quarantine = map(warehouse.read, INGESTED)
        rows = books.record_books(captures, quarantine).unionAll(books.byte_books(streams, packets, quarantine))
        where = f"law IN ('{Law.RECORDS}', '{Law.BYTES}')"
        if len(tables) > len(INGESTED):
            rows = rows.unionAll(books.packet_books(packets, [warehouse.read(table) for table in DECODED], quarantine))
            where = "true"
        warehouse.replace(BOOKS, rows, tag, where)
        progress(f"wrote {BOOKS.name}")

    return warehouse.derive("books", (BOOKS,), tables, write)
