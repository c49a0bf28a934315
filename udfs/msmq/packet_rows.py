"""Makes rows of framed packets: the capture records that delivered them, and their bytes without the body."""

import hmac
import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrow.buffers import Bytes, Ints, slices
from udfs.capture.records import NO_TIME
from udfs.msmq.batch import PacketBatch
from udfs.msmq.dropped import Dropped, crc32
from udfs.msmq.layout import PACKET_TYPES, find_headers

_FRAME_BITS = 40
_FRAMES = (1 << _FRAME_BITS) - 1
_PACKET_TYPES = np.array([str(packet_type) for packet_type in PACKET_TYPES])


def arrival_number(capture: int, frame: int) -> int:
    """Returns a number that orders records by the rank of their capture, then by record number."""
    return capture << _FRAME_BITS | frame


def capture_and_record(number: int) -> tuple[int, int]:
    """Returns capture rank and record number of an `arrival_number`."""
    return number >> _FRAME_BITS, number & _FRAMES


class StreamPieces(NamedTuple):
    """Pieces of consecutive stream bytes: stream offset of the first byte, `arrival_number`, time in ns since 1970.

    `damaged` is not 0 where they are of a damaged segment.
    """

    start: Ints
    arrival: Ints
    time_ns: Ints
    damaged: Ints

    def at(self, offset: int) -> int:
        """Returns the arrival number of the byte at a stream offset."""
        return int(self.arrival[np.searchsorted(self.start, offset, "right") - 1])

    def packet_records(self, start: Ints, size: Ints) -> dict[str, Any]:
        """Returns for each packet the last record, its lowest number in the same capture, and if it is damaged."""
        first = np.searchsorted(self.start, start, "right") - 1
        last = np.searchsorted(self.start, start + size, "left")
        ends = np.stack([first, last], axis=1).ravel()
        done = np.maximum.reduceat(np.append(self.arrival, np.iinfo(np.int64).min), ends)[::2]
        earliest = np.minimum.reduceat(np.append(self.arrival, np.iinfo(np.int64).max), ends)[::2]
        capture = done >> _FRAME_BITS
        for i in np.flatnonzero(earliest >> _FRAME_BITS != capture).tolist():
            of_packet = self.arrival[first[i] : last[i]]
            earliest[i] = of_packet[of_packet >> _FRAME_BITS == capture[i]].min()
        damaged = np.maximum.reduceat(np.append(self.damaged, 0), ends)[::2] != 0
        order = np.argsort(self.arrival)
        time_ns = self.time_ns[order[np.searchsorted(self.arrival, done, sorter=order)]]
        return {
            "captured_ns": pa.array(time_ns, mask=time_ns == NO_TIME),
            "capture": pa.array(capture),
            "first_frame": pa.array(earliest & _FRAMES),
            "last_frame": pa.array(done & _FRAMES),
            "damaged": pa.array(damaged, mask=~damaged),
        }


def packet_columns(
    buffer: Bytes,
    start: Ints,
    size: Ints,
    *,
    keep_bodies: bool,
    dropped: Sequence[Dropped] = (),
    hiding_key: bytes | None = None,
) -> dict[str, Any]:
    """Returns size, type, raw and trailer of each packet in the buffer, without its body unless `keep_bodies`.

    `dropped`: runs of the buffer that are not there, in order. The checksum of a body is hashed under the `hiding_key`,
    if there is one.
    """
    offsets, _ = find_headers(PacketBatch.whole(buffer, start, size))
    body, body_end = offsets["raw_size"], offsets["trailer_offset"]
    keep = np.full(len(start), keep_bodies)
    if dropped:
        ends, starts = np.array([run.end for run in dropped]), np.array([run.start for run in dropped])
        keep &= np.searchsorted(ends, start, "right") == np.searchsorted(starts, start + size, "left")
    raw = np.where(keep, size, body)
    whole = keep | (body_end < 0)
    trailer_at = np.where(whole, size, body_end)
    trailer = slices(buffer, start + trailer_at, size - trailer_at)
    return {
        "size": pa.array(size),
        "packet_type": pa.array(_PACKET_TYPES[offsets["packet_type"]]),
        "raw": slices(buffer, start, raw),
        "trailer": pc.if_else(pa.array(whole), pa.scalar(None, pa.binary()), trailer),
        "body_crc32": _checksums(buffer, start + body, start + body_end, dropped, hiding_key),
    }


def _checksums(buffer: Bytes, start: Ints, end: Ints, dropped: Sequence[Dropped], key: bytes | None) -> pa.Array:
    """Returns the CRC-32 of each range of the buffer, hashed if there is a key; null for an empty one."""
    content = buffer.data
    bounds = zip(start.tolist(), end.tolist(), strict=True)
    found = [crc32(content, low, high, dropped) if low < high else None for low, high in bounds]
    return pa.array([one if one is None or key is None else _hidden(one, key) for one in found], pa.int64())


def _hidden(checksum: int, key: bytes) -> int:
    """Returns 32 bits that are the same for the same checksum, and tell it only to those who have the key."""
    return zlib.crc32(hmac.digest(key, checksum.to_bytes(4), sha256))
