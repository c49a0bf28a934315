"""Every table of a warehouse, in the order the data goes through them."""

from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.table import Table

TABLES: tuple[Table, ...] = (CAPTURES, STREAMS, STREAM_GAPS, PACKETS, QUARANTINE, BOOKS)
