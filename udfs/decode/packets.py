"""Decodes rows of `packets` into rows of the decoded tables, and quarantines the packets that cannot be decoded."""

from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import QUARANTINE, Stage
from schemas.messages import NAME_COLUMNS, STRUCTS, TABLE_OF
from schemas.table import Table
from udfs.arrow.buffers import record_batch
from udfs.frames.rows import Pass
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.msmq.reference import ParsedPacket


def packet_types(table: Table) -> list[str]:
    """Returns the values of `packets.packet_type` of the rows that are decoded into this table."""
    return [packet_type.value for packet_type, of in TABLE_OF.items() if of == table]


def decode_packets(table: Table, key: bytes | None) -> Pass:
    """Returns the pass from packets to rows of a decoded table; with a key, names are pseudonymized."""

    def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = DecodedBatch(batch).rows(table)
        return nested(pseudonymize_columns(rows, NAME_COLUMNS, key) if key else rows, table)

    return partial(map, decode)


def nested(rows: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """Returns rows that have a column for each field as rows of the table: the fields of a rare header are a struct."""
    columns = {name: rows.column(name) for name in rows.schema.names}
    for struct in STRUCTS:
        if struct.name in table.names:
            parts = [columns[field.name] for field in struct.type]
            is_there = reduce(pc.or_, (pc.is_valid(part) for part in parts))
            columns[struct.name] = pa.StructArray.from_arrays(parts, fields=list(struct.type), mask=pc.invert(is_there))
    return record_batch(columns, len(rows), table.arrow)


def quarantine_packets(raw_kept: int) -> Pass:
    """Returns the pass from packets to rows of QUARANTINE, one for each that cannot be decoded.

    Of each packet, the first `raw_kept` bytes are kept.
    """

    def quarantine(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = [
            {name: packet[name] for name in ("capture_id", "stream_id", "stream_offset")}
            | {"stage": Stage.DECODE, "reason": error.fault, "detail": error.detail}
            | {"frame_number": packet["last_frame"], "length": packet["size"], "raw": packet["raw"][:raw_kept]}
            for packet in batch.to_pylist()
            if (error := ParsedPacket.parse(packet["raw"], packet["trailer"], packet["size"]).error)
        ]
        return pa.RecordBatch.from_pylist(rows, QUARANTINE.arrow)

    return partial(map, quarantine)
