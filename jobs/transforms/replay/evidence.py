"""Compares verdicts with the receiver's own acknowledgments ([MS-MQQB] 3.1.1.6.2, 3.1.6.9, 2.2.5).

An OrderAck is cumulative: the first one at or above a message's number *covers* the message. A FinalAck covers its
message alone, if that was in its queue. So windows over the messages and acknowledgments of one pair and sequence are
enough: by falling number (when was this number first covered, and when did the replay first reach it), by falling time
(which OrderAck came next), and within a number (its FinalAck). A resend is acknowledged by the next OrderAck once its
number is covered.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, timestamp, unsigned
from jobs.transforms.replay.timeline import STREAM
from schemas.messages import AckType
from schemas.replay import Evidence, Explains, Reading, Verdict

LATEST_ORDER_ACK_MS = 10_500  # MaximumOrderAckDelay and OrderAckTimeout, [MS-MQQB] 3.1.3.2
CONTENT = (
    "message_id",
    "sent_at",
    "tx_transaction_id",
    "tx_first",
    "tx_last",
    "message_class",
    "label",
    "body_size",
    "body_type",
    "body_crc32",
    "application_tag",
    "extension_size",
    "correlation_id",
)
"""Columns that a resend repeats ([MS-MQQB] 3.1.7.1.3); its previous number and hop count may change."""
_PAIR = ("pair_no", "sequence")
_MS = 1_000_000  # ns
_IN_FLIGHT_MS = 250  # an OrderAck that follows sooner may have left before the message arrived
_WAS_QUEUED = 0x4000  # bit of the classes that FinalAcks have of messages that left their queue, [MS-MQQB] 2.2.5


def was_queued(message_class: Column) -> Column:
    """Returns whether a FinalAck of this class is for a message that was queued; otherwise it was refused for cause."""
    return message_class.bitwiseAND(_WAS_QUEUED) != 0


def with_conformant_number(judged: DataFrame) -> DataFrame:
    """Adds the number that the next OrderAck of a conformant receiver names, in the message's sequence.

    Null where the verdict is unknown, and where the receiver is in another sequence.
    """
    same = F.col("incoming_tx_sequence_id") == unsigned(F.col("sequence"))
    number = F.when(F.col("accepted"), F.col("number")).when(
        ~F.col("accepted") & same, F.col("incoming_tx_sequence_number")
    )
    return judged.withColumn("conformant_number", number)


def with_evidence(judged: DataFrame, acks: DataFrame, streams: DataFrame, reading: Reading) -> DataFrame:
    """Adds `acknowledged_at`, `ack_latency_ms`, `evidence`, `explained_by`, and `final`, the FinalAck of the number.

    `confirmed`: an accepted message is acknowledged, a duplicate is covered at any time, or the first OrderAck after an
    out-of-order message names a lower number. `contradicted`: an out-of-order message is covered before the replay
    reached its number; or an accepted one is not covered by an OrderAck that came later than the timers allow. `none`:
    otherwise. A receiver of the literal reading names the last message, accepted or not, so nothing contradicts it.

    `covered_at` and `covered_ns` are the time of the first OrderAck from then on that names the number or a higher one.
    Where an OrderAck did so before the message came, only the next OrderAck counts.
    """
    with_messages = streams.where("has_messages")
    pairs = with_messages.select("receiver", "source_queue_manager", "pair_no").distinct()
    by_falling_number = Window.partitionBy(*_PAIR).orderBy(F.desc("number"))
    at_or_above = by_falling_number.rangeBetween(*SO_FAR)
    same_number = by_falling_number.rangeBetween(Window.currentRow, Window.currentRow)
    by_falling_time = Window.partitionBy(*_PAIR).orderBy(F.desc_nulls_last("captured_ns"))
    overdue = by_falling_time.rangeBetween(Window.unboundedPreceding, -LATEST_ORDER_ACK_MS * _MS)
    is_order_ack = F.col("ack_type") == AckType.ORDER_ACK.value
    acknowledgments = acks.join(pairs, ["receiver", "source_queue_manager"]).select(
        *_PAIR,
        "number",
        F.col("ns").alias("captured_ns"),
        F.when(is_order_ack, F.struct("ns", "number")).alias("ack"),
        "final",
    )
    with_pair = judged.join(with_messages.select(*STREAM, "pair_no").distinct(), STREAM)
    reached = F.when(F.coalesce("accepted", F.col("verdict").isNotNull()), F.col("captured_ns"))
    queued_ns = F.when(was_queued(F.col("final.message_class")), F.col("final.captured_ns"))
    time, covered = F.col("captured_ns"), F.col("covered")
    acknowledged = F.when(covered >= time, covered).when(covered < time, F.col("following.ns"))
    first_ns, following = F.col("covered_ns"), F.col("following")
    covered_later = F.when(first_ns >= time, first_ns).when(
        (first_ns < time) & (following["number"] >= F.col("number")), following["ns"]
    )
    return (
        with_pair.unionByName(acknowledgments, allowMissingColumns=True)
        .select(
            *with_pair.columns,
            F.min("ack.ns").over(at_or_above).alias("covered_ns"),
            F.min(reached).over(at_or_above).alias("reached_ns"),
            F.min("ack").over(by_falling_time.rangeBetween(*SO_FAR)).alias("following"),
            F.min("ack").over(overdue).alias("overdue"),
            F.lag("ack").over(by_falling_time).alias("next"),
            F.max("final").over(same_number).alias("final"),
        )
        .where(F.col("verdict").isNotNull())
        .withColumn("covered", F.least("covered_ns", queued_ns))
        .withColumn("acknowledged_ns", acknowledged)
        .withColumn("acknowledged_at", timestamp(F.col("acknowledged_ns")))
        .withColumn("ack_latency_ms", (F.col("acknowledged_ns") - time) / _MS)
        .withColumn("explained_by", _explained_by())
        .withColumn("evidence", _evidence(conformant=reading is Reading.CONFORMANT))
        .withColumn("covered_ns", covered_later)
        .withColumn("covered_at", timestamp(F.col("covered_ns")))
        .drop("covered", "reached_ns", "following", "overdue", "next", "acknowledged_ns")
    )


def _evidence(*, conformant: bool) -> Column:
    covered, number, late = F.col("covered"), F.col("number"), F.col("overdue")
    accepted, refused = F.col("accepted"), F.col("verdict") == Verdict.OUT_OF_ORDER.value
    not_covered = (late["number"] < number) & (F.coalesce(covered, late["ns"]) >= late["ns"]) & F.col("final").isNull()
    covered_too_soon = covered < F.coalesce("reached_ns", covered + 1)
    return (
        F.when(F.lit(conformant) & accepted & not_covered, Evidence.CONTRADICTED.value)
        .when(accepted & F.col("acknowledged_ns").isNotNull(), Evidence.CONFIRMED.value)
        .when((F.col("verdict") == Verdict.DUPLICATE.value) & covered.isNotNull(), Evidence.CONFIRMED.value)
        .when(F.lit(conformant) & refused & covered_too_soon, Evidence.CONTRADICTED.value)
        .when(refused & (F.col("following.number") < number), Evidence.CONFIRMED.value)
        .otherwise(Evidence.NONE.value)
    )


def _explained_by() -> Column:
    """Returns the reading that predicts the next OrderAck; the literal one predicts this message's number."""
    named = F.col("next.number")
    literal, conformant = named == F.col("number"), F.coalesce(named == F.col("conformant_number"), F.lit(False))
    separates = (
        (F.col("next.ns") - F.col("captured_ns") >= _IN_FLIGHT_MS * _MS)
        & F.col("accepted").isNotNull()
        & (named <= F.greatest("number", "conformant_number"))
    )
    return F.when(
        separates,
        F.when(literal & conformant, Explains.BOTH.value)
        .when(conformant, Explains.CONFORMANT.value)
        .when(literal, Explains.LITERAL.value)
        .otherwise(Explains.NEITHER.value),
    )
