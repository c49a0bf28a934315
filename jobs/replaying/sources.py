"""The tables that a replay reads, in the form that an engine has."""

from dataclasses import dataclass
from typing import Generic

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
