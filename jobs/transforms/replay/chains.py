"""Joins messages into chains. Windows see one row per chain; ordinary traffic has a few chains per hundred messages.

Consecutive messages of a stream whose numbers follow one another act on a scope's state exactly like one message with
the first previous number and the last number, if no other row of the scope lies between them. A chain is cut where one
does, and where its messages differ in verdict or evidence. A single message is a chain of one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it
from pyspark.sql.types import ArrayType

from jobs.transforms.expressions import signed
from schemas.table import BOOL, LONG, U16, row
from udfs import on_spark
from udfs.msmq.chains import NUMBER_BITS, OF_STREAM
from udfs.msmq.chains import find_chains as find_in_batches

_CHAIN = row(
    **dict(zip(OF_STREAM, (LONG, U16, LONG, LONG, BOOL), strict=True)),
    **dict.fromkeys(("sequence", "first_number", "number", "previous"), LONG),
    **dict.fromkeys(("offsets", "times"), ArrayType(LONG)),
)


def find_chains(messages: DataFrame) -> DataFrame:
    """Returns the chains among messages that have the number of their stream (`timeline.with_stream_number`).

    `first_number` to `number` are the numbers of a chain, `previous` is the previous number of its first message, and
    `offsets` and `times` list the stream offset and `captured_ns` of each message.
    """
    return on_spark.map_arrow(_with_numbers(messages), find_in_batches, _CHAIN)


def find_single_chains(messages: DataFrame) -> DataFrame:
    """Returns each message as a chain of its own, with the columns of `find_chains`."""
    return (
        _with_numbers(messages)
        .withColumn("first_number", F.col("number"))
        .withColumn("offsets", F.array("stream_offset"))
        .withColumn("times", F.array("captured_ns"))
        .select(_CHAIN.names)
    )


def _with_numbers(messages: DataFrame) -> DataFrame:
    return messages.select(
        *OF_STREAM,
        "stream_offset",
        "captured_ns",
        signed(F.col("tx_sequence_id")).alias("sequence"),
        F.col("tx_sequence_number").cast("long").alias("number"),
        F.col("previous_tx_sequence_number").cast("long").alias("previous"),
    )


def whole() -> Column:
    """Returns the `ends` for `cut` that leave a chain as it is."""
    return F.array("number")


def each_message() -> Column:
    """Returns the `ends` for `cut` that leave each message alone."""
    return F.when(F.size("offsets") > 1, F.sequence("first_number", "number")).otherwise(whole())


def cut(chains: DataFrame, ends: Column) -> DataFrame:
    """Cuts each chain after the numbers in the array `ends`, which rise and end with its own last number.

    Adds `nth`, the number of the chain's messages before each part. Rows without `offsets` stay as they are.
    """

    def part(end: Column, i: Column) -> Column:
        first = F.coalesce(F.get("ends", i - 1) + 1, F.col("first_number"))
        at, length = (first - F.col("first_number") + 1).cast("int"), (end - first + 1).cast("int")
        return F.struct(
            first.alias("first_number"),
            end.alias("number"),
            F.when(i == 0, F.col("previous")).otherwise(first - 1).alias("previous"),
            F.slice("offsets", at, length).alias("offsets"),
            F.slice("times", at, length).alias("times"),
            F.coalesce(at.cast("long") - 1, F.lit(0)).alias("nth"),
        )

    changed = ("first_number", "number", "previous", "offsets", "times")
    others = [name for name in chains.columns if name not in changed]
    return (
        chains.withColumn("ends", ends)
        .select(*others, F.explode(F.transform("ends", part)).alias("part"))
        .select(*others, "part.*")
    )


def bucket_of_number() -> Column:
    """Returns `number` without the low bits in which the numbers of one chain differ."""
    return F.shiftright("number", NUMBER_BITS)
