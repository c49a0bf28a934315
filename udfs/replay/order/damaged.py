"""Reads a message of which the capture is damaged as an undamaged copy of it says, where it came again."""

import polars as pl

from udfs.frames.columns import PLACE
from udfs.frames.derivation import derives
from udfs.frames.engine import Engine, T
from udfs.replay.content import CONTENT
from udfs.replay.order.sources import Sources

SLOT_OF = ("source_queue_manager", "destination_queue", "tx_sequence_id", "tx_sequence_number")
_NAMES = ("message_id", "sent_at")


def restored(engine: Engine[T], sources: Sources[T]) -> T:
    """Returns the messages, damaged ones with the CONTENT of the undamaged message that they are.

    Damaged bytes would make another message of a resend, and of its sender two machines.
    """
    messages = sources.messages
    captures = engine.collect(captures=engine.select(sources.captures, "damaged_count"))["captures"]
    if not captures["damaged_count"].sum():
        return messages
    slots = engine.distinct(engine.select(engine.where(messages, "damaged"), *SLOT_OF))
    mended = engine.keep(engine.derive(mend, messages=engine.join(messages, slots, SLOT_OF, "semi")))
    return engine.union(engine.join(messages, engine.select(mended, *PLACE), PLACE, "anti"), mended)


@derives(SLOT_OF)
def mend(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the damaged messages of which an undamaged one with their number is known, with its CONTENT.

    It is the only one that has the message ID or the SentTime that is in the damaged bytes.
    """
    is_damaged = pl.col("damaged").fill_null(value=False)
    damaged, whole = messages.filter(is_damaged), messages.filter(~is_damaged)
    others = whole.select(*SLOT_OF, *CONTENT).unique()
    same = pl.any_horizontal(pl.col(name) == pl.col(f"{name}_there") for name in _NAMES)
    found = (
        damaged.select(*PLACE, *SLOT_OF, *(pl.col(name).alias(f"{name}_there") for name in _NAMES))
        .join(others, on=SLOT_OF)
        .filter(same)
        .filter(pl.len().over(PLACE) == 1)
    )
    return damaged.drop(CONTENT).join(found.select(*PLACE, *CONTENT), on=PLACE).select(messages.columns)
