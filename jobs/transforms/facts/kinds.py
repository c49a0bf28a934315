"""Puts together the facts of all kinds of findings that no single arrival shows."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.facts.acks import repeated_order_acks, returned_messages
from jobs.transforms.facts.senders import expired_on_arrival, ordinal_regressed, two_addresses
from jobs.transforms.facts.transactions import broken_transactions
from udfs.replay.findings.receivers import RepeatedOrderAck, Returned
from udfs.replay.findings.senders import ExpiredOnArrival, OrdinalRegressed, TwoAddresses
from udfs.replay.findings.transactions import InterleavedTransactions, PartlyDelivered, TornTransactions

Facts = Mapping[type[Any], DataFrame]
"""Facts by their kind, a named tuple whose fields are columns of the rows."""


class Suspects(NamedTuple):
    """Holds the few messages that some rules concern, best checkpointed: without any, the rules read no others."""

    late: DataFrame
    """`outlived_messages`."""
    fallen: DataFrame
    """`fallen_ordinals`."""
    negative: DataFrame
    """`negative_acks`."""


def facts_of_messages(
    messages: DataFrame,
    ends: DataFrame,
    acks: DataFrame,
    verdicts: DataFrame,
    sequences: DataFrame,
    transactions: DataFrame,
    suspects: Suspects,
) -> Facts:
    """Returns the facts about senders, acknowledgments and transactions.

    `acks` are those of `acknowledgments.pair_acks`; the others are tables.
    """
    return {
        ExpiredOnArrival: expired_on_arrival(suspects.late, ends, verdicts),
        OrdinalRegressed: ordinal_regressed(messages, suspects.fallen, ends, sequences),
        TwoAddresses: two_addresses(ends.where("copy_of is null"), verdicts),
        RepeatedOrderAck: repeated_order_acks(acks, verdicts, sequences),
        Returned: returned_messages(messages, suspects.negative, ends),
        TornTransactions: broken_transactions(transactions, "torn_by_sender"),
        InterleavedTransactions: broken_transactions(transactions, "interleaved"),
        PartlyDelivered: broken_transactions(transactions, "partly_delivered", F.col("lost") > 0),
    }


def collect_facts(facts: Facts) -> DataFrame:
    """Returns one row per fact, which is a struct in a column with the name of its kind."""
    rows = (of_kind.select(F.struct(*kind._fields).alias(kind.__name__)) for kind, of_kind in facts.items())
    return reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), rows)
