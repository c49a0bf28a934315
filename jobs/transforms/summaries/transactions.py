"""Assembles transactions from the messages between FM and LM ([MS-MQMQ] 2.2.20.5)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, SO_FAR, columns_of, name_hashes, row_key, signed, tx_sequence, unsigned
from jobs.transforms.outcomes.rows import message_no, with_fate
from jobs.transforms.summaries.whole_transactions import ID, message_ordinal
from schemas.replay import TRANSACTIONS

_SCOPE, _SENDER = ("scope_no", "scope_check"), ("sender_no", "sender_check")
_SEQUENCE, _TRANSACTION = (*_SCOPE, "sequence"), (*_SENDER, "tx_transaction_id")
_NAMES = ("source_queue_manager", "session_id", "scope_key", "destination_queue")
_PLACE = ("stream_id", "stream_offset")


def assemble_transactions(verdicts: DataFrame, fates: DataFrame, chosen: DataFrame | None = None) -> DataFrame:
    """Returns one row of TRANSACTIONS per use of a sender's transaction ID, of the `chosen` IDs; resends do not count.

    The ID has 20 bits and comes round again. Within a sequence a transaction begins at FM, and at whatever follows LM,
    in the order of the numbers, so a message that arrives late stays in its place. Where a transaction has messages
    in several scopes, the parts without FM or LM follow one another in the order of their message IDs. `fates` is what
    `message_fates` returns. Of the messages of IDs that are not `chosen`, only neighbours need be there.
    """
    messages = _messages(verdicts.where(F.col("tx_transaction_id").isNotNull()), chosen)
    rows = _parts(with_fate(messages, fates)).where("chosen")
    in_order = Window.partitionBy(*_TRANSACTION).orderBy("anchor", "whole", "sequence", "number")
    ended, was_whole = F.lag("tx_last").over(in_order), F.lag("whole").over(in_order)
    begins = ended.isNotNull() & (F.col("tx_first") | ended | (was_whole != F.col("whole")))
    instance = F.count_if("begins").over(in_order.rowsBetween(*SO_FAR)) + 1
    of_instance = Window.partitionBy(*_TRANSACTION, "instance").orderBy("anchor", "sequence", "number")
    whole = of_instance.rowsBetween(*ALL)
    assembled = (
        rows.withColumn("begins", begins)
        .withColumn("instance", instance)
        .select(
            *("names_no", "names_check", "tx_transaction_id", "instance", "sequence", "ordinal", *_PLACE, "before"),
            F.row_number().over(of_instance).alias("nth"),
            F.count(F.lit(1)).over(whole).alias("messages"),
            F.count_if("accepted").over(whole).alias("accepted"),
            *(F.count_if(F.col("fate") == fate).over(whole).alias(fate) for fate in ("delivered", "lost", "pending")),
            F.coalesce(F.max("tx_first").over(whole), F.lit(False)).alias("has_first"),
            F.coalesce(F.max("tx_last").over(whole), F.lit(False)).alias("has_last"),
            F.last("between", ignorenulls=True).over(whole).alias("between"),
            F.last("ordinal").over(whole).alias("last_ordinal"),
            F.last(F.struct(*_PLACE)).over(whole).alias("last"),
            F.last("behind").over(whole).alias("behind"),
            F.min("captured_at").over(whole).alias("first_captured_at"),
            F.max("captured_at").over(whole).alias("last_captured_at"),
        )
        .where("nth = 1")
    )
    no_first = ~F.col("has_first") & F.col("before").isNotNull()
    no_last = ~F.col("has_last") & F.col("behind").isNotNull()
    not_delivered = F.col("lost") + F.col("pending")
    witness = (
        row_key(),
        F.when(F.col("last") != F.struct(*_PLACE), row_key("last")),
        F.when(no_first, row_key("before")),
        F.when(no_last, row_key("behind")),
        F.when(F.col("interleaved"), row_key("between")),
    )
    names = verdicts.select(*_NAMES, *name_hashes(*_NAMES, prefix="names")).distinct()
    return (
        assembled.withColumn("torn", ~(F.col("has_first") & F.col("has_last")))
        .withColumn("torn_by_sender", F.when(no_first | no_last, F.lit(True)).when(~F.col("torn"), F.lit(False)))
        .withColumn("interleaved", F.col("between").isNotNull())
        .withColumn("partly_delivered", (F.col("delivered") > 0) & (not_delivered > 0))
        .withColumn("witness", F.array_compact(F.array(*witness)))
        .join(names, ["names_no", "names_check"])
        .withColumn("tx_sequence_id", unsigned(F.col("sequence")))
        .withColumn("tx_sequence", tx_sequence(F.col("tx_sequence_id")))
        .withColumn("first_message_id", F.concat_ws("\\", "source_queue_manager", "ordinal"))
        .withColumn("last_message_id", F.concat_ws("\\", "source_queue_manager", "last_ordinal"))
        .select(columns_of(TRANSACTIONS))
    )


def _messages(verdicts: DataFrame, chosen: DataFrame | None) -> DataFrame:
    """Returns the first arrival per scope, number and transaction ID, and whether any arrival was accepted."""
    is_chosen = F.lit(True)
    if chosen is not None:
        verdicts = verdicts.join(chosen.withColumn("is_chosen", F.lit(True)), list(ID), "left")
        is_chosen = F.col("is_chosen").isNotNull()
    of_message = Window.partitionBy(*_SEQUENCE, "number", "tx_transaction_id").orderBy("replay_order")
    accepted = F.coalesce("accepted", F.lit(False))
    return (
        verdicts.select(
            *name_hashes(*_NAMES, prefix="names"),
            *name_hashes("scope_key", prefix="scope"),
            *name_hashes("source_queue_manager", prefix="sender"),
            message_no().alias("message_no"),
            *(*_PLACE, "captured_at", "replay_order", "accepted", "tx_transaction_id", "tx_first", "tx_last"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            message_ordinal().alias("ordinal"),
            is_chosen.alias("chosen"),
        )
        .repartition("scope_no")  # once for the windows of a scope
        .withColumn("accepted", F.max(accepted).over(of_message.rowsBetween(*ALL)))
        .withColumn("arrival", F.row_number().over(of_message))
        .where("arrival = 1")
        .drop("arrival")
    )


def _parts(messages: DataFrame) -> DataFrame:
    """Returns messages with their neighbours, and with the part of a transaction that each belongs to.

    `before`, `behind`: the places of the messages with the numbers right before and behind, if they were seen.
    `between`: the place of a message with a number between this one's and that of the part's last one before it.
    `whole`: the part has FM and LM. `anchor`: the message ID that orders parts, of a whole one its first.
    """
    by_number = Window.partitionBy(*_SEQUENCE).orderBy("number")
    of_id = Window.partitionBy(*_SEQUENCE, "tx_transaction_id").orderBy("number")
    of_part = Window.partitionBy(*_SEQUENCE, "tx_transaction_id", "part").orderBy("number").rowsBetween(*ALL)
    place = F.struct("number", *_PLACE)

    def at(first: int, last: int) -> Column:
        return F.max(place).over(by_number.rangeBetween(first, last))

    opens = F.coalesce(F.col("tx_first"), F.lit(False)) | F.coalesce(F.lag("tx_last").over(of_id), F.lit(False))
    part = F.count_if("opens").over(of_id.rowsBetween(*SO_FAR))
    whole = F.max("tx_first").over(of_part) & F.max("tx_last").over(of_part)
    is_between = ~F.col("opens") & (F.col("below.number") > F.col("own_before"))
    return (
        messages.select(
            "*",
            at(-1, -1).alias("before"),
            at(1, 1).alias("behind"),
            at(Window.unboundedPreceding, -1).alias("below"),
            F.lag("number").over(of_id).alias("own_before"),
            opens.alias("opens"),
        )
        .withColumn("part", part)
        .withColumn("between", F.when(is_between, F.col("below")))
        .withColumn("whole", F.coalesce(whole, F.lit(False)))
        .withColumn("anchor", F.when(F.col("whole"), F.min("ordinal").over(of_part)).otherwise(F.col("ordinal")))
        .drop("below", "own_before", "opens")
    )
