"""Derives the table `transactions`."""

import polars as pl

from udfs.derive.transactions.assembled import assemble_transactions
from udfs.derive.transactions.messages import ID, read_messages
from udfs.derive.transactions.whole import find_uses, whole_transactions


def derive_transactions(verdicts: pl.DataFrame, unusual: pl.DataFrame, fates: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of TRANSACTIONS per use of a transaction ID; all rows of a sender have to be there.

    `unusual` are the slots of `unusual_arrivals`, `fates` those of `message_fates`. `witness` lists keys.
    """
    messages = read_messages(verdicts)
    uses = find_uses(messages, unusual)
    others = uses.filter(~pl.col("all_whole")).select(ID).unique()
    return pl.concat([whole_transactions(uses), assemble_transactions(verdicts, messages, fates, others)])
