"""Counts what became of messages, and chooses those that a report lists."""

from collections.abc import Mapping

import polars as pl

from schemas.incidents import Cause
from schemas.outcomes import LOST, NOT_ACCEPTED, NOT_KNOWN, OUTCOMES, Outcome
from schemas.wire import LATEST_ORDER_ACK_NS
from schemas.witness import Shows
from udfs.frames.columns import (
    PLACE,
    SEQUENCE,
    address_of_stream,
    count_if,
    nanoseconds,
    tx_sequence,
    undecided,
)
from udfs.frames.derivation import derives
from udfs.frames.tables import schema_of
from udfs.replay.order.united import on_counting_streams
from udfs.replay.outcomes.counts import has_outcome
from udfs.replay.words import NS, one_or_many
from udfs.report.incidents import HARM
from udfs.report.rows import Row, first_of, place_in, with_nanoseconds

PLACED = (*HARM, "expired_unseen")
"""The words for what may have become of messages of which a headline says to which queue they went."""
FATES = ("", "pending", "lost")
"""What became of a message, as far as a picture shows it."""
LISTED_MESSAGES = 50
"""Messages that the page shows of each list."""
SAVED_MESSAGES = 5_000
"""Messages that the page holds of each list, to be searched and saved."""
LISTS: Mapping[str, tuple[Outcome, ...]] = {
    "lost": LOST,
    "pending": (Outcome.AWAITED, Outcome.PENDING),
    "unacknowledged": (Outcome.UNACKNOWLEDGED,),
    "unknown": NOT_KNOWN,
    "not_read": (Outcome.NOT_READ,),
    "expired_unseen": (Outcome.EXPIRED_UNSEEN,),
    "delivered_after_refusal": (Outcome.DELIVERED_AFTER_REFUSAL,),
}
"""The lists of messages in the report, and the outcomes that each shows, in this order."""
LIST_OF = {outcome.value: name for name, shown in LISTS.items() for outcome in shown}
"""The list that shows an outcome; outcomes in their order within each list."""
ACCEPTED = "accepted"
"""The list of the messages that were accepted where numbers were used twice; also their `outcome`."""
QUEUE = ["source_queue_manager", "destination_queue"]
OF_HARM = (
    *(*QUEUE, "message_id", "content_hash", "stuck", "lost", "outcome", "numbers", "first_seen_at", "next_resend_at"),
    *("contenders", "final_ack_class", "sent_at"),
)
"""Columns of OUTCOMES that `harm_by_queue` needs."""
_SUMS = ("resent", "silent", "twice", "by_clocks", "early")
_REFUSED = (Outcome.DISPLACED, Outcome.GIVEN_UP, Outcome.PASSED_BY)
_MACHINE = ["source_queue_manager", "address"]
_NOT_ACCEPTED = (Shows.REFUSED.value, Shows.DUPLICATE.value, Shows.NOT_JUDGED.value)
_WITNESS = schema_of(OUTCOMES.arrow)["witness"]
_IN_TIME = ("captured_at", *OUTCOMES.key)
ACCEPTED_AT = (*OUTCOMES.key, "stream_id", "captured_at", "accepted")
"""Columns of VERDICTS that tell which arrivals were accepted since a time."""
SHOWN = (*dict.fromkeys((*ACCEPTED_AT, *PLACE)), "session_id", "destination_queue", "label")
"""Columns of VERDICTS that the list ACCEPTED needs."""


def with_fate(verdicts: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Adds `fate`: one of the FATES of the message, "" where it is neither lost nor pending."""
    fate = pl.when("lost").then(pl.lit(FATES[2])).when(has_outcome([Outcome.PENDING])).then(pl.lit(FATES[1]))
    known = outcomes.select(*OUTCOMES.key, fate.alias("fate")).drop_nulls(("message_id", "fate"))
    # Few messages have a fate: their hashes are looked for first, as comparing all six columns of all rows takes long.
    maybe = pl.col("content_hash").is_in(known["content_hash"].implode())
    found = verdicts.select(*OUTCOMES.key).with_row_index("row").filter(maybe).join(known, on=OUTCOMES.key)
    rows = verdicts.with_row_index("row").join(found.select("row", "fate"), on="row", how="left", maintain_order="left")
    return rows.drop("row").with_columns(pl.col("fate").fill_null(FATES[0]))


@derives(tuple(QUEUE), columns={"outcomes": OF_HARM})
def harm_by_queue(outcomes: pl.DataFrame, *, begun_ns: int | None, until_ns: int | None) -> pl.DataFrame:
    """Returns per sender and queue how many messages each of PLACED counts, and since when (`…_since`).

    Awaited messages are `pending`, too, and contradicted ones `unknown`.

    `resent` counts the unacknowledged ones that their sender still sends when the captures end, at `until_ns`, and
    `silent` those that it would have sent again by then and did not, nor anything else. `twice` counts the messages
    that were delivered twice, each once, `undecided` those that were lost although nothing tells which, and `by_clocks`
    the messages whose outcome depends on clocks that nothing compares. `early` counts the lost messages that may have
    been delivered before the captures begin, at `begun_ns`. `classes` are those of the FinalAcks that say why messages
    were refused.
    """
    next_ns = nanoseconds(pl.col("next_resend_at"))
    is_still_sent = pl.lit(True) if until_ns is None else next_ns >= until_ns - LATEST_ORDER_ACK_NS
    twice = pl.struct("message_id", "content_hash").filter(has_outcome([Outcome.DELIVERED_TWICE]))
    outcomes = outcomes.with_columns(
        *(has_outcome(LISTS[name]).alias(name) for name in PLACED if name not in outcomes.columns)
    )
    return outcomes.group_by(QUEUE).agg(
        *(pl.col("numbers").filter(name).sum().alias(name) for name in PLACED),
        count_if(next_ns.is_not_null() & is_still_sent).alias("resent"),
        count_if(next_ns.is_not_null() & ~is_still_sent).alias("silent"),
        twice.n_unique().cast(pl.Int64).alias("twice"),
        undecided().alias("undecided"),
        count_if(pl.col("contenders").is_not_null()).alias("by_clocks"),
        count_if(may_be_earlier(begun_ns)).alias("early"),
        pl.col("final_ack_class").filter(has_outcome([Outcome.REFUSED_FOR_CAUSE])).unique().alias("classes"),
        *(pl.col("first_seen_at").filter(name).min().alias(f"{name}_since") for name in PLACED),
    )


def may_be_earlier(begun_ns: int | None) -> pl.Expr:
    """Returns whether a message that was refused may have been accepted before the captures begin, at `begun_ns`.

    By its sender's clock it was sent before; so an arrival before those that were captured may have been accepted.
    """
    if begun_ns is None:
        return pl.lit(value=False)
    was_sent = nanoseconds(pl.col("sent_at")) < begun_ns // NS * NS
    return has_outcome(_REFUSED) & was_sent.fill_null(value=False)


def early_in_words(messages: int) -> str:
    """Returns that so many of the lost messages may have been delivered before the captures begin."""
    were = f"{messages:,} of them {one_or_many(messages, 'was', 'were')}"
    taken = "sent before the captures begin, and may have been taken then"
    look = "before sending again, look into the queue, and whether the application has them already"
    return f"{were} {taken}: {look}." if messages else ""


def places(queues: pl.DataFrame) -> Row:
    """Returns since when messages are lost (`lost_since_ns`), to which queue the most (`lost_queue`), and how many.

    These are `lost_in_queue`; `lost` is the number of all, `lost_queues` the number of queues. The same of each of
    PLACED; and the sums of the other figures of `harm_by_queue`, of which `queues` are rows.
    """
    queue = pl.col("destination_queue")
    of_queue = queues.group_by(queue).agg(
        *(pl.col(name).sum() for name in (*PLACED, *_SUMS, "undecided")),
        pl.col("classes").explode().drop_nulls().unique(),
        *(pl.col(f"{name}_since").min() for name in PLACED),
    )
    found = of_queue.select(
        *(pl.col(name).sum() for name in (*PLACED, *_SUMS)),
        pl.col("undecided").sum().round().cast(pl.Int64),
        pl.col("classes").explode().drop_nulls().unique().sort().implode(),
        *(nanoseconds(pl.col(f"{name}_since").min()).alias(f"{name}_since_ns") for name in PLACED),
        *(queue.sort_by(name, "destination_queue").last().alias(f"{name}_queue") for name in PLACED),
        *(pl.col(name).max().alias(f"{name}_in_queue") for name in PLACED),
        *(count_if(pl.col(name) > 0).alias(f"{name}_queues") for name in PLACED),
    )
    return found.row(0, named=True)


def worst_messages(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns the worst messages of each outcome in the LISTS, as many as a list may hold, stuck ones first."""
    shown = outcomes.filter(pl.col("outcome").is_in(list(LIST_OF)))
    order = ("stuck", "first_seen_at", *SEQUENCE, "tx_sequence_number", "message_id", "content_hash")
    return first_of(shown, "outcome", order, [name == "stuck" for name in order], SAVED_MESSAGES)


def listed_messages(worst: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns `worst_messages` by `list`: of each outcome the worst, then of each the next one, and so on.

    `first_ns` and `last_ns` are the times of arrivals, `address` is where the first one came from; null where none did.
    """
    turns = worst.with_columns(
        pl.col("outcome").replace_strict(LIST_OF, return_dtype=pl.String).alias("list"),
        pl.int_range(pl.len()).over("outcome").alias("turn"),
        tx_sequence(pl.col("tx_sequence_id")).alias("tx_sequence"),
        pl.when(pl.col("message_id").is_not_null()).then(first_own()).struct["stream_id"],
    )
    timed = with_nanoseconds(with_address(turns, copies), first_ns="first_seen_at", last_ns="last_seen_at")
    order = ("list", "turn", place_in(list(LIST_OF), "outcome"))
    listed = first_of(timed, "list", order, [False] * len(order), SAVED_MESSAGES)
    return listed.drop("turn", "stream_id", "accepted_at")


def first_own() -> pl.Expr:
    """Returns the packet of a witness that is the first arrival of its message.

    Of a message that was refused, the accepted ones are others: those that took its number or came after it.
    """
    role = pl.element().struct["role"]
    own = (pl.element().filter(which) for which in (role.is_in(_NOT_ACCEPTED), role == Shows.ACCEPTED.value))
    return pl.coalesce(*(pl.col("witness").list.eval(one).list.first() for one in own))


def conflicts(incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns `since` when each `source_queue_manager` used numbers again for different messages.

    That is when the suspected copy was first seen or, where none is suspected, when the incident began.
    """
    reused = incidents.filter(pl.col("cause") == Cause.NUMBER_REUSED.value)
    suspected = pl.col("senders").list.eval(
        pl.when(pl.element().struct["suspected"]).then(pl.element().struct["first_seen_at"])
    )
    since = pl.coalesce(suspected.list.min(), "began_at").alias("since")
    return reused.select("source_queue_manager", since).group_by("source_queue_manager").agg(pl.min("since"))


@derives(shared=("since",), columns={"outcomes": (*OUTCOMES.key, "outcome")}, in_parts=True)
def not_accepted(outcomes: pl.DataFrame, since: pl.DataFrame) -> pl.DataFrame:
    """Returns OUTCOMES.key of the messages of such senders that do not count as accepted, whatever the rule says."""
    denied = outcomes.filter(has_outcome(NOT_ACCEPTED), pl.col("message_id").is_not_null())
    return denied.join(since, on="source_queue_manager", how="semi").select(OUTCOMES.key)


@derives(shared=("copies",), in_parts=True)
def with_address(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Adds the `address` that each row comes from, on the stream that counts; `copies` are streams captured twice."""
    return rows.with_columns(on_counting_streams(rows, copies).select(address_of_stream().alias("address")))


@derives(shared=("copies",), in_parts=True)
def first_accepted(accepted: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the first of some accepted arrivals, of each `address` as many as a list may hold."""
    return merge_accepted(with_address(accepted, copies).drop("accepted"))


@derives(_MACHINE)
def merge_accepted(accepted: pl.DataFrame) -> pl.DataFrame:
    """Returns the first messages of each `address`, of what `first_accepted` found in parts."""
    return first_of(accepted, _MACHINE, _IN_TIME, [False] * len(_IN_TIME), SAVED_MESSAGES)


def accepted_by_sender(incidents: pl.DataFrame, counts: pl.DataFrame) -> dict[str, Row]:
    """Returns of each sender `since_ns`, when its `conflicts` began, and the `messages` accepted since, by address.

    `counts` are rows of `flow.accepted_since`.
    """
    since = with_nanoseconds(conflicts(incidents), since_ns="since")
    found: dict[str, Row] = {sender: {"since_ns": ns, "messages": {}} for sender, ns in since.iter_rows()}
    for sender, address, messages in counts.group_by(_MACHINE).agg(pl.sum("messages")).sort("address").iter_rows():
        found[sender]["messages"][address] = messages
    return found


def accepted_messages(accepted: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of `merge_accepted` as rows of the list ACCEPTED, those of suspected machines first.

    They have the columns of `listed_messages` that an accepted message has.
    """
    senders = incidents.select("source_queue_manager", "senders").explode("senders").unnest("senders")
    copies = senders.filter("suspected").select(_MACHINE).unique().with_columns(copy=True)
    at = nanoseconds(pl.col("captured_at"))
    return (
        accepted.join(copies, on=_MACHINE, how="left")
        .sort(pl.col("copy").is_null(), "address", "captured_at", *OUTCOMES.key)
        .with_columns(
            *(pl.lit(ACCEPTED).alias(name) for name in ("list", "outcome")),
            *(at.alias(name) for name in ("first_ns", "last_ns")),
            *(pl.lit(1, pl.Int64).alias(name) for name in ("numbers", "arrivals")),
            pl.lit(value=False).alias("stuck"),
            pl.lit("").alias("explanation"),
            pl.concat_list(pl.struct(PLACE)).cast(_WITNESS).alias("witness"),
            tx_sequence(pl.col("tx_sequence_id")).alias("tx_sequence"),
        )
        .drop("copy", "captured_at", *PLACE)
    )
