"""Says of an incident why it happened, what became of its messages, and what an operator can do about it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import LOST, Outcome
from schemas.replay import FindingKind as Kind
from udfs.replay.findings.final_acks import TIME_OUTS, advice_on
from udfs.replay.words import all_counted, counted, one_or_many, sequence_name

PENDING = (Outcome.PENDING, Outcome.AWAITED)
_DUPLICATES = (
    "Check all that was accepted since then (the page lists it) for orders that nobody placed or that were placed "
    "twice."
)
_SEND_AGAIN = (
    "Look for the lost messages in the sender's transactional dead-letter queue, and in its outgoing queue, from where "
    "it may still send them in vain; then have the application send again those that still matter: the receiver takes "
    "these no more."
)
_NO_ACK = "no acknowledgment in the captures"
_MAY_BE_THERE = "Do not send them again from the application before the receiver's queue was looked at."
_IN_SHORT = {
    Cause.CANNOT_CONNECT: "The receiver could not connect back to the sender",
    Cause.ACKNOWLEDGED_ELSEWHERE: "The receiver sent its acknowledgments to another machine",
    Cause.CLOSED_BY_RECEIVER: "The receiver ended each connection right after the messages",
    Cause.RECEIVER_REPLACED: "Another queue manager answers in place of the receiver",
    Cause.SEVERAL_RECEIVERS: "Several queue managers take messages at the receiver's address",
    Cause.ACKNOWLEDGMENT_FELL: "The receiver went back to an earlier state, and nobody sends again what it lost",
    Cause.NEVER_ANSWERED: "The captures do not show why",
}
"""Why a receiver did not acknowledge messages, or lost messages that it had acknowledged."""
_SOON = timedelta(minutes=1)
"""Captures that begin while two machines send show the one that sends less often later."""
_WAITS = "Until it arrives, the receiver refuses every later message of the sequence."


class Certainty(StrEnum):
    """Lists how sure an outcome is, the surest first."""

    CONFIRMED = "confirmed by an acknowledgment"
    INFERRED = "inferred from the rules"
    CLOCKS = "depends on clocks"
    UNKNOWN = "unknown"


class CauseIs(StrEnum):
    """Lists how sure the cause of an incident is."""

    SHOWN = "shown by captured packets"
    INFERRED = "inferred from the rules"
    UNKNOWN = "unknown"


class _About(NamedTuple):
    """Holds what there is to say of a cause."""

    shown_by: tuple[Outcome | Kind, ...]
    sentence: str
    needed: str = ""
    """Says what to do about the cause. Empty where incidents with this cause need different things."""
    besides: str = ""
    """How a sentence names it as a second cause for which messages are lost or pending."""
    if_none_lost: str = "Nothing: no message was lost."
    """Says what to do where no message is lost, pending or unknown."""


_ABOUT: Mapping[Cause, _About] = {
    Cause.REFUSED_FOR_CAUSE: _About(
        (Outcome.REFUSED_FOR_CAUSE, Kind.REFUSED_FOR_CAUSE),
        "The receiver refused messages of {} for a cause that its FinalAck names",
        "Mend what the FinalAck's class names, such as a missing or full queue or a right that is not granted.",
    ),
    Cause.NUMBER_REUSED: _About(
        (Outcome.DISPLACED, Kind.DUPLICATES_DIFFER),
        "Numbers of {} were used again for different messages, so that the receiver accepted only one message of each "
        "number",
        besides="numbers were used again for different messages",
    ),
    Cause.SEVERAL_RECEIVERS: _About(
        (Kind.SEVERAL_RECEIVERS,),
        "Messages of {} went to several queue managers behind one address, of which each knows only what it accepted",
        "Look at the load balancer or cluster in front of the receivers: transactional messages need the same queue "
        "manager each time. Before anything is sent again, look on each of them which messages it has.",
        if_none_lost="No message was lost. Ask whether the application did twice, on two receivers, what it should do "
        "once, and look at the load balancer or cluster in front of these.",
    ),
    Cause.SEQUENCE_REGRESSED: _About(
        (Kind.SEQUENCE_REGRESSED,),
        "The sender of {} went back to numbers or to a sequence that the receiver had passed, as after a restore from "
        "a backup",
        "Ask whether the sender was restored from a backup or a snapshot, or runs twice.",
    ),
    Cause.MESSAGE_MISSING: _About(
        (
            *(Outcome.GIVEN_UP, Outcome.PASSED_BY, Outcome.NEVER_SEEN, *PENDING, Outcome.DELIVERED_AFTER_REFUSAL),
            *(Kind.OUT_OF_ORDER, Kind.STUCK_SEQUENCE),
        ),
        "A message of {} did not arrive in its turn, so the receiver refused it or those after it",
        "Look for the missing message on the sender: in the outgoing queue to this receiver, and in the transactional "
        "dead-letter queue.",
        besides="messages did not arrive in their turn",
    ),
    Cause.CANNOT_CONNECT: _About(
        (Kind.CANNOT_CONNECT,),
        "The receiver of {} could not connect to the sender, so that its acknowledgments did not arrive",
        "Look whether Message Queuing listens on the sender, and at the firewall between the two, in the direction "
        "from the receiver to the sender.",
    ),
    Cause.ACKNOWLEDGED_ELSEWHERE: _About(
        (Kind.ACKNOWLEDGED_ELSEWHERE,),
        "The receiver sent its acknowledgments of {} to another machine",
        "Look what the sender's name and address mean on the receiver (DNS, hosts file, address translation), and "
        "correct it.",
    ),
    Cause.CLOSED_BY_RECEIVER: _About(
        (Kind.CLOSED_BY_RECEIVER,),
        "The receiver ended each connection with messages of {} right after them, before it acknowledged any",
        "Look on the receiver for a full disk, a lack of memory or quota, and at its event log: it cannot store "
        "messages.",
    ),
    Cause.RECEIVER_REPLACED: _About(
        (Kind.RECEIVER_REPLACED,),
        "Another queue manager answers in place of the receiver of {}",
        "Ask whether the receiver was moved, replaced or installed again. Before anything is restarted or sent again, "
        "check on the old and on the new machine which messages they have: the new one refuses what is not the "
        "beginning of a sequence. Then let the sender begin again: look through its outgoing queue, and restart "
        "Message Queuing on the sender.",
    ),
    Cause.ACKNOWLEDGMENT_FELL: _About(
        (Kind.ACKNOWLEDGMENT_FELL,),
        "The receiver acknowledged a lower number of {} than before: it went back to an earlier state",
        "Ask whether the receiver was restored from a backup or a snapshot. Its sender has deleted what was "
        "acknowledged, so have the application send again what the receiver lacks.",
    ),
    Cause.NEVER_ANSWERED: _About(
        (Kind.NEVER_ANSWERED,),
        "The captures hold no acknowledgment of messages of {}",
        "Look whether the messages are still in the sender's outgoing queue. If they are, look on the receiver whether "
        "the queue exists and is transactional, and at its event log; but first at the path to it where its TCP did "
        "not acknowledge the bytes either.",
    ),
    Cause.CONTRADICTED: _About(
        (Outcome.CONTRADICTED, Kind.CONTRADICTED),
        "The receiver's acknowledgments of {} contradict the replay",
        "Compare with the receiver's queue: it acknowledged other messages than the captures suggest.",
    ),
    Cause.CAPTURE_INCOMPLETE: _About(
        (Outcome.UNKNOWN, Kind.CAPTURE_GAP, Kind.MISSED_BY_CAPTURE, Kind.CLOCKS_DIFFER),
        "The captures do not hold all of {}, or not in a sure order",
        "Compare with the receiver's queue. Next time, capture at the receiver, without loss, from before the "
        "connection is made.",
    ),
    Cause.DELIVERED_TWICE: _About(
        (Outcome.DELIVERED_TWICE,),
        "Messages of {} were accepted more than once",
        if_none_lost="No message was lost. Ask whether the application did for them twice what it should do once.",
    ),
    Cause.NOT_READ: _About(
        (Outcome.NOT_READ,),
        "Messages of {} left their queue unread",
        if_none_lost="No message was lost on the way. Look whether an application reads the queue; what left it unread "
        "may be in the sender's dead-letter queue.",
    ),
    Cause.EXPIRED: _About(
        (Outcome.EXPIRED_UNSEEN, Kind.GAP_EXPIRED, Kind.EXPIRED_ON_ARRIVAL),
        "The sender of {} skipped numbers, as it does when messages expire before they are sent",
        if_none_lost="No message was lost on the way. Those that expired may be in the sender's dead-letter queue.",
    ),
    Cause.TRANSACTION: _About(
        (Kind.TORN_TRANSACTION, Kind.TRANSACTION_PARTLY_DELIVERED),
        "Transactions of {} are torn or mixed with others",
        "Check in the application that the transaction took effect as a whole.",
    ),
    Cause.ACKNOWLEDGMENT: _About(
        (Outcome.UNACKNOWLEDGED, Kind.UNACKNOWLEDGED, Kind.SLOW_ACKNOWLEDGMENT, Kind.REPEATED_ORDER_ACK),
        "Acknowledgments of {} were late, missing or repeated",
        "Check that the receiver's acknowledgments reach the sender.",
    ),
    Cause.RESENT: _About(
        (Kind.DUPLICATES, Kind.RESEND_SCHEDULE), "Messages of {} were sent again although the receiver had them"
    ),
    Cause.OTHER: _About((), "Something unusual happened to {}"),
}
CAUSE_OF = {shown: cause for cause, about in _ABOUT.items() for shown in about.shown_by}
_AT_RECEIVER = (
    *(Cause.REFUSED_FOR_CAUSE, Cause.ACKNOWLEDGED_ELSEWHERE, Cause.CLOSED_BY_RECEIVER),
    *(Cause.RECEIVER_REPLACED, Cause.ACKNOWLEDGMENT_FELL, Cause.NEVER_ANSWERED),
    *(Cause.CONTRADICTED, Cause.CAPTURE_INCOMPLETE, Cause.SEVERAL_RECEIVERS),
)
"""Causes of which the receiver's machine tells more than the sender's."""
_SURE = {
    **dict.fromkeys(
        (
            *(Cause.REFUSED_FOR_CAUSE, Cause.NUMBER_REUSED, Cause.CANNOT_CONNECT, Cause.ACKNOWLEDGED_ELSEWHERE),
            *(Cause.CLOSED_BY_RECEIVER, Cause.RECEIVER_REPLACED, Cause.ACKNOWLEDGMENT_FELL),
            Cause.NOT_READ,
        ),
        CauseIs.SHOWN,
    ),
    **dict.fromkeys((Cause.CAPTURE_INCOMPLETE, Cause.NEVER_ANSWERED, Cause.CONTRADICTED, Cause.OTHER), CauseIs.UNKNOWN),
}
"""How sure causes are; others are inferred from the rules."""


def sentence_of(
    tx_sequence_id: int,
    more: int,
    cause: Cause,
    counts: Mapping[str, int],
    harm: Mapping[Outcome, int],
    missing: str,
    undecided: int = 0,
) -> str:
    """Returns causes and outcome of what happened to a sequence and to some `more`; `counts` are as in INCIDENTS.

    `harm` says how many messages have each outcome of those that are lost or pending. Without the numbers that are
    `missing`, the receiver accepts nothing that is pending. Of those whose outcome is unknown, so many are lost that
    are `undecided`.
    """
    name = sequence_name(tx_sequence_id)
    if more:
        name += f" and {counted(more, 'sequence after it', 'sequences after it')}"
    causes = {CAUSE_OF[outcome] for outcome in harm}
    others = [about.besides for other, about in _ABOUT.items() if {cause, other} <= causes and other != cause]
    besides = "".join(f"; besides, {said}" for said in others if said)
    stuck = f" ({counts['stuck']} resent and refused again)" if counts["stuck"] else ""
    waits = f"{stuck} because {missing} did not arrive" if missing else stuck
    pending = " or ".join(one.value for one in PENDING if one in harm)
    lost = [outcome for outcome in LOST if outcome in harm]
    split = f" ({', '.join(f'{harm[one]} {one}' for one in lost)})".replace("_", " ")
    split = split if len({CAUSE_OF[one] for one in lost}) > 1 else ""
    of_which = (
        f", of which {undecided} {one_or_many(undecided, 'was', 'were')} lost; which machine's is not known, because "
        "nothing compares the clocks of these captures"
        if undecided
        else ""
    )
    said = all_counted(
        [
            (counts["lost"], "message was lost", f"messages were lost{split}"),
            (counts["pending"], f"message is {pending}{waits}", f"messages are {pending}{waits}"),
            (counts["unacknowledged"], f"message has {_NO_ACK}", f"messages have {_NO_ACK}"),
            (counts["unknown"], "message has an unknown outcome", f"messages have an unknown outcome{of_which}"),
            (counts["repaired"], "message was delivered after a refusal", "messages were delivered after a refusal"),
            (counts["expired"], "number expired unseen", "numbers expired unseen"),
        ]
    )
    return f"{_ABOUT[cause].sentence.format(name)}{besides}: {', '.join(said) or 'no message was lost'}."


def in_short(cause: Cause) -> str:
    """Returns in a few words why a receiver acknowledged nothing; an empty text for another cause."""
    return _IN_SHORT.get(cause, "")


def advise(
    cause: Cause,
    outcome: IncidentOutcome,
    senders: Sequence[Mapping[str, Any]],
    classes: Sequence[int] = (),
    *,
    is_missing: bool = True,
) -> str:
    """Returns what to do about an incident whose `senders` are as in INCIDENTS; `classes` are those of FinalAcks.

    `is_missing`: a message has not come; else what was lost came when the receiver had gone past it.
    """
    suspected = [one for one in senders if one["suspected"]]
    if outcome is IncidentOutcome.REPAIRED and not suspected:
        return _ABOUT[cause].if_none_lost
    addresses = [one["address"] for one in senders]
    copies = [f"{one['address']}, first seen {one['first_seen_at']:%Y-%m-%d %H:%M:%S} UTC," for one in suspected]
    needed = (
        _two_machines(addresses, copies, soon=_came_soon(senders))
        if cause is Cause.NUMBER_REUSED
        else _ABOUT[cause].needed
    )
    if cause is Cause.REFUSED_FOR_CAUSE and classes:
        needed = " ".join(dict.fromkeys(map(advice_on, classes)))
    if cause is Cause.MESSAGE_MISSING and outcome is IncidentOutcome.LOST and not is_missing:
        needed = "The lost messages came, but the receiver had gone past them or waited for others."
    if outcome is IncidentOutcome.LOST:
        needed = f"{needed} {_send_again(senders) if suspected else _SEND_AGAIN}"
    elif outcome is IncidentOutcome.PENDING and cause is Cause.MESSAGE_MISSING:
        needed = f"{needed} {_WAITS}"
    elif outcome is IncidentOutcome.UNACKNOWLEDGED:
        needed = f"{needed} {_MAY_BE_THERE}"
    return needed.strip() or "Compare with the receiver's queue."


def certainty_of(incident: Mapping[str, Any]) -> Certainty:
    """Returns how sure it is what became of the messages of a row of INCIDENTS.

    Where the receiver never acknowledged them, nobody but it knows whether it has them.
    """
    if incident["outcome"] == IncidentOutcome.UNKNOWN:
        return Certainty.CLOCKS if incident["undecided"] else Certainty.UNKNOWN
    if incident["outcome"] == IncidentOutcome.UNACKNOWLEDGED:
        return Certainty.UNKNOWN
    if incident["cause"] in (Cause.REFUSED_FOR_CAUSE, Cause.NOT_READ):
        return Certainty.CONFIRMED
    return Certainty.INFERRED


def certainty_of_cause(incident: Mapping[str, Any]) -> CauseIs:
    """Returns how sure it is why the incident of a row of INCIDENTS happened."""
    return _SURE.get(Cause(incident["cause"]), CauseIs.INFERRED)


def how_sure(outcome: Certainty, cause: CauseIs, lacks: str) -> str:
    """Returns in one line how sure outcome and cause of an incident are, and what captures lack of its session."""
    caveat = f"; the captures lack {lacks} between the two machines, and may have missed what matters" if lacks else ""
    return f"what became of them: {outcome.value}; why: {cause.value}{caveat}"


def machines_of(incident: Mapping[str, Any], classes: Sequence[int] = ()) -> list[str]:
    """Returns where an operator has to go about a row of INCIDENTS: addresses, or a GUID where none is known.

    That is the suspected copy, where it came later enough to be sure, or else the sender or the receiver; where the
    receiver cannot connect to the sender, or a time ran out by the sender's clock (of the `classes` of FinalAcks), the
    sender and then the receiver; nowhere if all is repaired.
    """
    if incident["outcome"] == IncidentOutcome.REPAIRED:
        return []
    receivers = incident["receivers"] or [incident["session_id"].rpartition("->")[2]]
    ran_out = incident["cause"] == Cause.REFUSED_FOR_CAUSE and any(one in TIME_OUTS for one in classes)
    if incident["cause"] in _AT_RECEIVER and not ran_out:
        return receivers
    senders = incident["senders"]
    suspected = [] if _came_soon(senders) else [one["address"] for one in senders if one["suspected"]]
    at_sender = suspected or [one["address"] for one in senders] or [incident["source_queue_manager"]]
    return [*at_sender, *receivers] if ran_out or incident["cause"] == Cause.CANNOT_CONNECT else at_sender


def _send_again(senders: Sequence[Mapping[str, Any]]) -> str:
    """Returns what to do with the lost messages of each machine: those of a copy may never have been ordered."""
    to_do = {
        False: "once new messages from there are accepted, have the application send them again; MSMQ may still send "
        "some, in vain",
        True: "check each before it is sent again",
    }
    losing = sorted((one for one in senders if one["lost"]), key=itemgetter("suspected"))
    soon = _came_soon(senders)
    return " ".join(
        f"{counted(one['lost'], 'lost message')} came from {one['address']}: {to_do[soon or one['suspected']]}."
        for one in losing
    )


def _came_soon(senders: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a suspected machine came so soon after the first one that both may have been there before."""
    times: dict[bool, list[datetime]] = {
        suspected: [one["first_seen_at"] for one in senders if one["suspected"] is suspected and one["first_seen_at"]]
        for suspected in (False, True)
    }
    return all(times.values()) and min(times[True]) - min(times[False]) < _SOON


def _two_machines(addresses: Sequence[str], suspected: Sequence[str], *, soon: bool) -> str:
    """Returns what to do where one queue manager's numbers were used twice; a copy may have come `soon`."""
    if suspected:
        later = " and ".join(suspected)
        came = (
            "came less than a minute after the other one, so either may be the copy: make sure which, stop Message "
            "Queuing on it"
            if soon
            else "came later, so it is probably the copy: make sure, stop Message Queuing there"
        )
        return (
            f"Two machines have one queue manager GUID. {later} {came}, and reinstall it before it is started again. "
            f"{_DUPLICATES}"
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
