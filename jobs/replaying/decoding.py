"""Decodes packets that are Arrow rows in this process."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import PacketType
from schemas.table import RowType, Table
from udfs.passes.decode import EXPLAINED, decode_packets, explain_undecodable, packet_types
from udfs.passes.options import Pass


def decode_table(packets: pa.Table, table: Table, key: bytes | None) -> pa.Table:
    """Returns the rows of a decoded table, of rows of PACKETS; a key pseudonymizes the names."""
    return _run(packets, packet_types(table), decode_packets(table, key), table.arrow)


def explain_packets(packets: pa.Table) -> pa.Table:
    """Returns the packets that cannot be decoded, with `reason` (a code) and `detail` (a sentence)."""
    return _run(packets, [PacketType.UNKNOWN.value], explain_undecodable(), EXPLAINED)


def _run(packets: pa.Table, types: Sequence[str], work: Pass, schema: RowType) -> pa.Table:
    """Returns what a pass makes of the packets of these types."""
    chosen = packets.filter(pc.is_in(packets["packet_type"], pa.array(types))).combine_chunks()
    return pa.Table.from_batches(work(chosen.to_batches()), schema)
