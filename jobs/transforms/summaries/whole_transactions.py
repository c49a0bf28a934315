"""Finds transactions that one aggregate describes, so that only the messages of the others need windows.

Such a transaction is *whole*: it lies on one stream and in one sequence, its numbers follow one another from FM to LM,
and all of its messages are plain (`jobs.transforms.outcomes.slots`), so that each has its number for itself.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, columns_of, key_at, tx_sequence
from jobs.transforms.outcomes.slots import SLOT, slot_no
from schemas.replay import TRANSACTIONS

ID = ("source_queue_manager", "tx_transaction_id")
_PLACE = (*ID, "session_id", "scope_key", "destination_queue", "stream_id", "tx_sequence_id")
_NUMBER_BITS = 12  # of the numbers of one use of an ID: a later use differs in others


def find_uses(verdicts: DataFrame, unusual: DataFrame) -> DataFrame:
    """Returns a row per use of a transaction ID in one place, with `instance`, the count of the uses so far.

    `unusual` are the `unusual_slots`. `all_whole`: each use of the ID is a whole transaction, and the message IDs tell
    their order. Otherwise a row need not be a transaction.
    """
    number, offset, ordinal = F.col("tx_sequence_number"), F.col("stream_offset"), message_ordinal()
    uses = (
        verdicts.where(F.col("tx_transaction_id").isNotNull())
        .withColumn("slot_no", slot_no())
        .join(unusual.withColumn("unusual", F.lit(True)), "slot_no", "left")
        .groupBy(*_PLACE, F.shiftright(number, _NUMBER_BITS).alias("bucket"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.max("unusual").alias("unusual"),
            F.min(number).alias("low"),
            F.max(number).alias("high"),
            F.max(F.when(F.col("tx_first"), number)).alias("last_fm"),
            F.min(F.when(F.col("tx_last"), number)).alias("first_lm"),
            F.min(ordinal).alias("anchor"),
            F.min_by(ordinal, number).alias("first_ordinal"),
            F.max_by(ordinal, number).alias("last_ordinal"),
            F.min(offset).alias("first_offset"),
            F.max(offset).alias("last_offset"),
            F.min("captured_at").alias("first_captured_at"),
            F.max("captured_at").alias("last_captured_at"),
        )
    )
    whole = (
        F.col("unusual").isNull()
        & (F.col("messages") == F.col("high") - F.col("low") + 1)
        & (F.col("last_fm") == F.col("low"))
        & (F.col("first_lm") == F.col("high"))
    )
    in_order, place = Window.partitionBy(*ID).orderBy("anchor", "tx_sequence_id"), F.struct("anchor", "tx_sequence_id")
    follows = (F.col("instance") == 1) | (F.lag(place).over(in_order) < place)
    return (
        uses.withColumn("instance", F.row_number().over(in_order))
        .withColumn("clear", F.coalesce(whole & F.col("anchor").isNotNull() & follows, F.lit(False)))
        .withColumn("all_whole", F.min("clear").over(in_order.rowsBetween(*ALL)))
    )


def whole_transactions(uses: DataFrame) -> DataFrame:
    """Returns the rows of TRANSACTIONS of the IDs of which all uses are whole."""

    def message_id(ordinal: str) -> Column:
        return F.concat_ws("\\", "source_queue_manager", ordinal)

    none, no = F.lit(0).cast("long"), F.lit(False)
    several = F.when(F.col("messages") > 1, key_at("stream_id", "last_offset"))
    return (
        uses.where("all_whole")
        .withColumns(
            {"accepted": F.col("messages"), "lost": none, "pending": none, "partly_delivered": no, "torn": no}
            | {"torn_by_sender": no, "interleaved": no}
        )
        .withColumn("first_message_id", message_id("first_ordinal"))
        .withColumn("last_message_id", message_id("last_ordinal"))
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .withColumn("witness", F.array_compact(F.array(key_at("stream_id", "first_offset"), several)))
        .select(columns_of(TRANSACTIONS))
    )


def other_ids(uses: DataFrame) -> DataFrame:
    """Returns the IDs of which a use is not a whole transaction."""
    return uses.where("not all_whole").select(*ID).distinct()


def slots_nearby(verdicts: DataFrame, others: DataFrame, below_holes: DataFrame) -> DataFrame:
    """Returns `slot_no` of the SLOTs of the messages with one of the `other_ids`, and of their neighbours.

    A neighbour has the number right before or behind, or is among `below_holes`: the slots right below numbers that
    were not seen. So each message has three rows, whatever lies between the numbers of a transaction.
    """
    number = F.col("tx_sequence_number")
    near = (
        verdicts.select(*SLOT, *ID)
        .join(others, list(ID), "left_semi")
        .select("scope_key", "tx_sequence_id", F.explode(F.array(number - 1, number, number + 1)).alias(SLOT[-1]))
        .select(slot_no().alias("slot_no"))
    )
    return near.unionByName(below_holes).distinct()


def message_ordinal() -> Column:
    """Returns the second part of a message ID."""
    return F.substring_index("message_id", "\\", -1).cast("long")
