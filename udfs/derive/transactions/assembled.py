"""Derives the table `transactions`; assembles those whose messages are not all plain, or lie in several places."""

import polars as pl

from schemas.replay import TRANSACTIONS
from udfs.derive.columns import PLACE, count, count_if, row_key, signed, tx_sequence
from udfs.derive.transactions.messages import ID, NUMBER, read_messages
from udfs.derive.transactions.parts import begins, first_arrivals, with_neighbours, with_neighbours_of, with_parts
from udfs.derive.transactions.whole import find_uses, first_message_id, whole_transactions

_ORDER = ("sequence", "number", "scope_key")
_OF_FIRST = ("source_queue_manager", "session_id", "scope_key", "destination_queue", "tx_sequence_id")


def derive_transactions(verdicts: pl.DataFrame, unusual: pl.DataFrame, fates: pl.DataFrame) -> pl.DataFrame:
    """Returns one row of TRANSACTIONS per use of a transaction ID; all rows of a sender have to be there.

    `unusual` are the slots of `unusual_arrivals`, `fates` those of `message_fates`. `witness` lists keys.
    """
    messages = read_messages(verdicts)
    uses = find_uses(messages, unusual)
    others = uses.filter(~pl.col("all_whole")).select(ID).unique()
    return pl.concat([whole_transactions(uses), assemble_transactions(verdicts, messages, fates, others)])


def assemble_transactions(
    verdicts: pl.DataFrame, messages: pl.DataFrame, fates: pl.DataFrame, chosen: pl.DataFrame
) -> pl.DataFrame:
    """Returns one row of TRANSACTIONS per use of a sender's transaction ID, of the `chosen` IDs; resends do not count.

    The ID has 20 bits, so a sender uses each again. In the order of the numbers of a sequence, a transaction begins
    with a message that has FM, or right after one that has LM, so a message that arrives late stays in its place. Where
    a transaction has messages in several scopes, the parts without FM or LM are in the order of their message IDs, and
    those that share an ID and a number in the order of their scopes' names. `messages` are those of `read_messages`,
    `fates` those of `message_fates`.
    """
    nearby = first_arrivals(with_neighbours_of(messages.join(chosen, on=ID, how="semi"), messages))
    of_chosen = with_parts(with_neighbours(nearby.join(chosen, on=ID, how="semi"), nearby))
    return _described(_summed_up(_with_instances(_with_fate(of_chosen, verdicts, fates))), verdicts)


def _with_fate(messages: pl.DataFrame, verdicts: pl.DataFrame, fates: pl.DataFrame) -> pl.DataFrame:
    """Adds `fate`. Messages are found by numbers, and the few that share those are told apart by their message IDs."""
    key = (*NUMBER, "content_hash")
    others = fates.filter(pl.col("fate") != "delivered").select(
        pl.col("scope_key").cast(messages.schema["scope_key"], strict=False),
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        pl.col("tx_sequence_number").alias("number"),
        *("content_hash", "message_id", "fate"),
    )
    named = pl.concat(
        [messages.select(NUMBER), _at(verdicts, messages["row"], "message_id", "content_hash")], how="horizontal"
    )
    found = named.join(others, on=key).filter(pl.col("message_id") == pl.col("message_id_right"))
    return messages.join(found.select("row", "fate"), on="row", how="left").with_columns(
        pl.col("fate").fill_null("delivered")
    )


def _with_instances(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `instance`, which use of its ID a message belongs to, and `use`, a number that no other use has."""
    is_first = begins(*ID)
    ended = pl.when(~is_first).then(pl.col("tx_last").shift(1))
    is_other = pl.col("whole") != pl.col("whole").shift(1)
    starts = ended.is_not_null() & (pl.col("tx_first") | ended | is_other)
    return (
        rows.sort(*ID, "anchor", "whole", *_ORDER)
        .with_columns(use=(is_first | starts.fill_null(value=False)).cum_sum().cast(pl.Int64))
        .with_columns(instance=pl.col("use") - pl.col("use").min().over(ID) + 1)
    )


def _summed_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per use, with the `row` of its first and `last` message, and of those around and between."""
    counts = {fate: count_if(pl.col("fate") == fate) for fate in ("delivered", "lost", "pending")}
    return (
        rows.sort("use", "anchor", *_ORDER)
        .group_by("use", maintain_order=True)
        .agg(
            pl.col("tx_transaction_id", "instance", "row", "before").first(),
            pl.col("behind").last(),
            pl.col("between").drop_nulls().last(),
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


def _described(uses: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TRANSACTIONS."""
    no_first = ~pl.col("has_first") & pl.col("before").is_not_null()
    no_last = ~pl.col("has_last") & pl.col("behind").is_not_null()
    shown = uses.select(
        "row",
        pl.when(pl.col("last") != pl.col("row")).then("last"),
        pl.when(no_first).then("before"),
        pl.when(no_last).then("behind"),
        "between",
    )
    named = _at(verdicts, uses["row"], *_OF_FIRST).drop("row")
    witness = [_keys_at(verdicts, rows) for rows in shown]
    not_delivered = pl.col("lost") + pl.col("pending")
    return (
        pl.concat([uses, named], how="horizontal")
        .with_columns(
            torn=~(pl.col("has_first") & pl.col("has_last")),
            torn_by_sender=pl.when(no_first | no_last).then(True).when("has_first", "has_last").then(False),
            interleaved=pl.col("between").is_not_null(),
            partly_delivered=(pl.col("delivered") > 0) & (not_delivered > 0),
            tx_sequence=tx_sequence(pl.col("tx_sequence_id")),
            first_message_id=first_message_id(),
            witness=pl.concat_list(witness).list.drop_nulls(),
        )
        .select(TRANSACTIONS.names)
    )


def _at(verdicts: pl.DataFrame, rows: pl.Series, *names: str) -> pl.DataFrame:
    """Returns columns of the verdicts in these rows, and `row`."""
    return verdicts.select(names)[rows].with_columns(row=rows)


def _keys_at(verdicts: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """Returns the keys of the verdicts in these rows, with null for none."""
    places = pl.DataFrame([verdicts[name].gather(rows) for name in PLACE])
    return places.select(row_key().alias(rows.name)).to_series()
