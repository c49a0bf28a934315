"""The headers of `schemas.wire` as dpkt classes and as numpy dtypes."""

from typing import Any

import dpkt
import numpy as np

from schemas import wire


def _bit_fields(field: wire.Field) -> list[tuple[str, int]]:
    """Names and widths from the highest bit down, as dpkt wants them; it skips names with an underscore."""
    runs: list[tuple[str, int]] = []
    top = 8 * field.size
    for bits in sorted(field.bits, key=lambda bits: -bits.shift):
        if gap := top - bits.shift - bits.width:
            runs.append(("_reserved", gap))
        runs.append((bits.column, bits.width))
        top = bits.shift
    return [*runs, ("_reserved", top)] if top else runs


def packet_class(header: wire.Header) -> Any:
    """The dpkt class of a header's fixed part; what follows in the buffer is its `data`."""
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
    """The numpy dtype of a header's fixed part, unaligned; byte strings are u8 vectors."""
    return np.dtype(
        [
            (field.attribute, "u1", (field.size,))
            if field.code.endswith("s")
            else (field.attribute, f"<u{field.size}")
            for field in header.fixed
        ]
    )


BaseHeader = packet_class(wire.BASE_HEADER)
InternalHeader = packet_class(wire.INTERNAL_HEADER)
EstablishConnectionHeader = packet_class(wire.ESTABLISH_CONNECTION_HEADER)
ConnectionParametersHeader = packet_class(wire.CONNECTION_PARAMETERS_HEADER)
UserHeader = packet_class(wire.USER_HEADER)
TransactionHeader = packet_class(wire.TRANSACTION_HEADER)
SecurityHeader = packet_class(wire.SECURITY_HEADER)
MessagePropertiesHeader = packet_class(wire.MESSAGE_PROPERTIES_HEADER)
DebugHeader = packet_class(wire.DEBUG_HEADER)
SoapHeader = packet_class(wire.SOAP_HEADER)
SoapBody = packet_class(wire.SOAP_BODY)
MQFAddressHeader = packet_class(wire.MQF_ADDRESS_HEADER)
MQFSignatureHeader = packet_class(wire.MQF_SIGNATURE_HEADER)
SessionHeader = packet_class(wire.SESSION_HEADER)
OrderAckBody = packet_class(wire.ORDER_ACK_BODY)
FinalAckBody = packet_class(wire.FINAL_ACK_BODY)
