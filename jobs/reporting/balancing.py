"""Balances the books, the same on each engine: rows are summed where they are, and both sides of each law here."""

from collections.abc import Sequence

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.reporting.few import frames, part
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS, Law
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import STRING, row
from udfs.derive import books
from udfs.derive.frames import ONE, Derivation, to_arrow, to_frame

INGESTED = (Law.RECORDS, Law.BYTES)
DECODED = (*INGESTED, Law.PACKETS)
REPLAYED = (*DECODED, Law.ARRIVALS, Law.SLOTS)
_SLOTS = Derivation(
    books.balance_slots,
    {
        "outcomes": ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "numbers"),
        "sequences": ("scope_key", "tx_sequence_id", "first_due", "slots_seen", "slots"),
    },
    ("scope_key",),
)


def balance(engine: Engine[T], laws: Sequence[Law]) -> None:
    """Replaces the rows of these laws in BOOKS, which are those of INGESTED, DECODED or REPLAYED."""
    found = _of_streams(engine, is_decoded=Law.PACKETS in laws)
    if Law.SLOTS in laws:
        found += _of_scopes(engine)
    replaced = engine.table([{"law": law.value} for law in laws], row(law=STRING))
    others = engine.join(engine.read(BOOKS), replaced, ["law"], "anti")
    engine.replace(BOOKS, engine.union(others, engine.hand_in(to_arrow(pl.concat(found)))))


def _of_streams(engine: Engine[T], *, is_decoded: bool) -> list[pl.DataFrame]:
    """Returns the rows of the laws on captures and streams, that on decoded packets among them."""
    more = {table.name: engine.sum_up(engine.read(table), ["stream_id"]) for table in DECODED_TABLES if is_decoded}
    sums = frames(
        engine.bring(
            captures=part(engine, CAPTURES, "capture_id", "packet_count", "segment_count", "other_count"),
            streams=part(engine, STREAMS, "stream_id", "recovered_bytes"),
            packets=engine.sum_up(engine.read(PACKETS), ["stream_id"], "size"),
            quarantine=engine.sum_up(engine.read(QUARANTINE), ["capture_id", "stream_id", "stage"], "length"),
            **more,
        )
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
    """Returns the rows of the laws on what became of messages."""
    outcomes, sequences = engine.read(OUTCOMES), engine.read(SEQUENCES)
    sums = frames(
        engine.bring(
            verdicts=engine.sum_up(engine.read(VERDICTS), ["scope_key"]),
            outcomes=engine.sum_up(outcomes, ["scope_key"], "arrivals"),
            sequences=part(engine, SEQUENCES, "scope_key", "delivered_arrivals", "messages"),
        )
    )
    slots = engine.gather(_SLOTS, outcomes=outcomes, sequences=sequences)[ONE]
    return [books.balance_arrivals(**sums), to_frame(slots)]
