# Databricks notebook source
# MAGIC %md
# MAGIC # Fleet trends over weeks
# MAGIC What was lost, what each night brought, which senders get worse, and how long receivers take to acknowledge.
# MAGIC The widgets choose the tables: a catalog and its schema, or a folder. Install the wheel on the cluster or, on
# MAGIC serverless compute, in the notebook's environment. Outside Databricks set `msmq.warehouse` and the like.
# MAGIC All days are UTC. With a `names_file`, names stand beside queue managers and queues.

# COMMAND ----------

from pyspark.sql import SparkSession

from jobs.engine.on_spark import OnSpark
from jobs.reporting.few import read_few
from jobs.reporting.flow import health_by_queue
from jobs.transforms import trends
from jobs.warehouse.chosen import ask, chosen_warehouse, with_names
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, STREAMS
from schemas.replay import FINDINGS, VERDICTS
from udfs.derive.frames import to_arrow
from udfs.derive.report.period import begin_of_last_run

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
chosen = ask(spark, globals().get("dbutils"), "names_file")
warehouse = chosen_warehouse(spark, chosen)
verdicts = warehouse.read(VERDICTS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Health by queue
# MAGIC The last run's captures and the traffic before: what is worse, gone or new, and how long acknowledgments take.

# COMMAND ----------

engine = OnSpark(warehouse)
last_run = begin_of_last_run(read_few(engine, CAPTURES)["captures"])
queues = health_by_queue(engine, last_run, limit=200)
display(with_names(spark.createDataFrame(to_arrow(queues)), chosen))

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
# MAGIC Duplicates are repeats of the sender, or messages whose number another one had taken:
# MAGIC `outcomes` tells them apart.

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

display(with_names(trends.worsening_senders(verdicts, limit=50), chosen))

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
