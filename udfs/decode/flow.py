"""Decodes packets, the same on each engine."""

from collections.abc import Sequence

from schemas.ingest import QUARANTINE, PacketType
from schemas.table import STRING, RowType, Table, row
from udfs.decode.packets import decode_packets, packet_types, quarantine_packets
from udfs.frames.engine import Engine, T
from udfs.frames.rows import Pass


def decode_table(engine: Engine[T], packets: T, table: Table, key: bytes | None) -> T:
    """Returns the rows of a decoded table, of rows of PACKETS; a key pseudonymizes the names."""
    return _run(engine, packets, packet_types(table), decode_packets(table, key), table.arrow)


def quarantine_of(engine: Engine[T], packets: T, raw_kept: int) -> T:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    return _run(engine, packets, [PacketType.UNKNOWN.value], quarantine_packets(raw_kept), QUARANTINE.arrow)


def _run(engine: Engine[T], packets: T, types: Sequence[str], work: Pass, schema: RowType) -> T:
    """Returns what a pass makes of the packets of these types."""
    wanted = engine.table([{"packet_type": one} for one in types], row(packet_type=STRING))
    return engine.run(engine.join(packets, wanted, ["packet_type"], "semi"), work, schema)
