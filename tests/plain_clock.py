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
    places: dict[str, list[tuple[int, int, int]]] = {}  # by stream: offset, how late the clock was, time
    for name in ("messages", "acks", "handshakes", "session_acks"):
        new[name] = [row | {"captured_ns": row["captured_ns"] + behind(row)} for row in tables.get(name, [])]
        for row in new[name] if name != "session_acks" else []:
            places.setdefault(row["stream_id"], []).append((row["stream_offset"], behind(row), row["captured_ns"]))
    new["streams"] = []
    for row in tables["streams"]:
        ways = [one["stream_id"] for one in tables["streams"] if one["connection_id"] == row["connection_id"]]
        other = [place for way in ways for place in places.get(way, [])]
        there = places.get(row["stream_id"]) or other or [(0, 0, 0)]
        late = {"first_captured_at": min(there)[1], "last_captured_at": max(there)[1]}
        times = sorted(time // 1000 for _, _, time in there)
        if len({behind_ns for _, behind_ns, _ in other}) < 2:
            changed = {name: row[name] and row[name] + ns // 1000 for name, ns in late.items()}
        else:
            changed = dict(zip(late, (times[0], times[-1]), strict=True))
        new["streams"].append(row | changed)
    return new
