"""Compares a table that is there with its declaration, and finds how it becomes what this version declares.

Only tables that nothing derives again are upgraded: columns are added, which are null in older rows, and the words that
a column can have grow. Anything else needs the captures again, and is refused.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.types import StructType

from jobs.cli.code_version import VERSION
from jobs.cli.errors import JobError
from schemas.table import Column, Table, sql_type
from schemas.tables import LAYOUT

DECLARATION = "msmq.schema"
"""The property of a table that holds the fingerprint of its declaration."""
CHECK = "delta.constraints."
"""The prefix of the property that holds a CHECK constraint; the constraint's name follows."""
_LAYOUT, _VERSION = "msmq.layout", "msmq.version"
"""Properties that hold the layout that a table has, and the version of the program that made or upgraded it."""
_WORD = re.compile("'([^']*)'")
_BEFORE_1 = "a version before 1.0"
_CURE = "Use that version, or ingest the captures into a new warehouse."


class Upgrade(NamedTuple):
    """Holds what a table lacks."""

    added: list[Column]
    checks: dict[str, str]
    """The CHECK constraints, by name, that are not there, or allow fewer words."""


def marks(table: Table) -> dict[str, str]:
    """Returns the properties that say by which declaration and which version of the program a table was made."""
    return {DECLARATION: table.fingerprint, _LAYOUT: str(LAYOUT), _VERSION: VERSION}


def constraints(checks: Mapping[str, str]) -> dict[str, str]:
    """Returns CHECK constraints as properties of a table."""
    return {CHECK + name: check for name, check in checks.items()}


def maker(properties: Mapping[str, str]) -> str:
    """Returns which version of the program made a table or upgraded it."""
    return properties.get(_VERSION, _BEFORE_1)


def is_newer(properties: Mapping[str, str]) -> bool:
    """Returns whether a table has a layout that this version does not know yet."""
    return int(properties.get(_LAYOUT, 0)) > LAYOUT


def types_of(columns: StructType) -> dict[str, str]:
    """Returns the SQL types of columns by name."""
    return {field.name: field.dataType.simpleString() for field in columns}


def plan(table: Table, columns: StructType, properties: Mapping[str, str]) -> Upgrade:
    """Returns what a table with these columns and properties lacks to be as declared.

    Raises:
        JobError: it cannot become that: it has columns, types or words that this version does not have.
    """
    made = f"The table {table.name} was made by {maker(properties)} of msmq-replay, "
    there = types_of(columns)
    declared = {column.name: column for column in table}
    if unknown := there.keys() - declared.keys():
        raise JobError(f"{made}with columns that this version lacks: {', '.join(sorted(unknown))}. {_CURE}")
    for name, of in there.items():
        if of != sql_type(declared[name].type):
            raise JobError(f"{made}where {name} is {of}, not {sql_type(declared[name].type)}. {_CURE}")
    added = [column for column in table if column.name not in there]
    if unfilled := [column.name for column in added if not column.nullable]:
        raise JobError(f"{made}without {', '.join(unfilled)}, which no row may lack. {_CURE}")
    checks = {}
    for name, check in table.checks.items():
        known = properties.get(CHECK + name, "")
        if gone := set(_WORD.findall(known)) - set(_WORD.findall(check)):
            raise JobError(f"{made}with words that this version lacks: {', '.join(sorted(gone))}. {_CURE}")
        if known != check:
            checks[name] = check
    return Upgrade(added, checks)
