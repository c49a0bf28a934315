"""A second computation of the messages that are accepted and not read yet: plain Python, from the rules.

It shares nothing with the transforms but the names of columns.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from plain_finding import Row, Rows
from plain_outcomes import Message
from plain_watched import acknowledged_pairs

WAITING = {"delivered", "delivered_after_refusal", "delivered_twice", "delivered_by_acknowledgment"}
FLAGS = ("tx_final_ack_required", "negative_source_journal", "positive_source_journal")


class NotRead(NamedTuple):
    """How many messages, and when the first was accepted; nothing where that is not reported."""

    messages: int | None = None
    since: Any = None


def not_read(tables: Rows, outcomes: Mapping[Message, str], by: str) -> dict[Any, NotRead]:
    """The figures of each sequence, by (scope, TxSequenceID), or of each session.

    `outcomes` are those of all messages. A sender that asks for FinalAcks gets one when a message leaves its queue. If
    no acknowledgment for that sender was captured, the FinalAcks may take a way that no capture shows.
    """
    asks = {
        (row["stream_id"], row["stream_offset"]): any(row.get(flag) for flag in FLAGS) for row in tables["messages"]
    }
    answered = acknowledged_pairs(tables)
    arrivals: dict[Message, list[Row]] = defaultdict(list)
    for row in sorted(tables["verdicts"], key=lambda row: int(row["replay_order"])):
        slot = row["scope_key"], int(row["tx_sequence_id"]), row["tx_sequence_number"]
        arrivals[*slot, row["message_id"], row["content_hash"]].append(row)
    found: dict[Any, list[Any]] = {}
    for message, rows in arrivals.items():
        session = rows[0]["session_id"]
        pair = session.rpartition("->")[2], rows[0]["source_queue_manager"]
        if pair not in answered or not any(asks[row["stream_id"], row["stream_offset"]] for row in rows):
            continue
        times = found.setdefault(session if by == "session_id" else message[:2], [])
        if outcomes[message] in WAITING and all(row["final_ack_class"] is None for row in rows):
            seen = [row["captured_at"] for row in rows if row["captured_at"] is not None]
            accepted = [row["captured_at"] for row in rows if row["accepted"] and row["captured_at"] is not None]
            times.append(min(accepted or seen, default=None))
    return {
        key: NotRead(len(times), min((at for at in times if at is not None), default=None))
        for key, times in found.items()
    }
