"""The verdict on each message, from the state before it, and the rows of VERDICTS."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import BEFORE, SO_FAR, columns_of, tx_sequence, unsigned
from jobs.transforms.replay.acceptance import in_replay_order, is_above_state
from jobs.transforms.replay.evidence import CONTENT
from jobs.transforms.replay.timeline import STREAM, with_stream_number
from schemas.replay import VERDICTS, Reason, Verdict


def with_verdict(states: DataFrame) -> DataFrame:
    """Returns messages with `accepted`, `verdict`, `reason`, `gap_size`, `reject_count` and the state before each.

    `sent` is the highest pair (sequence, number) that the receiver had surely been sent: what the initial state names,
    or the previous number of a message that cannot be judged. A refused message at or below it is a duplicate.
    """
    by_number = Window.partitionBy("scope_no").orderBy("sequence", "number", "replay_order")
    is_message, own = F.col("previous").isNotNull(), F.struct("sequence", "number")
    known = F.col("state_number").isNotNull()
    same = known & (F.col("sequence") == F.col("state_sequence"))
    above = ~known | is_above_state()
    follows = F.when(same, F.col("previous") <= F.col("state_number")).otherwise(F.col("previous") == 0)
    skipped = F.greatest(F.col("number") - F.when(same, F.col("state_number")).otherwise(0) - 1, F.lit(0).cast("long"))
    across = known & (F.col("missing") > F.col("state_missing"))
    unknown = F.when(known, above & across & (~follows | (skipped > 0))).otherwise(F.col("previous") != 0)
    sent = F.when(~is_message, own).when(
        F.col("accepted").isNull(), F.struct("sequence", F.col("previous").alias("number"))
    )
    moved = F.coalesce("accepted", is_message)
    is_assumed = (F.col("accepted").isNull() & is_message) | F.col("assumed_until").isNotNull()
    unknown_order = F.when(is_assumed, F.col("replay_order"))
    from_zero_order = F.when(F.col("accepted") & (F.col("previous") == 0), F.col("replay_order"))
    before = in_replay_order().rowsBetween(*BEFORE)
    in_doubt = F.coalesce(F.col("last_unknown") > F.coalesce("last_from_zero", F.lit(-1)), F.lit(False))
    verdict = (
        F.when(F.col("accepted").isNull(), Verdict.UNKNOWN.value)
        .when(
            ~F.col("accepted") & (F.coalesce("accepted_before", F.lit(False)) | (own <= F.col("sent"))),
            Verdict.DUPLICATE.value,
        )
        .when(~F.col("accepted"), Verdict.OUT_OF_ORDER.value)
        .when(skipped > 0, Verdict.GAP_EXPIRED.value)
        .when(same, Verdict.IN_ORDER.value)
        .otherwise(Verdict.NEW_SEQUENCE.value)
    )
    reason = (
        F.when((F.col("verdict") == Verdict.UNKNOWN.value) & known, Reason.CAPTURE_GAP.value)
        .when(F.col("verdict") == Verdict.UNKNOWN.value, Reason.NO_PRIOR_STATE.value)
        .when(F.col("verdict") != Verdict.OUT_OF_ORDER.value, None)
        .when(above, Reason.PREDECESSOR_MISSING.value)
        .when(same, Reason.LATE.value)
        .otherwise(Reason.STALE_SEQUENCE.value)
    )
    return (
        states.withColumn("accepted", F.when(is_message & ~unknown, above & follows))
        .select(
            "*",
            F.max(F.when(moved, F.col("replay_order")))
            .over(in_replay_order().rowsBetween(*SO_FAR))
            .alias("last_moved"),
            F.max(sent).over(before).alias("sent"),
            F.max(unknown_order).over(before).alias("last_unknown"),
            F.max(from_zero_order).over(before).alias("last_from_zero"),
            F.max("assumed_until").over(before).alias("initially_until"),
            F.max(F.when(~is_message, F.col("missing"))).over(before).alias("missing_initially"),
        )
        # The last message or initial state at or below this number; Spark's window by number would have a million
        # partitions where one by scope has a thousand.
        .withColumn("nearest", F.last(F.when(moved, own), ignorenulls=True).over(by_number.rowsBetween(*BEFORE)))
        .withColumn("accepted_before", F.col("nearest") == own)
        .where(is_message)
        .withColumn("verdict", verdict)
        .select(
            *STREAM,
            "stream_offset",
            "captured_ns",
            "sequence",
            "number",
            "replay_order",
            unsigned(F.col("state_sequence")).alias("incoming_tx_sequence_id"),
            F.col("state_number").alias("incoming_tx_sequence_number"),
            "accepted",
            "verdict",
            reason.alias("reason"),
            F.when(F.col("verdict") == Verdict.GAP_EXPIRED.value, skipped).otherwise(0).alias("gap_size"),
            (F.col("replay_order") - F.coalesce("last_moved", F.lit(0))).alias("reject_count"),
            (F.col("missing") - F.coalesce("missing_initially", F.lit(0))).alias("missing_runs"),
            across.alias("behind_gap"),
            in_doubt.alias("in_doubt"),
            "initially_until",
        )
    )


def with_assumed(judged: DataFrame) -> DataFrame:
    """Adds `assumed` to judged messages with evidence: the state before them rests on an `unknown` arrival.

    It does until a previous number of 0 sets the state, or until an OrderAck covers the unknown arrival (`covered_ns`),
    or the assumed state that the previous warehouse left (`initially_until`).
    """
    unknown = F.when(F.col("accepted").isNull(), F.struct("covered_ns"))
    last = F.last(unknown, ignorenulls=True).over(in_replay_order().rowsBetween(*BEFORE))
    ended = F.when(last.isNull(), F.col("initially_until")).otherwise(last["covered_ns"])
    in_time = F.coalesce(ended < F.col("captured_ns"), F.lit(False))
    assumed = F.col("in_doubt") & ~in_time
    return judged.withColumn("assumed", assumed).drop("in_doubt", "initially_until", "covered_ns")


def verdict_rows(judged: DataFrame, messages: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns rows of VERDICTS: judged messages with evidence, joined to MESSAGES and to the names of their scopes."""
    arrived = with_stream_number(messages, streams).withColumn("content_hash", F.xxhash64(*CONTENT))
    names = ("stream_id", "session_id", "scope_key", "source_queue_manager")
    named = streams.where("has_messages").select(*STREAM, *names).distinct()
    same_id = F.col("final.acknowledged_message_id") == F.col("message_id")
    return (
        arrived.drop("stream_id", "source_queue_manager")
        .join(with_assumed(judged).drop("captured_ns"), [*STREAM, "stream_offset"])
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .withColumn("final_ack_class", F.when(same_id, F.col("final.message_class")))
        .join(named, STREAM)
        .select(columns_of(VERDICTS))
    )
