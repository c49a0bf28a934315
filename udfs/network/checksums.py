"""Checks the TCP checksums of a block of segments ([RFC 9293] 3.1, [RFC 1071])."""

import numpy as np
from numpy.typing import NDArray

from udfs.arrow.buffers import Bools, Ints, read_at

_TCP, _ONES, _CHECKSUM_AT = 6, 0xFFFF, 16


def intact(header_sum: int, payload: bytes | memoryview) -> bool:
    """Returns whether the checksum of a segment is right; `payload` is all of its payload."""
    # 65536 = 1 modulo 65535: a number's remainder is the sum of its 16-bit words. An odd last byte is padded behind.
    value = int.from_bytes(payload, "big") % _ONES << 8 * (len(payload) % 2)
    return (header_sum + value) % _ONES == 0


def header_sums(
    data: NDArray[np.uint8], transport: Ints, header: Ints, endpoints: NDArray[np.uint8], length: Ints
) -> Ints:
    """Returns the 16-bit sums of pseudo headers and TCP headers of `header` bytes (20 to 60), checksums included.

    `length`: payload bytes on the wire. The destination is the one in the IP header, even when a routing header names
    a later one.
    """
    total = _pseudo_sums(endpoints, header + length)
    for width in np.unique(header).tolist():
        rows = np.flatnonzero(header == width)
        headers = read_at(data, f"V{width}", transport[rows]).view(">u2").reshape(len(rows), width // 2)
        total[rows] += headers.sum(axis=1, dtype=np.int64)
    return _folded(total)


def find_damaged(
    data: NDArray[np.uint8],
    transport: Ints,
    endpoints: NDArray[np.uint8],
    payload: Ints,
    length: Ints,
    sums: Ints,
) -> Bools:
    """Returns which segments have a wrong checksum.

    `sums` are their `header_sums`; all their payload is in `data`, from `payload` on. A checksum of 0, or of the pseudo
    header alone, is one that a network card fills in after the capture, or that stands for several segments made one,
    and says nothing.
    """
    wrong: Bools = _folded(sums + _payload_sums(data, payload, length)) % _ONES != 0
    if not wrong.any():
        return wrong
    field = read_at(data, ">u2", transport + _CHECKSUM_AT).astype(np.int64)
    size = payload - transport + length
    to_fill_in = np.isin(field, (0, _ONES))
    for counted in (size, np.zeros_like(size)):  # some count the length only when the card has made segments
        to_fill_in |= field == _folded(_pseudo_sums(endpoints, counted))
    return wrong & ~to_fill_in


def _pseudo_sums(endpoints: NDArray[np.uint8], size: Ints) -> Ints:
    """Returns the sums of pseudo headers; `size`: bytes of TCP header and payload.

    The prefix of a mapped IPv4 address adds 0xFFFF, which is 0 in these sums: so one sum serves both pseudo headers
    ([RFC 9293] 3.1, [RFC 8200] 8.1).
    """
    words = endpoints.view(">u2")
    total: Ints = _TCP + (size >> 16) + (size & _ONES)
    total += words[:, :8].sum(axis=1, dtype=np.int64) + words[:, 9:17].sum(axis=1, dtype=np.int64)
    return total


def _payload_sums(data: NDArray[np.uint8], at: Ints, length: Ints) -> Ints:
    """Returns 16-bit sums of ranges of `data`, in order and apart; an odd last byte is padded behind.

    Words of 32 bits have the same sums ([RFC 1071] 2), and those in the machine's order the same with bytes swapped.
    """
    sums = np.zeros(len(at), np.int64)
    for begin in range(4):
        rows = np.flatnonzero(at % 4 == begin)
        words = data[begin : len(data) - (len(data) - begin) % 4].view("<u4")
        first, many = (at[rows] - begin) // 4, length[rows] // 4
        if not many.any():
            continue
        bounds = np.stack([first, first + many], axis=1).ravel()
        total = np.add.reduceat(words, bounds, dtype=np.uint64)[::2].astype(np.int64)
        swapped = _folded(np.where(many > 0, total, 0))
        sums[rows] = (swapped & 0xFF) << 8 | swapped >> 8
    rest = length % 4
    for i in range(3):
        last = data[at + length - rest + i].astype(np.int64)
        sums += np.where(i < rest, last << 8 * (1 - i % 2), 0)
    return sums


def _folded(total: Ints) -> Ints:
    """Returns sums with their carries added, 16 bits each."""
    while (total >> 16).any():
        total = (total & _ONES) + (total >> 16)
    return total
