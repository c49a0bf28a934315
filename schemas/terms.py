"""Declares what columns are called elsewhere, and the lines that `export` writes.

OpenTelemetry's names are those of its semantic conventions for messaging and networks, ECS is the Elastic Common
Schema (8), Zeek's are those of conn.log and notice.log, Suricata's those of EVE.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, STREAM_GAPS, STREAMS
from schemas.outcomes import Fate
from schemas.replay import FINDINGS
from schemas.table import Table

SYSTEM = "msmq"
"""The value of `messaging.system`: OpenTelemetry lists none for MSMQ, and lets others name their own."""


class Term(NamedTuple):
    """Holds what a column is called elsewhere; an empty text where nothing there means the same."""

    table: Table
    column: str
    opentelemetry: str = ""
    ecs: str = ""
    zeek: str = ""
    suricata: str = ""


TERMS = (
    Term(MESSAGE_HISTORY, "first_seen_at", "", "@timestamp", "ts", "timestamp"),
    Term(MESSAGE_HISTORY, "fate", "", "event.outcome"),
    Term(MESSAGE_HISTORY, "explanation", "", "message"),
    Term(MESSAGE_HISTORY, "destination_queue", "messaging.destination.name"),
    Term(MESSAGE_HISTORY, "message_id", "messaging.message.id"),
    Term(MESSAGE_HISTORY, "correlation_id", "messaging.message.conversation_id"),
    Term(MESSAGE_HISTORY, "body_size", "messaging.message.body.size"),
    Term(MESSAGE_HISTORY, "source_queue_manager", "messaging.client.id"),
    Term(MESSAGE_HISTORY, "first_src_ip", "source.address", "source.ip", "id.orig_h", "src_ip"),
    Term(MESSAGE_HISTORY, "first_dst_ip", "destination.address", "destination.ip", "id.resp_h", "dest_ip"),
    Term(MESSAGE_HISTORY, "first_uri", "", "file.path", "", "pcap_filename"),
    Term(MESSAGE_HISTORY, "first_frame_number", "", "", "", "pcap_cnt"),
    Term(FINDINGS, "found_at", "", "@timestamp", "ts", "timestamp"),
    Term(FINDINGS, "kind", "", "rule.name", "note", "alert.signature"),
    Term(FINDINGS, "severity", "", "log.level", "", "alert.severity"),
    Term(FINDINGS, "explanation", "", "message", "msg"),
    Term(FINDINGS, "destination_queue", "messaging.destination.name"),
    Term(INCIDENTS, "began_at", "", "event.start", "ts", "timestamp"),
    Term(INCIDENTS, "ended_at", "", "event.end"),
    Term(INCIDENTS, "cause", "", "rule.name", "note", "alert.signature"),
    Term(INCIDENTS, "severity", "", "log.level", "", "alert.severity"),
    Term(INCIDENTS, "explanation", "", "message", "msg"),
    Term(INCIDENTS, "destination_queue", "messaging.destination.name"),
    Term(INCIDENTS, "source_queue_manager", "messaging.client.id"),
    Term(STREAMS, "connection_id", "", "", "uid", "flow_id"),
    Term(STREAMS, "src_ip", "source.address", "source.ip", "id.orig_h", "src_ip"),
    Term(STREAMS, "src_port", "source.port", "source.port", "id.orig_p", "src_port"),
    Term(STREAMS, "dst_ip", "destination.address", "destination.ip", "id.resp_h", "dest_ip"),
    Term(STREAMS, "dst_port", "destination.port", "destination.port", "id.resp_p", "dest_port"),
    Term(STREAMS, "first_captured_at", "", "event.start", "ts", "flow.start"),
    Term(STREAMS, "last_captured_at", "", "event.end", "", "flow.end"),
    Term(STREAM_GAPS, "length", "", "", "missed_bytes"),
    Term(CAPTURES, "uri", "", "file.path", "", "pcap_filename"),
    Term(CAPTURES, "capture_id", "", "file.hash.sha256"),
)


class Exported(NamedTuple):
    """Declares the lines of a table."""

    dataset: str
    """The value of `event.dataset`."""
    kind: str
    """The value of `event.kind`, one of ECS."""
    moved: Mapping[str, str]
    """The columns that have a name of OpenTelemetry or ECS instead of their own; all others are under `msmq`."""


class EventOutcome(StrEnum):
    """Lists the values that ECS allows in `event.outcome`."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


OUTCOME_OF = dict.fromkeys(Fate, EventOutcome.UNKNOWN) | {
    Fate.DELIVERED: EventOutcome.SUCCESS,
    Fate.LOST: EventOutcome.FAILURE,
    Fate.EXPIRED: EventOutcome.FAILURE,
}
"""The `event.outcome` of each fate."""
_MADE = ("@timestamp", "event.outcome")
"""Terms whose values are not those of the column, which is under `msmq`, too."""
LEFT_OUT = ("tx_sequence_id", "content_hash")
"""Columns that no line has: JSON's numbers are floats for many readers. tx_sequence and message_key say the same."""


def _moved(table: Table) -> dict[str, str]:
    names = {
        term.column: term.opentelemetry if term.opentelemetry.startswith("messaging.") else term.ecs
        for term in TERMS
        if term.table == table
    }
    return {column: name for column, name in names.items() if name and name not in _MADE}


EXPORTED: Mapping[Table, Exported] = {
    MESSAGE_HISTORY: Exported("msmq.message", "event", _moved(MESSAGE_HISTORY)),
    FINDINGS: Exported("msmq.finding", "alert", _moved(FINDINGS)),
    INCIDENTS: Exported("msmq.incident", "alert", _moved(INCIDENTS)),
}
"""The tables that `export` writes, in this order."""
