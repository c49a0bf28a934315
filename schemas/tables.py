"""All tables of a warehouse, in the order of the data flow."""

from schemas.incidents import INCIDENTS
from schemas.ingest import (
    BOOKS,
    CAPTURES,
    CONNECTION_CAPTURES,
    CONNECTION_STATES,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
)
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.outcomes import OUTCOMES
from schemas.pings import PINGS
from schemas.replay import ENDS, FINDINGS, SENDERS, SEQUENCES, SESSIONS, STATES, TRANSACTIONS, VERDICTS
from schemas.table import Table

TABLES: tuple[Table, ...] = (
    CAPTURES,
    CONNECTION_CAPTURES,
    CONNECTION_STATES,
    STREAMS,
    STREAM_GAPS,
    PACKETS,
    QUARANTINE,
    PINGS,
    MESSAGES,
    ACKS,
    HANDSHAKES,
    SESSION_ACKS,
    ENDS,
    SENDERS,
    VERDICTS,
    OUTCOMES,
    SEQUENCES,
    STATES,
    SESSIONS,
    TRANSACTIONS,
    FINDINGS,
    INCIDENTS,
    BOOKS,
)

FIRST: tuple[Table, ...] = (OUTCOMES, INCIDENTS, FINDINGS, VERDICTS, SESSIONS, MESSAGES, CAPTURES)
"""The tables that an analyst needs first, in this order."""
INTERNAL: tuple[Table, ...] = (CONNECTION_CAPTURES, CONNECTION_STATES, SENDERS)
"""The tables that the next run needs to go on."""
