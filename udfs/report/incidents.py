"""Ranks incidents, and says of them together from where to where messages went and where an operator has to go."""

from collections import Counter

import polars as pl

from schemas.incidents import WORST_FIRST, Cause, IncidentOutcome
from udfs.frames.columns import nanoseconds
from udfs.report.rows import Rows, with_nanoseconds

_WORST_INCIDENTS = 5
"""Incidents that a summary tells."""
_NEXT_INCIDENTS = 20
"""Incidents after them that it names."""
HARM = {
    "lost": "lost_messages",
    "stuck": "stuck_messages",
    "unacknowledged": "unacknowledged",
    "pending": "pending",
    "unknown": "unknown",
}
"""The words for what may have become of messages, and the columns of INCIDENTS that count them."""
_LEAVES_IN_DOUBT = [Cause.ACKNOWLEDGMENT_FELL.value, Cause.RECEIVER_REPLACED.value]
_IS_UNREPAIRED = pl.col("outcome") != IncidentOutcome.REPAIRED.value


def worst_incidents(incidents: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the `limit` worst incidents in their order: WORST_FIRST, then those that are not over.

    `began_ns` and `ended_ns` replace the times, those of senders, too.
    """
    worst = (*map(pl.col, WORST_FIRST), pl.col("ongoing").fill_null(value=True), pl.col("findings"))
    order = (*worst, *map(pl.col, ("began_at", "incident_id")))
    descending = [place < len(worst) for place in range(len(order))]
    chosen = incidents.sort(order, descending=descending, nulls_last=descending).head(limit)
    timed = chosen.with_columns(pl.col("senders").list.eval(_timed(pl.element())))
    return with_nanoseconds(timed, began_ns="began_at", ended_ns="ended_at").drop("last_captured_at")


def machines_to_blame(incidents: pl.DataFrame) -> dict[str, str]:
    """Returns where to `go_to` about incidents with messages lost, stuck, or never acknowledged, the worst first.

    The values are their roles there, "sender" or "receiver"; an empty text for both, or where that is not known. A
    receiver that was replaced is one, too. Without any, these are machines of incidents that were not repaired.
    """
    is_harm = pl.any_horizontal(pl.col("lost_messages", "stuck_messages", "unacknowledged") > 0)
    harm = incidents.filter(is_harm | (pl.col("cause") == Cause.RECEIVER_REPLACED.value))
    told = harm if harm.height else incidents.filter(_IS_UNREPAIRED)
    roles: dict[str, set[str]] = {}
    for row in worst_incidents(told, told.height).to_dicts():
        sent = {one["address"] for one in row["senders"]}
        for one in row["go_to"]:
            roles.setdefault(one, set()).update(
                role for role, has in (("sender", sent), ("receiver", row["receivers"])) if one in has
            )
    return {machine: found.pop() if len(found) == 1 else "" for machine, found in roles.items()}


def causes_of_silence(incidents: pl.DataFrame) -> dict[Cause, int]:
    """Returns of how many messages each cause kept an acknowledgment from coming, or from being true, the most first.

    These are the messages that were never acknowledged; without any, unknown ones whose receiver went back or was
    replaced.
    """
    rows = incidents.filter(pl.col("unacknowledged") > 0).with_columns(messages="unacknowledged")
    if rows.is_empty():
        in_doubt = incidents.filter(pl.col("cause").is_in(_LEAVES_IN_DOUBT), pl.col("unknown") > 0)
        rows = in_doubt.with_columns(messages="unknown")
    sums = rows.group_by("cause").agg(pl.sum("messages")).sort(-pl.col("messages"), "cause")
    return {Cause(cause): messages for cause, messages in sums.iter_rows()}


def causes_untold(incidents: pl.DataFrame, told: Rows) -> dict[str, int]:
    """Returns how many incidents that were not repaired have each cause; those `told` are left out."""
    unrepaired = Counter(incidents.filter(_IS_UNREPAIRED)["cause"])
    untold = unrepaired - Counter(one["cause"] for one in told)
    return dict(sorted(untold.items(), key=lambda one: (-one[1], one[0])))


def ways_of_harm(incidents: pl.DataFrame) -> dict[str, tuple[list[str], list[str]]]:
    """Returns the addresses of senders and of receivers of the messages that are lost, stuck and so on, by that word.

    Of senders, those that are named by incidents with such messages; of lost ones, those that lost some.
    """
    found = {}
    for word, column in HARM.items():
        rows = incidents.filter(pl.col(column) > 0).select("senders", "receivers").to_dicts()
        sent = [one for row in rows for one in row["senders"]]
        losing = [one for one in sent if one["lost"]] if word == "lost" else []
        senders = {one["address"] for one in losing or sent if one["address"]}
        found[word] = sorted(senders), sorted({one for row in rows for one in row["receivers"]})
    return found


def unrepaired_incidents(incidents: pl.DataFrame) -> tuple[Rows, Rows]:
    """Returns the rows of `worst_incidents` that were not repaired: those that a summary tells, and those it names."""
    rows = worst_incidents(incidents.filter(_IS_UNREPAIRED), _WORST_INCIDENTS + _NEXT_INCIDENTS).to_dicts()
    return rows[:_WORST_INCIDENTS], rows[_WORST_INCIDENTS:]


def _timed(sender: pl.Expr) -> pl.Expr:
    """Returns one of the `senders` of an incident with its times in nanoseconds."""
    kept = (sender.struct[name] for name in ("address", "messages", "accepted", "lost", "suspected"))
    return pl.struct(
        *kept, *(nanoseconds(sender.struct[f"{name}_seen_at"]).alias(f"{name}_ns") for name in ("first", "last"))
    )
