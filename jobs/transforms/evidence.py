"""What the receiver's own OrderAcks say of its verdicts ([MS-MQQB] 3.1.1.6.2, 3.1.6.9).

An OrderAck is cumulative: from the first that names a number at or above a message's, the message is
*covered*. So two windows over messages and OrderAcks of one receiver, sender and sequence suffice: one by
falling number (when was this number first covered, when did the replay first get that far) and one by falling
time (which OrderAck came next). A resend is acknowledged by the next OrderAck once its number is covered.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.replay import Evidence, Verdict

PAIR = ("receiver", "source_queue_manager", "sequence")


def with_evidence(judged: DataFrame, order_acks: DataFrame) -> DataFrame:
    """Judged messages with `acknowledged_at`, `ack_latency_ms` and `evidence`.

    confirmed: an accepted message is acknowledged, a duplicate was covered at some time, or the first OrderAck
    after an out-of-order message names a lower number. contradicted: an out-of-order message was covered
    before the replay had its number reached. none: no OrderAck tells, or the verdict is unknown.
    """
    peers = (Window.unboundedPreceding, Window.currentRow)
    by_number = Window.partitionBy(*PAIR).orderBy(F.desc("number")).rangeBetween(*peers)
    by_time = Window.partitionBy(*PAIR).orderBy(F.desc_nulls_last("captured_ns")).rangeBetween(*peers)
    answers = order_acks.select(
        *PAIR, "number", F.col("ns").alias("captured_ns"), F.struct("ns", "number").alias("ack")
    )
    reached = F.when(F.coalesce("accepted", F.col("verdict").isNotNull()), F.col("captured_ns"))
    covered, time, following = F.col("covered_ns"), F.col("captured_ns"), F.col("following")
    acknowledged = F.when(covered >= time, covered).when(covered < time, following["ns"])
    return (
        judged.unionByName(answers, allowMissingColumns=True)
        .select(
            "*",
            F.min("ack.ns").over(by_number).alias("covered_ns"),
            F.min(reached).over(by_number).alias("reached_ns"),
            F.min("ack").over(by_time).alias("following"),
        )
        .where(F.col("verdict").isNotNull())
        .withColumn("acknowledged_ns", acknowledged)
        .withColumn("acknowledged_at", F.expr("timestamp_micros(acknowledged_ns div 1000)"))
        .withColumn("ack_latency_ms", (F.col("acknowledged_ns") - time) / 1e6)
        .withColumn(
            "evidence",
            F.when(F.col("accepted") & F.col("acknowledged_ns").isNotNull(), Evidence.CONFIRMED.value)
            .when((F.col("verdict") == Verdict.DUPLICATE.value) & covered.isNotNull(), Evidence.CONFIRMED.value)
            .when(
                (F.col("verdict") == Verdict.OUT_OF_ORDER.value) & (covered < F.coalesce("reached_ns", covered + 1)),
                Evidence.CONTRADICTED.value,
            )
            .when(
                (F.col("verdict") == Verdict.OUT_OF_ORDER.value) & (following["number"] < F.col("number")),
                Evidence.CONFIRMED.value,
            )
            .otherwise(Evidence.NONE.value),
        )
        .drop("ack", "covered_ns", "reached_ns", "following", "acknowledged_ns")
    )
