"""Chooses the packets of each decoded table, and quarantines those that cannot be decoded."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from schemas.ingest import QUARANTINE, PacketType
from schemas.table import Table
from udfs.derive.decode import quarantine_packets
from udfs.on_spark import map_arrow
from udfs.passes.decode import decode_packets, packet_types


def decode_rows(packets: DataFrame, table: Table, key: bytes | None = None) -> DataFrame:
    """Returns rows of `table`, one per decodable packet of its types; a key pseudonymizes the names."""
    chosen = packets.where(F.col("packet_type").isin(packet_types(table)))
    return map_arrow(chosen, decode_packets(table, key), table.arrow)


def quarantine_rows(packets: DataFrame, raw_kept: int) -> DataFrame:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    chosen = packets.where(F.col("packet_type") == PacketType.UNKNOWN.value)
    return map_arrow(chosen, quarantine_packets(raw_kept), QUARANTINE.arrow)
