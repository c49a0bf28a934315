"""Puts into a few lines what became of the messages."""

from jobs.commands.headline_figures import Figure, Figures
from udfs.replay.words import one_or_many

NOT_TOLD = (
    "The literal reading judges arrivals only: verdicts are counted, and a run with --reading conformant tells what "
    "became of the messages."
)
"""The headline under the literal reading."""
WAITS = "The receiver refuses the pending ones until what comes before them arrives."
"""Explains to a reader that messages are pending."""
UNCONFIRMED = (
    "The captures hold no acknowledgment of these messages: only the sender's outgoing queue and its dead-letter "
    "queue, or a capture of the way back, can tell whether they arrived."
)
"""Explains to a reader that no message is confirmed."""


def headline(figures: Figures) -> str:
    """Returns the headline: what was lost, what is stuck, and what was never acknowledged, each in a line of its own.

    The last line says what the captures show, how sure that is, and what else an operator is to know first. "Nothing
    was lost" is said only where messages were judged and nothing is in doubt.
    """
    lost, stuck, unacknowledged = figures.lost, figures.stuck, figures.unacknowledged
    harm = []
    if lost:
        were = one_or_many(lost, "message was", "messages were")
        split = f"{lost:,} {were} lost{figures.lost_where}: {_list(figures.split)}."
        harm.append(_join(split, figures.early))
    if stuck:
        are = one_or_many(stuck, "message is", "messages are")
        harm.append(f"{stuck:,} {are} stuck{figures.stuck_where}, and still at the end of the captures.")
    if unacknowledged:
        were = one_or_many(unacknowledged, "message was", "messages were")
        harm.append(f"{unacknowledged:,} {were} {figures.silence}{figures.unacknowledged_where}{figures.resent}.")
    told = _join(
        figures.one_way,
        "\n".join(harm) or nothing_lost(figures),
        f"No acknowledgment confirms {figures.unsure:,} others." if figures.unsure else "",
        f"{figures.cause}." if figures.cause else "",
        figures.incomplete,
        f"Go to {figures.machines}." if figures.machines else "",
    )
    beside = f"Also: {_list(figures.beside)}." if figures.beside else ""
    return "\n".join(filter(None, (told, _join(figures.sure, beside))))


def _join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def nothing_lost(figures: Figures) -> str:
    """Returns what can be said where nothing is lost, stuck or without an acknowledgment: less, the less is known."""
    if figures.undecided:
        were = one_or_many(figures.undecided, "message was", "messages were")
        return (
            f"{figures.undecided:,} {were} lost; which machine's is not known: nothing compares the clocks of these "
            f"captures. In doubt: {_list(figures.doubts)}."
        )
    if figures.nothing_judged:
        besides = f" In doubt: {_list(figures.doubts)}." if figures.doubts else ""
        return f"{figures.nothing_judged}{besides}"
    if figures.doubts:
        return f"No loss was seen, but: {'; '.join(f'{_list(some)}{at}' for some, at in figures.doubted)}."
    if figures.waiting:
        so_far = "Nothing was lost" if figures.confirmed else "No loss was seen"
        return f"{so_far} so far, but: {_list(figures.waiting)}{figures.waiting_where}. {WAITS}"
    if figures.harmed:
        return f"Nothing was lost, but: {_list(figures.harmed)}."
    if figures.confirmed:
        return "Nothing was lost."
    return f"No loss was seen, and no refusal. {UNCONFIRMED}"


def _list(figures: list[Figure]) -> str:
    return ", ".join(f"{figure.number:,} {figure.words}" for figure in figures)
