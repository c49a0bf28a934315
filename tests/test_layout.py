"""Tables that lack declared columns or words are upgraded; those that have others are refused."""

from dataclasses import replace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from jobs.cli.code_version import VERSION
from jobs.cli.errors import JobError
from jobs.tables import layout
from schemas.table import LONG, STRING, Column, Table
from schemas.tables import LAYOUT

THERE = Table(
    "things",
    "Things.",
    ("name",),
    (
        Column("name", STRING, "Its name.", nullable=False),
        Column("kind", STRING, "Its kind.", values=("a", "b")),
        Column("size", LONG, "Its size."),
    ),
)


def properties(table: Table) -> dict[str, str]:
    """Returns the properties of a table as this release makes it."""
    return layout.marks(table) | {layout.CHECK + name: check for name, check in table.checks.items()}


def planned(declared: Table) -> layout.Upgrade:
    return layout.plan(declared, THERE.spark, properties(THERE))


def with_columns(*columns: Column) -> Table:
    return replace(THERE, columns=columns)


def test_a_table_as_declared_lacks_nothing() -> None:
    assert planned(THERE) == ([], {})


def test_columns_and_words_are_added() -> None:
    name, kind, size = THERE.columns
    colour = Column("colour", STRING, "Its colour.")
    wider = with_columns(name, colour, replace(kind, values=("a", "b", "c")), size)
    assert planned(wider) == ([colour], {"kind_values": "kind IS NULL OR kind IN ('a', 'b', 'c')"})


def test_an_upgrade_that_was_killed_half_way_goes_on() -> None:
    """The columns are there, the words and the marks are not."""
    name, kind, size = THERE.columns
    wider = with_columns(name, replace(kind, values=("a", "b", "c")), size, Column("colour", STRING, "Its colour."))
    half = StructType([*THERE.spark, StructField("colour", StringType())])
    added, checks = layout.plan(wider, half, properties(THERE))
    assert (added, list(checks)) == ([], ["kind_values"])


NAME, KIND, SIZE = THERE.columns


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        pytest.param(with_columns(NAME, KIND), "with columns that this version lacks: size", id="column gone"),
        pytest.param(with_columns(NAME, KIND, replace(SIZE, type=STRING)), "size is bigint, not string", id="type"),
        pytest.param(
            with_columns(NAME, KIND, SIZE, Column("owner", STRING, "Its owner.", nullable=False)),
            "without owner, which no row may lack",
            id="value that no older row has",
        ),
        pytest.param(
            with_columns(NAME, replace(KIND, values=("b", "c")), SIZE), "words that this version lacks: a", id="word"
        ),
    ],
)
def test_what_rows_cannot_become_is_refused_with_the_reason(declared: Table, said: str) -> None:
    with pytest.raises(JobError, match=f"^The table things was made by {VERSION} of msmq-replay, .*{said}"):
        planned(declared)


def test_who_made_a_table_and_whether_that_is_newer() -> None:
    own = layout.marks(THERE)
    assert (layout.maker(own), layout.is_newer(own)) == (VERSION, False)
    assert (layout.maker({}), layout.is_newer({})) == ("a version before 1.0", False)
    assert layout.is_newer(own | {"msmq.layout": str(LAYOUT + 1)})
