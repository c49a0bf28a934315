"""Shows the replay every conversation once, although captures at both ends of a connection hold it twice.

Also by clocks that never step back.
"""

from functools import reduce
from typing import NamedTuple, Self

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, each, nanoseconds, null, optional, timestamp
from jobs.transforms.replay.clocks import with_recorded_times, with_steps_undone, with_streams_in_time
from jobs.transforms.replay.coverage import select_unreadable, unread_ranges
from schemas.ingest import Stage

_KEY = ["stream_id", "stream_offset"]


class Conversations(NamedTuple):
    """The replay's tables without copies; a row that only a copy has stands where its counting stream lacks it.

    Such a row has the stream, offset and clock of the counting stream. `restore` undoes this.
    """

    messages: DataFrame
    streams: DataFrame
    stream_gaps: DataFrame
    quarantine: DataFrame
    acks: DataFrame
    handshakes: DataFrame
    steps: DataFrame | None = None
    """What `clocks.find_steps` returns, where the times are by clocks without these steps."""
    copies: DataFrame | None = None
    """What `copies.stream_copies` returns; None without copies."""
    copied: DataFrame | None = None
    """The copies' rows of STREAMS."""
    placed: DataFrame | None = None
    """What `place_copies` returns."""
    skews: DataFrame | None = None
    """Differences between captures' clocks, as `measure_skews` returns them; None where none was measured."""
    failing: bool = False
    """Some connections failed: STREAMS and HANDSHAKES tell which."""
    had_copies: bool = False
    """STREAMS names copies, maybe of an earlier replay."""

    def without_steps(self, steps: DataFrame) -> Self:
        """Returns the tables with the steps back of the captures' clocks undone."""
        return self._replace(
            messages=with_steps_undone(self.messages, steps),
            streams=with_streams_in_time(self.streams, steps, self.messages, self.acks, self.handshakes),
            acks=with_steps_undone(self.acks, steps),
            steps=steps,
        )

    def without_copies(self, copies: DataFrame, placed: DataFrame, unread: DataFrame) -> Self:
        """Returns the tables with each conversation once; `unread` is what `unread_by_all` returns."""
        missing = unread.where("missing").drop("missing")
        unusable = unread.where("not missing").drop("missing").withColumn("stage", F.lit(Stage.FRAMING.value))
        involved = F.broadcast(copies.select(F.explode(F.array("stream_id", "copy_of")).alias("stream_id")).distinct())
        return self._replace(
            messages=_once(self.messages, copies, placed),
            streams=_whole(self.streams, copies, missing),
            stream_gaps=self.stream_gaps.join(involved, "stream_id", "left_anti").unionByName(
                missing, allowMissingColumns=True
            ),
            quarantine=select_unreadable(self.quarantine)
            .join(involved, "stream_id", "left_anti")
            .unionByName(unusable, allowMissingColumns=True),
            acks=_once(self.acks, copies, placed),
            handshakes=_named_by_copies(self.handshakes, copies),
            copies=copies,
            copied=self.streams.join(F.broadcast(copies), "stream_id"),
            placed=placed,
        )

    def restore(self, verdicts: DataFrame) -> DataFrame:
        """Returns VERDICTS with the keys of their messages and the times that were recorded."""
        if self.placed is not None:
            verdicts = _with_own_keys(verdicts, self.placed)
        return verdicts if self.steps is None else with_recorded_times(verdicts, self.steps)

    def every_end(self, peers: DataFrame) -> DataFrame:
        """Returns ENDS: `peers` of the streams that count, and of their copies the same."""
        if self.copied is None:
            return peers
        own = ("stream_id", "connection_id", "mid_stream", "recovered_bytes", "missing_bytes", "copy_of")
        changed = {name: F.col(f"s.{name}") for name in own} | {
            "address": F.col("s.src_ip"),
            "first_ns": nanoseconds("s.first_captured_at"),
            "last_ns": nanoseconds("s.last_captured_at"),
        }
        copied = self.copied.alias("s").join(peers.alias("p"), F.col("s.copy_of") == F.col("p.stream_id"))
        of_copies = copied.select(*(changed.get(name, F.col(f"p.{name}")).alias(name) for name in peers.columns))
        return peers.unionByName(of_copies)

    def renamed_copies(self, streams: DataFrame) -> DataFrame | None:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be; None where none can be."""
        if self.copies is None and not self.had_copies:
            return None
        before = optional(streams, "copy_of", "string")
        now = streams.select("stream_id", null("string").alias("now")).where("false")
        if self.copies is not None:
            now = self.copies.select("stream_id", F.col("copy_of").alias("now"))
        return (
            streams.withColumn("copy_of", before)
            .join(now, "stream_id", "left")
            .where(~F.col("copy_of").eqNullSafe(F.col("now")))
            .withColumn("copy_of", F.col("now"))
            .drop("now")
        )

    def counted(self, rows: DataFrame) -> DataFrame:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""
        if self.copies is None or self.placed is None:
            return rows
        placed = self.placed.select(
            F.col("own_stream").alias("stream_id"),
            F.col("own_offset").alias("stream_offset"),
            F.lit(True).alias("only"),
        )
        return (
            rows.join(F.broadcast(self.copies.select("stream_id", "copy_of")), "stream_id", "left")
            .join(F.broadcast(placed), _KEY, "left")
            .where("copy_of is null or only")
            .select(*rows.columns)
        )


def _with_own_keys(verdicts: DataFrame, placed: DataFrame) -> DataFrame:
    """Returns VERDICTS with the key and the recorded time of their messages."""
    late = F.coalesce("late_ns", F.lit(0).cast("long"))
    changed = {
        "stream_id": F.coalesce("own_stream", "stream_id"),
        "stream_offset": F.coalesce("own_offset", "stream_offset"),
        "captured_ns": F.col("captured_ns") + late,
        "acknowledged_at": timestamp(nanoseconds("acknowledged_at") + late),
    }
    return verdicts.join(F.broadcast(placed), _KEY, "left").select(
        *(changed.get(name, F.col(name)).alias(name) for name in verdicts.columns)
    )


def place_copies(
    copies: DataFrame,
    streams: DataFrame,
    stream_gaps: DataFrame,
    quarantine: DataFrame,
    messages: DataFrame,
    acks: DataFrame,
) -> DataFrame:
    """Returns the messages and acknowledgments that only copies have, each in the place where its stream lacks it.

    `stream_id` and `stream_offset` are that place, `own_stream` and `own_offset` the row's key, and `late_ns` is by how
    much the clock of the copy is ahead. A row is taken only where the stream that counts has no rows at all, and from
    one copy.
    """
    rows = _packets(messages, acks)
    late = F.percentile("ahead_ns", F.lit(0.5)).cast("long").alias("late_ns")  # of the packets that both have
    clocks = _clock_differences(copies, rows).groupBy(F.col("stream_id").alias("own_stream")).agg(late)
    lacking = _lacking(copies, streams, stream_gaps, quarantine)
    return (
        _placed(rows.select(*_KEY), copies)
        .join(F.broadcast(lacking), "at_stream")
        .where("at_offset >= low and at_offset < high")
        .groupBy("at_stream", "at_offset")
        .agg(F.min(F.struct(*_KEY)).alias("own"))
        .select(
            F.col("at_stream").alias("stream_id"),
            F.col("at_offset").alias("stream_offset"),
            F.col("own.stream_id").alias("own_stream"),
            F.col("own.stream_offset").alias("own_offset"),
        )
        .join(clocks, "own_stream", "left")
        .fillna(0, ["late_ns"])
    )


def measure_skews(copies: DataFrame, messages: DataFrame, acks: DataFrame) -> DataFrame:
    """Returns `one_capture`, `other_capture` and `skew_ns`, the median difference of their clocks in absolute value.

    Of captures that have packets of a stream and of its copy.
    """
    own, counted = F.col("capture_id"), F.col("counted_capture")
    return (
        _clock_differences(copies, _packets(messages, acks))
        .where(own != counted)
        .groupBy(F.least(own, counted).alias("one_capture"), F.greatest(own, counted).alias("other_capture"))
        .agg(
            F.abs(
                F.percentile(F.when(own < counted, F.col("ahead_ns")).otherwise(-F.col("ahead_ns")), F.lit(0.5)).cast(
                    "long"
                )
            ).alias("skew_ns")
        )
        .where("skew_ns > 0")
    )


def _counting(copies: DataFrame) -> DataFrame:
    """Returns `stream_id` of the streams that count, of which there are copies."""
    return F.broadcast(copies.select(F.col("copy_of").alias("stream_id")).distinct())


def _packets(messages: DataFrame, acks: DataFrame) -> DataFrame:
    tables = (table.select(*_KEY, "captured_ns", "capture_id") for table in (messages, acks))
    return reduce(DataFrame.unionByName, tables)


def _placed(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """Returns rows of copies with `at_stream` and `at_offset`, their place in the stream that counts."""
    return rows.join(copies.where("ahead is not null"), "stream_id").select(
        *rows.columns, F.col("copy_of").alias("at_stream"), (F.col("stream_offset") - F.col("ahead")).alias("at_offset")
    )


def _clock_differences(copies: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns the `_packets` of copies that the stream that counts has too.

    `counted_capture` shows them there, and `ahead_ns` is by how much later the copy's capture does.
    """
    counting = rows.join(_counting(copies), "stream_id", "left_semi")
    theirs = counting.toDF("at_stream", "at_offset", "counted_ns", "counted_capture")
    return (
        _placed(rows, copies)
        .join(theirs, ["at_stream", "at_offset"])
        .withColumn("ahead_ns", F.col("captured_ns") - F.col("counted_ns"))
    )


def _lacking(copies: DataFrame, streams: DataFrame, stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns `at_stream`, `low` and `high`: the offsets of streams that count at which they have no rows."""
    counting = _counting(copies)
    size, far = F.col("recovered_bytes") + F.col("missing_bytes"), F.lit(1 << 62)
    extents = streams.join(counting, "stream_id", "left_semi")
    unread = unread_ranges(stream_gaps, quarantine).join(counting, "stream_id", "left_semi")
    parts = (
        unread.select("stream_id", "stream_offset", F.col("stream_offset") + F.col("length")),
        extents.select("stream_id", -far, F.lit(0)),
        extents.select("stream_id", size, far),
    )
    return reduce(DataFrame.unionByName, (part.toDF("at_stream", "low", "high") for part in parts))


def _once(rows: DataFrame, copies: DataFrame, placed: DataFrame) -> DataFrame:
    """Returns the rows without those of copies, and with those that only copies have in their place."""
    there = placed.select(
        F.col("own_stream").alias("stream_id"),
        F.col("own_offset").alias("stream_offset"),
        F.col("stream_id").alias("at_stream"),
        F.col("stream_offset").alias("at_offset"),
        "late_ns",
    )
    moved = {
        "stream_id": F.coalesce("at_stream", "stream_id"),
        "stream_offset": F.coalesce("at_offset", "stream_offset"),
        "captured_ns": F.col("captured_ns") - F.coalesce("late_ns", F.lit(0)),
    }
    return (
        rows.join(F.broadcast(copies.select("stream_id", "copy_of")), "stream_id", "left")
        .join(F.broadcast(there), _KEY, "left")
        .where("copy_of is null or at_stream is not null")
        .select(*(moved.get(name, F.col(name)).alias(name) for name in rows.columns))
    )


def _whole(streams: DataFrame, copies: DataFrame, missing: DataFrame) -> DataFrame:
    """Returns the streams that count, with bytes, acknowledgments and beginning of both themselves and their copies."""
    lacking = missing.groupBy("stream_id").agg(F.sum("length").alias("lacking"))
    acked = optional(streams, "acked_bytes", "long")
    begun = (
        streams.join(copies.where("ahead is not null"), "stream_id")
        .groupBy(F.col("copy_of").alias("stream_id"))
        .agg(F.min("mid_stream").alias("never_begun"), F.max(acked - F.col("ahead")).alias("acked"))
    )
    lacks = F.when(F.col("never_begun").isNull(), F.col("missing_bytes")).otherwise(F.coalesce("lacking", F.lit(0)))
    changed = {
        "mid_stream": F.col("mid_stream") & F.coalesce("never_begun", F.lit(True)),
        "missing_bytes": lacks,
        "recovered_bytes": F.col("recovered_bytes") + F.col("missing_bytes") - lacks,
        "acked_bytes": F.greatest("acked_bytes", "acked"),
    }
    return (
        streams.join(copies, "stream_id", "left_anti")
        .join(begun, "stream_id", "left")
        .join(lacking, "stream_id", "left")
        .select(*(changed.get(name, F.col(name)).alias(name) for name in streams.columns))
    )


def _named_by_copies(handshakes: DataFrame, copies: DataFrame) -> DataFrame:
    """Returns the handshakes on the streams that count, those of copies among them."""
    named = handshakes.join(copies.select("stream_id", "copy_of"), "stream_id", "left")
    return named.withColumn("stream_id", F.coalesce("copy_of", "stream_id")).drop("copy_of")


def unread_by_all(copies: DataFrame, streams: DataFrame, stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns `stream_id`, `stream_offset`, `length` and `missing` of what neither a stream nor a copy of it has.

    `missing`: no capture has the bytes of the stream that counts; else they are in quarantine.
    """
    columns = (*_KEY, "length")
    ranges = stream_gaps.select(*columns, F.lit(1).alias("missing")).unionByName(
        select_unreadable(quarantine).select(*columns, F.lit(0).alias("missing"))
    )
    counting = _counting(copies)
    own = _steps(
        ranges.join(counting, "stream_id", "left_semi"), unread=F.lit(1), missing=F.col("missing"), held=F.lit(0)
    )
    extents = streams.select(
        "stream_id",
        F.lit(0).cast("long").alias("stream_offset"),
        (F.col("recovered_bytes") + F.col("missing_bytes")).alias("length"),
        F.lit(1).alias("held"),
    )
    of_copies = extents.unionByName(ranges.drop("missing").withColumn("held", F.lit(-1)))
    placed = _placed(of_copies, copies).select(
        F.col("at_stream").alias("stream_id"), F.col("at_offset").alias("stream_offset"), "length", "held"
    )
    held = _steps(placed, unread=F.lit(0), missing=F.lit(0), held=F.col("held"))
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset")
    totals = ("unread", "missing", "held")
    return (
        own.unionByName(held)
        .groupBy(*_KEY)
        .agg(*each(F.sum, *totals))
        .select(
            *_KEY,
            (F.lead("stream_offset").over(on_stream) - F.col("stream_offset")).alias("length"),
            *(F.sum(name).over(on_stream.rowsBetween(*SO_FAR)).alias(name) for name in totals),
        )
        .where("unread > 0 and held = 0 and length > 0")
        .select(*_KEY, "length", (F.col("missing") > 0).alias("missing"))
    )


def _steps(ranges: DataFrame, **counts: Column) -> DataFrame:
    """Returns, for the start and the end of each range, by how much the counts rise there."""
    ends = (
        ranges.select("stream_id", at.alias("stream_offset"), *((sign * n).alias(name) for name, n in counts.items()))
        for at, sign in ((F.col("stream_offset"), 1), (F.col("stream_offset") + F.col("length"), -1))
    )
    return reduce(DataFrame.unionByName, ends)
