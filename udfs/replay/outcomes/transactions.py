"""Derives transactions from the messages between FM and LM ([MS-MQMQ] 2.2.20.5).

The *slot* of a message is (scope, sequence, number). Several messages may have one.
"""

import polars as pl

from schemas.replay import TRANSACTIONS
from udfs.frames.columns import (
    PLACE,
    SPAN,
    are_in,
    as_numbers,
    count,
    count_if,
    message_ordinal,
    row_key,
    signed,
    tx_sequence,
)
from udfs.frames.derivation import Frames, derives
from udfs.replay.content import MESSAGE
from udfs.replay.outcomes.plain import SLOT

TRANSACTION_ID = ("source_queue_manager", "tx_transaction_id")
_SLOT = (*SPAN, "number")
_MESSAGE = (*_SLOT, "source_queue_manager", "ordinal", "content_hash")
_OF_ID = (*SPAN, "tx_transaction_id")
_ORDER = ("sequence", "number", "scope_key", "content_hash")
_SIDES = ("before", "behind")
_NAMES = ("source_queue_manager", "scope_key", "stream_id")
_COPIED = (
    *("tx_transaction_id", "tx_first", "tx_last", "stream_offset", "captured_at", "replay_order", "accepted", "fate"),
    "content_hash",
)
OF_TRANSACTIONS = (
    *(*SLOT, *MESSAGE, *PLACE, "session_id", "destination_queue", "captured_at"),
    *("replay_order", "accepted", "tx_transaction_id", "tx_first", "tx_last"),
)
"""The columns of VERDICTS from which transactions are derived."""
_OF_FIRST = ("source_queue_manager", "session_id", "scope_key", "destination_queue", "tx_sequence_id")
_USE = (*TRANSACTION_ID, "instance")


@derives(TRANSACTION_ID)
def derive_transactions(verdicts: pl.DataFrame, earlier: pl.DataFrame) -> Frames:
    """Returns one row per use of a sender's transaction ID; resends do not count.

    The ID has 20 bits, so a sender uses each again. In the order of the numbers of a sequence, a transaction begins
    with a message that has FM, or right after one that has LM, so a message that arrives late stays in its place. No
    two of its messages share a number: where different messages do, as after a machine was cloned, those of each
    connection are taken apart. Where a transaction has messages in several scopes, or on several connections that are
    taken apart, the parts without FM or LM are in the order of their message IDs, and those that share an ID and a
    number in the order of their scopes' names. `verdicts` have their `fate`, which is null for a delivered message, and
    `earlier` are rows of USES. The frames are

    * `whole`: rows of TRANSACTIONS, whose witnesses are keys, of uses with FM and LM;
    * `broken`: such rows of the other uses, for `with_neighbours`;
    * `asked`: the slots right before a use without FM and right behind one without LM, and on which `side` that is.
    """
    messages = _first_arrivals(_read_messages(verdicts))
    uses = _behind_others(_summed_up(_with_instances(_with_parts(messages))), verdicts, earlier)
    described = _described(uses, verdicts)
    is_whole = pl.col("has_first") & pl.col("has_last")
    return {
        "whole": described.filter(is_whole).select(TRANSACTIONS.names),
        "broken": described.filter(~is_whole).select(TRANSACTIONS.names),
        "asked": _asked(uses, verdicts),
    }


@derives(("source_queue_manager",))
def with_neighbours(broken: pl.DataFrame, asked: pl.DataFrame, near: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TRANSACTIONS that lack FM or LM; with a message where that is missing, the sender tore them.

    `near` are the verdicts in the slots that are `asked` for. Of several messages there, that with the highest place
    counts.
    """
    first_arrivals = (
        near.drop_nulls("tx_transaction_id")
        .sort("replay_order")
        .unique([*SLOT, *MESSAGE, "tx_transaction_id"], keep="first", maintain_order=True)
        .select(*SLOT, *PLACE)
    )
    found = asked.join(first_arrivals, on=SLOT).sort(PLACE).group_by(*_USE, "side").agg(row_key().last().alias("key"))
    for side in _SIDES:
        on_side = found.filter(pl.col("side") == side).select(*_USE, pl.col("key").alias(side))
        broken = broken.join(on_side, on=_USE, how="left")
    is_torn = pl.any_horizontal(pl.col(_SIDES).is_not_null())
    return broken.with_columns(
        torn_by_sender=pl.when(is_torn).then(True),
        witness_keys=pl.concat_list("witness_keys", pl.concat_list(_SIDES).list.drop_nulls()),
    ).select(TRANSACTIONS.names)


def _read_messages(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages of transactions in few bytes each, with their `row` among the verdicts.

    `sequence` is `signed`, and `ordinal` the second part of the message ID. Names are numbers in their order.
    """
    return (
        verdicts.with_row_index("row")
        .select(
            "row",
            *as_numbers(verdicts, *_NAMES),
            *_COPIED,
            signed(pl.col("tx_sequence_id")).alias("sequence"),
            pl.col("tx_sequence_number").alias("number"),
            message_ordinal().alias("ordinal"),
        )
        .filter(pl.col("tx_transaction_id").is_not_null())
    )


def _first_arrivals(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the first arrival per message and transaction ID; `accepted` says whether any arrival was."""
    key = (*_MESSAGE, "tx_transaction_id")
    is_first = _begins(*key)
    return (
        messages.sort(*key, "replay_order")
        .with_columns(is_first=is_first, nth=is_first.cum_sum())
        .with_columns(pl.col("accepted").fill_null(value=False).any().over("nth"))
        .filter("is_first")
        .drop("is_first", "nth")
    )


def _with_parts(messages: pl.DataFrame) -> pl.DataFrame:
    """Adds what is known of the part of a transaction that a message belongs to.

    In the order of the numbers, a part begins with a message that has FM, or right after one that has LM or the same
    number. Where an ID has different messages with one number, a part is of one connection. `whole`: the part has FM
    and LM. `anchor`: the message ID that orders parts, of a whole one its first.
    """
    of_number = messages.select(*_OF_ID, "number")
    apart = are_in(messages, of_number.filter(of_number.is_duplicated()).select(_OF_ID))
    is_first, ordinal = _begins(*_OF_ID, "connection"), pl.col("ordinal")
    is_ended = ~is_first & pl.col("tx_last").shift(1).fill_null(value=False)
    opens = is_first | pl.col("tx_first").fill_null(value=False) | is_ended | ~_begins("number")
    whole = pl.col("tx_first").any().over("part") & pl.col("tx_last").any().over("part")
    return (
        messages.with_columns(connection=pl.when(apart).then("stream_id"))
        .sort(*_OF_ID, "connection", "number", "ordinal", "content_hash")
        .with_columns(part=opens.cum_sum())
        .with_columns(whole=whole)
        .with_columns(anchor=pl.when("whole").then(ordinal.min().over("part")).otherwise(ordinal))
        .with_columns(part=pl.when("whole").then("part"))
        .drop("connection")
    )


def _begins(*names: str) -> pl.Expr:
    """Returns which rows differ from the row before in one of these columns; the first row always does."""
    return pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)


def _with_instances(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `instance`, which use of its ID a message belongs to, and `use`, a number that no other use has."""
    is_first = _begins(*TRANSACTION_ID)
    ended = pl.when(~is_first).then(pl.col("tx_last").shift(1))
    is_other = pl.col("whole") != pl.col("whole").shift(1)
    starts = ended.is_not_null() & (pl.col("tx_first") | ended | is_other)
    return (
        rows.sort(*TRANSACTION_ID, "anchor", "whole", "part", *_ORDER)
        .with_columns(use=(is_first | starts.fill_null(value=False) | ~_begins(*_SLOT)).cum_sum().cast(pl.Int64))
        .with_columns(instance=pl.col("use") - pl.col("use").min().over(TRANSACTION_ID) + 1)
    )


def _summed_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per use, with the `row` of its first and `last` message."""
    fate = pl.col("fate").fill_null("delivered")
    counted = {"delivered": "delivered", "lost": "lost_messages", "pending": "pending"}
    counts = {column: count_if(fate == name) for name, column in counted.items()}
    return (
        rows.sort("use", "anchor", *_ORDER)
        .group_by("use", maintain_order=True)
        .agg(
            pl.col("tx_transaction_id", "instance", "row").first(),
            pl.col("row").last().alias("last"),
            pl.col("ordinal").first().alias("first_ordinal"),
            count().alias("messages"),
            count_if("accepted").alias("accepted_messages"),
            pl.col("tx_first").any().alias("has_first"),
            pl.col("tx_last").any().alias("has_last"),
            pl.col("captured_at").min().alias("first_captured_at"),
            pl.col("captured_at").max().alias("last_captured_at"),
            **counts,
        )
    )


def _behind_others(uses: pl.DataFrame, verdicts: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """Returns uses with their `instance` behind all `earlier` ones of their ID."""
    ids = verdicts.select(TRANSACTION_ID)[uses["row"]]
    last = earlier.group_by(TRANSACTION_ID).agg(pl.max("instance"))
    before = ids.join(last, on=TRANSACTION_ID, how="left", nulls_equal=True, maintain_order="left")["instance"]
    return uses.with_columns(pl.col("instance") + before.fill_null(0))


def _asked(uses: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the slots next to uses that lack FM or LM, on that `side`."""
    found = []
    for side, own, has, step in (("before", "row", "has_first", -1), ("behind", "last", "has_last", 1)):
        lacking = uses.filter(~pl.col(has))
        slots = verdicts.select(TRANSACTION_ID[0], *SLOT)[lacking[own]].with_columns(
            pl.col("tx_sequence_number") + step
        )
        of_use = lacking.select("tx_transaction_id", "instance", side=pl.lit(side))
        found.append(pl.concat([slots, of_use], how="horizontal"))
    return pl.concat(found)


def _described(uses: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TRANSACTIONS, as if nothing was next to them, with `has_first` and `has_last`."""
    shown = uses.select("row", pl.when(pl.col("last") != pl.col("row")).then("last"))
    key = pl.col("content_hash").cast(pl.String).alias("message_key")
    named = verdicts[uses["row"]].select(*_OF_FIRST, key)
    witness = [_keys_at(verdicts, rows) for rows in shown]
    not_delivered = pl.col("lost_messages") + pl.col("pending")
    first_message_id = pl.concat_str("source_queue_manager", "first_ordinal", separator="\\", ignore_nulls=True)
    is_whole = pl.col("has_first") & pl.col("has_last")
    return pl.concat([uses, named], how="horizontal").with_columns(
        torn=~is_whole,
        torn_by_sender=pl.when(is_whole).then(False),
        partly_delivered=(pl.col("delivered") > 0) & (not_delivered > 0),
        tx_sequence=tx_sequence(pl.col("tx_sequence_id")),
        first_message_id=first_message_id,
        witness_keys=pl.concat_list(witness).list.drop_nulls(),
    )


def _keys_at(verdicts: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """Returns the keys of the verdicts in these rows, with null for none."""
    places = pl.DataFrame([verdicts[name].gather(rows) for name in PLACE])
    return places.select(row_key().alias(rows.name)).to_series()
