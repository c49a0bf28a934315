"""Chooses the packets of each decoded table, and quarantines those that cannot be decoded."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from schemas.ingest import PacketType, Stage
from schemas.table import Table
from udfs.on_spark import map_arrow
from udfs.passes.decode import EXPLAINED, decode_packets, explain_undecodable, packet_types


def decode_rows(packets: DataFrame, table: Table, key: bytes | None = None) -> DataFrame:
    """Returns rows of `table`, one per decodable packet of its types; a key pseudonymizes the names."""
    chosen = packets.where(F.col("packet_type").isin(packet_types(table)))
    return map_arrow(chosen, decode_packets(table, key), table.arrow)


def explain_rows(packets: DataFrame) -> DataFrame:
    """Returns the rows of `packets` that cannot be decoded, with `reason` (a code) and `detail` (a sentence)."""
    chosen = packets.where(F.col("packet_type") == PacketType.UNKNOWN.value)
    return map_arrow(chosen, explain_undecodable(), EXPLAINED)


def quarantine_undecodable(explained: DataFrame, raw_kept: int) -> DataFrame:
    """Returns rows of QUARANTINE; `explained` are rows of PACKETS with the reason why each cannot be decoded."""
    return explained.select(
        F.lit(Stage.DECODE.value).alias("stage"),
        "reason",
        "detail",
        "capture_id",
        "stream_id",
        F.col("last_frame").alias("frame_number"),
        "stream_offset",
        F.col("size").alias("length"),
        F.substring("raw", 1, raw_kept).alias("raw"),
    )
