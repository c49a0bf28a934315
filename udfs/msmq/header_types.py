"""Derives dpkt classes and numpy dtypes from the headers of `schemas.wire`."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import dpkt
import numpy as np
from numpy.typing import NDArray

from schemas import wire
from udfs.msmq.identifiers import guid_text, message_id_text

_Size = TypeVar("_Size", int, NDArray[np.int64])


def _bit_fields(field: wire.Field) -> list[tuple[str, int]]:
    """Returns names and widths from the highest bit down for dpkt, which skips names with an underscore."""
    runs: list[tuple[str, int]] = []
    top = 8 * field.size
    for bits in sorted(field.bits, key=lambda bits: -bits.shift):
        if gap := top - bits.shift - bits.width:
            runs.append(("_reserved", gap))
        runs.append((bits.column, bits.width))
        top = bits.shift
    return [*runs, ("_reserved", top)] if top else runs


def packet_class(header: wire.Header) -> Any:
    """Returns the dpkt class of a header's fixed part; the bytes after it become its `data`."""
    return type(
        header.name,
        (dpkt.Packet,),
        {
            "__doc__": f"{header.section} {header.name}.",
            "__module__": __name__,
            "__byte_order__": "<",
            "__hdr__": tuple((field.attribute, field.code, field.default) for field in header.fixed),
            "__bit_fields__": {field.attribute: _bit_fields(field) for field in header.fixed if field.bits},
        },
    )


def dtype(header: wire.Header) -> np.dtype[np.void]:
    """Returns the numpy dtype of a header's fixed part, unaligned; byte strings are u8 vectors."""
    return np.dtype(
        [
            (field.attribute, "u1", (field.size,)) if field.code.endswith("s") else (field.attribute, f"<u{field.size}")
            for field in header.fixed
        ]
    )


CLASSES: dict[str, Any] = {header.name: packet_class(header) for header in wire.HEADERS}
DTYPES: dict[str, np.dtype[np.void]] = {header.name: dtype(header) for header in wire.HEADERS}


def r4(size: _Size) -> _Size:
    """Rounds a size, or an array of sizes, up to a multiple of 4."""
    return (size + 3) & ~3


def columns(header: wire.Header, packet: Any) -> dict[str, Any]:
    """Returns the values of a parsed header's fixed part by column."""
    values: dict[str, Any] = {}
    for field in header.fixed:
        value = getattr(packet, field.attribute)
        if field.column:
            values[field.column] = None if value == field.null else _READERS[field.kind](value)
        for bits in field.bits:
            part = (value & bits.mask) >> bits.shift
            values[bits.column] = part != 0 if bits.width == 1 else part
    return values


_READERS: dict[wire.Kind, Callable[[Any], Any]] = {
    wire.Kind.NUMBER: int,
    wire.Kind.TIME: lambda seconds: datetime.fromtimestamp(seconds, UTC),
    wire.Kind.GUID: guid_text,
    wire.Kind.MESSAGE_ID: message_id_text,
}
