"""Finds what the changes of the sources since the last replay touch (`udfs.derive.settled`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from udfs.derive.columns import PLACE, are_in, in_one_only, is_on, number_of, row_key, signed, unsigned
from udfs.derive.frames import Frames
from udfs.derive.outcomes.slots import cut_packets
from udfs.derive.replay.acks import addressee
from udfs.derive.replay.coverage import select_unreadable
from udfs.derive.replay.scopes import FLOW_KEY, with_flow
from udfs.replay.timeline import BEFORE_ALL

OF_SENDER = ("source_queue_manager", "tx_sequence_id")
LINKS = ("message_no", "transaction_no")
"""Numbers of IDs that messages share which are judged together."""
_NAMES = (
    *("stream_id", "session_id", "sender", "receiver", "sender_guid", "receiver_guid", "receiver_by_address"),
    *("mid_stream", "first_ns"),
)
"""Columns of ENDS on which verdicts depend."""
_NO_TIMES = pl.DataFrame(schema={"session_id": pl.String, "source_queue_manager": pl.String, "ns": pl.Int64})


@dataclass(frozen=True)
class Now:
    """Holds what the sources say now of all scopes, and what was made of them."""

    ends: pl.DataFrame
    """ENDS."""
    flows: pl.DataFrame
    """Rows of `scopes.scoped_flows`."""
    legs: pl.DataFrame
    """Rows of `scopes.find_flows` whose leg is unknown."""
    messages: pl.DataFrame
    """Transactional messages."""
    packets: pl.DataFrame
    acks: pl.DataFrame
    paired: pl.DataFrame
    """Rows of `acks.pair_acks`."""
    unread: pl.DataFrame
    """Rows of `coverage.unread_ranges`."""
    watched: pl.DataFrame
    """Rows of `watched_sessions`."""

    @cached_property
    def placed(self) -> pl.DataFrame:
        """Returns scope, stream, sequence and time of messages, and numbers for their message and transaction IDs.

        `accepted_above`: it is accepted in any state of a lower sequence, so the state is no lower than it afterwards.
        """
        numbered = self.messages.select(
            *(*FLOW_KEY, "stream_offset", "tx_sequence_id", "captured_ns"),
            signed(pl.col("tx_sequence_id")).alias("sequence"),
            (pl.col("previous_tx_sequence_number") == 0).fill_null(value=False).alias("accepted_above"),
            *numbers_of_ids(),
        )
        return with_flow(numbered, self.flows, "scope_key").drop("destination_queue")


@dataclass(frozen=True)
class Touched:
    """Holds what came, went or changed since the last replay."""

    streams: pl.Series
    """Names of streams with other names of their ends, or other unread bytes."""
    went: pl.DataFrame
    """Messages that may be gone from their flow, `is_gone`, or other ones: `stream_id`, and numbers of their IDs."""
    sequences: pl.DataFrame
    """Original senders, and TxSequenceIDs of theirs that messages or acknowledgments name."""
    numbers: pl.Series
    """TxSequenceIDs of any sender, of acknowledgments that went, or whose stream has other names of its ends."""
    unaddressed: pl.DataFrame
    """Acknowledgments that name no sender: the `session_id` that they answer, their `tx_sequence_id` and time, `ns`."""
    since: pl.DataFrame
    """Times, `ns`, from which on all is to be judged again of a `session_id`, or of a `source_queue_manager`."""
    acked_at: pl.DataFrame
    """Times of acknowledgments, of these: one from before the first message of a scope may tell its state."""


def find_touched(changes: Mapping[str, Frames], ends_before: pl.DataFrame, now: Now) -> Touched:
    """Returns what the changes of the sources touch: rows that `came` and `went`, by table.

    `ends_before` are the ENDS of the last replay.
    """
    rows = {name: pl.concat(both.values(), how="diagonal") for name, both in changes.items()}
    both = ends_before.select(_NAMES), now.ends.select(_NAMES)
    renamed = in_one_only(*both)
    of_unread = pl.concat([rows["stream_gaps"]["stream_id"], select_unreadable(rows["quarantine"])["stream_id"]])
    hidden = pl.concat(
        [*(one.filter(is_on(of_unread)) for one in both), renamed.filter(is_on(now.unread["stream_id"]))]
    )
    on_renamed = now.messages.filter(is_on(renamed["stream_id"]))
    unplaced = rows["messages"].filter("transactional").join(now.flows, on=FLOW_KEY, how="anti", nulls_equal=True)
    went, acks_went = changes["messages"]["went"], changes["acks"]["went"]
    came = changes["messages"]["came"].filter("transactional")
    is_gone = ~are_in(went, came.select("stream_offset", *FLOW_KEY))
    of_renamed = now.acks.filter(is_on(renamed["stream_id"]))
    of_acks = pl.concat(of.select(PLACE) for of in (changes["acks"]["came"], of_renamed))
    named = now.paired.join(of_acks.select(key=row_key()), on="key", how="semi").with_columns(
        tx_sequence_id=unsigned(pl.col("sequence"))
    )
    cut = (cut_packets(of, now.packets) for of in changes["streams"].values())
    places = pl.concat([rows["packets"].select(PLACE), in_one_only(*cut)])
    touched = [rows["messages"], now.messages.join(places, on=PLACE, how="semi"), named.drop_nulls("tx_sequence_id")]
    since = (
        hidden.select("session_id", ns="first_ns"),
        *(of.select("source_queue_manager", ns="captured_ns") for of in (unplaced, on_renamed)),
    )
    acked_at = (
        named.select("source_queue_manager", "ns"),
        *(some.select(source_queue_manager=addressee(), ns="captured_ns") for some in (acks_went, of_renamed)),
        *(
            some.join(_answered(of), on="stream_id").select("session_id", ns="captured_ns")
            for of in both
            for some in (acks_went, of_renamed)
        ),
    )
    return Touched(
        streams=pl.concat([of_unread, renamed["stream_id"]]).unique(),
        went=pl.concat(
            [
                went.select("stream_id", *numbers_of_ids(), is_gone=is_gone),
                on_renamed.select("stream_id", *numbers_of_ids(), is_gone=pl.lit(value=True)),
            ]
        ),
        sequences=pl.concat(of.select(OF_SENDER) for of in touched).unique(),
        numbers=pl.concat(of["tx_sequence_id"] for of in (acks_went, of_renamed)).drop_nulls().unique(),
        unaddressed=now.acks.filter(addressee().is_null())
        .join(_answered(now.ends), on="stream_id")
        .select("session_id", "tx_sequence_id", ns="captured_ns"),
        acked_at=pl.concat([_NO_TIMES, *acked_at], how="diagonal"),
        since=pl.concat([_NO_TIMES, *since], how="diagonal").with_columns(pl.col("ns").fill_null(BEFORE_ALL)),
    )


def _answered(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns the session whose messages the acknowledgments on each stream are for."""
    return ends.select("stream_id", session_id=pl.concat_str("receiver", "sender", separator="->"))


def numbers_of_ids() -> list[pl.Expr]:
    """Returns numbers for message and transaction IDs, null for none."""
    ids = zip(LINKS, ("message_id", "tx_transaction_id"), strict=True)
    return [pl.when(pl.col(of).is_not_null()).then(number_of("source_queue_manager", of)).alias(no) for no, of in ids]
