"""`findings`: what an analyst should look at, each kind a small transform, with words and with the rows that prove it.

Most kinds are seen in a verdict and its neighbours in its scope: each is a `Finding`, pure columns over one pass of
windows. The others are read from what they are about: messages, streams, OrderAcks, transactions. Nothing that rests
on bytes the captures are missing is said to be lost, unsent or unacknowledged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import (
    ALL,
    BEFORE,
    SO_FAR,
    columns_of,
    name_hashes,
    null,
    row_key,
    signed,
    unsigned,
)
from jobs.transforms.replay.acknowledgments import select_order_acks
from jobs.transforms.replay.evidence import LATEST_ORDER_ACK_MS, was_queued
from jobs.transforms.replay.inputs import unsettled
from schemas.replay import FINDINGS, Evidence, Explains, FindingKind, Reason, Severity, Verdict
from schemas.wire import UNLIMITED, MessageClass

_RESENDS_TOLD = 12  # intervals that a finding lists
_ATTEMPTS_TOLD = 20  # earlier attempts at expired numbers that a finding lists
_RESEND_S = (30, 300, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1
_RESEND_TOLERANCE = 0.1  # of the interval
_REPEATED_TIMES, _REPEATED_S = 3, 60  # of an OrderAck: over two of the shortest resend intervals
_AT_ONCE_S = 1  # SentTime counts seconds
_HALF = 1 << 31  # of the 32 bits of a MessageID
_NS = 1_000_000_000
_SCOPE = ("scope_no", "scope_check")
_SEQUENCE = (*_SCOPE, "sequence")
_ROLES = ("first", "setter", "original", "previous_arrival")
"""The first message concerned, and what it is held against."""
_MARKS = (
    *("replay_order", "captured_ns", "tx_sequence_number", "incoming_tx_sequence_number", "accepted", "verdict"),
    *("reason", "gap_size", "ack_latency_ms", "evidence", "explained_by", "final_ack_class", "content_hash"),
    *("session_watched_ns", "answers_whole"),
)
"""Columns that tell whether a message is concerned."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind that is seen in one verdict: when, how bad, what an operator reads, and which keys prove it."""

    kind: FindingKind
    severity: Severity
    when: Column
    words: Column
    """A sentence about the first message concerned; %d stands for the number of them."""
    witness: tuple[Column, ...]
    """The first message concerned and what it is held against; nulls are left out."""


def findings(
    messages: DataFrame,
    ends: DataFrame,
    runs: DataFrame,
    acks: DataFrame,
    verdicts: DataFrame,
    sequences: DataFrame,
    transactions: DataFrame,
    *,
    settle: Callable[[DataFrame], DataFrame] = unsettled,
) -> DataFrame:
    """One row of FINDINGS per kind, session, scope, queue and sequence, as far as the kind has one.

    `ends` are streams with theirs, `runs` what is unread (`coverage.unread_runs`), `acks` by whom they are of and for
    (`scopes.acknowledgments`); the others are tables. `settle` is that of `replay.verdicts`.
    """
    found = (
        in_verdicts(verdicts, settle(concerned(verdicts, watched(ends, runs)))),
        expired_on_arrival(messages, ends),
        ordinal_regressed(messages, ends),
        two_addresses(ends),
        repeated_order_acks(acks, verdicts, sequences),
        broken_transactions(transactions),
    )
    proven = (rows.withColumn("witness", F.array_compact("witness")).select(columns_of(FINDINGS)) for rows in found)
    return reduce(DataFrame.unionByName, proven)


# --- seen in verdicts -----------------------------------------------------------------------------------------------


def _sequence() -> Column:
    return F.concat(F.lit("sequence "), F.col("tx_sequence_id").cast("string"))


def _text(template: str, *columns: Column | str) -> Column:
    """The template with a column's text at each {}; a null column is unknown."""
    parts = template.split("{}")
    texts = [F.coalesce((F.col(c) if isinstance(c, str) else c).cast("string"), F.lit("unknown")) for c in columns]
    pieces = [F.lit(parts[0])]
    for text, part in zip(texts, parts[1:], strict=True):
        pieces += [text, F.lit(part)]
    return F.concat(*pieces)


def _state() -> Column:
    known = _text("{} number {}", "incoming_tx_sequence_id", "incoming_tx_sequence_number")
    return F.when(F.col("incoming_tx_sequence_number").isNull(), F.lit("not known")).otherwise(known)


def _named(message_class: Column) -> Column:
    names = {int(c): c.name.removeprefix("MQMSG_CLASS_") for c in MessageClass}
    return reduce(
        lambda chain, pair: chain.when(message_class == pair[0], pair[1]),
        names.items(),
        F.when(F.lit(False), ""),
    ).otherwise(F.concat(F.lit("class "), message_class.cast("string")))


def _kinds() -> list[Finding]:
    """The kinds, over the columns of `with_neighbours`."""
    verdict, reason, evidence = F.col("verdict"), F.col("reason"), F.col("evidence")
    key, setter = F.col("key"), F.col("setter")
    first_arrival = F.col("previous_arrival").isNull()
    contradicted = evidence == Evidence.CONTRADICTED.value
    refused = (verdict == Verdict.OUT_OF_ORDER.value) & ~contradicted
    gap = reason == Reason.CAPTURE_GAP.value
    acknowledged = F.col("acknowledged")
    number, previous = "tx_sequence_number", "previous_tx_sequence_number"
    final = F.col("final_ack_class")
    differs = F.col("content_hash") != F.col("original.content_hash")
    other_id = F.col("message_id") != F.col("original.message_id")
    waited = (F.col("session_watched_ns") - F.col("captured_ns")) / 1e6
    return [
        Finding(
            FindingKind.DUPLICATES,
            Severity.INFO,
            verdict == Verdict.DUPLICATE.value,
            _text(
                "%d message(s) of {} came again after the receiver had them, and were dropped. The first is number {}.",
                _sequence(),
                number,
            ),
            (F.col("original.key"), key),
        ),
        Finding(
            FindingKind.DUPLICATES_DIFFER,
            Severity.ERROR,
            differs,
            _text(
                "%d message(s) of {} bear a number that came before with another content ({}): two senders use one "
                "identity, or one was restored and numbers anew. The first is number {}.",
                _sequence(),
                F.when(other_id, F.lit("another message ID")).otherwise(F.lit("the same message ID")),
                number,
            ),
            (F.col("original.key"), key),
        ),
        Finding(
            FindingKind.OUT_OF_ORDER,
            Severity.WARNING,
            refused,
            _text(
                "%d message(s) of {} were refused because they came out of order. The first is number {}, which "
                "follows number {}; the receiver's state was: {}.",
                _sequence(),
                number,
                previous,
                _state(),
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.GAP_EXPIRED,
            Severity.WARNING,
            verdict == Verdict.GAP_EXPIRED.value,
            _text(
                "%d message(s) of {} were accepted over numbers that the sender gave up: they expired. The first is "
                "number {}; {} number(s) before it expired, from {} to {}.",
                _sequence(),
                number,
                "gap_size",
                F.col(number) - F.col("gap_size"),
                F.col(number) - 1,
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.STUCK_SEQUENCE,
            Severity.ERROR,
            refused
            & (reason == Reason.PREDECESSOR_MISSING.value)
            & (F.col("previous_arrival.replay_order") > F.coalesce("last_moved", F.lit(0))),
            _text(
                "The sender resends and the receiver refuses: %d resent message(s) of {} were refused again, and "
                "nothing of the sequence was accepted since. The first is number {}, which follows number {}; the "
                "receiver's state was: {}.",
                _sequence(),
                number,
                previous,
                _state(),
            ),
            (setter, F.col("previous_arrival.key"), key),
        ),
        Finding(
            FindingKind.CAPTURE_GAP,
            Severity.WARNING,
            gap & ~acknowledged,
            _text(
                "%d message(s) of {} cannot be judged: the captures are missing bytes before them, in which their "
                "predecessors may have been. The first is number {}, which follows number {}; the state before the "
                "missing bytes was: {}.",
                _sequence(),
                number,
                previous,
                _state(),
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.MISSED_BY_CAPTURE,
            Severity.INFO,
            gap & acknowledged,
            _text(
                "The captures are missing bytes before %d message(s) of {}, yet the receiver acknowledged them, so it "
                "had what the captures missed. The first is number {}; the state before the missing bytes was: {}.",
                _sequence(),
                number,
                _state(),
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.CONTRADICTED,
            Severity.ERROR,
            contradicted,
            F.when(
                F.col("accepted"),
                _text(
                    "The receiver does not follow the rule, or its state is not the one replayed: %d message(s) of {} "
                    "are in order, yet an OrderAck that came {} ms later or more names a lower number. The first is "
                    "number {}.",
                    _sequence(),
                    F.lit(LATEST_ORDER_ACK_MS),
                    number,
                ),
            ).otherwise(
                _text(
                    "The receiver does not follow the rule, or it had messages that no capture holds: %d message(s) "
                    "of {} are out of order, yet it acknowledged them. The first is number {}, which follows number "
                    "{}; the state replayed before it was: {}.",
                    _sequence(),
                    number,
                    previous,
                    _state(),
                )
            ),
            (key,),
        ),
        Finding(
            FindingKind.STATE_FELL,
            Severity.ERROR,
            (F.col("explained_by") == Explains.LITERAL.value) & (F.col(number) < F.col("incoming_tx_sequence_number")),
            _text(
                "The receiver's state fell back: after %d message(s) of {} that it had had before, its OrderAck names "
                "their lower number. It follows the letter of 3.1.5.8.6 and may accept messages twice. The first is "
                "number {}; the state before it was: {}.",
                _sequence(),
                number,
                _state(),
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.REFUSED_FOR_CAUSE,
            Severity.ERROR,
            final.isNotNull() & ~was_queued(final) & first_arrival,
            _text(
                "A FinalAck says that %d message(s) of {} were refused for cause. The first is number {}: {}.",
                _sequence(),
                number,
                _named(final),
            ),
            (key,),
        ),
        Finding(
            FindingKind.SEQUENCE_REGRESSED,
            Severity.ERROR,
            refused & first_arrival & (F.col("highest") > F.struct("sequence", "tx_sequence_number")),
            _text(
                "%d new message(s) of {} bear a sequence or number below what the receiver had accepted: the sender "
                "was restored from a backup, or another machine has its identity. The first is number {}; the "
                "receiver's state was: {}.",
                _sequence(),
                number,
                _state(),
            ),
            (setter, key),
        ),
        Finding(
            FindingKind.UNACKNOWLEDGED,
            Severity.WARNING,
            F.col("accepted") & ~contradicted & ~acknowledged & F.col("answers_whole") & (waited > LATEST_ORDER_ACK_MS),
            _text(
                "%d message(s) of {} were accepted and no OrderAck for them was captured, though the session was "
                "watched for {} s after the first of them, number {}.",
                _sequence(),
                F.round(waited / 1e3, 1),
                number,
            ),
            (key,),
        ),
        Finding(
            FindingKind.SLOW_ACKNOWLEDGMENT,
            Severity.WARNING,
            F.col("accepted") & F.col("answers_whole") & (F.col("ack_latency_ms") > LATEST_ORDER_ACK_MS),
            _text(
                "%d message(s) of {} were acknowledged later than the timers allow, {} ms. The first is number {}: "
                "after {} ms.",
                _sequence(),
                F.lit(LATEST_ORDER_ACK_MS),
                number,
                F.round("ack_latency_ms", 0).cast("long"),
            ),
            (key,),
        ),
        Finding(
            FindingKind.RESEND_SCHEDULE,
            Severity.INFO,
            F.col("interval_s").isNotNull() & (F.col(number) == F.col("resent")),
            _text(
                "No OrderAck came in time for {}: number {} was sent again on the same connection", _sequence(), number
            ),
            (F.col("previous_arrival.key"), key),
        ),
    ]


def watched(ends: DataFrame, runs: DataFrame) -> DataFrame:
    """Per session `session_watched_ns`, when it was last seen, and `answers_whole`: nothing of the way back is unread.

    Without a captured way back nobody knows what the receiver acknowledged. `runs` are those of `coverage.unread_runs`.
    """
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
    return ways.join(back, "session_id").select(
        "session_id", F.greatest("last_ns", "back_ns").alias("session_watched_ns"), "answers_whole"
    )


def with_neighbours(verdicts: DataFrame, watched: DataFrame) -> DataFrame:
    """Verdicts, without names, with what each is held against, named by its `replay_order`: see the comments.

    All windows are of a scope, so that its rows travel once, as few numbers each.
    """
    in_scope = Window.partitionBy(*_SCOPE).orderBy("replay_order")
    of_sequence = Window.partitionBy(*_SEQUENCE).orderBy("tx_sequence_number", "replay_order").rowsBetween(*ALL)
    by_number = Window.partitionBy(*_SCOPE).orderBy("sequence", "tx_sequence_number", "replay_order")
    order = F.col("replay_order")
    moved = F.coalesce("accepted", F.lit(True))
    arrival = F.struct("sequence", "tx_sequence_number", "replay_order", "stream_no", "captured_ns")
    row_before, row = F.col("row_before"), F.col("row")
    again = (row_before["sequence"] == F.col("sequence")) & (
        row_before["tx_sequence_number"] == F.col("tx_sequence_number")
    )
    is_first = ~F.coalesce(again, F.lit(False))
    same_stream = F.col("previous_arrival.stream_no") == F.col("stream_no")
    return (
        verdicts.join(F.broadcast(watched), "session_id", "left")
        .select(
            *name_hashes("scope_key", prefix="scope"),
            F.xxhash64("stream_id").alias("stream_no"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("acknowledged_at").isNotNull().alias("acknowledged"),
            *_MARKS,
        )
        .select(
            "*",
            # What set the state that it met, and the highest that was accepted before it.
            F.max(F.when(moved, order)).over(in_scope.rowsBetween(*BEFORE)).alias("setter"),
            F.max(F.when(F.col("accepted"), F.struct("sequence", "tx_sequence_number")))
            .over(in_scope.rowsBetween(*BEFORE))
            .alias("highest"),
            # The last message of its sequence that moved the state, and the first that was accepted over a gap.
            F.max(F.when(moved, order)).over(of_sequence).alias("last_moved"),
            F.min(F.when(F.col("gap_size") > 0, F.struct("replay_order", "tx_sequence_number", "gap_size")))
            .over(of_sequence)
            .alias("first_gap"),
            F.lag(arrival).over(by_number).alias("row_before"),
            F.row_number().over(by_number).alias("row"),
        )
        # The first and the last arrival of the same number before it, and how many there were.
        .withColumn("previous_arrival", F.when(again, row_before))
        .withColumn(
            "original",
            F.last(F.when(is_first, F.struct("replay_order", "content_hash", "row")), ignorenulls=True).over(
                by_number.rowsBetween(*SO_FAR)
            ),
        )
        .withColumn("arrivals", row - F.col("original.row") + 1)
        .withColumn(
            "interval_s", F.when(same_stream, (F.col("captured_ns") - F.col("previous_arrival.captured_ns")) / _NS)
        )
        .withColumn(
            "resent",
            F.min(F.when(F.col("interval_s").isNotNull(), F.struct("replay_order", "tx_sequence_number"))).over(
                of_sequence
            )["tx_sequence_number"],
        )
    )


_TOLD = (
    *("captured_at", "captured_ns", "session_id", "scope_key", "destination_queue", "message_id", "accepted"),
    *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "incoming_tx_sequence_id"),
    *("incoming_tx_sequence_number", "gap_size", "ack_latency_ms", "final_ack_class", "key"),
)
"""Columns of messages, which words and witness are made of."""


def concerned(verdicts: DataFrame, watched: DataFrame) -> DataFrame:
    """One row per scope, sequence, kind of `_kinds` and message to be told of: its `replay_order` and `role`.

    So many `messages` are concerned; the first of them stands for all.
    """
    number, gap, order = F.col("tx_sequence_number"), F.col("first_gap"), F.col("replay_order")
    # A refused message whose number a later gap covers is an earlier attempt at what then expired.
    attempt = (
        (F.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (order < gap["replay_order"])
        & (number < gap["tx_sequence_number"])
        & (number >= gap["tx_sequence_number"] - F.least(gap["gap_size"], F.lit(_ATTEMPTS_TOLD)))
    )
    kinds = _kinds()
    found = [
        *(_found(finding.when, finding.kind, concerned=True) for finding in kinds),
        _found(attempt, FindingKind.GAP_EXPIRED, concerned=False),
    ]
    any_found = reduce(Column.__or__, (F.coalesce(when, F.lit(False)) for when in (*(k.when for k in kinds), attempt)))
    is_concerned, is_resend = F.col("concerned"), F.col("kind") == FindingKind.RESEND_SCHEDULE.value
    resend = is_resend & (F.col("arrivals") <= _RESENDS_TOLD + 1)
    first = F.struct(
        order.alias("first"),
        "setter",
        F.col("original.replay_order").alias("original"),
        F.col("previous_arrival.replay_order").alias("previous_arrival"),
        "session_watched_ns",
    )

    def told(role: str, place: Column) -> Column:
        return F.struct(F.lit(role).alias("role"), place.alias("replay_order"))

    return (
        with_neighbours(verdicts, watched)
        .where(any_found)
        .withColumn("found", F.explode(F.array_compact(F.array(*found))))
        .select("*", "found.*")
        .groupBy("kind", *_SEQUENCE)
        .agg(
            F.count_if(is_concerned).alias("messages"),
            F.min_by(first, F.when(is_concerned, order)).alias("first"),
            F.collect_set(F.when(~is_concerned, order)).alias("attempts"),
            F.sort_array(F.collect_list(F.when(resend, F.struct(order, "interval_s"))))["interval_s"].alias(
                "intervals"
            ),
        )
        .select(
            *("kind", *_SEQUENCE, "messages", "intervals", "first.session_watched_ns"),
            F.explode(
                F.concat(
                    F.array(*(told(role, F.col(f"first.{role}")) for role in _ROLES)),
                    F.transform("attempts", lambda place: told("attempt", place)),
                )
            ).alias("told"),
        )
        .select("*", "told.*")
        .drop("told")
        .where(F.col("replay_order").isNotNull())
    )


def in_verdicts(verdicts: DataFrame, concerned: DataFrame) -> DataFrame:
    """The findings of `_kinds`, one per scope, sequence and kind, of the messages `concerned`."""
    row, role = F.struct(*_TOLD), F.col("role")
    attempt = F.when(role == "attempt", F.struct("tx_sequence_number", "message_id", "key"))
    grouped = (
        verdicts.select("*", *name_hashes("scope_key", prefix="scope"), row_key().alias("key"))
        .join(concerned, [*_SCOPE, "replay_order"])
        .groupBy("kind", *_SEQUENCE, "messages", "session_watched_ns", "intervals")
        .agg(
            *(F.max(F.when(role == name, row)).alias(name) for name in _ROLES),
            F.sort_array(F.collect_set(attempt)).alias("attempts"),
        )
        .select("*", "first.*")
        .withColumn("setter", F.col("setter.key"))
    )
    kinds = _kinds()
    is_resend, on_schedule = F.col("kind") == FindingKind.RESEND_SCHEDULE.value, F.forall("intervals", _on_schedule)

    def by_kind(told: Callable[[Finding], Column]) -> Column:
        return reduce(
            lambda chain, finding: chain.when(F.col("kind") == finding.kind.value, told(finding)),
            kinds[1:],
            F.when(F.col("kind") == kinds[0].kind.value, told(kinds[0])),
        )

    attempts = F.array_join(
        F.transform("attempts", lambda a: _text("number {} ({})", a["tx_sequence_number"], a["message_id"])), ", "
    )
    return grouped.select(
        "*",
        F.col("captured_at").alias("at"),
        F.when(is_resend & ~on_schedule, Severity.WARNING.value)
        .otherwise(by_kind(lambda finding: F.lit(finding.severity.value)))
        .alias("severity"),
        F.concat(
            F.replace(by_kind(lambda finding: finding.words), F.lit("%d"), F.col("messages").cast("string")),
            F.when(F.size("attempts") > 0, _text(" Sent before, and refused then: {}.", attempts)).otherwise(""),
            F.when(is_resend, _schedule(on_schedule)).otherwise(""),
        ).alias("explanation"),
        F.concat(by_kind(lambda finding: F.array(*finding.witness)), F.col("attempts.key")).alias("witness"),
    )


def _found(when: Column, kind: FindingKind, *, concerned: bool) -> Column:
    return F.when(when, F.struct(F.lit(kind.value).alias("kind"), F.lit(concerned).alias("concerned")))


def _on_schedule(interval_s: Column) -> Column:
    """Whether an interval is one of the documents' [MS-MQQB] 3.1.3.1."""
    return reduce(Column.__or__, (F.abs(interval_s - default) <= default * _RESEND_TOLERANCE for default in _RESEND_S))


def _schedule(on_schedule: Column) -> Column:
    listed = F.array_join(F.transform("intervals", lambda s: F.round(s, 1).cast("string")), ", ")
    judged = F.when(on_schedule, F.lit("as the timers of 3.1.3.1 have it")).otherwise(
        F.lit("which are not the intervals of 3.1.3.1 (30, 300, 1800 and 21600 s)")
    )
    return F.concat(F.lit(" after "), listed, F.lit(" s, "), judged, F.lit("."))


# --- seen elsewhere -------------------------------------------------------------------------------------------------


def expired_on_arrival(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """Messages that had outlived TimeToReachQueue or TimeToBeReceived: a receiver drops them ([MS-MQMQ] 2.2.19.1)."""
    age = F.expr("captured_ns div 1000000000") - F.unix_seconds("sent_at")
    limits = (("time_to_reach_queue", "TimeToReachQueue"), ("time_to_be_received", "TimeToBeReceived"))
    late = reduce(Column.__or__, (_outlived(age, name) for name, _ in limits))
    text = reduce(
        lambda chain, limit: chain.when(_outlived(age, limit[0]), _text("{} ({} s)", F.lit(limit[1]), limit[0])),
        limits,
        F.when(F.lit(False), ""),
    )
    first = F.struct("captured_at", "key", "age_s", "limit")
    return (
        messages.where(late)
        .select(
            "stream_id",
            "destination_queue",
            "captured_ns",
            "captured_at",
            row_key().alias("key"),
            age.alias("age_s"),
            text.alias("limit"),
        )
        .join(ends, "stream_id")
        .groupBy("session_id", "destination_queue")
        .agg(F.count(F.lit(1)).alias("messages"), F.min_by(first, F.struct("captured_ns", "key")).alias("first"))
        .select(
            F.lit(FindingKind.EXPIRED_ON_ARRIVAL.value).alias("kind"),
            F.lit(Severity.WARNING.value).alias("severity"),
            F.col("first.captured_at").alias("at"),
            "session_id",
            null("string").alias("scope_key"),
            "destination_queue",
            null("decimal(20,0)").alias("tx_sequence_id"),
            "messages",
            _text(
                "{} message(s) had outlived their time when they came, and a receiver drops such. The first was sent "
                "{} s before, by its sender's clock, and its {} had run out.",
                "messages",
                "first.age_s",
                "first.limit",
            ).alias("explanation"),
            F.array("first.key").alias("witness"),
        )
    )


def _outlived(age: Column, limit: str) -> Column:
    return F.coalesce((F.col(limit) != UNLIMITED) & (age > F.col(limit)), F.lit(False))


def ordinal_regressed(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """Senders whose MessageID falls while SentTime goes on ([MS-MQQB] 3.1.1.3 MessageIdOrdinal): restored or cloned.

    Both are given when a message is sent: resends and the order of commits do not matter. A wrap does not count.
    """
    ordinal = F.col("message_id_ordinal")
    in_time = Window.partitionBy("source_queue_manager").orderBy("sent_s")
    fallen = (
        messages.where("sent_at is not null")
        .groupBy("source_queue_manager", F.unix_seconds("sent_at").alias("sent_s"))
        .agg(F.min(ordinal).alias("least"), F.max(ordinal).alias("most"))
        .select(
            "*", F.lag("most").over(in_time).alias("most_before"), F.lag("sent_s").over(in_time).alias("sent_s_before")
        )
        .where((F.col("most_before") > F.col("least")) & (F.col("most_before") - F.col("least") < _HALF))
    )
    places = fallen.select(
        "source_queue_manager",
        F.col("sent_s").alias("fallen_s"),
        F.explode(
            F.array(
                F.struct(
                    F.lit(0).alias("place"),
                    F.col("sent_s_before").alias("sent_s"),
                    F.col("most_before").alias("ordinal"),
                ),
                F.struct(F.lit(1).alias("place"), F.col("sent_s").alias("sent_s"), F.col("least").alias("ordinal")),
            )
        ).alias("p"),
    ).select("source_queue_manager", "fallen_s", "p.*")
    key = row_key()
    same = (
        (F.col("m.source_queue_manager") == F.col("p.source_queue_manager"))
        & (F.unix_seconds("m.sent_at") == F.col("p.sent_s"))
        & (F.col("m.message_id_ordinal") == F.col("p.ordinal"))
    )
    shown = (
        messages.alias("m")
        .join(F.broadcast(places).alias("p"), same)
        .select("p.*", "m.stream_id", "m.captured_at", "m.captured_ns", "m.destination_queue", key.alias("key"))
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .groupBy("source_queue_manager", "fallen_s", "place", "ordinal")
        .agg(
            F.min_by(
                F.struct("captured_at", "session_id", "destination_queue", "key"), F.struct("captured_ns", "key")
            ).alias("first")
        )
    )
    pairs = (
        shown.groupBy("source_queue_manager", "fallen_s")
        .agg(*(F.max(F.when(F.col("place") == i, F.struct("ordinal", "first"))).alias(f"side_{i}") for i in (0, 1)))
        .groupBy("source_queue_manager")
        .agg(F.count(F.lit(1)).alias("messages"), F.min(F.struct("fallen_s", "side_0", "side_1")).alias("first"))
    )
    low, high = F.col("first.side_1"), F.col("first.side_0")
    return pairs.select(
        F.lit(FindingKind.ORDINAL_REGRESSED.value).alias("kind"),
        F.lit(Severity.WARNING.value).alias("severity"),
        low["first"]["captured_at"].alias("at"),
        low["first"]["session_id"].alias("session_id"),
        null("string").alias("scope_key"),
        low["first"]["destination_queue"].alias("destination_queue"),
        null("decimal(20,0)").alias("tx_sequence_id"),
        "messages",
        _text(
            "The message IDs of sender {} fell {} time(s) while its clock went on, the first time from {} to {}: it "
            "was restored from a backup, another machine has its identity, or its clock was set back.",
            "source_queue_manager",
            "messages",
            high["ordinal"],
            low["ordinal"],
        ).alias("explanation"),
        F.array(high["first"]["key"], low["first"]["key"]).alias("witness"),
    )


def two_addresses(ends: DataFrame) -> DataFrame:
    """Queue managers, by GUID, at several addresses: at once, which two machines are, or one after the other."""
    by_begin = Window.partitionBy("sender_guid").orderBy("first_ns", "address")
    seen = (
        ends.where(F.col("sender_guid").isNotNull())
        .groupBy("sender_guid", "address")
        .agg(
            F.min("first_ns").alias("first_ns"),
            F.max("last_ns").alias("last_ns"),
            F.min_by(F.struct("session_id", "stream_id"), F.struct("first_ns", "stream_id")).alias("first"),
        )
        .withColumn("at_once", F.max("last_ns").over(by_begin.rowsBetween(*BEFORE)) >= F.col("first_ns"))
    )
    return (
        seen.groupBy("sender_guid")
        .agg(
            F.sort_array(F.collect_list(F.struct("first_ns", "address", "first"))).alias("places"),
            F.coalesce(F.max("at_once"), F.lit(False)).alias("at_once"),
        )
        .where(F.size("places") > 1)
        .select(
            F.lit(FindingKind.TWO_ADDRESSES.value).alias("kind"),
            F.when(F.col("at_once"), Severity.ERROR.value).otherwise(Severity.INFO.value).alias("severity"),
            F.expr("timestamp_micros(places[1].first_ns div 1000)").alias("at"),
            F.col("places")[1]["first"]["session_id"].alias("session_id"),
            null("string").alias("scope_key"),
            null("string").alias("destination_queue"),
            null("decimal(20,0)").alias("tx_sequence_id"),
            F.size("places").alias("messages"),
            F.when(
                F.col("at_once"),
                _text(
                    "Queue manager {} is at {} addresses at the same time ({}): two machines have one identity, or one "
                    "has several networks.",
                    "sender_guid",
                    F.size("places"),
                    F.array_join("places.address", ", "),
                ),
            )
            .otherwise(
                _text(
                    "Queue manager {} moved: it was at {} addresses, one after the other ({}).",
                    "sender_guid",
                    F.size("places"),
                    F.array_join("places.address", ", "),
                )
            )
            .alias("explanation"),
            F.transform(F.slice("places", 1, 2), lambda p: F.concat(p["first"]["stream_id"], F.lit("@0"))).alias(
                "witness"
            ),
        )
    )


def repeated_order_acks(acks: DataFrame, verdicts: DataFrame, sequences: DataFrame) -> DataFrame:
    """The highest OrderAck of a scope's last sequence, sent again and again: the sender does not get on."""
    pair = ("receiver", "source_queue_manager", "sequence")
    highest = Window.partitionBy(*pair).orderBy(F.desc("number"))
    times = (
        select_order_acks(acks)
        .groupBy(*pair, "number")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("ns").alias("first_ns"),
            F.max("ns").alias("last_ns"),
            F.min_by("key", F.struct("ns", "key")).alias("first_key"),
            F.max_by("key", F.struct("ns", "key")).alias("last_key"),
        )
        .withColumn("place", F.row_number().over(highest))
        .where("place = 1")
        .where((F.col("messages") >= _REPEATED_TIMES) & (F.col("last_ns") - F.col("first_ns") >= _REPEATED_S * _NS))
        .select("*", unsigned(F.col("sequence")).alias("tx_sequence_id"))
    )
    last = sequences.groupBy("scope_key").agg(F.max("tx_sequence_id").alias("last_sequence"))
    receiver = F.substring_index("session_id", "->", -1)
    scopes = (
        verdicts.join(
            F.broadcast(times.withColumnRenamed("receiver", "of")), ["source_queue_manager", "tx_sequence_id"]
        )
        .where(F.col("of") == receiver)
        .groupBy("of", "source_queue_manager", "tx_sequence_id", "scope_key", "session_id", "number", "messages")
        .agg(
            F.min("destination_queue").alias("destination_queue"),
            F.first(F.struct("first_ns", "last_ns", "first_key", "last_key")).alias("acks"),
            F.count_if(F.col("tx_sequence_number") > F.col("number")).alias("above"),
        )
        .join(last, "scope_key")
        .where("tx_sequence_id = last_sequence")
    )
    return scopes.select(
        F.lit(FindingKind.REPEATED_ORDER_ACK.value).alias("kind"),
        F.when(F.col("above") > 0, Severity.ERROR.value).otherwise(Severity.WARNING.value).alias("severity"),
        F.expr("timestamp_micros(acks.first_ns div 1000)").alias("at"),
        "session_id",
        "scope_key",
        "destination_queue",
        "tx_sequence_id",
        "messages",
        _text(
            "The receiver sent the same OrderAck for number {} of {} {} times in {} s and none for a higher number: "
            "{}.",
            "number",
            _sequence(),
            "messages",
            F.round((F.col("acks.last_ns") - F.col("acks.first_ns")) / _NS, 0).cast("long"),
            F.when(F.col("above") > 0, F.lit("it refuses what the sender sends above it")).otherwise(
                F.lit("its acknowledgments do not reach the sender, or do not stop it")
            ),
        ).alias("explanation"),
        F.array("acks.first_key", "acks.last_key").alias("witness"),
    )


def broken_transactions(transactions: DataFrame) -> DataFrame:
    """Transactions without their first or last message, and those with another's messages between their own."""
    kinds: tuple[tuple[FindingKind, Column, Callable[[], Column]], ...] = (
        (
            FindingKind.TORN_TRANSACTION,
            F.col("torn_by_sender"),
            lambda: _text(
                "{} transaction(s) that begin in {} are torn: the sender marked no first or no last message, and the "
                "numbers around them leave no room for one. The first has the ID {} and {} message(s).",
                "count",
                _sequence(),
                "first.tx_transaction_id",
                "first.messages",
            ),
        ),
        (
            FindingKind.INTERLEAVED_TRANSACTION,
            F.col("interleaved"),
            lambda: _text(
                "{} transaction(s) that begin in {} are interleaved: messages of another transaction bear numbers "
                "between theirs. The first has the ID {} and {} message(s).",
                "count",
                _sequence(),
                "first.tx_transaction_id",
                "first.messages",
            ),
        ),
    )
    told = F.array_compact(F.array(*(F.when(when, F.lit(kind.value)) for kind, when, _ in kinds)))
    first = F.struct("first_captured_at", "session_id", "destination_queue", "witness", "tx_transaction_id", "messages")
    place = F.struct("first_captured_at", "tx_transaction_id", "instance")
    words = reduce(
        lambda chain, kind: chain.when(F.col("kind") == kind[0].value, kind[2]()), kinds, F.when(F.lit(False), "")
    )
    return (
        transactions.withColumn("kind", F.explode(told))
        .groupBy("kind", "scope_key", "tx_sequence_id")
        .agg(F.count(F.lit(1)).alias("count"), F.min_by(first, place).alias("first"))
        .select(
            "kind",
            F.lit(Severity.ERROR.value).alias("severity"),
            F.col("first.first_captured_at").alias("at"),
            F.col("first.session_id").alias("session_id"),
            "scope_key",
            F.col("first.destination_queue").alias("destination_queue"),
            "tx_sequence_id",
            F.col("count").alias("messages"),
            words.alias("explanation"),
            F.col("first.witness").alias("witness"),
        )
    )
