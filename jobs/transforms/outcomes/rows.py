"""Puts the table `outcomes` together, and counts every outcome per sequence and session."""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import each, has_outcome, unsigned
from jobs.transforms.outcomes.slots import MESSAGE, SLOT, SPAN
from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome, count_column

_COUNTED = tuple(count_column(outcome) for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of all messages, and what they add up to."""

    tallies: DataFrame
    """`tally`."""
    rows: DataFrame
    """Rows of OUTCOMES, and those of `delivered` messages that came more than once or with something unusual."""
    counts: DataFrame
    """`count_outcomes`."""
    slots: DataFrame
    """`count_slots`."""
    unusual: DataFrame
    """`unusual_slots`."""
    below_holes: DataFrame
    """`slot_no` of the slots right below numbers that were not seen."""


def message_no() -> Column:
    """Returns a hash of what tells messages apart."""
    return F.xxhash64(*SLOT, *MESSAGE)


def message_fates(outcomes: DataFrame) -> DataFrame:
    """Returns `message_no` and `fate` of each message in `outcomes`: delivered, lost, pending or unknown.

    All others were delivered.
    """
    fate = (
        F.when(has_outcome(LOST), "lost")
        .when(has_outcome(LOSS_UNKNOWN), "unknown")
        .when(has_outcome([Outcome.PENDING]), "pending")
        .otherwise("delivered")
    )
    return outcomes.where("arrivals > 0").select(message_no().alias("message_no"), fate.alias("fate"))


def with_fate(messages: DataFrame, fates: DataFrame) -> DataFrame:
    """Adds `fate` to rows with a `message_no`; `fates` is what `message_fates` returns, of materialized rows."""
    return messages.join(fates, "message_no", "left").fillna("delivered", ["fate"])


def plain_arrivals(tallies: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Returns per SPAN and `session_id` how many arrivals are `plain`: each is a delivered message of its own."""
    counts = (
        tallies.select(*SPAN, "session_id", F.col("messages").alias("n")),
        arrivals.select(*SPAN, "session_id", F.lit(-1).alias("n")),
    )
    return (
        reduce(DataFrame.unionByName, counts)
        .groupBy(*SPAN, "session_id")
        .agg(F.sum("n").alias("plain"))
        .where("plain > 0")
    )


def count_outcomes(plain: DataFrame, outcomes: DataFrame) -> DataFrame:
    """Returns per `scope_key`, `tx_sequence_id` and `session_id` the count of each outcome and `delivered_arrivals`."""
    delivered = F.col("outcome") == Outcome.DELIVERED.value
    rows = outcomes.groupBy("scope_key", "tx_sequence_id", "session_id").agg(
        *(
            F.sum(F.when(F.col("outcome") == outcome.value, F.col("numbers")).otherwise(0)).alias(count_column(outcome))
            for outcome in Outcome
        ),
        F.sum(F.when(delivered, F.col("arrivals")).otherwise(0)).alias("delivered_arrivals"),
    )
    zero = F.lit(0).cast("long")
    counted = plain.select(
        "scope_key",
        unsigned(F.col("sequence")).alias("tx_sequence_id"),
        "session_id",
        *(F.col("plain").alias(name) for name in (Outcome.DELIVERED.value, "delivered_arrivals")),
        *(zero.alias(name) for name in _COUNTED if name != Outcome.DELIVERED.value),
    )
    return add_up(rows.unionByName(counted), "scope_key", "tx_sequence_id", "session_id")


def add_up(counts: DataFrame, *key: str) -> DataFrame:
    """Returns the counts of `count_outcomes` by a key of fewer columns, and `lost`, their sum over LOST."""
    lost = sum((F.col(count_column(outcome)) for outcome in LOST), F.lit(0))
    return counts.groupBy(*key).agg(*each(F.sum, *_COUNTED, "delivered_arrivals")).withColumn("lost", lost)


def count_slots(plain: DataFrame, arrivals: DataFrame, states: DataFrame, due: DataFrame) -> DataFrame:
    """Returns `scope_key`, `tx_sequence_id`, `first_due`, `slots` and `slots_seen` of each scope's last sequence.

    These are the slots from the first number due up to the state; each has a message or a number's outcome.
    """
    of_state = states.select("scope_key", F.col("state_sequence").alias("sequence"), "state_number").join(
        due, list(SPAN)
    )
    plain = plain.groupBy(*SPAN).agg(F.sum("plain").alias("seen"))
    unusual = (
        arrivals.select(*SPAN, "number")
        .distinct()
        .join(of_state, list(SPAN))
        .where((F.col("number") >= F.col("due")) & (F.col("number") <= F.col("state_number")))
        .groupBy(*SPAN)
        .agg(F.count(F.lit(1)).alias("seen"))
    )
    seen = plain.unionByName(unusual).groupBy(*SPAN).agg(F.sum("seen").alias("slots_seen"))
    return of_state.join(seen, list(SPAN), "left").select(
        "scope_key",
        unsigned(F.col("sequence")).alias("tx_sequence_id"),
        F.col("due").alias("first_due"),
        F.greatest(F.col("state_number") - F.col("due") + 1, F.lit(0)).alias("slots"),
        F.coalesce("slots_seen", F.lit(0)).alias("slots_seen"),
    )
