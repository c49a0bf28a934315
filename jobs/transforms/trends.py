"""Sums over many nights: by day, by week, by sender.

Days are days in `spark.sql.session.timeZone`, which our settings make UTC. A week begins on Monday.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import each
from schemas.replay import Verdict


def _share(verdict: Verdict) -> Column:
    return F.count_if(F.col("verdict") == verdict.value) / F.count(F.lit(1))


def _week(time: str) -> Column:
    return F.to_date(F.date_trunc("week", time))


def by_day(verdicts: DataFrame) -> DataFrame:
    """Returns one row per `day`: `sessions`, `messages`, a count per verdict, `refused_share` (0 to 1)."""
    return (
        verdicts.groupBy(F.to_date("captured_at").alias("day"))
        .agg(
            F.count_distinct("session_id").alias("sessions"),
            F.count(F.lit(1)).alias("messages"),
            *(F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict),
            _share(Verdict.OUT_OF_ORDER).alias("refused_share"),
        )
        .orderBy("day")
    )


def findings_by_week(findings: DataFrame) -> DataFrame:
    """Returns one row per `week`, severity and kind: `findings`, `sessions`, `messages`."""
    return (
        findings.groupBy(_week("found_at").alias("week"), "severity", "kind")
        .agg(
            F.count(F.lit(1)).alias("findings"),
            F.count_distinct("session_id").alias("sessions"),
            F.sum("messages").alias("messages"),
        )
        .orderBy("week", "severity", "kind")
    )


def incidents_by_week(incidents: DataFrame) -> DataFrame:
    """Returns one row per `week` in which incidents began: `incidents`, and messages lost, pending, and so on."""
    return (
        incidents.groupBy(_week("began_at").alias("week"))
        .agg(
            F.count(F.lit(1)).alias("incidents"),
            *each(F.sum, "lost", "pending", "stuck", "unknown", "repaired", "expired"),
        )
        .orderBy("week")
    )


def worsening_senders(verdicts: DataFrame, limit: int) -> DataFrame:
    """Returns the `limit` senders whose share of messages out of order rose most in the last week.

    `source_queue_manager`, `messages`, and the shares (0 to 1) of the weeks `before` and of `last_week`. A sender has
    messages in both.
    """
    newest = verdicts.agg(F.max(_week("captured_at")).alias("newest"))
    refused = (F.col("verdict") == Verdict.OUT_OF_ORDER.value).cast("int")
    recent = _week("captured_at") == F.col("newest")
    return (
        verdicts.where(F.col("captured_at").isNotNull())
        .crossJoin(F.broadcast(newest))
        .groupBy("source_queue_manager")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.avg(F.when(~recent, refused)).alias("before"),
            F.avg(F.when(recent, refused)).alias("last_week"),
        )
        .where("last_week > before")
        .orderBy(F.desc(F.col("last_week") - F.col("before")), "source_queue_manager")
        .limit(limit)
    )


def latency_by_week(verdicts: DataFrame) -> DataFrame:
    """Returns one row per `week`: acknowledged `messages`; median, 95th percentile and maximum latency in ms."""
    return (
        verdicts.where(F.col("ack_latency_ms").isNotNull())
        .groupBy(_week("captured_at").alias("week"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.percentile_approx("ack_latency_ms", 0.5).alias("median_ms"),
            F.percentile_approx("ack_latency_ms", 0.95).alias("p95_ms"),
            F.max("ack_latency_ms").alias("longest_ms"),
        )
        .orderBy("week")
    )


def coverage_by_day(streams: DataFrame) -> DataFrame:
    """Returns one row per `day` on which streams began: `streams`, their recovered and missing bytes, `mid_stream`."""
    return (
        streams.where("recovered_bytes + missing_bytes > 0")
        .groupBy(F.to_date("first_captured_at").alias("day"))
        .agg(
            F.count(F.lit(1)).alias("streams"),
            *each(F.sum, "recovered_bytes", "missing_bytes"),
            F.count_if("mid_stream").alias("mid_stream"),
        )
        .orderBy("day")
    )
