"""Declares what both formats share: the cursor, the records of a block, and what a format's module must offer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import CaptureFormat, CaptureReason
from udfs.capture.files import Fault

NO_TIME = np.iinfo(np.int64).min
"""The `time_ns` of a record without a time (Simple Packet Block), or with one that is damaged."""
EARLIEST_NS, LATEST_NS = -(1 << 61), 1 << 62
"""Times outside these, of the years 1896 and 2116, are damaged. 64 bits hold the difference of any two others."""
BILLION = 1_000_000_000
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
RAW_KEPT = 4096
"""Bytes of a fault that are kept, at most."""
FAULTS_AT_ONCE = 1_000
"""Faults of a block, or a few more: these are held in memory."""
_FIRST_WINDOW, _LAST_WINDOW = 1 << 7, 1 << 16


class Interface(NamedTuple):
    """The interface that a record was captured on, as the file describes it; `link_type` -1: it does not."""

    link_type: int
    snap_length: int
    units_per_second: int
    offset_s: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two records, and the state of the reader there: enough to read on from it in another task.

    `frame`: records of the file before this place. `header_size`: bytes of a pcap record header. `section`: sections of
    a pcapng file that began before this place.
    """

    format: CaptureFormat
    offset: int
    frame: int
    byte_order: str
    header_size: int
    interfaces: tuple[Interface, ...]
    section: int = 0

    def to_json(self) -> str:
        """Returns the cursor as text for a column."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> "Cursor":
        """Returns the cursor that `to_json` wrote."""
        fields = json.loads(text)
        interfaces = tuple(Interface(*interface) for interface in fields["interfaces"])
        return cls(**fields | {"format": CaptureFormat(fields["format"]), "interfaces": interfaces})


class Records(NamedTuple):
    """Captured records that lie whole in one buffer; arrays have one element per record.

    `start` is an index in `buffer`; the first record is the file's record number `first_frame`, counted from 1; lengths
    are bytes, times nanoseconds since 1970 or `NO_TIME`. `clock`: a number for each interface of each section, as each
    has its own clock; None for records of no capture.
    """

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    captured: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    link_type: NDArray[np.int64]
    first_frame: int
    clock: NDArray[np.int64] | None = None


class Chain(NamedTuple):
    """Records that follow one another from the start of a buffer up to `after`.

    `rows` has one row each for `start`, `captured`, `time_ns`, `link_type` and `clock` of `Records`. `broken`: what
    begins at `after` is no record; otherwise the chain goes on there, or in bytes that are not read yet. `unknown`:
    records that belong to no interface.
    """

    rows: NDArray[np.int64]
    after: Cursor
    broken: bool
    unknown: Sequence[Fault] = ()


class Format(Protocol):
    """The functions of `udfs.capture.pcap` and `udfs.capture.pcapng`.

    `data` begins at `cursor`; `ended`: nothing of the file follows it.
    """

    def follow_chain(self, data: memoryview, cursor: Cursor, ended: bool, most: int, limit: int) -> Chain:
        """Returns the records that begin before `limit`, at most about `most`."""

    def find_record(self, data: memoryview, begin: int, cursor: Cursor, ended: bool) -> tuple[int | None, int]:
        """Returns the first place from `begin` on where a record can be trusted, twice.

        Without one: None, and the place from which to search on when more is read.
        """

    def explain_loss(self, head: bytes, length: int, cursor: Cursor, followed: bool) -> tuple[CaptureReason, str]:
        """Explains `length` bytes in no record; `head`: the first ones; `followed`: another record follows them."""


def search_windows(begin: int, end: int) -> Iterator[NDArray[np.int64]]:
    """Yields the places from `begin` up to `end` in arrays that grow: what is near is found at little cost."""
    width = _FIRST_WINDOW
    while begin < end:
        yield np.arange(begin, min(begin + width, end))
        begin, width = begin + width, min(2 * width, _LAST_WINDOW)
