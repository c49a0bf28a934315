"""All tables of a warehouse, in the order of the data flow."""

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS, CAPTURES, INTERNAL_CONNECTIONS, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import DECODED_TABLES, MESSAGES
from schemas.names import QUEUE_MANAGERS, QUEUES
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS
from schemas.runs import RUNS
from schemas.tallies import FINDINGS_ON_MESSAGES, TALLIES

LAYOUT = 2
"""The number of the tables' layout: one more with each release that adds a table, a column, or a word in a column."""
INGESTED = (CAPTURES, INTERNAL_CONNECTIONS, STREAMS, STREAM_GAPS, PACKETS, QUARANTINE)
"""The tables that `ingest` writes; `decode` writes DECODED_TABLES."""
REPLAYED = (
    ENDS,
    VERDICTS,
    OUTCOMES,
    MESSAGE_HISTORY,
    SEQUENCES,
    SESSIONS,
    TRANSACTIONS,
    FINDINGS,
    INCIDENTS,
    TALLIES,
    FINDINGS_ON_MESSAGES,
)
"""The tables that `replay` writes."""
KEPT = (*INGESTED, RUNS)
"""The tables that nothing derives again: a newer version adds columns and words to them."""
NAMES = (QUEUE_MANAGERS, QUEUES)
"""The tables that say what people call machines and queues."""
TABLES = (*INGESTED, *DECODED_TABLES, *REPLAYED, *NAMES, BOOKS, RUNS)
FIRST = (MESSAGE_HISTORY, OUTCOMES, INCIDENTS, FINDINGS, VERDICTS, SESSIONS, MESSAGES, CAPTURES)
"""The tables that an analyst needs first, in this order."""
ONCE_VIEWS = (MESSAGE_HISTORY,)
"""The tables that earlier versions made as views in catalogs."""
INTERNAL = (INTERNAL_CONNECTIONS, TALLIES, FINDINGS_ON_MESSAGES)
"""The tables that the next run needs to go on."""
