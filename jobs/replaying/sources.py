"""The tables that a replay reads, and the same with each conversation once, in the form that an engine has."""

from dataclasses import dataclass
from typing import Generic, Protocol

from jobs.engine.engine import Engine, T
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.pings import PINGS
from schemas.replay import ENDS, STATES


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


SOURCES = (MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES, CAPTURES, PACKETS, SESSION_ACKS, PINGS)
"""The tables that a replay reads."""


def read_sources(engine: Engine[T], states_before: T | None = None, ends_before: T | None = None) -> Sources[T]:
    """Reads the tables; without the STATES and ENDS of a previous warehouse, those have no rows."""
    return Sources(
        messages=engine.read(MESSAGES),
        streams=engine.read(STREAMS),
        stream_gaps=engine.read(STREAM_GAPS),
        quarantine=engine.read(QUARANTINE),
        acks=engine.read(ACKS),
        handshakes=engine.read(HANDSHAKES),
        captures=engine.read(CAPTURES),
        packets=engine.read(PACKETS),
        session_acks=engine.read(SESSION_ACKS),
        pings=engine.read(PINGS),
        states_before=engine.table([], STATES.arrow) if states_before is None else states_before,
        ends_before=engine.table([], ENDS.arrow) if ends_before is None else ends_before,
    )


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
