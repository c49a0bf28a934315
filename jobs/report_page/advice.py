"""Says for each cause of an incident what an operator can do about it."""

from collections.abc import Mapping

from schemas.incidents import Cause, IncidentOutcome

_LOST, _WAITING = IncidentOutcome.LOST.value, IncidentOutcome.PENDING.value
_SEND_AGAIN = "Have the application send the lost messages again: MSMQ will not."
_NEEDED: Mapping[Cause, str] = {
    Cause.REFUSED_FOR_CAUSE: "Mend what the FinalAck's class names, such as a missing or full queue or a right that is "
    "not granted.",
    Cause.NUMBER_REUSED: "Look for two machines with one queue manager GUID, such as a cloned or restored virtual "
    "machine. Stop one, and reinstall Message Queuing on it.",
    Cause.SEQUENCE_REGRESSED: "Ask whether the sender was restored from a backup or a snapshot, or runs twice.",
    Cause.MESSAGE_MISSING: "Look for the missing message on the sender: in the outgoing queue to this receiver, and in "
    "the transactional dead-letter queue.",
    Cause.CONTRADICTED: "Compare with the receiver's queue: it acknowledged other messages than the captures suggest.",
    Cause.CAPTURE_INCOMPLETE: "Compare with the receiver's queue, and capture without loss next time.",
    Cause.TRANSACTION: "Check in the application that the transaction took effect as a whole.",
    Cause.ACKNOWLEDGMENT: "Check that the receiver's acknowledgments reach the sender.",
}
_STILL_REFUSED = "Until it arrives, the receiver refuses every later message of the sequence."


_TWO_ADDRESSES = "The addresses of the rows that prove it tell them apart."
_ONE_ADDRESS = (
    "The rows that prove it come from one address: the sender was set back to an earlier state, or both machines are "
    "behind it."
)


def advice(cause: str, outcome: str, *, one_address: bool) -> str:
    """Returns what to do about an incident, of which all witnesses have `one_address`; an empty text for nothing."""
    if outcome == IncidentOutcome.REPAIRED.value:
        return ""
    needed = _NEEDED.get(Cause(cause), "")
    if cause == Cause.NUMBER_REUSED:
        needed = f"{needed} {_ONE_ADDRESS if one_address else _TWO_ADDRESSES}"
    if outcome == _LOST:
        return f"{needed} {_SEND_AGAIN}".strip()
    if outcome == _WAITING and cause == Cause.MESSAGE_MISSING:
        return f"{needed} {_STILL_REFUSED}"
    return needed
