"""Decodes rows of `packets` into rows of the decoded tables, and explains the packets that cannot be decoded."""

from collections.abc import Callable

import pyarrow as pa

from schemas.messages import NAME_COLUMNS
from schemas.table import Table
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.passes.options import Batches, Pass


def decode_packets(table: Table, key: bytes | None = None) -> Pass:
    """Returns the pass from packets to rows of a decoded table; with a key, names are pseudonymized."""

    def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = DecodedBatch(batch).rows(table)
        return pseudonymize_columns(rows, NAME_COLUMNS, key) if key else rows

    return _map_batches(decode)


def explain_undecodable() -> Pass:
    """Returns the pass from packets to the undecodable ones, with `reason` (a code) and `detail` (a sentence)."""
    return _map_batches(lambda batch: DecodedBatch(batch).undecodable())


def _map_batches(decoder: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Pass:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield decoder(batch)

    return run
