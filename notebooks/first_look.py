# Databricks notebook source
# MAGIC %md
# MAGIC # A first look at a warehouse
# MAGIC What became of the transactional messages, what happened, what was read, and whether the books balance.
# MAGIC The widgets choose the tables: a catalog and its schema, or a folder. Install the wheel on the cluster or, on
# MAGIC serverless compute, in the notebook's environment. Outside Databricks set `msmq.warehouse` and the like.
# MAGIC `since`, such as `2026-03-02T18:00`, shows messages and incidents from then on. With a `names_file`, names stand
# MAGIC beside queue managers and queues.

# COMMAND ----------

from matplotlib import pyplot as plt
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli.config import parse_time
from jobs.commands.summary import outcome_summary
from jobs.engines.on_spark import OnSpark
from jobs.tables.chosen import ask, chosen_warehouse, over_time, with_names
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS, WORST_FIRST
from schemas.ingest import BOOKS, CAPTURES, QUARANTINE
from schemas.outcomes import OUTCOMES
from schemas.replay import VERDICTS

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
spark.conf.set("spark.sql.session.timeZone", "UTC")  # of days and times
chosen = ask(spark, globals().get("dbutils"), "since", "names_file")
warehouse = chosen_warehouse(spark, chosen)
since = parse_time(chosen["since"]) if chosen["since"] else None
history = warehouse.read(MESSAGE_HISTORY)


def from_then_on(column: str) -> Column:
    """Returns whether a row is from `since` on, or has no time, and may be as late."""
    return F.lit(True) if since is None else F.coalesce(F.col(column) >= F.lit(since), F.lit(True))


# COMMAND ----------

# MAGIC %md
# MAGIC ## Was something lost?
# MAGIC `witness` names the frames that prove it: `uri` and `frame_number`, in order of time, each with what it shows.

# COMMAND ----------

print(outcome_summary(OnSpark(warehouse))["headline"])
outcomes = warehouse.read(OUTCOMES).where(from_then_on("last_seen_at"))
lost = outcomes.where("lost OR stuck").orderBy(F.desc("lost"), "first_seen_at", "tx_sequence_number")
lost = lost.select(
    *("outcome", "destination_queue", "source_queue_manager", "tx_sequence_number", "numbers"),
    *("message_id", "label", "first_seen_at", "last_seen_at", "explanation", "witness"),
)
display(with_names(lost, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## When
# MAGIC Messages by the hour in which they first arrived: all that were delivered, and below those that were not.

# COMMAND ----------

hours = over_time(history.where(from_then_on("last_seen_at")), "hour").toPandas()
figure, (good, bad) = plt.subplots(2, 1, sharex=True, figsize=(11, 5), layout="constrained")
good.bar(hours["time"], hours["delivered"], width=1 / 24, align="edge", label="delivered")
below = 0 * hours["lost"]
for fate in ("lost", "pending", "in_doubt"):
    bad.bar(hours["time"], hours[fate], width=1 / 24, align="edge", bottom=below, label=fate.replace("_", " "))
    below += hours[fate]
for part in (good, bad):
    part.set_ylabel("messages")
    part.legend()
bad.set_xlabel("UTC")
display(figure)
plt.close(figure)  # or Jupyter shows it twice

# COMMAND ----------

# MAGIC %md
# MAGIC ## What happened
# MAGIC One row for one story, the worst first.

# COMMAND ----------

incidents = warehouse.read(INCIDENTS).where(from_then_on("last_captured_at"))
display(with_names(incidents.orderBy(*map(F.desc, WORST_FIRST), "began_at"), chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What was read

# COMMAND ----------

display(warehouse.read(CAPTURES).groupBy("status", "reason").agg(F.count("*"), F.sum("packet_count")))
display(warehouse.read(QUARANTINE).groupBy("stage", "reason").agg(F.count("*"), F.sum("length")))
display(warehouse.read(BOOKS).where(~F.col("balanced")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What was refused, and where
# MAGIC Arrivals by verdict; then messages that were refused, each with all that the receiver did with it and its first
# MAGIC frame, to open with `wireshark -g FRAME -r FILE`.

# COMMAND ----------

verdicts = warehouse.read(VERDICTS)
display(verdicts.groupBy("session_id", "verdict", "reason").count().orderBy("session_id", "verdict"))
refused = history.where("refusals > 0").where(from_then_on("last_seen_at"))
refused = refused.orderBy("first_seen_at").select(
    *("first_seen_at", "label", "message_id", "tx_sequence", "tx_sequence_number", "outcome", "verdicts"),
    *("accepted_at", "ack_latency_ms", "first_uri", "first_frame_number"),
)
display(refused)
