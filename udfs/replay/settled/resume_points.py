"""Decides what is judged again, and what stays as the last replay left it.

A night appends: messages and acknowledgments come after all that their scope, a sender's session or queue, had before.
So of each scope only the end is judged again, from a *cut* on. It lies before a sequence whose first message any state
accepts: nothing that came before says more of the rest than RESUMED does. The rules are few:

* A sequence is *touched*, if a message or an acknowledgment came for it, or if it waits for one and its session was
  seen longer; or if it has a sequence or message ID of another one that is judged again, or a transaction ID whose use
  may go on there.
* Unread bytes that come, go, or stand elsewhere touch all that follows the time from which they count.
* All other changes touch the whole scope: something came late or went, the ends of a stream or a scope's messages are
  others. What concerns names or acknowledgments touches all scopes of the senders.
* Connections that captures hold twice touch all scopes of their senders, and differing clocks the scopes whose order
  they leave in doubt. If what captures hold twice changes, so may the clocks, and all is judged.
* A scope is cut before the last possible sequence that is not above the lowest touched one.
"""

import polars as pl

from schemas.tallies import TALLIES
from udfs.frames.columns import PLACE, SEQUENCE, SPAN, are_in, message_ordinal, row_key, signed
from udfs.frames.derivation import Frames
from udfs.frames.tables import with_columns_of
from udfs.replay.order.scopes import SENDER_THERE, with_flow
from udfs.replay.outcomes.counts import COUNT_KEY, SUMMED
from udfs.replay.outcomes.plain import SLOT
from udfs.replay.outcomes.transactions import TRANSACTION_ID
from udfs.replay.settled.touched import NEVER, ON_STREAM, Now

_OF_SENDER = ("source_queue_manager", "tx_sequence_id")
_OPENING = ("begins", "first_ns", "opening_sequence", "opening_number", "opening_missing")
"""Columns of a tally that describe its first arrival."""
_MESSAGE_ID = ("source_queue_manager", "message_id")
_BEFORE = ("last_order", "moved_order", "last_sent", "last_captured_ns")


def read_tallies(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TALLIES with their `sequence` (`signed`)."""
    return rows.with_columns(sequence=signed(pl.col("tx_sequence_id")))


def tally_rows(tallies: pl.DataFrame, counts: pl.DataFrame, watched: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of TALLIES: tallies, `count_outcomes` beside one of each sequence and session, and who answers."""
    counted = counts.select(*COUNT_KEY, *SUMMED)
    is_first = pl.struct(COUNT_KEY).is_first_distinct()
    with_counts = tallies.drop(SUMMED, "watched_ns", "answers_whole", "lost_messages", strict=False).sort("stream_id")
    first = with_counts.filter(is_first).join(counted, on=COUNT_KEY, how="left")
    rows = pl.concat([first, with_counts.filter(~is_first)], how="diagonal")
    return with_columns_of(TALLIES, rows.join(watched, on=SENDER_THERE, how="left"))


class TooManyToJudge(Exception):  # noqa: N818 - it is no error: Spark's tasks judge all
    """Says that there is not the memory in this process to judge all messages that are not settled."""

    @classmethod
    def check(cls, messages: int, most: int | None) -> None:
        """Raises it for more messages than `most`."""
        if most is not None and messages > most:
            raise cls(f"more messages are to be judged than there is memory for, {most:,}")


def settle(tallies: pl.DataFrame, touched: pl.DataFrame, came: pl.DataFrame, now: Now, most: int | None) -> Frames:
    """Returns the `tallies` that stay, `messages` and `flows` to judge, and where scopes are `resumed`.

    Messages on unknown legs are among them, as they may be missing elsewhere. `behind` are rows of BEHIND. `tallies`
    are those that the last replay left, `touched` rows of `find_touched`, `came` the messages that are new.

    Raises:
        TooManyToJudge: more than `most` are to be judged.
    """
    possible = find_cuts(tallies, now)
    while True:
        begins = touched.group_by("scope_key").agg(pl.min("sequence", "ns"))
        cuts = (
            possible.join(begins, on="scope_key", suffix="_touched")
            .filter(pl.col("sequence") <= pl.col("sequence_touched"), pl.col("first_ns") < pl.col("ns"))
            .sort("sequence")
            .unique("scope_key", keep="last")
        )
        before_cut = tallies.join(cuts.select("scope_key", cut="sequence"), on="scope_key")
        kept = pl.concat(
            [
                tallies.join(begins, on="scope_key", how="anti"),
                before_cut.filter(pl.col("sequence") < pl.col("cut")).drop("cut"),
            ]
        )
        some = now.placed.join(kept.lazy(), on=SEQUENCE, how="anti")
        to_judge = (some if most is None else some.limit(most + 1)).collect()
        TooManyToJudge.check(to_judge.height, most)
        linked = pl.concat([_of_same_messages(to_judge, now), _of_same_transactions(to_judge, kept, came, now)])
        drawn_in = kept.filter(are_in(kept, to_judge.select(_OF_SENDER)) | are_in(kept, linked))
        if drawn_in.is_empty():
            break
        touched = pl.concat([touched, drawn_in.select(*SPAN, ns=pl.lit(NEVER))])
    behind = kept.group_by(ON_STREAM).agg(stream_offset=pl.max("last_offset"))
    on_legs = with_flow(now.messages, now.legs.lazy())
    return {
        "tallies": kept,
        "messages": pl.concat([to_judge.select(PLACE), on_legs.select(PLACE).collect()]),
        "flows": now.flows.join(to_judge, on=ON_STREAM, how="semi"),
        "resumed": _resumed(cuts),
        "behind": behind.join(to_judge, on=ON_STREAM, how="semi"),
    }


def _of_same_messages(to_judge: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns the sequences of all messages that share their ID with one that is judged."""
    asked = to_judge.lazy().select(_MESSAGE_ID).drop_nulls("message_id")
    return now.placed.join(asked, on=_MESSAGE_ID, how="semi", nulls_equal=True).select(SEQUENCE).unique().collect()


def _of_same_transactions(to_judge: pl.DataFrame, kept: pl.DataFrame, came: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns the sequences of messages that share a transaction ID with one that is judged.

    Not those of messages before it, if the sender surely used the ID again: what is judged of the ID has greater
    message IDs, and a use begins there (`_uses`), or the last use in `kept` sequences is whole and ends in these.
    """
    uses = _uses(to_judge, came)
    last = (
        now.transactions.join(uses.lazy().filter(~pl.col("begins")), on=TRANSACTION_ID, how="semi")
        .join(kept.lazy(), on=SEQUENCE, how="semi")
        .sort("instance")
        .group_by(TRANSACTION_ID)
        .agg(pl.last("torn"), pl.last("witness_keys").list.last().alias("key"))
        .collect()
    )
    whole = last.filter(~pl.col("torn")).join(to_judge.select(key=row_key()), on="key", how="anti")
    uses = uses.with_columns(pl.col("begins") | are_in(uses, whole.select(TRANSACTION_ID)))
    is_before = pl.col("begins") & (message_ordinal() < pl.col("first")) & pl.col("tx_last").is_not_null()
    sharing = now.placed.join(uses.lazy(), on=TRANSACTION_ID, nulls_equal=True)
    return sharing.filter(~is_before.fill_null(value=False)).select(SEQUENCE).unique().collect()


def _uses(to_judge: pl.DataFrame, came: pl.DataFrame) -> pl.DataFrame:
    """Returns per transaction ID the least ordinal of its messages, `first`, and whether a use `begins` there.

    `first` is null if one of them has none. A use begins with FM, where no number stands for two messages. So it must
    without the messages that `came`: otherwise the last replay counted some to an earlier use, whose row is wrong now.
    """
    ordinal, known = pl.col("ordinal"), pl.when(~pl.col("is_new")).then("ordinal")
    has_first = pl.col("tx_first").fill_null(value=False)
    has_one_a_slot = pl.struct(SLOT).n_unique() == pl.struct(*SLOT, "ordinal", "tx_first").n_unique()
    begins = (has_first.filter(of == of.min()).all() for of in (ordinal, known))
    return (
        to_judge.with_columns(ordinal=message_ordinal(), is_new=are_in(to_judge, came.select(PLACE)))
        .drop_nulls("tx_transaction_id")
        .group_by(TRANSACTION_ID)
        .agg(
            pl.when(~ordinal.is_null().any()).then(ordinal.min()).alias("first"),
            pl.all_horizontal(has_one_a_slot, *begins).alias("begins"),
        )
    )


def find_cuts(tallies: pl.DataFrame, now: Now) -> pl.DataFrame:
    """Returns the sequences before which a scope may be cut, each with what its first arrival says, and _BEFORE.

    All lower sequences come before it, the first arrival is later than theirs, and it `begins`. A scope without a cut
    has messages without a time; or of a sender with others on unknown legs, which may be missing anywhere; or was
    judged as if a range of unread bytes lay before each message (`marks.doubtful_scopes`).
    """
    untimed = now.placed.filter(pl.col("captured_ns").is_null()).select("scope_key").unique().collect()
    doubtful = tallies.group_by("scope_key").agg((pl.col("opening_missing") >= pl.col("first_order")).all())
    before = [
        pl.col(name).cum_max().forward_fill().shift(1).over("scope_key").alias(f"{name}_before") for name in _BEFORE
    ]
    messages_before = pl.col("messages").cum_sum().shift(1).over("scope_key")
    return (
        tallies.join(now.legs, on="source_queue_manager", how="anti", nulls_equal=True)
        .join(untimed, on="scope_key", how="anti")
        .join(doubtful.filter("opening_missing"), on="scope_key", how="anti")
        .group_by(SPAN)
        .agg(
            pl.sum("messages"),
            pl.max(*_BEFORE),
            pl.col(*_OPENING, "first_order").min_by("first_order"),
        )
        .sort(SPAN)
        .with_columns(*before, messages_before=messages_before)
        .filter(
            "begins",
            pl.col("last_order_before") == pl.col("messages_before"),
            pl.col("first_order") == pl.col("messages_before") + 1,
            pl.col("first_ns") > pl.col("last_captured_ns_before"),
        )
    )


def _resumed(cuts: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of RESUMED."""
    return cuts.select(
        "scope_key",
        state_sequence="opening_sequence",
        state_number="opening_number",
        last_order="last_order_before",
        moved_order="moved_order_before",
        last_sent="last_sent_before",
        began_ns="first_ns",
        missing="opening_missing",
    )
