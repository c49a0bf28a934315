"""Which connections go on from earlier runs, from which of their states, and what has to be read again for them.

The order of captures is that of their first and last record time, then identity: the columns `PLACE`. A state answers
for all captures up to its own place. Every connection is known by `packed`, its endpoints.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

PLACE = ("first_ns", "last_ns", "capture_id")
_PAIR = ["packed", "capture_id"]
_RECENT_BYTES = 1 << 17
_SIDE = "isn: long, acked: long, fixed: long, done: long, gaps: array<array<long>>"
_STATE = f"connections array<struct<sides: array<struct<{_SIDE}>>>>"


def place() -> Column:
    """A capture's place in the order of captures, to be compared."""
    return F.struct(*PLACE)


def held(segments: DataFrame, captures: DataFrame) -> DataFrame:
    """One row (packed, capture, first_ns, last_ns, capture_id) per connection and ranked capture that holds of it."""
    pairs = segments.select(F.col("connection").alias("packed"), "capture").distinct()
    return pairs.join(F.broadcast(captures.select("capture", *PLACE)), "capture")


def earlier(connection_captures: DataFrame, captures: DataFrame, now: DataFrame) -> DataFrame:
    """Rows of `connection_captures`, of captures that were finished before, for the connections held `now`."""
    done = _finished(connection_captures, captures).join(now.select("packed", "capture_id"), _PAIR, "left_anti")
    return done.join(now.select("packed"), "packed", "left_semi")


def states_before(states: DataFrame, captures: DataFrame, now: DataFrame) -> DataFrame:
    """States of the connections held `now` before their first capture, `nth` 1 the latest; those of killed runs not."""
    valid = _finished(states, captures).join(_first(now), "packed")
    return _numbered(valid.where(place() < F.col("first")).drop("first"))


def latest(states: DataFrame, captures: DataFrame, packed: DataFrame) -> DataFrame:
    """The latest valid state of each of the connections, wherever their new captures lie."""
    valid = _finished(states, captures).join(packed, "packed", "left_semi")
    return _numbered(valid).where("nth = 1").drop("nth")


def needed(before: DataFrame, bases: DataFrame) -> DataFrame:
    """The rows of `before` (see `earlier`) that the state of their connection in `bases` does not answer for."""
    reach = bases.select("packed", place().alias("reach"))
    return before.join(reach, "packed", "left").where(F.col("reach").isNull() | (place() > F.col("reach")))


def bases_again(states: DataFrame, flagged: DataFrame) -> DataFrame:
    """The latest `whole` state of each flagged connection (packed, rewind); with `rewind`, not the very latest."""
    behind = F.col("nth") >= F.when(F.col("rewind"), 2).otherwise(1)
    may = states.join(flagged, "packed").where(behind & whole(F.col("state"))).drop("rewind")
    return _numbered(may).where("nth = 1")


def whole(state: Column) -> Column:
    """Whether nothing that comes behind a state belongs before it: it has passed over no bytes that may still come.

    Such are those that the receiver has not acknowledged, and the last ones, as frames may be captured out of order.
    """
    sides = F.flatten(F.transform(F.from_json(state, _STATE)["connections"], lambda one: one["sides"]))

    def may_lack(side: Column) -> Column:
        settled = F.least(side["done"] - _RECENT_BYTES, F.coalesce(side["acked"] - side["fixed"], F.lit(0)))
        begun = side["isn"].isNull() & side["done"].between(1, _RECENT_BYTES)
        return begun | F.exists(side["gaps"], lambda gap: gap[0] + gap[1] > settled)

    return ~F.exists(sides, may_lack)


def state_segments(bases: DataFrame) -> DataFrame:
    """The states as rows that come before all segments of their connection."""
    return bases.select(
        F.col("packed").alias("connection"),
        F.lit(-1).cast("long").alias("capture"),
        F.lit(0).cast("long").alias("frame"),
        "state",
    )


def stale_rows(streams: DataFrame, touched: DataFrame, bases: DataFrame) -> DataFrame:
    """Streams (stream_id) whose rows from `from_offset` on, or all (-1), the new ones replace.

    `touched`: connections (endpoints, packed) that were put together; `bases`: the states they went on from.
    """
    tails = bases.select(F.explode("tails").alias("tail")).select(
        "tail.stream_id", F.col("tail.stream_offset").alias("from_offset")
    )
    first = touched.select("endpoints", "packed").join(bases.select("packed", "first_instance"), "packed", "left")
    endpoints = F.substring_index(streams["connection_id"], "#", 1)
    return (
        streams.join(first, endpoints == first["endpoints"])
        .where(F.col("instance") >= F.coalesce("first_instance", F.lit(0)))
        .select("stream_id")
        .join(tails, "stream_id", "left")
        .select("stream_id", F.coalesce("from_offset", F.lit(-1)).cast("long").alias("from_offset"))
        .distinct()
    )


def state_rows(assembled: DataFrame, reached: DataFrame) -> DataFrame:
    """Rows of CONNECTION_STATES: each at the place of the last capture that holds of its connection, in `reached`."""
    last = reached.groupBy("packed").agg(F.max(place()).alias("last")).select("packed", "last.*")
    return assembled.where("state is not null").select("endpoints", "state.*").join(last, "packed")


def overtaken(states: DataFrame, now: DataFrame) -> DataFrame:
    """Keys (endpoints, capture_id) of states behind the first capture `now` of their connection: they lack it."""
    behind = states.join(_first(now), "packed").where(place() >= F.col("first"))
    return behind.select("endpoints", "capture_id").distinct()


def _finished(rows: DataFrame, captures: DataFrame) -> DataFrame:
    """The rows of captures that are done: those that a killed run left are not."""
    return rows.join(captures.select("capture_id"), "capture_id", "left_semi")


def _first(now: DataFrame) -> DataFrame:
    """One row (packed, first) per connection: the place of the first capture that holds of it."""
    return now.groupBy("packed").agg(F.min(place()).alias("first"))


def _numbered(states: DataFrame) -> DataFrame:
    """The states of each connection with `nth`, 1 the latest."""
    return states.withColumn("nth", F.row_number().over(Window.partitionBy("packed").orderBy(place().desc())))
