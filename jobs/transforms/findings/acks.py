"""The kinds of findings that acknowledgments show."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import row_key, timestamp, unsigned
from jobs.transforms.findings.model import NS, choose, class_name, counted, one_or_many, sentence, sequence_name
from jobs.transforms.replay.acknowledgments import select_order_acks
from jobs.transforms.replay.evidence import was_queued
from schemas.replay import FindingKind, Severity, Verdict
from schemas.wire import NEGATIVE_CLASS, UNLIMITED, MessageClass

_REPEATED_TIMES, _REPEATED_S = 3, 60  # over two of the shortest resend intervals
_READ = "Look whether an application reads the queue, or allow more time."
_SIGNED = "Compare certificates and cryptographic providers of sender and receiver."
_CAUSES = {
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: (
        "the queue does not exist",
        "Create the queue, or correct its name at the sender.",
    ),
    MessageClass.MQMSG_CLASS_NACK_DELETED: ("it was deleted on its way", "Ask who deleted it from its outgoing queue."),
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: (
        "its time to reach the queue ran out",
        "Look for what held it up, such as a receiver that could not be reached, or allow more time.",
    ),
    MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA: (
        "the queue is full",
        "Look whether an application reads the queue, or raise the quota of the queue or the machine.",
    ),
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED: (
        "the sender has no access to the queue",
        "Grant its account the right to send to the queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED: ("it passed too many queue managers", "Check the routing links."),
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE: ("its signature is not valid", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION: ("it could not be decrypted", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT: ("it could not be encrypted", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: (
        "it is transactional and the queue is not",
        "Send it outside a transaction, or to a transactional queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG: (
        "the queue is transactional and it is not",
        "Send it in a transaction, or to another queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
        "the receiver lacks its cryptographic provider",
        _SIGNED,
    ),
    MessageClass.MQMSG_CLASS_NACK_SOURCE_COMPUTER_GUID_CHANGED: (
        "the GUID of its source changed",
        "Ask whether Message Queuing was installed again on the sender.",
    ),
    MessageClass.MQMSG_CLASS_NACK_Q_DELETED: ("the queue was deleted", "Ask who deleted the queue."),
    MessageClass.MQMSG_CLASS_NACK_Q_PURGED: ("the queue was purged", "Ask who purged the queue."),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: ("its time to be received ran out", _READ),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER: (
        "its time to be received ran out at the sender",
        _READ,
    ),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED: (
        "an application rejected it",
        "Look for the cause in the log of the application.",
    ),
}
"""Why a message was not received, [MC-MQAC] 2.2.2.9, and what to do about it."""
_LIMITS = {
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: "time_to_reach_queue",
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: "time_to_be_received",
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER: "time_to_be_received",
}
"""Classes that say that a time ran out, and the column with that time in s."""


def repeated_order_acks(acks: DataFrame, verdicts: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns the findings on OrderAcks that repeat the highest number of a scope's last sequence.

    `acks` are those of `acknowledgments.pair_acks`. Where the receiver refused higher numbers in the meantime, the
    sequence is stuck; else the sender does not get the acknowledgments.
    """
    pair = ("receiver", "source_queue_manager", "sequence")
    highest = Window.partitionBy(*pair).orderBy(F.desc("number"))
    times = (
        select_order_acks(acks)
        .groupBy(*pair, "number")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("ns").alias("first_ns"),
            F.max("ns").alias("last_ns"),
            F.min_by("key", F.struct("ns", "key")).alias("first_key"),
            F.max_by("key", F.struct("ns", "key")).alias("last_key"),
        )
        .withColumn("place", F.row_number().over(highest))
        .where("place = 1")
        .where((F.col("messages") >= _REPEATED_TIMES) & (F.col("last_ns") - F.col("first_ns") >= _REPEATED_S * NS))
        .select("*", unsigned(F.col("sequence")).alias("tx_sequence_id"))
        .withColumnRenamed("receiver", "of")
    )
    last = sequences.groupBy("scope_key").agg(F.max("tx_sequence_id").alias("last_sequence"))
    refused = (
        (F.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (F.col("tx_sequence_number") > F.col("number"))
        & F.col("captured_ns").between(F.col("first_ns"), F.col("last_ns"))
    )
    scopes = (
        verdicts.withColumn("of", F.substring_index("session_id", "->", -1))
        .join(F.broadcast(times), ["of", "source_queue_manager", "tx_sequence_id"])
        .groupBy("of", "source_queue_manager", "tx_sequence_id", "scope_key", "session_id", "number", "messages")
        .agg(
            F.min("destination_queue").alias("destination_queue"),
            F.first(F.struct("first_ns", "last_ns", "first_key", "last_key")).alias("acks"),
            F.count_if(refused).alias("refused"),
        )
        .join(last, "scope_key")
        .where("tx_sequence_id = last_sequence")
    )
    stuck = F.col("refused") > 0
    return scopes.select(
        F.lit(FindingKind.REPEATED_ORDER_ACK.value).alias("kind"),
        F.when(stuck, Severity.WARNING.value).otherwise(Severity.INFO.value).alias("severity"),
        timestamp(F.col("acks.first_ns")).alias("found_at"),
        *("session_id", "scope_key", "destination_queue", "tx_sequence_id", "messages"),
        sentence(
            "The receiver sent the OrderAck for number {} of {} {} times in {} s, and none for a higher number: {}.",
            "number",
            sequence_name(),
            "messages",
            F.round((F.col("acks.last_ns") - F.col("acks.first_ns")) / NS, 0).cast("long"),
            F.when(
                stuck, sentence("in this time it refused {}", counted("refused", "higher number", "higher numbers"))
            ).otherwise(F.lit("the OrderAcks do not reach the sender, or the sender ignores them")),
        ).alias("explanation"),
        F.array("acks.first_key", "acks.last_key").alias("witness"),
    )


def negative_acks(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the administration messages that are negative acknowledgments."""
    return (
        messages.where(F.col("message_class").bitwiseAND(NEGATIVE_CLASS) != 0)
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .select(
            "correlation_id",
            "message_class",
            "session_id",
            F.struct("captured_ns", "captured_at", row_key().alias("key")).alias("ack"),
        )
    )


def not_received_by_application(messages: DataFrame, negative: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the findings on negative acknowledgments in administration messages, per class, session and queue.

    CorrelationID names the message, transactional or not ([MS-MQMQ] 2.2.18.1.6). Session and queue are those of the
    message where a capture holds it, else the session is that of the acknowledgment. Where a time ran out, the finding
    names that time of the first message, and how long after it the acknowledgment came. `negative` are `negative_acks`.
    """
    named = (
        messages.join(negative.select(F.col("correlation_id").alias("message_id")), "message_id", "left_semi")
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .groupBy(F.col("message_id").alias("correlation_id"))
        .agg(
            F.min(
                F.struct(
                    *("captured_ns", row_key().alias("key"), "session_id", "destination_queue", "transactional"),
                    *sorted(set(_LIMITS.values())),
                )
            ).alias("about"),
        )
    )
    queued = was_queued(F.col("message_class"))
    return (
        negative.join(named, "correlation_id", "left")
        .groupBy(
            "message_class",
            F.coalesce("about.session_id", "session_id").alias("session_id"),
            F.col("about.destination_queue").alias("destination_queue"),
        )
        .agg(
            F.count_distinct("correlation_id").alias("messages"),
            F.count_distinct(F.when(F.col("about.transactional"), F.col("correlation_id"))).alias("transactional"),
            F.min(F.struct("ack.captured_ns", "ack.captured_at", "ack.key", "about", "correlation_id")).alias("first"),
        )
        .select(
            F.lit(FindingKind.NOT_RECEIVED_BY_APPLICATION.value).alias("kind"),
            F.when(queued, Severity.WARNING.value).otherwise(Severity.ERROR.value).alias("severity"),
            F.col("first.captured_at").alias("found_at"),
            "session_id",
            "destination_queue",
            "messages",
            sentence(
                "{}, as {}: {} ({}).{} The first is message {}{}. {}",
                F.when(
                    queued, counted("messages", "message left its queue unread", "messages left their queue unread")
                ).otherwise(
                    counted("messages", "message did not reach its queue", "messages did not reach their queue")
                ),
                one_or_many("messages", "an acknowledgment says", "acknowledgments say"),
                reason_of(F.col("message_class")),
                class_name(F.col("message_class")),
                F.when(F.col("transactional") > 0, sentence(" Transactional: {}.", "transactional")).otherwise(""),
                "first.correlation_id",
                _delay(),
                advice_on(F.col("message_class")),
            ).alias("explanation"),
            F.array("first.about.key", "first.key").alias("witness"),
        )
    )


def reason_of(message_class: Column) -> Column:
    """Returns why a message was not received, as the class of a negative acknowledgment says."""
    reasons = choose((message_class == int(one), F.lit(reason)) for one, (reason, _) in _CAUSES.items())
    return F.coalesce(reasons, F.lit("for a reason that the documents do not name"))


def advice_on(message_class: Column) -> Column:
    """Returns what to do about a negative acknowledgment of this class."""
    advice = choose((message_class == int(one), F.lit(advice)) for one, (_, advice) in _CAUSES.items())
    return F.coalesce(advice, F.lit("Look for the class in [MC-MQAC] 2.2.2.9."))


def _delay() -> Column:
    """Returns ", whose 60 s ran out: the acknowledgment came 61.5 s after it", or an empty text."""
    limit = choose((F.col("message_class") == int(one), F.col(f"first.about.{name}")) for one, name in _LIMITS.items())
    delay_s = F.round((F.col("first.captured_ns") - F.col("first.about.captured_ns")) / NS, 1)
    said = sentence(", which had {} s: the acknowledgment came {} s after it", limit, delay_s)
    return F.when(limit.isNotNull() & delay_s.isNotNull() & (limit < UNLIMITED), said).otherwise("")
