# Databricks notebook source
# MAGIC %md
# MAGIC # One session under the microscope
# MAGIC What became of its messages, what happened, every arrival in the order the receiver saw it,
# MAGIC and where its bytes are.
# MAGIC The widgets choose the tables: a catalog and its schema, or a folder. Install the wheel on the cluster or, on
# MAGIC serverless compute, in the notebook's environment. Outside Databricks set `msmq.warehouse` and the like.
# MAGIC Without a `session`, the worst is taken. With a `names_file`, names stand beside queue managers and queues.

# COMMAND ----------

from matplotlib import pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.tables.chosen import ask, chosen_warehouse, with_names
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SESSIONS, VERDICTS, Verdict
from udfs.functions import register

spark = SparkSession.getActiveSession()
assert spark is not None, "Run this where a Spark session is active."  # noqa: S101 - a notebook's precondition
spark.conf.set("spark.sql.session.timeZone", "UTC")  # of days and times
chosen = ask(spark, globals().get("dbutils"), "session", "names_file")
warehouse = chosen_warehouse(spark, chosen)
verdicts, findings = warehouse.read(VERDICTS), warehouse.read(FINDINGS)
outcomes, incidents = warehouse.read(OUTCOMES), warehouse.read(INCIDENTS)
history = warehouse.read(MESSAGE_HISTORY)
MOST_DRAWN = 20_000

# COMMAND ----------

harm = outcomes.groupBy("session_id").agg(
    F.sum(F.when(F.col("lost"), F.col("numbers")).otherwise(0)).alias("messages_lost"),
    F.count_if("stuck").alias("messages_stuck"),
)
ranked = warehouse.read(SESSIONS).join(harm, "session_id", "left")
worst = ranked.orderBy(F.desc("messages_lost"), F.desc("messages_stuck"), F.desc("messages"), "session_id").limit(1)
session = chosen["session"] or worst.first()["session_id"]
of_session = F.col("session_id") == session
print(session)
display(with_names(worst, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Its sequence numbers over time
# MAGIC Each arrival with its verdict, and below each message's time to its acknowledgment. Accepted messages rise one
# MAGIC by one, crosses in a row are a sequence that is stuck, and a new sequence begins at 1.

# COMMAND ----------

arrivals = verdicts.where(of_session)
timed = arrivals.where("captured_at IS NOT NULL").select("captured_at", "tx_sequence_number", "verdict")
drawn = timed.orderBy("captured_at").limit(MOST_DRAWN).toPandas()
figure, (numbers, latency) = plt.subplots(2, 1, sharex=True, figsize=(11, 7), layout="constrained")
for verdict, marker in zip(Verdict, (".", "*", "^", "s", "x", "D"), strict=True):
    some = drawn[drawn["verdict"] == verdict]
    numbers.plot(some["captured_at"], some["tx_sequence_number"], marker, label=f"{verdict}: {len(some):,}")
left_out = timed.count() - len(drawn)
numbers.set(title=f"The first {MOST_DRAWN:,}; {left_out:,} more" if left_out else session, ylabel="sequence number")
numbers.legend()
at = F.coalesce("accepted_at", "first_seen_at").alias("at")
acknowledged = history.where(of_session & F.col("ack_latency_ms").isNotNull()).select(at, "ack_latency_ms")
times = acknowledged.orderBy("at").limit(MOST_DRAWN).toPandas()
latency.semilogy(times["at"], times["ack_latency_ms"], ".")
latency.set(xlabel="UTC", ylabel="ms to the acknowledgment")
display(figure)
plt.close(figure)  # or Jupyter shows it twice

# COMMAND ----------

# MAGIC %md
# MAGIC ## What became of its messages
# MAGIC Those that were not plainly delivered: lost ones first, then stuck ones.

# COMMAND ----------

became = (
    outcomes.where(of_session)
    .orderBy(F.desc_nulls_last("lost"), F.desc("stuck"), "tx_sequence_id", "tx_sequence_number")
    .select(
        *("outcome", "lost", "stuck", "destination_queue", "tx_sequence_number", "numbers"),
        *("message_id", "label", "explanation", "witness"),
    )
)
display(with_names(became, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What happened

# COMMAND ----------

happened = incidents.where(of_session).select(
    *("incident_id", "severity", "outcome", "cause", "source_queue_manager", "destination_queue"),
    *("began_at", "ended_at", "explanation", "witness"),
)
display(with_names(happened, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What was found
# MAGIC `witness` names the frames that prove it: `uri` and `frame_number`, in order of time, each with what it shows.

# COMMAND ----------

found = findings.where(of_session).select(
    *("incident_id", "severity", "kind", "destination_queue", "found_at", "messages", "explanation", "witness")
)
display(with_names(found, chosen))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Arrival by arrival
# MAGIC `incoming_tx_sequence_number` is the state before the message. A message is accepted when
# MAGIC `previous_tx_sequence_number` is not above it and `tx_sequence_number` is.

# COMMAND ----------

display(
    arrivals.orderBy("scope_key", "replay_order").select(
        *("scope_key", "replay_order", "captured_at", "tx_sequence_id", "tx_sequence_number"),
        *("previous_tx_sequence_number", "incoming_tx_sequence_number", "verdict", "reason", "reject_count"),
        *("ack_latency_ms", "evidence", "capture_id", "last_frame"),
    )
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Acknowledgments
# MAGIC Messages that the session brought first. Of those acknowledged, half were so within `median_ms` of the arrival
# MAGIC that was accepted, nineteen of twenty within `p95_ms`.

# COMMAND ----------

display(
    history.where(of_session & (F.col("arrivals") > 0))
    .groupBy("scope_key", "outcome")
    .agg(
        F.count(F.lit(1)).alias("messages"),
        F.count("acknowledged_at").alias("acknowledged"),
        F.expr("percentile(ack_latency_ms, 0.5)").alias("median_ms"),
        F.expr("percentile(ack_latency_ms, 0.95)").alias("p95_ms"),
    )
    .orderBy("scope_key", "outcome")
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the captures miss of it
# MAGIC Bytes recovered and missing of each of its streams, then the holes, then what is in quarantine.

# COMMAND ----------

ends = warehouse.read(ENDS).where(of_session & F.col("copy_of").isNull()).select("stream_id", "sender", "receiver")
streams = ends.join(warehouse.read(STREAMS), "stream_id")
display(
    streams.select(
        *("stream_id", "sender", "receiver", "src_ip", "dst_ip", "mid_stream", "recovered_bytes", "missing_bytes")
    ).orderBy("stream_id")
)
display(warehouse.read(STREAM_GAPS).join(ends, "stream_id", "left_semi").orderBy("stream_id", "stream_offset"))
display(warehouse.read(QUARANTINE).join(ends, "stream_id", "left_semi").orderBy("stream_id", "stream_offset"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where its bytes are
# MAGIC Open a capture at a frame with `wireshark -g FRAME -r FILE`.

# COMMAND ----------

display(
    arrivals.groupBy("capture_id")
    .agg(F.min("first_frame").alias("first_frame"), F.max("last_frame").alias("last_frame"))
    .join(warehouse.read(CAPTURES).select("capture_id", "uri"), "capture_id")
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Decode one packet in SQL
# MAGIC The first message that was refused, else the first; the functions take any BINARY column.

# COMMAND ----------

register(spark)
key = ["stream_id", "stream_offset"]
refused_first = arrivals.orderBy(F.coalesce("accepted", F.lit(True)), "scope_key", "replay_order").limit(1)
warehouse.read(PACKETS).join(refused_first.select(key), key, "left_semi").createOrReplaceTempView("one_packet")
display(
    spark.sql("""
        SELECT msmq_packet(raw) AS packet, msmq_user_header(raw) AS user_header,
               msmq_transaction_header(raw) AS transaction_header, msmq_message_properties(raw) AS message_properties
        FROM one_packet
    """)
)
