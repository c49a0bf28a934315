"""Reads packets that lie in one buffer: a header of every packet at once, without a Python object per packet."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from udfs.arrow.buffers import Bools, Bytes, Ints, read_at, slices

_SURROGATE = 0xD800
_SURROGATE_BITS = 0xF800


def dictionary_codes(values: Any) -> tuple[Ints, list[Any]]:
    """Returns for each element the index of its value among the distinct values, and these."""
    codes = values.dictionary_encode()
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int64), codes.dictionary.to_pylist()


def has_surrogates(contents: Any) -> bool:
    """Returns whether any UTF-16LE text of a binary array has a surrogate, paired or not."""
    units = np.frombuffer(contents.buffers()[2] or b"", "<u2")
    return bool(((units & _SURROGATE_BITS) == _SURROGATE).any())


def _content(values: Any) -> tuple[Bytes, Ints]:
    """Returns the bytes of a binary array, and the bounds of its elements in them."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return content, bounds - bounds[0]


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """Packets in a buffer, one element each, of `size` bytes on the stream.

    The first `stored` bytes of a packet lie at `start`, and its last `trailer_size` bytes at `trailer`; the bytes
    between them are missing. A `trailer_size` of -1 means no trailer.
    """

    buffer: Bytes
    start: Ints
    stored: Ints
    size: Ints
    trailer: Ints
    trailer_size: Ints

    @classmethod
    def whole(cls, buffer: Bytes, start: Ints, size: Ints) -> Self:
        """Returns packets with all their bytes."""
        return cls(buffer, start, size, size, np.zeros_like(size), np.full_like(size, -1))

    @classmethod
    def from_columns(cls, raw: Any, trailer: Any, size: Any) -> Self:
        """Returns packets from columns of the table `packets`."""
        head, head_bounds = _content(raw)
        tail, tail_bounds = _content(trailer)
        return cls(
            buffer=np.concatenate((head, tail)) if len(tail) else head,
            start=head_bounds[:-1],
            stored=np.diff(head_bounds),
            size=size.to_numpy(zero_copy_only=False).astype(np.int64),
            trailer=tail_bounds[:-1] + len(head),
            trailer_size=np.where(trailer.is_null().to_numpy(zero_copy_only=False), -1, np.diff(tail_bounds)),
        )

    def __len__(self) -> int:
        """Returns the number of packets."""
        return len(self.start)

    def take(self, rows: Ints) -> Self:
        """Returns some of the packets, in the order of `rows` and in the same buffer."""
        if len(rows) == len(self):
            return self
        return type(self)(
            self.buffer,
            self.start[rows],
            self.stored[rows],
            self.size[rows],
            self.trailer[rows],
            self.trailer_size[rows],
        )

    def one(self, row: int) -> tuple[bytes, bytes | None, int]:
        """Returns raw, trailer and size of one packet."""
        raw = self.buffer[self.start[row] : self.start[row] + self.stored[row]].tobytes()
        tail = None
        if self.trailer_size[row] >= 0:
            tail = self.buffer[self.trailer[row] : self.trailer[row] + self.trailer_size[row]].tobytes()
        return raw, tail, int(self.size[row])

    def address(self, offset: Ints) -> Ints:
        """Returns where in the buffer the byte at an offset of its packet lies, in raw or in trailer."""
        before_body = offset < self.stored
        if before_body.all():
            return self.start + offset
        after_body = self.size - np.maximum(self.trailer_size, 0)
        return np.where(before_body, self.start + offset, self.trailer + offset - after_body)

    def read(self, layout: np.dtype[Any], offset: Ints, present: Bools) -> NDArray[np.void]:
        """Returns the header at an offset of each packet, zeros unless `present`; present headers must be stored."""
        plain = np.dtype(f"V{layout.itemsize}")  # numpy copies records field by field, slowly
        if present.all():
            return read_at(self.buffer, plain, self.address(offset)).view(layout)
        headers = np.zeros(len(self), plain)
        headers[present] = read_at(self.buffer, plain, self.address(offset)[present])
        return headers.view(layout)

    def slices(self, offset: Ints, length: Ints) -> Any:
        """Returns the bytes at an offset of each packet as a binary array."""
        return slices(self.buffer, self.address(offset), length)
