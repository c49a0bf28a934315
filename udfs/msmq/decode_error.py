"""Says why a packet cannot be decoded."""

from typing import NamedTuple

from schemas.violations import Fault


class DecodeError(NamedTuple):
    """The reason why a packet cannot be decoded: code, offset in the packet, and what is there."""

    fault: Fault
    offset: int
    found: str

    @property
    def detail(self) -> str:
        """Sentence for the quarantine row."""
        return f"{self.fault.sentence}: {self.found}, at byte {self.offset} of the packet."
