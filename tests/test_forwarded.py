"""A connection on which a router sends messages on is no copy of the one on which it got them."""

from typing import Any

import polars as pl
import pytest
from table_frames import rows_of

from schemas.ingest import CAPTURES, STREAMS
from udfs.replay.order.forwarded import count_denied, places_in_others, without_forwarded

CONNECTIONS = pl.DataFrame(
    {"connection_id": ["out", "in"], "forth": ["out>", "in>"], "back": [None, None]},
    {"connection_id": pl.String, "forth": pl.String, "back": pl.String},
)
PAIRS = pl.DataFrame(
    {"x_connection_id": ["out"], "y_connection_id": ["in"], "ahead_forth": [100], "ahead_back": [None]},
    {"x_connection_id": pl.String, "y_connection_id": pl.String, "ahead_forth": pl.Int64, "ahead_back": pl.Int64},
)
SHARED = [(100 + 10 * n, n) for n in range(20)]
"""Offset and number of the packets of the router's connection that it got on the other one."""
CASES: dict[str, tuple[list[tuple[int, int]], dict[str, Any], bool]] = {
    "all are the same": ([], {}, True),
    "another one within": ([(105 + n, 90 + n) for n in range(5)], {}, False),
    "too few to count": ([(105, 90), (115, 91)], {}, True),
    "before its beginning": ([(10 + n, 90 + n) for n in range(5)], {}, False),
    "before its capture began": ([(10 + n, 90 + n) for n in range(5)], {"mid_stream": True, "first_s": 60}, True),
    "while it was captured": ([(10 + n, 90 + n) for n in range(5)], {"mid_stream": True}, False),
    "behind its end, while it was captured": ([(400 + n, 90 + n) for n in range(5)], {}, False),
    "behind its end, when its capture had ended": ([(400 + n, 90 + n) for n in range(5)], {"last_s": 40}, True),
    "it lacks bytes": ([(105 + n, 90 + n) for n in range(5)], {"missing_bytes": 1}, True),
    "its bytes there are unread": ([(105 + n, 90 + n) for n in range(5)], {"unread": (5, 5)}, True),
    "its bytes elsewhere are unread": ([(105 + n, 90 + n) for n in range(5)], {"unread": (50, 5)}, False),
}


@pytest.mark.parametrize("what", CASES)
def test_what_one_connection_alone_has_tells_that_it_is_no_copy(what: str) -> None:
    others, more, is_copy = CASES[what]
    streams = rows_of(
        STREAMS,
        {"stream_id": "out>", "recovered_bytes": 500, "missing_bytes": 0, "mid_stream": True},
        {"stream_id": "in>", "recovered_bytes": 200, "missing_bytes": more.get("missing_bytes", 0)}
        | {"mid_stream": more.get("mid_stream", False)},
    )
    made = {"first": more.get("first_s", 0), "last": more.get("last_s", 100)}
    times = {f"{end}_captured_at": second * 1_000_000 for end, second in made.items()}
    captures = rows_of(
        CAPTURES,
        {"capture_id": "a", "first_captured_at": 50_000_000, "last_captured_at": 50_000_000},
        {"capture_id": "b", **times},
    )
    shown = pl.DataFrame({"stream_id": ["out>", "in>"], "capture_id": ["a", "b"]})
    packets = pl.DataFrame(
        [
            *(("out>", at, 50_000_000_000, packet) for at, packet in (*SHARED, *others)),
            *(("in>", at - 100, 50_000_000_000, packet) for at, packet in SHARED),
        ],
        ["stream_id", "stream_offset", "captured_ns", "packet"],
        orient="row",
    )
    sides = places_in_others(PAIRS, CONNECTIONS, streams, shown, captures)
    placed = packets.join(sides, on="stream_id")
    unread = pl.DataFrame(
        [("in>", *more["unread"])] if "unread" in more else [],
        {"other": pl.String, "stream_offset": pl.Int64, "length": pl.Int64},
        orient="row",
    )
    denied = count_denied(placed, packets.select("stream_offset", "packet", other="stream_id"), unread)
    assert without_forwarded(PAIRS, denied).is_empty() is not is_copy
