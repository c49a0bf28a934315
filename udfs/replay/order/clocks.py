"""Undoes the steps back of a capture's clock, so that messages on several connections are in the order they came.

Where the clocks of two captures differ, it finds the messages whose order this leaves in doubt.
"""

import polars as pl

from udfs.frames.columns import CAPTURES_OF_PAIR, PLACE, nanoseconds, timestamp
from udfs.frames.derivation import derives

_PACKETS = ("messages", "acks", "handshakes")


def find_steps(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns per capture and step `first_frame` and by how much the clock is behind from there on, `behind_ns`."""
    return (
        captures.select("capture_id", step="clock_steps")
        .explode("step")
        .filter(pl.col("step").is_not_null())
        .unnest("step")
        .sort("frame")
        .select(
            "capture_id",
            first_frame="frame",
            behind_ns=-pl.col("step_ns").cum_sum().over("capture_id"),
        )
    )


@derives(shared=("steps",), in_parts=True)
def with_steps_undone(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns rows with times by a clock without steps; `steps` is what `find_steps` returns.

    Beside `captured_ns`, that is `acknowledged_at`, which moves with its message.
    """
    late = _late(rows, steps)
    acknowledged_at = timestamp(nanoseconds(pl.col("acknowledged_at")) + late)
    in_time = rows.with_columns(captured_ns=pl.col("captured_ns") + late)
    return in_time.with_columns(acknowledged_at=acknowledged_at) if "acknowledged_at" in rows.columns else in_time


@derives(("stream_id",))
def in_their_places(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of copies in the place and by the clock of the stream that counts.

    The rows have that place, `at_stream` and `at_offset`, and `late_ns`: by how much the clock of the copy is ahead.
    """
    moved = rows.with_columns(
        stream_id="at_stream", stream_offset="at_offset", captured_ns=pl.col("captured_ns") - pl.col("late_ns")
    )
    return moved.drop("at_stream", "at_offset", "late_ns")


def with_recorded(verdicts: pl.DataFrame, only_in_copies: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns VERDICTS with the keys of their messages and the times that were recorded.

    `acknowledged_at` moves with its message. `only_in_copies` are messages by their place in the stream that
    counts (`united.unite_streams`).
    """
    if only_in_copies.is_empty() and steps.is_empty():
        return verdicts
    rows = verdicts.join(only_in_copies, on=PLACE, how="left")
    back_ns = pl.col("late_ns").fill_null(0) - _late(rows, steps)
    return rows.with_columns(
        stream_id=pl.coalesce("own_stream", "stream_id"),
        stream_offset=pl.coalesce("own_offset", "stream_offset"),
        captured_ns=pl.col("captured_ns") + back_ns,
        acknowledged_at=timestamp(nanoseconds(pl.col("acknowledged_at")) + back_ns),
    ).select(verdicts.columns)


def _late(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Returns by how much the clock is behind at each row, by its capture and `last_frame`; 0 before it steps."""
    return (
        rows.select("capture_id", frame=pl.col("last_frame").fill_null(-1))
        .with_row_index("row")
        .sort("frame")
        .join_asof(
            steps.select("capture_id", "behind_ns", frame="first_frame").sort("frame"),
            on="frame",
            by="capture_id",
            check_sortedness=False,
        )
        .sort("row")["behind_ns"]
        .fill_null(0)
    )


@derives(("stream_id",), ("steps",), dict.fromkeys(_PACKETS, (*PLACE, "captured_ns", "capture_id", "last_frame")))
def times_of_streams(steps: pl.DataFrame, **packets: pl.DataFrame) -> pl.DataFrame:
    """Returns when streams were, as their packets tell; `steps` are of their captures.

    Per `stream_id`, that is by how much the clock was behind at the first and the last packet, `first_late` and
    `last_late`, and `first_ns` and `last_ns`, the least and the most time, by a clock without steps. The packets are
    `messages`, `acks` and `handshakes`.
    """
    place = ("stream_offset", "late_ns")
    return (
        pl.concat(of.select(*PLACE, "captured_ns", late_ns=_late(of, steps)) for of in packets.values())
        .with_columns(time_ns=pl.col("captured_ns") + pl.col("late_ns"))
        .group_by("stream_id")
        .agg(
            first_late=pl.col("late_ns").sort_by(place).first(),
            last_late=pl.col("late_ns").sort_by(place).last(),
            first_ns=pl.min("time_ns"),
            last_ns=pl.max("time_ns"),
        )
    )


def streams_in_time(streams: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Returns STREAMS whose first and last times are by a clock without steps; `times` are `times_of_streams`.

    A stream without packets takes the steps from the other direction. If the clock steps between the packets of a
    connection, the recorded times of segments have no order, so that the first and the last packet say when it was.
    """
    least, most = pl.min("first_ns"), pl.max("last_ns")
    joined = streams.join(times, on="stream_id", how="left").with_columns(
        pl.coalesce("first_late", pl.max("first_late").over("connection_id"), 0),
        pl.coalesce("last_late", pl.max("last_late").over("connection_id"), 0),
        pl.coalesce("first_ns", least.over("connection_id")),
        pl.coalesce("last_ns", most.over("connection_id")),
    )
    steps = (pl.min("first_late") < pl.max("last_late")).over("connection_id")
    in_time = {
        f"{end}_captured_at": timestamp(
            pl.coalesce(
                pl.when(steps).then(f"{end}_ns"), nanoseconds(pl.col(f"{end}_captured_at")) + pl.col(f"{end}_late")
            )
        )
        for end in ("first", "last")
    }
    return joined.with_columns(**in_time).select(streams.columns)


@derives(CAPTURES_OF_PAIR)
def skews_of(differences: pl.DataFrame) -> pl.DataFrame:
    """Returns by how much the clocks of two captures differ, `skew_ns`: the median over the packets that both have.

    `differences` are those of `united.unite_streams`.
    """
    skew_ns = pl.col("ahead_ns").median().cast(pl.Int64).abs()
    return differences.group_by(CAPTURES_OF_PAIR).agg(skew_ns=skew_ns).filter(pl.col("skew_ns") > 0)


def sides_of_skews(shown: pl.DataFrame, skews: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` and the columns of `skews` where only one of both captures shows it, which `is_one` tells.

    A stream has the clock of its capture. One that is in both captures is ordered by one clock, so it counts for
    neither. `shown` are `stream_id` and `capture_id` of messages that were not placed from a copy.
    """
    of_side = (
        shown.join(skews.with_columns(capture_id=side, is_one=pl.lit(side == CAPTURES_OF_PAIR[0])), on="capture_id")
        for side in CAPTURES_OF_PAIR
    )
    return (
        pl.concat(of_side)
        .group_by("stream_id", *CAPTURES_OF_PAIR, "skew_ns")
        .agg(pl.min("is_one"), most=pl.max("is_one"))
        .filter(pl.col("is_one") == pl.col("most"))
        .drop("most")
    )


@derives(("scope_key",))
def disputed_in_scopes(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the PLACE of the messages in doubt among those of whole scopes, which `scope_key` names.

    They may have come before or after another one of their scope: that is on a connection in another capture, and
    nearer in time than the skew between the two captures (`skews_of`).
    `messages` are joined with the rows of `sides_of_skews` of their stream; those without one are in no doubt.
    """
    in_pair, is_one, time = ("scope_key", *CAPTURES_OF_PAIR), pl.col("is_one"), pl.col("captured_ns")
    ones, others = pl.when(is_one).then(time), pl.when(~is_one).then(time)
    before = pl.when(is_one).then(others.forward_fill().over(in_pair)).otherwise(ones.forward_fill().over(in_pair))
    after = pl.when(is_one).then(others.backward_fill().over(in_pair)).otherwise(ones.backward_fill().over(in_pair))
    return (
        messages.filter(time.is_not_null())
        .sort("captured_ns")
        .filter(pl.min_horizontal(time - before, after - time) < pl.col("skew_ns"))
        .select(PLACE)
        .unique()
    )
