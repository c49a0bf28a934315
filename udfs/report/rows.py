"""Chooses and counts rows, as the lists and figures of a report share it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl

from schemas.replay import Severity
from udfs.frames.columns import nanoseconds

Row = dict[str, Any]
Rows = list[Row]
SEVERITIES = tuple(reversed([severity.value for severity in Severity]))
"""The gravest first."""


def total(of: pl.Expr | str) -> pl.Expr:
    """Returns the sum of the values that are not null; null without one."""
    values = pl.col(of) if isinstance(of, str) else of
    return pl.when(values.count() > 0).then(values.sum())


def place_in(order: Sequence[str], name: str) -> pl.Expr:
    """Returns the place of a column's value in an order: 0, 1, …; null for another value."""
    return pl.col(name).replace_strict(list(order), range(len(order)), default=None, return_dtype=pl.Int64)


def in_period(since: datetime | None, column: str = "captured_at") -> pl.Expr:
    """Returns whether a row is from `since` on, or has no time, and may be as late."""
    if since is None:
        return pl.lit(value=True)
    return (pl.col(column) >= pl.lit(since.astimezone(UTC))).fill_null(value=True)


def first_of(
    rows: pl.DataFrame,
    within: str | Sequence[str],
    order: Sequence[pl.Expr | str],
    descending: Sequence[bool],
    limit: int,
) -> pl.DataFrame:
    """Returns the first `limit` rows of each group in an order, all in that order.

    Nulls come first, and last where the order is descending.
    """
    in_order = rows.sort(order, descending=descending, nulls_last=descending, maintain_order=True)
    return in_order.filter(pl.int_range(pl.len()).over(within) < limit)


def with_nanoseconds(rows: pl.DataFrame, **timestamps: str) -> pl.DataFrame:
    """Returns rows with ns since 1970, under other names, in place of timestamps."""
    named = (nanoseconds(pl.col(at)).alias(name) for name, at in timestamps.items())
    return rows.with_columns(*named).drop(*timestamps.values())
