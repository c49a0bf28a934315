"""Balances the books: computes both sides of each from the tables."""

from collections.abc import Sequence

from jobs.cli import code_version
from jobs.engines.on_spark import engine_of, write_if_held
from jobs.tables.provenance import derive
from jobs.tables.warehouse import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import Table
from udfs.report import balancing

INGESTED = (CAPTURES, STREAMS, PACKETS, QUARANTINE)
DECODED = INGESTED + DECODED_TABLES
REPLAYED = (*DECODED, VERDICTS, OUTCOMES, SEQUENCES)
_BOOKS = {INGESTED: balancing.INGESTED, DECODED: balancing.DECODED, REPLAYED: balancing.REPLAYED}


def step(warehouse: Warehouse, tables: Sequence[Table] = REPLAYED) -> bool:
    """Balances the books of INGESTED, DECODED or REPLAYED tables, unless that was done; returns whether it did."""

    def write(_: object) -> None:
        engine = engine_of(warehouse)
        balancing.balance(engine, _BOOKS[tuple(tables)])
        write_if_held(warehouse, engine, BOOKS)

    return derive(warehouse, "books", (BOOKS,), tables, write, code=code_version.results_hash())
