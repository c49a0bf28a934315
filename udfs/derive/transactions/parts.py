"""Divides the messages of a transaction ID into parts, by number within a sequence, and says what lies around them.

The *slot* of a message is (scope, sequence, number). Several messages may have one.
"""

import polars as pl

from udfs.derive.columns import SPAN
from udfs.derive.transactions.messages import NUMBER

_OF_ID = (*SPAN, "tx_transaction_id")


def with_neighbours_of(chosen: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the `messages` in the slots of the `chosen` ones, and in the next ones below and above that are taken.

    Of the others only the numbers are looked at.
    """
    of_sequences = messages.select(NUMBER).join(chosen.select(SPAN).unique(), on=SPAN, how="semi")
    marks = chosen.select(NUMBER).unique().with_columns(is_chosen=True)
    taken = of_sequences.sort(NUMBER).filter(begins(*NUMBER))
    marked = taken.join(marks, on=NUMBER, how="left", maintain_order="left")
    is_near = pl.any_horizontal(pl.col("is_chosen").shift(by) for by in (-1, 0, 1))
    return messages.join(marked.filter(is_near), on=NUMBER, how="semi")


def first_arrivals(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the first arrival per slot and transaction ID; `accepted` says whether any arrival was."""
    key = (*NUMBER, "tx_transaction_id")
    accepted = messages.filter("accepted").select(key).unique().with_columns(accepted=True)
    return (
        messages.drop("accepted")
        .sort("replay_order")
        .unique(key, keep="first", maintain_order=True)
        .join(accepted, on=key, how="left")
        .with_columns(pl.col("accepted").fill_null(value=False))
    )


def with_neighbours(messages: pl.DataFrame, among: pl.DataFrame) -> pl.DataFrame:
    """Adds the `row` of the messages in the slots right `before` and `behind`, and in the next one that is taken below.

    They are `among` these messages. Of several in one slot, it is the one with the highest place.
    """
    slots = (
        among.select(*NUMBER, "stream_id", "stream_offset", "row")
        .sort(*NUMBER, "stream_id", "stream_offset")
        .unique(NUMBER, keep="last", maintain_order=True)
    )
    is_first, number, row = begins(*SPAN), pl.col("number"), pl.col("row")
    is_last = is_first.shift(-1, fill_value=True)
    neighbours = slots.select(
        *NUMBER,
        number_below=pl.when(~is_first).then(number.shift(1)),
        below=pl.when(~is_first).then(row.shift(1)),
        before=pl.when(~is_first & (number.shift(1) == number - 1)).then(row.shift(1)),
        behind=pl.when(~is_last & (number.shift(-1) == number + 1)).then(row.shift(-1)),
    )
    return messages.join(neighbours, on=NUMBER)


def with_parts(messages: pl.DataFrame) -> pl.DataFrame:
    """Adds what is known of the part of a transaction that a message belongs to; messages have their neighbours.

    In the order of the numbers, a part begins with a message that has FM, or right after one that has LM. `between`:
    the `row` of a message with a number between this one's and that of the part's last one before it. `whole`: the part
    has FM and LM. `anchor`: the message ID that orders parts, of a whole one its first.
    """
    is_first, number, ordinal = begins(*_OF_ID), pl.col("number"), pl.col("ordinal")
    is_ended = ~is_first & pl.col("tx_last").shift(1).fill_null(value=False)
    opens = is_first | pl.col("tx_first").fill_null(value=False) | is_ended
    whole = pl.col("tx_first").any().over("part") & pl.col("tx_last").any().over("part")
    return (
        messages.sort(*_OF_ID, "number")
        .with_columns(
            part=opens.cum_sum(),
            between=pl.when(~opens & (pl.col("number_below") > number.shift(1))).then("below"),
        )
        .with_columns(whole=whole)
        .with_columns(anchor=pl.when("whole").then(ordinal.min().over("part")).otherwise(ordinal))
        .drop("part", "below", "number_below")
    )


def begins(*names: str) -> pl.Expr:
    """Returns which rows differ from the row before in one of these columns; the first row always does."""
    return pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)
