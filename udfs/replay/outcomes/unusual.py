"""Finds the arrivals that need a closer look, which `udfs.replay` explains; what that costs follows disorder."""

import polars as pl

from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.frames.columns import PLACE, SEQUENCE, SPAN, are_in, null, row_key, signed
from udfs.frames.derivation import Frames, derives
from udfs.replay.content import MESSAGE
from udfs.replay.outcomes.arrivals import ARRIVAL
from udfs.replay.outcomes.counts import count_slots, plain_arrivals
from udfs.replay.outcomes.plain import SLOT, TALLIED, is_plain
from udfs.replay.outcomes.tallies import merge_tallies, scope_states, tally

_COPIED = (
    *(*MESSAGE, "session_id", "destination_queue", "label", "replay_order", "accepted", "verdict", "reason"),
    *("evidence", "final_ack_class", "final_ack_requested", "assumed", "missing_runs", "behind_gap"),
)
_OF_SCOPE = (
    *("opening_sequence", "opening_number", "state_sequence", "state_number", "state_assumed"),
    "acknowledged_sequence",
)


@derives(columns={"verdicts": TALLIED}, in_parts=True)
def sum_up_verdicts(verdicts: pl.DataFrame) -> Frames:
    """Returns tallies of some verdicts, as `tally` does, and the `slots` of those that are not plain."""
    return {"tallies": tally(verdicts), "slots": verdicts.filter(~is_plain()).select(SLOT).unique()}


@derives(("scope_key",))
def unusual_arrivals(
    verdicts: pl.DataFrame,
    parts: pl.DataFrame,
    twice: pl.DataFrame,
    not_arrived: pl.DataFrame,
    overdue: pl.DataFrame,
    in_vain: pl.DataFrame,
    settled: pl.DataFrame,
) -> Frames:
    """Returns the arrivals in unusual slots, and what the others add up to.

    A slot is unusual with an arrival that is not plain, or is one of `accepted_twice`, `not_arrived`, `overdue` or
    `in_vain`. `verdicts` are those in unusual slots, with the columns of `last_seen`, `parts` tallies of all. All of a
    scope have to be there, or instead of those before the others their tallies, `settled`. The frames are

    * `arrivals`: all arrivals in unusual slots and the runs of plain ones between them, as rows of ARRIVAL;
    * `tallies`, `plain` and `slot_counts`: the rows of `merge_tallies`, `plain_arrivals` and `count_slots`.
    """
    tallies = merge_tallies(parts)
    every_tally = pl.concat([settled.select(tallies.columns), tallies])
    states = scope_states(every_tally)
    found = _arrivals(verdicts, not_arrived, overdue, in_vain)
    due = first_due(found, states)
    plain = plain_arrivals(tallies, found)
    return {
        "arrivals": _with_facts_of_scope(found, states, due, twice),
        "tallies": every_tally,
        "plain": plain,
        "slot_counts": count_slots(plain, found.select(*SPAN, "number").unique(), states, due),
    }


def _arrivals(
    some: pl.DataFrame, not_arrived: pl.DataFrame, overdue: pl.DataFrame, in_vain: pl.DataFrame
) -> pl.DataFrame:
    """Returns verdicts with columns of ARRIVAL; those of the scope are still missing."""
    on_closed = not_arrived.filter("closed").select(PLACE)
    was_seen_after = pl.col("receiver_until_ns") - pl.col("captured_ns") > LATEST_ORDER_ACK_NS
    return some.select(
        "scope_key",
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        pl.col("tx_sequence_number").alias("number"),
        pl.col("previous_tx_sequence_number").alias("previous"),
        *_COPIED,
        pl.col("sent_at").dt.timestamp("us").alias("sent_us"),
        pl.col("captured_at").dt.timestamp("us").alias("captured_us"),
        (pl.col("captured_ns") // 1000).alias("at_us"),
        pl.col("covered_at").is_not_null().alias("covered"),
        are_in(some, on_closed).alias("cut_off"),
        (are_in(some, not_arrived.select(PLACE)) & was_seen_after.fill_null(value=False)).alias("untaken"),
        are_in(some, overdue.select(PLACE)).alias("overdue"),
        are_in(some, in_vain.select(PLACE)).alias("in_vain"),
        pl.col("acknowledged_at").dt.timestamp("us").alias("acknowledged_us"),
        pl.col("denied_at").dt.timestamp("us").alias("denied_us"),
        (pl.col("until_ns") // 1000).alias("until_us"),
        _longest_interval().alias("longest_us"),
        (pl.col("previous_tx_sequence_number") >= pl.col("tx_sequence_number")).any().over(SEQUENCE).alias("jumbled"),
        signed(pl.col("incoming_tx_sequence_id")).alias("before_sequence"),
        pl.col("incoming_tx_sequence_number").alias("before_number"),
        row_key().alias("key"),
    )


def _longest_interval() -> pl.Expr:
    """Returns the longest time between two arrivals of one message, one after the other, in each sequence, in µs."""
    time = pl.col("captured_ns") // 1000
    between = time.sort().diff().max().over(*SEQUENCE, "tx_sequence_number", *MESSAGE)
    return between.max().over(SEQUENCE)


def first_due(arrivals: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Returns per SPAN `due`, the first number that its scope had to see; null for a sequence that came too late.

    If the scope began in the sequence, it is the number after the state. If the state was then unknown or assumed, it
    is the first number seen, or a lower one that the state reached later. It is 1 for every other sequence above the
    state.
    """
    first = {name: f"first_{name}" for name in ("number", "before_sequence", "before_number", "accepted", "assumed")}
    before = pl.when(pl.col("first_before_number").is_not_null()).then("first_before_sequence")
    later = before.is_null() | (pl.col("sequence") > before)
    in_doubt = before.is_null() | pl.col("first_accepted").is_null() | pl.col("first_assumed")
    reached = pl.when(pl.col("accepted").fill_null(value=True)).then("number")
    due = (
        pl.when(pl.col("sequence") == pl.col("opening_sequence"))
        .then(pl.col("opening_number") + 1)
        .when(later & in_doubt)
        .then(pl.min_horizontal("first_number", "first_reached"))
        .when(later)
        .then(pl.lit(1, pl.Int64))
    )
    return (
        arrivals.group_by(SPAN)
        .agg(
            *(pl.col(name).min_by("replay_order").alias(alias) for name, alias in first.items()),
            reached.min().alias("first_reached"),
        )
        .join(states.select("scope_key", "opening_sequence", "opening_number"), on="scope_key")
        .select(*SPAN, due=due)
    )


def _with_facts_of_scope(
    arrivals: pl.DataFrame, states: pl.DataFrame, due: pl.DataFrame, twice: pl.DataFrame
) -> pl.DataFrame:
    """Returns arrivals with what is known of their scope, sequence and message: rows of ARRIVAL."""
    facts = (
        arrivals.select(SPAN)
        .unique()
        .join(states.select("scope_key", *_OF_SCOPE), on="scope_key")
        .join(due, on=SPAN, how="left")
    )
    rows = arrivals.join(facts, on=SPAN).with_columns(plain_to=null(pl.Int64))
    parts = {"accepted_twice": ~pl.col("elsewhere"), "may_be_elsewhere": pl.col("elsewhere")}
    messages = {name: twice.filter(part).select("scope_key", *MESSAGE) for name, part in parts.items()}
    rows = rows.with_columns(are_in(rows, of).alias(name) for name, of in messages.items())
    return (
        pl.concat([rows, _plain_runs(rows)])
        .with_columns(falling_sequence=~pl.col("sequence"), falling_number=~pl.col("number"))
        .select(ARRIVAL.names)
    )


def _plain_runs(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each run of plain arrivals between two others of a scope, or after the last one.

    After an arrival the state is known, and the next one names the state that it met: what lies between was plain.
    """
    order, moves = pl.col("replay_order"), pl.col("accepted").fill_null(value=True)
    is_last, names = order == order.max().over("scope_key"), ("sequence", "number")
    left = {f"left_{name}": pl.when(moves).then(name).otherwise(f"before_{name}") for name in names}
    met = {name: pl.col(f"before_{name}").shift(-1).over("scope_key") for name in names}
    reached = {f"met_{name}": pl.when(is_last).then(f"state_{name}").otherwise(met[name]) for name in names}
    return (
        arrivals.sort("scope_key", "replay_order")
        .with_columns(**left, **reached)
        .filter(pl.col("left_sequence") == pl.col("met_sequence"), pl.col("left_number") < pl.col("met_number"))
        .with_columns(sequence="left_sequence", number=pl.col("left_number") + 1, plain_to="met_number")
        .select(arrivals.columns)
    )
