"""Derives outcomes from VERDICTS in this process: the functions of `udfs.derive`, and the passes between them."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
from plain_outcomes import Row
from replay_tables import Tables
from test_scenes_without_spark import judged

from schemas.explained import ARRIVAL, OF_SLOT
from schemas.replay import VERDICTS
from schemas.table import LONG, RowType, row
from udfs.derive.frames import to_arrow, to_frame
from udfs.derive.outcomes.arrivals import FALLING, unusual_arrivals, with_falling_order
from udfs.derive.outcomes.counts import count_outcomes
from udfs.derive.outcomes.slots import accepted_twice
from udfs.passes.options import Pass
from udfs.replay.arrivals import find_plain_runs
from udfs.replay.slots import explain_slots

NOT_ARRIVED = {"scope_key": pl.String, "stream_id": pl.String, "stream_offset": pl.Int64}
_FALLING = pa.schema([*ARRIVAL, *row(falling_sequence=LONG, falling_number=LONG)])

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
ALIKE: Row = {
    "scope_key": "queue s q", "source_queue_manager": "s", "session_id": "a->b", "stream_id": "a>",
    "tx_sequence_id": 7, "accepted": True, "verdict": "in_order", "evidence": "none", "gap_size": 0,
    "reject_count": 0, "assumed": False, "missing_runs": 0, "behind_gap": False, "content_hash": 1, "captured_at": AT,
}  # fmt: skip


class Outcomes(NamedTuple):
    """The frames of `unusual_arrivals`, and what follows from its arrivals."""

    arrivals: pl.DataFrame
    unusual: pl.DataFrame
    tallies: pl.DataFrame
    plain: pl.DataFrame
    slots: pl.DataFrame
    rows: pl.DataFrame
    counts: pl.DataFrame


def arrival(order: int, number: int, **columns: Any) -> Row:
    """A verdict on the message with a number, accepted with its predecessor in place."""
    state = {"incoming_tx_sequence_id": 7, "incoming_tx_sequence_number": number - 1}
    place = {"stream_offset": order * 10, "captured_ns": order, "replay_order": order, "message_id": f"s\\{number}"}
    numbers = {"tx_sequence_number": number, "previous_tx_sequence_number": number - 1}
    return ALIKE | state | place | numbers | columns


def verdicts_of(rows: list[Row]) -> pl.DataFrame:
    """Returns rows of VERDICTS as a frame; those may lack columns."""
    return to_frame(pa.Table.from_pylist(rows, pa.schema([field.with_nullable(True) for field in VERDICTS.arrow])))


def judge(tables: Tables) -> pl.DataFrame:
    """Returns the verdicts of the second replayer; bytes are missing where the stream of a message lacks some."""
    rows = judged(tables)
    set_behind: dict[str, int] = {}
    for message in sorted(rows, key=lambda message: message["replay_order"]):
        place = message["stream_id"], message["stream_offset"]
        gaps = ((gap["stream_id"], gap["stream_offset"]) for gap in tables.rows["stream_gaps"])
        missing = sum(gap[0] == place[0] and gap < place for gap in gaps)
        behind_gap = missing > set_behind.get(message["scope_key"], 0)
        if message["accepted"] is not False:
            set_behind[message["scope_key"]] = missing
        message |= {"missing_runs": missing, "behind_gap": behind_gap}
    return verdicts_of(rows)


def derive(verdicts: pl.DataFrame, not_arrived: pl.DataFrame | None = None) -> Outcomes:
    """Derives outcomes; `not_arrived` are rows of `unarrived`."""
    if not_arrived is None:
        not_arrived = pl.DataFrame(schema=NOT_ARRIVED)
    found = unusual_arrivals(verdicts, accepted_twice(verdicts), not_arrived)
    runs = _run(found["arrivals"], find_plain_runs, ARRIVAL, ARRIVAL, "scope_key", "replay_order")
    falling = with_falling_order(pl.concat([found["arrivals"], runs]))
    of_slots = _run(falling, explain_slots, _FALLING, OF_SLOT, "scope_key", *FALLING)
    rows = of_slots.select("outcome").drop_nulls().unnest("outcome")
    return Outcomes(**found, rows=rows, counts=count_outcomes(found["plain"], rows))


def _run(frame: pl.DataFrame, work: Pass, of: RowType, made: RowType, *order: str) -> pl.DataFrame:
    batches: Any = to_arrow(frame.sort(order)).cast(of).combine_chunks().to_batches(max_chunksize=7)
    return to_frame(pa.Table.from_batches(work(batches), made))
