"""Finds messages that a rule of `message_rules` concerns, and assembles all findings.

A rule looks at one verdict and its neighbours in the scope, so that one pass of windows serves all rules. The windows
hold numbers only, and only of arrivals that a rule may concern: of plain ones in between, `replay_order` and the next
arrival's state say enough. The rows that sentences and witnesses need are joined afterwards, for the few messages
shown.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import (
    ALL,
    BEFORE,
    columns_of,
    name_hashes,
    nanoseconds,
    null,
    row_key,
    signed,
    tx_sequence,
)
from jobs.transforms.findings.acks import not_received_by_application, repeated_order_acks
from jobs.transforms.findings.message_rules import (
    BY_CAUSE,
    lacks_timely_acknowledgment,
    late_acknowledgment,
    may_have_regressed,
    message_rules,
    not_acknowledged,
)
from jobs.transforms.findings.model import NS, MessageRule, choose, sentence
from jobs.transforms.findings.senders import expired_on_arrival, ordinal_regressed, two_addresses
from jobs.transforms.findings.transactions import broken_transactions
from jobs.transforms.outcomes.rows import message_no, with_fate
from jobs.transforms.outcomes.slots import slot_no
from jobs.transforms.replay.acknowledgments import select_order_acks
from schemas.replay import FINDINGS, FindingKind, Severity, Verdict

_INTERVALS_SHOWN = 12
_ATTEMPTS_SHOWN = 20
_RESEND_S = (30, 300, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1
_RESEND_TOLERANCE = 0.1  # of the interval
_SCOPE = ("scope_no", "scope_check")
_SEQUENCE = (*_SCOPE, "sequence")
_NUMBER = (*_SEQUENCE, "tx_sequence_number")
_PLACE = "struct<sequence: bigint, tx_sequence_number: bigint>"
_ROLES = ("first", "setter", "original", "previous_arrival")
_SEVERITIES = [severity.value for severity in Severity]
_MARKS = (
    *("replay_order", "captured_ns", "tx_sequence_number", "incoming_tx_sequence_number", "accepted", "verdict"),
    *("reason", "gap_size", "ack_latency_ms", "evidence", "explained_by", "final_ack_class", "content_hash"),
    *("session_watched_ns", "answers_whole"),
)
"""Columns that rules test."""
_SHOWN = (
    *("captured_at", "captured_ns", "session_id", "scope_key", "destination_queue", "message_id", "accepted"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "incoming_tx_sequence_id"),
    *("incoming_tx_sequence_number", "gap_size", "ack_latency_ms", "final_ack_class", "sent", "highest_sent", "key"),
)
"""Columns of messages that sentences and witnesses are made of."""


class Suspects(NamedTuple):
    """Holds the few messages that some rules concern, best checkpointed: without any, the rules read no others."""

    late: DataFrame
    """`outlived_messages`."""
    fallen: DataFrame
    """`fallen_ordinals`."""
    negative: DataFrame
    """`negative_acks`."""


def collect_findings(found: Iterable[DataFrame]) -> DataFrame:
    """Returns one row of FINDINGS per kind, severity, session, scope, queue and sequence, as far as the kind has one.

    A kind leaves out the columns in which its findings are null. `incident_id` is null: `jobs.transforms.incidents`
    finds it.
    """
    rows = reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), found)
    return rows.withColumns(
        {
            "witness": F.array_compact("witness"),
            "tx_sequence": tx_sequence(F.col("tx_sequence_id")),
            "incident_id": null("string"),
        }
    ).select(columns_of(FINDINGS))


def other_findings(
    messages: DataFrame,
    ends: DataFrame,
    acks: DataFrame,
    verdicts: DataFrame,
    sequences: DataFrame,
    transactions: DataFrame,
    suspects: Suspects,
) -> list[DataFrame]:
    """Returns, by kind, the findings on what no single verdict shows.

    `acks` are those of `acknowledgments.pair_acks`; the others are tables.
    """
    return [
        expired_on_arrival(suspects.late, ends, verdicts),
        ordinal_regressed(messages, suspects.fallen, ends, sequences),
        two_addresses(ends.where("copy_of is null"), verdicts),
        repeated_order_acks(acks, verdicts, sequences),
        not_received_by_application(messages, suspects.negative, ends),
        broken_transactions(transactions),
    ]


def watched_sessions(ends: DataFrame, runs: DataFrame, acks: DataFrame, tallies: DataFrame) -> DataFrame:
    """Returns per session and original sender how long, and how completely, its OrderAcks could be seen.

    `session_watched_ns` is the time of the last segment of either direction; `answers_whole` says that no byte from
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
            F.greatest("last_ns", "back_ns").alias("session_watched_ns"),
            "answers_whole",
        )
    )


def with_neighbours(verdicts: DataFrame, watched: DataFrame, unusual: DataFrame | None) -> DataFrame:
    """Returns verdicts, without names, with the neighbours that rules compare them with, each by its `replay_order`.

    `setter`: the message that set the state it met. `highest`: the highest number accepted before. `original`: the
    arrival that the receiver accepted under the number, whatever its content. `previous_arrival`: the last arrival of
    the same message, and `arrivals` their number so far. `interval_s`: the time since the previous arrival on the same
    stream, where no OrderAck covered it in between. `first_gap`: the first message of the sequence accepted over
    skipped numbers.

    Verdicts are those in `unusual` slots, all of their arrivals, and those with a late or missing acknowledgment; or
    all without `unusual`. The others are plain, so each of them sets the state that the next one meets. `watched` are
    the rows of `watched_sessions`, best checkpointed.
    """
    in_scope = Window.partitionBy(*_SCOPE).orderBy("replay_order")
    # These share one sort.
    of_sequence = Window.partitionBy(*_SEQUENCE).orderBy("tx_sequence_number", "content_hash", "replay_order")
    of_number = Window.partitionBy(*_NUMBER).orderBy("content_hash", "replay_order").rowsBetween(*ALL)
    of_message = Window.partitionBy(*_NUMBER, "content_hash").orderBy("replay_order")
    order, accepted, place = F.col("replay_order"), F.col("accepted"), F.struct("sequence", "tx_sequence_number")
    moved, before, previous = F.coalesce("accepted", F.lit(True)), in_scope.rowsBetween(*BEFORE), "previous_arrival"
    uncovered = F.coalesce(F.col(f"{previous}.acknowledged_ns") >= F.col("captured_ns"), F.lit(True))
    resend = F.when(F.col("interval_s").isNotNull(), F.struct("replay_order", "tx_sequence_number", "content_hash"))
    behind_plain = order - F.coalesce(F.lag(order).over(in_scope), F.lit(0)) > 1
    state = F.struct(signed(F.col("incoming_tx_sequence_id")), "incoming_tx_sequence_number").cast(_PLACE)
    plain_setter, plain_highest = F.when(F.col("behind_plain"), order - 1), F.when(F.col("behind_plain"), F.col("met"))
    candidates, is_chosen = verdicts.withColumn("acknowledged_ns", nanoseconds("acknowledged_at")), F.lit(True)
    if unusual is not None:
        is_unusual = F.col("unusual").isNotNull()
        marks = unusual.withColumn("unusual", F.lit(True))
        candidates = (  # so that few messages look for how long their session was watched
            candidates.withColumn("slot_no", slot_no())
            .join(marks, "slot_no", "left")
            .where(is_unusual | F.coalesce(lacks_timely_acknowledgment(), F.lit(False)))
        )
        is_chosen = is_unusual | F.coalesce(not_acknowledged() | late_acknowledgment(), F.lit(False))
    chosen = candidates.join(watched, ["session_id", "source_queue_manager"], "left").where(is_chosen)
    return (
        chosen.select(
            *name_hashes("scope_key", prefix="scope"),
            F.xxhash64("stream_id").alias("stream_no"),
            message_no().alias("message_no"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            "acknowledged_ns",
            sent_as().alias("sent"),
            state.alias("met"),
            F.when(F.col("final_ack_class").isNotNull(), F.xxhash64("final_ack_class", "destination_queue")).alias(
                "cause"
            ),
            *_MARKS,
        )
        .select("*", behind_plain.alias("behind_plain"))
        .select(
            "*",
            F.max(F.greatest(F.when(moved, order), plain_setter)).over(before).alias("setter"),
            F.max(F.greatest(F.when(accepted, place), plain_highest)).over(before).alias("highest"),
            F.min(F.when(F.col("gap_size") > 0, F.struct("replay_order", "tx_sequence_number", "gap_size")))
            .over(of_sequence.rowsBetween(*ALL))
            .alias("first_gap"),
            F.min(F.when(accepted, F.struct("replay_order", "content_hash"))).over(of_number).alias("original"),
            F.lag(F.struct("replay_order", "stream_no", "captured_ns", "acknowledged_ns"))
            .over(of_message)
            .alias(previous),
            F.row_number().over(of_message).alias("arrivals"),
        )
        .withColumn("setter", F.greatest("setter", plain_setter))
        .withColumn("highest", F.greatest("highest", plain_highest))
        .withColumn(
            "interval_s",
            F.when(
                (F.col(f"{previous}.stream_no") == F.col("stream_no")) & uncovered,
                (F.col("captured_ns") - F.col(f"{previous}.captured_ns")) / NS,
            ),
        )
        .withColumn("first_resend", F.min(resend).over(of_sequence.rowsBetween(*ALL)))
        .withColumn("resent", F.struct("first_resend.tx_sequence_number", "first_resend.content_hash"))
        .drop("met", "behind_plain")
    )


def highest_sent(verdicts: DataFrame, neighbours: DataFrame) -> DataFrame:
    """Returns per scope and `replay_order` the latest (SentTime, ordinal) accepted before, where a rule asks for it."""
    asking = neighbours.where(may_have_regressed()).select(*_SCOPE, "replay_order")
    scopes = asking.groupBy(*_SCOPE).agg(F.max("replay_order").alias("until"))
    before = Window.partitionBy(*_SCOPE).orderBy("replay_order").rowsBetween(*BEFORE)
    highest = F.max("sent").over(before).alias("highest_sent")
    return (
        verdicts.where("accepted")
        .select(*name_hashes("scope_key", prefix="scope"), "replay_order", sent_as().alias("sent"))
        .join(F.broadcast(scopes), list(_SCOPE))
        .where("replay_order < until")
        .unionByName(asking, allowMissingColumns=True)
        .select(*_SCOPE, "replay_order", highest, "until")
        .where("until is null")
        .drop("until")
    )


def sent_as() -> Column:
    """Returns when, and in which order, the sender sent a message; null without a SentTime."""
    ordinal = F.substring_index("message_id", "\\", -1).cast("long")
    return F.when(F.col("sent_at").isNotNull(), F.struct(F.unix_seconds("sent_at").alias("s"), ordinal.alias("n")))


def concerned_messages(verdicts: DataFrame, neighbours: DataFrame, fates: DataFrame) -> DataFrame:
    """Returns the messages that findings show: one row per scope, sequence, kind, `replay_order` and `role`.

    Kinds in BY_CAUSE also have one per `cause`, a hash of the class of the FinalAck and the queue.
    The `first` message stands for all; the other roles are its neighbours, and `attempt`: refused messages whose
    numbers the sender skipped afterwards. Beside them stand the figures of the finding: `messages`, `severity`,
    `repaired`, `lost`, `intervals`. `neighbours` are the rows of `with_neighbours`, best checkpointed, and `fates`
    those of `message_fates`.
    """
    number, gap, order = F.col("tx_sequence_number"), F.col("first_gap"), F.col("replay_order")
    attempt = (
        (F.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (order < gap["replay_order"])
        & (number < gap["tx_sequence_number"])
        & (number >= gap["tx_sequence_number"] - F.least(gap["gap_size"], F.lit(_ATTEMPTS_SHOWN)))
    )
    rules = message_rules()
    found = [
        *(_found(rule.when, rule.kind, _gravity(rule.severity)) for rule in rules),
        _found(attempt, FindingKind.GAP_EXPIRED, F.lit(None).cast("int")),
    ]
    any_found = reduce(Column.__or__, (F.coalesce(when, F.lit(False)) for when in (*(r.when for r in rules), attempt)))
    is_concerned, is_resend = F.col("gravity").isNotNull(), F.col("kind") == FindingKind.RESEND_SCHEDULE.value
    interval = F.when(is_resend & (F.col("arrivals") <= _INTERVALS_SHOWN + 1), F.struct(order, "interval_s"))
    first = F.struct(
        order.alias("first"),
        "setter",
        F.col("original.replay_order").alias("original"),
        F.col("previous_arrival.replay_order").alias("previous_arrival"),
        *("session_watched_ns", "sent", "highest_sent"),
    )

    def shown(role: str, place: Column) -> Column:
        return F.struct(F.lit(role).alias("role"), place.alias("replay_order"))

    complete = neighbours.join(highest_sent(verdicts, neighbours), [*_SCOPE, "replay_order"], "left")
    perhaps = complete.withColumn("fate", F.lit("pending")).where(any_found).drop("fate")
    return (
        with_fate(perhaps, fates)
        .withColumn("found", F.explode(F.array_compact(F.array(*found))))
        .select("*", "found.*")
        .withColumn("cause", F.when(F.col("kind").isin(*BY_CAUSE), F.col("cause")))
        .groupBy("kind", *_SEQUENCE, "cause")
        .agg(
            F.count("gravity").alias("messages"),
            F.element_at(F.array(*map(F.lit, _SEVERITIES)), F.max("gravity") + 1).alias("severity"),
            F.count_if(is_concerned & (F.col("fate") == "delivered")).alias("repaired"),
            F.count_if(is_concerned & (F.col("fate") == "lost")).alias("lost"),
            F.min_by(first, F.when(is_concerned, order)).alias("first"),
            F.collect_set(F.when(~is_concerned, order)).alias("attempts"),
            F.sort_array(F.collect_list(interval))["interval_s"].alias("intervals"),
        )
        .select(
            *("kind", *_SEQUENCE, "cause", "messages", "severity", "repaired", "lost", "intervals"),
            *("first.session_watched_ns", "first.sent", "first.highest_sent"),
            F.explode(
                F.concat(
                    F.array(*(shown(role, F.col(f"first.{role}")) for role in _ROLES)),
                    F.transform("attempts", lambda place: shown("attempt", place)),
                )
            ).alias("shown"),
        )
        .select("*", "shown.*")
        .drop("shown")
        .where(F.col("replay_order").isNotNull())
    )


def _gravity(severity: Severity | Column) -> Column:
    """The place of a severity in the enum."""
    name = F.lit(severity.value) if isinstance(severity, Severity) else severity
    return (F.array_position(F.array(*map(F.lit, _SEVERITIES)), name) - 1).cast("int")


def _found(when: Column, kind: FindingKind, gravity: Column) -> Column:
    return F.when(when, F.struct(F.lit(kind.value).alias("kind"), gravity.alias("gravity")))


def in_verdicts(verdicts: DataFrame, concerned: DataFrame) -> DataFrame:
    """Returns the findings of `message_rules`, one per scope, sequence, kind and cause, of the messages `concerned`."""
    role = F.col("role")
    attempt = F.when(role == "attempt", F.struct("tx_sequence_number", "message_id", "key"))
    figures = ("messages", "severity", "repaired", "lost", "session_watched_ns", "intervals")
    grouped = (
        verdicts.select("*", *name_hashes("scope_key", prefix="scope"))
        .join(concerned, [*_SCOPE, "replay_order"])
        .withColumn("key", row_key())
        .groupBy("kind", *_SEQUENCE, "cause", *figures)
        .agg(
            *(F.max(F.when(role == name, F.struct(*_SHOWN))).alias(name) for name in _ROLES),
            F.sort_array(F.collect_set(attempt)).alias("attempts"),
        )
        .select("*", "first.*")
        .withColumn("setter", F.col("setter.key"))
    )
    rules = message_rules()

    def of_kind(part: Callable[[MessageRule], Column]) -> Column:
        return choose((F.col("kind") == rule.kind.value, part(rule)) for rule in rules)

    attempts = F.array_join(
        F.transform("attempts", lambda a: sentence("number {} ({})", a["tx_sequence_number"], a["message_id"])), ", "
    )
    is_resend = F.col("kind") == FindingKind.RESEND_SCHEDULE.value
    return grouped.select(
        *("kind", "severity", "session_id", "scope_key", "destination_queue", "tx_sequence_id", "messages"),
        F.col("captured_at").alias("found_at"),
        F.concat(
            of_kind(lambda rule: rule.sentence),
            F.when(F.size("attempts") > 0, sentence(" The receiver had refused: {}.", attempts)).otherwise(""),
            F.when(is_resend, _schedule()).otherwise(""),
        ).alias("explanation"),
        F.concat(of_kind(lambda rule: F.array(*rule.witness)), F.col("attempts.key")).alias("witness"),
    )


def _on_schedule(interval_s: Column) -> Column:
    """Returns whether an interval is one of the defaults in [MS-MQQB] 3.1.3.1."""
    return reduce(Column.__or__, (F.abs(interval_s - default) <= default * _RESEND_TOLERANCE for default in _RESEND_S))


def _schedule() -> Column:
    listed = F.array_join(F.transform("intervals", lambda s: F.round(s, 1).cast("string")), ", ")
    judged = F.when(F.forall("intervals", _on_schedule), F.lit("the default intervals of [MS-MQQB] 3.1.3.1")).otherwise(
        F.lit("not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry settings set them")
    )
    return F.concat(F.lit(", after "), listed, F.lit(" s: "), judged, F.lit("."))
