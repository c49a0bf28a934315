"""Decodes packets, on each engine, or in tasks that read and write files."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.ingest import QUARANTINE, PacketType
from schemas.table import STRING, RowType, Table, row
from udfs.decode.packets import decode_packets, packet_types, quarantine_packets
from udfs.frames.engine import Engine, T
from udfs.frames.rows import Pass


def decode_table(engine: Engine[T], packets: T, table: Table, key: bytes | None) -> T:
    """Returns the rows of a decoded table, of rows of PACKETS; a key pseudonymizes the names."""
    return _run(engine, packets, packet_types(table), decode_packets(table, key), table.arrow)


def decode_some(table: Table, key: bytes | None) -> Pass:
    """Returns the pass from rows of PACKETS of all types to what `decode_table` makes of them."""
    types, work = pa.array(packet_types(table)), decode_packets(table, key)
    return lambda batches: work(batch.filter(pc.is_in(batch["packet_type"], types)) for batch in batches)


def quarantine_of(engine: Engine[T], packets: T, raw_kept: int) -> T:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    return _run(engine, packets, [PacketType.UNKNOWN.value], quarantine_packets(raw_kept), QUARANTINE.arrow)


def _run(engine: Engine[T], packets: T, types: Sequence[str], work: Pass, schema: RowType) -> T:
    """Returns what a pass makes of the packets of these types."""
    wanted = engine.table([{"packet_type": one} for one in types], row(packet_type=STRING))
    return engine.run(engine.join(packets, wanted, ["packet_type"], "semi"), work, schema)
