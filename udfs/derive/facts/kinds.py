"""Puts together the facts of all kinds of findings that no single arrival shows."""

from collections.abc import Mapping
from typing import Any

import polars as pl

Facts = Mapping[type[Any], pl.DataFrame]
"""Facts by their kind, a named tuple whose fields are columns of the rows."""


def collect_facts(facts: Facts) -> pl.DataFrame:
    """Returns one row per fact, which is a struct in a column with the name of its kind; the other columns are null."""
    rows = (of_kind.select(pl.struct(kind._fields).alias(kind.__name__)) for kind, of_kind in facts.items())
    return pl.concat(rows, how="diagonal")
