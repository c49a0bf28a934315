"""The tables that a replay reads, and the same with each conversation once, in the form that an engine has."""

from dataclasses import dataclass
from typing import Generic, Protocol

from jobs.engine.engine import T


@dataclass(frozen=True, slots=True)
class Sources(Generic[T]):
    """Holds the tables that a replay reads, and what the previous warehouse left."""

    messages: T
    streams: T
    stream_gaps: T
    quarantine: T
    acks: T
    handshakes: T
    captures: T
    packets: T
    session_acks: T
    pings: T
    states_before: T
    """STATES of the previous warehouse; no rows without one."""
    ends_before: T
    """ENDS of the previous warehouse."""


class Once(Protocol[T]):
    """Shows each conversation once, by clocks that do not step back (`udfs.derive.conversations`)."""

    @property
    def messages(self) -> T:
        """MESSAGES without copies."""

    @property
    def streams(self) -> T:
        """STREAMS without copies, and without attempts that carried no bytes."""

    @property
    def stream_gaps(self) -> T:
        """STREAM_GAPS without those that a copy fills."""

    @property
    def quarantine(self) -> T:
        """QUARANTINE without what a copy holds."""

    @property
    def acks(self) -> T:
        """ACKS without copies."""

    @property
    def handshakes(self) -> T:
        """HANDSHAKES on the streams that count."""

    def restore(self, verdicts: T) -> T:
        """Returns VERDICTS with the keys of their messages and the times that were recorded."""

    def every_end(self, ends: T) -> T:
        """Returns ENDS, those of copies among them."""

    def counted(self, rows: T) -> T:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""

    def in_time(self, rows: T) -> T:
        """Returns rows of a table with `captured_ns` by clocks that do not step back."""

    def disputed(self, messages: T, flows: T) -> T:
        """Returns the keys and senders of messages that may have come before or after another one of their scope."""

    def renamed_copies(self, streams: T) -> T | None:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be; None where none can be."""
