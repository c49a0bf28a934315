"""Decodes packets into table rows, and quarantines those that cannot be decoded."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from schemas.ingest import PacketType, Stage
from schemas.messages import TABLE_OF
from schemas.table import Table
from udfs import on_spark


def decode_rows(packets: DataFrame, table: Table, key: bytes | None = None) -> DataFrame:
    """Returns rows of `table`, one per decodable packet of its types; a key pseudonymizes the names."""
    types = [packet_type.value for packet_type, of in TABLE_OF.items() if of == table]
    return on_spark.decode_packets(packets.where(F.col("packet_type").isin(types)), table, key)


def quarantine_undecodable(packets: DataFrame, raw_kept: int) -> DataFrame:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    unknown = on_spark.explain_undecodable(packets.where(F.col("packet_type") == PacketType.UNKNOWN.value))
    return unknown.select(
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
