"""Names the messages of incidents by their labels, and counts those that were sent before the captures begin."""

import polars as pl

from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome
from udfs.frames.derivation import derives
from udfs.report.messages import may_be_earlier
from udfs.report.rows import first_of, place_in

LABELS = 3
"""Labels that are told of an incident."""
OF_LABELS = ("scope_key", "tx_sequence_id", "outcome", "label", "first_seen_at")
"""Columns of OUTCOMES that `labels_of` needs."""
OF_EARLIER = ("scope_key", "tx_sequence_id", "outcome", "sent_at")
"""Columns of OUTCOMES that `earlier_of` needs."""
_HARM = [outcome.value for outcome in (*LOST, Outcome.PENDING, *LOSS_UNKNOWN)]
"""The worst first."""
_ORDER = ("harm", "first_seen_at", "label")


@derives(shared=("incidents",), in_parts=True)
def labels_of(outcomes: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns the first labels (`incident_id`, `label`) of the messages of incidents in some rows of OUTCOMES.

    Operators know orders, not numbers of sequences. Those of the worst messages come first. `incidents` are all of some
    scopes.
    """
    harmed = outcomes.select(OF_LABELS).filter(pl.col("outcome").is_in(_HARM), pl.col("label").is_not_null())
    named = _in_incidents(harmed, incidents).with_columns(harm=place_in(_HARM, "outcome"))
    return first_labels(named.select("incident_id", *_ORDER))


def first_labels(found: pl.DataFrame) -> pl.DataFrame:
    """Returns the first labels of each incident, one more than are told; of what `labels_of` found in parts."""
    each = found.sort(_ORDER, nulls_last=True).unique(("incident_id", "label"), keep="first", maintain_order=True)
    return first_of(each, "incident_id", _ORDER, [False] * len(_ORDER), LABELS + 1)


@derives(shared=("incidents",), in_parts=True)
def earlier_of(outcomes: pl.DataFrame, incidents: pl.DataFrame, *, begun_ns: int | None) -> pl.DataFrame:
    """Returns the `incident_id` of each lost message that may have been accepted before the captures, at `begun_ns`.

    `incidents` are all of some scopes.
    """
    return _in_incidents(outcomes.filter(may_be_earlier(begun_ns)), incidents).select("incident_id")


def _in_incidents(outcomes: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Adds `incident_id` to rows: in a scope, an incident has all sequences from its first to the next one's first."""
    begins = incidents.select("scope_key", "tx_sequence_id", "incident_id").sort("tx_sequence_id")
    in_order = outcomes.sort("tx_sequence_id")
    found = in_order.join_asof(begins, on="tx_sequence_id", by="scope_key", check_sortedness=False)
    return found.drop_nulls("incident_id")
