"""Says in one sentence why something happened to sequences, and what became of their messages."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from schemas.incidents import Cause
from schemas.outcomes import LOST, Outcome
from udfs.replay.words import all_counted, counted, tx_sequence

_SENTENCES: Mapping[Cause, str] = {
    Cause.REFUSED_FOR_CAUSE: "The receiver refused messages of {} for a cause that its FinalAck names",
    Cause.NUMBER_REUSED: "Numbers of {} were used again for different messages, so that the receiver accepted only one "
    "message of each number",
    Cause.SEQUENCE_REGRESSED: "The sender of {} went back to numbers or to a sequence that the receiver had passed, as "
    "after a restore from a backup",
    Cause.MESSAGE_MISSING: "A message of {} did not arrive in its turn, so the receiver refused those after it",
    Cause.CONTRADICTED: "The receiver's acknowledgments of {} contradict the replay",
    Cause.CAPTURE_INCOMPLETE: "The captures do not hold all of {}, or not in a sure order",
    Cause.DELIVERED_TWICE: "Messages of {} were accepted more than once",
    Cause.NOT_READ: "Messages of {} left their queue unread",
    Cause.EXPIRED: "The sender of {} skipped numbers, as it does when messages expire before they are sent",
    Cause.TRANSACTION: "Transactions of {} are torn or mixed with others",
    Cause.ACKNOWLEDGMENT: "Acknowledgments of {} were late, missing or repeated",
    Cause.RESENT: "Messages of {} were sent again although the receiver had them",
    Cause.OTHER: "Something unusual happened to {}",
}
_BESIDES: Mapping[Cause, str] = {
    Cause.NUMBER_REUSED: "numbers were used again for different messages",
    Cause.MESSAGE_MISSING: "messages did not arrive in their turn",
}
"""A second cause for which messages are lost or pending."""


class Harm(NamedTuple):
    """Holds an outcome of messages that are lost or pending, its cause, and how many are lost."""

    cause: Cause
    outcome: Outcome
    lost: int


def sentence_of(
    tx_sequence_id: int, more: int, cause: Cause, counts: Mapping[str, int], harm: Iterable[Harm], missing: str
) -> str:
    """Returns causes and outcome of what happened to a sequence and to some `more`; `counts` are as in INCIDENTS.

    Without the numbers that are `missing`, the receiver accepts nothing that is pending.
    """
    name = f"sequence {tx_sequence(tx_sequence_id)}"
    if more:
        name += f" and {counted(more, 'sequence after it', 'sequences after it')}"
    causes = {one.cause for one in harm}
    besides = [f"; besides, {said}" for other, said in _BESIDES.items() if {cause, other} <= causes and other != cause]
    stuck = f" ({counts['stuck']} resent and refused again)" if counts["stuck"] else ""
    waits = f"{stuck} because {missing} did not arrive" if missing else stuck
    said = all_counted(
        [
            (counts["lost"], "message was lost", f"messages were lost{_split(harm)}"),
            (counts["pending"], f"message is pending{waits}", f"messages are pending{waits}"),
            (counts["unknown"], "message has an unknown outcome", "messages have an unknown outcome"),
            (counts["repaired"], "message was delivered after a refusal", "messages were delivered after a refusal"),
            (counts["expired"], "number expired unseen", "numbers expired unseen"),
        ]
    )
    return f"{_SENTENCES[cause].format(name)}{''.join(besides)}: {', '.join(said) or 'no message was lost'}."


def _split(harm: Iterable[Harm]) -> str:
    """Returns " (4 displaced, 2 passed by)" where messages were lost for several causes; else an empty text."""
    lost = [one for one in harm if one.lost]
    if len({one.cause for one in lost}) <= 1:
        return ""
    kinds = {one.outcome: 0 for one in lost}
    for one in lost:
        kinds[one.outcome] += one.lost
    return f" ({', '.join(f'{kinds[kind]} {kind}' for kind in LOST if kind in kinds)})".replace("_", " ")
