# Databricks notebook source
# MAGIC %md
# MAGIC # Fleet trends over weeks
# MAGIC What was lost, what each night brought, which senders get worse, and how long receivers take to acknowledge.
# MAGIC Set `msmq.warehouse` to the folder of the tables. All days are UTC.

# COMMAND ----------

from pyspark.sql import SparkSession

from jobs.transforms import trends
from jobs.warehouse.store import Warehouse
from schemas.incidents import INCIDENTS
from schemas.ingest import STREAMS
from schemas.replay import FINDINGS, VERDICTS

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
warehouse = Warehouse(spark, folder=spark.conf.get("msmq.warehouse", "out/warehouse") or "")
verdicts = warehouse.read(VERDICTS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Incidents by week
# MAGIC Messages lost, pending, unknown and repaired, in the week in which each story began.

# COMMAND ----------

display(trends.incidents_by_week(warehouse.read(INCIDENTS)))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Arrivals day by day
# MAGIC `refused_share` is the share of arrivals refused out of order.
# MAGIC Duplicates are the sender's repeats and do no harm.

# COMMAND ----------

display(trends.by_day(verdicts))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Findings by week

# COMMAND ----------

display(trends.findings_by_week(warehouse.read(FINDINGS)))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Senders that get worse
# MAGIC The share of messages refused out of order in the last week, against that of all weeks before.

# COMMAND ----------

display(trends.worsening_senders(verdicts, limit=50))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Time to the acknowledgment

# COMMAND ----------

display(trends.latency_by_week(verdicts))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Coverage
# MAGIC A day with missing bytes is a day whose verdicts know less: look there before at the senders.

# COMMAND ----------

display(trends.coverage_by_day(warehouse.read(STREAMS)))
