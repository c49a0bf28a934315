"""Decodes packets in this process, on Spark, or in a task that reads and writes files."""

from collections.abc import Sequence
from typing import TypeVar, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.engine.in_process import InProcess
from schemas.ingest import QUARANTINE, PacketType
from schemas.table import RowType, Table
from udfs.derive.decode import quarantine_packets
from udfs.on_spark import map_arrow
from udfs.passes.decode import decode_packets, packet_types
from udfs.passes.options import Pass

T = TypeVar("T", bound=pl.DataFrame | DataFrame)


def decode_table(packets: T, table: Table, key: bytes | None) -> T:
    """Returns the rows of a decoded table, of rows of PACKETS; a key pseudonymizes the names."""
    return _run(packets, packet_types(table), decode_packets(table, key), table.arrow)


def decode_arrow(packets: pa.Table, table: Table, key: bytes | None) -> pa.Table:
    """Does what `decode_table` does with Arrow tables."""
    chosen = packets.filter(pc.is_in(packets["packet_type"], pa.array(packet_types(table))))
    return pa.Table.from_batches(decode_packets(table, key)(chosen.to_batches()), table.arrow)


def quarantine_of(packets: T, raw_kept: int) -> T:
    """Returns rows of QUARANTINE, one per packet that cannot be decoded."""
    return _run(packets, [PacketType.UNKNOWN.value], quarantine_packets(raw_kept), QUARANTINE.arrow)


def _run(packets: T, types: Sequence[str], work: Pass, schema: RowType) -> T:
    """Returns what a pass makes of the packets of these types."""
    if isinstance(packets, pl.DataFrame):
        return cast(T, InProcess().run(packets.filter(pl.col("packet_type").is_in(list(types))), work, schema))
    return cast(T, map_arrow(packets.where(F.col("packet_type").isin(*types)), work, schema))
