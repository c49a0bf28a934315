"""The kinds of findings on messages that the receiver refused, or accepted over others."""

from schemas.replay import FindingKind, Reason, Severity, Verdict
from udfs.replay.findings.finding import Arrival, Found, Role, finding
from udfs.replay.words import all_counted, numbers, one_or_many

_SEVERITY_BY_FATE = {"lost": Severity.ERROR, "delivered": Severity.INFO}


def _severity(arrival: Arrival) -> Severity:
    return _SEVERITY_BY_FATE.get(arrival.fate, Severity.WARNING)


@finding(FindingKind.OUT_OF_ORDER, _severity, when=lambda arrival: arrival.is_refused and arrival.is_first_arrival)
def out_of_order(found: Found) -> str:
    """Tells what became of messages that were refused when they first came."""
    return (
        f"{found.counted('message')} of {found.sequence} arrived out of order and {found.was} refused; "
        f"{_fates(found)}. The first is number {found.first.number}, which needs number {found.first.previous}; the "
        f"receiver stood at: {found.stood}."
    )


def _fates(found: Found) -> str:
    """Says what became of the refused: "all were accepted later", "2 are lost, 1 is still to be accepted"."""
    fates = (
        (found.delivered, "was accepted later", "were accepted later"),
        (found.lost, "was never accepted and is lost", "were never accepted and are lost"),
        (found.messages - found.delivered - found.lost, "is still to be accepted", "are still to be accepted"),
    )
    for count, one, many in fates:
        if count == found.messages:
            return one_or_many(count, f"it {one}", f"all {many}")
    return ", ".join(all_counted(fates))


@finding(
    FindingKind.STUCK_SEQUENCE,
    Severity.WARNING,
    when=lambda arrival: (
        arrival.is_refused
        and arrival.reason == Reason.PREDECESSOR_MISSING
        and not arrival.is_first_arrival
        and arrival.fate == "pending"
    ),
    witness=(Role.SETTER, Role.PREVIOUS, Role.FIRST),
)
def stuck_sequence(found: Found) -> str:
    """Tells that messages are refused each time that they are resent."""
    return (
        f"The sender resends and the receiver refuses: {found.counted('resend')} of {found.sequence} {found.was} "
        f"refused again, and the receiver still waits for a message before {found.it}. The first is number "
        f"{found.first.number}, which needs number {found.first.previous}; the receiver stood at: {found.stood}."
    )


@finding(
    FindingKind.SEQUENCE_REGRESSED,
    Severity.ERROR,
    when=lambda arrival: (
        arrival.is_refused
        and arrival.is_first_arrival
        and arrival.is_below_accepted is True
        and (arrival.reason == Reason.STALE_SEQUENCE or arrival.is_sent_later)
    ),
)
def sequence_regressed(found: Found) -> str:
    """Tells that a sender went back to numbers that the receiver had passed."""
    began = "" if found.is_sent_later else "a new sequence began before these were acknowledged, so "
    return (
        f"{found.counted('new message')} of {found.sequence} {found.one_or_many('lies', 'lie')} below what the "
        f"receiver had accepted: {began}the sender was restored from a backup, or another machine uses its identity. "
        f"The first is number {found.first.number}; the receiver stood at: {found.stood}."
    )


@finding(FindingKind.GAP_EXPIRED, Severity.WARNING, when=lambda arrival: arrival.verdict == Verdict.GAP_EXPIRED)
def gap_expired(found: Found) -> str:
    """Tells which numbers a sender skipped, and which of them the receiver had refused before."""
    number = found.first.number
    refused = ", ".join(f"number {one.number} ({one.message_id})" for one in found.attempts)
    return (
        f"{found.counted('message')} of {found.sequence} {found.was} accepted although the sender skipped numbers, "
        f"which it does when messages expire. Before the first, number {number}, "
        f"{numbers(number - found.first.gap_size, number - 1)} expired."
        f"{f' The receiver had refused: {refused}.' if refused else ''}"
    )
