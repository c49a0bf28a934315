"""The kinds of findings on messages that came again, and on numbers that were used again."""

from schemas.replay import FindingKind, Severity, Verdict
from udfs.replay.findings.finding import Found, Role, finding
from udfs.replay.words import tenths

_DEFAULTS_S = (30, 300, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1
_TOLERANCE = 0.1  # of the interval


@finding(
    FindingKind.DUPLICATES,
    Severity.INFO,
    when=lambda arrival: arrival.verdict == Verdict.DUPLICATE and arrival.is_original,
    witness=(Role.ORIGINAL, Role.FIRST),
)
def duplicates(found: Found) -> str:
    """Tells that messages came again after they had been accepted."""
    return (
        f"{found.counted('repeat')} of {found.sequence} arrived after the receiver had the message, and it refused "
        f"{found.it}, as it should. The first repeats number {found.first.number}."
    )


@finding(
    FindingKind.DUPLICATES_DIFFER,
    Severity.ERROR,
    when=lambda arrival: not arrival.is_original,
    witness=(Role.ORIGINAL, Role.FIRST),
)
def duplicates_differ(found: Found) -> str:
    """Tells that a number was used for two messages."""
    other_id = found.original is not None and found.original.message_id != found.first.message_id
    return (
        f"{found.counted('message')} of {found.sequence} reused {found.one_or_many('a number', 'numbers')} under which "
        f"the receiver accepted a different message "
        f"({'another message ID' if other_id else 'the same message ID, other content'}). Two senders share one "
        f"identity, or a sender was restored from a backup. The first is number {found.first.number}."
    )


@finding(
    FindingKind.RESEND_SCHEDULE,
    Severity.INFO,
    when=lambda arrival: arrival.interval_s is not None,
    witness=(Role.PREVIOUS, Role.FIRST),
    of_one_message=True,
)
def resend_schedule(found: Found) -> str:
    """Tells after which intervals a message was resent."""
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
    return any(abs(interval_s - default) <= default * _TOLERANCE for default in _DEFAULTS_S)
