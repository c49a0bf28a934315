"""Divides by a constant as Python and Spark do."""

import polars as pl


def quotient(dividend: pl.Expr, divisor: float) -> pl.Expr:
    """Returns the double nearest to the quotient; null for null.

    Polars multiplies a column by the reciprocal of a constant instead, and 60 s come out as 60.00000000000001 s. By a
    column it divides.
    """
    column_of_divisors = dividend * 0 + divisor
    return dividend / column_of_divisors
