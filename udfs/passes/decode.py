"""Decodes rows of `packets` into rows of the decoded tables, and explains the packets that cannot be decoded."""

from functools import partial

import pyarrow as pa

from schemas.ingest import PACKETS
from schemas.messages import NAME_COLUMNS, TABLE_OF
from schemas.table import STRING, Table
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.passes.options import Pass

EXPLAINED = pa.schema([*PACKETS.arrow, ("reason", STRING), ("detail", STRING)])
"""Rows of PACKETS with the reason why each cannot be decoded."""


def packet_types(table: Table) -> list[str]:
    """Returns the values of `packets.packet_type` of the rows that are decoded into this table."""
    return [packet_type.value for packet_type, of in TABLE_OF.items() if of == table]


def decode_packets(table: Table, key: bytes | None) -> Pass:
    """Returns the pass from packets to rows of a decoded table; with a key, names are pseudonymized."""

    def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = DecodedBatch(batch).rows(table)
        return pseudonymize_columns(rows, NAME_COLUMNS, key) if key else rows

    return partial(map, decode)


def explain_undecodable() -> Pass:
    """Returns the pass from packets to the undecodable ones, with `reason` (a code) and `detail` (a sentence)."""
    return partial(map, lambda batch: DecodedBatch(batch).undecodable())
