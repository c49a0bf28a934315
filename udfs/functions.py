"""Decodes packets in SQL and DataFrames: pandas UDFs over the dpkt classes, for any BINARY column that holds packets.

The tables of `decode` hold the same values, decoded in batches and far quicker. These functions are for a look at
single packets, and at packets from elsewhere. A packet has all of its bytes or, as in `packets.raw`, those before its
body; headers behind a body that is not there are not looked at.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

from schemas import wire
from schemas.messages import header_columns
from schemas.table import BOOL, LONG, STRING, RowType, row, spark_schema, sql_type
from udfs.msmq.header_types import columns
from udfs.msmq.reference import ParsedPacket

PACKET = row(packet_type=STRING, size=LONG, decodes=BOOL, reason=STRING, detail=STRING)
"""Type and bytes of a packet on its stream, and whether it decodes; if not, why: a code and a sentence."""


def register(spark: SparkSession) -> None:
    """Makes the functions available by name, in SQL and `call_function`, as long as the session lasts.

    A pandas UDF cannot return a struct that is null, so each returns one in a field of another, and a temporary SQL
    function of its name takes it out.
    """
    for name, (fields, decode) in DECODERS.items():
        inner = f"{name}_{_FIELD}"
        spark.udf.register(inner, _udf(fields, decode))
        signature = f"{name}(raw BINARY) RETURNS {sql_type(pa.struct(fields))}"
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {signature} RETURN {inner}(raw).{_FIELD}")


_FIELD = "decoded"
Decode = Callable[[bytes], dict[str, Any] | None]


def _udf(fields: RowType, decode: Decode) -> Any:
    """Returns the pandas UDF of a decoder of one packet. It is made when it is asked for, as Spark Connect needs."""

    def each(raw: pd.Series) -> pd.DataFrame:
        found = [None if one is None else decode(bytes(one)) for one in raw]
        return pd.DataFrame({_FIELD: pd.Series(found, dtype=object)})

    return pandas_udf(each, spark_schema(row(**{_FIELD: fields})))  # type: ignore[call-overload]


def _packet(raw: bytes) -> dict[str, Any]:
    packet = ParsedPacket.parse_alone(raw)
    error = packet.error
    return {
        "packet_type": packet.packet_type.value,
        "size": packet.size,
        "decodes": error is None,
        "reason": error and error.fault.value,
        "detail": error and error.detail,
    }


def _header(header: wire.Header) -> tuple[RowType, Decode]:
    """Returns the fields of a header under their column names, and what decodes them."""
    names = [column.name for column in header_columns(header)]

    def decode(raw: bytes) -> dict[str, Any] | None:
        packet = ParsedPacket.parse_alone(raw)
        if packet.error is not None or header.name not in packet.headers:
            return None
        values = packet.columns | columns(header, packet.headers[header.name])
        return {name: values.get(name) for name in names}

    return row(**{column.name: column.type for column in header_columns(header)}), decode


DECODERS: Mapping[str, tuple[RowType, Decode]] = {
    "msmq_packet": (PACKET, _packet),
    "msmq_user_header": _header(wire.USER_HEADER),
    "msmq_transaction_header": _header(wire.TRANSACTION_HEADER),
    "msmq_message_properties": _header(wire.MESSAGE_PROPERTIES_HEADER),
}
"""What each function returns, and what decodes one packet for it."""
