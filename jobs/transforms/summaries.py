"""What verdicts add up to: sequences, sessions, transactions and findings."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.replay import BEFORE, SO_FAR, contract
from jobs.transforms.scopes import passes_through, with_ends
from schemas.replay import (
    FINDINGS,
    SEQUENCES,
    SESSIONS,
    TRANSACTIONS,
    Evidence,
    FindingKind,
    Reason,
    Scope,
    Severity,
    Verdict,
)


def _counts() -> list[Column]:
    return [F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict]


def _seen() -> list[Column]:
    return [
        F.min("captured_at").alias("first_captured_at"),
        F.max("captured_at").alias("last_captured_at"),
    ]


def sequences(verdicts: DataFrame) -> DataFrame:
    """One row of SEQUENCES per scope and TxSequenceID."""
    number = F.col("tx_sequence_number")
    return (
        verdicts.groupBy("scope_key", "tx_sequence_id", "source_queue_manager")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            *_counts(),
            F.sum("gap_size").alias("expired"),
            F.min(number).alias("first_number"),
            F.max(number).alias("last_number"),
            F.max(F.when(F.col("accepted"), number)).alias("last_accepted_number"),
            *_seen(),
        )
        .select(contract(SEQUENCES))
    )


def sessions(
    messages: DataFrame,
    streams: DataFrame,
    handshakes: DataFrame,
    verdicts: DataFrame,
    *,
    scope: Scope = Scope.AUTO,
) -> DataFrame:
    """One row of SESSIONS per pair of queue managers and direction that carried messages."""
    ends = with_ends(streams, handshakes)
    transactional = F.coalesce("transactional", F.lit(False))
    carried = (
        messages.groupBy("stream_id", "queue_manager_address")
        .agg(F.count(F.lit(1)).alias("messages"), F.count_if(transactional).alias("transactional"), *_seen())
        .join(ends, "stream_id")
        .groupBy("session_id", "sender", "receiver")
        .agg(
            F.count_distinct("connection_id").alias("connections"),
            F.sum("messages").alias("messages"),
            F.sum("transactional").alias("transactional"),
            F.sum(F.when(passes_through(), F.col("transactional")).otherwise(0)).alias("passing_through"),
            F.min("first_captured_at").alias("first_captured_at"),
            F.max("last_captured_at").alias("last_captured_at"),
        )
    )
    missing = ends.groupBy("session_id").agg(F.sum("missing_bytes").alias("missing_bytes"))
    judged = verdicts.groupBy("session_id").agg(
        F.max(F.substring_index("scope_key", " ", 1)).alias("replay_scope"), *_counts()
    )
    unjudged = Scope.QUEUE if scope is Scope.AUTO else scope
    return (
        carried.join(missing, "session_id")
        .join(judged, "session_id", "left")
        .fillna(unjudged.value, subset=["replay_scope"])
        .fillna(0, subset=[verdict.value for verdict in Verdict])
        .select(contract(SESSIONS))
    )


def transactions(verdicts: DataFrame) -> DataFrame:
    """One row of TRANSACTIONS per use of a sender's transaction ID, of the first arrival of each message.

    The 20 bits come round again: a transaction begins at FM, and at whatever follows LM. Its messages may go
    to several queues, so that scopes are merged as streams are: by the running maximum of the clock.
    """
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset").rowsBetween(*SO_FAR)
    alike = Window.partitionBy("scope_key", "tx_sequence_id", "tx_sequence_number")
    under_id = Window.partitionBy("source_queue_manager", "tx_transaction_id").orderBy(
        "clock", "stream_id", "stream_offset"
    )
    ended = F.lag("tx_last").over(under_id)
    return (
        verdicts.where(F.col("tx_transaction_id").isNotNull())
        .select(
            "*",
            F.max("captured_ns").over(on_stream).alias("clock"),
            F.min("replay_order").over(alike).alias("first_arrival"),
            F.max("accepted").over(alike).alias("ever_accepted"),
        )
        .where("replay_order = first_arrival")
        .withColumn("begins", ended.isNotNull() & (F.col("tx_first") | ended))
        .withColumn("instance", F.count_if("begins").over(under_id.rowsBetween(*SO_FAR)) + 1)
        .withColumn("place", F.struct("clock", "stream_id", "stream_offset"))
        .groupBy("source_queue_manager", "tx_transaction_id", "instance")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if("ever_accepted").alias("accepted"),
            (~(F.max("tx_first") & F.max("tx_last"))).alias("torn"),
            F.min_by("message_id", "place").alias("first_message_id"),
            F.max_by("message_id", "place").alias("last_message_id"),
            *_seen(),
        )
        .select(contract(TRANSACTIONS))
    )


def findings(verdicts: DataFrame) -> DataFrame:
    """One row of FINDINGS per scope, sequence and kind; the first message concerned, and its proof, stand for all.

    A sequence is stuck when the last that was heard of it is a refused message without its predecessor.
    """
    in_scope = Window.partitionBy("scope_key").orderBy("replay_order").rowsBetween(*BEFORE)
    alike = (
        Window.partitionBy("scope_key", "tx_sequence_id", "tx_sequence_number")
        .orderBy("replay_order")
        .rowsBetween(*BEFORE)
    )
    of_sequence = Window.partitionBy("scope_key", "tx_sequence_id").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    key, order = F.concat_ws("@", "stream_id", "stream_offset"), F.col("replay_order")
    moved = F.coalesce("accepted", F.lit(True))
    verdict, reason = F.col("verdict"), F.col("reason")

    def finding(when: Column, kind: FindingKind, severity: Severity, what: str, witness: Column) -> Column:
        return F.when(
            when,
            F.struct(
                F.lit(kind.value).alias("kind"),
                F.lit(severity.value).alias("severity"),
                F.lit(what).alias("what"),
                F.array_compact(witness).alias("witness"),
            ),
        )

    since, unknown = F.array("setter", "key"), F.lit("unknown")
    kinds = (
        finding(
            verdict == Verdict.DUPLICATE.value,
            FindingKind.DUPLICATES,
            Severity.INFO,
            "arrived again after the receiver had them",
            F.array("original", "key"),
        ),
        finding(
            verdict == Verdict.OUT_OF_ORDER.value,
            FindingKind.OUT_OF_ORDER,
            Severity.WARNING,
            "were refused, and had not been accepted before",
            since,
        ),
        finding(
            verdict == Verdict.GAP_EXPIRED.value,
            FindingKind.GAP_EXPIRED,
            Severity.WARNING,
            "were accepted over numbers that expired before they were sent",
            since,
        ),
        finding(
            (reason == Reason.PREDECESSOR_MISSING.value) & (order > F.coalesce("last_moved", F.lit(0))),
            FindingKind.STUCK_SEQUENCE,
            Severity.ERROR,
            "were refused, and nothing of the sequence was accepted since",
            since,
        ),
        finding(
            reason == Reason.CAPTURE_GAP.value,
            FindingKind.CAPTURE_GAP,
            Severity.WARNING,
            "cannot be judged, as the capture is missing bytes before them",
            since,
        ),
        finding(
            F.col("evidence") == Evidence.CONTRADICTED.value,
            FindingKind.CONTRADICTED,
            Severity.ERROR,
            "were refused by the rule, yet the receiver acknowledged them",
            F.array("key"),
        ),
    )
    first = ("captured_at", "session_id", "destination_queue", "witness", "state", "number", "previous")
    return (
        verdicts.withColumn("key", key)
        .select(
            "*",
            F.last(F.when(moved, F.col("key")), ignorenulls=True).over(in_scope).alias("setter"),
            F.first(F.when(moved, F.col("key")), ignorenulls=True).over(alike).alias("original"),
            F.max(F.when(moved, order)).over(of_sequence).alias("last_moved"),
        )
        .withColumn("found", F.explode(F.array_compact(F.array(*kinds))))
        .select(
            "*",
            "found.*",
            F.coalesce(
                F.concat("incoming_tx_sequence_id", F.lit(" number "), "incoming_tx_sequence_number"), unknown
            ).alias("state"),
            F.col("tx_sequence_number").alias("number"),
            F.col("previous_tx_sequence_number").alias("previous"),
        )
        .groupBy("kind", "severity", "what", "scope_key", "tx_sequence_id")
        .agg(F.count(F.lit(1)).alias("messages"), F.min_by(F.struct(*first), "replay_order").alias("first"))
        .select(
            "*",
            "first.*",
            F.col("first.captured_at").alias("at"),
        )
        .withColumn(
            "explanation",
            F.format_string(
                "%d message(s) of sequence %s %s. The first has number %d, previous %d; the state before it: %s.",
                "messages",
                F.col("tx_sequence_id").cast("string"),
                "what",
                "number",
                "previous",
                "state",
            ),
        )
        .select(contract(FINDINGS))
    )
