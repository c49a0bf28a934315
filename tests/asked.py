"""Says of each table what to ask of it, with one query, which its page begins with.

Tables have their names in these, as in a catalog; each runs in DuckDB and in Spark.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.outcomes import OUTCOMES
from schemas.pings import PINGS
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS
from schemas.table import Table


class Asked(NamedTuple):
    """A question of people, and the query that answers it."""

    question: str
    query: str


ASKED: Mapping[Table, Asked] = {
    MESSAGE_HISTORY: Asked(
        "What happened to an order, of which its label is known?",
        "SELECT label, outcome, verdicts, first_seen_at, accepted_at, first_uri, first_frame_number\n"
        "FROM message_history WHERE label LIKE '%order%' ORDER BY first_seen_at",
    ),
    OUTCOMES: Asked(
        "Which messages were lost, and why?",
        "SELECT destination_queue, label, outcome, first_seen_at, explanation\n"
        "FROM outcomes WHERE lost ORDER BY first_seen_at",
    ),
    INCIDENTS: Asked(
        "What happened, the worst first?",
        "SELECT severity, began_at, lost, stuck, pending, explanation\n"
        "FROM incidents ORDER BY lost DESC, stuck DESC, pending DESC",
    ),
    FINDINGS: Asked(
        "What should I look at today?",
        "SELECT severity, kind, found_at, explanation FROM findings WHERE severity <> 'info' ORDER BY found_at",
    ),
    VERDICTS: Asked(
        "Which arrivals were refused, and what was the receiver waiting for?",
        "SELECT captured_at, label, reason, tx_sequence, previous_tx_sequence_number, incoming_tx_sequence_number\n"
        "FROM verdicts WHERE verdict = 'out_of_order' ORDER BY captured_at",
    ),
    SESSIONS: Asked(
        "Who sends to whom, and how much of it is lost?",
        "SELECT sender, receiver, transactional, delivered, lost, pending FROM sessions ORDER BY lost DESC",
    ),
    MESSAGES: Asked(
        "Which queues get how many messages, and of which kind?",
        "SELECT destination_queue, message_class_name, transactional, count(*) AS messages\n"
        "FROM messages GROUP BY destination_queue, message_class_name, transactional ORDER BY messages DESC",
    ),
    CAPTURES: Asked(
        "Which files do the answers rest on, and are they whole?",
        "SELECT uri, status, reason, packet_count, first_captured_at, last_captured_at\n"
        "FROM captures ORDER BY first_captured_at",
    ),
    STREAMS: Asked(
        "Which connections were there, and what is missing of them?",
        "SELECT src_ip, dst_ip, dst_port, recovered_bytes, missing_bytes, mid_stream, first_captured_at\n"
        "FROM streams ORDER BY missing_bytes DESC",
    ),
    STREAM_GAPS: Asked(
        "How many bytes does each stream lack, in how many pieces?",
        "SELECT stream_id, count(*) AS gaps, sum(length) AS bytes FROM stream_gaps GROUP BY stream_id",
    ),
    PACKETS: Asked(
        "Which packets were captured, of which type and when?",
        "SELECT packet_type, count(*) AS packets, sum(size) AS bytes, min(captured_at) AS since\n"
        "FROM packets GROUP BY packet_type",
    ),
    QUARANTINE: Asked(
        "What could not be read, and why?",
        "SELECT stage, reason, detail, capture_id, frame_number, length FROM quarantine",
    ),
    PINGS: Asked(
        "Who asked whom whether it would accept a session?",
        "SELECT src_ip, dst_ip, is_response, refused, count(*) AS pings, min(captured_at) AS since\n"
        "FROM pings GROUP BY src_ip, dst_ip, is_response, refused",
    ),
    ACKS: Asked(
        "How far had a receiver come, and when?",
        "SELECT captured_at, stream_id, tx_sequence, tx_sequence_number\n"
        "FROM acks WHERE ack_type = 'order_ack' ORDER BY captured_at",
    ),
    HANDSHAKES: Asked(
        "Which queue managers met, over which connections?",
        "SELECT captured_at, handshake_type, stream_id FROM handshakes ORDER BY captured_at",
    ),
    SESSION_ACKS: Asked(
        "Which receivers announced a small window?",
        "SELECT stream_id, min(window_size) AS least FROM session_acks GROUP BY stream_id ORDER BY least",
    ),
    ENDS: Asked(
        "Which queue managers talk on a stream?",
        "SELECT stream_id, sender, receiver, address FROM stream_ends",
    ),
    SEQUENCES: Asked(
        "Which sequences lost messages?",
        "SELECT source_queue_manager, tx_sequence, delivered, lost, pending, first_captured_at\n"
        "FROM sequences WHERE lost + pending > 0 ORDER BY first_captured_at",
    ),
    TRANSACTIONS: Asked(
        "Which transactions are torn, or were delivered in part only?",
        "SELECT source_queue_manager, tx_transaction_id, torn, messages, accepted, lost, pending\n"
        "FROM transactions WHERE torn OR partly_delivered",
    ),
    BOOKS: Asked(
        "Was nothing dropped on the way?",
        "SELECT book, count(*) AS accounts, sum(CASE WHEN balanced THEN 0 ELSE 1 END) AS unbalanced\n"
        "FROM books GROUP BY book",
    ),
}
