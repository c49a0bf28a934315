"""Undoes the steps back of a capture's clock, in plain Python: record by record."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def in_order(tables: Rows, steps: Mapping[str, Sequence[Row]]) -> Rows:
    """The tables with the times that a clock without these steps, by capture, would have shown."""
    if not any(steps.values()):
        return tables

    def behind(row: Row) -> int:
        return sum(-int(step["step_ns"]) for step in steps[row["capture_id"]] if row["last_frame"] >= step["frame"])

    new = dict(tables)
    places: dict[str, list[tuple[int, int]]] = {}
    for name in ("messages", "acks", "handshakes"):
        new[name] = [row | {"captured_ns": row["captured_ns"] + behind(row)} for row in tables[name]]
        for row in tables[name]:
            places.setdefault(row["stream_id"], []).append((row["stream_offset"], behind(row)))
    new["streams"] = []
    for row in tables["streams"]:
        there = places.get(row["stream_id"])
        other = [
            place
            for one in tables["streams"]
            if one["connection_id"] == row["connection_id"]
            for place in places.get(one["stream_id"], [])
        ]
        first, last = (min(there)[1], max(there)[1]) if there else (max((n for _, n in other), default=0),) * 2
        changed = {"first_captured_at": first, "last_captured_at": last}
        new["streams"].append(row | {name: row[name] and row[name] + ns // 1000 for name, ns in changed.items()})
    return new
