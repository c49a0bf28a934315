"""The kinds of findings that one verdict and its neighbours in the scope show."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.findings.acks import advice_on, reason_of
from jobs.transforms.findings.model import (
    MessageRule,
    class_name,
    counted,
    one_or_many,
    receiver_state,
    sentence,
    sequence_name,
)
from jobs.transforms.replay.evidence import LATEST_ORDER_ACK_MS, was_queued
from schemas.replay import Evidence, Explains, FindingKind, Reason, Severity, Verdict
from schemas.wire import MessageClass

NUMBER, PREVIOUS = "tx_sequence_number", "previous_tx_sequence_number"
BY_CAUSE = (FindingKind.REFUSED_FOR_CAUSE.value, FindingKind.NOT_RECEIVED_BY_APPLICATION.value)
"""Kinds of which a sequence has a finding for each class of FinalAck and each queue."""


def message_rules() -> list[MessageRule]:
    """Returns all rules; columns need an active Spark session."""
    return [
        *_repeats(),
        *_refusals(),
        *_gaps(),
        *_disagreements(),
        *_final_acks(),
        *_acknowledgments(),
    ]


def _contradicted() -> Column:
    return F.col("evidence") == Evidence.CONTRADICTED.value


def _refused() -> Column:
    return (F.col("verdict") == Verdict.OUT_OF_ORDER.value) & ~_contradicted()


def _first_arrival() -> Column:
    return F.col("previous_arrival").isNull()


def may_have_regressed() -> Column:
    """Returns whether a new message was refused though the receiver had accepted higher ones."""
    return _refused() & _first_arrival() & (F.col("highest") > F.struct("sequence", NUMBER))


def _waited_ms() -> Column:
    return (F.col("session_watched_ns") - F.col("captured_ns")) / 1e6


def _answered() -> Column:
    return F.col("accepted") & F.coalesce("answers_whole", F.lit(False))


def not_acknowledged() -> Column:
    """Returns whether no OrderAck covers an accepted message, though the captures would show it."""
    return _answered() & F.col("acknowledged_ns").isNull() & (_waited_ms() > LATEST_ORDER_ACK_MS)


def late_acknowledgment() -> Column:
    """Returns whether an accepted message was acknowledged later than the timers allow."""
    return _answered() & _acknowledged_late()


def _acknowledged_late() -> Column:
    return F.col("ack_latency_ms") > LATEST_ORDER_ACK_MS


def lacks_timely_acknowledgment() -> Column:
    """Returns whether an accepted message has a late acknowledgment or none, also where the captures could not show it.

    The other two rules need `watched_sessions` beside the verdict; this one, which is weaker, does not.
    """
    return F.col("accepted") & (F.col("acknowledged_ns").isNull() | _acknowledged_late())


def _messages(one: str, many: str) -> Column:
    return counted("messages", one, many)


def _repeats() -> list[MessageRule]:
    same = F.coalesce(F.col("original.content_hash") == F.col("content_hash"), F.lit(True))
    other_id = F.col("message_id") != F.col("original.message_id")
    return [
        MessageRule(
            FindingKind.DUPLICATES,
            Severity.INFO,
            (F.col("verdict") == Verdict.DUPLICATE.value) & same,
            sentence(
                "{} of {} arrived after the receiver had the message, and it refused {}, as it should. "
                "The first repeats number {}.",
                _messages("repeat", "repeats"),
                sequence_name(),
                one_or_many("messages", "it", "them"),
                NUMBER,
            ),
            (F.col("original.key"), F.col("key")),
        ),
        MessageRule(
            FindingKind.DUPLICATES_DIFFER,
            Severity.ERROR,
            ~same,
            sentence(
                "{} of {} reused {} under which the receiver accepted a different message ({}). Two senders share one "
                "identity, or a sender was restored from a backup. The first is number {}.",
                _messages("message", "messages"),
                sequence_name(),
                one_or_many("messages", "a number", "numbers"),
                F.when(other_id, F.lit("another message ID")).otherwise(F.lit("the same message ID, other content")),
                NUMBER,
            ),
            (F.col("original.key"), F.col("key")),
        ),
        MessageRule(
            FindingKind.RESEND_SCHEDULE,
            Severity.INFO,
            F.col("interval_s").isNotNull() & (F.struct(NUMBER, "content_hash") == F.col("resent")),
            sentence(
                "No OrderAck came in time for {}, so the sender sent number {} again on the same connection",
                sequence_name(),
                NUMBER,
            ),
            (F.col("previous_arrival.key"), F.col("key")),
        ),
    ]


def _refusals() -> list[MessageRule]:
    reason, fate, key, setter = (F.col(name) for name in ("reason", "fate", "key", "setter"))
    old_sequence = reason == Reason.STALE_SEQUENCE.value
    sent_later = F.coalesce(F.col("sent") >= F.col("highest_sent"), F.lit(False))
    return [
        MessageRule(
            FindingKind.OUT_OF_ORDER,
            F.when(fate == "lost", Severity.ERROR.value)
            .when(fate == "delivered", Severity.INFO.value)
            .otherwise(Severity.WARNING.value),
            _refused() & _first_arrival(),
            sentence(
                "{} of {} arrived out of order and {} refused; {}. The first is number {}, which needs number {}; the "
                "receiver stood at: {}.",
                _messages("message", "messages"),
                sequence_name(),
                one_or_many("messages", "was", "were"),
                _fates(),
                NUMBER,
                PREVIOUS,
                receiver_state(),
            ),
            (setter, key),
        ),
        MessageRule(
            FindingKind.STUCK_SEQUENCE,
            Severity.WARNING,
            _refused() & (reason == Reason.PREDECESSOR_MISSING.value) & ~_first_arrival() & (fate == "pending"),
            sentence(
                "The sender resends and the receiver refuses: {} of {} refused again, and the receiver still waits for "
                "a message before {}. The first is number {}, which needs number {}; the receiver stood at: {}.",
                _messages("resend", "resends"),
                F.concat(sequence_name(), one_or_many("messages", " was", " were")),
                one_or_many("messages", "it", "them"),
                NUMBER,
                PREVIOUS,
                receiver_state(),
            ),
            (setter, F.col("previous_arrival.key"), key),
        ),
        MessageRule(
            FindingKind.SEQUENCE_REGRESSED,
            Severity.ERROR,
            may_have_regressed() & (old_sequence | sent_later),
            sentence(
                "{} of {} {} below what the receiver had accepted: {}. The first is number {}; the receiver stood at: "
                "{}.",
                _messages("new message", "new messages"),
                sequence_name(),
                one_or_many("messages", "lies", "lie"),
                F.when(
                    sent_later,
                    F.lit("the sender was restored from a backup, or another machine uses its identity"),
                ).otherwise(
                    F.lit(
                        "a new sequence began before these were acknowledged, so the sender was restored from a "
                        "backup, or another machine uses its identity"
                    )
                ),
                NUMBER,
                receiver_state(),
            ),
            (setter, key),
        ),
    ]


def _fates() -> Column:
    """Says what became of the refused messages: "all were accepted later", "2 are lost, 1 is still to be accepted"."""
    messages, repaired, lost = F.col("messages"), F.col("repaired"), F.col("lost")
    fates = (
        (repaired, "was accepted later", "were accepted later"),
        (lost, "was never accepted and is lost", "were never accepted and are lost"),
        (messages - repaired - lost, "is still to be accepted", "are still to be accepted"),
    )

    def said(count: Column, one: str, many: str) -> Column:
        of_all = one_or_many(count, f"it {one}", f"all {many}")
        return F.when(count == messages, of_all).when(count > 0, counted(count, one, many))

    return F.concat_ws(", ", *(said(*fate) for fate in fates))


def _gaps() -> list[MessageRule]:
    gap, key, setter = F.col("reason") == Reason.CAPTURE_GAP.value, F.col("key"), F.col("setter")
    acknowledged, size = F.col("acknowledged_ns").isNotNull(), F.col("gap_size")
    many = (_messages("message", "messages"), sequence_name(), one_or_many("messages", "it", "them"))
    unjudged = (*many, NUMBER, PREVIOUS, receiver_state())
    return [
        MessageRule(
            FindingKind.GAP_EXPIRED,
            Severity.WARNING,
            F.col("verdict") == Verdict.GAP_EXPIRED.value,
            sentence(
                "{} of {} accepted although the sender skipped numbers, which it does when messages expire. "
                "Before the first, number {}, {} expired.",
                _messages("message", "messages"),
                F.concat(sequence_name(), one_or_many("messages", " was", " were")),
                NUMBER,
                F.when(size == 1, sentence("number {}", F.col(NUMBER) - 1)).otherwise(
                    sentence("numbers {} to {}", F.col(NUMBER) - size, F.col(NUMBER) - 1)
                ),
            ),
            (setter, key),
        ),
        MessageRule(
            FindingKind.CAPTURE_GAP,
            Severity.WARNING,
            gap & ~acknowledged,
            sentence(
                "{} of {} cannot be judged: bytes are missing from the captures before {}, and the numbers skipped may "
                "have been in these bytes. The first is number {}, which needs number {}; before the missing bytes the "
                "receiver stood at: {}.",
                *unjudged,
            ),
            (setter, key),
        ),
        MessageRule(
            FindingKind.CLOCKS_DIFFER,
            Severity.WARNING,
            (F.col("reason") == Reason.CLOCKS_DIFFER.value) & ~acknowledged,
            sentence(
                "{} of {} cannot be judged: the clocks of two captures differ by more than the time between {} and a "
                "message on another connection, so either may have come first. The first is number {}, which needs "
                "number {}; the receiver stood at: {}.",
                *unjudged,
            ),
            (setter, key),
        ),
        MessageRule(
            FindingKind.MISSED_BY_CAPTURE,
            Severity.INFO,
            gap & acknowledged,
            sentence(
                "Bytes are missing from the captures before {} of {}, but the receiver acknowledged {}: it had what "
                "the captures miss. The first is number {}; before the missing bytes the receiver stood at: {}.",
                _messages("message", "messages"),
                sequence_name(),
                one_or_many("messages", "it", "them"),
                NUMBER,
                receiver_state(),
            ),
            (setter, key),
        ),
    ]


def _disagreements() -> list[MessageRule]:
    key = F.col("key")
    literal = F.col("explained_by") == Explains.LITERAL.value
    return [
        MessageRule(
            FindingKind.CONTRADICTED,
            Severity.ERROR,
            _contradicted(),
            F.when(
                F.col("accepted"),
                sentence(
                    "The receiver's OrderAcks contradict the replay: {} of {} in order, but an OrderAck at least {} ms "
                    "later names a lower number. The first is number {}.",
                    _messages("message", "messages"),
                    F.concat(sequence_name(), one_or_many("messages", " is", " are")),
                    F.lit(LATEST_ORDER_ACK_MS),
                    NUMBER,
                ),
            ).otherwise(
                sentence(
                    "The receiver's acknowledgments contradict the replay: {} of {} out of order, but the receiver "
                    "acknowledged {}. It breaks the rule, or it had messages that no capture holds. The first is "
                    "number {}, which needs number {}; the receiver stood at: {}.",
                    _messages("message", "messages"),
                    F.concat(sequence_name(), one_or_many("messages", " is", " are")),
                    one_or_many("messages", "it", "them"),
                    NUMBER,
                    PREVIOUS,
                    receiver_state(),
                )
            ),
            (key,),
        ),
        MessageRule(
            FindingKind.STATE_FELL,
            Severity.ERROR,
            literal & (F.col(NUMBER) < F.col("incoming_tx_sequence_number")),
            sentence(
                "The receiver's state fell: it answered {} of {} with an OrderAck for the repeated, lower number. It "
                "follows the letter of [MS-MQQB] 3.1.5.8.6 and may accept messages twice. The first is number {}; the "
                "receiver stood at: {}.",
                _messages("repeat", "repeats"),
                sequence_name(),
                NUMBER,
                receiver_state(),
            ),
            (F.col("setter"), key),
        ),
    ]


def _final_acks() -> list[MessageRule]:
    final = F.col("final_ack_class")
    unread = final >= int(MessageClass.MQMSG_CLASS_NACK_Q_DELETED)
    return [
        MessageRule(
            FindingKind.REFUSED_FOR_CAUSE,
            Severity.ERROR,
            final.isNotNull() & ~was_queued(final) & _first_arrival(),
            sentence(
                "The receiver refused {} of {}, as {}: {} ({}). The first is number {}. {}",
                _messages("message", "messages"),
                sequence_name(),
                one_or_many("messages", "a FinalAck says", "FinalAcks say"),
                reason_of(final),
                class_name(final),
                NUMBER,
                advice_on(final),
            ),
            (F.col("key"),),
        ),
        MessageRule(
            FindingKind.NOT_RECEIVED_BY_APPLICATION,
            Severity.WARNING,
            unread & _first_arrival(),
            sentence(
                "{} of {} reached the queue and left it unread, as {}: {} ({}). The first is number {}. {}",
                _messages("message", "messages"),
                sequence_name(),
                one_or_many("messages", "a FinalAck says", "FinalAcks say"),
                reason_of(final),
                class_name(final),
                NUMBER,
                advice_on(final),
            ),
            (F.col("key"),),
        ),
    ]


def _acknowledgments() -> list[MessageRule]:
    return [
        MessageRule(
            FindingKind.UNACKNOWLEDGED,
            Severity.WARNING,
            not_acknowledged() & ~_contradicted(),
            sentence(
                "{} of {} accepted, but the captures hold no OrderAck for {}, although they show the session for {} s "
                "after the first of them, number {}.",
                _messages("message", "messages"),
                F.concat(sequence_name(), one_or_many("messages", " was", " were")),
                one_or_many("messages", "it", "them"),
                F.round(_waited_ms() / 1e3, 1),
                NUMBER,
            ),
            (F.col("key"),),
        ),
        MessageRule(
            FindingKind.SLOW_ACKNOWLEDGMENT,
            Severity.WARNING,
            late_acknowledgment(),
            sentence(
                "{} of {} acknowledged after more than the {} ms that the timers allow. The first is number {}: after "
                "{} ms.",
                _messages("message", "messages"),
                F.concat(sequence_name(), one_or_many("messages", " was", " were")),
                F.lit(LATEST_ORDER_ACK_MS),
                NUMBER,
                F.round("ack_latency_ms", 0).cast("long"),
            ),
            (F.col("key"),),
        ),
    ]
