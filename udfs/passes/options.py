"""What the passes of ingest can be told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from udfs.tcp.overlap import Overlap

Batches = Iterable[pa.RecordBatch]
Pass = Callable[[Batches], Batches]
"""A pass goes to `udfs.on_spark.map_arrow`; it keeps no state between calls."""


class CaptureFile(NamedTuple):
    """A capture: its identifier, and where it lies."""

    capture_id: str
    uri: str


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Ports that carry MSMQ, who wins an overlap, what is kept of packets; sizes are bytes."""

    ports: tuple[int, ...] = (1801,)
    overlap: Overlap = Overlap.FIRST
    keep_bodies: bool = False
    split_bytes: int = 64 << 20
    window_bytes: int = 64 << 20
    quarantine_raw_bytes: int = 4096
    batch_bytes: int = 4 << 20
