"""Counts what became of messages, and chooses those that a report lists."""

from collections.abc import Mapping

import polars as pl

from schemas.incidents import Cause
from schemas.ingest import PacketType
from schemas.outcomes import LOSS_UNKNOWN, LOST, OUTCOMES, Outcome, count_column
from schemas.replay import Verdict
from udfs.derive.columns import PLACE, SEQUENCE, address_of_stream, count, count_if, nanoseconds, tx_sequence
from udfs.derive.frames import Frames, derives
from udfs.derive.outcomes.counts import has_outcome
from udfs.derive.report.rows import first_of, place_in, with_nanoseconds
from udfs.derive.tables import schema_of

FATES = ("", "pending", "lost")
"""What became of a message, as far as a picture shows it."""
LISTS: Mapping[str, tuple[Outcome, ...]] = {
    "lost": LOST,
    "pending": (Outcome.AWAITED, Outcome.PENDING),
    "unknown": LOSS_UNKNOWN,
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
_HARM = ("lost", "stuck")
_MACHINE = ["source_queue_manager", "address"]
_WITNESS = schema_of(OUTCOMES.arrow)["witness"]
_IN_TIME = ("captured_at", *OUTCOMES.key)
SHOWN = (*OUTCOMES.key, "session_id", "destination_queue", "label", *PLACE, "captured_at")


def fates(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns the key of each message that is lost or pending, with `fate`: one of the FATES."""
    fate = pl.when("lost").then(pl.lit(FATES[2])).when(has_outcome([Outcome.PENDING])).then(pl.lit(FATES[1]))
    return outcomes.select(*OUTCOMES.key, fate.alias("fate")).filter(
        pl.col("fate").is_not_null() & pl.col("message_id").is_not_null()
    )


def with_fate(verdicts: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Adds `fate`: one of the FATES of the message, "" where it is neither lost nor pending."""
    known = fates(outcomes)
    # Few messages have a fate: their hashes are looked for first, as comparing all six columns of all rows takes long.
    maybe = pl.col("content_hash").is_in(known["content_hash"].implode())
    found = verdicts.select(*OUTCOMES.key).with_row_index("row").filter(maybe).join(known, on=OUTCOMES.key)
    rows = verdicts.select(pl.int_range(pl.len(), dtype=pl.get_index_type()).alias("row"))
    fate = rows.join(found.select("row", "fate"), on="row", how="left", maintain_order="left")["fate"]
    return verdicts.with_columns(fate.fill_null(FATES[0]))


def step_of(first_ns: int, step_ns: int) -> pl.Expr:
    """Returns the step of `step_ns` from `first_ns` on in which a message was captured: 0, 1, …."""
    return ((pl.col("captured_ns") - first_ns) // step_ns).alias("step")


def outcome_counts(sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns one row with the number of messages of each outcome, and `told`: not under the literal reading."""
    return sequences.select(
        *(pl.col(count_column(outcome)).sum() for outcome in Outcome),
        pl.col(Outcome.DELIVERED.value).is_not_null().all().alias("told"),
    )


@derives(tuple(QUEUE))
def harm_by_queue(outcomes: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Returns per sender and queue how many messages are `lost` and `stuck`, and since when, as `…_since`."""
    return outcomes.group_by(*by, *QUEUE).agg(
        pl.col("numbers").filter("lost").sum().alias("lost"),
        count_if("stuck").alias("stuck"),
        *(pl.col("first_seen_at").filter(name).min().alias(f"{name}_since") for name in _HARM),
    )


def summed_harm(queues: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Returns rows of `harm_by_queue` with one row for each of these columns' values."""
    return queues.group_by(*by).agg(
        *(pl.col(name).sum() for name in _HARM), *(pl.col(f"{name}_since").min() for name in _HARM)
    )


def places(queues: pl.DataFrame) -> pl.DataFrame:
    """Returns one row: since when messages are lost (`lost_since_ns`) and to which queue the most (`lost_queue`).

    `lost` is their number, `lost_queues` the number of queues. The same of the messages that are `stuck`. `queues` are
    rows of `harm_by_queue`.
    """
    of_queue = summed_harm(queues, "destination_queue")
    queue = pl.col("destination_queue")
    return of_queue.select(
        *(pl.col(name).sum() for name in _HARM),
        *(nanoseconds(pl.col(f"{name}_since").min()).alias(f"{name}_since_ns") for name in _HARM),
        *(queue.sort_by(name, "destination_queue").last().alias(f"{name}_queue") for name in _HARM),
        *(count_if(pl.col(name) > 0).alias(f"{name}_queues") for name in _HARM),
    )


def final_acks(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns one row, whether `any` FinalAck was captured: without one, no capture tells what was read.

    Each `ack_type` once suffices.
    """
    return acks.select((pl.col("ack_type") == PacketType.FINAL_ACK.value).any().alias("any"))


def unjudged_messages(sessions: pl.DataFrame) -> pl.DataFrame:
    """Returns one row: transactional messages that were `passing_through`, and the others that have no verdict."""
    judged = pl.sum_horizontal(*(pl.col(verdict.value) for verdict in Verdict), ignore_nulls=False)
    passing = pl.col("passing_through")
    return sessions.select(passing.sum(), (pl.col("transactional") - passing - judged).sum().alias("unjudged"))


def worst_messages(outcomes: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the `limit` worst messages of each outcome in the LISTS, stuck ones first.

    `place` is 1, 2, … within the outcome.
    """
    shown = outcomes.filter(pl.col("outcome").is_in(list(LIST_OF)))
    order = ("stuck", "first_seen_at", *SEQUENCE, "tx_sequence_number", "message_id", "content_hash")
    return first_of(shown, "outcome", order, [name == "stuck" for name in order], limit)


def listed_messages(outcomes: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns `worst_messages` in the order of each `list`: the worst of each of its outcomes, then the next ones.

    `first_ns` and `last_ns` are the times of arrivals.
    """
    chosen = worst_messages(outcomes, limit).with_columns(
        pl.col("outcome").replace_strict(LIST_OF, return_dtype=pl.String).alias("list"),
        tx_sequence(pl.col("tx_sequence_id")).alias("tx_sequence"),
    )
    return (
        with_nanoseconds(chosen, first_ns="first_seen_at", last_ns="last_seen_at")
        .drop("accepted_at")
        .sort("list", "place", place_in(list(LIST_OF), "outcome"))
    )


def take_turns(listed: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns at most `limit` rows of each list: from `listed_messages`, one of each outcome in turn."""
    return listed.filter(pl.int_range(pl.len()).over("list") < limit)


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


@derives(("stream_id",), ("since",))
def accepted_since(verdicts: pl.DataFrame, since: pl.DataFrame, limit: int) -> Frames:
    """Returns the messages that were `accepted` since the `conflicts` of their sender began, and their `counts`.

    Of each sender and `address` these are the first `limit`, each once.
    """
    late = verdicts.filter("accepted").join(since, on="source_queue_manager")
    found = late.filter(pl.col("captured_at") >= pl.col("since")).with_columns(address_of_stream().alias("address"))
    once = found.sort(_IN_TIME).unique([*OUTCOMES.key, "address"], keep="first", maintain_order=True)
    return {
        "accepted": first_accepted(once.select(*SHOWN, "address"), limit),
        "counts": once.group_by(_MACHINE).agg(count().alias("messages")),
    }


def accepted_counts(counts: pl.DataFrame) -> pl.DataFrame:
    """Returns the `messages` of each sender and address, of the `counts` of `accepted_since`."""
    return counts.group_by(_MACHINE).agg(pl.sum("messages"))


def first_accepted(accepted: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the first `limit` rows of each sender and address."""
    return first_of(accepted, _MACHINE, _IN_TIME, [False] * len(_IN_TIME), limit).drop("place")


def accepted_messages(accepted: pl.DataFrame, incidents: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the first of what `accepted_since` found as rows of the list ACCEPTED, those of suspected machines first.

    They have the columns of `listed_messages` that an accepted message has.
    """
    senders = incidents.select("source_queue_manager", "senders").explode("senders").unnest("senders")
    copies = senders.filter("suspected").select(_MACHINE).unique().with_columns(copy=True)
    at = nanoseconds(pl.col("captured_at"))
    return (
        first_accepted(accepted, limit)
        .join(copies, on=_MACHINE, how="left")
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
        .drop("copy", "address", "captured_at", *PLACE)
    )
