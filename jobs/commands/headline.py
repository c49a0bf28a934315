"""Puts into two lines what became of the messages."""

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
    """Returns the headline in two lines: what was lost or is stuck, and how sure that is.

    The second line says what the captures show and what else an operator is to know first. "Nothing was lost" is said
    only where messages were judged and nothing is in doubt.
    """
    lost, stuck, unacknowledged = figures.lost, figures.stuck, figures.unacknowledged
    said = [figures.one_way] if figures.one_way else []
    if lost:
        were = one_or_many(lost, "message was", "messages were")
        said.append(f"{lost:,} {were} lost{figures.lost_where}: {_list(figures.split)}.")
    if figures.early:
        said.append(figures.early)
    if stuck:
        are = one_or_many(stuck, "message is", "messages are")
        said.append(f"{stuck:,} {are} stuck{figures.stuck_where}, and still at the end of the captures.")
    if unacknowledged:
        were = one_or_many(unacknowledged, "message was", "messages were")
        said.append(f"{unacknowledged:,} {were} {figures.silence}{figures.unacknowledged_where}{figures.resent}.")
    if not (lost or stuck or unacknowledged):
        said.append(nothing_lost(figures))
    if figures.unsure:
        said.append(f"No acknowledgment confirms {figures.unsure:,} others.")
    if figures.cause:
        said.append(f"{figures.cause}.")
    if figures.incomplete:
        said.append(figures.incomplete)
    if figures.machines:
        said.append(f"Go to {figures.machines}.")
    beside = f"Also: {_list(figures.beside)}." if figures.beside else ""
    return "\n".join(filter(None, (" ".join(said), " ".join(filter(None, (figures.sure, beside))))))


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
