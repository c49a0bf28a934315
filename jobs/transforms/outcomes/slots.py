"""Finds the arrivals that need a closer look, and the slots of each sequence that they leave open.

A *slot* is (scope, sequence, number). Most arrivals are *plain*: accepted in order, once, with the predecessor that the
state names. Two plain arrivals in a row need no row of their own: the state before the next other arrival says how far
they went. So windows run over the other arrivals, and their cost follows disorder.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import BEFORE, SO_FAR, row_key, signed, unsigned
from schemas.replay import Evidence, Verdict
from schemas.wire import NEGATIVE_CLASS, QUEUED_CLASS

SLOT = ("scope_key", "tx_sequence_id", "tx_sequence_number")
MESSAGE = ("source_queue_manager", "message_id", "content_hash")
SPAN = ("scope_key", "sequence")


def _rests_on_assumption() -> Column:
    """Tells whether the verdict is unknown, or rests on an assumed state.

    An accepted message with a previous number of 0 does not: such a message is accepted from any state below it.
    """
    from_zero = F.coalesce(F.col("accepted"), F.lit(False)) & (F.col("previous_tx_sequence_number") == 0)
    return F.col("accepted").isNull() | (F.col("assumed") & ~from_zero)


def slot_no() -> Column:
    """Returns a hash of an arrival's slot. If two slots have the same, both are looked at, which does no harm."""
    return F.xxhash64(*SLOT)


def is_plain() -> Column:
    """Returns whether an arrival is plain, as far as its own row tells: it may still have come twice."""
    number, previous = F.col("tx_sequence_number"), F.col("previous_tx_sequence_number")
    final = F.coalesce("final_ack_class", F.lit(QUEUED_CLASS))
    return (
        (F.col("verdict") == Verdict.IN_ORDER.value)
        & (F.col("replay_order") > 1)
        & (previous > 0)
        & (previous == number - 1)
        & ~F.col("assumed")
        & (F.col("evidence") != Evidence.CONTRADICTED.value)
        & (final.bitwiseAND(NEGATIVE_CLASS | QUEUED_CLASS) == QUEUED_CLASS)
    )


def unarrived(streams: DataFrame, packets: DataFrame) -> DataFrame:
    """Returns the keys of packets with bytes that their receiver's TCP never acknowledged, on closed connections.

    They were captured on their way, and need not have arrived. Where no acknowledgment was captured, nothing is known.
    """
    cut = streams.where(F.col("closed") & (F.col("acked_bytes") < F.col("recovered_bytes") + F.col("missing_bytes")))
    ends = F.col("stream_offset") + F.col("size")
    return (
        packets.select("stream_id", "stream_offset", "size")
        .join(F.broadcast(cut.select("stream_id", "acked_bytes")), "stream_id")
        .where(ends > F.col("acked_bytes"))
        .select("stream_id", "stream_offset")
    )


def repeated_messages(verdicts: DataFrame) -> DataFrame:
    """Returns `message_no`, a hash of the MESSAGE keys that were accepted more than once, over all scopes.

    Verdicts on an assumed state aside. One narrow shuffle of all accepted messages suffices.
    """
    return (
        _surely_accepted(verdicts)
        .groupBy("message_no")
        .agg(F.count(F.lit(1)).alias("times"))
        .where("times > 1")
        .select("message_no")
    )


def accepted_twice(verdicts: DataFrame, repeated: DataFrame) -> DataFrame:
    """Returns the MESSAGE keys that were accepted more than once; `repeated` are the `repeated_messages`."""
    return (
        _surely_accepted(verdicts)
        .join(repeated, "message_no", "left_semi")
        .groupBy(*MESSAGE)
        .agg(F.count(F.lit(1)).alias("times"))
        .where("times > 1")
        .select(*MESSAGE)
    )


def _surely_accepted(verdicts: DataFrame) -> DataFrame:
    accepted = verdicts.where(F.col("accepted") & ~_rests_on_assumption())
    return accepted.withColumn("message_no", F.xxhash64(*MESSAGE))


def unusual_slots(verdicts: DataFrame, twice: DataFrame, not_arrived: DataFrame) -> DataFrame:
    """Returns `slot_no` of the SLOTs with an arrival that is not plain or is `unarrived`, or `accepted_twice`."""
    repeated = verdicts.join(twice, list(MESSAGE), "left_semi")
    cut = verdicts.join(not_arrived, ["stream_id", "stream_offset"], "left_semi")
    chosen = (rows.select(slot_no().alias("slot_no")) for rows in (verdicts.where(~is_plain()), repeated, cut))
    return reduce(DataFrame.unionByName, chosen).distinct()


def unusual_arrivals(verdicts: DataFrame, slots: DataFrame, not_arrived: DataFrame) -> DataFrame:
    """Returns all arrivals in the `unusual_slots`, with their SPAN, `number`, `previous`, state before and after.

    `cut_off` marks those that are `unarrived` and that no OrderAck covers.
    """
    moves = F.coalesce("accepted", F.lit(True))
    incoming = F.struct(
        signed(F.col("incoming_tx_sequence_id")).alias("sequence"),
        F.col("incoming_tx_sequence_number").alias("number"),
    )
    own = F.struct(signed(F.col("tx_sequence_id")).alias("sequence"), F.col("tx_sequence_number").alias("number"))
    marked = (
        verdicts.withColumn("slot_no", slot_no())
        .join(slots, "slot_no", "left_semi")
        .join(not_arrived.withColumn("cut", F.lit(True)), ["stream_id", "stream_offset"], "left")
    )
    return marked.select(
        "scope_key",
        own["sequence"].alias("sequence"),
        own["number"].alias("number"),
        F.col("previous_tx_sequence_number").alias("previous"),
        *MESSAGE,
        *("session_id", "destination_queue", "label", "captured_at", "replay_order", "accepted", "verdict"),
        _rests_on_assumption().alias("doubtful"),
        *("gap_size", "evidence", "final_ack_class", "covered_at", "assumed", "missing_runs", "behind_gap"),
        (F.col("cut").isNotNull() & F.col("covered_at").isNull()).alias("cut_off"),
        F.when(F.col("incoming_tx_sequence_number").isNotNull(), incoming).alias("before"),
        F.when(moves, own).otherwise(incoming).alias("after"),
        moves.alias("moves"),
        row_key().alias("key"),
    )


def is_reached(number: Column, by: str = "state_sequence", up_to: str = "state_number") -> Column:
    """Returns whether a state is at or above a number of a `sequence`; by default a scope's last (`scope_states`)."""
    return (F.col("sequence") < F.col(by)) | ((F.col("sequence") == F.col(by)) & (number <= F.col(up_to)))


def counted_gap_begins() -> Column:
    """Returns the number below an arrival's counted gap, which ends at its own number; null where it has none.

    A gap is counted only where the state before it is known, and not assumed.
    """
    known = F.col("before").isNotNull() & ~F.col("assumed")
    same = F.col("before.sequence") == F.col("sequence")
    return F.when(
        known & (F.col("verdict") == Verdict.GAP_EXPIRED.value),
        F.when(same, F.col("before.number")).otherwise(F.lit(0).cast("long")),
    )


def spans(arrivals: DataFrame, states: DataFrame) -> DataFrame:
    """Returns the runs of numbers that were seen, `low` to `high`, per SPAN: each unusual slot, and plain runs.

    Of each: `seen_to`, the highest number seen below it; `skipped_by`, with the number `low` above which its sender
    skipped all of the numbers right below the run; `gap_begins`, the same of counted gaps that lie around the run;
    `passed_by`, the first arrival after which the state had reached the run; `sent_to`, the highest previous number of
    the sequence; and `first`, the first arrival in a slot. A previous number that is not below the number says nothing.
    """
    said = F.when((F.col("previous") != 0) & (F.col("previous") < F.col("number")), F.col("previous"))
    place = ("source_queue_manager", "session_id", "destination_queue", "key")
    below = F.least(said, F.col("gap_begins"))
    rank = ("replay_order", "missing_runs", "behind_gap", "before_doubtful", "key")
    slots = (
        arrivals.withColumn("gap_begins", counted_gap_begins())
        .withColumn("before_doubtful", F.col("assumed") | F.col("accepted").isNull())
        .groupBy(*SPAN, F.col("number").alias("low"), F.col("number").alias("high"))
        .agg(
            F.min(F.when(F.col("moves"), F.struct(*rank))).alias("passing"),
            F.min(F.when(below.isNotNull(), F.struct(below.alias("low"), "replay_order", *place))).alias("skipping"),
            F.min("gap_begins").alias("gap_begins_here"),
            F.max(said).alias("previous"),
            F.min(F.struct("replay_order", *place)).alias("first"),
        )
    )
    seen = slots.unionByName(_plain_runs(arrivals, states), allowMissingColumns=True)
    upwards = Window.partitionBy(*SPAN).orderBy("low")
    downwards = Window.partitionBy(*SPAN).orderBy(F.desc("low"))
    down_scope = Window.partitionBy("scope_key").orderBy(F.desc("sequence"), F.desc("low"))
    return seen.select(
        *(*SPAN, "low", "high", "first"),
        F.max("high").over(upwards.rowsBetween(*BEFORE)).alias("seen_to"),
        F.min("skipping").over(downwards.rangeBetween(*SO_FAR)).alias("skipped_by"),
        F.min("gap_begins_here").over(downwards.rangeBetween(*BEFORE)).alias("gap_begins"),
        F.min("passing").over(down_scope.rangeBetween(*SO_FAR)).alias("passed_by"),
        F.max("previous").over(Window.partitionBy(*SPAN)).alias("sent_to"),
    )


def below_holes(spans: DataFrame) -> DataFrame:
    """Returns `slot_no` of the highest slot seen below each run of numbers that were not."""
    hole = spans.where(F.col("seen_to") < F.col("low") - 1)
    return hole.select(
        "scope_key",
        unsigned(F.col("sequence")).alias("tx_sequence_id"),
        F.col("seen_to").alias("tx_sequence_number"),
    ).select(slot_no().alias("slot_no"))


def _plain_runs(arrivals: DataFrame, states: DataFrame) -> DataFrame:
    """Returns SPAN, `low`, `high` and `previous` (the last one) of the plain arrivals between two unusual ones.

    The state before an arrival, or the scope's last, says how far they went beyond the state that they began at.
    """
    in_scope = Window.partitionBy("scope_key").orderBy("replay_order")
    following = F.lead("before").over(in_scope)
    last = F.lead(F.lit(1)).over(in_scope).isNull()
    stood = F.struct(F.col("state_sequence").alias("sequence"), F.col("state_number").alias("number"))
    return (
        arrivals.select("scope_key", "after", following.alias("following"), last.alias("last"))
        .join(states, "scope_key")
        .withColumn("reached", F.when(F.col("last"), stood).otherwise(F.col("following")))
        .where(
            (F.col("reached.sequence") == F.col("after.sequence")) & (F.col("reached.number") > F.col("after.number"))
        )
        .select(
            "scope_key",
            F.col("after.sequence").alias("sequence"),
            (F.col("after.number") + 1).alias("low"),
            F.col("reached.number").alias("high"),
            (F.col("reached.number") - 1).alias("previous"),
        )
    )
