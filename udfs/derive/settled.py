"""Decides what is judged again, and what stays as the last replay left it.

A sequence is short: a sender whose messages are all acknowledged begins a new one ([MS-MQQB] 3.1.1.5). So of each scope
only the end is judged again, from a *cut* on. A row of TALLIES, a sequence on one stream, is again

* *touched*, if a message or an acknowledgment of its sequence, unread bytes of its stream, the name of an end or of its
  scope came, went or changed;
* *open*, if its sequence is that of the scope's state, or a greater one, and something of the scope is judged again;
  or if its messages wait for acknowledgments, and the session was seen longer than before;
* *drawn in* by another one that is judged again: in its scope because it comes later or has a greater sequence;
  anywhere because it has the same sequence, message ID or transaction ID.

What remains comes before all of that in each respect, so it says nothing of it but the state that the receiver was in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from schemas.tallies import TALLIES
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.derive.columns import PLACE, SEQUENCE, number_of, row_key, signed, unsigned
from udfs.derive.frames import Frames
from udfs.derive.outcomes.counts import COUNT_KEY, COUNTED
from udfs.derive.outcomes.slots import cut_packets
from udfs.derive.outcomes.tallies import receiver_guid, scope_states
from udfs.derive.replay.coverage import select_unreadable
from udfs.derive.replay.scopes import FLOW_KEY, SENDER_THERE, with_flow
from udfs.derive.tables import with_columns_of
from udfs.replay.words import NS

_OF_SENDER = ("source_queue_manager", "tx_sequence_id")
_ON_STREAM = ("scope_key", "stream_id")
_LINKS = ("message_no", "transaction_no")
_NAMES = ("stream_id", "session_id", "sender", "receiver", "sender_guid", "receiver_guid", "mid_stream", "first_ns")
"""What ENDS tell that verdicts depend on."""
_BEFORE_ALL = -(1 << 63)


@dataclass(frozen=True)
class Touched:
    """Holds what came, went or changed since the last replay."""

    streams: pl.Series
    """Names of streams."""
    went: pl.Series
    """Names of streams of which messages are not there any more."""
    sequences: pl.DataFrame
    """Original senders, and TxSequenceIDs of theirs that messages or acknowledgments name."""
    numbers: pl.Series
    """TxSequenceIDs of any sender, of acknowledgments that are not there any more."""
    unread_from: pl.DataFrame
    """`session_id`, and `ns`: the time from which on its unread ranges may be others."""
    unplaced_from: pl.DataFrame
    """`source_queue_manager`, and `ns`: the time from which on others of its messages may be missing in a scope."""


def find_touched(
    changes: Mapping[str, Frames],
    ends_before: pl.DataFrame,
    ends: pl.DataFrame,
    flows: pl.DataFrame,
    messages: pl.DataFrame,
    packets: pl.DataFrame,
    acks: pl.DataFrame,
    paired: pl.DataFrame,
    unread: pl.DataFrame,
) -> Touched:
    """Returns what the changes of the sources touch: rows that `came` and `went`, by table.

    `ends_before` are the ENDS of the last replay, `paired` the rows of `pair_acks`.
    """
    rows = {name: pl.concat(both.values(), how="diagonal") for name, both in changes.items()}
    both = ends_before.select(_NAMES), ends.select(_NAMES)
    renamed = pl.concat(one.join(other, on=_NAMES, how="anti", nulls_equal=True) for one, other in (both, both[::-1]))
    of_unread = pl.concat([rows["stream_gaps"]["stream_id"], select_unreadable(rows["quarantine"])["stream_id"]])
    may_hide = pl.col("stream_id").is_in(unread["stream_id"].implode())
    hidden = pl.concat([*(one.filter(_is_on(of_unread)) for one in both), renamed.filter(may_hide)])
    gone = changes["messages"]["went"].join(changes["messages"]["came"], on=PLACE, how="anti")
    arrived = [cut_packets(of, packets) for of in changes["streams"].values()]
    places = pl.concat(
        [
            rows["packets"].select(PLACE),
            *(one.join(other, on=PLACE, how="anti") for one, other in (arrived, arrived[::-1])),
        ]
    )
    of_acks = pl.concat(
        [changes["acks"]["came"].select(PLACE), acks.filter(_is_on(renamed["stream_id"])).select(PLACE)]
    )
    named = paired.with_columns(tx_sequence_id=unsigned(pl.col("sequence"))).join(
        of_acks.select(key=row_key()), on="key", how="semi"
    )
    unplaced = (
        rows["messages"].filter("transactional").join(flows, on=FLOW_KEY, how="anti", nulls_equal=True),
        messages.filter(_is_on(renamed["stream_id"])),
    )
    touched = [rows["messages"], messages.join(places, on=PLACE, how="semi"), named.drop_nulls("tx_sequence_id")]
    return Touched(
        streams=pl.concat([of_unread, renamed["stream_id"]]).unique(),
        went=gone["stream_id"].unique(),
        sequences=pl.concat(of.select(_OF_SENDER) for of in touched).unique(),
        numbers=changes["acks"]["went"]["tx_sequence_id"].drop_nulls().unique(),
        unread_from=hidden.select("session_id", ns=pl.col("first_ns").fill_null(_BEFORE_ALL)),
        unplaced_from=pl.concat(
            one.select("source_queue_manager", ns=pl.col("captured_ns").fill_null(_BEFORE_ALL)) for one in unplaced
        ),
    )


def _are_in(rows: pl.DataFrame, some: pl.DataFrame) -> pl.Series:
    """Returns which rows have the values of one of some others in their columns."""
    marked = some.unique().with_columns(is_in=True)
    found = rows.select(some.columns).join(marked, on=some.columns, how="left", maintain_order="left")
    return found["is_in"].fill_null(value=False)


def _is_on(streams: pl.Series) -> pl.Expr:
    return pl.col("stream_id").is_in(streams.implode())


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


def settle(
    tallies: pl.DataFrame,
    touched: Touched,
    flows: pl.DataFrame,
    legs: pl.DataFrame,
    watched: pl.DataFrame,
    messages: pl.DataFrame,
    unread: pl.DataFrame,
) -> Frames:
    """Returns the tallies that are `kept`, `messages` and `flows` to judge, and where scopes are `resumed`.

    Messages on unknown `legs` are among them, as they may be missing elsewhere. `behind` are rows of BEHIND. `tallies`
    are those that the last replay left, `flows` have their scopes, `watched` are rows of `watched_sessions`, `messages`
    transactional ones, `unread` those of `unread_ranges`.
    """
    placed = _placed(messages, flows)
    changed_from = pl.concat(
        of.join(flows.select("scope_key", name).unique(), on=name).select("scope_key", "ns")
        for name, of in (("session_id", touched.unread_from), ("source_queue_manager", touched.unplaced_from))
    )
    again = _touched(tallies, touched, flows, watched)
    while True:
        drawn_in = _drawn_in(tallies, again, placed, flows, changed_from)
        if not (drawn_in & ~again).any():
            break
        again |= drawn_in
    kept = tallies.filter(~again)
    to_judge = placed.join(kept, on=SEQUENCE, how="anti")
    some_flows = flows.join(to_judge, on=_ON_STREAM, how="semi")
    behind = kept.group_by(_ON_STREAM).agg(stream_offset=pl.max("last_offset"), at_ns=pl.max("last_captured_ns"))
    return {
        "kept": kept,
        "messages": pl.concat([to_judge.select(PLACE), with_flow(messages, legs).select(PLACE)]),
        "flows": some_flows,
        "resumed": _resumed(kept, some_flows, unread),
        "behind": behind.join(to_judge, on=_ON_STREAM, how="semi"),
    }


def _placed(messages: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Returns scope, stream, sequence and time of messages, and numbers for their message and transaction IDs."""
    ids = (("message_no", "message_id"), ("transaction_no", "tx_transaction_id"))
    numbered = messages.select(
        *FLOW_KEY,
        "stream_offset",
        "tx_sequence_id",
        "captured_ns",
        signed(pl.col("tx_sequence_id")).alias("sequence"),
        *(pl.when(pl.col(of).is_not_null()).then(number_of("source_queue_manager", of)).alias(no) for no, of in ids),
    )
    return with_flow(numbered, flows, "scope_key").drop("queue_manager_address", "destination_queue")


def _touched(rows: pl.DataFrame, touched: Touched, flows: pl.DataFrame, watched: pl.DataFrame) -> pl.Series:
    """Returns which rows are touched, or wait for acknowledgments while their session goes on."""
    named = flows.select("scope_key", *SENDER_THERE, "stream_id").unique().with_columns(is_named=True)
    found = (
        rows.select(
            "scope_key",
            *SENDER_THERE,
            "stream_id",
            "tx_sequence_id",
            "late",
            "last_captured_ns",
            "watched_ns",
            "answers_whole",
        )
        .join(named, on=named.columns[:-1], how="left", maintain_order="left")
        .join(watched, on=SENDER_THERE, how="left", maintain_order="left", suffix="_now")
        .with_columns(was_seen=pl.col("answers_whole").fill_null(False) | pl.col("answers_whole_now").fill_null(False))
    )
    is_other = pl.col("is_named").is_null()
    is_undecided = pl.col("watched_ns") - pl.col("last_captured_ns") <= LATEST_ORDER_ACK_MS * NS // 1000
    goes_on = pl.col("answers_whole").ne_missing(pl.col("answers_whole_now")) | (
        is_undecided & pl.col("watched_ns").ne_missing(pl.col("watched_ns_now"))
    )
    of_stream = _is_on(touched.streams)
    of_sequence = _are_in(found, touched.sequences) | rows["tx_sequence_id"].is_in(touched.numbers.implode())
    lost = found.filter(_is_on(touched.went))["scope_key"]
    of_scope = pl.col("scope_key").is_in(lost.implode())
    waits = (pl.col("late") > 0) & pl.col("was_seen") & goes_on
    return found.select(again=of_stream | of_sequence | of_scope | is_other | waits).to_series()


def _drawn_in(
    rows: pl.DataFrame, again: pl.Series, placed: pl.DataFrame, flows: pl.DataFrame, changed_from: pl.DataFrame
) -> pl.Series:
    """Returns which rows are open, or drawn in by those that are judged `again`."""
    of_again, kept = rows.filter(again), rows.filter(~again)
    to_judge = placed.join(kept, on=SEQUENCE, how="anti")
    begins = (
        to_judge.select("scope_key", "sequence", ns="captured_ns"),
        of_again.select("scope_key", "sequence", ns="first_captured_ns", order="first_order"),
        changed_from,
    )
    cuts = pl.concat(begins, how="diagonal").group_by("scope_key").agg(pl.min("sequence", "ns", "order"))
    states = scope_states(rows).select("scope_key", "several_receivers", last_sequence="state_sequence")
    cuts = cuts.join(states, on="scope_key", how="left").join(_now_several(flows), on="scope_key", how="left")
    in_doubt = kept.group_by("scope_key").agg(
        in_doubt=pl.col("last_unknown").max() // 2 > pl.col("last_from_zero").max().fill_null(0)
    )
    found = rows.join(cuts, on="scope_key", how="left", suffix="_cut", maintain_order="left").join(
        in_doubt, on="scope_key", how="left", maintain_order="left"
    )
    is_later = (
        (pl.col("last_captured_ns") >= pl.col("ns"))
        | (pl.col("last_order") >= pl.col("order"))
        | (pl.col("sequence") >= pl.min_horizontal("sequence_cut", "last_sequence"))
    )
    is_cut = pl.col("sequence_cut").is_not_null() | pl.col("ns").is_not_null() | pl.col("order").is_not_null()
    is_whole = is_cut & (
        pl.col("in_doubt").fill_null(False)
        | (pl.col("untimed").max().over("scope_key") > 0)
        | pl.col("several_receivers").ne_missing(pl.col("several_now"))
        | ~pl.col("scope_key").is_in(to_judge["scope_key"].unique().implode())
    )
    linked = pl.concat(placed.join(to_judge.drop_nulls(no), on=no, how="semi").select(SEQUENCE) for no in _LINKS)
    sequences = pl.concat([of_again.select(_OF_SENDER), to_judge.select(_OF_SENDER)])
    drawn_in = found.select((is_later & is_cut).fill_null(value=False) | is_whole).to_series()
    return drawn_in | _are_in(rows, sequences) | _are_in(rows, linked)


def _now_several(flows: pl.DataFrame) -> pl.DataFrame:
    """Returns whether the messages of each scope went to several receivers, as `scope_states` does."""
    return flows.group_by("scope_key").agg(several_now=receiver_guid().drop_nulls().n_unique() > 1)


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
        missing="moved_missing",
        # Behind the last arrival on its stream they come after it, unless one that is judged again follows there.
        missing_since=pl.col("last_missing") - pl.col("moved_missing") + pl.col("behind").fill_null(0),
    )
