"""The kinds of findings on messages: repeated, refused or accepted over others, not judged, and what answers say.

A rule reads the columns of an arrival that `arrivals` finds: those of its verdict, and what compares it with its
neighbours.
"""

import polars as pl

from schemas.replay import Evidence, FindingKind, Reason, Severity, Verdict
from schemas.wire import (
    LATEST_ORDER_ACK_MS,
    QUEUED_CLASS,
    RESEND_INTERVALS_S,
    MessageClass,
)
from udfs.replay.content import differs_from
from udfs.replay.findings.final_acks import TIME_OUTS, advice_on, reason_of
from udfs.replay.findings.finding import Found, Role, Rule
from udfs.replay.order.watched import is_overdue
from udfs.replay.words import all_counted, class_name, number_range, one_or_many, tenths, whole

_TOLERANCE = 0.1  # of the interval
_WHY_BELOW = (
    "the sender was restored from a backup, another machine uses its identity, or another receiver took what was "
    "sent before"
)

_ACCEPTED, _ACKNOWLEDGED, _FINAL = (pl.col(name) for name in ("accepted", "acknowledged", "final_ack_class"))
_IS_FIRST_ARRIVAL = pl.col("previous_arrival").is_null()
"""Nothing with its number and content came before."""
_DIFFERS = differs_from("original_hash")
"""Another content was accepted under its number."""
_IS_CONTRADICTED = pl.col("evidence") == Evidence.CONTRADICTED.value
_IS_SEEN_ANSWERED = _ACCEPTED & pl.col("answers_whole")
"""It was accepted, and the captures show all that the receiver sent."""


def _verdict_is(verdict: Verdict) -> pl.Expr:
    return pl.col("verdict") == verdict.value


def _reason_is(reason: Reason) -> pl.Expr:
    return pl.col("reason") == reason.value


_IS_REFUSED = _verdict_is(Verdict.OUT_OF_ORDER) & ~_IS_CONTRADICTED
"""It was refused as out of order, and no acknowledgment says otherwise."""


def _duplicates_differ(found: Found) -> str:
    other_id = any(original.message_id != found.first.message_id for original in found.shown[Role.ORIGINAL])
    return (
        f"{found.counted('message')} reused {found.one_or_many('a number', 'numbers')} under which the receiver "
        f"accepted a different message ({'another message ID' if other_id else 'the same message ID, other content'}). "
        f"Two senders share one identity, or a sender was restored from a backup. {found.first_is}."
    )


def _resend_schedule(found: Found) -> str:
    listed = ", ".join(str(tenths(interval)) for interval in found.intervals)
    judged = (
        "the default intervals of [MS-MQQB] 3.1.3.1"
        if all(map(_is_default, found.intervals))
        else "not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry settings set them"
    )
    return (
        f"No OrderAck came in time for {found.sequence}, so the sender sent number {found.first.number} again on the "
        f"same connection, after {listed} s: {judged}."
    )


def _is_default(interval_s: float) -> bool:
    return any(abs(interval_s - default) <= default * _TOLERANCE for default in RESEND_INTERVALS_S)


def _fates(found: Found) -> str:
    """Says what became of the refused: "all were accepted later", "2 are lost, 1 is still to be accepted"."""
    unknown = found.messages - found.delivered - found.lost - found.pending
    fates = (
        (found.delivered, "was accepted later", "were accepted later"),
        (found.lost, "was never accepted and is lost", "were never accepted and are lost"),
        (found.pending, "is still to be accepted", "are still to be accepted"),
        (unknown, "is not known to be delivered", "are not known to be delivered"),
    )
    for count, one, many in fates:
        if count == found.messages:
            return one_or_many(count, f"it {one}", f"all {many}")
    return ", ".join(all_counted(fates))


def _severity_by_fate(found: Found) -> Severity:
    if found.lost:
        return Severity.ERROR
    return Severity.INFO if found.delivered == found.messages else Severity.WARNING


def _gap_expired(found: Found) -> str:
    number = found.first.number
    attempts = (f"number {one.number} ({one.message_id})" for one in found.shown.get(Role.ATTEMPT, ()))
    refused = ", ".join(dict.fromkeys(attempts))  # one message may have been refused several times
    skipped = number_range(number - found.first.gap_size, number - 1)
    why = (
        f"{skipped} had not been seen: delivered before the captures, skipped by the sender, or late"
        if found.first.state_number is None
        else f"the sender skipped {skipped}"
    )
    return (
        f"{found.counted('message')} {found.was} accepted over numbers that did not come, as when messages expire. "
        f"Before the first, number {number}, {why}."
        f"{f' The receiver had refused: {refused}.' if refused else ''}"
    )


def _contradicted(found: Found) -> str:
    subject = f"{found.counted('message')} {found.one_or_many('is', 'are')}"
    if found.first.accepted:
        return (
            f"The receiver's OrderAcks contradict the replay: {subject} in order, but an OrderAck at least "
            f"{LATEST_ORDER_ACK_MS} ms later names a lower number. {found.first_is}."
        )
    return (
        f"The receiver's acknowledgments contradict the replay: {subject} out of order, but the receiver acknowledged "
        f"{found.it}. It breaks the rule, or it had messages that no capture holds. {found.first_needs}; {found.stood}"
    )


def _as_final_acks_say(found: Found) -> str:
    final, age_s = found.first.final_ack_class or 0, found.first.age_s
    sent = (
        f", sent, by its sender's clock, {age_s:,} s before it was captured"
        if final in TIME_OUTS and age_s and age_s > 0
        else ""
    )
    return (
        f"as {found.one_or_many('a FinalAck says', 'FinalAcks say')}: {reason_of(final)} ({class_name(final)}). "
        f"{found.first_is}{sent}. {advice_on(final)}"
    )


RULES = (
    Rule(
        FindingKind.DUPLICATES,
        Severity.INFO,
        when=_verdict_is(Verdict.DUPLICATE) & ~_DIFFERS,
        says=lambda found: (
            f"{found.counted('repeat')} arrived after what it repeats was accepted by the rules, which refuse "
            f"{found.it}. The first repeats number {found.first.number}."
        ),
        witness=(Role.ORIGINAL, Role.FIRST),
    ),
    Rule(
        FindingKind.DUPLICATES_DIFFER,
        Severity.ERROR,
        when=_DIFFERS & _IS_FIRST_ARRIVAL,
        says=_duplicates_differ,
        witness=(Role.ORIGINAL, Role.FIRST),
    ),
    Rule(
        FindingKind.RESEND_SCHEDULE,
        Severity.INFO,
        when=pl.col("interval_s").is_not_null(),
        says=_resend_schedule,
        witness=(Role.PREVIOUS, Role.FIRST),
        of_one_message=True,
    ),
    Rule(
        FindingKind.OUT_OF_ORDER,
        _severity_by_fate,
        when=_IS_REFUSED & _IS_FIRST_ARRIVAL,
        says=lambda found: (
            f"{found.counted('message')} arrived out of order and {found.was} refused; {_fates(found)}. "
            f"{found.first_needs}; {found.stood}"
        ),
    ),
    Rule(
        FindingKind.STUCK_SEQUENCE,
        Severity.WARNING,
        when=(
            _IS_REFUSED & _reason_is(Reason.PREDECESSOR_MISSING) & ~_IS_FIRST_ARRIVAL & (pl.col("fate") == "pending")
        ),
        says=lambda found: (
            f"The sender resends and the receiver refuses: {found.counted('resend')} {found.was} refused again, and "
            f"the receiver still waits for a message before {found.it}. {found.first_needs}; {found.stood}"
        ),
        witness=(Role.SETTER, Role.PREVIOUS, Role.FIRST),
    ),
    Rule(
        FindingKind.SEQUENCE_REGRESSED,
        Severity.ERROR,
        when=(
            # It is new and below what was accepted; stragglers that others overtook are not meant.
            _IS_REFUSED
            & _IS_FIRST_ARRIVAL
            & pl.col("is_below_accepted")
            & (_reason_is(Reason.STALE_SEQUENCE) | pl.col("is_sent_after_all_accepted"))
        ),
        says=lambda found: (
            f"{found.counted('new message')} {found.one_or_many('lies', 'lie')} below what the receiver had accepted: "
            f"{'' if found.first_is_sent_later else 'a new sequence began before these were acknowledged, so '}"
            f"{_WHY_BELOW}. {found.first_is}; {found.stood}"
        ),
    ),
    Rule(
        FindingKind.GAP_EXPIRED,
        Severity.WARNING,
        when=_verdict_is(Verdict.GAP_EXPIRED),
        says=_gap_expired,
        witness=(Role.SETTER, Role.FIRST, Role.ATTEMPT),
    ),
    Rule(
        FindingKind.CAPTURE_GAP,
        Severity.WARNING,
        when=_reason_is(Reason.CAPTURE_GAP) & ~_ACKNOWLEDGED,
        says=lambda found: (
            f"{found.counted('message')} cannot be judged: bytes are missing from the captures before {found.it}, and "
            f"the numbers skipped may have been in these bytes. {found.first_needs}; before the missing bytes "
            f"{found.stood}"
        ),
    ),
    Rule(
        FindingKind.MISSED_BY_CAPTURE,
        Severity.INFO,
        when=_reason_is(Reason.CAPTURE_GAP) & _ACKNOWLEDGED,
        says=lambda found: (
            f"Bytes are missing from the captures before {found.counted('message')}, but the receiver acknowledged "
            f"{found.it}: it had what the captures miss. {found.first_is}; before the missing bytes {found.stood}"
        ),
    ),
    Rule(
        FindingKind.CLOCKS_DIFFER,
        Severity.WARNING,
        when=_reason_is(Reason.CLOCKS_DIFFER) & ~_ACKNOWLEDGED,
        says=lambda found: (
            f"{found.counted('message')} cannot be judged: the clocks of two captures differ by more than the time "
            f"between {found.it} and a message on another connection, so either may have come first. "
            f"{found.first_needs}; {found.stood}"
        ),
    ),
    Rule(
        FindingKind.CONTRADICTED,
        Severity.ERROR,
        when=_IS_CONTRADICTED,
        says=_contradicted,
        witness=(Role.FIRST,),
    ),
    Rule(
        FindingKind.REFUSED_FOR_CAUSE,
        Severity.ERROR,
        when=(_FINAL & QUEUED_CLASS == 0) & _IS_FIRST_ARRIVAL,
        says=lambda found: f"The receiver refused {found.counted('message')}, {_as_final_acks_say(found)}",
        witness=(Role.FIRST,),
        by_cause=True,
    ),
    Rule(
        FindingKind.NOT_RECEIVED_BY_APPLICATION,
        Severity.WARNING,
        when=(MessageClass.MQMSG_CLASS_NACK_Q_DELETED.value <= _FINAL) & _IS_FIRST_ARRIVAL,
        says=lambda found: (
            f"{found.counted('message')} reached the queue and left it unread, {_as_final_acks_say(found)}"
        ),
        witness=(Role.FIRST,),
        by_cause=True,
    ),
    Rule(
        FindingKind.UNACKNOWLEDGED,
        Severity.WARNING,
        when=(_IS_SEEN_ANSWERED & ~_ACKNOWLEDGED & is_overdue() & ~_IS_CONTRADICTED),
        says=lambda found: (
            f"The rule accepts {found.counted('message')}, but the captures hold no OrderAck for {found.it}, "
            f"although they show the session for more than the {LATEST_ORDER_ACK_MS} ms that the timers allow. "
            f"{found.first_is}."
        ),
        witness=(Role.FIRST,),
    ),
    Rule(
        FindingKind.SLOW_ACKNOWLEDGMENT,
        Severity.WARNING,
        when=_IS_SEEN_ANSWERED & (pl.col("ack_latency_ms") > LATEST_ORDER_ACK_MS),
        says=lambda found: (
            f"{found.counted('message')} {found.was} acknowledged after more than the {LATEST_ORDER_ACK_MS} ms that "
            f"the timers allow. {found.first_is}: after {whole(found.first.ack_latency_ms or 0)} ms."
        ),
        witness=(Role.FIRST,),
    ),
)
