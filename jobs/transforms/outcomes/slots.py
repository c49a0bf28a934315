"""Finds the arrivals that need a closer look, which `udfs.replay` explains; what that costs follows disorder.

A *slot* is (scope, sequence, number). Most arrivals are *plain*: accepted in order, once, with the predecessor that the
state names.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import null, row_key, signed
from schemas.explained import ARRIVAL
from schemas.replay import Evidence, Verdict
from schemas.wire import NEGATIVE_CLASS, QUEUED_CLASS

SLOT = ("scope_key", "tx_sequence_id", "tx_sequence_number")
MESSAGE = ("source_queue_manager", "message_id", "content_hash")
SPAN = ("scope_key", "sequence")
FALLING = ("falling_sequence", "falling_number", "replay_order")


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
    """Returns all arrivals in the `unusual_slots`, with columns of ARRIVAL; those of the scope are still missing."""
    marked = (
        verdicts.withColumn("slot_no", slot_no())
        .join(slots, "slot_no", "left_semi")
        .join(not_arrived.withColumn("cut_off", F.lit(True)), ["stream_id", "stream_offset"], "left")
    )
    return marked.select(
        "scope_key",
        signed(F.col("tx_sequence_id")).alias("sequence"),
        F.col("tx_sequence_number").alias("number"),
        F.col("previous_tx_sequence_number").alias("previous"),
        *MESSAGE,
        *("session_id", "destination_queue", "label", "replay_order", "accepted", "verdict", "evidence"),
        *("final_ack_class", "assumed", "missing_runs", "behind_gap"),
        F.unix_micros("captured_at").alias("captured_us"),
        F.col("covered_at").isNotNull().alias("covered"),
        F.coalesce("cut_off", F.lit(False)).alias("cut_off"),
        signed(F.col("incoming_tx_sequence_id")).alias("before_sequence"),
        F.col("incoming_tx_sequence_number").alias("before_number"),
        row_key().alias("key"),
    )


def first_due(arrivals: DataFrame, states: DataFrame) -> DataFrame:
    """Returns per SPAN `due`, the first number that its scope had to see; no row for a sequence that came too late.

    If the scope began in the sequence, it is the number after the state. If the state was then unknown or assumed, it
    is the first number seen, or a lower one that the state reached later. It is 1 for every other sequence above the
    state.
    """
    first = F.struct("number", "before_sequence", "before_number", "accepted", "assumed")
    before = F.when(F.col("first.before_number").isNotNull(), F.col("first.before_sequence"))
    later = before.isNull() | (F.col("sequence") > before)
    in_doubt = before.isNull() | F.col("first.accepted").isNull() | F.col("first.assumed")
    return (
        arrivals.groupBy(*SPAN)
        .agg(
            F.min_by(first, "replay_order").alias("first"),
            F.min(F.when(F.coalesce("accepted", F.lit(True)), F.col("number"))).alias("first_reached"),
        )
        .join(states, "scope_key")
        .withColumn(
            "due",
            F.when(F.col("sequence") == F.col("opening_sequence"), F.col("opening_number") + 1)
            .when(later & in_doubt, F.least("first.number", "first_reached"))
            .when(later, F.lit(1).cast("long")),
        )
        .where(F.col("due").isNotNull())
        .select(*SPAN, "due")
    )


def with_facts_of_scope(arrivals: DataFrame, states: DataFrame, due: DataFrame, twice: DataFrame) -> DataFrame:
    """Returns the `unusual_arrivals` with what is known of their scope, sequence and message: rows of ARRIVAL."""
    of_scope = ("opening_sequence", "opening_number", "state_sequence", "state_number", "state_assumed")
    return (
        arrivals.join(states.select("scope_key", *of_scope, "several_receivers"), "scope_key")
        .join(due, list(SPAN), "left")
        .join(twice.withColumn("accepted_twice", F.lit(True)), list(MESSAGE), "left")
        .fillna(False, ["accepted_twice"])
        .withColumn("plain_to", null("long"))
        .select(ARRIVAL.names)
    )


def with_falling_order(arrivals: DataFrame) -> DataFrame:
    """Adds FALLING, by which the highest sequence and number of a scope come first."""
    return arrivals.withColumns(dict(zip(FALLING, map(F.bitwise_not, ("sequence", "number")), strict=False)))
