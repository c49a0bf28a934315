"""What the receiver's own acknowledgments say of its verdicts ([MS-MQQB] 3.1.1.6.2, 3.1.6.9, 2.2.5).

An OrderAck is cumulative: from the first that names a number at or above a message's, the message is
*covered*; a FinalAck for a message that was in its queue covers that one. So windows over messages and
acknowledgments of one receiver, sender and sequence suffice: by falling number (when was this number first
covered, when did the replay first get that far), by falling time (which OrderAck came next) and within a number
(which FinalAck was for it). A resend is acknowledged by the next OrderAck once its number is covered.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import unsigned
from schemas.messages import AckType
from schemas.replay import Evidence, Explains, Reading, Verdict

PAIR = ("pair_no", "sequence")
LATEST_ORDER_ACK_MS = 10_500  # MaximumOrderAckDelay and OrderAckTimeout, [MS-MQQB] 3.1.3.2
_MS = 1_000_000  # ns
_IN_FLIGHT_MS = 250  # an OrderAck that follows sooner may have left before the message arrived
_WAS_QUEUED = 0x4000  # bit of the classes that FinalAcks have of messages that left their queue, [MS-MQQB] 2.2.5
REPEATED = (
    "message_id",
    "sent_at",
    "tx_transaction_id",
    "tx_first",
    "tx_last",
    "message_class",
    "label",
    "body_size",
    "body_type",
    "application_tag",
    "extension_size",
    "correlation_id",
)


def content() -> Column:
    """A hash of what a resend repeats ([MS-MQQB] 3.1.7.1.3); its previous number and hop count may be others."""
    return F.xxhash64(*REPEATED)


def was_queued(message_class: Column) -> Column:
    """Whether a FinalAck of the class is for a message that was in its queue; else it was refused for cause."""
    return message_class.bitwiseAND(_WAS_QUEUED) != 0


def with_conformant_number(judged: DataFrame) -> DataFrame:
    """Judged messages with the number that a conformant receiver's OrderAck names after each, in the same sequence.

    Null where the verdict is unknown, and where the receiver is in another sequence.
    """
    same = F.col("incoming_tx_sequence_id") == unsigned(F.col("sequence"))
    number = F.when(F.col("accepted"), F.col("number")).when(
        ~F.col("accepted") & same, F.col("incoming_tx_sequence_number")
    )
    return judged.withColumn("conformant_number", number)


def with_evidence(judged: DataFrame, acknowledgments: DataFrame, reading: Reading) -> DataFrame:
    """Judged messages with `acknowledged_at`, `ack_latency_ms`, `evidence`, `explained_by` and `final`, their FinalAck.

    Receiver and sender of both go by their `pair_no`.
    confirmed: an accepted message is acknowledged, a duplicate was covered at some time, or the first OrderAck
    after an out-of-order message names a lower number. contradicted: an out-of-order message was covered
    before the replay had its number reached, or an accepted one was not, when an OrderAck came later than the
    timers allow for it. none: nothing tells, or the verdict is unknown. A receiver that follows the letter
    names what came last, accepted or not: under that reading nothing is contradicted.
    """
    peers = (Window.unboundedPreceding, Window.currentRow)
    numbers = Window.partitionBy(*PAIR).orderBy(F.desc("number"))
    by_number, alike = numbers.rangeBetween(*peers), numbers.rangeBetween(Window.currentRow, Window.currentRow)
    backwards = Window.partitionBy(*PAIR).orderBy(F.desc_nulls_last("captured_ns"))
    by_time = backwards.rangeBetween(*peers)
    overdue = backwards.rangeBetween(Window.unboundedPreceding, -LATEST_ORDER_ACK_MS * _MS)
    is_order_ack = F.col("ack_type") == AckType.ORDER_ACK.value
    answers = acknowledgments.select(
        *PAIR,
        "number",
        F.col("ns").alias("captured_ns"),
        F.when(is_order_ack, F.struct("ns", "number")).alias("ack"),
        "final",
    )
    reached = F.when(F.coalesce("accepted", F.col("verdict").isNotNull()), F.col("captured_ns"))
    time, following = F.col("captured_ns"), F.col("following")
    covered = F.least("covered_ns", F.when(was_queued(F.col("final.message_class")), F.col("final.captured_ns")))
    acknowledged = F.when(F.col("covered") >= time, F.col("covered")).when(F.col("covered") < time, following["ns"])
    refused = F.col("verdict") == Verdict.OUT_OF_ORDER.value
    late = F.col("overdue")
    conformant = F.lit(reading is Reading.CONFORMANT)
    return (
        judged.unionByName(answers, allowMissingColumns=True)
        .select(
            *judged.columns,
            F.min("ack.ns").over(by_number).alias("covered_ns"),
            F.min(reached).over(by_number).alias("reached_ns"),
            F.min("ack").over(by_time).alias("following"),
            F.min("ack").over(overdue).alias("overdue"),
            F.lag("ack").over(backwards).alias("next"),
            F.max("final").over(alike).alias("final"),
        )
        .where(F.col("verdict").isNotNull())
        .withColumn("covered", covered)
        .withColumn("acknowledged_ns", acknowledged)
        .withColumn("acknowledged_at", F.expr("timestamp_micros(acknowledged_ns div 1000)"))
        .withColumn("ack_latency_ms", (F.col("acknowledged_ns") - time) / _MS)
        .withColumn("explained_by", _explained_by())
        .withColumn(
            "evidence",
            F.when(
                conformant
                & F.col("accepted")
                & (late["number"] < F.col("number"))
                & (F.coalesce("covered", late["ns"]) >= late["ns"])
                & F.col("final").isNull(),
                Evidence.CONTRADICTED.value,
            )
            .when(F.col("accepted") & F.col("acknowledged_ns").isNotNull(), Evidence.CONFIRMED.value)
            .when(
                (F.col("verdict") == Verdict.DUPLICATE.value) & F.col("covered").isNotNull(), Evidence.CONFIRMED.value
            )
            .when(
                conformant & refused & (F.col("covered") < F.coalesce("reached_ns", F.col("covered") + 1)),
                Evidence.CONTRADICTED.value,
            )
            .when(refused & (following["number"] < F.col("number")), Evidence.CONFIRMED.value)
            .otherwise(Evidence.NONE.value),
        )
        .drop("covered", "covered_ns", "reached_ns", "following", "overdue", "next", "acknowledged_ns")
    )


def _explained_by() -> Column:
    """Which reading foretells the OrderAck that came next; by the letter it names this message in any case."""
    named = F.col("next.number")
    literal, conformant = named == F.col("number"), F.coalesce(named == F.col("conformant_number"), F.lit(False))
    tells = (
        (F.col("next.ns") - F.col("captured_ns") >= _IN_FLIGHT_MS * _MS)
        & F.col("accepted").isNotNull()
        & (named <= F.greatest("number", "conformant_number"))
    )
    return F.when(
        tells,
        F.when(literal & conformant, Explains.BOTH.value)
        .when(conformant, Explains.CONFORMANT.value)
        .when(literal, Explains.LITERAL.value)
        .otherwise(Explains.NEITHER.value),
    )


def with_final_ack(judged: DataFrame) -> DataFrame:
    """Judged messages with `final_ack_class`, where the FinalAck of their number names their message ID as well."""
    same = F.col("final.acknowledged_message_id") == F.col("message_id")
    return judged.withColumn("final_ack_class", F.when(same, F.col("final.message_class")))
