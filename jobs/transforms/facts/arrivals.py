"""Finds the arrivals that a rule on messages may concern, with the neighbours that it compares them with.

The windows hold numbers only, and only of arrivals that a rule may concern: of plain ones in between, `replay_order`
and the next arrival's state say enough.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, BEFORE, name_hashes, nanoseconds, row_key, signed
from jobs.transforms.outcomes.rows import message_no, with_fate
from jobs.transforms.outcomes.slots import slot_no
from jobs.transforms.replay.acknowledgments import select_order_acks
from schemas.replay import Reason
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.replay.findings.finding import Arrival, Message
from udfs.replay.findings.on_messages import Chosen

_NS = 1_000_000_000
_SCOPE = ("scope_no", "scope_check")
_SEQUENCE = (*_SCOPE, "sequence")
_NUMBER = (*_SEQUENCE, "number")
_PLACE = "struct<sequence: bigint, number: bigint>"


def watched_sessions(ends: DataFrame, runs: DataFrame, acks: DataFrame, tallies: DataFrame) -> DataFrame:
    """Returns per session and original sender how long, and how completely, its OrderAcks could be seen.

    `watched_ns` is the time of the last segment of either direction; `answers_whole` says that no byte from
    the receiver is unread. Only senders in `tallies`, whose messages came on the session, have a row, and only where
    the captures hold an OrderAck for them: elsewhere acknowledgments may take another path. `runs` are those of
    `coverage.unread_ranges`, `acks` those of `acknowledgments.pair_acks`.
    """
    ends = ends.where("copy_of is null")
    unread = runs.select("stream_id", F.lit(True).alias("unread")).distinct()
    ways = (
        ends.join(unread, "stream_id", "left")
        .groupBy("session_id", "sender", "receiver")
        .agg(F.max("last_ns").alias("last_ns"), F.max("unread").isNull().alias("whole"))
    )
    back = ways.select(
        F.concat_ws("->", "receiver", "sender").alias("session_id"),
        F.col("last_ns").alias("back_ns"),
        F.col("whole").alias("answers_whole"),
    )
    pair = ["receiver", "source_queue_manager"]
    answered = select_order_acks(acks).select(*pair).distinct()
    # Without the sessions' own senders, each session of a receiver would meet all senders of that receiver.
    senders = tallies.select("session_id", "source_queue_manager").distinct()
    return (
        ways.join(back, "session_id")
        .join(senders, "session_id")
        .join(answered, pair, "left_semi")
        .select(
            "session_id",
            "source_queue_manager",
            F.greatest("last_ns", "back_ns").alias("watched_ns"),
            "answers_whole",
        )
    )


def with_neighbours(verdicts: DataFrame, watched: DataFrame, unusual: DataFrame | None) -> DataFrame:
    """Returns verdicts, without names, as rows of Arrival without `fate` and `is_sent_later`, but with `message_no`.

    Verdicts are those in `unusual` slots, all of their arrivals, and those with a late or missing acknowledgment; or
    all without `unusual`. The others are plain, so each of them sets the state that the next one meets. `watched` are
    the rows of `watched_sessions`.
    """
    in_scope = Window.partitionBy(*_SCOPE).orderBy("replay_order")
    # These share one sort.
    of_sequence = Window.partitionBy(*_SEQUENCE).orderBy("number", "content_hash", "replay_order")
    of_number = Window.partitionBy(*_NUMBER).orderBy("content_hash", "replay_order").rowsBetween(*ALL)
    of_message = Window.partitionBy(*_NUMBER, "content_hash").orderBy("replay_order")
    order, accepted, own = F.col("replay_order"), F.col("accepted"), F.struct("sequence", "number")
    moved, before, previous = F.coalesce("accepted", F.lit(True)), in_scope.rowsBetween(*BEFORE), F.col("previous")
    behind_plain = order - F.coalesce(F.lag(order).over(in_scope), F.lit(0)) > 1
    plain_setter, plain_highest = F.when(F.col("behind_plain"), order - 1), F.when(F.col("behind_plain"), F.col("met"))
    same_stream = previous["stream_no"] == F.col("stream_no")
    uncovered = F.coalesce(previous["acknowledged_ns"] >= F.col("captured_ns"), F.lit(True))
    return (
        _candidates(verdicts, watched, unusual)
        .withColumn("behind_plain", behind_plain)
        .select(
            "*",
            F.max(F.greatest(F.when(moved, order), plain_setter)).over(before).alias("set_by"),
            F.max(F.greatest(F.when(accepted, own), plain_highest)).over(before).alias("highest"),
            F.min(F.when(F.col("gap") > 0, F.struct("replay_order", "number", "gap")))
            .over(of_sequence.rowsBetween(*ALL))
            .alias("first_gap"),
            F.min(F.when(accepted, F.struct("replay_order", "content_hash"))).over(of_number).alias("accepted_as"),
            F.lag(F.struct("replay_order", "stream_no", "captured_ns", "acknowledged_ns"))
            .over(of_message)
            .alias("previous"),
            F.row_number().over(of_message).alias("arrivals"),
        )
        .withColumns(
            {
                "setter": F.greatest("set_by", plain_setter),
                "is_below_accepted": F.greatest("highest", plain_highest) > own,
                "acknowledged": F.col("acknowledged_ns").isNotNull(),
                "original": F.col("accepted_as.replay_order"),
                "original_hash": F.col("accepted_as.content_hash"),
                "previous_arrival": previous["replay_order"],
                "interval_s": F.when(same_stream & uncovered, (F.col("captured_ns") - previous["captured_ns"]) / _NS),
                "gap_order": F.col("first_gap.replay_order"),
                "gap_number": F.col("first_gap.number"),
                "gap_size": F.col("first_gap.gap"),
            }
        )
        .select("message_no", *(name for name in Arrival._fields if name not in {"fate", "is_sent_later"}))
    )


def _candidates(verdicts: DataFrame, watched: DataFrame, unusual: DataFrame | None) -> DataFrame:
    """Returns the verdicts that `with_neighbours` compares, reduced to numbers."""
    rows, is_chosen = verdicts.withColumn("acknowledged_ns", nanoseconds("acknowledged_at")), F.lit(True)
    late = F.col("acknowledged_ns").isNull() | (F.col("ack_latency_ms") > LATEST_ORDER_ACK_MS)
    lacks_timely_ack = F.col("accepted") & late
    if unusual is not None:
        is_unusual = F.col("unusual").isNotNull()
        marks = unusual.withColumn("unusual", F.lit(True))
        rows = rows.withColumn("slot_no", slot_no()).join(marks, "slot_no", "left")
        rows = rows.where(is_unusual | F.coalesce(lacks_timely_ack, F.lit(False)))  # few look for their session
        waited_ms = (F.col("watched_ns") - F.col("captured_ns")) / 1e6
        is_due = F.col("acknowledged_ns").isNotNull() | (waited_ms > LATEST_ORDER_ACK_MS)
        is_chosen = is_unusual | F.coalesce(lacks_timely_ack & F.col("answers_whole") & is_due, F.lit(False))
    state = F.struct(signed(F.col("incoming_tx_sequence_id")), "incoming_tx_sequence_number").cast(_PLACE)
    cause = F.when(F.col("final_ack_class").isNotNull(), F.xxhash64("final_ack_class", "destination_queue"))
    return (
        rows.join(watched, ["session_id", "source_queue_manager"], "left")
        .where(is_chosen)
        .select(
            *name_hashes("scope_key", prefix="scope"),
            F.xxhash64("stream_id").alias("stream_no"),
            message_no().alias("message_no"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            F.when(
                F.col("incoming_tx_sequence_id") == F.col("tx_sequence_id"), F.col("incoming_tx_sequence_number")
            ).alias("state_number"),
            F.col("gap_size").alias("gap"),
            state.alias("met"),
            cause.alias("cause"),
            *("replay_order", "captured_ns", "accepted", "verdict", "reason", "acknowledged_ns", "ack_latency_ms"),
            *("evidence", "explained_by", "final_ack_class", "content_hash", "watched_ns", "answers_whole"),
        )
    )


def with_fates(neighbours: DataFrame, verdicts: DataFrame, fates: DataFrame) -> DataFrame:
    """Returns rows of Arrival: the rows of `with_neighbours` with `fate` and `is_sent_later`."""
    complete = with_fate(neighbours, fates).join(sent_later(verdicts), [*_SCOPE, "replay_order"], "left")
    return complete.fillna(value=False, subset=["is_sent_later"]).select(*Arrival._fields)


def sent_later(verdicts: DataFrame) -> DataFrame:
    """Returns the refused messages that were sent no earlier than all accepted before them, as `is_sent_later`.

    They may show a sender that was restored, so only refusals below the receiver's state are looked at.
    """
    below_state = F.col("reason").isin(Reason.LATE.value, Reason.STALE_SEQUENCE.value)
    ordinal = F.substring_index("message_id", "\\", -1).cast("long")
    sent = F.when(F.col("sent_at").isNotNull(), F.struct(F.unix_seconds("sent_at").alias("s"), ordinal.alias("n")))
    place = (*name_hashes("scope_key", prefix="scope"), F.col("replay_order"), sent.alias("sent"))
    refused, accepted = verdicts.where(below_state).select(*place), verdicts.where("accepted").select(*place)
    scopes = refused.groupBy(*_SCOPE).agg(F.max("replay_order").alias("until"))
    before = Window.partitionBy(*_SCOPE).orderBy("replay_order").rowsBetween(*BEFORE)
    highest = F.max(F.when(~F.col("asks"), F.col("sent"))).over(before)
    return (
        accepted.join(F.broadcast(scopes), list(_SCOPE))
        .where("replay_order < until")
        .drop("until")
        .withColumn("asks", F.lit(False))
        .unionByName(refused.withColumn("asks", F.lit(True)))
        .withColumn("is_sent_later", F.col("sent") >= highest)
        .where("asks and is_sent_later")
        .select(*_SCOPE, "replay_order", "is_sent_later")
    )


def shown_messages(verdicts: DataFrame, chosen: DataFrame) -> DataFrame:
    """Returns rows of CHOSEN with the columns of Message."""
    renamed = {
        "found_at": "captured_at",
        "number": "tx_sequence_number",
        "previous": "previous_tx_sequence_number",
        "state_id": "incoming_tx_sequence_id",
        "state_number": "incoming_tx_sequence_number",
    }
    named = {"key": row_key()} | {name: F.col(column) for name, column in renamed.items()}
    messages = verdicts.select(
        *name_hashes("scope_key", prefix="scope"),
        "replay_order",
        *(named.get(name, F.col(name)).alias(name) for name in Message._fields),
    )
    return messages.join(chosen, [*_SCOPE, "replay_order"]).select(*Chosen._fields, *Message._fields)
