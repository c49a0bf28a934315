"""Balances the books, the same on each engine: rows are summed where they are, and both sides of each book here."""

from collections.abc import Sequence

import polars as pl

from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Book
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import STRING, row
from udfs.frames.derivation import ONE
from udfs.frames.engine import Engine, T
from udfs.report import books

INGESTED = (Book.RECORDS, Book.BYTES)
DECODED = (*INGESTED, Book.PACKETS)
REPLAYED = (*DECODED, Book.ARRIVALS, Book.NUMBERS)


def balance(engine: Engine[T], wanted: Sequence[Book]) -> None:
    """Replaces the rows of these books in BOOKS, which are INGESTED, DECODED or REPLAYED."""
    found = _of_streams(engine, is_decoded=Book.PACKETS in wanted)
    if Book.NUMBERS in wanted:
        found += _of_scopes(engine)
    replaced = engine.table([{"book": book.value} for book in wanted], row(book=STRING))
    others = engine.join(engine.read(BOOKS), replaced, ["book"], "anti")
    engine.replace(BOOKS, engine.union(others, pl.concat(found)))


def _of_streams(engine: Engine[T], *, is_decoded: bool) -> list[pl.DataFrame]:
    """Returns the books of captures and streams, that of decoded packets among them."""
    more = {
        table.name: engine.sum_up(engine.read(table, "stream_id"), ["stream_id"])
        for table in DECODED_TABLES
        if is_decoded
    }
    sums = engine.collect(
        captures=engine.read(CAPTURES, "capture_id", "packet_count", "segment_count", "other_count"),
        streams=engine.read(STREAMS, "stream_id", "recovered_bytes"),
        packets=engine.sum_up(engine.read(PACKETS, "stream_id", "size"), ["stream_id"], "size"),
        quarantine=engine.sum_up(
            engine.read(QUARANTINE, "capture_id", "stream_id", "stage", "length"),
            ["capture_id", "stream_id", "stage"],
            "length",
        ),
        **more,
    )
    packets, quarantine = sums["packets"], sums["quarantine"]
    balanced = [
        books.balance_records(sums["captures"], quarantine),
        books.balance_bytes(sums["streams"], packets, quarantine),
    ]
    if is_decoded:
        balanced.append(books.balance_packets(packets, [sums[name] for name in more], quarantine))
    return balanced


def _of_scopes(engine: Engine[T]) -> list[pl.DataFrame]:
    """Returns the books on what became of messages."""
    outcomes, sequences = engine.read(OUTCOMES), engine.read(SEQUENCES)
    sums = engine.collect(
        verdicts=engine.sum_up(engine.read(VERDICTS, "scope_key"), ["scope_key"]),
        outcomes=engine.sum_up(outcomes, ["scope_key"], "arrivals"),
        sequences=engine.read(SEQUENCES, "scope_key", "delivered_arrivals", "messages"),
    )
    numbers = engine.gather(books.balance_numbers, outcomes=outcomes, sequences=sequences)[ONE]
    return [books.balance_arrivals(**sums), numbers]
