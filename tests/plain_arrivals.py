"""Makes the rows that the rules of findings read, of the arrivals that the second computation of findings compares."""

from typing import Any

from plain_message_findings import Arrival as Second
from plain_message_findings import arrivals_of
from plain_words import Row

from udfs.replay.findings.finding import Arrival

BELOW_STATE = ("late", "stale_sequence")
"""Of the refusals for these reasons it is asked whether their messages were sent later than all accepted ones."""


def arrivals_of_scope(rows: list[Row]) -> list[Arrival]:
    """Returns the arrivals of one scope with their neighbours; `rows` are of VERDICTS, with whole numbers for times."""
    found = list(arrivals_of(rows, {}))
    accepted: dict[tuple[int, int], Row] = {}
    gaps: dict[int, Row] = {}
    for one in found:
        if one.accepted:
            accepted.setdefault(one.slot, one.row)
        if one.gap_size > 0:
            gaps.setdefault(one.slot[0], one.row)
    return [_as_rules_read(one, accepted.get(one.slot), gaps.get(one.slot[0])) for one in found]


def _as_rules_read(one: Second, original: Row | None, gap: Row | None) -> Arrival:
    is_in_its_sequence = one.incoming_tx_sequence_id == one.tx_sequence_id
    is_sent_later = one.sent is not None and one.latest_sent is not None and one.sent >= one.latest_sent
    final = one.final_ack_class
    return Arrival(
        scope_no=0,
        sequence=one.slot[0] - (1 << 63),
        number=one.slot[1],
        replay_order=one.replay_order,
        captured_ns=one.captured_ns,
        state_number=one.incoming_tx_sequence_number if is_in_its_sequence else None,
        accepted=one.accepted,
        verdict=one.verdict,
        reason=one.reason,
        acknowledged=one.acknowledged_at is not None,
        ack_latency_ms=one.ack_latency_ms,
        evidence=one.evidence,
        next_ack_agrees_with=one.next_ack_agrees_with,
        final_ack_class=final,
        cause=None if final is None else hash((final, one.destination_queue)),
        content_hash=one.content_hash,
        fate=one.fate,
        watched_ns=None,
        answers_whole=None,
        setter=_of(one.setter, "replay_order"),
        is_below_accepted=None if one.highest is None else one.highest > one.slot,
        is_sent_after_all_accepted=one.reason in BELOW_STATE and is_sent_later,
        original=_of(original, "replay_order"),
        original_hash=_of(original, "content_hash"),
        previous_arrival=_of(one.previous.row if one.previous else None, "replay_order"),
        arrivals=one.nth,
        interval_s=one.interval_s,
        gap_order=_of(gap, "replay_order"),
        gap_number=_of(gap, "tx_sequence_number"),
        gap_size=_of(gap, "gap_size"),
    )


def _of(row: Row | None, name: str) -> Any:
    return None if row is None else row[name]
