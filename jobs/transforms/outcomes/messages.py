"""Decides the outcome of each message that arrived at a slot with something unusual."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import has_outcome
from jobs.transforms.outcomes.slots import MESSAGE, SPAN, is_reached
from schemas.outcomes import DeliveredBy, Outcome
from schemas.replay import Evidence, Verdict
from schemas.wire import NEGATIVE_CLASS, QUEUED_CLASS

_KEY = (*SPAN, "number", *MESSAGE)


def message_outcomes(arrivals: DataFrame, spans: DataFrame, states: DataFrame, twice: DataFrame) -> DataFrame:
    """Returns one row per message of the `unusual_arrivals`, `delivered` ones included.

    Columns: those of OUTCOMES with SPAN and `number` for the sequence and its numbers; `arrivals` by session are those
    of all its arrivals, in the session of the first.
    """
    messages = _with_slot(_messages(arrivals))
    passed = spans.where(F.col("first").isNotNull()).select(
        *SPAN, F.col("low").alias("number"), "gap_begins", "passed_by"
    )
    judged = (
        messages.join(passed, [*SPAN, "number"])
        .join(
            states.select("scope_key", "state_sequence", "state_number", "state_assumed", "several_receivers"),
            "scope_key",
        )
        .join(twice.withColumn("twice", F.lit(True)), list(MESSAGE), "left")
    )
    refused_before = _with_last_refusal(judged, arrivals)
    displacer = F.when(F.col("accepted_as.key").isNull(), F.col("slot_accepted.key"))
    decided = F.coalesce("contradicted_key", "accepted_as.key", "last.key")
    other = F.when(has_outcome([Outcome.DISPLACED]), displacer).when(
        has_outcome((Outcome.GIVEN_UP, Outcome.PASSED_BY)), F.col("passed_by.key")
    )
    return (
        refused_before.withColumn("outcome", _outcome())
        .withColumn("delivered_by", _delivered_by())
        .withColumn("witness", F.array_distinct(F.array_compact(F.array(F.col("first.key"), decided, other))))
        .withColumn("numbers", F.lit(1).cast("long"))
        .withColumn("stuck", (F.col("outcome") == Outcome.PENDING.value) & (F.col("refusals") > 1))
        .select(
            *_KEY,
            "numbers",
            *(F.col(f"first.{name}") for name in ("session_id", "destination_queue", "label")),
            "outcome",
            "stuck",
            "arrivals",
            "refusals",
            *("first_seen_at", "last_seen_at", "accepted_at", "delivered_by", "final_ack_class", "witness"),
        )
    )


def _messages(arrivals: DataFrame) -> DataFrame:
    """Returns what the arrivals of each message add up to.

    An arrival that was captured but need not have reached its receiver is as doubtful as one on an assumed state,
    unless the message came again or an OrderAck covers it.
    """
    doubtful = F.col("doubtful") | (F.col("cut_off") & F.col("only_arrival"))
    firm = F.col("accepted") & ~doubtful
    out_of_order = (F.col("verdict") == Verdict.OUT_OF_ORDER.value) & ~doubtful
    at_or_below = is_reached(F.col("number"), "before.sequence", "before.number")
    place = F.struct("replay_order", "session_id", "destination_queue", "label", "key")
    alone = F.count(F.lit(1)).over(Window.partitionBy(*_KEY)) == 1
    return (
        arrivals.withColumn("only_arrival", alone)
        .groupBy(*_KEY)
        .agg(
            F.count(F.lit(1)).alias("arrivals"),
            F.count_if(~F.col("accepted")).alias("refusals"),
            F.min("captured_at").alias("first_seen_at"),
            F.max("captured_at").alias("last_seen_at"),
            F.min(F.when(F.col("accepted"), F.col("captured_at"))).alias("accepted_at"),
            F.min_by(place, "replay_order").alias("first"),
            F.max_by(place, "replay_order").alias("last"),
            F.min(F.when(firm, F.struct("replay_order", "key", "message_id"))).alias("accepted_as"),
            F.min(F.when(out_of_order, F.col("replay_order"))).alias("first_refusal"),
            F.coalesce(F.max(~F.col("accepted") & at_or_below), F.lit(False)).alias("came_late"),
            F.coalesce(F.max(doubtful), F.lit(False)).alias("doubtful"),
            F.coalesce(F.max(doubtful & F.coalesce("accepted", F.lit(True))), F.lit(False)).alias(
                "doubtfully_accepted"
            ),
            F.max(doubtful & F.col("covered_at").isNotNull()).alias("covered"),
            F.min(F.col("verdict") == Verdict.DUPLICATE.value).alias("only_duplicates"),
            F.max(F.col("evidence") == Evidence.CONFIRMED.value).alias("confirmed"),
            F.min(F.when(F.col("evidence") == Evidence.CONTRADICTED.value, F.col("key"))).alias("contradicted_key"),
            F.max("final_ack_class").alias("final_ack_class"),
        )
    )


def _with_slot(messages: DataFrame) -> DataFrame:
    """Adds what the messages of a slot have in common: how many, and which of them was accepted."""
    slot = Window.partitionBy(*SPAN, "number")
    return messages.select(
        "*",
        F.count(F.lit(1)).over(slot).alias("in_slot"),
        F.min("accepted_as").over(slot).alias("slot_accepted"),
        F.max("doubtfully_accepted").over(slot).alias("slot_doubtful"),
    )


def _with_last_refusal(judged: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Adds `missed`: missing bytes may hold an accepted arrival of the message from before its number was passed.

    These are the bytes between its last refusal and the arrival that passed it. Without a refusal before, they begin
    where the state before that arrival was set; if that state was assumed, all bytes count.
    """
    refusals = arrivals.where(~F.col("accepted")).select(
        *_KEY, F.col("replay_order").alias("refused_order"), F.col("missing_runs").alias("refused_missing")
    )
    same = (F.col(f"m.{name}").eqNullSafe(F.col(f"r.{name}")) for name in _KEY)
    before = F.col("r.refused_order") < F.col("m.passed_by.replay_order")
    last = (
        judged.alias("m")
        .join(refusals.alias("r"), [*same, before])
        .groupBy(*(F.col(f"m.{name}") for name in _KEY))
        .agg(F.max_by("refused_missing", "refused_order").alias("missing_at_refusal"))
    )
    passing = F.col("passed_by")
    missed = F.when(
        F.col("missing_at_refusal").isNotNull(), passing["missing_runs"] > F.col("missing_at_refusal")
    ).otherwise(passing["behind_gap"] | passing["before_doubtful"])
    return judged.join(last, list(_KEY), "left").withColumn("missed", F.coalesce(missed, F.lit(False)))


def _outcome() -> Column:
    """Applies the rules in the order of `schemas.outcomes`; the first that holds gives the outcome.

    In doubt, the outcome claims less:

    * A FinalAck says that a refused message was in its queue: `contradicted`. But if the slot was accepted with another
      content under the same message ID, the FinalAck is for that one.
    * An OrderAck does not decide between two messages of one slot.
    * `unknown` is a message with an arrival that was not judged, or on an assumed state, if it has neither a firm
      acceptance nor an acknowledgment; a message above an assumed state; one whose slot may have been accepted with
      another message; and one that was only ever refused as a duplicate.
    * `unknown` is also a message that came too late for the state of a scope with several receivers: the state of the
      one that got it may have been lower. What came too early was too early for all of them.
    """
    accepted, number = F.col("accepted_as").isNotNull(), F.col("number")
    elsewhere = F.col("slot_accepted").isNotNull() & ~accepted
    of_other = elsewhere & (F.col("slot_accepted.message_id") == F.col("message_id"))
    final = F.when(of_other, 0).otherwise(F.coalesce("final_ack_class", F.lit(0)))
    was_queued, is_negative = final.bitwiseAND(QUEUED_CLASS) != 0, final.bitwiseAND(NEGATIVE_CLASS) != 0
    refused = ~accepted & ~F.col("doubtful") & ~F.col("only_duplicates")
    reached = is_reached(number)
    open_slot = ~F.col("slot_doubtful")
    late_for_one = F.col("several_receivers") & F.col("came_late")
    return (
        F.when(
            F.col("contradicted_key").isNotNull() | (was_queued & (refused | (elsewhere & ~F.col("doubtful")))),
            Outcome.CONTRADICTED.value,
        )
        .when(is_negative & ~was_queued, Outcome.REFUSED_FOR_CAUSE.value)
        .when(accepted & F.col("twice"), Outcome.DELIVERED_TWICE.value)
        .when(is_negative & was_queued, Outcome.NOT_READ.value)
        .when(
            accepted & (F.col("first_refusal") < F.col("accepted_as.replay_order")),
            Outcome.DELIVERED_AFTER_REFUSAL.value,
        )
        .when(accepted, Outcome.DELIVERED.value)
        .when(
            F.col("doubtful") & (was_queued | (F.col("covered") & (F.col("in_slot") == 1))),
            Outcome.DELIVERED_BY_ACKNOWLEDGMENT.value,
        )
        .when(elsewhere & ~late_for_one, Outcome.DISPLACED.value)
        .when(
            F.col("only_duplicates") & open_slot & (was_queued | (F.col("confirmed") & (F.col("in_slot") == 1))),
            Outcome.DELIVERED_BEFORE_CAPTURE.value,
        )
        .when(~refused | ~open_slot | late_for_one, Outcome.UNKNOWN.value)
        .when(~reached & F.col("state_assumed"), Outcome.UNKNOWN.value)
        .when(~reached, Outcome.PENDING.value)
        .when(F.col("missed"), Outcome.UNKNOWN.value)
        .when(F.col("gap_begins") < number, Outcome.GIVEN_UP.value)
        .otherwise(Outcome.PASSED_BY.value)
    )


def _delivered_by() -> Column:
    """Names what proves that a message was delivered; null for one that is not known to be."""
    final = F.coalesce("final_ack_class", F.lit(0))
    by_order_ack = has_outcome((Outcome.DELIVERED_BY_ACKNOWLEDGMENT, Outcome.DELIVERED_BEFORE_CAPTURE))
    by_acceptance = has_outcome(
        (Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.DELIVERED_AFTER_REFUSAL, Outcome.DELIVERED)
    )
    return (
        F.when(by_acceptance & F.col("accepted_as").isNotNull(), DeliveredBy.ACCEPTED.value)
        .when((by_acceptance | by_order_ack) & (final.bitwiseAND(QUEUED_CLASS) != 0), DeliveredBy.FINAL_ACK.value)
        .when(by_order_ack, DeliveredBy.ORDER_ACK.value)
    )
