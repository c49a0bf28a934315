"""The kinds of findings that transactions show."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.findings.model import choose, counted, one_or_many, sentence, sequence_name
from schemas.replay import FindingKind, Severity


def broken_transactions(transactions: DataFrame) -> DataFrame:
    """Returns the findings on transactions that are torn, interleaved, or delivered in part."""
    error, warning = F.lit(Severity.ERROR.value), F.lit(Severity.WARNING.value)
    partly = FindingKind.TRANSACTION_PARTLY_DELIVERED
    found = (
        (FindingKind.TORN_TRANSACTION, F.col("torn_by_sender"), error),
        (FindingKind.INTERLEAVED_TRANSACTION, F.col("interleaved"), error),
        (partly, F.col("partly_delivered"), F.when(F.col("lost") > 0, error).otherwise(warning)),
    )
    kinds = F.array_compact(
        F.array(
            *(
                F.when(when, F.struct(F.lit(kind.value).alias("kind"), severity.alias("severity")))
                for kind, when, severity in found
            )
        )
    )
    first = F.struct(
        *("first_captured_at", "session_id", "destination_queue", "witness", "tx_transaction_id", "messages"),
        *("accepted", "lost", "pending"),
    )
    place = F.struct("first_captured_at", "tx_transaction_id", "instance")
    counts = F.concat(counted("count", "transaction that begins", "transactions that begin"), F.lit(" in "))
    head = F.concat(counts, sequence_name(), one_or_many("count", " is", " are"))
    identity = sentence(
        "The first has the ID {} and {}", "first.tx_transaction_id", counted("first.messages", "message", "messages")
    )
    sentences = (
        (
            FindingKind.TORN_TRANSACTION,
            sentence(
                "{} torn: the number next to {} was seen, and no message is marked as the first or as the last. {}.",
                head,
                one_or_many("count", "it", "them"),
                identity,
            ),
        ),
        (
            FindingKind.INTERLEAVED_TRANSACTION,
            sentence(
                "{} interleaved: messages of another transaction have numbers between {}. {}.",
                head,
                one_or_many("count", "its own", "their own"),
                identity,
            ),
        ),
        (
            partly,
            sentence(
                "{} delivered only in part. {}, of which {}.",
                head,
                identity,
                F.concat_ws(
                    " and ",
                    F.when(F.col("first.lost") > 0, counted("first.lost", "is lost", "are lost")),
                    F.when(F.col("first.pending") > 0, counted("first.pending", "is pending", "are pending")),
                ),
            ),
        ),
    )
    return (
        transactions.select("*", F.explode(kinds).alias("found"))
        .select("*", "found.*")
        .groupBy("kind", "severity", "scope_key", "tx_sequence_id")
        .agg(F.count(F.lit(1)).alias("count"), F.min_by(first, place).alias("first"))
        .select(
            *("kind", "severity", "scope_key", "tx_sequence_id"),
            F.col("first.first_captured_at").alias("found_at"),
            F.col("first.session_id").alias("session_id"),
            F.col("first.destination_queue").alias("destination_queue"),
            F.col("count").alias("messages"),
            choose((F.col("kind") == kind.value, words) for kind, words in sentences).alias("explanation"),
            F.col("first.witness").alias("witness"),
        )
    )
