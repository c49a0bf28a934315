"""Decides the outcome of the numbers of which no message was seen."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.outcomes.slots import SPAN, is_reached
from schemas.outcomes import Outcome


def first_due(arrivals: DataFrame, states: DataFrame) -> DataFrame:
    """Returns per SPAN `due`, the first number that its scope had to see; no row for a sequence that came too late.

    If the scope began in the sequence, it is the number after the state. If the state was then unknown or assumed, it
    is the first number seen, or a lower one that the state reached later. It is 1 for every other sequence above the
    state.
    """
    first = F.struct("number", "before", "accepted", "assumed")
    unknown = F.col("first.before").isNull() | F.col("first.accepted").isNull()
    later = F.col("first.before").isNull() | (F.col("sequence") > F.col("first.before.sequence"))
    return (
        arrivals.groupBy(*SPAN)
        .agg(
            F.min_by(first, "replay_order").alias("first"),
            F.min(F.when(F.col("moves"), F.col("number"))).alias("first_reached"),
        )
        .join(states, "scope_key")
        .withColumn(
            "due",
            F.when(F.col("sequence") == F.col("opening_sequence"), F.col("opening_number") + 1)
            .when(later & (unknown | F.col("first.assumed")), F.least("first.number", "first_reached"))
            .when(later, F.lit(1).cast("long")),
        )
        .where(F.col("due").isNotNull())
        .select(*SPAN, "due")
    )


def number_outcomes(spans: DataFrame, states: DataFrame, due: DataFrame) -> DataFrame:
    """Returns a row per run of numbers that no message had and that were skipped or sent; columns: `message_outcomes`.

    `numbers` from `number` on lie next to each other and have one outcome and one cause. So there are at most three
    rows between two numbers that were seen, however far apart these are. Numbers at or below the state that a scope
    began at were delivered or expired earlier, and have no row. In doubt a number is `unknown`: the state passed it
    behind missing bytes or while it was assumed; it is above an assumed state; or it was neither skipped nor sent, but
    is between the first number due and the state.
    """
    ends = F.col("low") - 1
    reached = is_reached(ends)
    opening = F.when(F.col("sequence") == F.col("opening_sequence"), F.col("opening_number"))
    skipped_from = F.greatest(F.col("skipped_by.low") + 1, F.col("begins"))
    unskipped_to = F.least(ends, F.col("skipped_by.low"))
    sent_to = F.coalesce("sent_to", F.lit(0).cast("long"))
    in_doubt = F.col("passed_by").isNull() | F.col("passed_by.behind_gap") | F.col("passed_by.before_doubtful")
    sent = (
        F.when(reached & in_doubt, Outcome.UNKNOWN.value)
        .when(reached, Outcome.NEVER_SEEN.value)
        .when(F.col("state_assumed"), Outcome.UNKNOWN.value)
        .otherwise(Outcome.AWAITED.value)
    )
    of_state = reached & (F.col("sequence") == F.col("state_sequence"))
    first_sent = F.greatest("begins", "due")
    # In doubt, numbers that were sent and the others up to the state have one outcome.
    sent_until = F.when(of_state & in_doubt, unskipped_to).otherwise(F.least(unskipped_to, sent_to))

    def run(outcome: Column, since: Column, until: Column) -> Column:
        return F.struct(outcome.alias("outcome"), since.alias("since"), until.alias("until"))

    runs = F.array(
        run(F.lit(Outcome.EXPIRED_UNSEEN.value), F.when(F.col("skipped_by").isNotNull(), skipped_from), ends),
        run(sent, F.when(F.col("due").isNotNull(), first_sent), sent_until),
        run(
            F.lit(Outcome.UNKNOWN.value),
            F.when(F.col("due").isNotNull() & of_state & ~in_doubt, F.greatest(first_sent, sent_to + 1)),
            unskipped_to,
        ),
    )
    is_expired = F.col("run.outcome") == Outcome.EXPIRED_UNSEEN.value
    place = ("source_queue_manager", "session_id", "destination_queue", "key")
    shown = F.when(is_expired, F.struct(*(f"skipped_by.{name}" for name in place)))
    first = F.struct(*(f"first.{name}" for name in place))
    decided = F.when(~is_expired, F.col("passed_by.key"))
    return (
        spans.where(F.col("low") > F.coalesce(F.col("seen_to"), F.lit(0)) + 1)
        .join(states, "scope_key")
        .where(F.col("opening_sequence").isNull() | (F.col("sequence") >= F.col("opening_sequence")))
        .join(due, list(SPAN), "left")
        .withColumn("begins", F.greatest(F.coalesce("seen_to", F.lit(0).cast("long")), opening) + 1)
        .withColumn("run", F.explode(runs))
        .where(F.col("run.since") <= F.col("run.until"))
        .withColumn("shown", F.coalesce(shown, first))
        .withColumn("decided", decided)
        .select(
            *SPAN,
            F.col("run.since").alias("number"),
            (F.col("run.until") - F.col("run.since") + 1).alias("numbers"),
            "shown.source_queue_manager",
            "shown.session_id",
            "shown.destination_queue",
            "run.outcome",
            F.array_distinct(F.array_compact(F.array("shown.key", "decided"))).alias("witness"),
            F.lit(0).cast("long").alias("arrivals"),
            F.lit(0).cast("long").alias("refusals"),
            F.lit(False).alias("stuck"),
        )
    )
