"""Reads a message with damaged bytes as it is in an undamaged arrival, where it came more than once."""

import polars as pl

from udfs.frames.columns import PLACE
from udfs.frames.derivation import derives
from udfs.frames.engine import Engine, T
from udfs.replay.content import CONTENT
from udfs.replay.order.sources import Sources

_SLOT = ("source_queue_manager", "destination_queue", "tx_sequence_id", "tx_sequence_number")
_NAMES = ("message_id", "sent_at")
"""Columns that tell the messages of a slot apart, of which damage rarely hits both."""


def restored(engine: Engine[T], sources: Sources[T]) -> T:
    """Returns the messages, damaged ones with the CONTENT of the undamaged message that they are.

    Damaged bytes would make another message of a resend, and of its sender two machines.
    """
    messages = sources.messages
    captures = engine.collect(captures=engine.select(sources.captures, "damaged_count"))["captures"]
    if not captures["damaged_count"].sum():
        return messages
    slots = engine.distinct(engine.select(engine.where(messages, "damaged"), *_SLOT))
    mended = engine.keep(engine.derive(mend, messages=engine.join(messages, slots, _SLOT, "semi")))
    return engine.union(engine.join(messages, engine.select(mended, *PLACE), PLACE, "anti"), mended)


@derives(_SLOT)
def mend(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the damaged messages of which an undamaged one with their number is known, with its CONTENT.

    It is the only one that has the message ID or the SentTime that is in the damaged bytes.
    """
    is_damaged = pl.col("damaged").fill_null(value=False)
    damaged, whole = messages.filter(is_damaged), messages.filter(~is_damaged)
    others = whole.select(*_SLOT, *CONTENT).unique()
    same = pl.any_horizontal(pl.col(name) == pl.col(f"{name}_damaged") for name in _NAMES)
    found = (
        damaged.select(*PLACE, *_SLOT, *(pl.col(name).alias(f"{name}_damaged") for name in _NAMES))
        .join(others, on=_SLOT)
        .filter(same)
        .filter(pl.len().over(PLACE) == 1)
    )
    return damaged.drop(CONTENT).join(found.select(*PLACE, *CONTENT), on=PLACE).select(messages.columns)
