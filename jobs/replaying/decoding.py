"""Decodes packets that are Arrow rows in this process."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import QUARANTINE, PacketType
from schemas.table import RowType, Table
from udfs.derive.decode import quarantine_packets
from udfs.passes.decode import decode_packets, packet_types
from udfs.passes.options import Pass


def decode_table(packets: pa.Table, table: Table, key: bytes | None) -> pa.Table:
    """Returns the rows of a decoded table, of rows of PACKETS; a key pseudonymizes the names."""
    return _run(packets, packet_types(table), decode_packets(table, key), table.arrow)


def quarantine_of(packets: pa.Table, raw_kept: int) -> pa.Table:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    return _run(packets, [PacketType.UNKNOWN.value], quarantine_packets(raw_kept), QUARANTINE.arrow)


def _run(packets: pa.Table, types: Sequence[str], work: Pass, schema: RowType) -> pa.Table:
    """Returns what a pass makes of the packets of these types."""
    chosen = packets.filter(pc.is_in(packets["packet_type"], pa.array(types))).combine_chunks()
    return pa.Table.from_batches(work(chosen.to_batches()), schema)
