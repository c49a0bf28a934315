"""Declares the options of ingest."""

from dataclasses import dataclass, field
from typing import NamedTuple

from schemas import wire
from udfs.tcp.connections import WINDOW_BYTES
from udfs.tcp.delivery import Overlap


class CaptureFile(NamedTuple):
    """A capture: its identifier and its location."""

    capture_id: str
    uri: str


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Ports that carry MSMQ, the overlap policy, the parts of packets to keep; sizes in bytes."""

    ports: tuple[int, ...] = (wire.TCP_PORT,)
    overlap: Overlap = Overlap.FIRST
    keep_bodies: bool = False
    split_bytes: int = 64 << 20
    window_bytes: int = WINDOW_BYTES
    quarantine_raw_bytes: int = 4096
    batch_bytes: int = 4 << 20
    hiding_key: bytes | None = field(default=None, repr=False)
    """The key under which checksums of bodies are hashed, so that no short body can be guessed; None: they are not."""
    release: str = ""
    """The release of the program, which the rows of captures name."""

    @property
    def raw_kept(self) -> int:
        """Returns how many bytes of each quarantined run are kept: none without bodies, which may be among them."""
        return self.quarantine_raw_bytes if self.keep_bodies else 0
