"""The kinds of findings on messages that the captures do not show well enough to judge them."""

from schemas.replay import FindingKind, Reason, Severity
from udfs.replay.findings.finding import Found, finding


@finding(
    FindingKind.CAPTURE_GAP,
    Severity.WARNING,
    when=lambda arrival: arrival.reason == Reason.CAPTURE_GAP and not arrival.acknowledged,
)
def capture_gap(found: Found) -> str:
    """Tells that missing bytes leave open what the receiver did."""
    return (
        f"{found.counted('message')} of {found.sequence} cannot be judged: bytes are missing from the captures before "
        f"{found.it}, and the numbers skipped may have been in these bytes. The first is number {found.first.number}, "
        f"which needs number {found.first.previous}; before the missing bytes the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.MISSED_BY_CAPTURE,
    Severity.INFO,
    when=lambda arrival: arrival.reason == Reason.CAPTURE_GAP and arrival.acknowledged,
)
def missed_by_capture(found: Found) -> str:
    """Tells that an acknowledgment closes the gap that missing bytes left."""
    return (
        f"Bytes are missing from the captures before {found.counted('message')} of {found.sequence}, but the receiver "
        f"acknowledged {found.it}: it had what the captures miss. The first is number {found.first.number}; before the "
        f"missing bytes the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.CLOCKS_DIFFER,
    Severity.WARNING,
    when=lambda arrival: arrival.reason == Reason.CLOCKS_DIFFER and not arrival.acknowledged,
)
def clocks_differ(found: Found) -> str:
    """Tells that the clocks of two captures leave the order open."""
    return (
        f"{found.counted('message')} of {found.sequence} cannot be judged: the clocks of two captures differ by more "
        f"than the time between {found.it} and a message on another connection, so either may have come first. The "
        f"first is number {found.first.number}, which needs number {found.first.previous}; the receiver stood at: "
        f"{found.stood}."
    )
