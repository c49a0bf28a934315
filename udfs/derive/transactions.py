"""Derives transactions from the messages between FM and LM ([MS-MQMQ] 2.2.20.5).

The *slot* of a message is (scope, sequence, number). Several messages may have one.
"""

import polars as pl

from schemas.replay import TRANSACTIONS
from udfs.derive.columns import PLACE, SEQUENCE, SPAN, as_numbers, count, count_if, row_key, signed, tx_sequence
from udfs.derive.frames import derives

_ID = ("source_queue_manager", "tx_transaction_id")
_SLOT = (*SPAN, "number")
_OF_ID = (*SPAN, "tx_transaction_id")
_ORDER = ("sequence", "number", "scope_key")
_NAMES = ("source_queue_manager", "scope_key", "stream_id")
_COPIED = ("tx_transaction_id", "tx_first", "tx_last", "stream_offset", "captured_at", "replay_order", "accepted")
_OF_VERDICT = (
    *(*SEQUENCE, "tx_sequence_number", "source_queue_manager", "message_id", "content_hash", *PLACE, "session_id"),
    *("destination_queue", "captured_at", "replay_order", "accepted", "tx_transaction_id", "tx_first", "tx_last"),
)
_OF_FIRST = ("source_queue_manager", "session_id", "scope_key", "destination_queue", "tx_sequence_id")


@derives(("source_queue_manager",), columns={"verdicts": _OF_VERDICT})
def derive_transactions(verdicts: pl.DataFrame, fates: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of TRANSACTIONS per use of a sender's transaction ID; resends do not count.

    The ID has 20 bits, so a sender uses each again. In the order of the numbers of a sequence, a transaction begins
    with a message that has FM, or right after one that has LM, so a message that arrives late stays in its place. Where
    a transaction has messages in several scopes, the parts without FM or LM are in the order of their message IDs, and
    those that share an ID and a number in the order of their scopes' names. `fates` are those of `message_fates`.
    `witness` lists keys.
    """
    messages = _first_arrivals(_read_messages(verdicts))
    uses = _summed_up(_with_instances(_with_fate(_with_parts(messages), verdicts, fates)))
    return _described(_with_neighbours(uses, messages), verdicts)


def _read_messages(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages of transactions in few bytes each, with their `row` among the verdicts.

    `sequence` is `signed`, and `ordinal` the second part of the message ID. Names are numbers in their order.
    """
    ordinal = pl.col("message_id").str.extract(r"([^\\]*)$").cast(pl.Int64, strict=False)
    return (
        verdicts.with_row_index("row")
        .select(
            "row",
            *as_numbers(verdicts, *_NAMES),
            *_COPIED,
            signed(pl.col("tx_sequence_id")).alias("sequence"),
            pl.col("tx_sequence_number").alias("number"),
            ordinal.alias("ordinal"),
        )
        .filter(pl.col("tx_transaction_id").is_not_null())
    )


def _first_arrivals(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the first arrival per slot and transaction ID; `accepted` says whether any arrival was."""
    key = (*_SLOT, "tx_transaction_id")
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

    In the order of the numbers, a part begins with a message that has FM, or right after one that has LM. `whole`: the
    part has FM and LM. `anchor`: the message ID that orders parts, of a whole one its first.
    """
    is_first, ordinal = _begins(*_OF_ID), pl.col("ordinal")
    is_ended = ~is_first & pl.col("tx_last").shift(1).fill_null(value=False)
    opens = is_first | pl.col("tx_first").fill_null(value=False) | is_ended
    whole = pl.col("tx_first").any().over("part") & pl.col("tx_last").any().over("part")
    return (
        messages.sort(*_OF_ID, "number")
        .with_columns(part=opens.cum_sum())
        .with_columns(whole=whole)
        .with_columns(anchor=pl.when("whole").then(ordinal.min().over("part")).otherwise(ordinal))
        .drop("part")
    )


def _begins(*names: str) -> pl.Expr:
    """Returns which rows differ from the row before in one of these columns; the first row always does."""
    return pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)


def _with_fate(messages: pl.DataFrame, verdicts: pl.DataFrame, fates: pl.DataFrame) -> pl.DataFrame:
    """Adds `fate`. Messages are found by numbers, and the few that share those are told apart by their message IDs."""
    others = fates.filter(pl.col("fate") != "delivered").select(
        pl.col("scope_key").cast(messages.schema["scope_key"], strict=False),
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        pl.col("tx_sequence_number").alias("number"),
        *("content_hash", "message_id", "fate"),
    )
    near = messages.select(*_SLOT, "row").join(others, on=_SLOT, how="semi")
    named = pl.concat([near, verdicts.select("message_id", "content_hash")[near["row"]]], how="horizontal")
    found = named.join(others, on=(*_SLOT, "message_id", "content_hash")).select("row", "fate")
    return messages.join(found, on="row", how="left").with_columns(pl.col("fate").fill_null("delivered"))


def _with_instances(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `instance`, which use of its ID a message belongs to, and `use`, a number that no other use has."""
    is_first = _begins(*_ID)
    ended = pl.when(~is_first).then(pl.col("tx_last").shift(1))
    is_other = pl.col("whole") != pl.col("whole").shift(1)
    starts = ended.is_not_null() & (pl.col("tx_first") | ended | is_other)
    return (
        rows.sort(*_ID, "anchor", "whole", *_ORDER)
        .with_columns(use=(is_first | starts.fill_null(value=False)).cum_sum().cast(pl.Int64))
        .with_columns(instance=pl.col("use") - pl.col("use").min().over(_ID) + 1)
    )


def _summed_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per use, with the `row` of its first and `last` message."""
    counts = {fate: count_if(pl.col("fate") == fate) for fate in ("delivered", "lost", "pending")}
    return (
        rows.sort("use", "anchor", *_ORDER)
        .group_by("use", maintain_order=True)
        .agg(
            pl.col("tx_transaction_id", "instance", "row").first(),
            pl.col("row").last().alias("last"),
            pl.col("ordinal").first().alias("first_ordinal"),
            count().alias("messages"),
            count_if("accepted"),
            pl.col("tx_first").any().alias("has_first"),
            pl.col("tx_last").any().alias("has_last"),
            pl.col("captured_at").min().alias("first_captured_at"),
            pl.col("captured_at").max().alias("last_captured_at"),
            **counts,
        )
    )


def _with_neighbours(uses: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Adds the `row` of a message right `before` a use without FM, and right `behind` one without LM; null for none.

    Of several in that slot, it is the one with the highest place.
    """
    for name, own, has, step in (("before", "row", "has_first", -1), ("behind", "last", "has_last", 1)):
        asked = uses.filter(~pl.col(has)).select("use", row=own).join(messages.select("row", *_SLOT), on="row")
        slots = asked.select("use", *SPAN, number=pl.col("number") + step)
        found = messages.join(slots, on=_SLOT).sort(PLACE).group_by("use").agg(pl.last("row").alias(name))
        uses = uses.join(found, on="use", how="left")
    return uses


def _described(uses: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TRANSACTIONS."""
    is_torn = pl.any_horizontal(pl.col("before", "behind").is_not_null())
    shown = uses.select("row", pl.when(pl.col("last") != pl.col("row")).then("last"), "before", "behind")
    named = verdicts.select(_OF_FIRST)[uses["row"]]
    witness = [_keys_at(verdicts, rows) for rows in shown]
    not_delivered = pl.col("lost") + pl.col("pending")
    first_message_id = pl.concat_str("source_queue_manager", "first_ordinal", separator="\\", ignore_nulls=True)
    return (
        pl.concat([uses, named], how="horizontal")
        .with_columns(
            torn=~(pl.col("has_first") & pl.col("has_last")),
            torn_by_sender=pl.when(is_torn).then(True).when("has_first", "has_last").then(False),
            partly_delivered=(pl.col("delivered") > 0) & (not_delivered > 0),
            tx_sequence=tx_sequence(pl.col("tx_sequence_id")),
            first_message_id=first_message_id,
            witness=pl.concat_list(witness).list.drop_nulls(),
        )
        .select(TRANSACTIONS.names)
    )


def _keys_at(verdicts: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """Returns the keys of the verdicts in these rows, with null for none."""
    places = pl.DataFrame([verdicts[name].gather(rows) for name in PLACE])
    return places.select(row_key().alias(rows.name)).to_series()
