"""Finds what the changes of the sources since the last replay touch (`udfs.replay.settled.resume_points`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from schemas.outcomes import Outcome
from schemas.wire import LATEST_ORDER_ACK_NS
from udfs.frames.columns import ACK_PAIR, PLACE, in_one_only, is_on, nanoseconds, row_key, signed, way_back
from udfs.frames.derivation import Frames
from udfs.replay.order.acks import addressee
from udfs.replay.order.coverage import select_unreadable
from udfs.replay.order.marks import BEFORE_ALL
from udfs.replay.order.scopes import FLOW_KEY, SENDER_THERE, with_flow
from udfs.replay.order.watched import is_overdue
from udfs.replay.outcomes.counts import NEXT_RESEND
from udfs.replay.outcomes.missing_acks import acknowledged_pairs, has_begun
from udfs.replay.outcomes.plain import cut_packets, cut_streams, last_seen, with_receiver

NEVER = (1 << 63) - 1
ON_STREAM = ("scope_key", "stream_id")
_NAMES = (
    *("stream_id", "session_id", "sender", "receiver", "sender_guid", "receiver_guid", "receiver_by_address"),
    *("mid_stream", "first_ns"),
)
"""Columns of ENDS on which verdicts depend."""
_SENDER = "source_queue_manager"


@dataclass(frozen=True)
class Now:
    """Holds what the sources say now of all scopes, what was made of them, and of transactions before."""

    ends: pl.DataFrame
    """ENDS."""
    flows: pl.DataFrame
    """Rows of `scopes.scoped_flows`."""
    legs: pl.DataFrame
    """Rows of `scopes.find_flows` whose leg is unknown."""
    messages: pl.LazyFrame
    """Transactional messages. Of these, packets and acknowledgments only those that are needed are read."""
    packets: pl.LazyFrame
    streams: pl.LazyFrame
    acks: pl.LazyFrame
    paired: pl.DataFrame
    """Rows of `acks.pair_acks`."""
    unread: pl.DataFrame
    """Rows of `coverage.unread_ranges`."""
    watched: pl.DataFrame
    """Rows of `watched_sessions`."""
    transactions: pl.LazyFrame
    """TRANSACTIONS, as the last replay left them."""
    copies: pl.DataFrame
    """The streams that captures hold twice, `stream_id`, and those that count instead, `copy_of`."""
    disputed: pl.DataFrame
    """Messages that may have come before or after another one, as clocks differ."""

    @cached_property
    def placed(self) -> pl.LazyFrame:
        """Returns messages with their scope and `sequence`."""
        messages = with_flow(self.messages, self.flows.lazy(), "scope_key")
        return messages.with_columns(sequence=signed(pl.col("tx_sequence_id")))


def find_touched(
    tallies: pl.DataFrame, changes: Mapping[str, Frames], ends_before: pl.DataFrame, now: Now
) -> pl.DataFrame:
    """Returns what is to be judged of each `scope_key`: from which `sequence`, and from which time, `ns`, on.

    `tallies` and `ends_before`, ENDS, are those that the last replay left; `changes` are the rows of each source that
    `came` and `went` since.
    """
    came = now.placed.join(changes["messages"]["came"].lazy(), on=PLACE, how="semi").collect()
    acked = now.paired.join(changes["acks"]["came"].select(key=row_key()), on="key", how="semi")
    of_senders = pl.concat(of.select("scope_key", *SENDER_THERE) for of in (tallies, now.flows)).unique()
    senders = pl.concat(
        [*_of_changed_streams(of_senders, changes, ends_before, now), _of_shared_acks(tallies, of_senders, now)]
    )
    whole = (
        of_senders.join(senders, on=_SENDER, how="semi", nulls_equal=True),
        in_one_only(*(of.select("scope_key", "session_id").unique() for of in (tallies, now.flows))),
        *_late(tallies, came, acked, of_senders),
        now.placed.join(now.disputed.lazy(), on=PLACE, how="semi").select("scope_key").unique().collect(),
    )
    touched = (
        *(of.select("scope_key", sequence=pl.lit(BEFORE_ALL)) for of in whole),
        came.select("scope_key", "sequence"),
        tallies.join(acked, on=(_SENDER, "sequence"), how="semi").select("scope_key", "sequence"),
        *_by_sequence(tallies, changes, ends_before, now),
        *_left_behind(tallies, acked, came),
        _acknowledged_no_more(tallies, acked),
        *_by_unread_bytes(tallies, came, changes, now),
    )
    return pl.concat(touched, how="diagonal").with_columns(pl.col("sequence", "ns").fill_null(NEVER))


def _of_changed_streams(
    of_senders: pl.DataFrame, changes: Mapping[str, Frames], ends_before: pl.DataFrame, now: Now
) -> Iterator[pl.DataFrame]:
    """Yields the senders on streams that lost a packet, or whose ends have other names; those that answers there name.

    And those of messages that came on unknown legs.
    """
    before, after = (ends.select(_NAMES) for ends in (ends_before, now.ends))
    renamed = before.join(after, on=_NAMES, how="anti", nulls_equal=True)
    went = [changes[name]["went"] for name in ("messages", "acks", "packets")]
    changed = pl.concat([*now.copies, *(of["stream_id"] for of in (renamed, *went))]).unique()
    ends = pl.concat([before, after]).filter(is_on(changed))
    ways = (("session_id",), ("receiver", "sender"))
    for way in ways:
        sessions = ends.select(session_id=pl.concat_str(way, separator="->", ignore_nulls=True))
        yield of_senders.join(sessions, on="session_id", how="semi").select(_SENDER)
    for messages in (went[0].lazy(), now.messages.filter(is_on(changed))):
        yield messages.select(_SENDER).unique().collect()
    for acks in (went[1].lazy(), now.acks.filter(is_on(changed))):
        yield acks.select(addressee().alias(_SENDER)).drop_nulls().unique().collect()
    on_legs = changes["messages"]["came"].filter("transactional")
    yield on_legs.join(now.legs, on=FLOW_KEY, how="semi", nulls_equal=True).select(_SENDER)


def _of_shared_acks(tallies: pl.DataFrame, of_senders: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns the senders on sessions with acknowledgments for others than the far end, if one is new or gone there.

    Whom these are for depends on whose messages came on the session (`acks.pair_acks`).
    """
    back = now.ends.select("stream_id", way_back())
    far_ends = now.ends.select("stream_id", "receiver_guid").lazy()
    is_for_far_end = (addressee() == pl.col("receiver_guid")).fill_null(value=False)
    for_anyone = now.acks.join(far_ends, on="stream_id").filter(~is_for_far_end).select("stream_id").unique().collect()
    unaddressed = back.join(for_anyone, on="stream_id", how="semi")
    changed = in_one_only(*(of.select(SENDER_THERE).unique() for of in (tallies, now.flows)))
    shared = changed.join(unaddressed, on="session_id", how="semi")
    return of_senders.join(shared, on="session_id", how="semi").select(_SENDER)


def _late(
    tallies: pl.DataFrame, came: pl.DataFrame, acked: pl.DataFrame, of_senders: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Yields the scopes of messages and acknowledgments that came, unless after all that the scope had."""
    had = tallies.group_by("scope_key").agg(last_ns=pl.max("last_captured_ns"))
    on_stream = tallies.group_by(ON_STREAM).agg(pl.max("last_offset"))
    of_sender = of_senders.select("scope_key", _SENDER).unique()
    acked = acked.group_by(_SENDER).agg(pl.min("ns"))
    yield acked.join(of_sender, on=_SENDER).join(had, on="scope_key").filter(pl.col("ns") <= pl.col("last_ns"))
    yield came.join(had, on="scope_key").filter(pl.col("captured_ns") <= pl.col("last_ns"))
    yield came.join(on_stream, on=ON_STREAM).filter(pl.col("stream_offset") <= pl.col("last_offset"))


def _by_sequence(
    tallies: pl.DataFrame, changes: Mapping[str, Frames], ends_before: pl.DataFrame, now: Now
) -> Iterator[pl.DataFrame]:
    """Yields `scope_key` and `sequence` of what need not have arrived now, or then, or waits for an acknowledgment.

    Or for a resend, whose time has passed while the sender sent other packets.
    """
    streams = changes["streams"]
    on_cut = pl.concat(cut_streams(of).select("stream_id") for of in streams.values()).lazy()
    packets = now.packets.join(on_cut, on="stream_id", how="semi").collect()
    cut = in_one_only(*(cut_packets(of, packets) for of in streams.values()))
    yield now.placed.join(cut.lazy(), on=PLACE, how="semi").select("scope_key", "sequence").unique().collect()
    yield _seen_long_after(ends_before, now)
    sender = pl.col("session_id").str.split("->").list.first()
    last = now.ends.group_by(sender="sender").agg(pl.max("last_ns"))
    resent = tallies.drop_nulls(NEXT_RESEND).with_columns(sender=sender).join(last, on="sender")
    is_over = pl.col("last_ns") > nanoseconds(pl.col(NEXT_RESEND))
    yield resent.filter(is_over).select("scope_key", "sequence")
    waiting = tallies.filter(pl.col("late") > 0)
    both = waiting.join(now.watched, on=SENDER_THERE, how="left", nulls_equal=True, suffix="_now")
    waits = ~is_overdue("last_captured_ns").fill_null(value=False)
    seen_longer, seen_otherwise = (pl.col(of).ne_missing(pl.col(f"{of}_now")) for of in ("watched_ns", "answers_whole"))
    yield both.filter(seen_otherwise | (waits & seen_longer)).select("scope_key", "sequence")


def _left_behind(tallies: pl.DataFrame, acked: pl.DataFrame, came: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the sequences with unacknowledged messages, if a later one goes on or was acknowledged."""
    waiting = tallies.filter(pl.col(Outcome.UNACKNOWLEDGED.value) > 0).select("scope_key", "sequence", _SENDER)
    for later, by in ((acked, _SENDER), (came, "scope_key")):
        latest = later.group_by(by).agg(latest=pl.max("sequence"))
        went_on = waiting.join(latest, on=by).filter(pl.col("latest") > pl.col("sequence"))
        yield went_on.select("scope_key", "sequence")


def _acknowledged_no_more(tallies: pl.DataFrame, acked: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key` and `sequence` of messages without an acknowledgment whose pair has one now, by that time.

    A message whose acknowledgment is missing counts only where others of its pair came
    (`missing_acks.acknowledged_no_more`).
    """
    waiting = with_receiver(tallies.filter(pl.col("late") > 0)).join(acknowledged_pairs(acked), on=ACK_PAIR)
    return waiting.filter(has_begun("last_captured_ns")).select("scope_key", "sequence")


def _seen_long_after(ends_before: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns `scope_key` and `sequence` of messages that TCP never acknowledged, whose receiver was seen since then.

    That is long enough after them (`slots.last_seen`) now, and was not so in `ends_before`.
    """
    seen, before = (last_seen(ends).drop("until_ns") for ends in (now.ends, ends_before))
    grown = seen.join(before, on="stream_id", how="left", suffix="_before").filter(
        pl.col("receiver_until_ns").ne_missing(pl.col("receiver_until_ns_before"))
    )
    on_grown = now.streams.join(grown.lazy(), on="stream_id", how="semi").collect()
    cut = cut_streams(on_grown)
    packets = now.packets.join(cut.lazy().select("stream_id"), on="stream_id", how="semi").collect()
    waiting = now.placed.join(cut_packets(cut, packets).lazy(), on=PLACE).join(grown.lazy(), on="stream_id").collect()
    is_long, was_long = (
        (pl.col(name) - pl.col("captured_ns") > LATEST_ORDER_ACK_NS).fill_null(value=False)
        for name in ("receiver_until_ns", "receiver_until_ns_before")
    )
    return waiting.filter(is_long & ~was_long).select("scope_key", "sequence").unique()


def _by_unread_bytes(
    tallies: pl.DataFrame, came: pl.DataFrame, changes: Mapping[str, Frames], now: Now
) -> Iterator[pl.DataFrame]:
    """Yields the times from which unread bytes count that came or went on a session of the scope, or that move.

    Those at the end of a stream stand before the message that comes next there, and behind the last one until then; on
    a stream without a message of the scope they stand at its beginning.
    """
    began = now.ends.select("stream_id", "session_id", ns=pl.col("first_ns").fill_null(BEFORE_ALL))
    ranges = pl.concat(
        [*changes["stream_gaps"].values(), *map(select_unreadable, changes["quarantine"].values())], how="diagonal"
    )
    scopes = now.flows.select("scope_key", "session_id").unique()
    yield began.join(ranges, on="stream_id", how="semi").join(scopes, on="session_id").select("scope_key", "ns")
    last = tallies.group_by(ON_STREAM).agg(pl.max("last_offset"))
    grown = came.select(ON_STREAM).unique().join(last, on=ON_STREAM, how="left")
    is_behind = pl.col("stream_offset") > pl.col("last_offset").fill_null(BEFORE_ALL)
    moved = grown.join(now.unread.group_by("stream_id").agg(pl.max("stream_offset")), on="stream_id").filter(is_behind)
    yield moved.join(began, on="stream_id").select("scope_key", "ns")
