"""Says the findings on what no single arrival shows."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from schemas.explained import FOUND
from udfs.derive.tables import schema_of
from udfs.replay.findings.finding import finding_row


def tell_facts(facts: Mapping[type[Any], pl.DataFrame]) -> pl.DataFrame:
    """Returns a row of FINDINGS per fact; facts are named by their kind, whose fields are columns of the rows."""
    rows = (
        finding_row(fact.tell(), fact)
        for kind, of_kind in facts.items()
        for fact in map(kind._make, of_kind.select(kind._fields).iter_rows())
    )
    return pl.DataFrame(list(rows), schema_of(FOUND), orient="row")
