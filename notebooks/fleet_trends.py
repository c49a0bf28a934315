# Databricks notebook source
# MAGIC %md
# MAGIC # Fleet trends over weeks
# MAGIC What was lost, what each night brought, which senders get worse, and how long receivers take to acknowledge.
# MAGIC The widgets choose the tables: a catalog and its schema, or a folder. Install the wheel on the cluster or, on
# MAGIC serverless compute, in the notebook's environment. Outside Databricks set `msmq.warehouse` and the like.
# MAGIC All days are UTC, weeks begin on Monday. With a `names_file`, names stand beside queue managers and queues.

# COMMAND ----------

from matplotlib import pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.tables.chosen import ask, chosen_warehouse, over_time, with_names
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import STREAMS
from schemas.replay import FINDINGS, VERDICTS, Verdict

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
spark.conf.set("spark.sql.session.timeZone", "UTC")  # of days and times
chosen = ask(spark, globals().get("dbutils"), "names_file")
warehouse = chosen_warehouse(spark, chosen)
verdicts = warehouse.read(VERDICTS)
history = warehouse.read(MESSAGE_HISTORY)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Volume, loss and latency
# MAGIC Messages by the day on which they first arrived, and their times to the acknowledgment.

# COMMAND ----------

each_day = over_time(history, "day").toPandas()
figure, (good, bad, latency) = plt.subplots(3, 1, sharex=True, figsize=(11, 8), layout="constrained")
good.bar(each_day["time"], each_day["delivered"], label="delivered")
below = 0 * each_day["lost"]
for fate in ("lost", "pending", "in_doubt"):
    bad.bar(each_day["time"], each_day[fate], bottom=below, label=fate.replace("_", " "))
    below += each_day[fate]
for name, said in (("median_ms", "median"), ("p95_ms", "of 19 in 20 at most")):
    latency.plot(each_day["time"], each_day[name], marker=".", label=said)
latency.set_yscale("log")
for part, unit in ((good, "messages"), (bad, "messages"), (latency, "ms to the acknowledgment")):
    part.set_ylabel(unit)
    part.legend()
display(figure)
plt.close(figure)  # or Jupyter shows it twice

# COMMAND ----------

# MAGIC %md
# MAGIC ## Incidents by week
# MAGIC Messages lost, pending, unknown and repaired, in the week in which each story began.

# COMMAND ----------

display(
    spark.sql(
        """
        SELECT date(date_trunc('week', began_at)) AS week, count(*) AS incidents, sum(lost_messages) AS lost,
            sum(pending) AS pending, sum(stuck_messages) AS stuck, sum(unknown) AS unknown, sum(repaired) AS repaired,
            sum(expired) AS expired
        FROM {incidents} GROUP BY week ORDER BY week
        """,
        incidents=warehouse.read(INCIDENTS),
    )
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Arrivals day by day
# MAGIC `refused_share` is the share of arrivals refused out of order.
# MAGIC Duplicates are repeats of the sender, or messages whose number another one had taken:
# MAGIC `outcomes` tells them apart.

# COMMAND ----------

counts = [F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict]
days = verdicts.groupBy(F.to_date("captured_at").alias("day")).agg(
    F.count_distinct("session_id").alias("sessions"), F.count("*").alias("arrivals"), *counts
)
display(days.withColumn("refused_share", F.col("out_of_order") / F.col("arrivals")).orderBy("day"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Findings by week

# COMMAND ----------

display(
    spark.sql(
        """
        SELECT date(date_trunc('week', found_at)) AS week, severity, kind, count(*) AS findings,
            count(DISTINCT session_id) AS sessions, sum(messages) AS messages
        FROM {findings} GROUP BY week, severity, kind ORDER BY week, severity, kind
        """,
        findings=warehouse.read(FINDINGS),
    )
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Senders that get worse
# MAGIC The share of arrivals refused out of order in the last week, against that of all weeks before.

# COMMAND ----------

senders = spark.sql(
    """
    WITH judged AS (
        SELECT source_queue_manager, int(verdict = 'out_of_order') AS refused,
            date_trunc('week', captured_at) =
                (SELECT max(date_trunc('week', captured_at)) FROM {verdicts}) AS recent
        FROM {verdicts} WHERE captured_at IS NOT NULL
    )
    SELECT source_queue_manager, count(*) AS arrivals, avg(refused) FILTER (WHERE NOT recent) AS before,
        avg(refused) FILTER (WHERE recent) AS last_week
    FROM judged GROUP BY source_queue_manager HAVING last_week > before
    ORDER BY last_week - before DESC, source_queue_manager LIMIT 50
    """,
    verdicts=verdicts,
)
display(with_names(senders, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Time to the acknowledgment
# MAGIC From the arrival that was accepted, by the week in which the message was first seen.
# MAGIC Refused arrivals do not count.

# COMMAND ----------

display(
    spark.sql(
        """
        SELECT date(date_trunc('week', first_seen_at)) AS week, count(*) AS messages,
            percentile(ack_latency_ms, 0.5) AS median_ms, percentile(ack_latency_ms, 0.95) AS p95_ms,
            max(ack_latency_ms) AS longest_ms
        FROM {history} WHERE ack_latency_ms IS NOT NULL GROUP BY week ORDER BY week
        """,
        history=history,
    )
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Coverage
# MAGIC A day with missing bytes is a day whose verdicts know less: look there before at the senders.

# COMMAND ----------

display(
    spark.sql(
        """
        SELECT date(first_captured_at) AS day, count(*) AS streams, sum(recovered_bytes) AS recovered_bytes,
            sum(missing_bytes) AS missing_bytes, count_if(mid_stream) AS mid_stream
        FROM {streams} WHERE recovered_bytes + missing_bytes > 0 GROUP BY day ORDER BY day
        """,
        streams=warehouse.read(STREAMS),
    )
)
