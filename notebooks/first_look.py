# Databricks notebook source
# MAGIC %md
# MAGIC # A first look at a warehouse
# MAGIC What was read, whether the books balance, and what the receivers did with the transactional messages.

# COMMAND ----------

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, QUARANTINE
from schemas.replay import VERDICTS, Verdict

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
warehouse = Warehouse(spark, folder=spark.conf.get("msmq.warehouse", "out/warehouse") or "")

# COMMAND ----------

display(warehouse.read(CAPTURES).groupBy("status", "reason").agg(F.count("*"), F.sum("packet_count")))
display(warehouse.read(QUARANTINE).groupBy("stage", "reason").agg(F.count("*"), F.sum("length")))
display(warehouse.read(BOOKS).where(~F.col("balanced")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What was refused, and where
# MAGIC Each row leads back to its bytes: `capture_id`, `last_frame`, `stream_id`, `stream_offset`.

# COMMAND ----------

verdicts = warehouse.read(VERDICTS)
display(verdicts.groupBy("session_id", "verdict", "reason").count().orderBy("session_id", "verdict"))
refused = verdicts.where(F.col("verdict") == Verdict.OUT_OF_ORDER.value)
display(refused.select("captured_at", "message_id", "tx_sequence_number", "capture_id", "last_frame"))
