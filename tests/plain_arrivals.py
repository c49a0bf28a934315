"""Finds the neighbours of arrivals a second time, one arrival after another, without Spark and without windows.

It takes rows of VERDICTS, and makes the rows that the rules of findings read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from udfs.replay.findings.finding import Arrival

Row = dict[str, Any]
_MICROSECOND = 1_000
BELOW_STATE = ("late", "stale_sequence")
"""Of the refusals for these reasons it is asked whether their messages were sent later than all accepted ones."""


def is_in_its_sequence(row: Row) -> bool:
    """Whether the receiver stood in the sequence of an arrival."""
    return row["incoming_tx_sequence_id"] is not None and int(row["incoming_tx_sequence_id"]) == int(
        row["tx_sequence_id"]
    )


def ns(time: datetime | None) -> int | None:
    """Nanoseconds since 1970 of a timestamp."""
    return None if time is None else round(time.timestamp() * 1e6) * _MICROSECOND


def sent(row: Row) -> tuple[int, int] | None:
    """When, and in which order, the sender sent a message."""
    at = row["sent_at"]
    return None if at is None else (int(at.timestamp()), int(row["message_id"].rpartition("\\")[2]))


def arrivals_of_scope(
    rows: Iterable[Row],
    fates: Mapping[tuple[Any, ...], str],
    watched: Mapping[tuple[str, str], tuple[int, bool]],
) -> list[Arrival]:
    """Returns the arrivals of one scope with their neighbours.

    `fates` are by (sequence, number, message ID, content hash); `watched` is by session and original sender: until when
    it was seen, and whether all of its answers were.
    """
    rows = sorted(rows, key=lambda row: row["replay_order"])
    slots: dict[tuple[int, int], list[Row]] = defaultdict(list)
    gaps: dict[int, Row] = {}
    for row in rows:
        slots[row["tx_sequence_id"], row["tx_sequence_number"]].append(row)
        if row["gap_size"] > 0:
            gaps.setdefault(row["tx_sequence_id"], row)
    found: list[Arrival] = []
    setter: int | None = None
    highest: tuple[int, int] | None = None
    latest: tuple[int, int] | None = None
    earlier: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        slot = row["tx_sequence_id"], row["tx_sequence_number"]
        same = earlier[*slot, row["content_hash"]]
        previous = same[-1] if same else None
        original = next((one for one in slots[slot] if one["accepted"]), None)
        gap = gaps.get(slot[0])
        until, whole = watched.get((row["session_id"], row["source_queue_manager"]), (None, None))
        final, own = row["final_ack_class"], sent(row)
        found.append(
            Arrival(
                scope_no=0,
                sequence=int(slot[0]) - (1 << 63),
                number=slot[1],
                replay_order=row["replay_order"],
                captured_ns=row["captured_ns"],
                state_number=row["incoming_tx_sequence_number"] if is_in_its_sequence(row) else None,
                accepted=row["accepted"],
                verdict=row["verdict"],
                reason=row["reason"],
                acknowledged=row["acknowledged_at"] is not None,
                ack_latency_ms=row["ack_latency_ms"],
                evidence=row["evidence"],
                next_ack_agrees_with=row["next_ack_agrees_with"],
                final_ack_class=final,
                cause=None if final is None else hash((final, row["destination_queue"])),
                content_hash=row["content_hash"],
                fate=fates.get((*slot, row["message_id"], row["content_hash"]), "delivered"),
                watched_ns=until,
                answers_whole=whole,
                setter=setter,
                is_below_accepted=None if highest is None else highest > slot,
                is_sent_after_all_accepted=row["reason"] in BELOW_STATE and bool(own and latest and own >= latest),
                original=_of(original, "replay_order"),
                original_hash=_of(original, "content_hash"),
                previous_arrival=_of(previous, "replay_order"),
                arrivals=len(same) + 1,
                interval_s=_interval(previous, row),
                gap_order=_of(gap, "replay_order"),
                gap_number=_of(gap, "tx_sequence_number"),
                gap_size=_of(gap, "gap_size"),
            )
        )
        same.append(row)
        if row["accepted"] is not False:
            setter = row["replay_order"]
        if row["accepted"]:
            highest = max(highest or slot, slot)
            latest = max(filter(None, (latest, own)), default=None)
    return found


def _of(row: Row | None, name: str) -> Any:
    return None if row is None else row[name]


def _interval(previous: Row | None, row: Row) -> float | None:
    """Seconds since the previous arrival on the same stream, if no OrderAck covered that in between."""
    if (
        previous is None
        or previous["stream_id"] != row["stream_id"]
        or None in {row["captured_ns"], previous["captured_ns"]}
    ):
        return None
    covered = ns(previous["acknowledged_at"])
    between = row["captured_ns"] - previous["captured_ns"]
    return None if covered is not None and covered < row["captured_ns"] else between / 1e9
