"""Computes TCP checksums ([RFC 9293] 3.1, [RFC 1071]): header sums for a whole block, payloads only when needed."""

import numpy as np

from udfs.arrow.buffers import Bytes, Ints, read_at

NO_SUM = -1
"""The sum of a TCP header that the capture holds only in part."""
_TCP = 6
_ONES = 0xFFFF


def header_sums(data: Bytes, transport: Ints, header: Ints, endpoints: Bytes, length: Ints) -> Ints:
    """Returns each segment's 16-bit one's complement sum of pseudo header and TCP header, checksum field included.

    `transport`: where in `data` the TCP headers begin; `header`: their bytes (20 to 60). `endpoints`: n rows of 36
    bytes, as in `udfs.network.dissect.Segments`. `length`: payload bytes on the wire. The prefix of a mapped IPv4
    address adds 0xFFFF, which is 0 in these sums: so one sum serves both pseudo headers ([RFC 9293] 3.1, [RFC 8200]
    8.1). The destination is the one in the IP header, even when a routing header names a later one.
    """
    words = endpoints.view(">u2")
    size = header + length
    total: Ints = _TCP + (size >> 16) + (size & _ONES)
    total += words[:, :8].sum(axis=1, dtype=np.int64) + words[:, 9:17].sum(axis=1, dtype=np.int64)
    for width in np.unique(header).tolist():
        rows = np.flatnonzero(header == width)
        headers = read_at(data, f"V{width}", transport[rows]).view(">u2").reshape(len(rows), width // 2)
        total[rows] += headers.sum(axis=1, dtype=np.int64)
    total = (total & _ONES) + (total >> 16)
    return (total & _ONES) + (total >> 16)


def intact(header_sum: int, payload: bytes | memoryview) -> bool:
    """Returns whether the checksum of a segment is right; `payload` is all of its payload."""
    # 65536 = 1 modulo 65535: a number's remainder is the sum of its 16-bit words. An odd last byte is padded behind.
    value = int.from_bytes(payload, "big") % _ONES << 8 * (len(payload) % 2)
    return (header_sum + value) % _ONES == 0
