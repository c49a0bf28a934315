"""Column expressions that several transforms share."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.table import Table, sql_type


def with_columns_of(table: Table, rows: DataFrame) -> DataFrame:
    """Returns the rows with the table's columns, in its order and types; those that they lack are null."""
    kinds = {column.name: sql_type(column.type) for column in table}
    return rows.select(
        *((F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items())
    )


def timestamp(nanoseconds: Column) -> Column:
    """Returns ns since 1970 as a timestamp, rounded down to whole microseconds; null for null."""
    whole = nanoseconds - F.pmod(nanoseconds, F.lit(1000))
    return F.timestamp_micros(F.call_function("div", whole, F.lit(1000)))  # a quotient of `/` is a DOUBLE, and inexact
