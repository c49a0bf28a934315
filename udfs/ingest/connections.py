"""Decides, one connection at a time, from which state it resumes, what is read again for it, and which rows are stale.

A state covers all captures up to its own place in the order of captures. A connection resumes from its latest state
when all its new captures come later. Otherwise it is assembled again, from an earlier state or from the start.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from schemas.staging import PLANNED
from udfs.arrow.buffers import record_batch
from udfs.frames.rows import Batches, Pass
from udfs.ingest.captures import Place, Row

_RECENT_BYTES = 1 << 17
_ROWS = 10_000


class Connection(NamedTuple):
    """Holds what the tables say about a connection, and the captures of this run that hold segments of it."""

    packed: bytes
    now: list[Place]
    before: list[Place]
    """Earlier captures that hold segments of it."""
    states: list[Row]
    """Newest first."""
    streams: list[Row]
    rewind: bool | None
    """None at first. When it is assembled again: whether segments came that belong before its latest state."""


def plan_connections(places: Mapping[int, Place], gone: Collection[str]) -> Pass:
    """Returns the pass from rows of HISTORY, sorted by `packed`, to rows of PLANNED.

    `places`: of this run's captures by rank. `gone`: earlier captures that cannot be read again.
    """

    def run(batches: Batches) -> Batches:
        planned: list[Row] = []
        rows = (row for batch in batches for row in batch.to_pylist())
        for packed, history in groupby(rows, lambda row: row["packed"]):
            connection = collect_history(packed, history, places)
            planned += _plan_first(connection) if connection.rewind is None else _plan_again(connection, gone)
            if len(planned) >= _ROWS:
                yield from _batches(planned)
                planned = []
        yield from _batches(planned)

    return run


def _batches(planned: Iterable[Row]) -> Batches:
    """Yields a batch of each kind of decision, because the columns that are null in a whole batch take no memory."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in planned:
        for kind, decision in row.items():
            kinds[kind].append(decision)
    for kind, decisions in kinds.items():
        values = pa.array(decisions, PLANNED.field(kind).type)
        yield record_batch({kind: values}, len(values), PLANNED)


def collect_history(packed: bytes, history: Iterable[Row], places: Mapping[int, Place]) -> Connection:
    """Sorts a connection's rows of HISTORY by kind."""
    found = Connection(packed, [], [], [], [], None)
    for row in history:
        if row["capture"] is not None:
            found.now.append(places[row["capture"]])
        elif row["stream_id"] is not None:
            found.streams.append(row)
        elif row["rewind"] is not None:
            found = found._replace(rewind=row["rewind"])
        else:
            found.before.append(Place.of(row))
            if row["state"] is not None:
                found.states.append(row)
    found.states.sort(key=lambda row: Place.of(row).key, reverse=True)
    return found


def earlier_states(connection: Connection) -> list[Row]:
    """Returns the states from before the first capture of this run, newest first."""
    first = min(place.key for place in connection.now)
    return [state for state in connection.states if Place.of(state).key < first]


def uncovered_captures(connection: Connection, state: Row | None) -> list[str]:
    """Returns the earlier captures that come after the state's place; all without a state."""
    return [place.capture_id for place in connection.before if state is None or place.key > Place.of(state).key]


def last_complete_state(connection: Connection, *, rewind: bool) -> Row | None:
    """Returns the latest earlier state that is complete; with `rewind`, one before the latest state."""
    return next((state for state in earlier_states(connection)[rewind:] if is_complete(state["state"])), None)


def is_complete(state: str) -> bool:
    """Returns whether no bytes may still be captured that a state has skipped.

    Bytes may, if the receiver has not acknowledged them, or if they are among the last 128 KiB, because frames may be
    captured out of order.
    """
    return not any(_is_open(side) for one in json.loads(state)["connections"] for side in one["sides"])


def _is_open(side: Mapping[str, Any]) -> bool:
    acked, fixed, done = side.get("acked"), side.get("fixed"), side.get("done", 0)
    acknowledged = 0 if acked is None or fixed is None else acked - fixed
    closed = min(done - _RECENT_BYTES, acknowledged)
    begun = side.get("isn") is None and 1 <= done <= _RECENT_BYTES
    return begun or any(offset + length > closed for offset, length in side.get("gaps", ()))


def stale_rows(connection: Connection, state: Row | None) -> Iterator[Row]:
    """Yields (packed, stream_id, from_offset): streams whose rows from that offset on, or all (-1), are replaced."""
    tails = {} if state is None else {tail["stream_id"]: tail["stream_offset"] for tail in state["tails"]}
    for stream in connection.streams:
        if state is None or stream["instance"] >= state["first_instance"]:
            offset = tails.get(stream["stream_id"], -1)
            yield {"packed": connection.packed, "stream_id": stream["stream_id"], "from_offset": offset}


def _plan_first(connection: Connection) -> Iterator[Row]:
    """Plans the first assembly of a connection: it resumes from its latest earlier state, or waits as `late`."""
    packed = connection.packed
    last = max([*connection.now, *connection.before], key=lambda place: place.key)
    first = min(place.key for place in connection.now)
    later = [place for place in map(Place.of, connection.states) if place.key >= first]
    yield {"last": {"packed": packed} | last._asdict()}
    for place in dict.fromkeys([*connection.now, *later]):
        if place != last:
            yield {"stateless": {"packed": packed} | place._asdict()}
    latest = next(iter(earlier_states(connection)), None)
    if uncovered_captures(connection, latest):
        yield {"late": {"packed": packed, "rewind": False}}
    else:
        yield from _resume(connection, latest)


def _plan_again(connection: Connection, gone: Collection[str]) -> Iterator[Row]:
    """Plans the second assembly of a connection, with all its bytes.

    If an earlier capture is gone, the connection resumes from its latest state, also a later one: late segments then do
    not fit and go to quarantine. A connection without any state is `unrecoverable`.
    """
    state = last_complete_state(connection, rewind=bool(connection.rewind))
    uncovered = uncovered_captures(connection, state)
    if any(capture_id in gone for capture_id in uncovered):
        uncovered = []
        state = next(iter(connection.states), None)
        if state is None:
            yield {"unrecoverable": {"packed": connection.packed}}
    for capture_id in [*uncovered, *(place.capture_id for place in connection.now)]:
        yield {"read": {"packed": connection.packed, "capture_id": capture_id}}
    yield from _resume(connection, state)


def _resume(connection: Connection, state: Row | None) -> Iterator[Row]:
    if state is not None:
        yield {"state": {"connection": connection.packed, "capture": -1, "frame": 0, "state": state["state"]}}
    for row in stale_rows(connection, state):
        yield {"stale": row}
