"""Adds verdicts up once, for everything that is summed up per sequence, session or scope.

A tally is of one sequence on one stream.
"""

import polars as pl

from schemas.replay import Reading, Verdict
from udfs.derive.columns import as_numbers, count, count_if, null, sent_order, signed
from udfs.derive.frames import derives
from udfs.derive.outcomes.slots import JUDGED_AS, is_late

_NAMES = ("scope_key", "source_queue_manager", "session_id", "stream_id")
_KEY = ("scope_key", "source_queue_manager", "tx_sequence_id", "session_id", "stream_id")
_GUID = r"(?s)^.{8}-.{4}-.{4}-.{4}-.{12}$"
_OF_LAST = ("state_sequence", "state_number")
_OF_FIRST = ("opening_sequence", "opening_number")


@derives(("scope_key",), columns={"verdicts": JUDGED_AS})
def tally(verdicts: pl.DataFrame, reading: Reading = Reading.CONFORMANT) -> pl.DataFrame:
    """Returns a row per sequence and stream with `messages`, counts of verdicts, and the ends of the run.

    `first_order` and `last_order` are the places of its first and last arrival; `opening_sequence` and
    `opening_number` the state before the first, `state_sequence` and `state_number` that after the last (sequences are
    `signed`). `last_from_zero` and `last_unknown` are for `state_assumed`, the rest is for `settled`.
    """
    order, number = pl.col("replay_order"), pl.col("tx_sequence_number")
    sequence_before, number_before = pl.col("incoming_tx_sequence_id"), pl.col("incoming_tx_sequence_number")
    moves = pl.col("accepted").fill_null(value=True) | (reading is Reading.LITERAL)
    is_covered, counted = pl.col("covered_at").is_not_null(), number_before.is_not_null() & ~pl.col("assumed")
    from_zero = pl.col("accepted") & (pl.col("previous_tx_sequence_number") == 0)
    begins = (pl.col("verdict") == Verdict.NEW_SEQUENCE.value) & ~pl.col("behind_gap") & ~pl.col("assumed")
    return (
        verdicts.with_columns(as_numbers(verdicts, *_NAMES))
        .group_by(_KEY)
        .agg(
            count().alias("messages"),
            *(count_if(pl.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict),
            pl.when(counted).then("gap_size").otherwise(0).sum().alias("expired"),
            number.min().alias("first_number"),
            number.max().alias("last_number"),
            pl.when("accepted").then(number).max().alias("last_accepted_number"),
            pl.col("captured_at").min().alias("first_captured_at"),
            pl.col("captured_at").max().alias("last_captured_at"),
            pl.col("captured_ns").max().alias("last_captured_ns"),
            pl.col("stream_offset").min().alias("first_offset"),
            pl.col("stream_offset").max().alias("last_offset"),
            pl.col("captured_ns").min_by("stream_offset").alias("first_ns"),
            order.min().alias("first_order"),
            order.max().alias("last_order"),
            sequence_before.min_by(order).alias("opening_sequence"),
            number_before.min_by(order).alias("opening_number"),
            pl.col("missing_runs").min_by(order).alias("opening_missing"),
            begins.min_by(order).alias("begins"),
            pl.when(moves).then("tx_sequence_id").otherwise(sequence_before).max_by(order).alias("state_sequence"),
            pl.when(moves).then(number).otherwise(number_before).max_by(order).alias("state_number"),
            pl.when(from_zero).then(order).max().alias("last_from_zero"),
            pl.when(pl.col("accepted").is_null()).then(order * 2 + is_covered).max().alias("last_unknown"),
            pl.when(moves).then(order).max().alias("moved_order"),
            pl.when("accepted").then(sent_order()).max().alias("last_sent"),
            count_if(pl.col("accepted") & is_late()).alias("late"),
        )
        .with_columns(
            pl.col(_NAMES).cast(pl.String),
            signed(pl.col("opening_sequence")),
            signed(pl.col("state_sequence")),
            sequence=signed(pl.col("tx_sequence_id")),
        )
    )


def scope_states(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns per `scope_key` where its receiver stood: before the first arrival, `opening_…`, and after the last.

    `state_…` is that after the last arrival; `state_assumed`: it rests on the last unknown arrival, which no OrderAck
    covered, and no message with a previous number of 0 set it since. `several_receivers`: the messages went to queue
    managers with different GUIDs, of which each has a state of its own.
    """
    unknown, from_zero = pl.col("last_unknown"), pl.col("last_from_zero")
    is_assumed = (unknown // 2 > from_zero.fill_null(0)) & (unknown % 2 == 0)
    return (
        tallies.group_by("scope_key", "source_queue_manager")
        .agg(
            *(pl.col(name).max_by("last_order") for name in _OF_LAST),
            *(pl.col(name).min_by("first_order") for name in _OF_FIRST),
            pl.col("last_from_zero", "last_unknown").max(),
            (receiver_guid().drop_nulls().n_unique() > 1).alias("several_receivers"),
        )
        .with_columns(state_assumed=is_assumed.fill_null(value=False))
        .drop("last_from_zero", "last_unknown")
    )


def receiver_guid() -> pl.Expr:
    """Returns the GUID of a session's receiver; null where that is known by its address."""
    receiver = pl.col("session_id").str.split("->").list.last()
    return pl.when(receiver.str.contains(_GUID)).then(receiver).otherwise(null(pl.String))
