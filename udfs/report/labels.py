"""Names the messages of incidents by their labels: operators know orders, not numbers of sequences."""

import polars as pl

from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome
from udfs.frames.derivation import derives
from udfs.report.rows import first_of, place_in

LABELS = 3
"""Labels that are told of an incident."""
OF_LABELS = ("scope_key", "tx_sequence_id", "outcome", "label", "first_seen_at")
"""Columns of OUTCOMES that `labels_of` needs."""
_HARM = [outcome.value for outcome in (*LOST, Outcome.PENDING, *LOSS_UNKNOWN)]
"""The worst first."""
_ORDER = ("harm", "first_seen_at", "label")


@derives(shared=("incidents",), in_parts=True)
def labels_of(outcomes: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns the first labels (`incident_id`, `label`) of the messages of incidents in some rows of OUTCOMES.

    Those of the worst messages come first. `incidents` are all of some scopes. In a scope, each has all sequences from
    its first one on, up to the first one of the next.
    """
    begins = incidents.select("scope_key", "tx_sequence_id", "incident_id").sort("tx_sequence_id")
    harmed = outcomes.select(OF_LABELS).filter(pl.col("outcome").is_in(_HARM), pl.col("label").is_not_null())
    found = harmed.sort("tx_sequence_id").join_asof(begins, on="tx_sequence_id", by="scope_key", check_sortedness=False)
    named = found.drop_nulls("incident_id").with_columns(harm=place_in(_HARM, "outcome"))
    return first_labels(named.select("incident_id", *_ORDER))


def first_labels(found: pl.DataFrame) -> pl.DataFrame:
    """Returns the first labels of each incident, one more than are told; of what `labels_of` found in parts."""
    each = found.sort(_ORDER, nulls_last=True).unique(("incident_id", "label"), keep="first", maintain_order=True)
    return first_of(each, "incident_id", _ORDER, [False] * len(_ORDER), LABELS + 1)
