"""Decides what is judged again, and what stays as the last replay left it.

A sequence is short: a sender whose messages are all acknowledged begins a new one ([MS-MQQB] 3.1.1.5). So of each scope
only the end is judged again, from a *cut* on. A row of TALLIES, a sequence on one stream, is again

* *touched*, if a message or an acknowledgment of its sequence, unread bytes of its stream, the name of an end or of its
  scope came, went or changed;
* *open*, if its sequence is that of the scope's state, or a greater one, and something of the scope is judged again;
  or if its messages wait for acknowledgments, and the session was seen longer than before;
* *drawn in* by another one that is judged again: in its scope because it comes later or has a greater sequence;
  anywhere because it has the same sequence, message ID or transaction ID.

Names, acknowledgments, unread bytes and messages without a known receiver count backwards, too: they draw in what
follows the time from which they count, or the whole scope. What remains says nothing of the rest but the state that the
receiver was in.
"""

import polars as pl

from schemas.tallies import TALLIES
from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.derive.columns import PLACE, SEQUENCE, are_in, count, in_one_only, is_on, signed
from udfs.derive.frames import Frames
from udfs.derive.outcomes.counts import COUNT_KEY, COUNTED
from udfs.derive.outcomes.tallies import receiver_guid, scope_states
from udfs.derive.replay.acks import MOST_SENDERS, crowded
from udfs.derive.replay.scopes import FLOW_KEY, SENDER_THERE, with_flow
from udfs.derive.tables import with_columns_of
from udfs.derive.touched import LINKS, OF_SENDER, Now, Touched
from udfs.replay.timeline import BEFORE_ALL

_ON_STREAM = ("scope_key", "stream_id")


def _linked(placed: pl.DataFrame, some: pl.DataFrame) -> pl.DataFrame:
    """Returns the sequences of messages that have a message ID or a transaction ID of some others."""
    return pl.concat(placed.join(some.drop_nulls(no), on=no, how="semi").select(SEQUENCE) for no in LINKS)


def read_tallies(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TALLIES with their `sequence` (`signed`)."""
    return rows.with_columns(sequence=signed(pl.col("tx_sequence_id")))


def tally_rows(tallies: pl.DataFrame, counts: pl.DataFrame, watched: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TALLIES: tallies, `count_outcomes` beside one of each sequence and session, and who answers."""
    counted = counts.select(*COUNT_KEY, *COUNTED)
    is_first = pl.struct(COUNT_KEY).is_first_distinct()
    with_counts = tallies.drop(COUNTED, "watched_ns", "answers_whole", "lost", strict=False).sort("stream_id")
    first = with_counts.filter(is_first).join(counted, on=COUNT_KEY, how="left")
    rows = pl.concat([first, with_counts.filter(~is_first)], how="diagonal")
    return with_columns_of(TALLIES, rows.join(watched, on=SENDER_THERE, how="left"))


def settle(tallies: pl.DataFrame, touched: Touched, now: Now) -> Frames:
    """Returns the tallies that are `kept`, `messages` and `flows` to judge, and where scopes are `resumed`.

    Messages on unknown legs are among them, as they may be missing elsewhere. `behind` are rows of BEHIND. `tallies`
    are those that the last replay left.
    """
    paired = _paired_otherwise(tallies, touched, now)
    since = _since(tallies, touched, paired, now)
    again = _are_touched(tallies, touched, now) | are_in(tallies, paired.select(OF_SENDER)) | _waits(tallies, now)
    while (drawn_in := again | _drawn_in(tallies, again, since, now)).sum() > again.sum():
        again = drawn_in
    kept = tallies.filter(~again)
    to_judge = now.placed.join(kept, on=SEQUENCE, how="anti")
    some_flows = now.flows.join(to_judge, on=_ON_STREAM, how="semi")
    behind = kept.group_by(_ON_STREAM).agg(stream_offset=pl.max("last_offset"), at_ns=pl.max("last_captured_ns"))
    return {
        "kept": kept,
        "messages": pl.concat([to_judge.select(PLACE), with_flow(now.messages, now.legs).select(PLACE)]),
        "flows": some_flows,
        "resumed": _resumed(kept, some_flows, now.unread),
        "behind": behind.join(to_judge, on=_ON_STREAM, how="semi"),
    }


def _since(tallies: pl.DataFrame, touched: Touched, paired: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns per scope the times from which on all is to be judged again.

    A stream with unread bytes that carries its first message of a scope counted from its beginning before.
    """
    acked_at = pl.concat([touched.acked_at, paired.select("source_queue_manager", "ns")], how="diagonal")
    broken = now.flows.join(now.unread, on="stream_id", how="semi").select(*_ON_STREAM, ns="first_ns").unique()
    times = [broken.join(tallies, on=_ON_STREAM, how="anti").select("scope_key", pl.col("ns").fill_null(BEFORE_ALL))]
    began = tallies.group_by("scope_key").agg(began_ns=pl.col("first_ns").min_by("first_order"))
    for name in ("session_id", "source_queue_manager"):
        scopes = now.flows.select("scope_key", name).unique()
        acked = acked_at.drop_nulls(name).join(scopes, on=name).join(began, on="scope_key")
        times.append(touched.since.drop_nulls(name).join(scopes, on=name).select("scope_key", "ns"))
        times.append(acked.filter(pl.col("ns") <= pl.col("began_ns")).select("scope_key", "ns"))
    return pl.concat(times)


def _are_touched(rows: pl.DataFrame, touched: Touched, now: Now) -> pl.Series:
    """Returns which rows are touched: themselves, or their scope by other sessions or by messages that went.

    So is, whatever the reason, a sequence that has more or fewer messages on a stream than its rows counted.
    """
    of_stream = ("scope_key", *SENDER_THERE, "stream_id")
    moved = in_one_only(*(of.select("scope_key", "session_id").unique() for of in (rows, now.flows)))
    went = rows.filter(is_on(touched.went.filter("is_gone")["stream_id"]))
    counted = now.placed.group_by(*SEQUENCE, "stream_id").agg(messages=count())
    differ = in_one_only(rows.select(counted.columns), counted)
    return (
        rows.select(is_on(touched.streams)).to_series()
        | are_in(rows, differ.select(SEQUENCE))
        | ~are_in(rows, now.flows.select(of_stream))
        | are_in(rows, touched.sequences)
        | rows["tx_sequence_id"].is_in(touched.numbers.implode())
        | are_in(rows, pl.concat([moved.select("scope_key"), went.select("scope_key")]))
        | are_in(rows, _linked(now.placed, touched.went))
    )


def _paired_otherwise(tallies: pl.DataFrame, touched: Touched, now: Now) -> pl.DataFrame:
    """Returns acknowledgments that name no sender, each with a `source_queue_manager` that it is for only now, or was.

    That is a sender that is new to their session or gone; and on a session that is or was crowded, all of its senders,
    and all that use a sequence there which another one uses only now, or did.
    """
    both = [of.select(SENDER_THERE).unique() for of in (tallies, now.flows)]
    changed = in_one_only(*both)
    senders = pl.concat(both).unique()
    crowds = senders.group_by("session_id").len().filter(pl.col("len") > MOST_SENDERS)
    of_crowds = senders.join(changed, on="session_id", how="semi").join(crowds, on="session_id", how="semi")
    on_crowded = with_flow(now.messages.select(*FLOW_KEY, "tx_sequence_id"), crowded(now.flows), "session_id")
    used = [of.select(*SENDER_THERE, "tx_sequence_id").unique() for of in (crowded(tallies), on_crowded)]
    sequence = ("session_id", "tx_sequence_id")
    of_sequences = pl.concat(used).join(in_one_only(*used), on=sequence, how="semi").unique()
    return pl.concat(
        [
            touched.unaddressed.join(pl.concat([changed, of_crowds]).unique(), on="session_id"),
            touched.unaddressed.join(of_sequences, on=sequence),
        ],
        how="diagonal",
    )


def _waits(rows: pl.DataFrame, now: Now) -> pl.Series:
    """Returns which rows have messages that wait for an acknowledgment that would be seen, now or before."""
    found = rows.select(*SENDER_THERE, "late", "last_captured_ns", "watched_ns", "answers_whole").join(
        now.watched, on=SENDER_THERE, how="left", maintain_order="left", suffix="_now"
    )
    times, whole = (pl.col(name, f"{name}_now") for name in ("watched_ns", "answers_whole"))
    is_overdue = pl.min_horizontal(times) - pl.col("last_captured_ns") > LATEST_ORDER_ACK_NS
    is_undecided = ~is_overdue | pl.any_horizontal(times.is_null())
    changes = pl.col("answers_whole").ne_missing(pl.col("answers_whole_now")) | (
        is_undecided & pl.col("watched_ns").ne_missing(pl.col("watched_ns_now"))
    )
    return found.select(((pl.col("late") > 0) & pl.any_horizontal(whole) & changes).fill_null(value=False)).to_series()


def _drawn_in(rows: pl.DataFrame, again: pl.Series, since: pl.DataFrame, now: Now) -> pl.Series:
    """Returns which rows are open, or drawn in by those that are judged `again`."""
    of_again, kept = rows.filter(again), rows.filter(~again)
    to_judge = now.placed.join(kept, on=SEQUENCE, how="anti")
    parts = (
        to_judge.select("scope_key", "sequence", ns=pl.col("captured_ns").fill_null(BEFORE_ALL)),
        of_again.select("scope_key", "sequence", ns="first_captured_ns", order="first_order"),
        since,
        _moved_ranges(kept, of_again, to_judge, now),
    )
    begins = pl.concat(parts, how="diagonal").group_by("scope_key").agg(pl.min("sequence", "ns", "order"))
    cuts = _cuts(begins, rows, kept, to_judge, now)
    sequences = pl.concat([of_again.select(OF_SENDER), to_judge.select(OF_SENDER)])
    places = ((to_judge, "stream_offset"), (of_again, "first_offset"))
    offsets = pl.concat(of.select(*_ON_STREAM, offset=name) for of, name in places)
    found = rows.join(cuts, on="scope_key", how="left", suffix="_cut", maintain_order="left").join(
        offsets.group_by(_ON_STREAM).agg(pl.min("offset")), on=_ON_STREAM, how="left", maintain_order="left"
    )
    is_later = (
        (pl.col("last_captured_ns") >= pl.col("ns"))
        | (pl.col("last_order") >= pl.col("order"))
        | (pl.col("last_offset") >= pl.col("offset"))
        | (pl.col("sequence") >= pl.min_horizontal("sequence_cut", "last_sequence"))
        | (pl.col("sequence") > pl.col("kept_sequence"))
        | ((pl.col("sequence") == pl.col("kept_sequence")) & (pl.col("last_number") > pl.col("kept_number")))
        | ((pl.col("sequence") == pl.col("kept_sequence")) & ~pl.col("rises"))
    )
    later, unclear = (
        found.select(condition.fill_null(value=False)).to_series()
        for condition in (is_later | pl.col("is_whole"), pl.col("is_unclear"))
    )
    drawn_in = later | are_in(rows, sequences) | are_in(rows, _linked(now.placed, to_judge))
    return drawn_in if (drawn_in & ~again).any() else drawn_in | unclear


def _cuts(cuts: pl.DataFrame, rows: pl.DataFrame, kept: pl.DataFrame, to_judge: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Adds to each scope, and the lowest `sequence`, time `ns` and `order` that is judged, what is kept of it.

    `is_whole`: all of it is judged, because a fact about the whole scope is another one. `is_unclear`: so it is if no
    more is drawn in, because the state behind the kept rows is in doubt, or not theirs. `kept_sequence` and
    `kept_number` are that state, `last_sequence` that of the scope before. `rises`: what is judged surely sets another
    one, so that the kept one is not the last.
    """
    states = scope_states(rows).select("scope_key", "several_receivers", last_sequence="state_sequence")
    facts = rows.group_by("scope_key").agg(
        is_untimed=pl.max("untimed") > 0,
        was_doubtful=(pl.col("last_missing") >= pl.col("last_order")).all(),
    )
    left = kept.group_by("scope_key").agg(
        pl.col("state_sequence", "state_number").max_by("last_order").name.replace("state_", "kept_"),
        in_doubt=pl.col("last_unknown").max() // 2 > pl.col("last_from_zero").max().fill_null(0),
    )
    rising = to_judge.group_by("scope_key").agg(rises=pl.col("accepted_above").any())
    several = now.flows.group_by("scope_key").agg(several_now=receiver_guid().drop_nulls().n_unique() > 1)
    for more in (states, facts, left, rising, several):
        cuts = cuts.join(more, on="scope_key", how="left")
    is_addressed = pl.col("scope_key").is_in(_newly_addressed(kept, to_judge, now).implode())
    is_gone = pl.col("order").is_not_null() & ~pl.col("scope_key").is_in(to_judge["scope_key"].unique().implode())
    is_whole = (
        pl.any_horizontal("is_untimed", "was_doubtful").fill_null(value=False)
        | pl.col("several_receivers").ne_missing(pl.col("several_now"))
        | is_addressed
        | is_gone
    )
    is_unclear = pl.col("in_doubt") | (pl.col("kept_sequence") >= pl.col("sequence"))
    return cuts.with_columns(
        is_whole.alias("is_whole"),
        is_unclear.alias("is_unclear"),
        pl.col("rises").fill_null(value=True),
    )


def _moved_ranges(kept: pl.DataFrame, of_again: pl.DataFrame, to_judge: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns per scope times of unread ranges that would stand before what is kept, and behind it otherwise.

    They follow the last message that is kept on a stream with others to judge, if that was the last one there; or a
    silent stream with some began just when the last message that is kept came.
    """
    tails = (
        kept.group_by(_ON_STREAM)
        .agg(pl.max("last_offset"), ns=pl.max("last_captured_ns"))
        .join(to_judge, on=_ON_STREAM, how="semi")
        .join(of_again, on=_ON_STREAM, how="anti")
        .join(now.unread.select("stream_id", "stream_offset"), on="stream_id")
        .filter(pl.col("stream_offset") > pl.col("last_offset"))
    )
    last = kept.group_by("scope_key").agg(ns=pl.max("last_captured_ns"))
    broken = now.ends.join(now.unread, on="stream_id", how="semi").select("session_id", "first_ns")
    silent = now.flows.select("scope_key", "session_id").unique().join(broken, on="session_id")
    ties = last.join(silent, left_on=["scope_key", "ns"], right_on=["scope_key", "first_ns"], how="semi")
    return pl.concat([tails.select("scope_key", "ns"), ties])


def _newly_addressed(kept: pl.DataFrame, to_judge: pl.DataFrame, now: Now) -> pl.Series:
    """Returns the scopes whose messages name a queue manager for the first time that messages on unknown legs name."""
    address = ("scope_key", "source_queue_manager", "queue_manager_address")
    named, to_judge = (of.join(now.legs, on=address[1:], how="semi", nulls_equal=True) for of in (now.placed, to_judge))
    of_kept = named.join(kept, on=SEQUENCE, how="semi")
    return to_judge.join(of_kept, on=address, how="anti", nulls_equal=True)["scope_key"].unique()


def _resumed(kept: pl.DataFrame, to_judge: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of RESUMED; a scope without kept rows begins without a state."""
    order = "last_order"
    last = (
        kept.join(to_judge, on="scope_key", how="semi")
        .group_by("scope_key")
        .agg(
            pl.col("state_sequence", "state_number", "stream_id", "last_offset").max_by(order),
            pl.col(order, "moved_order", "moved_missing", "last_missing", "last_sent").max(),
            last_ns=pl.col("last_captured_ns").max(),
        )
    )
    behind = (
        last.join(to_judge, on=_ON_STREAM, how="anti")
        .join(unread.select("stream_id", "stream_offset"), on="stream_id")
        .filter(pl.col("stream_offset") > pl.col("last_offset"))
        .group_by("scope_key")
        .agg(behind=pl.len().cast(pl.Int64))
    )
    return last.join(behind, on="scope_key", how="left").select(
        *("scope_key", "state_sequence", "state_number", order, "moved_order", "last_sent", "last_ns"),
        missing=pl.col("moved_missing").fill_null(0),
        # Ranges behind the last arrival on its stream come after it, unless a message to judge follows there.
        missing_since=pl.col("last_missing") - pl.col("moved_missing").fill_null(0) + pl.col("behind").fill_null(0),
    )
