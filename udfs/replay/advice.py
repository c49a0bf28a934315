"""Says for an incident what an operator can do about it."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from schemas.incidents import Cause, IncidentOutcome
from udfs.replay.words import counted

_DUPLICATES = (
    "Check all that was accepted since then (the page lists it) for orders that nobody placed or that were placed "
    "twice."
)
_SEND_AGAIN = "Have the application send the lost messages again: MSMQ will not."
_WAITS = "Until it arrives, the receiver refuses every later message of the sequence."
_NEEDED: Mapping[Cause, str] = {
    Cause.REFUSED_FOR_CAUSE: "Mend what the FinalAck's class names, such as a missing or full queue or a right that is "
    "not granted.",
    Cause.SEQUENCE_REGRESSED: "Ask whether the sender was restored from a backup or a snapshot, or runs twice.",
    Cause.MESSAGE_MISSING: "Look for the missing message on the sender: in the outgoing queue to this receiver, and in "
    "the transactional dead-letter queue.",
    Cause.CONTRADICTED: "Compare with the receiver's queue: it acknowledged other messages than the captures suggest.",
    Cause.CAPTURE_INCOMPLETE: "Compare with the receiver's queue. Next time, capture at the receiver, without loss, "
    "from before the connection is made.",
    Cause.TRANSACTION: "Check in the application that the transaction took effect as a whole.",
    Cause.ACKNOWLEDGMENT: "Check that the receiver's acknowledgments reach the sender.",
}
_AT_RECEIVER = (Cause.REFUSED_FOR_CAUSE, Cause.CONTRADICTED, Cause.CAPTURE_INCOMPLETE)
"""Causes of which the receiver's machine tells more than the sender's."""


def advise(cause: Cause, outcome: IncidentOutcome, senders: Sequence[Mapping[str, Any]]) -> str:
    """Returns what to do about an incident whose `senders` are as in INCIDENTS."""
    suspected = [one for one in senders if one["suspected"]]
    if outcome is IncidentOutcome.REPAIRED and cause is Cause.EXPIRED:
        return "No message was lost on the way. Those that expired may be in the sender's dead-letter queue."
    if outcome is IncidentOutcome.REPAIRED and not suspected:
        return "Nothing: no message was lost."
    addresses = [one["address"] for one in senders]
    copies = [f"{one['address']}, first seen {one['first_seen_at']:%Y-%m-%d %H:%M:%S} UTC," for one in suspected]
    needed = _two_machines(addresses, copies) if cause is Cause.NUMBER_REUSED else _NEEDED.get(cause, "")
    if outcome is IncidentOutcome.LOST:
        needed = f"{needed} {_send_again(senders) if suspected else _SEND_AGAIN}"
    elif outcome is IncidentOutcome.PENDING and cause is Cause.MESSAGE_MISSING:
        needed = f"{needed} {_WAITS}"
    return needed.strip() or "Compare with the receiver's queue."


def machines_of(incident: Mapping[str, Any]) -> list[str]:
    """Returns where an operator has to go about a row of INCIDENTS: addresses, or a GUID where none is known.

    That is the suspected copy, or else the sender or the receiver; nowhere if all is repaired.
    """
    if incident["outcome"] == IncidentOutcome.REPAIRED:
        return []
    if incident["cause"] in _AT_RECEIVER:
        return [incident["session_id"].rpartition("->")[2]]
    senders = incident["senders"]
    suspected = [one["address"] for one in senders if one["suspected"]]
    return suspected or [one["address"] for one in senders] or [incident["source_queue_manager"]]


def _send_again(senders: Sequence[Mapping[str, Any]]) -> str:
    """Returns what to do with the lost messages of each machine: those of a copy may never have been ordered."""
    to_do = {
        False: "once new messages from there are accepted, have the application send them again; MSMQ may still send "
        "some, in vain",
        True: "check each before it is sent again",
    }
    losing = sorted((one for one in senders if one["lost"]), key=itemgetter("suspected"))
    return " ".join(
        f"{counted(one['lost'], 'lost message')} came from {one['address']}: {to_do[one['suspected']]}."
        for one in losing
    )


def _two_machines(addresses: Sequence[str], suspected: Sequence[str]) -> str:
    """Returns what to do where one queue manager's numbers were used twice."""
    if suspected:
        later = " and ".join(suspected)
        return (
            f"Two machines have one queue manager GUID. {later} came later, so it is probably the copy: make sure, "
            f"stop Message Queuing there, and reinstall it before it is started again. {_DUPLICATES}"
        )
    if len(addresses) == 1:
        return (
            f"All came from {addresses[0]}: ask whether the sender was set back to an earlier state, as by a snapshot, "
            "or whether two machines with one queue manager GUID are behind that address."
        )
    return (
        "Look for two machines with one queue manager GUID, such as a cloned or restored virtual machine. Stop one, "
        "and reinstall Message Queuing on it."
    )
