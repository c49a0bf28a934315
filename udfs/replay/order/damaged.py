"""Reads a message with damaged bytes as it is in an undamaged arrival, where it came more than once."""

import polars as pl

from udfs.frames.columns import PLACE, address_of_stream
from udfs.frames.derivation import derives
from udfs.frames.engine import Engine, T
from udfs.replay.content import CONTENT
from udfs.replay.order.sources import Sources

_SLOT = ("source_queue_manager", "tx_sequence_id", "tx_sequence_number")
_MENDED = (*CONTENT, "destination_queue")
_NAMES = ("message_id", "sent_at")
"""Columns that tell the messages of a slot apart, of which damage rarely hits both."""


def restored(engine: Engine[T], sources: Sources[T]) -> T:
    """Returns the messages, damaged ones with the CONTENT and the queue of the undamaged message that they are.

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
    """Returns the damaged messages of which an undamaged one with their number is known, with its _MENDED columns.

    It is the only one from the same machine that has the message ID or the SentTime that is in the damaged bytes; both,
    if these name another queue. Another machine may send a different message of this number.
    """
    rows = messages.with_columns(machine=address_of_stream())
    is_damaged = pl.col("damaged").fill_null(value=False)
    damaged, whole = rows.filter(is_damaged), rows.filter(~is_damaged)
    others = whole.select(*_SLOT, "machine", *_MENDED).unique()
    read = (*_NAMES, "destination_queue")
    *same_names, same_queue = (pl.col(name) == pl.col(f"{name}_damaged") for name in read)
    found = (
        damaged.select(*PLACE, *_SLOT, "machine", *(pl.col(name).alias(f"{name}_damaged") for name in read))
        .join(others, on=(*_SLOT, "machine"))
        .filter(pl.all_horizontal(same_names) | (pl.any_horizontal(same_names) & same_queue))
        .filter(pl.len().over(PLACE) == 1)
    )
    return damaged.drop(_MENDED).join(found.select(*PLACE, *_MENDED), on=PLACE).select(messages.columns)
