"""Adds verdicts up once, for everything that is summed up per sequence, session or scope.

A tally is of one sequence on one stream.
"""

import polars as pl

from schemas.replay import Reading, Verdict
from udfs.frames.columns import as_numbers, sent_order, signed
from udfs.frames.derivation import derives
from udfs.replay.outcomes.plain import IS_LATE, TALLIED

_NAMES = ("scope_key", "source_queue_manager", "session_id", "stream_id")
_KEY = ("scope_key", "source_queue_manager", "tx_sequence_id", "session_id", "stream_id")
_OF_LAST = ("state_sequence", "state_number")
_OF_FIRST = ("opening_sequence", "opening_number")
_SUMMED = ("messages", *(verdict.value for verdict in Verdict), "expired", "acknowledged", "late")
_HIGHEST = (
    *("last_number", "last_accepted_number", "last_captured_at", "last_captured_ns", "last_offset", "last_order"),
    *("last_from_zero", "last_unknown", "moved_order", "last_sent"),
)


@derives(columns={"verdicts": TALLIED}, in_parts=True)
def tally(verdicts: pl.DataFrame, reading: Reading = Reading.CONFORMANT) -> pl.DataFrame:
    """Returns tallies of some verdicts, of which `merge_tallies` makes those of all."""
    return _merged(verdicts.select(**_of_one_message(reading)))


@derives(("scope_key",))
def merge_tallies(parts: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per sequence and stream with `messages`, counts of verdicts, and the ends of the run.

    `first_order` and `last_order` are the places of its first and last arrival; `opening_sequence` and
    `opening_number` the state before the first, `state_sequence` and `state_number` that after the last (sequences are
    `signed`). `last_from_zero` and `last_unknown` are for `state_assumed`, the rest is for `settled`.
    """
    return _merged(parts)


def _of_one_message(reading: Reading) -> dict[str, pl.Expr]:
    """Returns the columns of the tally of a single message."""
    order, number = pl.col("replay_order"), pl.col("tx_sequence_number")
    sequence_before, number_before = pl.col("incoming_tx_sequence_id"), pl.col("incoming_tx_sequence_number")
    accepted = pl.col("accepted")
    moves = accepted.fill_null(value=True) | (reading is Reading.LITERAL)
    is_covered, counted = pl.col("covered_at").is_not_null(), number_before.is_not_null() & ~pl.col("assumed")
    begins = (pl.col("verdict") == Verdict.NEW_SEQUENCE.value) & ~pl.col("behind_gap") & ~pl.col("assumed")
    is_counted = {verdict.value: pl.col("verdict") == verdict.value for verdict in Verdict}
    return {
        **{name: pl.col(name) for name in _KEY},
        "messages": pl.lit(1, pl.Int64),
        **{name: one.fill_null(value=False).cast(pl.Int64) for name, one in is_counted.items()},
        "expired": pl.when(counted).then("gap_size").otherwise(0),
        "acknowledged": (accepted & pl.col("acknowledged_at").is_not_null()).fill_null(value=False).cast(pl.Int64),
        "late": (accepted & pl.sql_expr(IS_LATE)).fill_null(value=False).cast(pl.Int64),
        "first_number": number,
        "last_number": number,
        "last_accepted_number": pl.when(accepted).then(number),
        "first_captured_at": pl.col("captured_at"),
        "last_captured_at": pl.col("captured_at"),
        "last_captured_ns": pl.col("captured_ns"),
        "first_offset": pl.col("stream_offset"),
        "last_offset": pl.col("stream_offset"),
        "first_ns": pl.col("captured_ns"),
        "first_order": order,
        "last_order": order,
        "opening_sequence": signed(sequence_before),
        "opening_number": number_before,
        "opening_missing": pl.col("missing_runs"),
        "begins": begins,
        "state_sequence": signed(pl.when(moves).then("tx_sequence_id").otherwise(sequence_before)),
        "state_number": pl.when(moves).then(number).otherwise(number_before),
        "last_from_zero": pl.when(accepted & (pl.col("previous_tx_sequence_number") == 0)).then(order),
        "last_unknown": pl.when(accepted.is_null()).then(order * 2 + is_covered),
        "moved_order": pl.when(moves).then(order),
        "last_sent": pl.when(accepted).then(sent_order()),
    }


def _merged(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns tallies with those of one sequence and stream as one."""
    return (
        tallies.with_columns(as_numbers(tallies, *_NAMES))
        .group_by(_KEY)
        .agg(
            pl.col(_SUMMED).sum(),
            pl.col("first_number", "first_captured_at", "first_offset", "first_order").min(),
            pl.col(_HIGHEST).max(),
            pl.col("first_ns").min_by("first_offset"),
            pl.col(*_OF_FIRST, "opening_missing", "begins").min_by("first_order"),
            pl.col(_OF_LAST).max_by("last_order"),
        )
        .with_columns(pl.col(_NAMES).cast(pl.String), sequence=signed(pl.col("tx_sequence_id")))
    )


def scope_states(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns per `scope_key` where its receiver stood: before the first arrival, `opening_…`, and after the last.

    `state_…` is that after the last arrival; `state_assumed`: it rests on the last unknown arrival, which no OrderAck
    covered, and no message with a previous number of 0 set it since. `acknowledged_sequence` is the last one of which a
    message was acknowledged; null for none.
    """
    unknown, from_zero = pl.col("last_unknown"), pl.col("last_from_zero")
    is_assumed = (unknown // 2 > from_zero.fill_null(0)) & (unknown % 2 == 0)
    return (
        tallies.group_by("scope_key", "source_queue_manager")
        .agg(
            *(pl.col(name).max_by("last_order") for name in _OF_LAST),
            *(pl.col(name).min_by("first_order") for name in _OF_FIRST),
            pl.col("last_from_zero", "last_unknown").max(),
            pl.col("sequence").filter(pl.col("acknowledged") > 0).max().alias("acknowledged_sequence"),
        )
        .with_columns(state_assumed=is_assumed.fill_null(value=False))
        .drop("last_from_zero", "last_unknown")
    )
