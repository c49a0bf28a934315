"""Decides what tells messages apart: two arrivals with equal MESSAGE are one message that was sent again.

A message whose number was accepted before is rejected as a duplicate, whatever its content. Where the contents differ,
findings and outcomes say that it was another message.
"""

import numpy as np
import polars as pl
from pandas.util import hash_array

CONTENT = (
    "message_id",
    "sent_at",
    "tx_transaction_id",
    "tx_first",
    "tx_last",
    "message_class",
    "label",
    "body_size",
    "body_type",
    "body_crc32",
    "application_tag",
    "extension_size",
    "correlation_id",
)
"""Columns that a resend repeats ([MS-MQQB] 3.1.7.1.3); its previous number and hop count may change."""
MESSAGE = ("source_queue_manager", "message_id", "content_hash")
"""The columns that tell apart messages with one sequence number: `content_hash` is a hash of their CONTENT."""
_HASHED_AT_ONCE = 1 << 14
"""Messages whose content is held as text."""


def differs_from(accepted_hash: str) -> pl.Expr:
    """Returns whether the content differs from the accepted one, whose hash a column has; null is none accepted."""
    return (pl.col(accepted_hash) != pl.col("content_hash")).fill_null(value=False)


def content_hashes(messages: pl.DataFrame) -> pl.Series:
    """Returns a hash of the CONTENT of each message, which is the same for all releases of Polars and in all tasks."""
    hashes = [
        hash_array(some.select(pl.struct(CONTENT).struct.json_encode()).to_series().to_numpy(), categorize=False)
        for some in messages.iter_slices(_HASHED_AT_ONCE)
    ]
    return pl.Series(np.concatenate([np.empty(0, np.uint64), *hashes]).view(np.int64))
