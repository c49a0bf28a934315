"""Finds the arrivals that a rule on messages may concern, with the neighbours that it compares them with.

Only arrivals that a rule may concern have a row: of plain ones in between, `replay_order` and the next arrival's state
say enough.
"""

import polars as pl

from schemas.replay import Reason
from udfs.frames.columns import (
    PLACE,
    SEQUENCE,
    are_in,
    nanoseconds,
    number_of,
    quotient,
    row_key,
    sent_order,
    signed,
)
from udfs.frames.derivation import derives
from udfs.replay.content import MESSAGE
from udfs.replay.findings.finding import Message
from udfs.replay.findings.on_messages import CHOSEN, choose_messages
from udfs.replay.order.scopes import SENDER_THERE
from udfs.replay.outcomes.missing_acks import LOOKED_AT
from udfs.replay.outcomes.plain import SLOT
from udfs.replay.words import NS

_CONTENT = (*SLOT, "content_hash")
_MESSAGE = (*SLOT, *MESSAGE)
_IN_SCOPE = ("scope_key", "replay_order")
_BELOW_ALL = -(1 << 63) - 1
_SHOWN = {
    "found_at": "captured_at",
    "number": "tx_sequence_number",
    "previous": "previous_tx_sequence_number",
    "state_id": "incoming_tx_sequence_id",
    "state_number": "incoming_tx_sequence_number",
}
"""The columns of VERDICTS that fields of Message are, where these have other names."""
_OF_MESSAGE = {name: _SHOWN.get(name, name) for name in Message._fields if name != "key"}
SHOWN = tuple(dict.fromkeys((*PLACE, *_IN_SCOPE, *_OF_MESSAGE.values())))
"""The columns of VERDICTS that findings show."""


@derives(("scope_key",), ("watched",), {"unusual": LOOKED_AT, "late": LOOKED_AT})
def choose_shown(
    unusual: pl.DataFrame,
    late: pl.DataFrame,
    sent_later: pl.DataFrame,
    fates: pl.DataFrame,
    resumed: pl.DataFrame,
    watched: pl.DataFrame,
) -> pl.DataFrame:
    """Returns the messages that findings on messages show: rows of CHOSEN.

    Rules look at all verdicts in `unusual` slots, and at those that are `late_arrivals` elsewhere. The others are
    plain, so each of them sets the state that the next one meets. `fates` says what became of messages, and all others
    were delivered. Verdicts are those of whole scopes, or all of them from where the scope is `resumed`. `sent_later`
    are the rows of `sent_after_all`.
    """
    candidates = pl.concat([unusual, late]).join(watched, on=SENDER_THERE, how="left")
    arrivals = _with_neighbours(candidates, resumed)
    rows = arrivals.join(fates.select(*_MESSAGE, "fate"), on=_MESSAGE, how="left", nulls_equal=True)
    return choose_messages(
        rows.with_columns(
            pl.col("fate").fill_null("delivered"),
            is_sent_after_all_accepted=are_in(rows, sent_later),
        )
    )


def _with_neighbours(candidates: pl.DataFrame, resumed: pl.DataFrame) -> pl.DataFrame:
    """Adds the columns that compare each candidate with those before it."""
    cause = number_of("final_ack_class", "destination_queue")
    rows = candidates.sort(_IN_SCOPE).with_columns(
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        pl.col("tx_sequence_number").alias("number"),
        pl.col("acknowledged_at").is_not_null().alias("acknowledged"),
        pl.when(pl.col("final_ack_class").is_not_null()).then(cause).alias("cause"),
    )
    return rows.pipe(_with_states, resumed).pipe(_with_first_of_slot).pipe(_with_previous).pipe(_with_first_gap)


def _with_states(rows: pl.DataFrame, resumed: pl.DataFrame) -> pl.DataFrame:
    """Adds what set the state of the scope, and whether more than the arrival had been accepted, as plain ones are."""
    rows = pl.concat([rows.with_columns(is_here=True), _last_settled(resumed)], how="diagonal").sort(_IN_SCOPE)
    order, accepted, behind_plain = pl.col("replay_order"), pl.col("accepted"), pl.col("behind_plain")
    met = _in_order(signed(pl.col("incoming_tx_sequence_id")), pl.col("incoming_tx_sequence_number"))
    moved = pl.when(accepted.fill_null(value=True))
    is_behind_plain = order - order.shift(1).over("scope_key").fill_null(0) > 1
    return (
        rows.with_columns(
            (pl.col("is_here") & is_behind_plain).alias("behind_plain"),
            _in_order(pl.col("sequence"), pl.col("number")).alias("own"),
        )
        .with_columns(
            pl.when(behind_plain).then(order - 1).alias("plain_setter"),
            pl.when(behind_plain).then(met).alias("plain_highest"),
        )
        .with_columns(
            _highest_before(pl.max_horizontal(moved.then(pl.coalesce("moved_order", order)), "plain_setter")).alias(
                "set_by"
            ),
            _highest_before(pl.max_horizontal(pl.when(accepted).then("own"), "plain_highest")).alias("highest"),
        )
        .with_columns(
            pl.max_horizontal("set_by", "plain_setter").alias("setter"),
            (pl.max_horizontal("highest", "plain_highest") > pl.col("own")).alias("is_below_accepted"),
        )
        .filter("is_here")
    )


def _last_settled(resumed: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for the last arrival of each scope before those that are judged again, as if it set the state."""
    return resumed.select(
        "scope_key",
        "moved_order",
        replay_order="last_order",
        sequence="state_sequence",
        number="state_number",
        accepted=pl.col("moved_order").is_not_null(),
        is_here=pl.lit(value=False),
    )


def _with_first_of_slot(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the first arrival that was accepted under the number of each."""
    accepted = pl.col("accepted")
    return rows.with_columns(
        pl.col("replay_order").filter(accepted).first().over(SLOT).alias("original"),
        pl.col("content_hash").filter(accepted).first().over(SLOT).alias("original_hash"),
    )


def _with_previous(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the last arrival of the same message, and the time since then."""
    before = pl.col("before")
    same_stream = pl.col("stream_id").gather(before) == pl.col("stream_id")
    acknowledged_ns = nanoseconds(pl.col("acknowledged_at")).gather(before)
    uncovered = (acknowledged_ns >= pl.col("captured_ns")).fill_null(value=True)
    between = pl.col("captured_ns") - pl.col("captured_ns").gather(before)
    return (
        rows.with_row_index("row")
        .with_columns(
            pl.col("row").shift(1).over(_CONTENT).alias("before"),
            pl.col("row").cum_count().over(_CONTENT).cast(pl.Int64).alias("arrivals"),
        )
        .with_columns(
            pl.col("replay_order").gather(before).alias("previous_arrival"),
            pl.when(same_stream & uncovered).then(quotient(between, NS)).alias("interval_s"),
        )
    )


def _with_first_gap(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the first message of the sequence that was accepted over skipped numbers."""
    gaps = {"gap_order": "replay_order", "gap_number": "number", "gap_size": "gap_size"}
    skipped = pl.col("gap_size") > 0
    return rows.with_columns(
        pl.col(column).filter(skipped).first().over(SEQUENCE).alias(name) for name, column in gaps.items()
    )


@derives(columns={"verdicts": ("scope_key", "reason")}, in_parts=True)
def scopes_below_state(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the scopes of messages that were refused because they are below the receiver's state."""
    return verdicts.filter(_is_below_state()).select("scope_key").unique()


@derives(columns={"verdicts": (*_IN_SCOPE, "accepted", "reason", "sent_at", "message_id")}, in_parts=True)
def times_of_sending(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the places of accepted messages and of those below the state, which `asks`: when they were `sent`.

    That is a number in the order in which the sender sent them.
    """
    is_below = _is_below_state()
    some = verdicts.filter(pl.col("accepted") | is_below)
    return some.select(*_IN_SCOPE, is_below.fill_null(value=False).alias("asks"), sent_order().alias("sent"))


@derives(("scope_key",))
def sent_after_all(sent: pl.DataFrame, resumed: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages below the receiver's state that were sent no earlier than all accepted before them.

    A row is a `scope_key` and `replay_order`. They may show a sender that was restored. `sent` are the rows of
    `times_of_sending`.
    """
    before = resumed.select("scope_key", replay_order="last_order", asks=pl.lit(value=False), sent="last_sent")
    return (
        pl.concat([sent, before])
        .sort(_IN_SCOPE)
        .with_columns(_highest_before(pl.when(~pl.col("asks")).then("sent")).alias("highest"))
        .filter(pl.col("asks") & (pl.col("sent") >= pl.col("highest")))
        .select(_IN_SCOPE)
    )


def _is_below_state() -> pl.Expr:
    return pl.col("reason").is_in([Reason.LATE.value, Reason.STALE_SEQUENCE.value])


@derives(in_parts=True)
def shown_messages(shown: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of CHOSEN with the columns of Message: `shown` are verdicts with those of `choose_shown`."""
    named = (pl.col(column).alias(name) for name, column in _OF_MESSAGE.items() if name not in CHOSEN)
    return shown.select(*CHOSEN, *named, row_key().alias("key"))


def _in_order(high: pl.Expr, low: pl.Expr) -> pl.Expr:
    """Returns one number per pair, in the order of pairs; in each place, null comes first. `low` is not negative."""
    return high.cast(pl.Int128).fill_null(_BELOW_ALL) * (1 << 63) + low.fill_null(-1)


def _highest_before(values: pl.Expr) -> pl.Expr:
    """Returns the highest value of the rows before each in its scope, in the order of the rows."""
    return values.cum_max().forward_fill().shift(1).over("scope_key")
