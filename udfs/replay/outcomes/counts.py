"""Counts every outcome per sequence and session, and tells what became of each message."""

from collections.abc import Collection

import polars as pl

from schemas.outcomes import DELIVERED, LOSS_UNKNOWN, LOST, NOT_READ_SINCE, READABLE, DeliveredBy, Outcome, count_column
from udfs.frames.columns import ACK_PAIR, SPAN, are_in, count_if, unsigned
from udfs.frames.derivation import derives
from udfs.replay.content import MESSAGE
from udfs.replay.outcomes.plain import SLOT, with_receiver

COUNTED = (*(count_column(outcome) for outcome in Outcome), "confirmed", "stuck_messages", "delivered_arrivals")
NEXT_RESEND = "next_resend_at"
NOT_READ, SINCE = "accepted_not_read_messages", NOT_READ_SINCE.name
SUMMED = (*COUNTED, NOT_READ, SINCE, NEXT_RESEND)
"""The columns of `sum_outcomes` that the next replay starts from."""
COUNT_KEY = ("scope_key", "tx_sequence_id", "session_id")
OF_ASKED = (*SLOT, "session_id", "captured_at", "final_ack_class", "final_ack_requested")


def plain_arrivals(tallies: pl.DataFrame, arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns per SPAN and `session_id` how many arrivals are `plain`: each is a delivered message of its own.

    `confirmed` counts those of them that were acknowledged.
    """
    key = (*SPAN, "session_id")
    is_confirmed = (pl.col("accepted") & pl.col("acknowledged_us").is_not_null()).fill_null(value=False)
    counts = (
        tallies.select(*key, plain="messages", confirmed="acknowledged"),
        arrivals.select(*key, plain=pl.lit(-1, pl.Int64), confirmed=-is_confirmed.cast(pl.Int64)),
    )
    return pl.concat(counts).group_by(key).agg(pl.col("plain", "confirmed").sum())


@derives(in_parts=True)
def count_not_read(asked: pl.DataFrame) -> pl.DataFrame:
    """Returns of some plain arrivals whose sender asked for a FinalAck, per COUNT_KEY, how many have none.

    Beside NOT_READ, their number, is SINCE, the time of the first.
    """
    is_waiting = pl.col("final_ack_class").is_null()
    return asked.group_by(COUNT_KEY).agg(
        is_waiting.sum().cast(pl.Int64).alias(NOT_READ), pl.col("captured_at").filter(is_waiting).min().alias(SINCE)
    )


def count_outcomes(plain: pl.DataFrame, outcomes: pl.DataFrame, not_read: pl.DataFrame) -> pl.DataFrame:
    """Returns per `scope_key`, `tx_sequence_id` and `session_id` the counts of outcomes, as `sum_outcomes` does.

    `outcomes` are rows of OUTCOMES, those of delivered messages in unusual slots among them; `plain` are the other
    messages, and `not_read` the rows of `count_not_read` of these. `delivered_arrivals` counts the arrivals of
    delivered messages, `confirmed` the messages that were delivered by an acknowledgment, too.
    """
    outcome = pl.col("outcome")
    delivered = Outcome.DELIVERED.value
    asked = pl.col("final_ack_requested").fill_null(value=False)
    is_waiting = asked & has_outcome(READABLE) & pl.col("final_ack_class").is_null()
    rows = outcomes.group_by(COUNT_KEY).agg(
        *(pl.col("numbers").filter(outcome == one.value).sum().alias(count_column(one)) for one in Outcome),
        pl.col("numbers").filter(has_outcome(DELIVERED), _is_confirmed()).sum().alias("confirmed"),
        count_if("stuck").alias("stuck_messages"),
        pl.col("arrivals").filter(outcome == delivered).sum().alias("delivered_arrivals"),
        pl.min(NEXT_RESEND),
        pl.when(asked.any()).then(is_waiting.sum().cast(pl.Int64)).alias(NOT_READ),
        pl.coalesce("accepted_at", "first_seen_at").filter(is_waiting).min().alias(SINCE),
    )
    counted = plain.select(
        "scope_key",
        unsigned(pl.col("sequence")).alias("tx_sequence_id"),
        "session_id",
        "confirmed",
        *(pl.col("plain").alias(name) for name in (delivered, "delivered_arrivals")),
    )
    return sum_outcomes(pl.concat([rows, counted, not_read], how="diagonal"), *COUNT_KEY)


def sum_outcomes(counts: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Returns the counts of `count_outcomes` by a key of fewer columns, with `lost_messages`, their sum over LOST.

    Beside them are the first of their NEXT_RESEND and of their SINCE; NOT_READ is null where it is in all of them.
    """
    lost = pl.sum_horizontal(count_column(outcome) for outcome in LOST)
    sums = pl.col(COUNTED).sum(), sum_if_any(NOT_READ), pl.min(NEXT_RESEND, SINCE)
    return counts.group_by(key).agg(sums).with_columns(lost_messages=lost)


def sum_if_any(name: str) -> pl.Expr:
    """Returns the sum of a column; null where all its values are."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())


def where_reported(counts: pl.DataFrame, tallies: pl.DataFrame, answered: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of `sum_outcomes` by COUNT_KEY; NOT_READ and SINCE are null where the captures hold no answers.

    `answered` are the pairs (ACK_PAIR) of which they hold an acknowledgment: elsewhere FinalAcks may take another path.
    """
    pairs = with_receiver(tallies.select(*COUNT_KEY, "source_queue_manager").unique())
    reported = are_in(counts, pairs.join(answered, on=ACK_PAIR, how="semi").select(COUNT_KEY))
    return counts.with_columns(pl.when(reported).then(name).alias(name) for name in (NOT_READ, SINCE))


def count_slots(plain: pl.DataFrame, unusual: pl.DataFrame, states: pl.DataFrame, due: pl.DataFrame) -> pl.DataFrame:
    """Returns of each scope's last sequence the columns of SEQUENCES `first_number_due`, `numbers_due`, `numbers_seen`.

    Each number from the first one due up to the state has a message or an outcome of its own. `unusual` has each
    unusual slot once, `plain` counts the others, of which each has one arrival.
    """
    first, last = pl.col("due"), pl.col("state_number")
    of_state = states.select("scope_key", pl.col("state_sequence").alias("sequence"), "state_number").join(due, on=SPAN)
    seen = (
        plain.select(*SPAN, seen="plain"),
        unusual.join(of_state, on=SPAN)
        .filter(pl.col("number").is_between(first, last))
        .select(*SPAN, seen=pl.lit(1, pl.Int64)),
    )
    counted = pl.concat(seen).group_by(SPAN).agg(numbers_seen=pl.col("seen").sum())
    return of_state.join(counted, on=SPAN, how="left").select(
        "scope_key",
        unsigned(pl.col("sequence")).alias("tx_sequence_id"),
        first.alias("first_number_due"),
        pl.max_horizontal(last - first + 1, 0).alias("numbers_due"),
        pl.col("numbers_seen").fill_null(0),
    )


def message_fates(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns SLOT, MESSAGE and `fate` of each message in OUTCOMES that is lost, pending or unknown.

    All others were delivered.
    """
    fate = (
        pl.when(has_outcome(LOST))
        .then(pl.lit("lost"))
        .when(has_outcome(LOSS_UNKNOWN))
        .then(pl.lit("unknown"))
        .when(has_outcome([Outcome.PENDING]))
        .then(pl.lit("pending"))
    )
    arrived = outcomes.filter(pl.col("arrivals") > 0)
    return arrived.select(*SLOT, *MESSAGE, fate=fate).drop_nulls("fate")


def _is_confirmed() -> pl.Expr:
    """Returns whether an acknowledgment says that a message was delivered."""
    by_acknowledgment = pl.col("delivered_by") != DeliveredBy.ACCEPTED.value
    return pl.col("acknowledged_at").is_not_null() | by_acknowledgment.fill_null(value=False)


def has_outcome(outcomes: Collection[Outcome]) -> pl.Expr:
    """Returns whether `outcome` is one of these."""
    return pl.col("outcome").is_in([outcome.value for outcome in outcomes])
